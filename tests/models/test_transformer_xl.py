"""Transformer-XL: against loops in float64, and what its memory must and must not do."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ckl_jax.errors import UserError
from ckl_jax.methods.k_adapter import k_adapter
from ckl_jax.methods.lora import lora, merge_lora
from ckl_jax.methods.modular import modular
from ckl_jax.models.decoding import greedy_decode
from ckl_jax.models.transformer_xl import TransformerXLConfig, attention_mask, relative_shift
from ckl_jax.trees.paths import flatten, loop_to_scan
from tests.helpers import TINY_XL, count, model_of, param_shapes, random_params

MODEL = model_of(TINY_XL)
BASE = TransformerXLConfig()  # 18 layers, d 1024, f 4096, V 50259
LARGE = dataclasses.replace(BASE, emb_dim=1280, num_heads=20, mlp_dim=5120)


# One text, its chunks and the slots that hold all of it: tests that share them compile once.
ROWS, LENGTH, CHUNK, SLOTS = 2, 12, 4, 8
ONES = np.ones((ROWS, LENGTH), np.int32)


def text(seed=0):
    return np.random.default_rng(seed).integers(1, 64, (ROWS, LENGTH)).astype(np.int32)


@functools.cache
def compiled(config):
    """Of a configuration: (params, tokens, segment ids, memory), and without a memory."""
    module = model_of(config).module

    def apply(params, ids, segments, memory=None):
        return module.apply(
            {"params": params},
            ids,
            decoder_segment_ids=segments,
            memory=memory,
            enable_dropout=False,
        )

    return jax.jit(apply)


def in_chunks(params, ids, slots=SLOTS, segments=ONES, config=TINY_XL, lengths=(CHUNK,) * 3):
    """Logits [B, T, V] of a text read chunk by chunk, and the memory behind it."""
    memory, parts, start = model_of(config).initial_memory(len(ids), slots), [], 0
    for length in lengths:
        part = slice(start, start + length)
        logits, memory = compiled(config)(params, ids[:, part], segments[:, part], memory)
        parts.append(logits)
        start += length
    return np.concatenate(parts, axis=1), memory


def whole(params, ids, config=TINY_XL):
    return np.asarray(compiled(config)(params, ids, np.ones_like(ids)))


def batch_of(ids):
    """A batch whose targets are its inputs."""
    weights = np.ones(ids.shape, np.float32)
    return {
        "decoder_input_tokens": ids,
        "decoder_target_tokens": ids,
        "decoder_loss_weights": weights,
    }


# --- the network itself


def test_relative_shift_equals_an_explicit_gather():
    for length, slots in ((1, 0), (5, 0), (4, 3), (3, 7)):
        keys = length + slots
        scores = np.random.default_rng(0).normal(size=(2, length, keys)).astype(np.float32)
        shifted = np.asarray(relative_shift(jnp.asarray(scores)))
        for i in range(length):
            for j in range(i + slots + 1):
                distance = i + slots - j
                np.testing.assert_array_equal(shifted[:, i, j], scores[:, i, keys - 1 - distance])


def brute(params, ids, config):
    """Logits [T, V] of one row, in float64, position by position, without any shift."""
    flat = {path: np.asarray(x, np.float64) for path, x in flatten(params).items()}
    heads, width = config.num_heads, config.head_dim

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + config.layer_norm_epsilon)
        return x * flat[f"{name}/scale"] + flat[f"{name}/bias"]

    def encoding(distance):
        if config.clamp_len is not None:
            distance = min(distance, config.clamp_len)
        angles = distance / 10000.0 ** (np.arange(0, config.emb_dim, 2) / config.emb_dim)
        return np.concatenate([np.sin(angles), np.cos(angles)])

    def gelu(x):
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    table = flat["token_embedder/embedding"]
    x = table[ids] * (np.sqrt(config.emb_dim) if config.scale_embedding else 1)
    for layer in range(config.num_layers):
        at = f"decoder/layers_{layer}"
        kernel = {n: flat[f"{at}/self_attention/{n}/kernel"] for n in config.projections[:5]}
        split = lambda y: y.reshape(heads, width)  # noqa: E731
        u = split(flat[f"{at}/self_attention/content_query"])
        v = split(flat[f"{at}/self_attention/position_query"])
        out = np.zeros_like(x)
        for i in range(len(ids)):
            query, weights, values = split(x[i] @ kernel["query"]), [], []
            for j in range(i + 1):
                key = split(x[j] @ kernel["key"])
                relative = split(encoding(i - j) @ kernel["relative"])
                score = ((query + u) * key).sum(-1) + ((query + v) * relative).sum(-1)
                weights.append(np.exp(score / np.sqrt(width)))
                values.append(split(x[j] @ kernel["value"]))
            weights = np.array(weights) / np.sum(weights, axis=0)
            mixed = (weights[..., None] * np.array(values)).sum(0)
            out[i] = mixed.reshape(-1) @ kernel["out"] + flat[f"{at}/self_attention/out/bias"]
        x = norm(x + out, f"{at}/post_self_attention_layer_norm")
        hidden = x @ flat[f"{at}/mlp/wi/kernel"] + flat[f"{at}/mlp/wi/bias"]
        hidden = np.maximum(hidden, 0) if config.activation == "relu" else gelu(hidden)
        y = hidden @ flat[f"{at}/mlp/wo/kernel"] + flat[f"{at}/mlp/wo/bias"]
        x = norm(x + y, f"{at}/post_mlp_layer_norm")
    return x @ table.T + flat["token_embedder/bias"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param(
            {"clamp_len": 3, "scale_embedding": True, "activation": "relu", "scan_layers": True},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_logits_equal_loops_in_float64(changes):
    config = dataclasses.replace(TINY_XL, **changes)
    params, ids = random_params(TINY_XL), text()
    expected = brute(params, ids[0], config)
    params = loop_to_scan(params) if config.scan_layers else params
    np.testing.assert_allclose(whole(params, ids, config)[0], expected, atol=2e-5)


def test_counts_of_both_sizes():
    """ "287M" is the paper's label: with these parts the base size has 297,103,443 parameters."""
    for config, total, biases, embedding in (
        (BASE, 297_103_443, 197_715, 51_515_475),
        (LARGE, 448_043_859, 234_579, 64_331_520 + 50_259),
    ):
        shapes = param_shapes(dataclasses.replace(config, scan_layers=True))  # traces one layer
        flat = flatten(shapes)
        layers, d, f, v = config.num_layers, config.emb_dim, config.mlp_dim, config.vocab_size
        assert count(shapes) == total == layers * (5 * d * d + 2 * d * f + f + 8 * d) + v * (d + 1)
        assert count({p: x for p, x in flat.items() if p.endswith("/bias")}) == biases
        assert count(shapes["token_embedder"]) == embedding
    later = dataclasses.replace(
        BASE, num_layers=16, num_heads=8, head_dim=128, vocab_size=32768, scan_layers=True
    )
    assert count(param_shapes(later)) == 251_887_616  # a public configuration of the same group


