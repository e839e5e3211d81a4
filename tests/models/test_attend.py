"""Attention is softmax(q k + bias) v, whatever the order in which it is computed."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ckl_jax.errors import UserError
from ckl_jax.models import attention, layers, splash
from ckl_jax.models.attention import attend, join
from ckl_jax.models.dropout import keep_mask

B, T, S, N, H = 2, 3, 5, 4, 6
RATE = 0.5


def plainly(query, key, value, bias, mask):
    weights = jax.nn.softmax(jnp.einsum("btnh,bsnh->bnts", query, key) + bias)
    return jnp.einsum("bnts,bsnh->btnh", weights * mask, value)


def arrays(scale=1.0):
    keys = jax.random.split(jax.random.key(0), 4)
    shapes = (B, T, N, H), (B, S, N, H), (B, S, N, H), (1, N, T, S)
    made = [scale * jax.random.normal(k, s) for k, s in zip(keys, shapes, strict=True)]
    hidden = jnp.arange(S)[None] >= jnp.array([S, S - 2])[:, None]
    made[3] = made[3] + layers.mask_to_bias(~hidden)[:, None, None, :]
    return made


@pytest.mark.parametrize("dropout", [False, True])
def test_outputs_and_gradients_are_those_of_the_plain_formula(dropout):
    rng = jax.random.key(1) if dropout else None
    mask = 1.0
    if dropout:
        mask = keep_mask(rng, RATE, (B, N, 1, S), jnp.float32)
        assert 0 < (mask == 0).mean() < 1

    def ours(*args):
        return jnp.sin(attend(*args, dropout_rng=rng, dropout_rate=RATE)).sum()

    def reference(*args):
        return jnp.sin(plainly(*args, mask)).sum()

    found = jax.jit(jax.value_and_grad(ours, argnums=(0, 1, 2, 3)))(*arrays())
    wanted = jax.jit(jax.value_and_grad(reference, argnums=(0, 1, 2, 3)))(*arrays())
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), found, wanted)


def test_large_logits_and_queries_without_a_key_stay_finite():
    query, key, value, bias = arrays(scale=30.0)
    bias = bias.at[0].set(layers.MASKED)
    y, grads = jax.jit(jax.value_and_grad(lambda q: attend(q, key, value, bias).sum()))(query)
    assert np.isfinite(y) and np.isfinite(grads).all()


def test_half_precision_keeps_its_dtype_and_comes_close():
    args = arrays()
    half = [x.astype(jnp.bfloat16) for x in args]
    y = attend(*half, float32_logits=True)
    assert y.dtype == jnp.bfloat16
    np.testing.assert_allclose(y.astype(jnp.float32), plainly(*args, 1.0), atol=0.05)


@pytest.mark.parametrize("length", [4, 5, 6, 7])
def test_blocks_of_queries_are_the_whole(length, monkeypatch):
    keys = jax.random.split(jax.random.key(0), 5)
    query = jax.random.normal(keys[0], (B, length, N, H))
    key, value = (jax.random.normal(k, (B, S, N // 2, H)) for k in keys[1:3])
    positions = jax.random.normal(keys[3], (1, N, length, S))
    mask = layers.mask_to_bias(jax.random.bernoulli(keys[4], 0.7, (B, 1, 1, S)))

    def run(*args):
        query, key, value, positions = args
        return jnp.sin(attend(query, key, value, join(positions, mask), softcap=5.0)).sum()

    def of():
        function = jax.value_and_grad(run, argnums=(0, 1, 2, 3))
        return jax.jit(lambda *args: function(*args))(query, key, value, positions)

    wanted = of()
    monkeypatch.setattr(attention, "_BLOCK", 2)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), of(), wanted)


def test_blocks_keep_long_rows_small():
    array = jax.ShapeDtypeStruct((1, 4096, 16, 64), jnp.bfloat16)
    mask = layers.mask_to_bias(layers.causal_mask(4096)).astype(jnp.bfloat16)
    gradient = jax.grad(lambda *a: attend(*a, mask).astype(jnp.float32).sum(), argnums=(0, 1, 2))
    compiled = jax.jit(gradient).lower(array, array, array).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 500 * 2**20  # all at once: 2,640 MiB


def test_cudnn_is_called_where_it_may_be(cudnn):
    keys = jax.random.split(jax.random.key(0), 4)
    query = jax.random.normal(keys[0], (B, 4, N, 8), jnp.bfloat16)
    key, value = (jax.random.normal(k, (B, 6, N // 2, 8), jnp.bfloat16) for k in keys[1:3])
    bias = jax.random.normal(keys[3], (1, N, 4, 6))
    fused = attend(query, key, value, bias)
    assert [call["implementation"] for call in cudnn] == ["cudnn"]
    ours = attend(query, key, value, bias, implementation="xla")
    np.testing.assert_allclose(fused.astype(jnp.float32), ours.astype(jnp.float32), atol=0.03)
    for given in (
        {"softcap": 5.0},
        {"float32_logits": True},
    ):
        attend(query, key, value, bias, **given)
        with pytest.raises(UserError, match="ATTENTION_IMPL = 'cudnn' is not possible"):
            attend(query, key, value, bias, implementation="cudnn", **given)
    with pytest.raises(UserError, match="lengths of 3 and 6 are not even"):
        attend(query[:, :3], key, value, bias[:, :, :3], implementation="cudnn")
    attend(query[:, :1], key, value, bias[:, :, :1], implementation="cudnn")  # a decoding step
    assert [call["implementation"] for call in cudnn] == ["cudnn"]


@pytest.mark.parametrize("windows, kind", [((None,), None), ((3,), None), ((None, 3), 1)])
def test_causal_masks_are_the_kernels(windows, kind, cudnn):
    """cuDNN's computes them where it takes the arguments; elsewhere they are a bias."""
    keys = jax.random.split(jax.random.key(0), 3)
    query, key, value = (
        jax.random.normal(k, (B, 8, n, 8)) for k, n in zip(keys, (N, 2, 2), strict=True)
    )
    row = splash.row_mask("auto", 8, None, True)
    row = dataclasses.replace(row, windows=windows)
    row = row.of_kind(jnp.asarray(kind)) if kind is not None else row
    away = np.arange(8)[:, None] - np.arange(8)
    window = windows[kind or 0] or 8
    bias = layers.mask_to_bias(jnp.asarray((away >= 0) & (away < window)))[None, None]
    wanted = attend(query, key, value, bias, implementation="xla")
    half = [x.astype(jnp.bfloat16) for x in (query, key, value)]
    np.testing.assert_allclose(attend(*half, row).astype(jnp.float32), wanted, atol=0.05)
    assert len(cudnn) == len(windows) and all(given["is_causal"] for given in cudnn)
    np.testing.assert_allclose(attend(query, key, value, row), wanted, atol=1e-5)  # float32
    assert len(cudnn) == len(windows)
    assert splash.row_mask("auto", 8, jnp.ones((B, 8)), True) is None  # packed rows
    assert splash.row_mask("auto", 8, None, False) is None
    assert splash.row_mask("xla", 8, None, True) is None


