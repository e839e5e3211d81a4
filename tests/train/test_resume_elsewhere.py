"""A run that goes on with other devices, another vocabulary, or another time of day."""

import itertools
import os
import re
import shutil
import time

import numpy as np
import pytest

from ckl_jax.checkpoints.restore import complete_steps
from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.cli import t5x
from ckl_jax.train.resume_check import first_difference
from tests.tiny import read_rows

QUIET = {"PROBES": None, "EPOCHS": 1, "train.train.log_period": 1}


def losses(folder):
    return [row["loss"] for row in read_rows(folder / "metrics.jsonl") if row["split"] == "train"]


@pytest.mark.slow
def test_a_run_goes_on_with_another_mesh(tiny, tmp_path):
    settings = {**QUIET, "DROPOUT_RATE": 0.0, "CHECKPOINT_PERIOD": 8, "CHECKPOINTS_KEPT": 3}
    one, other = tmp_path / "one", tmp_path / "other"
    argv = ["train", *tiny.argv("vanilla", one, **settings, MESH_SHAPE={"data": 8})]
    assert t5x.main(argv) == 0
    shutil.copytree(one, other)
    (other / "summary.json").unlink()
    for step in complete_steps(other)[1:]:
        shutil.rmtree(other / f"checkpoint_{step}")
    argv = tiny.argv("vanilla", other, **settings, MESH_SHAPE={"fsdp": 4, "model": 2})
    assert t5x.main(["train", *argv]) == 0
    assert len(losses(one)) == 12
    np.testing.assert_allclose(losses(other), losses(one), rtol=1e-4)
    assert losses(other)[:8] == losses(one)[:8] and losses(other)[8:] != losses(one)[8:]


@pytest.mark.slow
def test_a_clock_that_is_set_back_loses_no_checkpoint(tiny, tmp_path, monkeypatch, capsys):
    """Neither of the process nor of the files."""
    folder, steps, save = tmp_path / "run", [], CheckpointStore.save

    def counted(self, step, *given, **more):
        steps.append(step)
        save(self, step, *given, **more)

    clock = itertools.count(2_000_000_000, -3600)
    monkeypatch.setattr(time, "time", lambda: float(next(clock)))
    monkeypatch.setattr(CheckpointStore, "save", counted)
    often = {"CHECKPOINT_MINUTES": 1e-6, "CHECKPOINT_PERIOD": 5, "CHECKPOINTS_KEPT": 2}
    argv = ["train", *tiny.argv("lora", folder, **QUIET, **often)]
    assert t5x.main(argv) == 0
    assert steps == list(range(1, 13)) and complete_steps(folder) == [10, 12]
    for step in (10, 12):
        for path in folder.glob(f"checkpoint_{step}/**/*"):
            os.utime(path, (2e9 - 1e6 * step,) * 2)
    (folder / "summary.json").unlink()
    assert t5x.main(argv) == 0
    assert f"Resuming from {folder}/checkpoint_12" in capsys.readouterr().out


@pytest.mark.parametrize("size", [896, 2048])
def test_a_vocabulary_of_another_size_is_refused(size, tiny, tmp_path, capsys):
    """By a run that resumes, and by one that starts from a model."""
    first = tiny.argv("initial", tiny.root / "initial", INITIAL_CHECKPOINT_PATH=None, **QUIET)
    second = tiny.argv("lora", tmp_path / "run", **QUIET)
    told = f"initial was trained with t5.T5Config.vocab_size = 1024, not {size}; use another MODEL"
    shape = f"target/token_embedder/embedding [1024, 32] instead of [{size}, 32]. Use the gin file"
    for argv, sentence in ((first, told), (second, shape)):
        assert t5x.main(["train", *argv, f"--gin.t5.T5Config.vocab_size={size}"]) == 2
        err = capsys.readouterr().err
        assert sentence in err and err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_places_of_known_inputs_are_no_other_settings():
    old = "DATA_DIR = 'a'\nCACHE_DIRS = ('a/b',)\nmodel.input_vocabulary = @x.old\n"
    new = "DATA_DIR = 'b'\nCACHE_DIRS = ('b/b',)\nmodel.input_vocabulary = @y.new\n"
    assert first_difference(old, new) == "with CACHE_DIRS = ('a/b',), not ('b/b',)"
    assert first_difference(old, new, same_inputs=True) is None
    told = first_difference(old + "EPOCHS = 1", new + "EPOCHS = 2", same_inputs=True)
    assert told == "with EPOCHS = 1, not 2"


@pytest.mark.slow
def test_a_moved_run_goes_on_with_its_data_and_base_wherever_they_lie(tiny, tmp_path, capsys):
    """But not with other data or another base in the same form."""
    run, away = tmp_path / "run", tmp_path / "away"
    settings = {**QUIET, "CHECKPOINT_PERIOD": 8, "CHECKPOINTS_KEPT": 2}
    assert t5x.main(["train", *tiny.argv("lora", run, **settings)]) == 0
    expected = losses(run)
    away.mkdir()
    shutil.move(run, away / "run")
    for name in ("world", "initial"):
        shutil.copytree(tiny.root / name, away / name)
    (away / "run" / "summary.json").unlink()
    shutil.rmtree(away / "run" / "checkpoint_12")

    def goes_on(data="world", base="initial"):
        given = {"DATA_DIR": str(away / data), "INITIAL_DIR": str(away / base)}
        flags = [f"--gin.{name}={value!r}" for name, value in given.items()]
        return t5x.main(["train", f"--gin_file={away / 'run' / 'config.gin'}", *flags])

    shutil.copytree(away / "world", away / "other")
    shutil.copytree(away / "initial", away / "other_base")
    (metadata,) = (away / "other_base").glob("checkpoint_*/metadata/metadata")
    metadata.write_text(re.sub('"float32 .', '"float32 x', metadata.read_text()))
    tasks = away / "other" / "prepared" / "tasks"
    shutil.rmtree(tasks / "d1")
    shutil.copytree(tasks / "p1", tasks / "d1")
    for given in ({"data": "other"}, {"base": "other_base"}):
        assert goes_on(**given) == 2
        told = capsys.readouterr().err
        assert f"{away / 'run'} was trained with DATA_DIR" in told
        assert "(data, vocabulary or base have other content)" in told
    assert goes_on() == 0
    assert complete_steps(away / "run") == [8, 12] and losses(away / "run") == expected
