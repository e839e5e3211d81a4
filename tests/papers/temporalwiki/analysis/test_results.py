"""Tables, matrix and report of successive updates, from rows that cost what the paper printed."""

import csv
import json
import math
import shutil
from decimal import Decimal

import pytest

from ckl_jax import load
from ckl_jax.analysis.perplexity import rounded
from ckl_jax.cli import ckl
from ckl_jax.errors import UserError
from ckl_jax.files import finite, read_json_object, write_json, write_jsonl
from ckl_jax.papers.temporalwiki.analysis import examples, report, results
from ckl_jax.papers.temporalwiki.analysis.comparison import ANALYSES
from ckl_jax.papers.temporalwiki.analysis.published import MONTHS, TABLE_3
from ckl_jax.papers.temporalwiki.analysis.report import _perplexities, section_3, write_report
from ckl_jax.papers.temporalwiki.analysis.tables import Perplexities, matrices, table_3, transfer
from tests.papers.temporalwiki.analysis.temporalwiki_study import (
    AWAY,
    INTERVALS,
    METHODS,
    fact_rows,
    write_run,
    write_study,
)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_study(tmp_path_factory.mktemp("study"))


def test_table_3_is_the_published_one(root):
    study = results.load(root)
    rows = {row["method"]: row for row in table_3(study, Perplexities(study, samples=20))}
    assert list(rows) == ["initial", *METHODS]
    for method, label in {"initial": "Initial", **METHODS}.items():
        for name, month in zip(INTERVALS, MONTHS, strict=True):
            cells = rows[method]["intervals"][name]
            found = [rounded(cells[kind]["value"]) for kind in ("unchanged", "changed", "avg")]
            assert found == list(map(Decimal, TABLE_3[label][month]))
            assert cells["changed"]["low"] <= cells["changed"]["value"] <= cells["changed"]["high"]
            assert cells["new"]["facts"] == cells["updated"]["facts"] == 2
            assert cells["deleted"] is None
    assert rows["lora"]["cpu_seconds"] == dict.fromkeys(INTERVALS, 2.5)


def test_the_best_of_a_column_is_marked(root):
    study = results.load(root)
    table, *_ = section_3(study, table_3(study, Perplexities(study, samples=20))).sections
    assert table.headers[1:4] == [
        "0801-0901 Un, n\u00a0=\u00a02",
        "0801-0901 C, n\u00a0=\u00a04",
        "0801-0901 Avg",
    ]
    first = {row[0].text: row[2].rank for row in table.rows}  # changed facts of 0809
    assert first == {"Initial": 0, "Full": 0, "Diff": 1, "LoRA": 0, "K-Adapter": 2}


def test_the_matrix_has_table_3_on_its_diagonal(root):
    study = results.load(root)
    found = matrices(study, Perplexities(study, samples=20))
    for method, label in METHODS.items():
        assert list(found[method]) == ["", *INTERVALS]
        for at, model in enumerate(INTERVALS):
            for of, name in enumerate(INTERVALS):
                wanted = float(TABLE_3[label][MONTHS[of]][1]) * AWAY ** abs(at - of)
                assert found[method][model][name]["value"] == pytest.approx(wanted)
                assert found[method][model][name]["facts"] == 4


def test_transfer_is_of_logarithms_of_perplexities(root):
    study = results.load(root)
    rows = {row["method"]: row for row in transfer(study, Perplexities(study))}
    un, changed = (
        [float(TABLE_3[name]["0809"][i]) for name in ("Initial", "Diff")] for i in (0, 1)
    )
    lost, gained = math.log(un[1] / un[0]), 2 * math.log(changed[0] / changed[1])
    found = rows["vanilla"]["fuar"][INTERVALS[0]]
    assert found["value"] == pytest.approx(lost / gained, rel=0.05)
    assert found["low"] <= found["value"] and (found["high"] or math.inf) >= found["value"]
    # Changed facts get dearer by AWAY for each interval between model and facts.
    assert rows["lora"]["backward"] == pytest.approx(-math.log(AWAY) * (3 + 2 + 1) / 3)
    assert rows["full"]["forward"] is not None


