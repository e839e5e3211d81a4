"""Upstream T5X restores our checkpoints with their optimizer state, and we restore what it saves.

Needs an interpreter that can import all of T5X: CKL_UPSTREAM_PYTHON=/path/to/python
(`docs/upstream.md` says how to make one).
"""

import json
import os
import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ckl_jax.checkpoints import restore
from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.models.t5 import T5Config
from ckl_jax.optim.adafactor import adafactor_t5x
from ckl_jax.train.state import TrainState
from tests.helpers import assert_trees_close, random_params

UPSTREAM = os.environ.get("CKL_UPSTREAM_PYTHON")
SCRIPT = Path(__file__).parent / "upstream_step.py"
# Wide enough that some leaves are factored.
SIZES = dict(
    vocab_size=128,
    emb_dim=128,
    num_heads=2,
    head_dim=8,
    mlp_dim=32,
    num_encoder_layers=1,
    num_decoder_layers=1,
    mlp_activations=("relu",),
    logits_via_embedding=True,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not UPSTREAM, reason="CKL_UPSTREAM_PYTHON names no Python with T5X"),
]


def as_dict(state):
    return {"step": state.step, "params": state.params, "opt_state": state.opt_state}


@pytest.fixture(scope="module")
def upstream(tmp_path_factory):
    """(our state after 4 steps, folder of what upstream made of our checkpoint after 3)."""
    folder = tmp_path_factory.mktemp("upstream")
    # Behind a clip, as the runner has it: the names in the checkpoint do not depend on it.
    tx = optax.chain(optax.clip_by_global_norm(1e9), adafactor_t5x(0.01))

    @jax.jit
    def step(state):
        grads = jax.tree.map(lambda x: jnp.cos(jnp.arange(x.size)).reshape(x.shape), state.params)
        updates, opt_state = tx.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        return TrainState(state.step + 1, params, opt_state)

    state = TrainState.create(random_params(T5Config(**SIZES)), tx)
    for _ in range(3):
        state = step(state)
    with CheckpointStore(folder / "ours") as store:
        store.save(3, as_dict(state))
    (folder / "sizes.json").write_text(json.dumps(SIZES))
    subprocess.run(
        [UPSTREAM, SCRIPT, folder / "ours/checkpoint_3", folder / "sizes.json", folder],
        check=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    return step(state), folder


@pytest.mark.parametrize("form", ["orbax", "legacy"])
def test_a_step_of_upstream_on_our_checkpoint_is_our_own_step(upstream, form):
    ours, folder = upstream
    path = folder / form / "checkpoint_4"
    assert restore.stored_step(path) == 4
    theirs = restore.restore_state(path, jax.eval_shape(lambda: as_dict(ours)))
    assert int(theirs["opt_state"][1].count) == 4
    expected = as_dict(ours)
    assert_trees_close(theirs["params"], expected["params"], rtol=1e-5, atol=1e-7)
    for moment in ("m", "v", "v_row", "v_col"):
        found = getattr(theirs["opt_state"][1], moment)
        assert_trees_close(found, getattr(ours.opt_state[1], moment), rtol=1e-5, atol=1e-12)
    assert np.asarray(theirs["step"]).dtype == np.int32
