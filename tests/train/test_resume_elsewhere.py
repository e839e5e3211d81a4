"""A run that goes on with other devices, another vocabulary, or another time of day."""

import contextlib
import itertools
import os
import re
import shutil
import time

import numpy as np
import pytest

from ckl_jax.checkpoints.restore import complete_steps
from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.cli import ckl, t5x
from ckl_jax.files import write_jsonl
from ckl_jax.papers.mind_the_gap.dynamic_eval.job import DynamicRun
from ckl_jax.train.prepare import Prepared
from ckl_jax.train.resume_check import first_difference
from tests.moved import assert_ranks_alike, move
from tests.papers.mind_the_gap.dated_world import files_of
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


def test_inputs_of_other_content_in_the_same_places_are_refused(tiny, monkeypatch, capsys):
    argv = tiny.argv("initial", tiny.root / "initial", INITIAL_CHECKPOINT_PATH=None, **QUIET)
    assert t5x.main(["train", *argv]) == 0
    monkeypatch.setattr(Prepared, "inputs_digest", "1" * 64)
    assert t5x.main(["train", *argv]) == 2
    told = "was trained on data, a vocabulary or a base of other content in the same places; put"
    assert told in capsys.readouterr().err


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
    shutil.copytree(away / "run", away / "again")
    kept = away / "d1"
    shutil.move(away / "world" / "prepared" / "tasks" / "d1", kept)
    shutil.copytree(tasks / "d1", away / "world" / "prepared" / "tasks" / "d1")
    assert goes_on() == 2
    assert "(data, vocabulary or base have other content)" in capsys.readouterr().err
    shutil.rmtree(away / "world" / "prepared" / "tasks" / "d1")
    shutil.move(kept, away / "world" / "prepared" / "tasks" / "d1")
    assert goes_on() == 0
    assert complete_steps(away / "run") == [8, 12] and losses(away / "run") == expected
    shutil.rmtree(away / "initial")
    argv = ["train", f"--gin_file={away / 'again' / 'config.gin'}"]
    given = {"DATA_DIR": away / "world", "INITIAL_CHECKPOINT_PATH": away / "again" / "base"}
    assert t5x.main(argv + [f"--gin.{name}={str(value)!r}" for name, value in given.items()]) == 0
    assert losses(away / "again") == expected


XL = ("mind_the_gap_train.gin", "mind_the_gap_demo.gin", "mind_the_gap_tiny.gin")


def job(name, *files, **macros):
    """Runs a job of `t5x` with gin files, and macros as Python values."""
    flags = [f"--gin.{macro}={value!r}" for macro, value in macros.items()]
    return t5x.main([name, *(f"--gin_file={file}" for file in files), *flags])


def dated(data, run):
    """Macros that name the data of a Transformer-XL below a folder, and its own folder."""
    held, vocabulary = (f"{data}/tasks/held",), f"{data}/v.model"
    places = {"VOCABULARY_PATH": vocabulary, "HELD_OUT_TASKS": held}
    return {"MIXTURE_OR_TASK_NAME": f"{data}/tasks/new", "MODEL_DIR": run, **places}


class Stopped(BaseException):
    """Raised in the middle of a dynamic evaluation."""


def read_as_it_learns(folder, data, run, **more):
    """Dynamic evaluation of a run on the held-out documents, with the old ones as past text."""
    tasks = {"MIXTURE_OR_TASK_NAME": f"{data}/tasks/held", "PAST_TASKS": (f"{data}/tasks/old",)}
    settings = {"CHUNK_LENGTH": 32, "CHECKPOINT_PERIOD": 8, "LEARNING_RATE": 0.1, **tasks}
    files = (f"{run}/config.gin", "mind_the_gap_dynamic_eval.gin")
    return job("dynamic_eval", *files, EVAL_OUTPUT_DIR=folder, **settings, **more)


def write_tasks(folder):
    """Tasks `old`, `new` and `held` of words drawn from a few, and their vocabulary."""
    rng, words = np.random.default_rng(0), [f"w{i:x}" for i in range(60)]
    for name, count, year in (("old", 60, 2015), ("new", 60, 2018), ("held", 30, 2019)):
        rows = [
            {"id": f"{name}{i}", "date": f"{year}-{1 + i // 6:02}-10", "title": "", "text": text}
            for i, text in enumerate(" ".join(rng.choice(words, 30)) for _ in range(count))
        ]
        write_jsonl(folder / f"{name}.jsonl", rows)
        if name == "old":
            argv = ["--documents", f"{folder}/old.jsonl", "--vocab-size", "300"]
            assert ckl.main(["data", "vocabulary", *argv, "--out", f"{folder}/v.model"]) == 0
        argv = ["--documents", f"{folder}/{name}.jsonl", "--vocabulary", f"{folder}/v.model"]
        assert ckl.main(["data", "dated", *argv, "--out", f"{folder}/tasks/{name}"]) == 0


