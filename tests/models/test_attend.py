"""Attention is softmax(q k + bias) v, whatever the order in which it is computed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ckl_jax.models import layers

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
        mask = layers.keep_mask(rng, RATE, (B, N, 1, S), jnp.float32)
        assert 0 < (mask == 0).mean() < 1

    def ours(*args):
        return jnp.sin(layers.attend(*args, dropout_rng=rng, dropout_rate=RATE)).sum()

    def reference(*args):
        return jnp.sin(plainly(*args, mask)).sum()

    found = jax.jit(jax.value_and_grad(ours, argnums=(0, 1, 2, 3)))(*arrays())
    wanted = jax.jit(jax.value_and_grad(reference, argnums=(0, 1, 2, 3)))(*arrays())
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), found, wanted)


def test_large_logits_and_queries_without_a_key_stay_finite():
    query, key, value, bias = arrays(scale=30.0)
    bias = bias.at[0].set(layers.MASKED)
    y, grads = jax.jit(jax.value_and_grad(lambda q: layers.attend(q, key, value, bias).sum()))(
        query
    )
    assert np.isfinite(y) and np.isfinite(grads).all()


def test_half_precision_keeps_its_dtype_and_comes_close():
    args = arrays()
    half = [x.astype(jnp.bfloat16) for x in args]
    y = layers.attend(*half, float32_logits=True)
    assert y.dtype == jnp.bfloat16
    np.testing.assert_allclose(y.astype(jnp.float32), plainly(*args, 1.0), atol=0.05)
