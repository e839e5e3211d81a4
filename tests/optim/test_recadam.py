"""RecAdam against a float64 loop written from its formula, for each reading of the penalty."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ckl_jax.errors import UserError
from ckl_jax.methods import recadam as methods
from ckl_jax.optim.pull_to_anchor import pull_to_anchor
from ckl_jax.optim.recadam import anneal_weight, recadam

STEPS, K, T0, GAMMA = 50, 0.5, 20.0, 500.0


def learning_rate(count):
    return 1e-3 - jnp.asarray(count, float) * 5e-6


def gradient(theta, step):
    """Of a quadratic with a moving target; works on numpy and jax arrays."""
    return 2 * (theta - 0.3) + 0.1 * np.sin(step)


def reference(theta, reading, anneal):
    """The published loop in float64: moments of the plain gradient, Adam step, then the pull."""
    start, m, v = theta.copy(), np.zeros_like(theta), np.zeros_like(theta)
    for step in range(STEPS):
        t, lr, g = step + 1, float(learning_rate(step)), gradient(theta, step)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        size = lr * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        move = m / (np.sqrt(v) + 1e-8)
        if reading == "legacy_adam":
            theta = theta - size * move
            continue
        lam = 1 / (1 + np.exp(-K * (t - T0))) if anneal == "sigmoid" else min(1.0, t / T0)
        theta = theta - size * lam * move
        c = lr * (1 - lam) * GAMMA
        if reading == "explicit":
            theta = theta - c * (theta - start)
        else:
            theta = (theta + c * start) / (1 + c)
    return theta


@pytest.mark.parametrize("anneal", ["sigmoid", "linear"])
@pytest.mark.parametrize("reading", ["proximal", "explicit", "legacy_adam"])
def test_equals_the_formula_in_float64_over_50_steps(reading, anneal):
    with jax.enable_x64(True):
        theta = jnp.asarray(np.random.RandomState(0).randn(7, 3), jnp.float64)
        expected = reference(np.asarray(theta), reading, anneal)
        method = methods.recadam(
            gamma=GAMMA,
            k=K,
            t0=T0,
            anneal=anneal,
            penalty="explicit" if reading == "explicit" else "proximal",
            legacy_adam=reading == "legacy_adam",
        )
        tx = method.tx(learning_rate)
        state = tx.init(theta)
        for step in range(STEPS):
            updates, state = tx.update(gradient(theta, step), state, theta)
            theta = optax.apply_updates(theta, updates)
        np.testing.assert_allclose(np.asarray(theta), expected, rtol=1e-12)


def test_readings_differ():
    start = np.random.RandomState(0).randn(5)
    ends = [reference(start, r, "sigmoid") for r in ("proximal", "explicit", "legacy_adam")]
    assert np.abs(ends[0] - ends[1]).max() > 1e-5 and np.abs(ends[0] - ends[2]).max() > 1e-3


def test_annealing_values():
    t = jnp.asarray([240.0, 250.0, 260.0])
    weights = anneal_weight("sigmoid", 0.5, 250.0, t)
    np.testing.assert_allclose(weights, [0.0067, 0.5, 0.9933], atol=5e-5)


def test_explicit_penalty_that_would_diverge_is_refused():
    with pytest.raises(UserError, match="must stay below 2"):
        recadam(1e-3, gamma=5000, penalty="explicit")
    recadam(1e-3, gamma=5000, penalty="proximal")


def test_unknown_annealing_is_an_error_with_the_nearest_name():
    with pytest.raises(UserError, match="Did you mean 'sigmoid'"):
        recadam(1e-3, anneal="sigmoidal")


def test_pull_on_old_parameters_differs_from_pull_on_stepped_ones():
    params, updates = jnp.asarray([1.0]), jnp.asarray([-0.5])
    results = {}
    for of in ("stepped", "old"):
        tx = pull_to_anchor(0.1, of=of)
        state = tx.init(jnp.asarray([0.0]))
        results[of] = float(tx.update(updates, state, params)[0][0])
    assert results == pytest.approx({"stepped": -0.55, "old": -0.6})
