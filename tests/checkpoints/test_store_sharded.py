"""Sharded arrays: saved on one mesh, restored on another; several processes write one folder."""

import os
import socket
import subprocess
import sys
import textwrap

import pytest

from tests.xla_flags import xla_flags

HEADER = """
import sys
import jax, jax.numpy as jnp, numpy as np, optax
from ckl_jax import __version__
from ckl_jax.checkpoints.layout import tree_digest
from ckl_jax.checkpoints.restore import restore_params
from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.parallel import processes
from ckl_jax.parallel.mesh import Partitioner

def make_state(mesh_shape):
    p = Partitioner(mesh_shape=mesh_shape)
    shapes = {"w": jax.ShapeDtypeStruct((16, 8), jnp.float32)}
    shardings = p.params_shardings({"w": ("embed", "mlp")}, shapes)
    tx = optax.adam(1e-3)
    state = jax.eval_shape(tx.init, shapes)
    out = p.state_shardings(state, shapes, shardings)
    init = jax.jit(lambda: {"w": jnp.arange(128.0).reshape(16, 8)}, out_shardings=shardings)
    params = init()
    opt_state = jax.jit(tx.init, out_shardings=out)(params)
    rng = jax.random.key(1)
    return p, {"params": params, "opt_state": opt_state, "step": jnp.int32(3), "rng": rng}
"""


def start(code: str, devices: int, *argv: str) -> subprocess.Popen:
    env = os.environ | {"XLA_FLAGS": xla_flags(devices), "JAX_PLATFORMS": "cpu"}
    program = HEADER + textwrap.dedent(code)
    return subprocess.Popen(
        [sys.executable, "-c", program, *argv], env=env, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen) -> None:
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err[-3000:]


def test_a_checkpoint_of_one_mesh_is_restored_on_another(tmp_path):
    code = """
        _, saved = make_state({"fsdp": -1})
        digest = tree_digest(saved)
        with CheckpointStore(sys.argv[1], checksum=True) as s:
            s.save(1, saved)
            for sizes in ({"model": -1}, {"data": 2, "fsdp": 2, "model": 2}, None):
                p, like = make_state(sizes)
                abstract = jax.tree.map(
                    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), like)
                _, restored = s.restore(abstract)
                assert tree_digest(restored) == digest
                assert restored["params"]["w"].sharding == like["params"]["w"].sharding
                assert restored["opt_state"][0].mu["w"].sharding == like["params"]["w"].sharding
    """
    finish(start(code, 8, str(tmp_path)))


@pytest.mark.slow
def test_two_processes_write_and_read_one_folder(tmp_path):
    code = """
        index, address, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
        processes.initialize(address, 2, index, 60)
        p, state = make_state({"fsdp": -1})
        with CheckpointStore(folder, keep=1) as s:
            for step in (1, 2, 2):
                s.save(step, state, {"step": step}, {"next_step": step})
            step, restored = s.restore(state)
        assert step == 2 and s.all_steps() == [2]
        assert s.metadata() == {"ckl_jax": __version__, "step": 2}
        for key in ("params", "opt_state", "step"):
            for a, b in zip(jax.tree.leaves(restored[key]), jax.tree.leaves(state[key])):
                for x, y in zip(a.addressable_shards, b.addressable_shards):
                    np.testing.assert_array_equal(x.data, y.data)
        assert (jax.random.key_data(restored["rng"]) == jax.random.key_data(state["rng"])).all()
        rows = p.put_batch({"x": np.full((4, 3), index, np.int32)})["x"]
        assert rows.shape == (8, 3)
    """
    with socket.socket() as s:
        s.bind(("localhost", 0))
        address = f"localhost:{s.getsockname()[1]}"
    children = [start(code, 2, str(i), address, str(tmp_path)) for i in range(2)]
    for child in children:
        finish(child)