@pytest.fixture(scope="module", params=["alone", "with_base"])
def moved_xl(request, tmp_path_factory):
    """A Transformer-XL's run and two dynamic evaluations, one of them stopped, made with relative
    paths and moved; (their new folder, losses and last scores of the run, flags of its base).
    """
    here, away = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("away")
    settings = {"BATCH_SIZE": 8, "CHECKPOINT_PERIOD": 8, "CHECKPOINTS_KEPT": None}
    settings["train.train.log_period"] = 1
    method, base = (), {}
    with contextlib.chdir(here), pytest.MonkeyPatch.context() as patch:
        write_tasks(here / "data")
        if request.param == "with_base":
            macros = {**dated("data", "runs/base"), "MIXTURE_OR_TASK_NAME": "data/tasks/old"}
            assert job("train", *XL, **macros, **settings) == 0
            settings["INITIAL_CHECKPOINT_PATH"] = "runs/base"
            method, base = ("methods/gpt2_lora.gin",), {"INITIAL_CHECKPOINT_PATH": "models/base"}
        assert job("train", *XL, *method, **dated("data", "runs/run"), **settings) == 0
        scores = [r for r in read_rows(here / "runs/run/metrics.jsonl") if "held" in r["split"]]
        assert read_as_it_learns("whole", "data", "runs/run") == 0
        end, ends = DynamicRun._end_segment, itertools.count()

        def stop(self, *given):
            if next(ends) == 3:
                raise Stopped
            end(self, *given)

        patch.setattr(DynamicRun, "_end_segment", stop)
        with pytest.raises(Stopped):
            read_as_it_learns("read", "data", "runs/run")
        expected = losses(here / "runs" / "run")
    for old, new in (("data", "texts"), ("runs", "models"), ("read", "read"), ("whole", "whole")):
        shutil.move(here / old, away / new)
    shutil.rmtree(here)
    return away, expected, scores[-1], base


@pytest.mark.slow
def test_a_moved_transformer_xl_goes_on_training(moved_xl, tmp_path, monkeypatch, capsys):
    away, expected, _, base = moved_xl
    monkeypatch.chdir(tmp_path)
    shutil.copytree(away, tmp_path, dirs_exist_ok=True)
    run = tmp_path / "models" / "run"
    (run / "summary.json").unlink()
    shutil.rmtree(run / f"checkpoint_{complete_steps(run)[-1]}")
    shutil.copytree("texts/tasks/held", "other/new")
    places = dated("texts", "models/run")
    other = {**places, "MIXTURE_OR_TASK_NAME": "other/new"}
    assert job("train", run / "config.gin", **other, **base) == 2
    assert "have other content" in capsys.readouterr().err
    assert job("train", run / "config.gin", **places, **base) == 0
    assert losses(run) == expected


@pytest.mark.slow
def test_a_moved_transformer_xl_is_evaluated_asked_and_exported(
    moved_xl, tmp_path, monkeypatch, capsys
):
    away, _, last, _ = moved_xl
    monkeypatch.chdir(away)
    found = {"HELD_OUT_TASKS": ("texts/tasks/held",), "EVAL_OUTPUT_DIR": str(tmp_path / "scores")}
    assert job("eval", "models/run/config.gin", "temporalwiki_eval.gin", **found) == 0
    (row,) = read_rows(tmp_path / "scores" / "training_eval" / "held-metrics.jsonl")
    assert row["word_perplexity"] == last["word_perplexity"] and row.items() <= last.items()
    elsewhere = move(away / "models", tmp_path / "models", away)
    assert_ranks_alike(tmp_path, away / "models" / "run", elsewhere / "run")
    out, like = tmp_path / "hf", tmp_path / "config.json"  # alone: no vocabulary beside it
    shutil.copy(tmp_path / "golden" / "model" / "config.json", like)
    argv = ["export-hf", "--model", "models/run", "--like", str(like), "--out", str(out)]
    assert ckl.main(argv) == 2 and not out.exists()  # transformers has no Transformer-XL
    err = capsys.readouterr().err
    assert "A Transformer-XL cannot be read from Hugging Face's" in err and err.count("\n") == 1


@pytest.mark.slow
def test_a_moved_dynamic_evaluation_goes_on_but_not_with_other_text(
    moved_xl, tmp_path, monkeypatch, capsys
):
    away, *_ = moved_xl
    monkeypatch.chdir(tmp_path)
    shutil.copytree(away, tmp_path, dirs_exist_ok=True)
    shutil.copytree("texts", "others")
    shutil.rmtree("others/tasks/old")
    shutil.copytree("texts/tasks/new", "others/tasks/old")
    assert read_as_it_learns("read", "others", "models/run") == 2
    assert "have other content" in capsys.readouterr().err
    assert read_as_it_learns("read", "texts", "models/run") == 0
    assert "Resuming behind document" in capsys.readouterr().out
    assert files_of(tmp_path / "read" / "dump") == files_of(tmp_path / "whole" / "dump")
