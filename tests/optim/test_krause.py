"""Krause's rule against plain loops in float64, in both conventions."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ckl_jax.errors import UserError
from ckl_jax.optim import gradient_squares, krause

N = 7


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def random(seed, scale=1.0):
    rng = np.random.default_rng(seed)
    shapes = {"a": (3, 4), "b": {"c": (5,)}}
    return jax.tree.map(
        lambda s: scale * rng.normal(size=s), shapes, is_leaf=lambda x: isinstance(x, tuple)
    )


def collected():
    """Mean squares of N gradients."""
    grads = [random(100 + i, 0.1) for i in range(N)]
    return jax.tree.map(lambda *g: sum(x**2 for x in g) / N, *grads)


def ours(steps, tx, grads=None):
    params = jax.tree.map(jnp.asarray, random(0))
    chain = optax.chain(optax.identity(), tx)
    state = gradient_squares.with_statistics(chain.init(params), collected(), N)
    shift = random(1)  # begin away from theta_0, so that the decay acts from the first step
    params = jax.tree.map(jnp.add, params, shift)
    out = []
    for i in range(steps):
        g = random(10 + i) if grads is None else grads
        updates, state = chain.update(g, state, params)
        params = optax.apply_updates(params, updates)
        out.append(params)
    return out


@pytest.mark.parametrize("decay", [0.0, 0.02, 0.9])
@pytest.mark.parametrize("convention", krause.CONVENTIONS)
def test_it_is_the_rule(convention, decay):
    lr, eps = 0.01, 1e-3
    ms, theta_0 = collected(), random(0)
    theta = jax.tree.map(np.add, theta_0, random(1))
    leaves = jax.tree.leaves(ms)
    mean = sum(np.sqrt(m).mean() for m in leaves) / len(leaves)

    def one(t, t0, g, m):
        if convention == "mean":
            root = np.sqrt(m)
            pull = decay * np.minimum(root / mean, 1 / decay if decay else np.inf)
        else:
            root = np.sqrt(N * m)
            pull = decay * root
        return t - lr * g / (root + eps) + pull * (t0 - t)

    found = ours(3, krause.rms_decay(lr, decay=decay, epsilon=eps, convention=convention))
    for i, params in enumerate(found):
        theta = jax.tree.map(one, theta, theta_0, random(10 + i), ms)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), params, theta)


def test_the_cap_acts():
    """Where a root is 1 / decay times the mean or more, a parameter returns to theta_0 at once."""
    params = {"a": jnp.ones(3), "b": jnp.ones(1)}
    tx = krause.rms_decay(0.0, decay=0.9)
    mean_square = {"a": jnp.zeros(3), "b": jnp.ones(1)}  # mean(R) is 1/2
    state = gradient_squares.with_statistics(tx.init(params), mean_square, 1)
    updates, _ = tx.update(jax.tree.map(jnp.zeros_like, params), state, {"a": 3.0, "b": 3.0})
    assert updates["b"] == -2.0 and (updates["a"] == 0).all()


def test_without_statistics_decay_and_epsilon_it_is_sgd():
    params = random(0)
    tx, sgd = krause.rms_decay(0.3, epsilon=0.0), optax.sgd(0.3)
    updates, _ = tx.update(random(1), tx.init(jax.tree.map(jnp.asarray, params)), params)
    expected, _ = sgd.update(random(1), sgd.init(params), params)
    jax.tree.map(np.testing.assert_array_equal, updates, expected)


@pytest.mark.parametrize("convention", krause.CONVENTIONS)
def test_without_gradient_it_contracts_to_the_start(convention):
    zeros = jax.tree.map(np.zeros_like, random(0))
    start, before = random(0), jax.tree.map(np.abs, random(1))
    for params in ours(40, krause.rms_decay(0.1, decay=0.3, convention=convention), zeros):
        distance = jax.tree.map(lambda p, s: np.abs(p - s), params, start)
        pairs = zip(jax.tree.leaves(distance), jax.tree.leaves(before), strict=True)
        assert all((d < b).all() or (d == 0).all() for d, b in pairs)
        before = distance
    assert max(d.max() for d in jax.tree.leaves(distance)) < 0.5


def test_sums_are_means_with_other_numbers():
    roots = [np.sqrt(m).mean() for m in jax.tree.leaves(collected())]
    lr, decay, eps = 2e-2, 0.03, 1e-3
    numbers = krause.from_sum(lr, decay, eps, N, float(np.mean(roots)))
    means = ours(4, krause.rms_decay(numbers[0], decay=numbers[1], epsilon=numbers[2]))
    sums = ours(4, krause.rms_decay(lr, decay=decay, epsilon=eps, convention="sum"))
    same = jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), means, sums)
    del same


def test_bad_settings():
    with pytest.raises(UserError, match=r"rms_decay.decay is -1"):
        krause.rms_decay(0.1, decay=-1)
    with pytest.raises(UserError, match="rms_decay.convention is 'means'"):
        krause.rms_decay(0.1, convention="means")
