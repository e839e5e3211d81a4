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
        # [T], or [1] while decoding.
        positions = jnp.arange(query_length)
        if decode:
            # One counter for the stack, beside those of the attentions: the bias is computed once
            # for all layers.
            ready = self.has_variable("cache", "cache_index")
            index = self.variable("cache", "cache_index", jnp.zeros, (), jnp.int32)
            if ready:
                positions = index.value[None]
                index.value = index.value + 1
        buckets = relative_position_bucket(
            jnp.arange(key_length)[None, :] - positions[:, None],
            bidirectional,
            self.num_buckets,
            self.max_distance,
        )
        # [N, buckets] by [T, S] -> [1, N, T, S].
        return jnp.take(table.astype(self.dtype), buckets, axis=1)[None]


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
