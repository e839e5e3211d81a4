"""The notebooks: as they are kept, and executed."""

import json
import os
import re
from pathlib import Path

import pytest

import ckl_jax

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_short_and_without_outputs(path):
    cells = json.loads(path.read_text())["cells"]
    assert len(cells) <= 15
    for cell in cells:
        assert cell["cell_type"] == "markdown" or not (cell["outputs"] or cell["execution_count"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_without_its_data_a_notebook_says_what_is_missing(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = json.loads(path.read_text())["cells"]
    codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    kept = [c for c in codes if not re.search(r"%pip|ckl\.(command|train)\(", c)]
    with pytest.raises(ckl_jax.UserError, match="runs/"):
        exec("\n".join(kept).replace("%matplotlib inline", ""), {})


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the notebook's own machinery
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    for name in ("nbformat", "nbclient", "ipykernel"):
        pytest.importorskip(name)
    from benchmarks.notebooks import execute

    monkeypatch.delenv("XLA_FLAGS")  # one device, as its reader has
    # The notebook's kernel asks for an event loop before there is one.
    event_loop = "ignore:There is no current event loop:DeprecationWarning"
    monkeypatch.setenv("PYTHONWARNINGS", f"{os.environ['PYTHONWARNINGS']},{event_loop}")
    notebook = execute(path, tmp_path, package=None)  # the package is here
    shown = [
        o.data for c in notebook.cells if c.cell_type == "code" for o in c.outputs if "data" in o
    ]
    assert any("text/html" in data for data in shown)
    assert any("image/png" in data for data in shown)


def test_there_is_one_for_each_paper():
    papers = {"ckl", "temporalwiki", "lm_pub_quiz", "mind_the_gap"}
    assert {path.stem for path in NOTEBOOKS} == {"quickstart", *papers}
