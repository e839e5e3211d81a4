"""A run that is asked on another machine."""

import shutil
from pathlib import Path

import numpy as np

from ckl_jax.cli import ckl
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults
from tests.parity.ranked import unpack


def move(folder: Path, to: Path, *gone: Path) -> Path:
    """Copies a run as to another machine, which has none of the folders `gone` that it names."""
    shutil.copytree(folder, to)
    for path in to.rglob("*"):
        if path.is_file() and (path.suffix in (".gin", ".json") or path.name == "metadata"):
            text = path.read_text()
            for i, name in enumerate(map(str, gone)):
                text = text.replace(name, f"/gone/{i}")
            path.write_text(text)
    return to


def assert_ranks_elsewhere(run: Path, tmp_path: Path, *gone: Path) -> None:
    """Asserts that a run ranks facts alike where it was trained and where it was moved to."""
    assert_ranks_alike(tmp_path, run, move(run, tmp_path / "elsewhere" / run.name, *gone))


def assert_ranks_alike(tmp_path: Path, *runs: Path) -> None:
    dataset, scores = unpack("lm_pub_quiz.zip", tmp_path / "golden") / "dataset", []
    for model in runs:
        out = tmp_path / "ranked" / str(len(scores))
        argv = ["--model", str(model), "--dataset", str(dataset), "--templates", "0"]
        assert ckl.main(["probe", "bear", *argv, "--out", str(out)]) == 0
        scores.append(DatasetResults.from_path(out)["P1"].scores)
    np.testing.assert_array_equal(*scores)
