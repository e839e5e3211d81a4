"""Each mistake is one clear sentence and exit code 2, and leaves nothing half-written."""

import csv
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import jax
import pytest

from ckl_jax.checkpoints.restore import complete_steps
from ckl_jax.cli import ckl, t5x
from ckl_jax.errors import UserError
from ckl_jax.papers.ckl import simulated
from ckl_jax.parallel.processes import FolderLock
from ckl_jax.train import prepare
from ckl_jax.train.resume_check import refuse_foreign
from tests.tiny import newest_step

QUIET = {"PROBES": None}
SAVE, RESTORE = "configs.SaveCheckpointConfig", "configs.RestoreCheckpointConfig"


def sentence(capsys, argv, command=t5x, code=2) -> str:
    """Runs the command, which must fail with one line on stderr; returns the line."""
    capsys.readouterr()
    assert command.main(argv) == code
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "Traceback" not in err, err
    return err


@pytest.fixture
def fails(tiny, capsys, tmp_path):
    """Runs a training that must fail before it writes anything; returns the sentence."""

    def run(*flags, method="lora", files=(), **macros):
        folder = tmp_path / "run"
        argv = ["train", *tiny.argv(method, folder, *files, **{**QUIET, **macros}), *flags]
        err = sentence(capsys, argv)
        assert err.startswith("t5x: ")
        assert not folder.exists(), list(folder.rglob("*"))
        return err

    return run


def test_names_in_gin(fails):
    assert "Did you mean 'ckl_lora.gin'?" in fails("--gin_file=ckl_lroa.gin")
    assert "Did you mean 'BATCH_SIZE'?" in fails("--gin.BATCHSIZE=3")
    assert "Did you mean 'epochs'?" in fails("--gin.train.train.epoch=3")
    assert "Did you mean 'LEARNING_RATE'?" in fails("--gin.LEARNING_RAT=3")
    assert "others; see `t5x train --help`" in fails("--gin.QQQ=3")


