"""A pull toward fixed parameters, used by RecAdam and by Krause's rule for dynamic evaluation."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


class PullToAnchorState(NamedTuple):
    """State of `pull_to_anchor`."""

    count: jax.Array  # shape=(), dtype=int32: steps taken
    anchor: optax.Params  # the parameters at initialisation


def explicit_pull(update: jax.Array, at: jax.Array, anchor: jax.Array, rate: Any) -> jax.Array:
    """An update with a step towards an anchor: update - rate (at - anchor)."""
    return update - rate * (at - anchor)


def pull_to_anchor(
    rate: optax.ScalarOrSchedule, *, of: str = "stepped", implicit: bool = False
) -> optax.GradientTransformation:
    """Moves parameters toward their values at `init`, after the updates that came before it.

    With theta the parameters, u the incoming update, a the anchor and c the rate:

    - explicit: theta + u - c (x - a), where x is theta + u (`of="stepped"`, as RecAdam does) or
      theta (`of="old"`; `optim.krause` does it with a rate for each number);
    - implicit: (theta + u + c a) / (1 + c), the minimiser of
      |x - theta - u|^2 / 2 + c |x - a|^2 / 2. It is stable at any rate, and equals the explicit
      step to first order in c.

    Place it last in a chain: it must see updates that are ready to be added.

    Args:
      rate: c, a number or a function of the step (counted from 0).
      of: "stepped" or "old"; which parameters the explicit pull is taken at.
      implicit: use the implicit step.

    Returns:
      The transformation. It needs `params` in `update`.

    Raises:
      ValueError: `of` is unknown.
    """
    if of not in ("stepped", "old"):
        raise ValueError(f"of={of!r}; choose 'stepped' or 'old'.")

    def init_fn(params):
        # A copy, because a donated buffer must not appear twice in the train state.
        return PullToAnchorState(jnp.zeros([], jnp.int32), jax.tree.map(jnp.copy, params))

    def update_fn(updates, state, params=None):
        if params is None:
            raise ValueError(optax.NO_PARAMS_MSG if hasattr(optax, "NO_PARAMS_MSG") else "params")
        # `count` is the number of steps before this one, as in optax's schedules.
        c = rate(state.count) if callable(rate) else rate

        def pull(u, p, a):
            if implicit:
                # (theta + u + c a) / (1 + c) - theta.
                return (u + c * (a - p)) / (1 + c)
            return explicit_pull(u, p + u if of == "stepped" else p, a, c)

        updates = jax.tree.map(pull, updates, params, state.anchor)
        return updates, PullToAnchorState(state.count + 1, state.anchor)

    return optax.GradientTransformation(init_fn, update_fn)
