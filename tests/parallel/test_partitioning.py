"""How parameters, optimizer state and activations are split: a golden table, and compiled steps."""

import difflib
import math
import re

import jax
import numpy as np
import pytest

from ckl_jax.errors import UserError
from ckl_jax.parallel import mesh as meshes
from tests.parallel import compiled_step, partition_table


@pytest.mark.slow
def test_every_parameter_and_moment_is_split_as_the_table_says():
    expected, found = partition_table.GOLDEN.read_text(), partition_table.table()
    diff = list(difflib.unified_diff(expected.splitlines(), found.splitlines(), lineterm="", n=0))
    assert not diff, "python -m tests.parallel.partition_table, and look at:\n" + "\n".join(
        diff[:30]
    )


def test_moments_of_a_square_parameter_keep_their_own_axis():
    mesh = jax.sharding.AbstractMesh((2, 2, 2), meshes.MESH_AXES)
    params = {"w": jax.ShapeDtypeStruct((8, 8), "float32")}
    sharding = {"w": jax.NamedSharding(mesh, jax.P("fsdp", "model"))}
    vector = {"w": jax.ShapeDtypeStruct((8,), "float32")}
    state = {"v_row": vector, "v_col": vector, "count": jax.ShapeDtypeStruct((), "int32")}
    found = meshes.like_params(state, params, sharding, mesh)
    assert found["v_row"]["w"].spec == jax.P("fsdp")
    assert found["v_col"]["w"].spec == jax.P("model")
    assert found["count"].spec == jax.P()


def test_t5x_shapes_of_slices_are_understood():
    partitioner = meshes.Partitioner(ici_mesh_shape=(2, 2, 2))
    assert dict(partitioner.mesh.shape) == {"data": 4, "fsdp": 1, "model": 2}
    with pytest.raises(UserError, match="dcn_mesh_shape is of 3 slices; the 8 devices"):
        _ = meshes.Partitioner(ici_mesh_shape=(1, 1), dcn_mesh_shape=(3, 1)).mesh
    with pytest.raises(UserError, match=r"\(replica, data, model\), not \(1,\)"):
        _ = meshes.Partitioner(ici_mesh_shape=(1,)).mesh
    with pytest.raises(UserError, match="num_partitions and dcn_mesh_shape exclude"):
        meshes.Partitioner(num_partitions=2, dcn_mesh_shape=(2, 1))


@pytest.fixture(scope="module")
def compiled():
    """A train step compiled for a mesh of 2 x 2 x 2 devices, and its abstract state."""
    return compiled_step.compile_step({"data": 2, "fsdp": 2, "model": 2}, (1, 1))


@pytest.mark.slow
def test_no_device_holds_activations_of_the_whole_batch(compiled):
    found = set(re.findall(r"f32\[([\d,]+)\]", compiled[0].as_text()))
    shapes = [tuple(map(int, s.split(","))) for s in found]
    batch, width, vocab, mlp = 24, 16, 448, 96
    shapes = [s for s in shapes if len(s) == 3]
    of_batch = [s for s in shapes if batch in s]
    # The embedding is looked up for all rows, of a slice of the width.
    assert all(math.prod(s) * 4 <= batch * 10 * width for s in of_batch), of_batch
    parts, model = 4, 2
    logits = [s for s in shapes if s[1] == 6 and s[2] in (vocab, vocab // 2)]
    hidden = [s for s in shapes if s[1] in (10, 6) and s[2] in (mlp, mlp // 2)]
    assert logits and all(s[0] == batch // parts and s[2] == vocab // model for s in logits)
    assert hidden and all(s[0] == batch // parts and s[2] == mlp // model for s in hidden)


@pytest.mark.slow
def test_each_device_holds_its_part_of_parameters_and_optimizer_state(compiled):
    step, state = compiled
    whole, of_one = compiled_step.bytes_of(state)
    # Matrices are in 4 parts, by fsdp and model; relative positions and norms in fewer.
    assert whole / 4 < of_one < 1.1 * whole / 4
    batch = (24 // 4) * (10 + 3 * 6) * 4
    assert abs(step.memory_analysis().argument_size_in_bytes - of_one - batch) < 64


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        ({"data": 2}, [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ({"fsdp": 2}, [[0, 1, 4, 5], [2, 3, 6, 7]]),
    ],
)
def test_slices_are_the_outer_part_of_an_axis(slices, expected):
    mesh = meshes.Partitioner(ici_mesh_shape={"data": 2, "fsdp": -1}, dcn_mesh_shape=slices)
    ids = np.vectorize(lambda d: d.id)(mesh.mesh.devices)
    assert ids[:, :, 0].tolist() == expected


@pytest.mark.parametrize(("rows", "spec"), [(16, jax.P(("data", "fsdp"))), (3, jax.P())])
def test_rows_that_do_not_divide_are_on_every_device(rows, spec):
    batch = {"x": np.arange(2.0 * rows, dtype=np.float32).reshape(rows, 2)}
    found = meshes.Partitioner(mesh_shape={"data": 4, "fsdp": 2}).put_whole(batch)["x"]
    assert found.sharding.spec == spec
    np.testing.assert_array_equal(found, batch["x"])