def test_every_parameter_has_its_logical_axes():
    for scan in (False, True):
        config = dataclasses.replace(TINY_XL, scan_layers=scan)
        variables = jax.eval_shape(model_of(config).init, jax.random.key(0))
        axes = {
            p.removesuffix("_axes"): a.names for p, a in flatten(variables["params_axes"]).items()
        }
        shapes = flatten(variables["params"])
        assert {p: len(a) for p, a in axes.items()} == {p: x.ndim for p, x in shapes.items()}
        layer = "decoder/decoder" if scan else "decoder/layers_0"
        stacked = ("layers",) * scan
        relative = axes[f"{layer}/self_attention/relative/kernel"]
        assert relative == ("embed", *stacked, "joined_kv")


@pytest.mark.slow
@pytest.mark.parametrize("remat", ["full", "none"])
def test_scan_equals_loop_and_so_does_its_memory(remat):
    params, ids = random_params(TINY_XL), text()
    scanned = dataclasses.replace(TINY_XL, scan_layers=True, remat_policy=remat)
    expected, memory = in_chunks(params, ids)
    found, other = in_chunks(loop_to_scan(params), ids, config=scanned)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(other["states"], memory["states"], atol=1e-5)


# --- the memory


@pytest.mark.parametrize("lengths", [(4, 4, 4), pytest.param((5, 1, 6), marks=pytest.mark.slow)])
def test_a_memory_that_holds_all_earlier_tokens_changes_nothing(lengths):
    params, ids = random_params(TINY_XL), text()
    found, _ = in_chunks(params, ids, lengths=lengths)
    np.testing.assert_allclose(found, whole(params, ids), atol=2e-5)


