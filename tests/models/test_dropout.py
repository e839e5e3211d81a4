"""Dropout and norms are the plain formulas, of which the backward pass keeps little."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ckl_jax.models.dropout import Dropout
from ckl_jax.models.layers import RMSNorm

B, T, D = 4, 16, 32


def kept(function, *args):
    """Sizes of what the backward pass keeps of bfloat16 arguments, largest first."""
    _, backward = jax.vjp(function, *args)
    return sorted((x.size for x in jax.tree.leaves(backward)), reverse=True)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_masks_and_gradients_are_flaxes(dtype):
    x = jax.random.normal(jax.random.key(0), (B, T, D), dtype)

    class Net(nn.Module):
        ours: bool

        @nn.compact
        def __call__(self, x):
            if self.ours:
                return Dropout(0.3)(x, False)
            return nn.Dropout(0.3, broadcast_dims=(-2,))(x, deterministic=False)

    def of(ours):
        def loss(x):
            return Net(ours).apply({}, x, rngs={"dropout": jax.random.key(1)})

        y, backward = jax.vjp(loss, x)
        return y, *backward(jnp.cos(x))

    for found, wanted in zip(of(True), of(False), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert 0 < (of(True)[0] == 0).mean() < 0.5
    drop = Dropout(0.3)
    np.testing.assert_array_equal(drop.apply({}, x, True), x)
    sizes = kept(lambda x: drop.apply({}, x, False, rngs={"dropout": jax.random.key(1)}), x)
    assert sizes[0] == B * D  # one row's, not B * T * D


def test_of_a_norm_its_input_is_kept():
    x = jax.random.normal(jax.random.key(0), (B, T, D), jnp.bfloat16)
    norm = RMSNorm(dtype=jnp.bfloat16)
    params = norm.init(jax.random.key(1), x)
    assert kept(norm.apply, params, x)[:2] == [B * T * D, D]
