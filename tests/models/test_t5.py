"""T5 itself: T5X's paths and axes, masks, bfloat16, and the loss against small references."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ckl_jax.errors import UserError
from ckl_jax.models import layers
from ckl_jax.models.base import token_losses
from ckl_jax.models.encoder_decoder import EncoderDecoderModel
from ckl_jax.models.relative_positions import (
    RelativePositionBias,
    along_diagonals,
    relative_position_bucket,
)
from ckl_jax.models.t5 import T5Config, Transformer
from ckl_jax.trees.paths import flatten
from tests.helpers import TINY, TINY_V1_1, logits_of, param_shapes, random_batch, random_params


def test_paths_are_t5x_s():
    paths = set(flatten(param_shapes(TINY_V1_1)))
    assert {
        "token_embedder/embedding",
        "encoder/relpos_bias/rel_embedding",
        "encoder/layers_0/pre_attention_layer_norm/scale",
        "encoder/layers_0/attention/query/kernel",
        "encoder/layers_1/mlp/wi_0/kernel",
        "encoder/encoder_norm/scale",
        "decoder/layers_0/pre_self_attention_layer_norm/scale",
        "decoder/layers_0/self_attention/out/kernel",
        "decoder/layers_0/encoder_decoder_attention/key/kernel",
        "decoder/layers_1/mlp/wo/kernel",
        "decoder/decoder_norm/scale",
        "decoder/logits_dense/kernel",
    } <= paths
    assert "decoder/logits_dense/kernel" not in flatten(param_shapes(TINY))


def test_logical_axes_of_one_layer():
    variables = jax.eval_shape(EncoderDecoderModel(Transformer(TINY)).init, jax.random.key(0))
    axes = {p: a.names for p, a in flatten(variables["params_axes"]).items()}
    assert axes["encoder/layers_0/attention/query/kernel_axes"] == ("embed", "joined_kv")
    assert axes["encoder/layers_0/mlp/wo/kernel_axes"] == ("mlp", "embed")
    assert axes["token_embedder/embedding_axes"] == ("vocab", "embed")
    scanned = dataclasses.replace(TINY, scan_layers=True)
    variables = jax.eval_shape(EncoderDecoderModel(Transformer(scanned)).init, jax.random.key(0))
    axes = {p: a.names for p, a in flatten(variables["params_axes"]).items()}
    assert axes["encoder/encoder/mlp/wi/kernel_axes"] == ("embed", "layers", "mlp")


def test_bfloat16_is_near_float32_and_keeps_float32_parameters():
    config = dataclasses.replace(TINY, dtype=jnp.bfloat16)
    params, batch = random_params(TINY), random_batch(TINY)
    exact, rough = logits_of(TINY, params, batch), logits_of(config, params, batch)
    assert rough.dtype == jnp.float32
    scale = float(jnp.std(exact))
    assert float(jnp.abs(exact - rough).mean()) < 0.05 * scale
    assert {x.dtype for x in jax.tree.leaves(param_shapes(config))} == {jnp.dtype("float32")}


def test_later_targets_do_not_reach_earlier_logits():
    params, batch = random_params(TINY), random_batch(TINY)
    changed = dict(batch)
    changed["decoder_input_tokens"] = batch["decoder_input_tokens"].copy()
    changed["decoder_input_tokens"][:, -1] = 7
    before, after = logits_of(TINY, params, batch), logits_of(TINY, params, changed)
    full = slice(1, None)  # the first row ends in padding, whose logits mean nothing
    np.testing.assert_allclose(before[full, :-1], after[full, :-1], atol=1e-6)
    assert np.abs(before[2, -1] - after[2, -1]).max() > 1e-3


def test_segments_of_packed_examples_do_not_see_each_other():
    params = random_params(TINY)
    one = {
        "encoder_input_tokens": np.array([[5, 6, 7]]),
        "decoder_input_tokens": np.array([[0, 9]]),
        "decoder_target_tokens": np.array([[9, 1]]),
    }
    packed = {name: np.concatenate([x, x[:, ::-1]], axis=1) for name, x in one.items()}
    segments = {
        "encoder_segment_ids": np.array([[1, 1, 1, 2, 2, 2]]),
        "decoder_segment_ids": np.array([[1, 1, 2, 2]]),
    }
    apply = functools.partial(Transformer(TINY).apply, **segments, enable_dropout=False)
    logits = jax.jit(lambda p: apply({"params": p}, *packed.values()))(params)
    np.testing.assert_allclose(logits[:, :2], logits_of(TINY, params, one), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bidirectional", [True, False])
def test_relative_position_buckets_by_hand(bidirectional):
    distances = np.array([-200, -20, -3, -1, 0, 1, 3, 20, 200])
    buckets = relative_position_bucket(jnp.asarray(distances), bidirectional, 32, 128)
    if bidirectional:
        assert buckets.tolist() == [15, 10, 3, 1, 0, 17, 19, 26, 31]
    else:
        assert buckets.tolist() == [31, 17, 3, 1, 0, 0, 0, 0, 0]


def test_loss_equals_numpy_with_smoothing_and_z_loss():
    rng = np.random.RandomState(0)
    logits, targets = rng.randn(2, 3, 11), rng.randint(0, 11, (2, 3))
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    soft = np.full((2, 3, 11), 0.1 / 10)
    np.put_along_axis(soft, targets[..., None], 0.9, axis=-1)
    entropy = -(0.9 * np.log(0.9) + 10 * 0.01 * np.log(0.01))
    z = 1e-2 * np.log(np.exp(logits).sum(-1)) ** 2
    expected = -(soft * log_p).sum(-1) - entropy + z
    loss, z_part = token_losses(jnp.asarray(logits), jnp.asarray(targets), 0.1, 1e-2)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(z_part, z, rtol=1e-5)


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        ("NUM_REAL_TARGET_TOKENS", 18.0),
        ("NUM_TOTAL_TARGET_TOKENS", 20.0),
        (4.0, 0.0),
        (None, 0.0),
        ("AVERAGE_PER_SEQUENCE", 4.0),
    ],
)
def test_loss_denominators(factor, expected):
    model = EncoderDecoderModel(Transformer(TINY), loss_normalizing_factor=factor)
    params, batch = random_params(TINY), random_batch(TINY)
    # The logits are compiled once for all of them.
    total, sums = model.sums_of(logits_of(TINY, params, batch), batch)
    assert float(sums["denominator"]) == pytest.approx(expected, rel=1e-6)
    plain = float(sums["loss"])
    if factor == 4.0:
        assert float(total) == pytest.approx(plain / 4, rel=1e-5)
    elif factor != "AVERAGE_PER_SEQUENCE":
        assert float(total) == pytest.approx(plain, rel=1e-6)


def test_a_packed_row_counts_each_of_its_sequences():
    model = EncoderDecoderModel(Transformer(TINY), loss_normalizing_factor="AVERAGE_PER_SEQUENCE")
    weights = jnp.array([[1.0, 1, 0.5, 1, 0, 0], [1.0, *[0.0] * 5], [0.0] * 6])
    ids = jnp.array([[1, 1, 2, 2, 3, 0], [1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]])
    scale, count = model._normalizer(weights, ids)
    np.testing.assert_allclose(count, 3.0, rtol=1e-6)
    expected = [[0.5, 0.5, 1 / 3, 2 / 3, 0, 0], [1, 0, 0, 0, 0, 0], [0] * 6]
    np.testing.assert_allclose(scale * weights, expected, rtol=1e-6)


def test_unknown_normalising_factor_and_remat_policy_name_the_choices():
    with pytest.raises(UserError, match="NUM_REAL_TARGET_TOKENS"):
        EncoderDecoderModel(Transformer(TINY), loss_normalizing_factor="TOKENS")
    with pytest.raises(UserError, match="minimal"):
        T5Config(vocab_size=8, remat_policy="some")


@pytest.mark.parametrize("rows, columns", [(3, 5), (5, 3), (4, 4), (1, 6), (6, 1)])
def test_diagonals_are_laid_out(rows, columns):
    values = jnp.arange(2 * (rows + columns - 1)).reshape(2, -1)
    away = np.arange(columns)[None] - np.arange(rows)[:, None]
    np.testing.assert_array_equal(along_diagonals(values, rows), values[:, away + rows - 1])


HALF, WIDE = {"dtype": jnp.bfloat16}, jnp.full((20, 100, 4), 2.0, jnp.bfloat16)
SUMMED = {
    # name: (module, its arguments, the least that the largest gradient may be)
    "embedding": (layers.Embed(4, 2, **HALF), (jnp.ones((2, 1000), jnp.int32),), 2000),
    "learned positions": (layers.PositionEmbed(4, 2, **HALF), (jnp.ones((2, 1000)),), 2000),
    "relative positions": (RelativePositionBias(8, 16, 2, **HALF), (64, 64, True), 1000),
    "bias": (layers.Dense(4, ("embed", "mlp"), use_bias=True, **HALF), (WIDE,), 2000),
    "bias of the output": (layers.Bias(4, "vocab"), (WIDE,), 2000),
    "factors of a norm": (layers.RMSNorm(**HALF), (WIDE,), 2000),
    "bias of a norm": (layers.LayerNorm(**HALF), (WIDE,), 2000),
}


@pytest.mark.parametrize("name", SUMMED)
def test_gradients_that_sum_many_terms_do_not_stop_growing(name):
    """In bfloat16, a sum of ones, one by one, ends at 256."""
    module, args, least = SUMMED[name]
    params = module.init(jax.random.key(0), *args)["params"]
    params.pop("kernel", None)

    def total(params):
        variables = {"params": module.init(jax.random.key(0), *args)["params"] | params}
        return module.apply(variables, *args).astype(jnp.float32).sum()

    gradients = jax.tree.leaves(jax.jit(jax.grad(total))(params))
    assert max(g.max() for g in gradients) >= least, gradients
