"""Beam search on table models: against enumeration, against both originals, and by invariants."""

import functools
import itertools
import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckl_jax.models import decoding

GOLDEN = pathlib.Path(__file__).parents[1] / "parity" / "golden"
EOS = 1


def table_step(table):
    """A one-step function over a table `[B, L, V, V]`: logits by example, position, last token."""

    def step(ids, cache):
        logits = table[cache["example"], cache["cache_index"], ids[:, 0]]
        return logits, {**cache, "cache_index": cache["cache_index"] + 1}

    return step


def table_cache(table):
    return {"cache_index": jnp.int32(0), "example": jnp.arange(table.shape[0])}


@functools.lru_cache
def compiled_search(beam_size, settings):
    """Compiled once for each setting and shape of table."""

    def run(table):
        batch, length = table.shape[:2]
        return decoding.beam_search(
            table_step(table),
            table_cache(table),
            batch_size=batch,
            beam_size=beam_size,
            max_decode_len=length,
            eos_id=EOS,
            **dict(settings),
        )

    return jax.jit(run)


def search(table, beam_size, **kwargs):
    run = compiled_search(beam_size, tuple(sorted(kwargs.items())))
    return jax.tree.map(np.asarray, run(jnp.asarray(table, jnp.float32)))


def greedy(table, **kwargs):
    table = jnp.asarray(table, jnp.float32)
    out = decoding.greedy_decode(
        table_step(table),
        table_cache(table),
        batch_size=table.shape[0],
        max_decode_len=table.shape[1],
        eos_id=EOS,
        **kwargs,
    )
    return jax.tree.map(np.asarray, out)


def log_softmax(table):
    x = np.asarray(table, np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def enumerate_sequences(logits):
    """All (sequence, sum of log probabilities, ended) of one example `[L, V, V]`."""
    log_probs = log_softmax(logits)
    length, vocabulary = logits.shape[:2]
    for n in range(1, length + 1):
        for body in itertools.product(*[range(vocabulary)] * n):
            ended = body[-1] == EOS
            if EOS in body[:-1] or (n < length and not ended):
                continue
            total = sum(
                log_probs[i, last, token]
                for i, (last, token) in enumerate(zip((0, *body[:-1]), body, strict=True))
            )
            yield body + (0,) * (length - n), total, ended, n


def random_table(seed, batch=2, length=3, vocabulary=4, bonus=0.0):
    table = np.random.default_rng(seed).normal(size=(batch, length, vocabulary, vocabulary))
    table[..., EOS] += bonus
    return table.astype(np.float32)


# With at least as many beams as prefixes nothing is ever pruned, so the search is exhaustive.
EXHAUSTIVE_BEAMS = 40


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 2.0])
def test_hf_rule_finds_the_best_of_all_sequences(seed, length_penalty):
    table = random_table(seed)
    found = search(
        table, EXHAUSTIVE_BEAMS, rule="hf", length_penalty=length_penalty, early_stopping=False
    )
    for example, logits in enumerate(table):
        expected = sorted(
            (
                (total / (n if ended else n + 1) ** length_penalty, sequence)
                for sequence, total, ended, n in enumerate_sequences(logits)
            ),
            reverse=True,
        )[:EXHAUSTIVE_BEAMS]
        count = min(len(expected), EXHAUSTIVE_BEAMS)
        assert [tuple(t) for t in found.tokens[example, :count]] == [s for _, s in expected]
        np.testing.assert_allclose(
            found.scores[example, :count], [s for s, _ in expected], rtol=1e-5
        )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_t5x_rule_finds_the_best_of_all_finished_sequences(seed, alpha):
    table = random_table(seed)
    found = search(table, EXHAUSTIVE_BEAMS, rule="t5x", alpha=alpha)
    for example, logits in enumerate(table):
        expected = sorted(
            (
                (total / ((5 + n) / 6) ** alpha, sequence)
                for sequence, total, ended, n in enumerate_sequences(logits)
                if ended
            ),
            reverse=True,
        )
        count = len(expected)
        assert count < EXHAUSTIVE_BEAMS
        assert [tuple(t) for t in found.tokens[example, :count]] == [s for _, s in expected]
        np.testing.assert_allclose(
            found.scores[example, :count], [s for s, _ in expected], rtol=1e-5
        )
        assert np.isneginf(found.scores[example, count:]).all()
        assert (found.tokens[example, count:] == 0).all()


def golden_names(file):
    with np.load(GOLDEN / file) as stored:
        return sorted(k.split("/")[0] for k in stored if k.endswith("/settings"))


def compare(file, name, **kwargs):
    with np.load(GOLDEN / file) as stored:
        table = stored[f"table/{stored[f'{name}/table_name']}"]
        tokens, scores = stored[f"{name}/tokens"], stored[f"{name}/scores"]
    found = search(table, tokens.shape[1], **kwargs)
    # The originals keep continuations of "probability" exp(-1e7) or exp(-1e9); we do not.
    real = scores > -1e6
    assert real.sum() > 0.5 * real.size
    np.testing.assert_array_equal(found.tokens[real], tokens[real])
    np.testing.assert_allclose(found.scores[real], scores[real], rtol=2e-6)
    assert np.isneginf(found.scores[~real]).all()