def test_places_that_can_hold_no_folder_are_refused_before_data_are_made(
    capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    os.symlink("loop", "loop")
    os.symlink("/nowhere/at/all", "astray")
    os.mkfifo("pipe")
    before = sorted(tmp_path.iterdir())
    for name in ("MODEL_DIR", "INITIAL_DIR", "DATA_DIR"):
        for value, told in (
            ("loop", "but the link loop leads nowhere"),
            ("astray/run", "but the link astray leads nowhere"),
            ("pipe/run", "but pipe is no folder"),
            ("/proc/1/run", "but nothing can be written in /proc/1"),
        ):
            argv = ["train", "--gin_file=ckl_lora.gin", "--gin.MESH_SHAPE={'data': 4, 'model': 2}"]
            assert sentence(capsys, [*argv, f"--gin.{name}='{value}'"]).startswith(
                f"t5x: {name} is {value}, {told}"
            )
    assert sorted(tmp_path.iterdir()) == before


def test_numbers_are_refused_before_data_are_made(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for value, message in (
        ("EPOCHS='two'", "whole number"),
        ("NUM_MICROBATCHES=7", "does not divide BATCH_SIZE"),
        ("OPTIMIZER=3", "give a function, such as @adafactor"),
        ("METHOD=3", "give one such as @lora.lora()"),
        ("LEARNING_RATE=-1", "0 or more"),
        ("MIXTURE_OR_TASK_NAME='d2'", "Task 'd2' does not exist, and is none of those that are"),
        ("REPLAY_TASK_NAME='d0_reveiw'", "Did you mean 'd0_review'?"),
        ("INITIAL_CHECKPOINT_PATH='nowhere'", "No checkpoint at nowhere"),
        ("MODEL_DIR=%INITIAL_DIR", "is INITIAL_CHECKPOINT_PATH too; choose another MODEL_DIR"),
        ("PROBE_DIR='nowhere'", "PROBE_DIR nowhere is no folder"),
    ):
        argv = ["train", "--gin_file=ckl_lora.gin", "--gin.MESH_SHAPE={'data': 4, 'model': 2}"]
        err = sentence(capsys, [*argv, f"--gin.{value}"])
        assert message in err and not list(tmp_path.iterdir())
    argv = ["train", "--gin_file=ckl_mix_review.gin", "--gin.REPLAY_TASK_NAME=None"]
    assert "Method 'mix_review' needs earlier data" in sentence(capsys, argv)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def fails_at_once(fails, tmp_path, monkeypatch):
    """`fails` before a base model is trained, which may take long."""
    trained = []
    monkeypatch.setattr(simulated, "_train_initial", lambda *given: trained.append(given))

    def fails_before(*flags, **given):
        said = fails(*flags, **{"INITIAL_DIR": str(tmp_path / "initial"), **given})
        assert not trained
        return said

    return fails_before


@pytest.mark.parametrize(
    "macros, expected",
    [
        ({"t5.T5Config.vocab_size": 64}, "ids but T5Config.vocab_size is 64; set it to"),
        ({"NUM_MICROBATCHES": 5}, "NUM_MICROBATCHES=5 does not divide BATCH_SIZE=32"),
        ({"NUM_MICROBATCHES": 0}, "NUM_MICROBATCHES is 0; give 1 or more"),
        ({"EPOCHS": 10**9}, "EPOCHS is 1000000000; give 1,000,000 or less"),
        ({"MESH_SHAPE": {"model": 3}}, "does not use up the 8 devices"),
        ({"MESH_SHAPE": {"modle": 1}}, "Did you mean 'model'?"),
        ({"INITIAL_CHECKPOINT_PATH": "/no/such/run"}, "No checkpoint at /no/such/run"),
        ({"MIXTURE_OR_TASK_NAME": "d2"}, "Task 'd2' does not exist"),
        ({"TASK_FEATURE_LENGTHS": {"inputs": 8}}, "'targets': 350}.\n"),
        ({"USE_CACHED_TASKS": False}, "leave USE_CACHED_TASKS at True"),
        ({"EPOCHS": None}, "Neither EPOCHS nor TRAIN_STEPS"),
        ({"EPOCHS": 0}, "EPOCHS is 0"),
        ({"EPOCHS": "two"}, "EPOCHS is 'two'; give a whole number"),
        ({"EPOCHS": 1.5}, "EPOCHS is 1.5; give a whole number"),
        ({"LEARNING_RATE": "a"}, "LEARNING_RATE is 'a'; give a number"),
        ({"LEARNING_RATE": -1e-3}, "LEARNING_RATE is -0.001"),
        ({"DROPOUT_RATE": 1.0}, "DROPOUT_RATE is 1.0; give a number in [0, 1)"),
        ({"CLIP_NORM": 0}, "CLIP_NORM is 0; give a finite number above 0"),
        ({"RANDOM_SEED": -1}, "RANDOM_SEED is -1; give 0 or more"),
        ({"MODEL_DIR": ""}, "MODEL_DIR is ''"),
        ({"MODEL_DIR": __file__}, "which is a file; give a folder"),
        ({"MODEL_DIR": os.path.dirname(__file__)}, "__init__.py and is not the folder of a run"),
        ({"TASK_FEATURE_LENGTHS": {"inputs": 8, "targets": 0}}, "['targets'] is 0; give 1 or more"),
        ({"BATCH_SIZE": 100_000}, "BATCH_SIZE 100000 exceeds the "),
        ({"BATCH_SIZE": 0}, "BATCH_SIZE is 0"),
        ({"MODEL_DIR": "/proc/nothing"}, "Cannot write /proc/nothing"),
        ({"train.train.progress": "loud"}, "progress is 'loud'; choose from auto, rich"),
        (
            {"configs.SaveCheckpointConfig.keep_best": 3},
            "keep_best is 3; give one such as @store.Ke",
        ),
        ({"CHECKPOINTS_KEPT": 0}, "CHECKPOINTS_KEPT is 0; give 1 or more"),
        ({"CHECKPOINT_PERIOD": 0}, "CHECKPOINT_PERIOD is 0; give 1 or more"),
        ({"CHECKPOINT_MINUTES": 0}, "CHECKPOINT_MINUTES is 0; give a finite number above 0"),
        ({"EVAL_PERIOD": 0}, "EVAL_PERIOD is 0"),
        ({"PROBES": 3}, "PROBES is 3; give a function, such as @closed_book.ClosedBook() or None"),
        ({"NUM_MICROBATCHES": 5}, "NUM_MICROBATCHES=5 does not divide BATCH_SIZE"),
        ({"MESH_SHAPE": {"model": 3}}, "does not use up the 8 devices"),
        ({"DATA_DIR": "/proc/nothing"}, "Cannot write /proc/nothing"),
        ({"WORLD_SIZE": "huge"}, "No world has the size 'huge'; there are tiny"),
        (
            {"WORLD_SIZE": "small"},
            "disjoint world of seed 0, size 'tiny', not the disjoint one of seed 0, size 'small'",
        ),
        ({"WORLD_SEED": 3}, 'or set WORLD_SEED="0" WORLD_SIZE="\'tiny\'"'),
        ({"WORLD_SEED": "x"}, "WORLD_SEED is 'x'; give a whole number"),
        ({"t5.T5Config.remat_policy": "some"}, "remat_policy is 'some'"),
        ({"LOSS_NORMALIZING_FACTOR": "MEAN"}, "NUM_REAL_TARGET_TOKENS"),
        ({"OPTIMIZER": "adam"}, "OPTIMIZER is 'adam'; give a function, such as @adafactor"),
        ({"METHOD": "lora"}, "METHOD is 'lora'; give one such as @lora.lora()"),
        ({"t5.T5Config.num_heads": 0}, "T5Config.num_heads is 0; give 1 or more"),
        ({"t5.T5Config.mlp_dim": "x"}, "T5Config.mlp_dim is 'x'; give a whole number"),
        ({"t5.T5Config.num_decoder_layers": None}, "T5Config.num_decoder_layers is None"),
        ({"t5.T5Config.mlp_activations": ("gleu",)}, "Did you mean 'gelu'?"),
        ({"ACTIVATION_DTYPE": "float33"}, "ACTIVATION_DTYPE is 'float33'; give 'float32'"),
        ({"ACTIVATION_DTYPE": "int32"}, "ACTIVATION_DTYPE is 'int32'"),
        ({"ACTIVATION_DTYPE": "float64"}, "ACTIVATION_DTYPE is 'float64'"),
        ({"LABEL_SMOOTHING": 3}, "LABEL_SMOOTHING is 3; give a number in [0, 1)"),
        ({"Z_LOSS": "x"}, "Z_LOSS is 'x'"),
        ({"lora.lora.rank": 0}, "lora.rank is 0; give 1 or more"),
        ({"lora.lora.rank": -4}, "lora.rank is -4; give 1 or more"),
        ({"lora.lora.rank": "x"}, "lora.rank is 'x'; give a whole number"),
        ({"lora.lora.scale": "x"}, "lora.scale is 'x'; give a number"),
        ({"lora.lora.rank": 10**7}, "lora.rank is 10000000; give 65,536 or less"),
        ({"lora.lora.phase": -1}, "lora.phase is -1; give 0 or more"),
        ({"lora.lora.phase": 7}, "leave the method's `phase` out"),
        ({"lora.lora.targets": ("qeury", "value")}, "has 'qeury', which is none of query, key"),
        ({"lora.lora.targets": ("qeury",)}, "Did you mean 'query'?"),
        ({"lora.lora.targets": "query"}, "lora.targets is 'query'; give a list of names, such as"),
        ({"ClosedBook.probes": "new_lama", "PROBES": "@"}, "such as ('new_lama',)"),
        ({"ClosedBook.ks": (0,), "PROBES": "@"}, "of ClosedBook.ks, (0,), is 0"),
        ({"ClosedBook.ks": 5, "PROBES": "@"}, "ClosedBook.ks is 5; give a list of whole numbers"),
        ({"ClosedBook.ks": (1, 5000), "PROBES": "@"}, "ClosedBook.ks asks for"),
        ({"ClosedBook.beam_size": 0, "PROBES": "@"}, "ClosedBook.beam_size is 0"),
        ({"ClosedBook.rule": "fh", "PROBES": "@"}, "Did you mean 'hf'?"),
        ({"ClosedBook.precision": "alwys", "PROBES": "@"}, "Did you mean 'always'?"),
        ({"ClosedBook.target_lengths": {"*": 1}, "PROBES": "@"}, "is 1; give 2 or more"),
        ({"ClosedBook.probes": ("lama",), "PROBES": "@"}, "ClosedBook.probes has 'lama'"),
        ({"PROBE_BATCH_SIZE": 0, "PROBES": "@"}, "PROBE_BATCH_SIZE is 0; give 1 or more"),
        ({"PROBE_DIR": "nowhere", "PROBES": "@"}, "PROBE_DIR nowhere is no folder"),
        ({"adafactor.adafactor_hf.epsilon": "x"}, "epsilon is 'x'; give a number"),
        ({"adafactor.adafactor_hf.beta1": "x"}, "beta1 is 'x'; give a number or None"),
        ({"adafactor.adafactor_hf.decay_exponent": "x"}, "decay_exponent is 'x'; give a number"),
        ({"adafactor.adafactor_hf.clipping_threshold": "x"}, "clipping_threshold is 'x'; give"),
        ({"adafactor.adafactor_hf.weight_decay": "x"}, "weight_decay is 'x'; give a number"),
        ({"schedules.warmup_linear_to_fraction.end_fraction": "x"}, "end_fraction is 'x'; give a"),
        ({"schedules.warmup_linear_to_fraction.warmup_fraction": "x"}, "is 'x'; give a number"),
        ({f"{SAVE}.checkpoint_steps": "x"}, "_steps is 'x'; give a list of whole numbers ("),
        ({f"{SAVE}.checkpoint_steps": 5}, "is 5; give a list of whole numbers, such as (5,)"),
        ({"train.train.metrics": "x"}, "metrics is 'x'; give one such as @step_metrics.Step"),
        ({"train.train.evaluations": "x"}, "evaluations is 'x'; give a list, each a function"),
        ({"mesh.Partitioner.devices": "x"}, "devices is 'x'; give a list, each one such as"),
        ({"mesh.Partitioner.logical_axis_rules": "x"}, "logical_axis_rules is 'x'; give a list"),
        (
            {"encoder_decoder.EncoderDecoderModel.decode_fn": "x"},
            "fn is 'x'; give a function",
        ),
        ({f"{RESTORE}.assignment_map": "x"}, "assignment_map is 'x'; give a list, each (text, "),
        (
            {f"{RESTORE}.assignment_map": (("(", "x"),)},
            "'(' of assignment_map is not a regular expr",
        ),
    ],
)
def test_values(fails_at_once, macros, expected):
    flags = []
    if macros.get("PROBES") == "@":
        macros = {k: v for k, v in macros.items() if k != "PROBES"}
        macros = {k.replace("ClosedBook", "closed_book.ClosedBook"): v for k, v in macros.items()}
        flags = ["--gin.PROBES=@closed_book.ClosedBook()"]
    assert expected in fails_at_once(*flags, **macros)


def test_a_record_without_its_parentheses(fails_at_once):
    told = fails_at_once("--gin.PROBES=@closed_book.ClosedBook")
    assert "give a record such as @closed_book.ClosedBook()" in told


def test_evaluations_that_cannot_be_are_refused_at_once(fails_at_once, tmp_path):
    (tmp_path / "quiz").mkdir()
    metadata = {"P19": {"templates": ["[X] was born in [Y]."]}}
    (tmp_path / "quiz" / "metadata_relations.json").write_text(json.dumps(metadata))
    rows = [{"sub_id": x, "sub_label": x, "obj_id": y, "obj_label": y} for x, y in ("ab", "cd")]
    (tmp_path / "quiz" / "P19.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def ranking(*flags, **macros):
        macros["RANKING_DATASET"] = str(tmp_path / "quiz")
        return fails_at_once(*flags, files=("ckl_ranking.gin", "ckl_best.gin"), **macros)

    best = {"BEST_METRIC": "inference_eval/quiz/accuracy"}
    assert "P19 has no template 99" in ranking(RANKING_TEMPLATES=(99,), **best)
    assert "No template is chosen" in ranking(RANKING_TEMPLATES=(), **best)
    assert "TEMPLATES is 'x'; give a list of whole numbers" in ranking(
        RANKING_TEMPLATES="x", **best
    )
    assert "RANKING_INSTANCES is 0; give 1 or more" in ranking(RANKING_INSTANCES=0, **best)
    said = ranking(BEST_METRIC="inference_eval/quizz/accuracy")
    assert "'inference_eval/quizz/accuracy', which no evaluation has; there are those of" in said
    assert "of inference_eval/quiz. Did you mean 'inference_eval/quiz/accuracy'?" in said
    said = ranking("--gin.PROBES=@closed_book.ClosedBook()", BEST_METRIC="em")
    assert (
        "'em', which no evaluation has; there are those of inference_eval/invariant_lama," in said
    )


@pytest.mark.parametrize(
    "method, macros, expected",
    [
        ("recadam", {"RECADAM_K": -1}, "RECADAM_K is -1; give a finite number above 0"),
        ("recadam", {"RECADAM_T0": "x"}, "RECADAM_T0 is 'x'"),
        ("recadam", {"recadam.recadam.anneal": "x"}, "recadam.anneal is 'x'; choose from"),
        ("recadam", {"recadam.recadam.gamma": -1}, "recadam.gamma is -1"),
        ("recadam", {"recadam.recadam.penalty": "proximate"}, "Did you mean 'proximal'?"),
        ("mix_review", {"mix_review.mix_review.ratio": "x"}, "mix_review.ratio is 'x'; give"),
        ("mix_review", {"mix_review.mix_review.decay": 2}, "decay is 2; give a number from 0 to 1"),
        ("k_adapter_k2", {"K2_TAPS": ()}, "k_adapter.taps is (); give whole numbers"),
        ("k_adapter_k2", {"K2_TAPS": 3}, "K2_TAPS is 3; give a list of whole numbers"),
        ("k_adapter_k2", {"K2_TAPS": (0, -1)}, "of k_adapter.taps, (0, -1), is -1; give 0 or"),
        (
            "k_adapter_k2",
            {"k_adapter.k_adapter.scale": "x"},
            "scale is 'x'; give a number",
        ),
        ("modular", {"MODULAR_EMB_DIM": 0}, "MODULAR_EMB_DIM is 0; give 1 or more"),
        ("modular", {"MODULAR_NUM_LAYERS": 0}, "MODULAR_NUM_LAYERS is 0; give 1 or more"),
        ("modular", {"modular.modular.scale": "x"}, "modular.scale is 'x'; give a number"),
    ],
)
def test_values_of_methods(fails_at_once, method, macros, expected):
    assert expected in fails_at_once(method=method, **macros)


def test_a_probe_that_is_not_utf8(fails, probes):
    folder = probes(lambda rows: rows)
    path = Path(folder) / "updatedlama" / "updatedLAMA.csv"
    path.write_bytes(path.read_bytes() + b"caf\xe9\n")
    err = fails("--gin.PROBES=@closed_book.ClosedBook()", PROBE_DIR=folder)
    assert "updatedLAMA.csv, line " in err and "not UTF-8 (the byte 0xe9)" in err


def test_a_checkpoint_that_does_not_fit_lists_what_differs(fails):
    err = fails(**{"t5.T5Config.mlp_activations": ("gelu", "linear"), "t5.T5Config.emb_dim": 16})
    assert "missing in it (4): " in err and "and 2 more" in err and len(err) < 3000
    assert "in it but not in the model (2): " in err and "mlp/wi/kernel" in err
    assert "of another shape" in err and "instead of [16, 32]" in err


def test_too_little_device_memory(tiny, capsys, tmp_path, monkeypatch):
    def trace(run):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")

    monkeypatch.setattr(prepare.Prepared, "trace", trace)
    argv = tiny.argv("lora", tmp_path / "run", **QUIET)
    assert "raise NUM_MICROBATCHES, set" in sentence(capsys, ["train", *argv])


def test_a_vocabulary_that_is_a_path(fails):
    err = fails(VOCABULARY="some.model")
    assert "VOCABULARY is the path 'some.model' and no vocabulary; bind VOCABULARY = @" in err


def test_a_vocabulary_without_sentinels(fails, tiny, tmp_path):
    overlay = tmp_path / "bare.gin"
    overlay.write_text(
        "from __gin__ import dynamic_registration\nfrom ckl_jax.data.text import vocabularies\n"
        "VOCABULARY = @vocabularies.Vocabulary()\n"
        f"vocabularies.Vocabulary.path = '{tiny.root}/world/prepared/vocabulary.model'\n"
        "vocabularies.Vocabulary.extra_ids = 0\n"
    )
    assert "has no sentinels (<extra_id_0>, ...)" in fails(files=(str(overlay),))


@pytest.fixture
def probes(tiny, tmp_path):
    """A copy of the probes to spoil: `spoil(edit)` rewrites the rows of UpdatedLAMA."""
    folder = tmp_path / "probes"
    shutil.copytree(tiny.probes, folder)

    def spoil(edit):
        path = folder / "updatedlama" / "updatedLAMA.csv"
        with open(path, newline="") as f:
            rows = list(csv.DictReader(f))
        rows = edit(rows)
        with open(path, "w", newline="") as f:
            writer = csv.DictWriter(f, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        return str(folder)

    return spoil


def _without(column):
    return lambda rows: [{k: v for k, v in row.items() if k != column} for row in rows]


def _statement(text):
    return lambda rows: [{**rows[0], "statement": text}, *rows[1:]]


@pytest.mark.parametrize(
    "edit, expected",
    [
        (_without("statement"), "has no column 'statement'"),
        (_statement("No gap."), "line 2, column 'statement': the statement 'No gap.' has no"),
        (_statement("_____ is _____."), "has 2 blanks; it must have one"),
        (lambda rows: [*rows, rows[0]], "occurs twice"),
    ],
)
def test_probe_files(fails, probes, edit, expected):
    err = fails("--gin.PROBES=@closed_book.ClosedBook()", PROBE_DIR=probes(edit))
    assert expected in err and "updatedLAMA.csv" in err


def test_an_empty_corpus(capsys, tmp_path):
    (tmp_path / "recent_news_full.csv").write_text("input,output,original\n")
    argv = ["data", "prepare", "--dir", str(tmp_path), "--out", str(tmp_path / "out")]
    err = sentence(capsys, argv, ckl)
    assert "recent_news_full.csv is empty" in err
    assert not list((tmp_path / "out").rglob("*.model"))


@pytest.mark.parametrize("flag", ["input-length", "target-length", "vocab-size"])
@pytest.mark.parametrize("value", ["0", "-3"])
def test_lengths_of_prepared_rows(tiny, capsys, tmp_path, flag, value):
    out = tmp_path / "out"
    argv = ["data", "prepare", "--dir", str(tiny.probes), "--out", str(out), f"--{flag}={value}"]
    assert f"--{flag} is {value}; give " in sentence(capsys, argv, ckl)
    assert not out.exists()


def test_a_mesh_that_does_not_divide(tiny, capsys, tmp_path):
    cases = [
        ({"MESH_SHAPE": {"data": 8}, "BATCH_SIZE": 36}, "BATCH_SIZE 36 does not divide into 8"),
        ({"MESH_SHAPE": {"model": 8}}, "its axis 'heads' of size 2 does not divide into 8 parts"),
        ({"MESH_SHAPE": {"fsdp": 8}, "t5.T5Config.emb_dim": 36}, "'embed' of size 36"),
    ]
    for macros, expected in cases:
        argv = tiny.argv("vanilla", tmp_path / "run", **macros)
        assert expected in sentence(capsys, ["precompile", *argv, "--gin.COMPILE=False"])


@pytest.mark.slow
def test_a_loss_that_is_not_finite_keeps_the_last_good_checkpoint(tiny, capsys, tmp_path):
    folder = tmp_path / "run"
    good = tiny.argv("vanilla", folder, **QUIET, EPOCHS=1)
    assert t5x.main(["train", *good]) == 0
    (folder / "config.gin").unlink()  # else the other settings are refused
    argv = tiny.argv("vanilla", folder, **QUIET, EPOCHS=2, CHECKPOINT_PERIOD=1, LEARNING_RATE=1e30)
    err = sentence(capsys, ["train", *argv])
    assert "at step 14: training stopped, checkpoint_12 is kept" in err
    assert complete_steps(folder) == [12]
    (folder / "config.gin").unlink()
    assert t5x.main(["train", *tiny.argv("vanilla", folder, **QUIET, EPOCHS=2)]) == 0
    assert complete_steps(folder) == [24]


def test_a_folder_with_a_run_of_other_settings_stays_as_it_is(tiny, capsys, tmp_path):
    folder = tmp_path / "run"
    assert t5x.main(["train", *tiny.argv("vanilla", folder, **QUIET, EPOCHS=1)]) == 0
    before = _contents(folder)

    def refused(method="vanilla", **macros):
        argv = tiny.argv(method, folder, **{**QUIET, "EPOCHS": 1, **macros})
        return sentence(capsys, ["train", *argv])

    expected = "was trained with LEARNING_RATE = 0.002, not 0.5; use another MODEL_DIR or the old"
    told = refused(LEARNING_RATE=0.5)
    assert expected in told and f"alone: --gin_file={folder / 'config.gin'}." in told
    assert "was trained with EPOCHS = 1, not 2" in refused(EPOCHS=2)
    assert "t5.T5Config.mlp_dim = 64, not 32" in refused(**{"t5.T5Config.mlp_dim": 32})
    assert "holds a run of 'vanilla', not 'lora'" in refused("lora", MODEL_DIR=str(folder))
    free = {"CHECKPOINTS_KEPT": 3, "NUM_MICROBATCHES": 2, "MESH_SHAPE": {"fsdp": 2}}
    for files, macros in ([], {}), ([], free), ([str(folder / "config.gin")], {}):
        argv = tiny.argv("vanilla", folder, *files, **{**QUIET, "EPOCHS": 1, **macros})
        assert t5x.main(["train", *argv]) == 0
        assert f"{folder} is already trained to step 12; nothing to do." in capsys.readouterr().out
    assert _contents(folder) == before


@pytest.mark.parametrize(
    "name",
    [".DS_Store", "slurm-7.out", "a.log", "log.txt", "checkpoint_5", "task/manifest.json"],
)
def test_a_model_dir_may_hold_a_run_or_logs_or_a_cached_task(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    refuse_foreign(tmp_path)
    (tmp_path / "thesis.tex").touch()
    if name in ("log.txt", "checkpoint_5"):
        return refuse_foreign(tmp_path)
    with pytest.raises(UserError, match="holds thesis.tex and is not the folder of a run"):
        refuse_foreign(tmp_path)


@pytest.mark.parametrize(
    "name", ["config.gin", "vocabulary.json", "model-info.txt", "inference_eval/notes-000099.jsonl"]
)
def test_a_file_that_only_has_the_name_of_a_runs_is_refused(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("MODEL_DIR = 'mine'\n")
    with pytest.raises(
        UserError, match=f"holds {name.partition('/')[0]} and is not the folder of a run"
    ):
        refuse_foreign(tmp_path)


def _contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_missing_vocabulary_or_model_says_how_to_make_it(tiny, capsys, tmp_path):
    argv = tiny.argv("vanilla", tmp_path / "run", "ckl_full.gin", DATA_DIR=str(tmp_path / "none"))
    assert "`ckl data prepare` makes" in sentence(capsys, ["train", *argv])
    argv = ["data", "prepare", "--dir", str(tiny.probes), "--out", str(tmp_path / "out")]
    assert "no vocabulary NOFILE" in sentence(capsys, [*argv, "--vocabulary", "NOFILE"], ckl)
    argv = ["import-hf", "--model", str(tmp_path), "--out", str(tmp_path / "hf")]
    assert "has no config.json" in sentence(capsys, argv, ckl)


def test_precompile_takes_compile_as_true_or_false(tiny, capsys, tmp_path):
    argv = tiny.argv("vanilla", tmp_path / "run", **QUIET, COMPILE="no")
    assert "COMPILE is 'no'; give True or False" in sentence(capsys, ["precompile", *argv])


def test_a_checkpoint_of_another_method(tiny, capsys, tmp_path):
    argv = tiny.argv("lora", tiny.root / "initial", "ckl_eval.gin", **QUIET)
    argv += [f"--gin.EVAL_OUTPUT_DIR='{tmp_path}'", "--gin.PROBES=@closed_book.ClosedBook()"]
    err = sentence(capsys, ["eval", *argv])
    assert "holds a run of 'vanilla', not 'lora'" in err and "missing in it" in err


@pytest.mark.parametrize(
    "place, told",
    [("file/run", "file is no folder; choose"), ("/proc/run", "Cannot write")],
)
def test_a_folder_that_cannot_be_written(tiny, capsys, tmp_path, place, told):
    (tmp_path / "file").write_text("in the way")
    argv = tiny.argv("lora", tmp_path / place, **QUIET)
    assert told in sentence(capsys, ["train", *argv])
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a disk of some KiB at a folder; unmounts at the end."""
    mounted = []

    def mount(size):
        folder = tmp_path / f"disk{size}"
        folder.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], capture_output=True
        )
        if done.returncode:
            pytest.skip("mounting is not allowed here")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", folder], check=False)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("size", ["16k", pytest.param("100k", marks=pytest.mark.slow), "1m"])
def test_a_full_disk(tiny, capsys, small_disk, size):
    disk = small_disk(size)
    flags = {"CHECKPOINTS_KEPT": None, "CHECKPOINT_PERIOD": 1}
    err = sentence(capsys, ["train", *tiny.argv("vanilla", disk / "run", **QUIET, **flags)])
    assert "no space left" in err.lower()
    for step in complete_steps(disk / "run"):
        metadata = disk / "run" / f"checkpoint_{step}" / "metadata" / "metadata"
        assert json.loads(metadata.read_text())["method"] == "vanilla"


def test_a_folder_that_another_process_trains(tiny, capsys, tmp_path):
    argv = ["train", *tiny.argv("lora", tmp_path, **QUIET)]
    with FolderLock() as lock:
        lock.acquire(tmp_path, "trained", "MODEL_DIR")
        err = sentence(capsys, argv)
    assert f"is being trained by process {os.getpid()}; wait for it or choose another MO" in err
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_ctrl_c(tiny, capsys, tmp_path):
    folder = tmp_path / "run"

    def interrupt():
        while newest_step(folder) < 3:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    try:
        argv = tiny.argv("lora", folder, **QUIET, EPOCHS=50, CHECKPOINT_PERIOD=3)
        with pytest.raises(SystemExit) as end:
            t5x.main(["train", *argv])
    finally:
        signal.signal(signal.SIGINT, before)
    out, err = capsys.readouterr()
    assert end.value.code == 130 and not err and "SIGINT: stopping" in out
    assert f"Stopped at step {newest_step(folder)}, which is saved" in out
