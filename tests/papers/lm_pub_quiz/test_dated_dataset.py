"""Dated datasets: right answers of a day, what is refused, and which date a model knows."""

import datetime
import json

import numpy as np
import pytest

from ckl_jax.cli import ckl
from ckl_jax.data.facts.relational import Dataset, Instance, Relation
from ckl_jax.errors import UserError
from ckl_jax.papers.lm_pub_quiz.analysis import by_date
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults, RelationResult
from tests.papers.lm_pub_quiz.test_probe import golden  # noqa: F401 (a fixture)
from tests.real_data import shared_data

FACTS = [
    ("Aland", "head_of_government", "Ann", "2001-01-01", "2010-01-01"),
    ("Aland", "head_of_government", "Bob", "2010-01-01", "2020-01-01"),
    ("Aland", "head_of_government", "Cyd", "2020-01-01", ""),
    ("Aland", "head_of_government", "Ann", "1990-01-01", "1995-01-01"),
    ("Bland", "head_of_government", "Dee", "2005-01-01", ""),
    ("Cland", "head_of_government", "Eve", "2005-01-01", "2012-01-01"),
    ("Dland", "head_of_government", "Fay", "2014", "2019-01-01"),
    ("Dland", "head_of_government", "Gus", "2019-01-01", ""),
    ("Aland", "language", "Alish", "", ""),
    ("Aland", "language", "Blish", "2000-01-01", ""),
]
NAMES = ("subject", "relation", "object", "valid_from", "valid_to")


def write(path, facts=FACTS):
    path.write_text("".join(json.dumps(dict(zip(NAMES, f, strict=True))) + "\n" for f in facts))
    return ["data", "dated-quiz", "--facts", str(path), "--out", str(path.parent / "quiz")]


def test_the_right_answers_are_those_of_the_day(tmp_path, capsys):
    argv = [*write(tmp_path / "facts.jsonl"), "--relations", "head_of_government"]
    assert ckl.main([*argv, "--as-of", "2015-06-01"]) == 0
    printed = capsys.readouterr().out
    assert "3  head_of_government" in printed
    assert "1  left out: subjects without an object on 2015-06-01" in printed
    (relation,) = Dataset.from_path(tmp_path / "quiz")
    assert relation.templates == ("The head of government of [X] is [Y].",)
    right = {x.sub_label: relation.answer_labels[x.answer_idx] for x in relation.instances}
    assert right == {"Aland": "Bob", "Bland": "Dee", "Dland": "Fay"}
    assert relation.answer_labels == ("Ann", "Bob", "Cyd", "Dee", "Fay", "Gus")  # no Eve
    assert relation.info["as_of"] == "2015-06-01"
    assert len(relation.instances[0].rest["holders"]) == 4
    # "2014" may be any day of that year.
    assert ckl.main([*argv, "--as-of", "2014-06-01", "--overwrite"]) == 0
    told = "left out: subjects whose dates do not say what holds on 2014-06-01"
    assert told in capsys.readouterr().out
    (tmp_path / "t.jsonl").write_text(
        '{"relation": "head_of_government", "cloze": "[Y] heads [X]."}\n'
    )
    more = ["--templates", str(tmp_path / "t.jsonl"), "--instances", "1", "--overwrite"]
    assert ckl.main([*argv, "--as-of", "2015-06-01", *more]) == 0
    (relation,) = Dataset.from_path(tmp_path / "quiz")
    assert relation.templates == ("[Y] heads [X].",) and len(relation.instances) == 1


@pytest.mark.parametrize(
    "more, message",
    [
        (
            [],
            "facts.jsonl, line 10: the language of Aland is Blish from 2000-01-01, and at the same "
            "time Alish (",
        ),
        (["--relations", "capital"], "The facts have no relation 'capital'"),
        (["--as-of", "1980-01-01", "--skip-overlaps"], "No relation is left for 1980-01-01 ("),
        (["--as-of", "2015"], "--as-of is '2015'; give a day as YYYY-MM-DD"),
        (["--instances", "0"], "instances is 0"),
    ],
)
def test_wrong_input_is_one_sentence(tmp_path, capsys, more, message):
    argv = [*write(tmp_path / "facts.jsonl"), "--as-of", "2015-06-01", *more]
    assert ckl.main(argv) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error and not (tmp_path / "quiz").exists()


