"""Dynamic evaluation: what is scored before it is learned, masks, and runs that are stopped."""

import dataclasses
import json

import numpy as np
import optax
import pytest

from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.data.tasks.dated_task import DatedTask, prepare_dated
from ckl_jax.data.tasks.word_losses import read_dump
from ckl_jax.errors import UserError
from ckl_jax.optim import krause
from ckl_jax.papers.mind_the_gap.dynamic_eval import job, runner
from ckl_jax.papers.mind_the_gap.dynamic_eval.gradient_statistics import GradientStatistics
from ckl_jax.papers.mind_the_gap.dynamic_eval.past_text import PastText
from ckl_jax.train import setup
from ckl_jax.trees.paths import flatten
from tests.papers.mind_the_gap.dated_world import (
    Letters,
    World,
    by_hand,
    compiled_once,
    documents,
    files_of,
    losses,
)
from tests.train.tiny_memory_model import tiny_model


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with compiled_once(tmp_path_factory.mktemp("compiled")):
        yield World.make(tmp_path_factory.mktemp("world"), tiny_model)


@pytest.fixture(scope="module")
def static(world):
    return losses(world.run("static", mask="none"))


@pytest.fixture(scope="module")
def sgd(world):
    return world.run("sgd")


def test_a_step_of_sgd_is_the_one_made_by_hand(world, sgd):
    np.testing.assert_allclose(losses(sgd), by_hand(world), rtol=2e-5)


@pytest.mark.slow
def test_several_steps_on_a_chunk_are_those_made_by_hand(world):
    found = losses(world.run("twice", num_updates=2))
    np.testing.assert_allclose(found, by_hand(world, steps=2), rtol=5e-5)


def test_a_rate_of_0_is_static_evaluation(world, static):
    np.testing.assert_allclose(losses(world.run("rate0", rate=0.0)), static, rtol=2e-6)


@pytest.mark.slow
def test_documents_side_by_side_are_scored_alike(world, static):
    found = losses(world.run("batched", mask="none", batch_size=3, block_rows=2))
    np.testing.assert_allclose(found, static, rtol=2e-6)


