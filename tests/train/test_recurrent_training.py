"""Training with a memory: what the step carries, what a checkpoint holds, what is refused."""

import dataclasses
import functools
import shutil

import jax
import numpy as np
import optax
import pytest

from ckl_jax.checkpoints.restore import restore_params
from ckl_jax.data.tasks.cached import write_cached
from ckl_jax.errors import UserError
from ckl_jax.methods.lora import lora
from ckl_jax.methods.mix_review import mix_review
from ckl_jax.optim.adamw import adamw
from ckl_jax.optim.schedules import constant
from ckl_jax.papers.mind_the_gap.dynamic_eval.held_out_stream import StreamLoss
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.train.configs import (
    CheckpointConfig,
    DatasetConfig,
    RestoreCheckpointConfig,
    SaveCheckpointConfig,
)
from ckl_jax.train.state import TrainState
from ckl_jax.train.step import make_train_step
from ckl_jax.train.train import train
from ckl_jax.trees.paths import flatten
from tests.helpers import TINY, TINY_GPT2, TINY_XL, model_of, random_params
from tests.tiny import read_rows

MODEL = model_of(TINY_XL, memory_length=16, train_memory_length=6)
ROWS, LENGTH = 8, 8


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    rng = np.random.default_rng(0)
    tokens = [rng.integers(2, 60, n).tolist() for n in rng.integers(3, 60, 12)]
    rows = [{"targets": t, "tokens_per_word": [1] * len(t)} for t in tokens]
    folder = tmp_path_factory.mktemp("task") / "documents"
    write_cached(folder, rows, features=("targets", "tokens_per_word"))
    return str(folder)


def dataset(task, **changes):
    fields = {"contiguous": True, **changes}
    return DatasetConfig(
        mixture_or_task_name=task,
        task_feature_lengths={"targets": LENGTH},
        batch_size=ROWS,
        **fields,
    )


def run(task, folder, model=MODEL, **changes):
    save = SaveCheckpointConfig(period=100, keep=None, checkpoint_steps=(3,))
    restore = RestoreCheckpointConfig(path=changes.pop("start", None))
    arguments = {"total_steps": 6, "log_period": 1, **changes}
    return train(
        model=model,
        train_dataset_cfg=arguments.pop("dataset", dataset(task)),
        model_dir=str(folder),
        optimizer=adamw,
        learning_rate=functools.partial(constant, 1e-2),
        checkpoint_cfg=CheckpointConfig(save=save, restore=restore),
        progress="silent",
        **arguments,
    )


def assert_same(found, expected):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)


def state_of(params, tx, memory_rows=ROWS):
    return TrainState.create(params, tx, memory=MODEL.initial_memory(memory_rows, 6))


@pytest.mark.slow
def test_the_step_carries_the_memory_with_micro_batches_too(task):
    source = dataset(task).make_source(
        lora(trunk=()), epochs=1, total_steps=None, seed=0, model=MODEL
    )
    params, tx = random_params(TINY_XL), optax.sgd(1e-2)
    key, states = jax.random.key(0), []
    for count in (1, 2):
        step = jax.jit(make_train_step(MODEL.loss_fn, tx, num_microbatches=count, dropout=False))
        state = state_of(params, tx)
        for i in range(2):
            state, metrics = step(state, {}, source[i], key)
        assert step._cache_size() == 1
        states.append(state)
    for a, b in zip(*map(jax.tree.leaves, states), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    losses, memory = jax.jit(MODEL.stream_losses)(params, source[0], MODEL.initial_memory(ROWS, 6))
    np.testing.assert_array_equal(memory["segment_ids"], source[0]["decoder_segment_ids"][:, -6:])
    assert set(metrics) >= {"loss", "tokens"} and "memory" not in metrics


@pytest.mark.slow
def test_a_run_that_goes_on_ends_with_the_same_bits(task, tmp_path):
    _, state = run(task, tmp_path / "run")
    assert np.abs(state.memory["states"]).max() > 0
    assert state.memory["states"].shape == (ROWS, 2, 6, 16)
    shutil.copytree(tmp_path / "run", tmp_path / "again")
    shutil.rmtree(tmp_path / "again" / "checkpoint_6")
    (tmp_path / "again" / "summary.json").unlink()
    step, again = run(task, tmp_path / "again")
    assert step == 6
    assert_same(again, state)
    # From its parameters a new run starts, with nothing in the memory and no step.
    params = restore_params(tmp_path / "run")
    step, begun = run(task, tmp_path / "new", start=str(tmp_path / "run"), total_steps=1)
    first = dataset(task).make_source(
        lora(trunk=()), epochs=1, total_steps=None, seed=0, model=MODEL
    )[0]
    _, memory = jax.jit(MODEL.stream_losses)(params, first, MODEL.initial_memory(ROWS, 6))
    np.testing.assert_array_equal(begun.memory["segment_ids"], memory["segment_ids"])


@pytest.mark.slow
@pytest.mark.parametrize("config", [TINY_XL, TINY_GPT2], ids=["xl", "gpt2"])
def test_held_documents_are_read_as_running_text(task, tmp_path, config):
    model = MODEL if config is TINY_XL else model_of(config)
    held = StreamLoss((task,), {"targets": LENGTH}, batch_size=8, documents=8)
    run(task, tmp_path, model, evaluations=(held,), epochs=2, total_steps=None)
    rows = read_rows(tmp_path / "metrics.jsonl")
    rows = [row for row in rows if row["split"] == "training_eval/documents"]
    assert len(rows) == 2 and rows[1]["loss"] < rows[0]["loss"]
    assert rows[0]["tokens"] == rows[0]["words"]
    np.testing.assert_allclose(rows[0]["word_perplexity"], np.exp(rows[0]["loss"]), rtol=1e-6)


@pytest.mark.slow
def test_held_losses_are_those_of_documents_alone(task):
    """With `reset_at_doc` and a memory that is long enough, slots and chunks change no loss."""
    params = random_params(TINY_XL)
    partitioner = Partitioner(devices=jax.devices()[:1])  # slots would cut documents
    scores = []
    for rows, length in ((1, 64), (1, 16)):
        model = model_of(TINY_XL, memory_length=64)
        held = StreamLoss((task,), {"targets": length}, batch_size=rows)
        scores.append(held(model, partitioner)(params, 0, True)["training_eval/documents"])
    assert scores[0]["tokens"] == scores[1]["tokens"]
    np.testing.assert_allclose(scores[0]["loss"], scores[1]["loss"], rtol=1e-5)


def test_what_running_text_is_not_for_is_refused(task):
    def source(model, method=None, **changes):
        return dataset(task, **changes).make_source(
            method or lora(trunk=()), epochs=1, total_steps=None, seed=0, model=model
        )

    with pytest.raises(UserError, match="'mix_review' mixes rows of an earlier corpus"):
        source(MODEL, mix_review())
    with pytest.raises(UserError, match="is for decoder-only models, not a EncoderDecoderModel"):
        source(model_of(TINY))
    with pytest.raises(UserError, match="needs whole sequences"):
        source(dataclasses.replace(MODEL, loss_normalizing_factor="AVERAGE_PER_SEQUENCE"))
    with pytest.raises(UserError, match="CONTIGUOUS_ROWS is 1; give True or False"):
        source(MODEL, contiguous=1)
    assert flatten(source(MODEL).shapes()).keys() == flatten(source(MODEL)[0]).keys()
