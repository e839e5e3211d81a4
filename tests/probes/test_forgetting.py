"""FUAR recomputed from every table of the CKL paper that prints it next to its scores."""

import numpy as np
import pytest

from ckl_jax.probes.forgetting import (
    NO_GAIN,
    backward_transfer,
    forward_transfer,
    fuar,
    fuar_parts,
)

MAIN = (["IL"], "UL", "NL")
BOTH_HALVES = [("P1", 1.0), ("P2", 1.0)]


def scores(names, values):
    return dict(zip(names.split(), values, strict=True))


# Printed IL, UL, NL, NLE and FUAR, then FUAR with four decimals.
TABLE_2_INITIAL = (24.17, 1.62, 1.88, 10.32)
TABLE_2 = {
    "Vanilla": ((12.89, 10.17, 3.77, 17.75), "1.08", 1.0805),
    "RecAdam": ((13.20, 12.55, 4.02, 17.85), "0.84", 0.8393),
    "Mix-Review": ((13.92, 6.49, 2.89, 14.86), "1.74", 1.7432),
    "LoRA": ((16.58, 12.77, 4.52, 19.56), "0.55", 0.5504),
    "K-Adapter (k=2)": ((19.59, 12.34, 5.03, 18.75), "0.33", 0.3302),
    "K-Adapter (k=3)": ((19.76, 12.66, 4.02, 19.00), "0.33", 0.3346),
    "Modular": ((20.29, 12.66, 4.65, 19.24), "0.28", 0.2810),
}


@pytest.mark.parametrize("name", TABLE_2)
def test_table_2(name):
    values, printed, exact = TABLE_2[name]
    columns = "IL UL NL NLE"
    result = fuar([scores(columns, TABLE_2_INITIAL), scores(columns, values)], *MAIN)
    assert str(result) == printed
    assert result.value == pytest.approx(exact, abs=6e-5)


# Correct answers out of 17474, 924, 796 and 11177, and FUAR with four decimals.
SIZES = (17474, 924, 796, 11177)
COUNTS_INITIAL = (4223, 15, 15, 1153)
COUNTS = {
    "Vanilla": ((2252, 94, 30, 1984), 1.0810),
    "RecAdam": ((2307, 116, 32, 1995), 0.8392),
    "Mix-Review": ((2432, 60, 23, 1661), 1.7446),
    "LoRA": ((2897, 118, 36, 2186), 0.5505),
    "K-Adapter (k=2)": ((3423, 114, 40, 2096), 0.3304),
    "K-Adapter (k=3)": ((3453, 117, 32, 2124), 0.3345),
    "Modular": ((3545, 117, 37, 2150), 0.2811),
}


def percent(counts):
    return [100 * c / n for c, n in zip(counts, SIZES, strict=True)]


@pytest.mark.parametrize("name", COUNTS)
def test_table_2_from_the_counts_of_right_answers(name):
    counts, exact = COUNTS[name]
    columns = "IL UL NL NLE"
    before, after = scores(columns, percent(COUNTS_INITIAL)), scores(columns, percent(counts))
    assert [round(v, 2) for v in after.values()] == list(TABLE_2[name][0])
    result = fuar([before, after], *MAIN)
    assert result.value == pytest.approx(exact, abs=6e-5)
    assert str(result) == TABLE_2[name][1]