def test_subjects_with_two_objects_at_a_time_are_left_out_if_wanted(tmp_path, capsys):
    argv = [*write(tmp_path / "facts.jsonl"), "--as-of", "2015-06-01", "--skip-overlaps"]
    assert ckl.main(argv) == 0
    assert "1  left out: subjects with two objects at a time" in capsys.readouterr().out
    assert [r.code for r in Dataset.from_path(tmp_path / "quiz")] == ["head_of_government"]


def results(knows: str, as_of: str, subjects: int = 40) -> DatasetResults:
    """A model that names the holder of a day, of subjects whose holder changes each January 1st."""
    rng = np.random.default_rng(0)
    ids = [f"{s}/{y}" for s in range(subjects) for y in range(2010, 2020)]
    rows, scores = [], []
    for s in range(subjects):
        holders = [
            {"obj_id": f"{s}/{y}", "valid_from": f"{y}-01-01", "valid_to": f"{y + 1}-01-01"}
            for y in range(2010, 2020)
        ]
        own = np.full(len(ids), -1.0)
        year = int(knows[:4]) if rng.random() < 0.8 else int(rng.integers(2010, 2020))
        own[ids.index(f"{s}/{year}")] = 0.0
        place = ids.index(f"{s}/{as_of[:4]}")
        rows.append({"sub_id": f"S{s}", "sub_label": f"S{s}", "answer_idx": place})
        rows[-1] |= {"holders": holders, "template_index": 0, "instance_index": s}
        scores.append(own)
    space = {"answer_space_ids": ids, "answer_space_labels": ids, "relation_info": {"as_of": as_of}}
    return DatasetResults("dated", [RelationResult("r", rows, np.array(scores), space)])


def test_the_date_that_a_model_knows_is_found():
    made = results("2014-05-05", "2017-06-01")
    found = by_date.measure(made)
    years = [row.argmax() % 10 for row in made["r"].scores]
    stale = 100 * np.mean([year < 7 for year in years])
    assert found["states"]["stale"]["value"] == pytest.approx(stale)
    assert found["states"]["later"]["value"] == pytest.approx(100 * np.mean(np.array(years) > 7))
    assert found["states"]["never"]["value"] == 0
    assert found["states"]["stale"]["chance"] == pytest.approx(100 * 7 / 400)
    assert sum(state["value"] for state in found["states"].values()) == pytest.approx(100)
    assert {found["best"][name] for name in ("date", "low", "high")} == {"2014-01-01"}
    assert [p["date"] for p in found["by_date"]] == [f"{y}-01-01" for y in range(2010, 2020)]
    by_hand = [100 * np.mean(np.array(years) == y) for y in range(10)]
    assert [p["value"] for p in found["by_date"]] == pytest.approx(by_hand)
    assert by_date.plot({"m": found}).startswith(b"\x89PNG")
    for holders in (None, [1], [{"obj_id": "x", "since": "2010"}], [{"valid_from": "2010"}]):
        broken = results("2014-05-05", "2017-06-01")
        broken["r"].table[3]["holders"] = holders
        with pytest.raises(UserError, match="The `holders` of S3 are not those of"):
            by_date.measure(broken)
    seen = results("2014-05-05", "2017-06-01")
    for row in seen["r"].table:  # looked up in some months, as snapshots have it
        row["holders"] = [
            {"obj_id": h["obj_id"], "seen": [h["valid_from"][:7]]} for h in row["holders"]
        ]
    again = by_date.measure(seen)
    assert again["best"] == found["best"] and again["by_date"] == found["by_date"]
    made["r"].metadata["relation_info"] = {}
    assert by_date.measure(made) is None


