"""Dropout with masks that are shared along the rows."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

Array = jax.Array


class Dropout(nn.Module):
    """Dropout of x [B, T, D] with one mask for all T, as T5X's: far fewer random bits.

    Its masks and outputs are those of `nn.Dropout(rate, broadcast_dims=(-2,))`, which would keep a
    mask as large as x for the backward pass.
    """

    rate: float

    @nn.compact
    def __call__(self, x: Array, deterministic: bool) -> Array:
        if self.rate == 0.0 or deterministic:
            return x
        shape = (*x.shape[:-2], 1, x.shape[-1])
        kept = jax.random.bernoulli(self.make_rng("dropout"), 1.0 - self.rate, shape)
        return x / (1.0 - self.rate) * kept.astype(x.dtype)


def keep_mask(rng: Array, rate: float, shape: tuple[int, ...], dtype: Any) -> Array:
    """Factors of dropout: 0 with probability `rate`, else 1 / (1 - rate)."""
    # Inverted dropout: kept entries are scaled up, and evaluation needs no factor.
    kept = jax.random.bernoulli(rng, 1.0 - rate, shape)
    return kept.astype(dtype) / jnp.asarray(1.0 - rate, dtype)
