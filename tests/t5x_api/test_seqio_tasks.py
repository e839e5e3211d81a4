"""Stock gin files on SeqIO tasks: train, evaluate, infer, resume."""

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from ckl_jax.checkpoints.restore import complete_steps, restore_params
from ckl_jax.cli import t5x
from ckl_jax.errors import UserError
from ckl_jax.t5x_api import names, seqio_data
from ckl_jax.train import train
from ckl_jax.trees.paths import flatten

pytestmark = pytest.mark.slow  # importing SeqIO takes many seconds

TASK = """
import seqio
import tensorflow as tf

FOLDER = {folder!r}
VOCABULARY = seqio.SentencePieceVocabulary(FOLDER + "/spm.model", extra_ids=100)


def split(dataset):
    def row(line):
        parts = tf.strings.split(line, "\\t")
        return {{"inputs": parts[0], "targets": parts[1]}}

    return dataset.map(row)


def exact(targets, predictions):
    return {{"em": 100 * sum(t == p for t, p in zip(targets, predictions)) / len(targets)}}


def mean_score(targets, scores):
    return {{"mean_score": sum(scores) / len(scores)}}


file = FOLDER + "/rows.tsv"
seqio.TaskRegistry.add(
    {name!r},
    source=seqio.TextLineDataSource({{s: file for s in ("train", "validation", "test")}}),
    preprocessors=[
        split, seqio.preprocessors.tokenize, seqio.CacheDatasetPlaceholder(),
        seqio.preprocessors.append_eos,
    ],
    output_features={{n: seqio.Feature(VOCABULARY) for n in ("inputs", "targets")}},
    metric_fns=[exact, mean_score],
)
seqio.MixtureRegistry.add({name!r} + "_mixed", [{name!r}], default_rate=1.0)
OTHER = {{n: seqio.Feature(seqio.ByteVocabulary()) for n in ("inputs", "targets")}}
seqio.TaskRegistry.add(
    {name!r} + "_bytes",
    source=seqio.TextLineDataSource({{"test": file}}),
    preprocessors=[split, seqio.preprocessors.tokenize, seqio.preprocessors.append_eos],
    output_features=OTHER,
    metric_fns=[exact],
)


def no_such_feature(dataset):
    def row(example):
        return {{**example, "targets": example["nothing"]}}

    return dataset.map(row)


def fails_while_it_runs(dataset):
    def inputs(text):
        raise OSError("no dictionary today")

    def row(example):
        text = tf.py_function(inputs, [example["inputs"]], tf.string)
        return {{**example, "inputs": tf.ensure_shape(text, [])}}

    return dataset.map(row)


def fails_at_once(dataset):
    raise RuntimeError("not today")


def too_long(dataset):
    def checked(example):
        tf.debugging.assert_less(tf.strings.length(example["inputs"]), 3, message="too long")
        return example

    return dataset.map(checked)


def no_metric(targets, predictions):
    return {{"em": 1 / 0}}


def a_word(targets, predictions):
    return {{"size": seqio.metrics.Text("all"), "verdict": "fine"}}


def no_dict(targets, predictions):
    return 0.5


def add(suffix, before=(), metric=exact, vocabulary=VOCABULARY, names=("inputs", "targets")):
    seqio.TaskRegistry.add(
        {name!r} + suffix,
        source=seqio.TextLineDataSource({{s: file for s in ("train", "test")}}),
        preprocessors=[
            split, *before, seqio.preprocessors.tokenize, seqio.preprocessors.append_eos,
        ],
        output_features={{n: seqio.Feature(vocabulary) for n in names}},
        metric_fns=[metric],
    )


add("_inputs", names=["inputs"])
add("_targets", names=["targets"])
add("_feature", [no_such_feature])
add("_running", [fails_while_it_runs])
add("_at_once", [fails_at_once])
add("_asserts", [too_long])
add("_metric", metric=no_metric)
add("_word", metric=a_word)
add("_no_dict", metric=no_dict)
add("_unvalidated")
seqio.MixtureRegistry.add({name!r} + "_both", [{name!r}, {name!r} + "_unvalidated"], default_rate=1)
add("_vocabulary", vocabulary=seqio.SentencePieceVocabulary(FOLDER + "/gone.model"))
seqio.MixtureRegistry.add({name!r} + "_rates", [({name!r}, seqio.mixing_rate_num_examples)])
"""
GIN = """
from __gin__ import dynamic_registration
{imports}
import {name}
import seqio
from t5x import models
from t5x import trainer
from t5x import utils
from t5x.examples.t5 import network
include 't5x/examples/t5/t5_1_1/small.gin'
include 't5x/configs/runs/{run}.gin'
MIXTURE_OR_TASK_NAME = '{name}'
TASK_FEATURE_LENGTHS = {{'inputs': 24, 'targets': 12}}
seqio.SentencePieceVocabulary:
    sentencepiece_model_file = '{folder}/spm.model'
    extra_ids = 100
DROPOUT_RATE = 0.1
network.T5Config:
    vocab_size = 256
    dtype = 'float32'
    emb_dim = 32
    num_heads = 2
    num_encoder_layers = 1
    num_decoder_layers = 1
    head_dim = 16
    mlp_dim = 64
{more}
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    pytest.importorskip("seqio")
    import sentencepiece

    folder = tmp_path_factory.mktemp("seqio")
    people = [a + b for a in ("Ka", "Li", "Mo", "Ne") for b in ("ra", "to", "mi", "su")]
    rows = [f"{p} lives in\t{'Borburg Valstad'.split()[i % 2]}" for i, p in enumerate(people)]
    (folder / "rows.tsv").write_text("\n".join(rows) + "\n")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(rows),
        model_prefix=str(folder / "spm"),
        vocab_size=60,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    name = "words_for_stock_gin"
    (folder / f"{name}.py").write_text(TASK.format(folder=str(folder), name=name))
    sys.path.insert(0, str(folder))
    yield folder, name
    sys.path.remove(str(folder))
    names.uninstall()


def run(world, command, run, more="", macros=()):
    folder, name = world
    script = {"pretrain": "train", "finetune": "train"}.get(run, run)
    path = folder / f"{run}.gin"
    imports = f"import __main__ as {script}_script\nfrom ckl_jax.methods import lora"
    path.write_text(GIN.format(folder=folder, name=name, run=run, imports=imports, more=more))
    values = {n: v for n, v in macros}
    argv = [f"--gin.{n}={v!r}" for n, v in values.items()]
    return t5x.main([command, f"--gin_file={path}", *argv])


TRAIN = """
USE_CACHED_TASKS = False
BATCH_SIZE = 8
train_script.train:
    eval_period = 4
    eval_steps = 2