# IL, NLE_P1, NLE_P2 and FUAR of SMALL, of SMALL-P1, and of SMALL-P1 followed by SMALL-P2.
TABLE_3_INITIAL = (24.17, 8.69, 9.45)
TABLE_3 = {
    "Vanilla": [
        ((11.86, 17.77, 16.42), "1.53", 1.5340),
        ((9.68, 20.60, 11.44), "1.22", 1.2166),
        ((9.40, 14.37, 23.38), "1.06", 1.0603),
    ],
    "RecAdam": [
        ((11.85, 16.46, 13.93), "2.01", 2.0114),
        ((11.78, 20.42, 11.94), "1.06", 1.0563),
        ((7.25, 14.56, 20.90), "1.48", 1.4777),
    ],
    "Mix-Review": [
        ((14.36, 14.18, 13.93), "1.97", 1.9679),
        ((16.13, 15.88, 11.94), "1.12", 1.1182),
        ((13.20, 17.20, 16.92), "1.47", 1.4685),
    ],
    "LoRA": [
        ((14.26, 20.60, 19.90), "0.87", 0.8864),
        ((14.75, 20.79, 13.93), "0.78", 0.7785),
        ((13.25, 16.07, 22.39), "0.84", 0.8439),
    ],
    "K-Adapter (k=2)": [
        ((18.16, 18.34, 16.42), "0.72", 0.7232),
        ((19.11, 20.60, 10.95), "0.42", 0.4249),
        ((15.78, 16.07, 23.38), "0.60", 0.6023),
    ],
    "K-Adapter (k=3)": [
        ((17.12, 20.98, 20.39), "0.61", 0.6070),
        ((19.08, 18.15, 10.94), "0.54", 0.5381),
        ((15.47, 15.31, 20.90), "0.76", 0.7598),
    ],
    "Modular": [
        ((16.40, 19.47, 19.90), "0.73", 0.7320),
        ((17.08, 18.90, 11.94), "0.69", 0.6944),
        ((14.66, 15.31, 20.40), "0.87", 0.8685),
    ],
}
# The scores printed for LoRA on SMALL give 0.89: with IL 14.46 for 14.26 they would give the
# printed 0.87, so one digit of the table is probably wrong.
TABLE_3_MISPRINT = ("LoRA", 0)


@pytest.mark.parametrize("name", TABLE_3)
def test_table_3(name):
    columns = "IL P1 P2"
    initial = scores(columns, TABLE_3_INITIAL)
    first = scores(columns, TABLE_3[name][1][0])
    for setting, (values, printed, exact) in enumerate(TABLE_3[name]):
        models, cells = [
            ([initial], (["IL"], None, BOTH_HALVES)),
            ([initial], (["IL"], None, "P1")),
            ([initial, first], (["IL", None], None, "P2")),
        ][setting]
        result = fuar([*models, scores(columns, values)], *cells)
        assert result.value == pytest.approx(exact, abs=6e-5)
        assert (str(result) == printed) == ((name, setting) != TABLE_3_MISPRINT)


def test_table_3_lora_has_a_digit_that_would_explain_it():
    columns = "IL P1 P2"
    models = [scores(columns, TABLE_3_INITIAL), scores(columns, (14.46, 20.60, 19.90))]
    assert str(fuar(models, ["IL"], None, BOTH_HALVES)) == "0.87"


# Learning rates: IL, NLE and FUAR; Initial is 24.17 and 8.9.
TABLE_7 = [
    ("Vanilla 1e-5", (19.15, 13.56), "1.08"),
    ("Vanilla 1e-4", (17.45, 15.21), "1.06"),
    ("Vanilla 5e-4", (14.88, 15.89), "1.33"),
    ("Vanilla 1e-3", (11.19, 18.77), "1.32"),
    ("K-Adapter 1e-4", (19.93, 14.93), "0.70"),
    ("K-Adapter 1e-3", (16.46, 19.59), "0.72"),
]

# GPT-2: IL, NQE and FUAR; Initial is 38.11 and 4.37 (Table 10 prints 4.3, which fits no row
# that distinguishes the two). Vanilla's scores give 1.57: they are rounded means of five seeds.
TABLE_10 = [
    ("Vanilla", (35.88, 5.79), "1.57"),
    ("RecAdam", (35.50, 5.79), "1.84"),
    ("Mix-Review", (38.93, 5.57), "0.00"),
    ("LoRA", (37.99, 6.23), "0.06"),
    ("K-Adapter (k=2)", (37.85, 6.34), "0.13"),
    ("K-Adapter (k=3)", (38.03, 5.79), "0.06"),
]
TABLE_10_PRINTED_VANILLA = 1.58
TABLE_11 = [
    ("Vanilla", (23.03, 1.64), "no gain"),
    ("RecAdam", (25.38, 2.73), "no gain"),
    ("Mix-Review", (32.07, 1.64), "no gain"),
    ("LoRA", (34.52, 5.46), "3.29"),
    ("K-Adapter (k=2)", (33.67, 6.01), "2.71"),
    ("K-Adapter (k=3)", (31.75, 7.65), "1.94"),
]


