"""AdamW with TemporalWiki's decay groups against torch's."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ckl_jax.checkpoints.layout import tree_digest
from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.errors import UserError
from ckl_jax.optim.adamw import adamw


def test_steps_equal_torch_s_with_biases_left_out():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    start = {
        "query": {"kernel": rng.normal(size=(4, 3)), "bias": rng.normal(size=3)},
        "norm": {"scale": rng.normal(size=3), "bias": rng.normal(size=3)},
    }
    params = {m: {n: jnp.asarray(x, jnp.float32) for n, x in v.items()} for m, v in start.items()}
    theirs = {
        (m, n): torch.nn.Parameter(torch.tensor(x, dtype=torch.float32))
        for m, v in start.items()
        for n, x in v.items()
    }
    groups = [
        {
            "params": [p for (_, n), p in theirs.items() if (n == "bias") == bias],
            "weight_decay": 0.0 if bias else 0.3,
        }
        for bias in (False, True)
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    tx = adamw(0.1, weight_decay=0.3)
    state = tx.init(params)
    for _ in range(3):
        grads = {m: {n: rng.normal(size=x.shape) for n, x in v.items()} for m, v in start.items()}
        for (m, n), p in theirs.items():
            p.grad = torch.tensor(grads[m][n], dtype=torch.float32)
        optimizer.step()
        ours = {m: {n: jnp.asarray(g, jnp.float32) for n, g in v.items()} for m, v in grads.items()}
        updates, state = tx.update(ours, state, params)
        params = optax.apply_updates(params, updates)
    for (m, n), p in theirs.items():
        np.testing.assert_allclose(params[m][n], p.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_the_first_moment_may_be_bfloat16():
    """Half of its memory; a step differs by its rounding, 2^-8 of the step, and no more."""
    rng = np.random.default_rng(0)
    params = {"a": jnp.asarray(rng.normal(size=(40,)), jnp.float32)}
    plain, small = adamw(1e-2), adamw(1e-2, mu_dtype="bfloat16")
    states = [tx.init(params) for tx in (plain, small)]
    for i in range(5):
        grads = {"a": jnp.asarray(rng.normal(size=(40,)), jnp.float32)}
        both = zip((plain, small), states, strict=True)
        (exact, first), (rounded, state) = (tx.update(grads, s, params) for tx, s in both)
        assert rounded["a"].dtype == jnp.float32
        np.testing.assert_allclose(rounded["a"], exact["a"], atol=(i + 1) * 2**-8 * 2e-2)
        states = [first, state]
    dtypes = {str(x.dtype): x.size for x in jax.tree.leaves(state) if x.ndim}
    assert dtypes == {"bfloat16": 40, "float32": 40}
    with pytest.raises(UserError, match="adamw.mu_dtype is 'half'"):
        adamw(1e-2, mu_dtype="half")


def gradients(i, noise):
    """Of step i: their size falls at first, and then depends on the parameter."""
    sizes = jnp.linspace(0.01, 1.0, noise.shape[1])
    return {"a": jnp.where(i < 20, 10.0, sizes) * noise[i % len(noise)]}


@functools.cache
def second_moments(dtype, n=1024, steps=3000):
    """nu of AdamW after so many steps, also if it is rounded to the nearest."""
    tx = adamw(1e-3, nu_dtype="bfloat16" if dtype == "bfloat16" else "float32")
    # Repeated: to draw them takes longer than the steps.
    noise = jax.random.normal(jax.random.key(1), (100, n))

    def step(i, state):
        _, state = tx.update(gradients(i, noise), state, {"a": jnp.zeros(n)})
        if dtype == "nearest":
            nu = jax.tree.map(lambda v: v.astype(jnp.bfloat16).astype(v.dtype), state[0].nu)
            state = (state[0]._replace(nu=nu), *state[1:])
        return state

    state = jax.jit(lambda s: jax.lax.fori_loop(0, steps, step, s))(tx.init({"a": jnp.zeros(n)}))
    return np.asarray(state[0].nu["a"], np.float64)


def test_a_bfloat16_second_moment_is_the_float32_one_in_expectation():
    exact, found = second_moments("float32"), second_moments("bfloat16")
    ratios = found / exact
    assert abs(ratios.mean() - 1) < 0.01 and ratios.std() < 0.1
    # Thirds of the parameters, whose gradients differ in size.
    for part in np.array_split(ratios, 3):
        assert abs(part.mean() - 1) < 0.01
    # To the nearest, what the first gradients left never decays.
    nearest = second_moments("nearest") / exact
    assert np.median(nearest) > 2


def test_bfloat16_moments_take_half_of_the_memory():
    params = {
        "a": jax.ShapeDtypeStruct((30, 40), jnp.float32),
        "b": jax.ShapeDtypeStruct((7,), jnp.float32),
    }

    def size(**dtypes):
        state = jax.eval_shape(adamw(1e-3, **dtypes).init, params)
        return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state) if x.ndim)

    count = 30 * 40 + 7
    assert size() == 8 * count
    assert size(mu_dtype="bfloat16") == size(nu_dtype="bfloat16") == 6 * count
    assert size(mu_dtype="bfloat16", nu_dtype="bfloat16") == 4 * count
    with pytest.raises(UserError, match="adamw.nu_dtype is 'half'"):
        adamw(1e-2, nu_dtype="half")


def test_the_default_is_optax_s_bit_for_bit():
    everything = functools.partial(jax.tree.map, lambda _: True)
    ours = adamw(1e-2, not_decayed=())
    theirs = optax.adamw(1e-2, weight_decay=0.01, mask=everything)
    params = {"a": jax.random.normal(jax.random.key(0), (40,))}
    noise = jax.random.normal(jax.random.key(1), (5, 40))
    states = [tx.init(params) for tx in (ours, theirs)]
    assert jax.tree.structure(states[0]) == jax.tree.structure(states[1])
    for i in range(5):
        pairs = [
            jax.jit(tx.update)(gradients(i, noise), s, params)
            for tx, s in zip((ours, theirs), states, strict=True)
        ]
        states = [s for _, s in pairs]
        assert tree_digest(pairs[0]) == tree_digest(pairs[1])


def test_a_resumed_run_rounds_as_one_that_goes_on(tmp_path):
    tx = adamw(1e-2, mu_dtype="bfloat16", nu_dtype="bfloat16")
    params = {"a": jax.random.normal(jax.random.key(0), (40,)), "b": jnp.ones((3, 5))}

    @jax.jit
    def step(i, params, state):
        key = jax.random.fold_in(jax.random.key(1), i)
        grads = jax.tree.map(lambda p: jax.random.normal(key, p.shape), params)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    state = tx.init(params)
    for i in range(6):
        if i == 3:
            saved = {"params": params, "opt_state": state}
            with CheckpointStore(tmp_path) as store:
                store.save(3, saved)
                _, restored = store.restore(saved)
            assert tree_digest(restored) == tree_digest(saved)
        params, state = step(i, params, state)
    again = restored["params"], restored["opt_state"]
    for i in range(3, 6):
        again = step(i, *again)
    assert tree_digest(again) == tree_digest((params, state))
    assert {x.dtype.name for x in jax.tree.leaves(state) if x.ndim} == {"bfloat16"}
