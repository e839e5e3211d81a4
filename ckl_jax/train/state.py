"""The train state: what changes from step to step, and nothing else."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct

from ckl_jax.optim import averaging


@struct.dataclass
class TrainState:
    """The arrays that each step takes (donated) and returns. Frozen parameters are passed beside
    it.

    Attributes:
      step: () int32, steps taken.
      params: the trainable leaves only, float32.
      opt_state: optax state of those leaves.
      memory: what the model remembers of the text before the next batch; () of models without a
        memory, and where rows do not go on from batch to batch.
    """

    step: jax.Array
    params: Any
    opt_state: Any
    memory: Any = ()

    @classmethod
    def create(
        cls, params: Any, tx: optax.GradientTransformation, step: int = 0, memory: Any = ()
    ) -> "TrainState":
        return cls(jnp.full((), step, jnp.int32), params, tx.init(params), memory)


def as_dict(state: Any) -> dict[str, Any]:
    """A dataclass of arrays as the tree that checkpoints hold."""
    return {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}


def swapped(state: TrainState) -> TrainState:
    """The state for evaluation and saving, with a moving average in place of the parameters if
    there is one.

    Applied to a saved state, this returns the state to train; without an average, the state itself.
    """
    params, opt_state = averaging.swap(state.params, state.opt_state)
    return state.replace(params=params, opt_state=opt_state)


@jax.jit
def all_finite(tree: Any) -> jax.Array:
    """Whether every number of a tree of arrays is finite, () bool."""
    # One scalar comes back from the device for the whole tree.
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(tree)]))