@pytest.mark.parametrize("name", golden_names("hf_beam_search.npz"))
def test_hf_rule_equals_transformers(name):
    with np.load(GOLDEN / "hf_beam_search.npz") as stored:
        _, penalty, early = stored[f"{name}/settings"].tolist()
    compare(
        "hf_beam_search.npz", name, rule="hf", length_penalty=penalty, early_stopping=bool(early)
    )


@pytest.mark.parametrize("name", golden_names("t5x_beam_search.npz"))
def test_t5x_rule_equals_t5x(name):
    with np.load(GOLDEN / "t5x_beam_search.npz") as stored:
        _, alpha = stored[f"{name}/settings"].tolist()
    compare("t5x_beam_search.npz", name, rule="t5x", alpha=alpha)


@given(
    seed=st.integers(0, 10_000),
    rule=st.sampled_from(["t5x", "hf"]),
    beam_size=st.sampled_from([2, 5]),
    bonus=st.sampled_from([-20.0, 0.0, 2.0]),
)
@settings(max_examples=25, deadline=None)
def test_sequences_are_well_formed_distinct_and_sorted(seed, rule, beam_size, bonus):
    table = random_table(seed, batch=2, length=4, vocabulary=6, bonus=bonus)
    tokens, scores = search(table, beam_size, rule=rule)
    assert tokens.shape == (2, beam_size, 4) and scores.shape == (2, beam_size)
    assert (scores[:, 1:] <= scores[:, :-1]).all()
    for example in range(2):
        real = [tuple(t) for t in tokens[example][np.isfinite(scores[example])]]
        assert len(set(real)) == len(real) > 0
        for sequence in real:
            if EOS in sequence:
                assert not any(sequence[sequence.index(EOS) + 1 :])


@pytest.mark.parametrize("rule", ["t5x", "hf"])
def test_one_example_does_not_disturb_another(rule):
    table = random_table(5, batch=3, length=4, vocabulary=6)
    together = search(table, 3, rule=rule)
    for i in range(3):
        alone = search(table[i : i + 1], 3, rule=rule)
        np.testing.assert_array_equal(alone.tokens[0], together.tokens[i])
        np.testing.assert_allclose(alone.scores[0], together.scores[i], rtol=1e-6)


@pytest.mark.parametrize("rule", ["t5x", "hf"])
def test_fewer_returned_sequences_are_a_prefix(rule):
    table = random_table(6, length=4, vocabulary=6)
    full, some = search(table, 5, rule=rule), search(table, 5, rule=rule, num_return=2)
    np.testing.assert_array_equal(full.tokens[:, :2], some.tokens)
    np.testing.assert_array_equal(full.scores[:, :2], some.scores)


def test_greedy_takes_the_likeliest_token_until_eos():
    table = random_table(7, batch=4, length=5, vocabulary=6)
    tokens, scores = greedy(table)
    assert tokens.shape == (4, 1, 5)
    log_probs = log_softmax(table)
    for example in range(4):
        last, total, expected = 0, 0.0, []
        for i in range(5):
            token = int(log_probs[example, i, last].argmax())
            total += log_probs[example, i, last, token]
            expected.append(token)
            if token == EOS:
                break
            last = token
        assert tokens[example, 0].tolist() == expected + [0] * (5 - len(expected))
        assert math.isclose(scores[example, 0], total, rel_tol=1e-5)


def test_one_beam_of_hf_rule_is_greedy_if_nothing_ends():
    table = random_table(8, batch=3, length=4, vocabulary=6, bonus=-30.0)
    np.testing.assert_array_equal(search(table, 1, rule="hf").tokens, greedy(table).tokens)


@pytest.mark.parametrize("rule", ["t5x", "hf"])
@pytest.mark.parametrize("vocabulary,beam_size", [(1, 1), (1, 3), (2, 4), (3, 100)])
def test_more_beams_than_continuations(rule, vocabulary, beam_size):
    table = random_table(9, batch=2, length=3, vocabulary=max(vocabulary, 2))
    table = table[:, :, :vocabulary, :vocabulary]
    tokens, scores = search(table, beam_size, rule=rule, early_stopping=False)
    assert np.isfinite(scores[:, 0]).all()
    assert (tokens[~np.isfinite(scores)] == 0).all()
    assert not np.isnan(scores).any()


def test_a_forbidden_token_is_never_chosen():
    table = random_table(10, length=4, vocabulary=6)
    table[..., 3] = -np.inf
    for rule in ("t5x", "hf"):
        tokens, scores = search(table, 4, rule=rule)
        assert not (tokens == 3).any() and not np.isnan(scores).any()


