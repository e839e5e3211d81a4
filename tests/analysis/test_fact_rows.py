"""Rows of facts in the room that reads rows: with answers as any others, without them not."""

import pytest

from ckl_jax.analysis import ledger
from ckl_jax.analysis.main_table import compute_table
from ckl_jax.analysis.rows import ProbedRun
from ckl_jax.analysis.study import load_study
from ckl_jax.errors import UserError
from ckl_jax.files import write_json, write_jsonl

ANSWERS = ("predictions", "em", "f1", "em_old", "hit_rank", "beams")


def make_run(root, name, right, answered=("unchanged", "changed"), **changes):
    """A finished run on two files of four facts, of which `right` are answered rightly."""
    rows = []
    for title in ("unchanged", "changed"):
        for i in range(4):
            em = int(i < right[title == "changed"])
            row = {
                "step": 1,
                "epoch": 1,
                "probe": f"0801-0901_{title}",
                "item": f"S{i} | r | O",
                "interval": "0801-0901",
                "class": title,
                "kind": title if i else "new",
                "relation": "r",
                "input": f"S{i} r",
                "answers": ["O"],
                "old_answers": [],
                "nll": 10.0 - em,
                "tokens": 5,
                "object_nll": 2.0,
                "object_tokens": 1,
                "truncated": 0,
                "predictions": ["O" if em else "X"],
                "em": em,
                "f1": float(em),
                "em_old": 0,
                "hit_rank": em,
                "beams": 2,
            } | changes
            rows.append({k: v for k, v in row.items() if title in answered or k not in ANSWERS})
    write_jsonl(root / name / "probes" / "rows_000001.jsonl", rows)
    base = None if name == "initial" else str(root / "initial")
    write_json(root / name / "summary.json", {"run": name, "steps": 1, "base_checkpoint": base})
    return root / name


def test_answers_of_facts_make_a_ledger_and_a_forgetting_ratio(tmp_path):
    runs = [make_run(tmp_path, "initial", (3, 0)), make_run(tmp_path, "lora", (2, 2))]
    table = compute_table(load_study(runs), samples=50)
    (row,) = (row for row in table["rows"] if row["key"] == "lora")
    assert row["fuar"]["value"] == pytest.approx(0.5)  # one of four lost, two of four gained
    assert table["fuar"] == "((Unchanged), Changed, n.d.)"
    assert "learned" in ledger.describe(runs[1])
    last = ProbedRun.open(runs[1]).last["0801-0901_changed"]
    assert last.losses.nll.tolist() == [9.0, 9.0, 10.0, 10.0] and last.losses.kinds[0] == "new"
    assert last.rows[1]["interval"] == "0801-0901" and last.rows[1]["kind"] == "changed"


def test_rows_without_answers_say_so_where_answers_are_wanted(tmp_path):
    runs = [make_run(tmp_path, n, (3, 0), answered=()) for n in ("initial", "lora")]
    assert ProbedRun.open(runs[1]).means_at(1) == {}
    with pytest.raises(UserError, match="perplexities of facts but no answers"):
        load_study(runs)
    with pytest.raises(UserError, match="probe with FACT_ANSWERS"):
        ledger.describe(runs[1])
    asked = make_run(tmp_path, "vanilla", (3, 0))
    study = load_study([asked])  # whose Initial model was asked for nothing
    assert study.initial is None and len(study.probes) == 2
    assert any("Initial has no answers" in note for note in study.notes)
    copied = make_run(tmp_path / "elsewhere", "initial", (3, 0), answered=())
    lora = make_run(tmp_path / "elsewhere", "lora", (2, 2))
    study = load_study([asked, lora])  # of two copies of one model: the same losses
    assert [e.key for e in study.methods] == ["vanilla", "lora"]
    make_run(copied.parent, "initial", (3, 0), answered=(), nll=3.0)
    with pytest.raises(UserError, match="write a report for each Initial model"):
        load_study([asked, lora])
    some = [make_run(tmp_path, n, (3, 0), answered=("changed",)) for n in ("initial", "lora")]
    study = load_study(some)
    assert study.probes == ["0801-0901_changed"]
    assert "Without answers, so left out: 0801-0901_unchanged." in study.notes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nll": None}, "row 1: the field 'nll' has the value None"),
        ({"tokens": 2.5}, "row 1: the field 'tokens' has the value 2.5"),
        ({"em": "1"}, "row 1: the field 'em' has the value '1'"),
        ({"nll": float("nan")}, "has nll = nan; probe the model again"),
    ],
)
def test_bad_rows_are_named(tmp_path, change, message):
    folder = make_run(tmp_path, "lora", (1, 1), **change)
    with pytest.raises(UserError, match=message):
        assert ProbedRun.open(folder).last
