"""Lanes of running text: against a stream that is written out whole."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckl_jax.data.tasks.cached import CachedTask, write_cached
from ckl_jax.data.tasks.contiguous_batches import contiguous_source
from ckl_jax.errors import UserError

EOS = 1


def task_of(folder, documents, features=("targets",)):
    rows = [dict.fromkeys(features, tokens) for tokens in documents]
    write_cached(folder, rows, features=features, eos_id=EOS)
    return CachedTask.open(folder)


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    rng = np.random.default_rng(0)
    sizes = [5, 1, 9, 3, 0, 7, 2, 30]
    return task_of(
        tmp_path_factory.mktemp("task") / "t", [rng.integers(2, 90, n).tolist() for n in sizes]
    )


def parts(source, epoch):
    """Each part's (inputs, targets, documents, weights), all steps of an epoch end to end."""
    steps = source.plan.steps
    batches = [source[epoch * steps + i] for i in range(steps)]
    names = ("input_tokens", "target_tokens", "segment_ids", "loss_weights")
    whole = {n: np.concatenate([b[f"decoder_{n}"] for b in batches], axis=1) for n in names}
    return [tuple(whole[n][b] for n in names) for b in range(source.plan.batch_size)]


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.integers(1, 20), st.integers(0, 9) | st.none())
def test_lanes_end_to_end_are_the_documents(task, batch_size, length, seed):
    source = contiguous_source(task, EOS, batch_size, length, epochs=2, seed=seed)
    assert len(source) == 2 * source.plan.steps == sum(source.plan.steps_per_epoch)
    for epoch in range(2):
        order, _ = source.plan.documents(epoch * source.plan.steps)
        assert sorted(order) == list(range(len(task)))
        documents = [[*task.row(i)["targets"], EOS] for i in order]
        stream = np.concatenate(documents)
        before = np.concatenate([[EOS], stream[:-1]])
        number = np.repeat(np.arange(len(order)), [len(d) for d in documents])
        found = [[x[w > 0] for x in (i, t, d)] for i, t, d, w in parts(source, epoch)]
        inputs, targets, ids = (np.concatenate(x) for x in zip(*found, strict=True))
        np.testing.assert_array_equal(targets, stream)
        np.testing.assert_array_equal(inputs, before)
        np.testing.assert_array_equal(ids, 1 + number + epoch * len(order))
        for _, _, ids, weights in parts(source, epoch):
            assert (np.diff(weights) <= 0).all(), "padding is on the right"
            np.testing.assert_array_equal(ids > 0, weights > 0)


def test_the_order_of_documents_follows_from_the_seed(task):
    orders = {
        (seed, epoch): tuple(source.plan.documents(epoch * source.plan.steps)[0])
        for seed in (0, 1)
        for source in [contiguous_source(task, EOS, 2, 4, epochs=2, seed=seed)]
        for epoch in (0, 1)
    }
    assert len(set(orders.values())) == 4
    again = contiguous_source(task, EOS, 2, 4, epochs=2, seed=1)
    assert orders[1, 1] == tuple(again.plan.documents(again.plan.steps)[0])


def test_positions_count_within_a_document_and_a_row(task):
    batch = contiguous_source(task, EOS, 1, 8)[0]
    np.testing.assert_array_equal(batch["decoder_segment_ids"][0], [1, 1, 1, 1, 1, 1, 2, 2])
    np.testing.assert_array_equal(batch["decoder_positions"][0], [0, 1, 2, 3, 4, 5, 0, 1])


def test_hosts_have_their_own_lanes_and_shapes_read_nothing(task):
    whole = contiguous_source(task, EOS, 4, 5)
    for i in range(2):
        part = contiguous_source(task, EOS, 4, 5, batch_rows=np.arange(2 * i, 2 * i + 2))
        for name, x in part[1].items():
            np.testing.assert_array_equal(x, whole[1][name][2 * i : 2 * i + 2])
            assert (part.shapes()[name].shape, part.shapes()[name].dtype) == (x.shape, x.dtype)
    steps = len(whole)
    for step, batch in zip(range(1, steps), whole.iterate(1), strict=True):
        np.testing.assert_array_equal(
            batch["decoder_target_tokens"], whole[step]["decoder_target_tokens"]
        )


def test_some_documents_and_no_ends(task):
    source = contiguous_source(task, EOS, 2, 50, most=3, score_eos=False)
    batch = source[0]
    np.testing.assert_array_equal(source.rows, [0, 3, 7])
    tokens = sum(len(task.row(i)["targets"]) for i in (0, 3, 7))
    assert batch["decoder_loss_weights"].sum() == tokens
    assert len(contiguous_source(task, EOS, 2, 5, epochs=None, total_steps=100)) >= 100


def test_what_cannot_be_lanes_is_refused(task, tmp_path):
    with pytest.raises(UserError, match="too few for BATCH_SIZE=500 rows"):
        contiguous_source(task, EOS, 500, 4)
    packed = task_of(tmp_path / "packed", [[3, 4]], ("targets", "segments"))
    with pytest.raises(UserError, match="one document each, which 'ckl data dated' makes"):
        contiguous_source(packed, EOS, 1, 4)
