"""A state of a training, for all tests of checkpoints."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest


@pytest.fixture
def state():
    params = {
        "encoder": {"kernel": jnp.arange(6, dtype=jnp.float32).reshape(2, 3) / 7},
        "decoder": {"bias": jnp.array([1.5, -0.0, np.nan], jnp.bfloat16)},
    }
    tx = optax.chain(optax.clip(1.0), optax.adamw(optax.linear_schedule(1e-3, 0, 9)))
    return {
        "params": params,
        "opt_state": tx.init(params),
        "step": jnp.int32(7),
        "rng": jax.random.key(3),
    }