def test_a_report_of_all_forms(root, capsys):
    assert ckl.main(["report", str(root)]) == 0
    html = (root / "report.html").read_text()
    assert html.count('class="wide"') == html.count('class="narrow"') == 4
    assert "Temporal misalignment" in html
    made = json.loads((root / "tables.json").read_text())
    assert made["intervals"] == list(INTERVALS) and len(made["table_2"]) == 4
    with open(root / "matrix.csv") as f:
        rows = list(csv.DictReader(f))
    assert len(rows) == 4 * 5 * 4
    assert {r["model"] for r in rows} == {"initial", *INTERVALS}
    opened = load(root)
    columns = ["method", "model", "facts_of", "perplexity"]
    csv_rows = [[*(r[c] for c in columns[:3]), float(r["perplexity"])] for r in rows]
    assert opened.matrix()[columns].values.tolist() == csv_rows
    assert "<table" in opened._repr_html_()
    assert list(opened.runs[INTERVALS[0], "lora"].metrics().columns) == []
    lines = (root / "tables.md").read_text().splitlines()
    assert "| Diff | 100 | 200 | 3 | 2 |" in lines
    (line,) = [x for x in lines if "| 409.31 <sub>" in x]
    assert line.startswith("| Diff | 409.31 <sub>")
    last = {row["method"]: row["intervals"][INTERVALS[-1]]["changed"] for row in made["table_3"]}
    before, *after = (cell["value"] for cell in last.values())
    facts = last["initial"]["facts"]
    assert f"Perplexity of {facts} changed and " in html
    assert f"before any update {before:.2f} (" in html
    assert f" {min(after):.2f} (" in html
    assert (root / "figures" / "misalignment.png").stat().st_size > 5000
    assert "K-Adapter: changed facts (columns)" in capsys.readouterr().out


def write_extra_evaluations(folder, interval, perplexity, f1, noun_losses):
    """A light-tuned run of an interval, and losses of proper nouns in its new text."""
    tuned = folder / "light_tuned" / f"{interval}_changed"
    rows = fact_rows(interval, "changed", perplexity, ("new", "updated"))
    for row in rows:
        row |= {"em": int(f1 == 1), "f1": f1, "predictions": ["o"]}
    write_jsonl(tuned / "probes" / "rows_000002.jsonl", rows)
    write_json(tuned / "summary.json", {"run": "tuned", "steps": 2})
    write_jsonl(
        folder / "eval" / "proper_nouns" / "rows_000010.jsonl",
        [
            {"task": f"{interval}_new", "row": i, "losses": {"proper_nouns": [nll, 2]}}
            for i, nll in enumerate(noun_losses)
        ],
    )


def test_light_tuning_and_proper_nouns_where_they_were_asked(tmp_path, capsys):
    root, first = write_study(tmp_path, methods=("lora",), count=2), INTERVALS[0]
    write_extra_evaluations(root / "initial", first, 80.0, 0.25, [4.0, 8.0])
    write_extra_evaluations(root / first / "lora", first, 40.0, 0.5, [3.0, 5.0])
    write_report(root)
    made = json.loads((root / "tables.json").read_text())
    tuned = {row["method"]: row["cells"] for row in made["light_tuned"]}
    assert list(tuned) == ["initial", "lora"]
    assert tuned["initial"][first]["changed"]["value"] == pytest.approx(80)
    assert tuned["lora"][first]["changed"]["value"] == pytest.approx(40)
    assert tuned["lora"][first]["changed"]["f1"] == 50 and tuned["lora"][first]["unchanged"] is None
    assert report.no_nouns(made["proper_nouns"]) == []
    spans = [{"method": "lora", "cells": {first: {"changed_spans": {"value": 1.0}, "new": None}}}]
    assert "No proper noun was found" in report.no_nouns(spans)[0]
    nouns = {row["method"]: row["cells"][first]["new"] for row in made["proper_nouns"]}
    assert nouns["initial"]["value"] == 1
    assert nouns["lora"]["value"] == pytest.approx(math.exp((3 + 5 - 4 - 8) / 4))
    assert nouns["lora"]["low"] <= nouns["lora"]["value"] <= nouns["lora"]["high"]
    page = (root / "report.html").read_text()
    assert (root / "figures" / "proper_nouns.png").stat().st_size > 5000
    assert (
        'id="extra_evaluations"' in page
        and "Perplexity of proper nouns over that of Initial" in page
    )


def test_a_class_without_facts_to_tune_on_is_said_to_have_none(tmp_path):
    root = write_study(tmp_path, methods=("lora",), count=2)
    path = root / "data" / INTERVALS[1] / "probes" / "manifest.json"
    tuning = {"table_7_tuning": {"unchanged": {"facts": 3}, "changed": {"facts": 0}}}
    write_json(path, json.loads(path.read_text()) | tuning)
    page = write_report(root).read_text()
    note = "There are no changed facts of 0901-1001 to tune on"
    assert page.count(note) == 1 and "There are no unchanged facts" not in page
    for name in ("table5", "table6"):
        *_, notes = ANALYSES[name](results.load(root))[0]
        assert notes.notes[0].startswith(note)