utils.SaveCheckpointConfig.period = 4
"""


@pytest.fixture(scope="module")
def trained(world):
    folder = str(world[0] / "run")
    assert run(world, "train", "pretrain", TRAIN, [("MODEL_DIR", folder), ("TRAIN_STEPS", 8)]) == 0
    return folder


def _damage(folder, how):
    for path in Path(folder).glob("data_position_4*"):
        content = path.read_bytes()
        if how == "lost":
            path.unlink()
        elif how == "overwritten" and path.suffix == ".json":
            path.write_bytes(b"\xff" + content)
        elif how == "cut off" and ".data-" in path.name:
            path.write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("restored", ""),
        ("lost", "was not saved"),
        ("overwritten", "is of other data"),
        ("cut off", "is damaged"),
    ],
)
def test_training_streams_and_goes_on_where_it_was(world, trained, how, told, monkeypatch, capfd):
    other, again = str(world[0] / how), []
    read_again = seqio_data.TaskStream._read_again
    monkeypatch.setattr(
        seqio_data.TaskStream,
        "_read_again",
        lambda *given: again.append(given[2]) or read_again(*given),
    )
    for steps in (4, 8):
        if steps == 8:
            _damage(other, how)
        macros = [("MODEL_DIR", other), ("TRAIN_STEPS", steps)]
        assert run(world, "train", "pretrain", TRAIN, macros) == 0
    assert again == ([4] if told else [])
    assert ("The position in the data" in (said := capfd.readouterr().err)) == bool(told)
    assert told in said
    assert Path(other, "data_position_8-00000-of-00001.json").exists()
    whole, halved = (flatten(restore_params(f"{d}/checkpoint_8")) for d in (trained, other))
    for path in whole:
        assert (whole[path] == halved[path]).all(), path
    rows = [json.loads(line) for line in open(f"{trained}/metrics.jsonl")]
    assert [r["step"] for r in rows if r["split"].startswith("training_eval/")] == [4, 8]
    assert all("epoch" not in row for row in rows)  # of a stream no one knows it


def test_a_checkpoint_tells_the_vocabulary_of_seqio(world, trained):
    from ckl_jax.data.text.vocabularies import Vocabulary

    path = Path(trained) / "checkpoint_8" / "metadata" / "metadata"
    metadata = json.loads(path.read_text())
    assert metadata["vocabulary_digest"] == Vocabulary(world[0] / "spm.model").digest
    assert {"python", "jax", "flax", "optax", "orbax-checkpoint"} <= metadata.keys()


def test_a_method_trains_on_with_the_tasks_metrics(world, trained):
    more = (
        TRAIN.replace("eval_period", "method = @lora.lora()\n    eval_period")
        + """