def history_step(table, beam_size):
    """Like `table_step`, but reads the last token from a cache of all tokens: tests reordering."""

    def step(ids, cache):
        index = cache["cache_index"]
        at = index if index.ndim == 0 else index[0]
        rows = jnp.arange(ids.shape[0])
        history = cache["history"].reshape(-1, ids.shape[0], table.shape[1])[0]
        history = history.at[rows, at].set(ids[:, 0])
        # The sum of all tokens so far picks the row: any mix-up of beams changes it.
        state = history.sum(axis=1) % table.shape[2]
        logits = table[rows // beam_size, at, state]
        shaped = jnp.broadcast_to(history, cache["history"].shape)
        return logits, {"cache_index": index + 1, "history": shaped}

    return step


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("rule", ["t5x", "hf"])
def test_the_cache_follows_its_beam(rule, offset):
    table = jnp.asarray(random_table(11, batch=2, length=4, vocabulary=5))
    beam_size, length = 3, 4
    history = jnp.zeros((2, length), jnp.int32)
    cache = {"cache_index": jnp.int32(0), "history": history}
    if offset:
        cache = {
            "cache_index": jnp.zeros((2,), jnp.int32),
            "history": jnp.stack([history, history]),
        }
    found = decoding.beam_search(
        history_step(table, beam_size),
        cache,
        batch_size=2,
        beam_size=beam_size,
        max_decode_len=length,
        rule=rule,
        alpha=0.0,
        length_penalty=0.0,
        cache_offset=offset,
    )
    log_probs = log_softmax(table)
    for example in range(2):
        for sequence, score in zip(found.tokens[example], found.scores[example], strict=True):
            total, seen = 0.0, 0
            for i, token in enumerate(np.asarray(sequence).tolist()):
                total += log_probs[example, i, seen % 5, token]
                seen += token
                if token == EOS:
                    break
            assert math.isclose(total, score, rel_tol=1e-5)


def test_shared_and_constant_leaves_are_not_reordered():
    tree = {"a": {"cache_index": jnp.arange(2), "key": jnp.arange(4), "fixed": jnp.arange(4)}}
    expanded = decoding.expand_to_beams(tree, 2)
    assert expanded["a"]["cache_index"].tolist() == [0, 1]
    assert expanded["a"]["key"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    parents = jnp.array([[1, 1], [0, 0]])
    moved = decoding.gather_beams(tree, parents, constant_leaves=("fixed",))["a"]
    assert moved["key"].tolist() == [1, 1, 2, 2]
    assert moved["fixed"].tolist() == [0, 1, 2, 3] and moved["cache_index"].tolist() == [0, 1]


@pytest.mark.parametrize(
    "kwargs,text",
    [
        (dict(rule="best"), "known: t5x, hf"),
        (dict(num_return=4), r"1\.\.beam_size=3"),
        (dict(num_return=0), r"1\.\.beam_size=3"),
    ],
)
def test_wrong_arguments_are_named(kwargs, text):
    with pytest.raises(ValueError, match=text):
        search(random_table(0), 3, **kwargs)


def sample(table, **kwargs):
    table = jnp.asarray(table, jnp.float32)
    count = kwargs.get("num_return", 1)
    rows = jnp.repeat(jnp.arange(table.shape[0]), count)
    cache = {"cache_index": jnp.int32(0), "example": jnp.arange(table.shape[0])}

    def step(ids, cache):
        assert ids.shape == (len(rows), 1)
        return table_step(table)(ids, cache)

    out = decoding.temperature_sample(
        step,
        cache,
        batch_size=table.shape[0],
        max_decode_len=table.shape[1],
        eos_id=EOS,
        rng=jax.random.key(3),
        **kwargs,
    )
    return jax.tree.map(np.asarray, out)


@pytest.mark.parametrize("kwargs", [{"temperature": 0.0}, {"topk": 1}, {"topp": 1e-6}])
def test_a_sample_of_one_token_is_greedy(kwargs):
    table = random_table(5)
    drawn, best = sample(table, **kwargs), greedy(table)
    np.testing.assert_array_equal(drawn.tokens, best.tokens)
    np.testing.assert_allclose(drawn.scores, 0.0, atol=1e-6)


@pytest.mark.parametrize(
    "kwargs, keeps",
    [({}, 4), ({"temperature": 0.5}, 4), ({"topk": 2}, 2), ({"topp": 0.6}, 2)],
)
def test_samples_come_as_often_as_the_distribution_says(kwargs, keeps):
    p = np.array([0.1, 0.2, 0.3, 0.4])
    table = np.broadcast_to(np.log(p), (1, 1, 4, 4))
    drawn = sample(table, num_return=4000, **kwargs)
    wanted = p ** (1 / kwargs.get("temperature", 1.0))
    wanted[np.argsort(-p)[keeps:]] = 0.0
    wanted /= wanted.sum()
    found = np.bincount(drawn.tokens.ravel(), minlength=4) / 4000
    np.testing.assert_allclose(found, wanted, atol=4 * 0.5 / math.sqrt(4000))
    np.testing.assert_allclose(
        drawn.scores.ravel(), np.log(wanted[drawn.tokens.ravel()]), rtol=1e-5, atol=1e-6
    )
    assert (np.diff(drawn.scores) <= 0).all()


def test_a_sample_ends_with_eos():
    drawn = sample(random_table(6), num_return=50)
    after = np.cumsum(drawn.tokens == EOS, axis=-1) - (drawn.tokens == EOS) > 0
    assert after.any() and not drawn.tokens[after].any()