@pytest.mark.parametrize(
    ("initial", "table"), [((24.17, 8.9), TABLE_7), ((38.11, 4.37), TABLE_10 + TABLE_11)]
)
def test_tables_7_10_and_11(initial, table):
    for name, values, printed in table:
        models = [scores("IL A", initial), scores("IL A", values)]
        assert str(fuar(models, ["IL"], None, "A")) == printed, name


def test_table_10_vanilla_is_off_by_one_in_the_last_digit():
    models = [scores("IL A", (38.11, 4.37)), scores("IL A", TABLE_10[0][1])]
    value = fuar(models, ["IL"], None, "A").value
    assert value == pytest.approx(TABLE_10_PRINTED_VANILLA, abs=0.01)


def test_no_gain_is_tagged_and_sorts_last():
    same = {"IL": 10.0, "UL": 5.0}
    result = fuar([same, {"IL": 5.0, "UL": 5.0}], ["IL"], "UL", None)
    assert result.no_gain and result.value is None and result.lost == 5.0
    assert (
        sorted(
            [NO_GAIN, fuar([same, {"IL": 9.0, "UL": 6.0}], ["IL"], "UL", None)],
            key=lambda f: f.order,
        )[-1]
        is NO_GAIN
    )
    assert fuar([same, same], ["IL"], "UL", None).no_gain


def test_each_gap_is_bounded_on_its_own():
    before = {"IL": 10.0, "UL": 5.0, "NL": 5.0}
    after = {"IL": 8.0, "UL": 1.0, "NL": 7.0}
    assert fuar([before, after], *MAIN).value == pytest.approx(1.0)  # UL's loss is not deducted
    better = {"IL": 12.0, "UL": 9.0, "NL": 7.0}
    assert fuar([before, better], *MAIN).value == 0.0


def test_an_undefined_forgotten_task_removes_its_phase_from_both_sums():
    models = [{"IL": 10.0, "A": 0.0}, {"IL": 9.0, "A": 5.0}, {"IL": 8.0, "A": 6.0}]
    assert fuar(models, ["IL", None], None, "A").value == pytest.approx(2 / 6)
    assert fuar(models, ["IL", "IL"], None, "A").value == pytest.approx((2 + 1) / (6 + 1))


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match="2 models"):
        fuar([{"IL": 1.0}], ["IL"], None, None)
    with pytest.raises(ValueError, match="'UL'"):
        fuar([{"IL": 1.0}, {"IL": 1.0}], ["IL"], "UL", None)


def test_parts_take_samples():
    before = {"IL": np.array([10.0, 20.0]), "UL": np.array([0.0, 0.0])}
    after = {"IL": np.array([8.0, 25.0]), "UL": np.array([4.0, 5.0])}
    lost, gained = fuar_parts([before, after], ["IL"], "UL", None)
    np.testing.assert_allclose(lost, [2.0, 0.0])
    np.testing.assert_allclose(gained, [4.0, 5.0])


def test_transfer():
    models = [
        {"a": 9.0, "b": 2.0, "c": 1.0},
        {"a": 7.0, "b": 8.0, "c": 3.0},
        {"a": 4.0, "b": 9.0, "c": 9.0},
    ]
    assert backward_transfer(models, ["a", "b", "c"]) == pytest.approx(((4 - 9) + (9 - 8)) / 2)
    baseline = {"a": 0.0, "b": 0.0, "c": 1.0}
    assert forward_transfer(models, ["a", "b", "c"], baseline) == pytest.approx((2 + 2) / 2)