def test_a_study_without_facts_is_of_changed_spans(tmp_path, capsys):
    root, names = write_study(tmp_path, methods=("vanilla",), count=2), INTERVALS[:2]
    for n, folder in enumerate(("initial", *(f"{name}/vanilla" for name in names))):
        shutil.rmtree(root / folder / "probes")
        loss = {i: 8.0 - 2 * (n > 0) - 2 * (n > 0 and i == names[n - 1]) for i in names}
        rows = [
            {"task": f"{i}_new", "row": row, "losses": {"changed_spans": [loss[i], 2]}}
            for i in names
            for row in range(3)
        ]
        write_jsonl(root / folder / "eval" / "proper_nouns" / "rows_000010.jsonl", rows)
    page = write_report(root).read_text()
    made = json.loads((root / "tables.json").read_text())
    (matrix,) = made["matrices"].values()
    cells = {
        model: [round(math.log(cell["value"]), 9) for cell in row.values()]
        for model, row in matrix.items()
    }
    assert cells == {"": [4, 4], names[0]: [2, 3], names[1]: [3, 2]}
    told = capsys.readouterr().out
    assert "changed spans (columns)" in told and "Perplexity of facts" not in page
    assert 'id="transfer"' not in page and 'id="scores"' in page
    assert "There are no facts to probe" in page and "not measured yet" not in page
    drawn = {path.name for path in (root / "figures").iterdir()}
    assert "misalignment.png" in drawn and not {"averages.png", "course.png"} & drawn
    assert ckl.main(["claims", str(root), "--samples", "100"]) == 0
    assert "misaligned; its snapshots have no facts to measure." in capsys.readouterr().out


def test_facts_are_shown_with_what_each_model_says(tmp_path, monkeypatch):
    root, last = write_study(tmp_path, methods=("lora",), count=2), INTERVALS[1]
    write_extra_evaluations(root / last / "lora", last, 40.0, 0.5, [3.0, 5.0])
    section = examples.section(results.load(root))
    assert section.headers == ["Fact", "Before", "Now", "Interval", "Became", "Initial", "LoRA"]
    kinds = [row[0].below for row in section.rows]
    assert kinds == ["updated", "updated", "new", "new", "unchanged", "unchanged"] * 2
    intervals = [row[3].text for row in section.rows]
    assert intervals == sorted(intervals, reverse=True) and len(set(intervals)) == 2
    assert {row[4].text for row in section.rows} <= {"likelier", "less likely"}
    monkeypatch.setattr(examples, "_ENDS", 2)  # one of either end: as many as there are
    assert examples.section(results.load(root)).rows == section.rows
    fact, before, now, _, _, initial, lora = section.rows[0]
    assert (fact.text, before.text, now.text, lora.text) == ("s r", "–", "o", "o")
    # Initial gave no answer; and losses are the model's own, not its tuned copy's.
    assert initial.text.endswith("(n 5)") and lora.below == "336 (n 5)"


def test_facts_of_an_interval_that_came_later_are_shown(tmp_path):
    """Those that Initial was evaluated on after its training, in a folder of their own."""
    root = write_study(tmp_path, methods=("lora",), count=2)
    whole = examples.section(results.load(root)).rows
    write_run(root / "initial", "Initial", None, range(1))
    write_run(root / "initial" / results.LATER / "more", "Initial", None, range(1, 2))
    assert examples.section(results.load(root)).rows == whole
    assert {row[3].text for row in whole} == {"0801-0901", "0901-1001"}


def test_a_page_shows_all_facts_that_it_can_hold(root, monkeypatch):
    rows = [["fact"]] * 10  # of each of four intervals
    monkeypatch.setattr(examples, "_facts_of", lambda study, interval, ends: rows[: 2 * ends])
    monkeypatch.setattr(examples, "_ENDS", 8)  # otherwise two from either end
    for most, shown in ((40, 40), (39, 16)):
        monkeypatch.setattr(examples, "_MAX_FACTS", most)
        assert len(examples.section(results.load(root)).rows) == shown


def test_the_lead_says_which_loss_is_sure():
    def cell(value, low, high):
        return {"value": value, "low": low, "high": high, "facts": 9}

    def row(method, changed, unchanged):
        return {"method": method, "intervals": {"i": {"changed": changed, "unchanged": unchanged}}}

    before = row("initial", cell(300.0, 280.0, 320.0), cell(231.0, 210.0, 257.0))
    diff = row("vanilla", cell(290.0, 270.0, 310.0), cell(294.0, 261.0, 339.0))
    full = row("full", cell(295.0, 275.0, 315.0), cell(225.0, 205.0, 250.0))
    said = _perplexities([before, diff, full], "i", "June")
    assert "No gain on changed or unchanged facts is sure: the intervals overlap." in said
    assert said.endswith("That Diff is worse on unchanged facts is sure: these intervals do not.")
    alone = [row(name, cell(300.0, math.nan, math.nan), None) for name in ("initial", "vanilla")]
    assert "before any update 300" in _perplexities(alone, "i", "June")  # of one fact