@pytest.mark.slow
def test_empty_slots_change_nothing_and_any_length_will_do():
    params, ids = random_params(TINY_XL), text()
    found, _ = in_chunks(params, ids, slots=30)
    np.testing.assert_allclose(found, whole(params, ids), atol=2e-5)
    shorter, memory = in_chunks(params, ids, slots=2)
    assert memory["states"].shape == (ROWS, TINY_XL.num_layers, 2, TINY_XL.emb_dim)
    assert np.abs(shorter - found)[:, CHUNK:].max() > 1e-2


def test_what_an_empty_slot_holds_is_not_seen():
    params, ids = random_params(TINY_XL), text()[:, :CHUNK]
    memory = model_of(TINY_XL).initial_memory(ROWS, SLOTS)
    noise = {**memory, "states": memory["states"] + 100.0}
    run = compiled(TINY_XL)
    found, expected = (run(params, ids, ONES[:, :CHUNK], m)[0] for m in (noise, memory))
    np.testing.assert_array_equal(found, expected)


def test_nothing_is_seen_that_comes_later():
    params, ids = random_params(TINY_XL), text()
    changed = ids.copy()
    changed[:, 7] = changed[:, 7] % 60 + 1
    before, _ = in_chunks(params, ids)
    after, _ = in_chunks(params, changed)
    np.testing.assert_array_equal(after[:, :7], before[:, :7])
    assert np.abs(after - before)[:, 7:].max(-1).min() > 1e-4


def test_padding_on_the_right_takes_no_slot():
    """A short chunk, padded, and the text behind it: as without padding."""
    params, ids, model = random_params(TINY_XL), text(), model_of(TINY_XL)
    short, weights = ids[:, :CHUNK].copy(), np.ones((ROWS, CHUNK), np.float32)
    short[:, 3], weights[:, 3] = 5, 0
    weights[:, 1] = 0  # no padding: a token behind it has a weight
    batch = {**batch_of(short), "decoder_loss_weights": weights}
    losses, memory = jax.jit(model.stream_losses)(params, batch, model.initial_memory(ROWS, SLOTS))
    assert losses.shape == (ROWS, CHUNK) and np.isfinite(losses).all()
    np.testing.assert_array_equal(memory["segment_ids"], [[0] * 5 + [1] * 3] * ROWS)
    found, _ = compiled(TINY_XL)(params, ids[:, 3:7], ONES[:, :CHUNK], memory)
    np.testing.assert_allclose(found, whole(params, ids)[:, 3:7], atol=1e-5)


def test_reset_at_doc_reads_each_document_alone():
    params, ids = random_params(TINY_XL), text()
    segments = np.array([[1] * 3 + [2] * 6 + [3] * 3] * ROWS, np.int32)
    found, _ = in_chunks(params, ids, segments=segments)
    for start, end in ((0, 3), (3, 9), (9, 12)):
        alone = np.roll(ids, -start, axis=1)  # what follows the document is not seen
        expected = whole(params, alone)[:, : end - start]
        np.testing.assert_allclose(found[:, start:end], expected, atol=2e-5)
    across = dataclasses.replace(TINY_XL, reset_at_doc=False)
    found, _ = in_chunks(params, ids, segments=segments, config=across)
    np.testing.assert_allclose(found, whole(params, ids), atol=2e-5)


def test_same_length_sees_the_position_itself_and_as_many_as_there_are_slots():
    ids, before = np.ones((1, 4), np.int32), np.ones((1, 3), np.int32)
    mask = np.asarray(attention_mask(ids, before, same_length=True))[0, 0]
    np.testing.assert_array_equal(mask, np.tril(np.triu(np.ones((4, 7))), 3))
    full = np.asarray(attention_mask(ids, before))[0, 0]
    np.testing.assert_array_equal(full, np.tril(np.ones((4, 7)), 3))


