"""What `import ckl_jax as ckl` offers."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

import ckl_jax as ckl
from tests.analysis.helpers import make_demo, make_run
from tests.updates import planted
from tests.updates.test_job import save_llama


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    return make_demo(tmp_path_factory.mktemp("demo"), ("initial", "vanilla", "lora"))


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return save_llama(tmp_path_factory.mktemp("model") / "llama")


def test_importing_it_is_light():
    code = "import sys, ckl_jax; print(sorted({'jax', 'numpy', 'pandas'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
    assert set(ckl.__all__) <= set(dir(ckl))
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        _ = ckl.lod


def test_a_run_is_tables(demo):
    run = ckl.load(demo / "lora")
    scores, rows, ledger = run.scores(), run.rows(), run.ledger()
    assert scores.loc["invariant_lama", "items"] == (rows.probe == "invariant_lama").sum()
    mine = rows[rows.probe == "invariant_lama"]
    assert scores.loc["invariant_lama", "em"] == pytest.approx(mine.em.mean())
    low, high = scores.loc["invariant_lama", ["low", "high"]]
    assert low <= mine.em.mean() <= high
    states = ledger[ledger.probe == "invariant_lama"].state.value_counts()
    right = ledger[(ledger.probe == "invariant_lama") & (ledger.em == 1)]
    assert set(right.state) <= {"kept", "updated", "learned"} and states.sum() == len(mine)
    line = {"step": 5, "split": "train", "loss": 1.5}
    (demo / "lora" / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    assert run.metrics().to_dict("records") == [line] and len(repr(run)) < 200
    assert "<table" in run._repr_html_()


def test_runs_are_compared_as_in_the_report(demo):
    table = ckl.compare(demo)
    assert list(table.index) == ["Initial", "Vanilla", "LoRA"]
    told = ckl.load(demo / "lora").scores()
    assert table.loc["LoRA", "new_lama"] == pytest.approx(100 * told.loc["new_lama", "em"])
    assert np.isnan(table.loc["Initial", "fuar"]) and table.loc["LoRA", "fuar"] >= 0


def test_figures_are_those_of_the_report(demo):
    for kind in ("curves", "balance", "cost", "fuar", "ledger"):
        assert ckl.plot(demo, kind).axes
    with pytest.raises(ckl.UserError, match="no figure 'pareto'; there are curves"):
        ckl.plot(demo, "pareto")


def test_a_run_still_training_is_marked_and_others_are_refused(tmp_path):
    make_run(tmp_path, "vanilla")
    (tmp_path / "vanilla" / "summary.json").unlink()
    assert "not finished" in repr(ckl.load(tmp_path / "vanilla"))
    with pytest.raises(ckl.UserError, match="No folder"):
        ckl.load(tmp_path / "none")
    with pytest.raises(ckl.UserError):
        ckl.load(tmp_path)


def test_a_model_ranks_as_it_scores(llama):
    model = ckl.Model(llama)
    table = model.rank("Rome is a city in ____.", ["Italy", "France", "Peru"])
    assert sorted(table.answer) == ["France", "Italy", "Peru"]
    assert table.log_prob.is_monotonic_decreasing
    best = table.iloc[0]
    said = model.log_prob(f"Rome is a city in {best.answer}.")
    assert said == pytest.approx(best.log_prob, rel=1e-5)
    for question, answers in (("no blank", ["a", "b"]), ("____ or ____", "ab"), ("is ____", ["a"])):
        with pytest.raises(ckl.UserError):
            model.rank(question, answers)


def test_an_update_from_a_notebook(llama, tmp_path):
    text, out = tmp_path / "text.jsonl", tmp_path / "out"
    planted.write_documents(text, planted.documents(planted.facts(3)))
    settings = {"epochs": 1, "max_items": 4, "ship_if": "new <= 1"}
    done = ckl.update(llama, documents=text, out=out, **settings)
    verdict = json.loads((out / "updates" / "0001" / "verdict.json").read_text())
    assert done.verdict == verdict["verdict"] == "ship"
    assert set(done.ledger().state) <= {"kept", "learned", "forgotten", "never known"}
    assert done.scores().loc["new", "n"] == verdict["scores"]["new"]["n"]
    updates = ckl.load(out)
    assert len(updates) == 1 and updates.current == done.model
    assert updates.history().loc["0001", "verdict"] == "ship" and "<table" in updates._repr_html_()
    assert ckl.update(documents=text, out=out, **settings).path == done.path  # nothing new
    with pytest.raises(ckl.UserError, match="has no 'epoch'"):
        ckl.update(documents=text, out=out, epoch=1)
    shutil.rmtree(out / "updates" / "0001" / "model")
    assert ckl.load(out / "updates" / "0001").model is None
