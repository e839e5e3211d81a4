"""RecAdam as an optax chain (Chen et al. 2020, "Recall and Learn", arXiv:2004.12651).

Objective: lambda(t) L(theta) + (1 - lambda(t)) gamma/2 |theta - theta*|^2, theta* the parameters at
initialisation, t counted from 1. As in the authors' optimizer, Adam's moments see the plain
gradient, lambda scales the Adam step, and the pull acts on the stepped parameters:

    theta <- theta - a lambda m / (sqrt(v) + eps),  a = lr sqrt(1 - b2^t) / (1 - b1^t)
    theta <- theta - lr (1 - lambda) gamma (theta - theta*)
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ckl_jax import checks
from ckl_jax.errors import UserError
from ckl_jax.optim.pull_to_anchor import pull_to_anchor

ANNEALS = ("sigmoid", "linear", "constant")
PENALTIES = ("proximal", "explicit")


class ScaleByRecAdamState(NamedTuple):
    """State of `scale_by_recadam`."""

    count: jax.Array  # shape=(), dtype=int32
    mu: optax.Updates
    nu: optax.Updates


def anneal_weight(anneal: str, k: float, t0: float, t):
    """lambda(t): the weight of the new objective at step t = 1, 2, ..."""
    if anneal == "sigmoid":
        return 1.0 / (1.0 + jnp.exp(-k * (t - t0)))
    if anneal == "linear":
        return jnp.minimum(1.0, t / t0)
    return jnp.ones_like(t)


def scale_by_recadam(
    b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> optax.GradientTransformation:
    """Adam with epsilon added to the *uncorrected* root of the second moment, unlike optax's."""

    def init_fn(params):
        # Two separate buffers: donated ones must not be the same array.
        zeros = jax.tree.map(jnp.zeros_like, params)
        return ScaleByRecAdamState(jnp.zeros([], jnp.int32), zeros, jax.tree.map(jnp.copy, zeros))

    def update_fn(updates, state, params=None):
        del params
        count = state.count + 1
        # The moments see the plain gradient; lambda scales the step, not what Adam remembers.
        mu = jax.tree.map(lambda g, m: b1 * m + (1 - b1) * g, updates, state.mu)
        nu = jax.tree.map(lambda g, v: b2 * v + (1 - b2) * g * g, updates, state.nu)
        t = count.astype(jnp.result_type(float))
        # Both bias corrections in one factor, applied after eps is added to sqrt(v).
        correction = jnp.sqrt(1 - b2**t) / (1 - b1**t)
        updates = jax.tree.map(lambda m, v: correction * m / (jnp.sqrt(v) + eps), mu, nu)
        return updates, ScaleByRecAdamState(count, mu, nu)

    return optax.GradientTransformation(init_fn, update_fn)


def recadam(
    learning_rate: optax.ScalarOrSchedule,
    gamma: float = 5000.0,
    k: float = 0.5,
    t0: float = 250.0,
    anneal: str = "sigmoid",
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    penalty: str = "proximal",
    legacy_adam: bool = False,
) -> optax.GradientTransformation:
    """Annealed Adam with a pull to the initial parameters.

    Args:
      learning_rate: lr, a number or a function of the step (from 0).
      gamma: strength of the pull.
      k: slope of the sigmoid.
      t0: step (from 1) at which lambda is one half (sigmoid) or reaches one (linear).
      anneal: shape of lambda: "sigmoid", "linear", or "constant" (lambda = 1: no pull at all).
      b1, b2, eps: Adam's; the authors' library has eps=1e-6, CKL 1e-8.
      penalty: "explicit" is the formula above, "proximal" its implicit form, which is stable at
        any rate.
      legacy_adam: plain Adam: the pull and the annealing never act.

    Returns:
      The transformation; the anchor is kept in its state (three float32 copies in all).

    Raises:
      UserError: unknown `anneal` or `penalty`, or an explicit pull that would diverge.
    """
    checks.require_choice(ANNEALS, **{"recadam.anneal": anneal})
    checks.require_choice(PENALTIES, **{"recadam.penalty": penalty})
    checks.require_number("a finite number, 0 or more", 0.0, **{"recadam.gamma": gamma})
    checks.require_positive(RECADAM_K=k)
    if anneal == "linear":
        checks.require_positive(RECADAM_T0=t0)
    else:
        checks.require_number("a finite number, 0 or more", 0.0, RECADAM_T0=t0)

    def lr(count):
        return learning_rate(count) if callable(learning_rate) else learning_rate

    def weight(count):
        return anneal_weight(anneal, k, t0, jnp.asarray(count, jnp.result_type(float)) + 1)

    if legacy_adam:
        # No anchor in this state: legacy runs need a third less memory for the optimizer.
        return optax.chain(scale_by_recadam(b1, b2, eps), optax.scale_by_schedule(lambda n: -lr(n)))

    def pull_rate(count):
        return lr(count) * (1 - weight(count)) * gamma

    if penalty == "explicit":
        # 40 / k steps past t0 the sigmoid has reached 1, and nothing pulls any more.
        _require_stable(pull_rate, steps=int(t0 + 40 / k))
    return optax.chain(
        scale_by_recadam(b1, b2, eps),
        # The order matters: the pull acts on the parameters that Adam has stepped already.
        optax.scale_by_schedule(lambda n: -lr(n) * weight(n)),
        pull_to_anchor(pull_rate, implicit=penalty == "proximal"),
    )


def _require_stable(pull_rate, steps: int) -> None:
    """The explicit pull multiplies the distance by 1 - rate: it grows where rate > 2."""
    # Evaluated before training starts, for all steps at once.
    rates = np.asarray(jax.vmap(pull_rate)(jnp.arange(steps)))
    worst = int(rates.argmax())
    if rates[worst] >= 2:
        raise UserError(
            f"RecAdam's explicit penalty diverges: learning rate * gamma * (1 - lambda) is "
            f"{rates[worst]:.3g} at step {worst + 1} and must stay below 2; lower gamma or the "
            "learning rate, lengthen the warm-up, or use penalty='proximal'."
        )