infer_eval/utils.DatasetConfig.task_feature_lengths = {'inputs': 24, 'targets': 12}
trainer.Trainer.num_microbatches = 2
"""
    )
    folder = world[0] / "lora"
    macros = [
        ("MODEL_DIR", str(folder)),
        ("BATCH_SIZE", 16),
        ("TRAIN_STEPS", 12),
        ("INITIAL_CHECKPOINT_PATH", f"{trained}/checkpoint_8"),
    ]
    assert run(world, "train", "finetune", more, macros) == 0
    assert complete_steps(folder) == [8, 12]
    name = world[1]
    lines = (folder / "inference_eval" / f"{name}-metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1]).keys() == {"step", "em", "mean_score"}
    assert len((folder / "inference_eval" / f"{name}-000012.jsonl").read_text().splitlines()) == 16


def test_eval_and_infer_agree(world, trained):
    evaluated, inferred = world[0] / "eval", world[0] / "infer"
    checkpoint = ("CHECKPOINT_PATH", f"{trained}/checkpoint_8")
    macros = [checkpoint, ("EVAL_OUTPUT_DIR", str(evaluated))]
    assert run(world, "eval", "eval", "utils.DatasetConfig.batch_size = 8", macros) == 0
    metrics = (evaluated / "inference_eval" / f"{world[1]}-metrics.jsonl").read_text()
    macros = [checkpoint, ("INFER_OUTPUT_DIR", str(inferred))]
    more = """