@pytest.mark.parametrize("rows", [4, 6])
def test_padding_is_the_kernels(rows, cudnn):
    """With T5's positions; where the kernel takes no arguments, the mask is a bias."""
    keys = jax.random.split(jax.random.key(0), 4)
    query = jax.random.normal(keys[0], (3, rows, N, 8))
    key, value = (jax.random.normal(k, (3, 6, N, 8)) for k in keys[1:3])
    table = jax.random.normal(keys[3], (1, N, rows, 6))
    valid = jnp.arange(6)[None] < jnp.asarray([6, 3, 0])[:, None]  # the last has nothing to see
    mask = splash.padding_row_mask("auto", valid)
    assert mask.lengths.tolist() == [6, 3, 6]

    def run(dtype, bias, implementation):
        def loss(query, key, value, table):
            args = [x.astype(dtype) for x in (query, key, value)]
            y = attend(*args, join(table, bias), implementation=implementation)
            return jnp.sin(y[:2].astype(jnp.float32)).sum()

        return jax.grad(loss, argnums=(0, 1, 2, 3))(query, key, value, table)

    wanted = run(jnp.float32, layers.mask_to_bias(valid)[:, None, None], "xla")
    found = run(jnp.bfloat16, mask, "auto")
    assert len(cudnn) == 1 and cudnn[0]["key_value_seq_lengths"] is mask.lengths
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=0.05), found, wanted)
    found = run(jnp.float32, mask, "auto")
    assert len(cudnn) == 1
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, wanted)
    row = splash.row_mask("auto", 6, None, False, valid)
    assert row.lengths.tolist() == [6, 3, 6] and not row.causal
    assert splash.row_mask("auto", 6, valid, False, valid) is None  # packed rows
    assert splash.padding_row_mask("xla", valid) is None


