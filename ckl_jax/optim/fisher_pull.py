"""The gradient of EWC's penalty, strength / 2 sum_i F_i (theta_i - theta*_i)^2, for any optimizer.

F is the diagonal of the empirical Fisher information at theta*, the parameters at `init`: the mean
over examples of the square of the gradient of each one's log likelihood.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from ckl_jax import checks


class FisherPullState(NamedTuple):
    """State of `fisher_pull`; it does not change after `with_statistics`."""

    fisher: optax.Params  # F of each number; 0 without statistics
    anchor: optax.Params  # theta*

    def with_statistics(self, mean_square: optax.Params, batches: int) -> "FisherPullState":
        """With the mean square of gradients in it; see `optim.gradient_squares`."""
        del batches
        return self._replace(fisher=mean_square)


def fisher_pull(strength: float) -> optax.GradientTransformation:
    """Adds strength F (theta - theta*) to gradients.

    Place it first in a chain: it must see gradients.

    Args:
      strength: lambda, 0 or more.

    Returns:
      The transformation. It needs `params` in `update`; `gradient_squares.with_statistics` puts F
      into its state.

    Raises:
      UserError: `strength` is negative.
    """
    checks.require_number("a finite number, 0 or more", 0.0, **{"fisher_pull.strength": strength})

    def init_fn(params):
        # A copy, because a donated buffer must not appear twice in the train state.
        # F = 0 until the statistics are in: without them the transformation changes nothing.
        return FisherPullState(jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.copy, params))

    def update_fn(grads, state, params=None):
        def pull(g: Any, p: Any, fisher: Any, anchor: Any) -> Any:
            return g + strength * fisher * (p - anchor)

        return jax.tree.map(pull, grads, params, state.fisher, state.anchor), state

    return optax.GradientTransformation(init_fn, update_fn)