utils.DatasetConfig.batch_size = 8
utils.RestoreCheckpointConfig.dtype = 'float32'
models.EncoderDecoderModel.predict_batch_with_aux.num_decodes = {}
infer_script.infer.mode = '{}'
"""
    for mode in ("score", "predict_with_aux"):
        assert run(world, "infer", "infer", more.format(1, mode), macros) == 0
    file = f"{world[1]}-{{}}.jsonl-00000-of-00001"
    lines = (inferred / file.format("score")).read_text().splitlines()
    scores = [json.loads(line)["score"] for line in lines]
    assert sum(scores) / 16 == pytest.approx(json.loads(metrics)["mean_score"], rel=1e-4)
    lines = (inferred / file.format("predict_with_aux")).read_text().splitlines()
    assert all({"inputs", "prediction", "aux"} == json.loads(line).keys() for line in lines)
    greedy = [json.loads(line)["aux"]["scores"] for line in lines]
    macros[1] = ("INFER_OUTPUT_DIR", str(world[0] / "beams"))
    assert run(world, "infer", "infer", more.format(4, "predict_with_aux"), macros) == 0
    lines = (world[0] / "beams" / file.format("predict_with_aux")).read_text().splitlines()
    beams = [json.loads(line)["aux"]["scores"] for line in lines]
    assert greedy != beams  # the binding of a method of the model counts


def test_a_task_of_inputs_alone_is_inferred(world, trained, capsys):
    out = world[0] / "inputs"
    macros = [
        ("CHECKPOINT_PATH", f"{trained}/checkpoint_8"),
        ("INFER_OUTPUT_DIR", str(out)),
        ("MIXTURE_OR_TASK_NAME", f"{world[1]}_inputs"),  # its targets stay text
    ]
    assert run(world, "infer", "infer", "utils.DatasetConfig.batch_size = 8", macros) == 0
    lines = (out / f"{world[1]}_inputs-predict.jsonl-00000-of-00001").read_text().splitlines()
    assert len(lines) == 16
    more = "utils.DatasetConfig.batch_size = 8\ninfer_script.infer.mode = 'score'"
    assert run(world, "infer", "infer", more, macros) == 2
    assert "inputs without targets" in capsys.readouterr().err
    macros[2] = ("MIXTURE_OR_TASK_NAME", f"{world[1]}_targets")
    assert run(world, "infer", "infer", "utils.DatasetConfig.batch_size = 8", macros) == 2
    assert "has no output feature 'inputs'" in capsys.readouterr().err


def test_a_vocabulary_is_the_same_by_any_spelling_of_its_path(world, monkeypatch):
    import seqio

    folder = world[0]
    monkeypatch.chdir(folder)
    (folder / "link.model").symlink_to(folder / "spm.model")

    def check(path, extra_ids=0):
        task = types.SimpleNamespace(
            name="t", output_features={"inputs": seqio.Feature(vocabulary(path, extra_ids))}
        )
        cfg = types.SimpleNamespace(mixture_or_task_name=task, task_name="t")
        seqio_data.check_vocabulary(cfg, model)

    vocabulary = seqio.SentencePieceVocabulary
    mine = vocabulary(str(folder / "spm.model"))
    model = types.SimpleNamespace(input_vocabulary=mine, output_vocabulary=mine)
    for path in ("spm.model", f"{folder}//spm.model", f"{folder}/link.model"):
        check(path)
    with pytest.raises(UserError, match="is not the model's"):
        check("spm.model", extra_ids=3)


def test_all_decodes_are_written_worst_first(world, trained):
    out = world[0] / "all"
    macros = [("CHECKPOINT_PATH", f"{trained}/checkpoint_8"), ("INFER_OUTPUT_DIR", str(out))]
    more = """
