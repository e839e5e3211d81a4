"""AdamW with TemporalWiki's decay groups against torch's."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

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