CASES = {
    # name: (queries, keys, heads, key heads, causal, window, padding, positions)
    "T5's encoder": (128, 128, 4, 4, False, None, "lengths", True),
    "T5's decoder": (64, 64, 4, 4, True, None, "", True),
    "cross-attention": (64, 128, 4, 4, False, None, "lengths", False),
    "packed": (64, 64, 4, 4, True, None, "bias", True),
    "grouped": (256, 256, 8, 2, True, None, "", False),
    "window": (256, 256, 8, 2, True, 40, "", False),
}


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="runs cuDNN: JAX_PLATFORMS=cuda")
@pytest.mark.parametrize("name", CASES)
def test_cudnn_comes_as_close_as_products(name):
    """Outputs and gradients in bfloat16, of positions too, against products in float32."""
    queries, keys, heads, groups, causal, window, padding, positions = CASES[name]
    random = jax.random.split(jax.random.key(0), 5)
    shapes = ((queries, heads), (keys, groups), (keys, groups), (queries, heads))
    arrays = [
        jax.random.normal(k, (B, t, n, 64)) for k, (t, n) in zip(random, shapes, strict=False)
    ]
    *given, cotangent = [arrays[0] / 8, *arrays[1:]]
    away = jnp.arange(queries)[:, None] - jnp.arange(keys)[None]
    seen = jnp.ones((1, 1, queries, keys), bool)
    seen &= (away >= 0)[None, None] if causal else True
    seen &= (away < window)[None, None] if window else True
    valid = jnp.arange(keys)[None] < jnp.asarray([keys, keys - 30])[:, None]
    seen &= valid[:, None, None] if padding else True
    if positions:
        given.append(jax.random.normal(random[4], (1, heads, queries, keys)))
    row = splash.row_mask("cudnn", queries, valid if padding == "bias" else None, causal, valid)
    row = None if row is None else dataclasses.replace(row, windows=(window,))

    def run(dtype, implementation):
        def loss(query, key, value, *table):
            args = [x.astype(dtype) for x in (query, key, value)]
            mask = row if implementation == "cudnn" else None
            bias = join(*table, layers.mask_to_bias(seen) if mask is None else mask)
            y = attend(*args, bias, implementation=implementation).astype(jnp.float32)
            return (y * cotangent).sum()

        # JAX's own code around the kernel promotes dtypes and ranks.
        strict = jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow")
        with jax.default_matmul_precision("highest"), strict[0], strict[1]:
            return jax.jit(jax.grad(loss, argnums=tuple(range(len(given)))))(*given)

    wanted = run(jnp.float32, "xla")
    for found, right in zip(run(jnp.bfloat16, "cudnn"), wanted, strict=True):
        assert np.linalg.norm(found - right) < 0.02 * np.linalg.norm(right)


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_grouped_heads_are_the_same_where_the_compiler_orders_them(groups, monkeypatch):
    rng = np.random.default_rng(0)
    query, key, value = (
        jnp.array(rng.standard_normal((2, length, heads, 8), np.float32))
        for length, heads in ((5, 6), (7, groups), (7, groups))
    )
    found = {}
    for where in ("cpu", "tpu"):
        monkeypatch.setattr(attention, "platform", lambda where=where: where)
        found[where] = attention._products(query, key, value, (), False, None)
    keys, values = (np.repeat(np.array(x, np.float64), 6 // groups, axis=2) for x in (key, value))
    logits = np.einsum("btnh,bsnh->bnts", query, keys)
    weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    wanted = np.einsum("bnts,bsnh->btnh", weights, values)
    for y in found.values():
        np.testing.assert_allclose(y, wanted, atol=1e-5)