def test_what_is_learned_from_a_chunk_shows_from_the_next_one_on(sgd, static):
    shard = next(iter(read_dump(sgd / "dump")))
    first = next(iter(shard.documents()))
    seen = int(np.sum(np.cumsum(first.tokens) <= 8))  # words that end in the first chunk
    found = losses(sgd)
    np.testing.assert_allclose(found[:seen], static[:seen], rtol=2e-6)
    assert (np.abs(found[seen + 1 :] - static[seen + 1 :]) > 1e-7).mean() > 0.95
    assert set(first.context_start) == {8 * (p // 8) for p in first.first_token}


@pytest.mark.parametrize(
    ("mask", "moves"),
    [
        ("bias", {"mlp/bias"}),
        pytest.param("embedding", {"token_embedder/embedding"}, marks=pytest.mark.slow),
        pytest.param(("mlp", "!/bias$"), {"mlp/kernel"}, marks=pytest.mark.slow),
    ],
)
def test_what_a_mask_leaves_out_does_not_move(world, mask, moves):
    folder = world.run(f"mask_{len(str(mask))}", mask=mask)
    end = flatten(setup.load_params(str(folder)))
    start = flatten(world.params)
    moved = {p for p in start if not np.array_equal(np.asarray(start[p]), end[p])}
    assert moved == moves
    with CheckpointStore(str(folder)) as store:  # what does not move is not even in the state
        assert set(store.metadata()["frozen_paths"]) == set(start) - moves


def test_order_matters(world, sgd):
    given = documents(12)
    turned = [dataclasses.replace(d, date=given[-1 - i].date) for i, d in enumerate(given)]
    prepare_dated(turned, world.root / "turned", Letters())
    other = world.run("turned_run", mixture_or_task_name=str(world.root / "turned"))
    assert abs(losses(other).sum() - losses(sgd).sum()) > 1e-3


@pytest.mark.slow
def test_gradients_that_wait_make_one_step(world, static):
    found = losses(world.run("waiting", update_every=3))
    chunks = _chunks_of_words(world)
    learned = np.flatnonzero(np.abs(found - static) > 1e-6)
    assert chunks[learned[0]] == 3 and (chunks[: learned[0]] <= 3).all()


@pytest.mark.slow
def test_short_chunks_are_scored_and_not_learned(world, static):
    np.testing.assert_allclose(losses(world.run("short", min_tokens=9)), static, rtol=2e-6)


def _chunks_of_words(world):
    """In which chunk of the stream each word ends."""
    task, out, before = DatedTask.open(world.root / "test"), [], 0
    for number in range(len(task)):
        ends = np.cumsum(task.task.row(number)["tokens_per_word"])
        out += [before + (end - 1) // 8 for end in ends]
        before += -(-int(ends[-1]) // 8)
    return np.array(out)


@pytest.mark.slow
def test_the_memory_is_kept_across_documents_where_it_is_asked_for(world, static):
    kept = losses(world.run("kept", mask="none", reset_at_doc=False))
    first = len(DatedTask.open(world.root / "test").task.row(0)["tokens_per_word"])
    np.testing.assert_allclose(kept[:first], static[:first], rtol=2e-6)
    assert abs(kept[first] - static[first]) > 1e-4


@pytest.mark.slow
def test_the_end_of_a_document_is_a_word_where_it_is_asked_for(world, static):
    folder = world.run("eos", mask="none", score_eos=True)
    words = [w for shard in read_dump(folder / "dump") for w in shard.words]
    kept = np.array([w != "</s>" for w in words])
    assert (~kept).sum() == 12
    np.testing.assert_allclose(losses(folder)[kept], static, rtol=2e-6)


class _KilledError(Exception):
    pass


@pytest.mark.parametrize(
    "optimizer", [optax.adam, pytest.param(krause.rms_decay, marks=pytest.mark.slow)]
)
def test_a_killed_run_goes_on_with_the_same_bits(world, monkeypatch, optimizer):
    settings = {
        "optimizer": optimizer,
        "checkpoint_period": 2,
        "update_every": 2,
        "reset_at_doc": False,
        "statistics": GradientStatistics(str(world.root / "past"), batches=5),
    }
    name = optimizer.__name__
    whole = world.run(f"whole_{name}", rate=1e-2, **settings)
    end = job.DynamicRun._end_segment
    for kill in (3, 1):  # behind the third segment's documents; then at the next

        def die(self, segment, *rest, kill=kill, seen=[]):  # noqa: B006
            seen.append(segment)
            if len(seen) > kill:
                raise _KilledError
            end(self, segment, *rest)

        monkeypatch.setattr(job.DynamicRun, "_end_segment", die)
        with pytest.raises(_KilledError):
            world.run(f"parts_{name}", rate=1e-2, **settings)
    monkeypatch.undo()
    parts = world.run(f"parts_{name}", rate=1e-2, **settings)
    assert files_of(parts / "dump") == files_of(whole / "dump")
    summary = world.run(f"parts_{name}", rate=1e-2, **settings) / "summary.json"  # nothing to do
    assert json.loads(summary.read_text())["documents"] == 12


@pytest.mark.slow
def test_snapshots_stay_and_the_past_is_measured_at_the_ends_of_months(world):
    past = PastText((str(world.root / "past"),), unit="month")
    folder = world.run("past_run", keep_snapshots=True, past=past, rate=0.5)
    with CheckpointStore(str(folder)) as store:
        assert store.all_steps() == [5, 10, 12]
        assert store.metadata(5)["month"] == "2018-01"
    summary = json.loads((folder / "summary.json").read_text())
    found = summary["forgetting"]["past"]
    assert list(found) == ["2016-11", "all", "2016-12"]
    assert list(found["all"]) == ["start", "2018-01", "2018-02", "2018-03"]
    assert found["all"]["start"] == 0.0 and found["all"]["2018-03"] != 0.0
    end = World(world.root, world.model, None).run(
        "again",
        mask="none",
        mixture_or_task_name=str(world.root / "past"),
        checkpoint=str(folder),
    )
    start = world.run("again0", mask="none", mixture_or_task_name=str(world.root / "past"))
    expected = 100 * np.expm1(losses(end).mean() - losses(start).mean())
    np.testing.assert_allclose(found["all"]["2018-03"], expected, rtol=1e-3)


def test_a_rate_that_diverges_says_where_and_keeps_what_was_scored(world):
    task = DatedTask.open(world.root / "test")
    first = sum(-(-len(task.task.row(i)["targets"]) // 8) for i in range(2))  # then it learns
    with pytest.raises(UserError, match=r"chunk 0 of document 2 .* learning rate 1e\+06,") as e:
        world.run("diverged", rate=1e6, update_every=first)
    assert "lower LEARNING_RATE" in str(e.value)
    assert "documents before it, 2, are in" in str(e.value)
    assert sum(map(len, read_dump(world.root / "diverged" / "dump"))) == 2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mask": "biass"}, "choose from all, bias, embedding, none"),
        ({"mask": ("nothing",)}, "matches none of the 3 parameter paths"),
        ({"mask": ()}, "selects no parameter"),
        ({"chunk_len": 65}, "the model has 64 positions"),
        ({"rate": -1.0}, "LEARNING_RATE is -1.0"),
        ({"rate": None}, "LEARNING_RATE is None"),
        ({"optimizer": "sgd"}, "OPTIMIZER is 'sgd'"),
        ({"optimizer": krause.rms_decay}, "give STATISTICS_TASK"),
        ({"num_updates": 2, "update_every": 2}, "exclude each other"),
        ({"reduction": "max"}, "LOSS_REDUCTION is 'max'"),
        ({"mixture_or_task_name": "nowhere"}, "'nowhere' exists neither"),
        ({"checkpoint_period": 0}, "CHECKPOINT_PERIOD is 0"),
        ({"past": PastText(("nowhere",))}, "'nowhere' exists neither"),
    ],
)
def test_bad_settings_are_refused_in_a_sentence(world, settings, words):
    with pytest.raises(UserError, match=words):
        world.run("bad", **settings)


def test_another_vocabulary_is_refused(world):
    class Others(Letters):
        digest = "others" * 9

    prepare_dated(documents(3), world.root / "others", Others())
    with pytest.raises(UserError, match="was tokenised with another vocabulary"):
        world.run("bad", mixture_or_task_name=str(world.root / "others"))
    with pytest.raises(UserError, match="was trained with another vocabulary"):
        world.run("bad", model=tiny_model(Others()))


def test_losses_worse_than_guessing_are_said(world, capsys, monkeypatch):
    monkeypatch.setattr(runner, "_HOPELESS", 1e9)
    world.run("worse", rate=3.0)
    assert "nats a token, where guessing costs" in capsys.readouterr().out
