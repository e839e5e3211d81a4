"""The example of a probe set works when it is copied away from the repository."""

import json
import shutil

import pytest

from ckl_jax.analysis.rows import ProbedRun
from ckl_jax.cli import ckl
from tests.tiny import ROOT


@pytest.fixture
def templama(tmp_path):
    """The example in a folder of its own, with a small file in TempLAMA's form."""
    folder = shutil.copytree(ROOT / "examples" / "templama_probe", tmp_path / "templama")
    lines = [
        {
            "query": f"Person {i} plays for _X_.",
            "answer": [{"wikidata_id": f"Q{i}", "name": f"Team {i}"}],
            "date": str(2010 + i % 2),
            "id": f"Q{i}_P54_{2010 + i % 2}",
            "most_frequent_answer": {"wikidata_id": f"Q{i}", "name": f"Team {i}"},
            "relation": "P54",
        }
        for i in range(6)
    ]
    (folder / "test.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def train(tiny, folder, run, **macros):
    macros |= {"TEMPLAMA_FILE": str(folder / "test.json"), "EPOCHS": None, "TRAIN_STEPS": 1}
    macros |= {"INITIAL_CHECKPOINT_PATH": None, "train.train.eval_first": True}
    macros |= {"closed_book.ClosedBook.precision": "never"}
    argv = tiny.argv("vanilla", run, str(folder / "templama.gin"), **macros)
    log = folder / "log.txt"
    process = tiny.start(["train", *argv], log, {"PYTHONPATH": f"{ROOT}:{folder}"})
    return process.wait(timeout=300), log.read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_templama_is_asked_and_reported(tiny, templama):
    run = templama / "runs" / "vanilla"
    status, log = train(tiny, templama, run)
    assert status == 0 and "templama em" in log, log
    scored = ProbedRun.open(run).last["templama"]
    assert scored.dates == ("2010", "2011") * 3
    assert scored.rows[0]["input"] == "year: 2010 text: Person 0 plays for <extra_id_0>."
    assert ckl.main(["report", str(run), "--out", str(templama / "report")]) == 0
    header = (templama / "report" / "table.md").read_text().splitlines()[0]
    assert "TLAMA EM, n = 6 | TLAMA starts_alike | FUAR ((IL), TLAMA, n.d.) |" in header
    page = (templama / "report" / "report.html").read_text()
    assert "Scores by date" in page and "<h3>TempLAMA, EM</h3>" in page
