import json
import re
import subprocess
import sys

import pytest

from ckl_jax.analysis.rows import ProbedRun, as_columns, base_of, initial_scores, read_rows
from ckl_jax.data.facts.probe import Probe
from ckl_jax.errors import UserError
from tests.analysis.helpers import PROBES, make_rows, make_run

_IMPORTS = """
import importlib, pkgutil, sys
import ckl_jax.analysis
for module in pkgutil.iter_modules(ckl_jax.analysis.__path__, "ckl_jax.analysis."):
    importlib.import_module(module.name)
heavy = {"jax", "flax", "tensorflow", "seqio", "grain", "torch", "pandas", "matplotlib", "gin"}
print(sorted(heavy & set(sys.modules)))
"""


def test_analysis_imports_nothing_heavy():
    done = subprocess.run([sys.executable, "-c", _IMPORTS], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_a_run_knows_its_evaluations(demo):
    run = ProbedRun.open(demo / "mix_review")
    assert run.steps == (0, 30, 60)
    assert [run.epoch_at(s) for s in (0, 15, 30, 60)] == [0.0, 0.5, 1.0, 2.0]
    assert {p: len(s.items) for p, s in run.last.items()} == PROBES
    assert [p for p, s in run.last.items() if "em_old" in s.columns] == ["updated_lama"]
    for step in run.steps:
        means = {p: s.em.mean() for p, s in run.at(step).items()}
        assert run.means_at(step) == pytest.approx(means)
    with pytest.raises(UserError, match="not probed at step 7; it was at 0, 30, 60"):
        run.at(7)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("summary.json", '{"steps": NaN}', "summary.json, line 1|NaN is not a number"),
        ("summary.json", '{"steps": "7"}', "steps of .*summary.json is '7'; give a whole number"),
        ("summary.json", '{"train_seconds": [1]}', r"train_seconds of .* is \[1\]; give a finite"),
        ("summary.json", '{"steps_per_epoch": [1, -2]}', "steps_per_epoch of .* is -2; give 0"),
        ("summary.json", '{"steps_per_epoch": null}', "steps_per_epoch of .* is None; give whole"),
        ("summary.json", '{"base_checkpoint": 7}', "base_checkpoint of .* is 7, and no text"),
        ("summary.json", r'{"run": "lora\u001b[31m"}', r"run of .* has a control character: .*x1b"),
        ("metrics.jsonl", '{"step": 1, "spl', "metrics.jsonl, line 1: not a row of metrics"),
    ],
)
def test_a_record_that_is_damaged_is_named(file, text, message, tmp_path):
    folder = make_run(tmp_path, "lora")
    (folder / file).write_text(text)
    with pytest.raises(UserError, match=message):
        assert ProbedRun.open(folder).evaluations is None


def test_the_initial_scores_are_the_own_rows_of_step_0_or_those_of_the_base(demo, tmp_path):
    run = ProbedRun.open(demo / "vanilla")
    base = base_of(run)
    assert base.path.name == "initial"
    assert (initial_scores(run)["new_lama"].em == base.last["new_lama"].em).all()
    make_run(tmp_path, "initial")
    other = make_run(tmp_path, "lora")
    (other / "probes" / "rows_000000.jsonl").unlink()
    assert initial_scores(ProbedRun.open(other)) is not None
    assert initial_scores(ProbedRun.open(tmp_path / "initial")) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: row.pop("em"), "row 2: the field 'em' is missing"),
        (lambda row: row.update(em=3), "row 2: em is 3, not in 0..1"),
        (lambda row: row.update(f1=-5.0), r"row 2: f1 is -5.0, not in 0..1"),
        (lambda row: row.update(f1="1"), "row 2: the field 'f1' has the value '1'"),
        (lambda row: row.update(predictions=[]), "row 2: no predictions"),
        (lambda row: row.update(answers=[3]), "row 2: the field 'answers' has the value"),
        (lambda row: row.update(em_old=""), "row 2: the field 'em_old' has the value ''"),
        (lambda row: row.update(groups=3), "row 2: the field 'groups' has the value 3"),
        (lambda row: row.update(groups={"a": 3}), "row 2: the field 'groups' has the value"),
        (lambda row: row.update(overlap={"d1": {"items": 1}}), "row 2: the field 'overlap' has"),
    ],
)
def test_a_bad_row_is_named(tmp_path, change, message):
    rows = make_rows("vanilla", (0.5,) * 5, step=1, epoch=1, sizes={"new_lama": 3})
    change(rows[1])
    path = tmp_path / "rows_000001.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    with pytest.raises(UserError, match=message):
        list(read_rows(path))