utils.DatasetConfig.batch_size = 8
models.EncoderDecoderModel.predict_batch_with_aux.num_decodes = 3
models.EncoderDecoderModel.predict_batch_with_aux.return_all_decodes = True
infer_script.infer.mode = 'predict_with_aux'
"""
    assert run(world, "infer", "infer", more, macros) == 0
    path = out / f"{world[1]}-predict_with_aux.jsonl-00000-of-00001"
    rows = [json.loads(line) for line in path.open()]
    assert len(rows) == 16
    for row in rows:
        scores = row["aux"]["scores"]
        assert len(row["prediction"]) == len(scores) == 3 and scores == sorted(scores)


def test_a_mixture_is_inferred_task_by_task(world, trained):
    out = world[0] / "mixed"
    macros = [
        ("CHECKPOINT_PATH", f"{trained}/checkpoint_8"),
        ("INFER_OUTPUT_DIR", str(out)),
        ("MIXTURE_OR_TASK_NAME", f"{world[1]}_mixed"),
    ]
    assert run(world, "infer", "infer", "utils.DatasetConfig.batch_size = 8", macros) == 0
    lines = (out / f"{world[1]}-predict.jsonl-00000-of-00001").read_text().splitlines()
    assert len(lines) == 16
    assert all(json.loads(line)["inputs"]["inputs_pretokenized"] for line in lines)


def test_another_vocabulary_is_refused_in_eval_and_infer(world, trained, capsys):
    for command, place in (("eval", "EVAL_OUTPUT_DIR"), ("infer", "INFER_OUTPUT_DIR")):
        out = world[0] / "other"
        macros = [
            ("CHECKPOINT_PATH", f"{trained}/checkpoint_8"),
            (place, str(out)),
            ("MIXTURE_OR_TASK_NAME", f"{world[1]}_bytes"),
        ]
        assert run(world, command, command, "utils.DatasetConfig.batch_size = 8", macros) == 2
        assert "ByteVocabulary" in capsys.readouterr().err
        assert not out.exists()


def test_an_uncached_task_says_which_flag(world, capsys):
    macros = [("MODEL_DIR", str(world[0] / "no")), ("TRAIN_STEPS", 8)]
    more = TRAIN.replace("USE_CACHED_TASKS = False", "")
    assert run(world, "train", "pretrain", more, macros) == 2
    assert "--gin.USE_CACHED_TASKS=False" in capsys.readouterr().err


def test_an_unknown_task_is_named(world, capsys):
    macros = [
        ("MODEL_DIR", str(world[0] / "no")),
        ("TRAIN_STEPS", 8),
        ("MIXTURE_OR_TASK_NAME", "wrods"),
    ]
    assert run(world, "train", "pretrain", TRAIN, macros) == 2
    assert "'wrods'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("suffix", "words"),
    [
        ("_feature", ("KeyError: 'nothing'", "in row (", ".py, line ")),
        ("_running", ("OSError: no dictionary today", "in inputs (", ".py, line ")),
        ("_at_once", ("RuntimeError: not today", "in fails_at_once (")),
        ("_asserts", ("too long", "in checked (", ".py, line ")),
        ("_vocabulary", ("gone.model", "cannot be read")),
        ("_rates", ("num_input_examples",)),
        ("_inputs", ("'targets' is text", "output_features", "seqio.preprocessors.tokenize")),
        ("x", ("Did you mean 'words_for_stock_gin'",)),
    ],
)
def test_an_error_in_a_task_is_one_sentence(world, capsys, monkeypatch, suffix, words):
    name = world[1] + suffix
    monkeypatch.setattr(train, "_compile", lambda *given: pytest.fail("it compiled first"))
    macros = [
        ("MODEL_DIR", str(world[0] / f"no{suffix}")),
        ("TRAIN_STEPS", 8),
        ("MIXTURE_OR_TASK_NAME", name),
    ]
    assert run(world, "train", "pretrain", TRAIN, macros) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"{name!r}" in error and all(word in error for word in words), error


def test_an_error_in_a_metric_is_one_sentence(world, trained, capsys, monkeypatch):
    macros = [
        ("CHECKPOINT_PATH", f"{trained}/checkpoint_8"),
        ("EVAL_OUTPUT_DIR", str(world[0] / "m")),
        ("MIXTURE_OR_TASK_NAME", f"{world[1]}_metric"),
    ]
    batch = "utils.DatasetConfig.batch_size = 8"
    assert run(world, "eval", "eval", batch, macros) == 2
    error = capsys.readouterr().err
    assert "ZeroDivisionError: division by zero, in no_metric (" in error.splitlines()[-1]
    assert "Traceback" not in error
    macros.append(("utils.DatasetConfig.split", "tset"))
    monkeypatch.setenv("CKL_JAX_TRACEBACK", "1")
    assert run(world, "eval", "eval", batch, macros) == 2
    error = capsys.readouterr().err
    assert "no split 'tset'" in error and "DatasetConfig.split=\"'test'\"" in error
    assert "Traceback" in error


@pytest.mark.parametrize(
    ("suffix", "words"),
    [
        ("_word", "its metric 'verdict' is 'fine', which is not a number"),
        ("_no_dict", "a metric function (no_dict) returned a float; a metric function returns a "),
    ],
)
def test_a_metric_that_is_no_number_is_named_with_its_task(world, trained, capsys, suffix, words):
    macros = [
        ("CHECKPOINT_PATH", f"{trained}/checkpoint_8"),
        ("EVAL_OUTPUT_DIR", str(world[0] / "m")),
        ("MIXTURE_OR_TASK_NAME", world[1] + suffix),
    ]
    assert run(world, "eval", "eval", "utils.DatasetConfig.batch_size = 8", macros) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"{world[1]}{suffix}'" in error and words in error, error


def test_tasks_without_the_split_are_said_to_be_left_out(world, trained, capsys):
    left_out = f"leaves out {world[1]}_unvalidated, which has no split 'validation'."
    out = world[0] / "left_out"
    task = ("MIXTURE_OR_TASK_NAME", f"{world[1]}_both")
    macros = [("MODEL_DIR", str(out / "run")), ("TRAIN_STEPS", 4), task]
    assert run(world, "train", "pretrain", TRAIN, macros) == 0
    assert f"training_eval {left_out}" in capsys.readouterr().out
    rows = [json.loads(line) for line in open(out / "run" / "metrics.jsonl")]
    assert {r["split"] for r in rows} == {"train", f"training_eval/{world[1]}"}
    checkpoint = ("CHECKPOINT_PATH", f"{trained}/checkpoint_8")
    for job, where in (("infer", "INFER_OUTPUT_DIR"), ("eval", "EVAL_OUTPUT_DIR")):
        more = "utils.DatasetConfig:\n    batch_size = 8\n    split = 'validation'"
        assert run(world, job, job, more, [checkpoint, (where, str(out / job)), task]) == 0
        said = {"infer": "infer", "eval": "inference_eval"}[job]
        assert f"{said} {left_out}" in capsys.readouterr().out


def test_a_missing_vocabulary_of_the_model_is_named(world, capsys):
    more = TRAIN + "seqio.SentencePieceVocabulary.sentencepiece_model_file = '/gone.model'"
    macros = [("MODEL_DIR", str(world[0] / "no")), ("TRAIN_STEPS", 8)]
    assert run(world, "train", "pretrain", more, macros) == 2
    assert "input_vocabulary cannot be read: NotFoundError: /gone.model" in capsys.readouterr().err


def test_upstream_runs_the_same_file_and_each_reads_the_others_config(world, trained):
    folder, _ = world
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": f"{root}:{folder}:{os.environ.get('PYTHONPATH', '')}"}

    def t5x_(*argv):
        command = [sys.executable, "-m", "ckl_jax", "train", *argv]
        return subprocess.run(command, capture_output=True, text=True, env=env, cwd=folder)

    probe = [sys.executable, "-c", "import t5x.partitioning"]
    if subprocess.run(probe, capture_output=True, env=env).returncode:
        done = t5x_("--runner=upstream", f"--gin_file={trained}/config.gin")
        assert done.returncode == 2 and "needs T5X, which is not installed" in done.stderr
        pytest.skip("T5X is not installed")
    macro = f"--gin.MODEL_DIR={str(folder / 'upstream')!r}"
    done = t5x_("--runner=upstream", f"--gin_file={trained}/config.gin", macro)
    assert done.returncode == 0, done.stderr[-2000:]
    assert complete_steps(folder / "upstream") == [0, 4, 8]
    macro = f"--gin.MODEL_DIR={str(folder / 'back')!r}"
    done = t5x_(f"--gin_file={folder / 'upstream' / 'config.gin'}", macro)
    assert done.returncode == 0, done.stderr[-2000:]
    assert complete_steps(folder / "back") == [0, 4, 8]
