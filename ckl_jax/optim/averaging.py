"""An exponential moving average of the parameters, kept beside training (Polyak & Juditsky 1992).

After each step, of which theta is the outcome: average <- decay * average + (1 - decay) * theta. It
starts at the parameters before the first step, so it lies between them and the newest ones.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from ckl_jax import checks


class AverageState(NamedTuple):
    """State of `track_average`."""

    average: optax.Params  # or, after `swap`, the parameters that train

    def swap(self, params: optax.Params) -> tuple[optax.Params, "AverageState"]:
        """The average as parameters, and a state that holds `params` in its place."""
        return self.average, AverageState(params)


def track_average(decay: float) -> optax.GradientTransformation:
    """Keeps the average; updates pass unchanged.

    Place it last in a chain: it must see updates that are ready to be added.

    Args:
      decay: of what came before, in [0, 1); about 1 / (1 - decay) steps are averaged.

    Returns:
      The transformation. It needs `params` in `update`.

    Raises:
      UserError: `decay` is out of range.
    """
    checks.require_number("a number in [0, 1)", 0.0, 1.0, **{"track_average.decay": decay})

    def init_fn(params):
        # A copy, because a donated buffer must not appear twice in the train state.
        return AverageState(jax.tree.map(jnp.copy, params))

    def update_fn(updates, state, params=None):
        # p + u is the parameter after this step: optax updates are added.
        def step(average, p, u):
            return decay * average + (1.0 - decay) * (p + u)

        return updates, AverageState(jax.tree.map(step, state.average, params, updates))

    return optax.GradientTransformation(init_fn, update_fn)


def swap(params: Any, opt_state: Any) -> tuple[Any, Any]:
    """Exchanges the parameters with the averaged ones in `opt_state`, if it holds any.

    A part of the state holds some if it has `swap`, as `AverageState` does. Twice is the identity:
    what is evaluated and saved is the average, and training goes on from what the state holds.
    """
    # `is_leaf` stops the flattening at states that can swap, anywhere in a chain.
    nodes, tree = jax.tree.flatten(opt_state, is_leaf=_can_swap)
    for i, node in enumerate(nodes):
        if _can_swap(node):
            params, nodes[i] = node.swap(params)
    return params, jax.tree.unflatten(tree, nodes)


def _can_swap(node: Any) -> bool:
    return hasattr(node, "swap")
