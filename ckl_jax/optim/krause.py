"""Krause's rule for dynamic evaluation (Krause et al. 2018, arXiv:1709.07432; 2019, 1904.08378).

Gradients are divided by the root of their mean square on training data, and parameters decay to
what they were before, the faster the larger that root. With g the gradient, N batches of training
data, MS = mean of g^2 over them, theta_0 the parameters at `init`:

    mean (the release in PyTorch), R = sqrt(MS):
        theta <- theta - lr g / (R + eps) + decay (theta_0 - theta) min(R / mean(R), 1 / decay)
    sum (the release in TensorFlow), R = sqrt(sum of g^2):
        theta <- theta - lr g / (R + eps) + decay (theta_0 - theta) R

mean(R) is the mean over tensors of their means. Both act on the parameters before the step.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from ckl_jax import checks
from ckl_jax.optim.pull_to_anchor import explicit_pull

CONVENTIONS = ("mean", "sum")


class RMSDecayState(NamedTuple):
    """State of `rms_decay`; it does not change after `with_statistics`."""

    root: optax.Params  # sqrt(MS) of each number; 1 without statistics
    mean_root: jax.Array  # (), mean(R)
    batches: jax.Array  # (), N, of the dtype of `root`
    anchor: Any  # theta_0; () without decay

    def with_statistics(self, mean_square: optax.Params, batches: int) -> "RMSDecayState":
        """With MS and N in it; see `optim.gradient_squares`."""
        # Stored as the root, which both conventions divide by.
        root = jax.tree.map(jnp.sqrt, mean_square)
        # As in the PyTorch release: the mean over tensors of each tensor's mean, not over all
        # numbers.
        mean = jnp.mean(jnp.stack([jnp.mean(r) for r in jax.tree.leaves(root)]))
        mean = jnp.where(mean > 0, mean, 1.0)  # no gradient at all: nothing decays
        count = jnp.asarray(batches, self.batches.dtype)
        return self._replace(root=root, mean_root=mean, batches=count)


def rms_decay(
    learning_rate: float, *, decay: float = 0.0, epsilon: float = 2e-5, convention: str = "mean"
) -> optax.GradientTransformation:
    """The rule. `gradient_squares.with_statistics` puts MS into its state; until then MS is 1.

    Args:
      learning_rate: lr.
      decay: of the distance to theta_0; 0 keeps no copy of it.
      epsilon: eps.
      convention: "mean" or "sum"; all three numbers are those of that convention, see `from_sum`.

    Returns:
      The transformation. It needs `params` in `update` where it decays.

    Raises:
      UserError: a number is negative, or there is no such convention.
    """
    checks.require_choice(CONVENTIONS, **{"rms_decay.convention": convention})
    numbers = {"rms_decay.decay": decay, "rms_decay.epsilon": epsilon}
    checks.require_number("a finite number, 0 or more", 0.0, **numbers)

    def init_fn(params):
        dtype = jax.tree.leaves(params)[0].dtype
        # A copy of all parameters, kept only if something decays to it.
        anchor = jax.tree.map(jnp.copy, params) if decay else ()
        return RMSDecayState(
            jax.tree.map(jnp.ones_like, params), jnp.ones([], dtype), jnp.ones([], dtype), anchor
        )

    def update_fn(updates, state, params=None):
        # sqrt(sum) = sqrt(N) sqrt(mean).
        scale = jnp.sqrt(state.batches) if convention == "sum" else 1.0
        updates = jax.tree.map(
            lambda g, r: -learning_rate * g / (scale * r + epsilon), updates, state.root
        )
        if not decay:
            return updates, state
        if params is None:
            raise ValueError("rms_decay with a decay needs params in update.")

        def rate(root):
            if convention == "sum":
                return decay * scale * root
            # The cap 1 / decay on R / mean(R): the pull never moves beyond theta_0.
            return jnp.minimum(decay * root / state.mean_root, 1.0)

        updates = jax.tree.map(
            lambda u, p, a, r: explicit_pull(u, p, a, rate(r)),
            updates,
            params,
            state.anchor,
            state.root,
        )
        return updates, state

    return optax.GradientTransformation(init_fn, update_fn)


def from_sum(
    learning_rate: float, decay: float, epsilon: float, batches: int, mean_root: float
) -> tuple[float, float, float]:
    """Converts hyperparameters of the "sum" reduction to "mean"; equivalent while the cap is
    inactive.

    Args:
      learning_rate, decay, epsilon: of "sum".
      batches: N.
      mean_root: mean(R) of "mean".

    Returns:
      Learning rate, decay and epsilon of "mean".
    """
    root = math.sqrt(batches)
    return learning_rate / root, decay * root * mean_root, epsilon / root
