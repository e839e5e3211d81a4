"""What the layers of a decoder share: the angles of positions, and who sees whom.

`cfg` is a `decoder.DecoderConfig` throughout.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ckl_jax.models import layers
from ckl_jax.models.rope import frequencies
from ckl_jax.models.splash import RowMask

Array = jax.Array
Mask = Array | RowMask | None
# Of each type of layer: cosines, sines [K, B or 1, T, R/2] or None, and bias [K, B or 1, 1 or N, T,
# S], mask or None; of all types, what cross-attention reads, [B, S', D'], and its bias, or None.
Context = tuple[Array | None, Array | None, Mask, Array | None, Array | None]


def make_context(cfg: Any, queries: Array, keys: Array, mask: Mask) -> Context:
    """The angles and the bias of each type of layer.

    Args:
      cfg: the model.
      queries: [B or 1, T], positions.
      keys: [B or 1, S], positions.
      mask: broadcastable to [B, 1, T, S], or None; or of rows, as `row_mask` makes it.
    """
    angles = _angles(cfg, queries) if cfg.positions == "rope" else (None, None)
    if isinstance(mask, RowMask):
        windows = tuple(cfg.window if kind == "sliding" else None for kind in cfg.kinds)
        return (*angles, dataclasses.replace(mask, windows=windows), None, None)
    far = queries[:, None, :, None] - keys[:, None, None, :]  # [B or 1, 1, T, S]
    biases = [_bias(cfg, kind, mask, far) for kind in cfg.kinds]
    if any(bias is not None for bias in biases):
        biases = [jnp.zeros((1, 1, 1, 1)) if bias is None else bias for bias in biases]
        biases = list(jnp.broadcast_arrays(*biases)) if len(biases) > 1 else biases
        dtype = jnp.float32 if cfg.positions == "alibi" else cfg.dtype
        stacked = jnp.stack(biases).astype(dtype)
    else:
        stacked = None
    return (*angles, stacked, None, None)


def _angles(cfg: Any, queries: Array) -> tuple[Array, Array]:
    """Cosines and sines of the rotations, each [kinds, B or 1, T, H / 2]."""
    cosines, sines = [], []
    ropes = {kind: dict(settings) for kind, settings in cfg.ropes}
    size = cfg.rotary_dim or cfg.head_dim
    for kind in cfg.kinds:
        per_position, factor = np.zeros(size // 2, np.float32), 1.0
        if kind in ropes:
            per_position, factor = frequencies(ropes[kind], size, cfg.max_positions)
        angles = queries[..., None].astype(jnp.float32) * per_position[None, None]
        cosines.append(jnp.cos(angles) * factor)
        sines.append(jnp.sin(angles) * factor)
    return jnp.stack(cosines), jnp.stack(sines)


def _bias(cfg: Any, kind: str, mask: Array | None, far: Array) -> Array | None:
    """The bias of a type of layer, broadcastable to [B, N, T, S].

    Args:
      far: [B or 1, 1, T, S], how far a query lies behind a key.
    """
    seen = mask
    if kind == "sliding":
        near = (far if cfg.causal else jnp.abs(far)) < cfg.window
        seen = near if mask is None else mask & near
    bias = None if seen is None else layers.mask_to_bias(seen)
    if cfg.positions == "alibi":
        slopes = jnp.asarray(_slopes(cfg.num_heads))[None, :, None, None]
        linear = -slopes * far.astype(jnp.float32)
        bias = linear if bias is None else bias + linear
    return bias


def row_context(cfg: Any, length: int, bias: Mask, positions: Array | None = None) -> Context:
    """`make_context` of rows of T tokens; a bias [B, 1, T, T] is 0 where a query sees a key.

    Without `positions` [B or 1, T] they count from 0, also of packed texts: all that matters to
    angles and windows is how far two positions of a text lie apart.
    """
    positions = jnp.arange(length)[None] if positions is None else positions
    mask = bias if bias is None or isinstance(bias, RowMask) else bias >= 0
    return make_context(cfg, positions, positions, mask)


def _slopes(heads: int) -> np.ndarray:
    """ALiBi's slope of each head (Press et al. 2022), [N] float32."""

    def of_power(count: int) -> list[float]:
        base = 2.0 ** (-8.0 / count)
        return [base ** (i + 1) for i in range(count)]

    power = 2 ** math.floor(math.log2(heads))
    # Between the powers of two: every other slope of the next one.
    return np.asarray(of_power(power) + of_power(2 * power)[::2][: heads - power], np.float32)


def visible(length: int, segment_ids: Array | None, prefix: Array | None) -> Array:
    """Which position sees which, broadcastable to [B, 1, T, T]."""
    mask = layers.causal_mask(length)
    if prefix is not None:
        mask = mask | layers.padding_mask(prefix > 0, prefix > 0)
    if segment_ids is not None:
        mask = mask & layers.segment_mask(segment_ids, segment_ids)
        # Segment 0 is padding, which segment_mask alone would let see itself.
        mask = mask & (segment_ids > 0)[:, None, None, :]
    return mask


def prompt_mask(lengths: Array, width: int, size: int) -> Array:
    """[B, 1, 1, S]: false on the padding behind each prompt, the first `width` of S positions."""
    positions = jnp.arange(size)[None]
    seen = (positions < lengths[:, None]) | (positions >= width)
    return seen[:, None, None, :]