def test_a_class_of_one_fact_is_json(tmp_path):
    write_json(tmp_path / "x.json", finite({"a": [float("nan"), 1.0], "b": (float("inf"), "x")}))
    assert read_json_object(tmp_path / "x.json") == {"a": [None, 1.0], "b": [None, "x"]}


@pytest.mark.slow
def test_unfinished_and_later_models(tmp_path):
    root = write_study(tmp_path, methods=("lora",), count=2)
    (root / INTERVALS[1] / "lora" / "summary.json").unlink()
    study = results.load(root)
    assert list(study.models["lora"]) == [INTERVALS[0]]
    assert "Without a model: LoRA after 0901-1001" in write_report(root).read_text()
    asked = results.probes_of(root / "initial")
    assert asked == {f"{i}_{c}" for i in INTERVALS[:2] for c in ("unchanged", "changed")}
    write_run(root / "initial" / "later" / "20211101", "Initial", None, [2])
    assert len(results.probes_of(root / "initial")) == 6
    assert (INTERVALS[2], "new") in results.losses_of(root / "initial")
    with pytest.raises(UserError, match=r"has no temporalwiki.json; give the --out folder"):
        results.load(root / "initial")
    for record in ("[]", "{}", '{"snapshots": [3]}'):
        (root / "initial" / results.RECORD).write_text(record)
        with pytest.raises(UserError, match="start `ckl temporalwiki` again"):
            results.load(root / "initial")


@pytest.mark.parametrize(
    "intervals, labels",
    [
        (["20210801-20210901", "20210901-20211001"], ["0801-0901", "0901-1001"]),
        (["20151129-20201127", "20201127-20220106"], ["2015-11 to 2020-11", "2020-11 to 2022-01"]),
        (["20200101-20210101", "20210101-20210120"], ["2020-01 to 2021-01", "20210101-20210120"]),
    ],
)
def test_labels_of_intervals(intervals, labels):
    study = results.Study("", {}, tuple(intervals), None, {})
    assert [study.label(i) for i in intervals] == labels


def test_seeds_are_summarised(tmp_path, capsys):
    first, folders = INTERVALS[0], []
    for seed, nouns in enumerate(([3.0, 5.0], [4.0, 6.0])):
        root = write_study(tmp_path / f"wiki-{seed}", methods=("lora",), count=2)
        write_extra_evaluations(root / "initial", first, 80.0, 0.25, [4.0, 8.0])
        write_extra_evaluations(root / first / "lora", first, 40.0, 0.5, nouns)
        record = json.loads((root / "temporalwiki.json").read_text())
        options = {"seed": seed} if seed else {}
        write_json(root / "temporalwiki.json", record | {"seed": seed, "options": options})
        folders.append(str(root))
        (root / "probes").mkdir()  # of CSV files; a run has rows in a folder of this name
        (root / "probes" / f"{first}_changed.csv").write_text("subject,relation,object\n")
    command = ["report", *folders, "--seeds", "--out", str(tmp_path)]
    assert ckl.main(command) == 0
    found = {
        row["key"]: row["columns"]
        for row in json.loads((tmp_path / "seeds.json").read_text())["rows"]
    }
    assert list(found) == [
        f"{i} {m}" for i in ("0801-0901", "0901-1001") for m in ("Initial", "LoRA")
    ]
    lora = found["0801-0901 LoRA"]
    assert lora["unchanged"]["mean"] == pytest.approx(float(TABLE_3["LoRA"][MONTHS[0]][0]))
    assert lora["new"]["values"] == pytest.approx([math.exp(-1), math.exp(-0.5)])
    assert found["0801-0901 Initial"]["new"]["mean"] == 1
    assert found["0901-1001 LoRA"]["new"]["mean"] is None
    header = (tmp_path / "seeds.md").read_text().splitlines()[0]
    assert header == "| Model | Un | C | Proper nouns, new text |"  # the rest was not looked at
    capsys.readouterr()
    record = tmp_path / "wiki-1" / "temporalwiki.json"
    kept = json.loads(record.read_text())
    for wrong, sentence in (
        ({"seed": 0}, "the seed 0 of another"),
        ({"proper_nouns": 9}, "other settings than"),
    ):
        write_json(record, kept | wrong)
        assert ckl.main(command) == 2
        told = capsys.readouterr().err
        assert sentence in told and told.count("\n") == 1
    write_json(record, kept)
    write_run(tmp_path / "wiki-1" / first / "full", "Full", 0, range(2))
    assert ckl.main(command) == 2
    assert "do not have the same models, such as 0801-0901 Full" in capsys.readouterr().err