def test_documents_empty_slots_and_padding_in_the_mask():
    ids, before = np.array([[2, 2, 3, 0]]), np.array([[0, 1, 2]])
    within, across = (
        np.asarray(attention_mask(ids, before, reset_at_doc=reset))[0, 0].astype(int)
        for reset in (True, False)
    )
    np.testing.assert_array_equal(
        within,
        [
            [0, 0, 1, 1, 0, 0, 0],
            [0, 0, 1, 1, 1, 0, 0],
            [0, 0, 0, 0, 0, 1, 0],
            [0, 0, 0, 0, 0, 0, 1],
        ],
    )
    np.testing.assert_array_equal(
        across,
        [
            [0, 1, 1, 1, 0, 0, 0],
            [0, 1, 1, 1, 1, 0, 0],
            [0, 1, 1, 1, 1, 1, 0],
            [0, 1, 1, 1, 1, 1, 1],
        ],
    )


def test_the_loss_goes_on_from_the_memory_and_no_gradient_flows_into_it():
    params, ids, model = random_params(TINY_XL), text(), model_of(TINY_XL)
    _, memory = in_chunks(params, ids)
    batch = batch_of(ids[:, :CHUNK])

    def loss(memory):
        return model.loss_fn(params, {**batch, "memory": memory})

    differentiate = jax.jit(jax.value_and_grad(loss, has_aux=True, allow_int=True))
    (value, sums), gradient = differentiate(memory)
    losses, after = jax.jit(model.stream_losses)(params, batch, memory)
    np.testing.assert_allclose(value, losses.sum(), rtol=1e-6)
    np.testing.assert_allclose(sums["memory"]["states"], after["states"], atol=1e-5)
    assert not np.asarray(gradient["states"]).any()
    (other, _), _ = differentiate({**memory, "states": memory["states"] * 1.1})
    assert abs(other - value) > 1e-3


@pytest.mark.slow
def test_text_is_continued_as_teacher_forcing_scores_it():
    params, model = random_params(TINY_XL), model_of(TINY_XL, decode_fn=greedy_decode)
    prompts, lengths = text()[:, :5], np.array([5, 2])
    predict = jax.jit(model.predict, static_argnums=2)
    answers = predict(params, prompts, 3, jnp.array(lengths)).tokens[:, 0]
    for row, length, answer in zip(prompts, lengths, np.asarray(answers), strict=True):
        written = np.zeros((ROWS, LENGTH), np.int32)
        written[0, : length + 3] = [*row[:length], *answer]
        best = whole(params, written)[0].argmax(-1)[length - 1 : length + 2]
        until = np.append(np.flatnonzero(answer == 1) + 1, 3)[0]
        np.testing.assert_array_equal(answer[:until], best[:until])


# --- methods


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_stays_near_and_finite(dtype):
    params, ids = random_params(TINY_XL), text()
    config = dataclasses.replace(TINY_XL, dtype=dtype, float32_attention_logits=True)
    segments = np.array([[1] * 5 + [2] * 5 + [0] * 2] * ROWS, np.int32)
    exact, _ = in_chunks(params, ids, segments=segments)
    found, memory = in_chunks(params, ids, segments=segments, config=config)
    assert np.isfinite(found).all() and memory["states"].dtype == config.dtype
    np.testing.assert_allclose(found[:, :10], exact[:, :10], atol=0.1)


@pytest.mark.slow
def test_lora_equals_its_merged_weights():
    config = lora(trunk=(), targets=("query", "value", "relative")).extend(TINY_XL)
    params, ids = random_params(config), text()
    found, _ = in_chunks(params, ids, config=config)
    expected, _ = in_chunks(merge_lora(params, 0.25), ids)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_what_does_not_fit_is_refused():
    with pytest.raises(UserError, match="read a memory .* choose a method without one"):
        k_adapter(taps=(1,), trunk=()).extend(TINY_XL)
    with pytest.raises(UserError, match="TransformerXLConfig has no encoder"):
        modular().extend(TINY_XL)
    with pytest.raises(UserError, match="emb_dim is 15; give an even number"):
        dataclasses.replace(TINY_XL, emb_dim=15)
    with pytest.raises(UserError, match="ACTIVATION"):
        dataclasses.replace(TINY_XL, activation="gelo")
    with pytest.raises(UserError, match="EVAL_MEMORY_LENGTH is 0"):
        model_of(TINY_XL, memory_length=0)
