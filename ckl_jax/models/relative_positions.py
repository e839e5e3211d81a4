"""T5's relative positions: a bias of attention logits by the bucket of the distance."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from ckl_jax.models.layers import param

Array = jax.Array


class RelativePositionBias(nn.Module):
    """T5's bucketed relative positions: a table [N, buckets], shared by the layers of a stack."""

    num_buckets: int
    max_distance: int
    num_heads: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, query_length: int, key_length: int, bidirectional: bool, decode: bool = False
    ) -> Array:
        """Returns the bias [1, N, T, S]; while decoding, of the current position, [1, N, 1, S]."""
        table = param(
            "rel_embedding",
            nn.initializers.variance_scaling(1.0, "fan_avg", "uniform"),
            (self.num_heads, self.num_buckets),
            ("heads", "relpos_buckets"),
        )

        def of(distances: Array) -> Array:
            """[N, ...], of key-minus-query distances [...]."""
            buckets = relative_position_bucket(
                distances, bidirectional, self.num_buckets, self.max_distance
            )
            # Cast afterwards: the gradient of a bucket is a sum of many terms.
            return jnp.take(table, buckets, axis=1).astype(self.dtype)

        if decode:
            # One counter for the stack, beside those of the attentions: the bias is computed once
            # for all layers.
            ready = self.has_variable("cache", "cache_index")
            index = self.variable("cache", "cache_index", jnp.zeros, (), jnp.int32)
            if ready:
                index.value = index.value + 1
                return of(jnp.arange(key_length) - (index.value - 1))[None, :, None]
        distances = jnp.arange(1 - query_length, key_length)
        return along_diagonals(of(distances), query_length)[None]


def along_diagonals(values: Array, rows: int) -> Array:
    """Matrices that depend on the distance alone: values [N, T+S-1] -> [N, T, S].

    Entry (t, s) is value s - t + T - 1. It is a view of T copies, each shifted by one, and not a
    gather: the gradient of that adds T S terms one by one into a few places.

    Args:
      values: of the distances from 1 - T to S - 1.
      rows: T.
    """
    heads, count = values.shape
    copies = jnp.broadcast_to(jnp.pad(values, ((0, 0), (0, 1)))[:, None], (heads, rows, count + 1))
    # Rows of one entry less: each begins one entry earlier in its copy.
    shifted = copies.reshape(heads, -1)[:, rows - 1 : rows - 1 + rows * count]
    return shifted.reshape(heads, rows, count)[:, :, : count + 1 - rows]


def relative_position_bucket(
    relative_position: Array, bidirectional: bool, num_buckets: int, max_distance: int
) -> Array:
    """Maps key-minus-query distances to buckets: exact when near, logarithmic when far."""
    # Operation by operation as in T5X: another rounding would move distances at the borders of the
    # logarithmic buckets, and published checkpoints would see other biases.
    bucket = 0
    distance = -relative_position
    # Half of the buckets are for keys after the query.
    if bidirectional:
        num_buckets //= 2
        bucket = jnp.where(distance < 0, num_buckets, 0)
        distance = jnp.abs(distance)
    else:
        distance = jnp.maximum(distance, 0)
    # Half of these buckets hold one distance each; the others widen by a constant factor up to
    # `max_distance`.
    exact = num_buckets // 2
    scale = (num_buckets - exact) / np.log(max_distance / exact)
    # eps keeps log(0) away from distance 0, whose bucket the last line takes from `distance`.
    ratio = distance.astype(jnp.float32) / exact + np.finfo(np.float32).eps
    far = exact + (jnp.log(ratio) * scale).astype(jnp.int32)
    return bucket + jnp.where(distance < exact, distance, jnp.minimum(far, num_buckets - 1))
