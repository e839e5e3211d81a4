"""Dated facts as rows, and the dates between which probes are built of them."""

YEAR = ("2020-12-31", "2021-12-31")


def fact_row(name, answer, begin="", end="", relation="P6", **more):
    return {
        "subject_name": name,
        "relation": relation,
        "object_name": answer,
        "valid_from": begin,
        "valid_to": end,
        **more,
    }