def test_what_is_null_is_as_if_it_were_not_there():
    rows = make_rows("vanilla", (0.5,) * 5, step=1, epoch=1, sizes={"new_lama": 3})
    found = as_columns([*rows[:2], {**rows[2], "hit_rank": None, "beams": None, "relation": None}])
    assert (found.hit_rank[2], found.beams[2], found.relations[2]) == (0, 1, "")


def test_a_number_beyond_all_numbers_is_named(tmp_path):
    rows = make_rows("vanilla", (0.5,) * 5, step=1, epoch=1, sizes={"new_lama": 3})
    with pytest.raises(UserError, match="rows: 'em' of a row of new_lama is not a number"):
        as_columns([*rows[:2], {**rows[2], "em": 10**400}])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"role": "new"}, "Probe.role of 'mayors' is 'new'; choose from retained, updated"),
        ({"short": 3}, "Probe.short of 'mayors' is 3; give a text"),
        ({"order": "1"}, "Probe.order of 'mayors' is '1'; give a whole number"),
        ({"columns": "em"}, "Probe.columns of 'mayors' is 'em'; give a list of names"),
        ({"columns": ["rank"]}, "rows of mayors lack 'rank', a column of its probe_record"),
        ({"group": None}, "Probe.group of 'mayors' is None; give a text"),
        (None, "the probe_record of 'mayors' has no 'short'"),
    ],
)
def test_a_bad_record_of_a_probe_is_named(tmp_path, change, message):
    mayors = Probe(name="mayors")
    folder = make_run(tmp_path, "lora", sizes={"mayors": 3}, records=(mayors,))
    path = folder / "probes" / "rows_000020.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[0]["probe_record"] = {} if change is None else mayors.as_json() | change
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match=f"rows_000020.jsonl.*: .*{re.escape(message)}"):
        ProbedRun.open(folder).last  # noqa: B018


def test_a_folder_without_rows_is_explained(demo, tmp_path):
    with pytest.raises(UserError, match="is a demo; give one of its runs: initial, k_adapter_k2"):
        ProbedRun.open(demo)
    run = make_run(tmp_path, "lora", sizes={"new_lama": 3})
    with pytest.raises(UserError, match="is not a run but holds some; give one of them: lora"):
        ProbedRun.open(tmp_path)
    (run / "eval").mkdir()
    (run / "probes").rename(tmp_path / "probes")
    with pytest.raises(UserError, match="trained without probes; put them with `t5x eval`"):
        ProbedRun.open(run)
    (tmp_path / "probes").rename(run / "eval" / "probes")
    with pytest.raises(UserError, match="but those of `t5x eval`; give .*lora/eval"):
        ProbedRun.open(run)
    assert ProbedRun.open(run / "eval").name == "lora"
    base = make_run(tmp_path, "initial", sizes={"new_lama": 3})
    (base / "eval").mkdir()
    (base / "probes").rename(base / "eval" / "probes")
    assert base_of(ProbedRun.open(run / "eval")).path == base / "eval"


def test_missing_and_broken_files_are_errors(tmp_path):
    with pytest.raises(UserError, match="No folder"):
        ProbedRun.open(tmp_path / "nowhere")
    with pytest.raises(UserError, match="is not a run: it has no config.gin"):
        ProbedRun.open(tmp_path)
    (tmp_path / "config.gin").touch()
    with pytest.raises(UserError, match="has no probes"):
        ProbedRun.open(tmp_path)
    folder = make_run(tmp_path, "lora", sizes={"new_lama": 3})
    (folder / "summary.json").write_text("{")
    with pytest.raises(UserError, match="summary.json, line 1: not JSON"):
        ProbedRun.open(folder)
    (folder / "summary.json").unlink()
    path = folder / "probes" / "rows_000020.jsonl"
    text = path.read_text()
    path.write_text(text + text.splitlines()[0] + "\n")
    with pytest.raises(UserError, match="item '0' of new_lama occurs twice"):
        ProbedRun.open(folder).last  # noqa: B018
    path.write_text(text + '{"probe": ')
    with pytest.raises(UserError, match="line 4: not JSON"):
        ProbedRun.open(folder).last  # noqa: B018
    path.write_bytes(b'{"probe": "\xff"}')
    with pytest.raises(UserError, match="not UTF-8"):
        ProbedRun.open(folder).last  # noqa: B018
    path.write_text("")
    with pytest.raises(UserError, match="holds no rows"):
        ProbedRun.open(folder).last  # noqa: B018
