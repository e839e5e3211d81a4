"""How far an update moves the parameters that train, beside what it learns and forgets."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

SPLIT = "distance/parameters"


@dataclasses.dataclass(frozen=True)
class Distance:
    """An evaluation of `train.train`: the distance to the first parameters that it is given."""

    @property
    def names(self) -> tuple[str, ...]:
        """What it evaluates, for `t5x eval`."""
        return (SPLIT,)

    def __call__(self, model: Any, partitioner: Any) -> Callable[..., dict[str, dict[str, float]]]:
        """Makes the evaluation of one run.

        Args:
          model: with its method in it; not needed here.
          partitioner: its mesh; not needed here.

        Returns:
          `(parameters, step, whether it is the last) -> {split: {name: score}}`.
        """
        start: list[Any] = []

        @jax.jit
        def norms(params: Any, before: Any) -> tuple[jax.Array, jax.Array]:
            moved = jax.tree.map(lambda x, y: jnp.sum(jnp.square(x - y)), params, before)
            whole = jax.tree.map(lambda x: jnp.sum(jnp.square(x)), before)
            return tuple(jnp.sqrt(sum(jax.tree.leaves(tree))) for tree in (moved, whole))

        def evaluate(params: Any, step: int, last: bool) -> dict[str, dict[str, float]]:
            if not start:
                start.append(jax.device_get(params))  # the next step donates its buffers
            moved, whole = norms(params, start[0])
            return {SPLIT: {"l2": float(moved), "relative_percent": 100 * float(moved / whole)}}

        return evaluate
