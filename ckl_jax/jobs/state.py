"""The train state: what changes from step to step, and nothing else."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct


@struct.dataclass
class TrainState:
    """Donated to every step. Frozen parameters are not in it: they are a constant beside it.

    Attributes:
      step: () int32, steps taken.
      params: the trainable leaves only, float32.
      opt_state: optax state of those leaves.
    """

    step: jax.Array
    params: Any
    opt_state: Any

    @classmethod
    def create(
        cls, params: Any, tx: optax.GradientTransformation, step: int = 0
    ) -> "TrainState":
        return cls(jnp.full((), step, jnp.int32), params, tx.init(params))