@pytest.mark.parametrize("known", [1, 2])
def test_a_date_of_few_subjects_has_no_resample_without_them_in_its_interval(known):
    made = results("2014-05-05", "2017-06-01")
    for row in made["r"].table[known:]:
        row["holders"] = [h for h in row["holders"] if h["valid_from"] != "2012-01-01"]
    point = next(p for p in by_date.measure(made)["by_date"] if p["date"] == "2012-01-01")
    assert point["instances"] == known and point["value"] == 0
    assert {point["low"], point["high"]} == ({None} if known == 1 else {0.0})
    assert by_date.plot({"m": by_date.measure(made)}).startswith(b"\x89PNG")


def test_datasets_that_differ_in_their_dates_have_other_digests():
    one, other = (
        Relation("r", ("[X] [Y]",), ("a",), ("A",), (Instance("s", "S", 0, {"holders": [day]}),))
        for day in ("2010", "2011")
    )
    assert one.digest() != other.digest()


def test_a_model_ranks_it_and_the_page_shows_the_dates(golden, tmp_path, capsys):  # noqa: F811
    argv = [*write(tmp_path / "facts.jsonl"), "--relations", "head_of_government"]
    assert ckl.main([*argv, "--as-of", "2015-06-01"]) == 0
    quiz, out = str(tmp_path / "quiz"), tmp_path / "out"
    argv = ["probe", "bear", "--model", str(golden / "model"), "--dataset", quiz]
    assert ckl.main([*argv, "--out", str(out)]) == 0
    assert (
        "as of 2015-06-01 the best option (by chance) is the current object in "
        in capsys.readouterr().out
    )
    dated = json.loads((out / "summary.json").read_text())["dated"]
    # By hand, from the rows: which of the subject's objects the best option is.
    best = {i["sub_label"]: i["best"] for i in map(json.loads, (out / "items.jsonl").open())}
    states = {"Aland": {"Bob": 0, "Ann": 1, "Cyd": 2}, "Bland": {"Dee": 0}}
    states["Dland"] = {"Fay": 0, "Gus": 2}
    found = [states[subject].get(name, 3) for subject, name in best.items()]
    for i, name in enumerate(by_date.STATES):
        assert dated["states"][name]["value"] == pytest.approx(100 * found.count(i) / 3)
    for point in dated["by_date"]:
        day = datetime.date.fromisoformat(point["date"])
        holders = {s: o for s, r, o, a, b in FACTS if r[0] == "h" and _holds(day, a, b)}
        asked = [s for s in ("Aland", "Dland") if s in holders]
        value = 100 * np.mean([best[s] == holders[s] for s in asked])
        assert (point["instances"], point["value"]) == (len(asked), pytest.approx(value))
    assert (out / "by_date.png").exists()
    assert ckl.main(["probe", "compare", f"m={out}", "--out", str(tmp_path / "page")]) == 0
    assert "by_date.png" in capsys.readouterr().out
    assert "m: as of 2015-06-01 the best" in (tmp_path / "page/report.html").read_text()


def _holds(day: datetime.date, begin: str, end: str) -> bool:
    begins = f"{begin}-12-31" if len(begin) == 4 else begin
    return begins <= day.isoformat() < (end or "9999")


def test_the_factbooks_heads_of_government(tmp_path):
    from benchmarks.factbook_snapshots import facts

    rows = [f for f in facts(shared_data()) if f["relation"] == "head_of_government"]
    (tmp_path / "facts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    argv = [*write(tmp_path / "none.jsonl"), "--as-of", "2022-01-06"]
    argv[3] = str(tmp_path / "facts.jsonl")
    assert ckl.main(argv) == 0
    (relation,) = Dataset.from_path(tmp_path / "quiz")
    right = {x.sub_label: relation.answer_labels[x.answer_idx] for x in relation.instances}
    assert right["Japan"] == "Fumio Kishida" and len(relation.instances) > 150
