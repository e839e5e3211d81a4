"""Meshes and shardings."""

import collections
import types

import jax
import numpy as np
import optax
import pytest
from flax import linen as nn
from flax.linen import partitioning

from ckl_jax.errors import UserError
from ckl_jax.parallel import mesh as meshes


@pytest.mark.parametrize(
    "sizes, expected",
    [
        (None, (8, 1, 1)),
        ({"model": 2}, (4, 1, 2)),
        ({"fsdp": -1}, (1, 8, 1)),
        ({"data": 2, "fsdp": -1, "model": 2}, (2, 2, 2)),
        ((2, 4, 1), (2, 4, 1)),
    ],
)
def test_one_size_fills_the_rest(sizes, expected):
    assert meshes.mesh_sizes(sizes, 8) == expected


@pytest.mark.parametrize(
    "sizes, message",
    [
        ({"model": 3}, "MESH_SHAPE is {'model': 3}"),
        ({"data": -1, "fsdp": -1}, "at most one is -1"),
        ({"modle": 2}, "Did you mean 'model'"),
        ({"data": 2}, "does not use up the 8 devices"),
        ((2, 4), "one size for each"),
        ({"data": 0}, "positive"),
    ],
)
def test_wrong_sizes_say_why(sizes, message):
    with pytest.raises(UserError, match=message):
        meshes.mesh_sizes(sizes, 8)


def test_rules_give_the_specs_of_t5x_and_fsdp():
    spec = meshes.partition_spec
    rules = meshes.standard_logical_axis_rules()
    assert spec(("embed", "mlp"), rules) == jax.P("fsdp", "model")
    assert spec(("vocab", "embed"), rules) == jax.P("model", "fsdp")
    assert spec(("heads", "relpos_buckets"), rules) == jax.P("model", None)
    assert spec(("batch", "length", "embed"), rules) == jax.P(("data", "fsdp"), None, None)
    rules = meshes.standard_logical_axis_rules(2, 2)
    assert spec(("embed", "mlp"), rules) == jax.P(("data", "fsdp"), "model")
    assert spec(("batch", "length", "embed"), rules) == jax.P(("data", "fsdp"), None, "model")
    rules = meshes.standard_logical_axis_rules(additional_rules=[("mlp", None)])
    assert spec(("embed", "mlp"), rules) == jax.P("fsdp", None)


def test_unknown_logical_name_is_an_error_with_the_nearest():
    with pytest.raises(UserError, match="logical axis 'embde'.*Did you mean 'embed'"):
        meshes.partition_spec(("embde",), meshes.standard_logical_axis_rules())


def test_parameter_without_axes_is_named():
    mesh = meshes.build_mesh(devices=jax.devices()[:1])
    shapes = {"a": {"kernel": jax.ShapeDtypeStruct((4, 8), "float32")}}
    rules = meshes.standard_logical_axis_rules()
    with pytest.raises(UserError, match="a/kernel has no logical axis"):
        meshes.logical_to_shardings(mesh, rules, {"a": {}}, shapes)
    with pytest.raises(UserError, match="a/kernel has 2 dimensions"):
        meshes.logical_to_shardings(mesh, rules, {"a": {"kernel": ("embed",)}}, shapes)


def test_partitioner_takes_one_way_of_saying_the_mesh():
    with pytest.raises(UserError, match="num_partitions and mesh_shape"):
        meshes.Partitioner(num_partitions=2, mesh_shape={"model": 2})


def test_eight_devices_shard_and_compute_what_one_does():
    class Mlp(nn.Module):
        @nn.compact
        def __call__(self, x):
            param = partitioning.param_with_axes
            init = nn.initializers.normal()
            w = param("wi", init, (16, 32), axes=("embed", "mlp"))
            v = param("wo", init, (32, 16), axes=("mlp", "embed"))
            x = nn.with_logical_constraint(x, ("batch", "embed"))
            return jax.nn.relu(x @ w) @ v

    x = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)
    model, tx = Mlp(), optax.adam(1e-3)
    variables = jax.eval_shape(model.init, jax.random.key(0), x)
    axes = meshes.params_logical_axes(variables)
    losses = []
    for sizes in (None, {"fsdp": -1}, {"model": 4}, {"data": 2, "fsdp": 2, "model": 2}):
        p = meshes.Partitioner(mesh_shape=sizes)
        shardings = p.params_shardings(axes, variables["params"])
        state = jax.eval_shape(tx.init, variables["params"])
        state_shardings = p.state_shardings(state, variables["params"], shardings)
        assert state_shardings[0].mu["wi"] == shardings["wi"]
        assert state_shardings[0].count == p.replicated
        with jax.set_mesh(p.mesh), nn.logical_axis_rules(p.rules):
            init = jax.jit(lambda key: model.init(key, x)["params"], out_shardings=shardings)
            params = init(jax.random.key(0))
            batch = p.put_batch({"x": x})
            loss = jax.jit(lambda w, b: (model.apply({"params": w}, b["x"]) ** 2).sum())
            losses.append(float(loss(params, batch)))
        local = params["wi"].addressable_shards[0].data.shape
        assert local == (16 // p.mesh.shape["fsdp"], 32 // p.mesh.shape["model"])
    np.testing.assert_allclose(losses, losses[0], rtol=1e-5)

    p = meshes.Partitioner(mesh_shape={"fsdp": -1})
    with pytest.raises(UserError, match="Parameter w.*size 12.*8 parts"):
        p.params_shardings({"w": ("embed",)}, {"w": jax.ShapeDtypeStruct((12,), "float32")})
    with pytest.raises(UserError, match="BATCH_SIZE 12"):
        p.check_batch_size(12)
    shape = dict(meshes.Partitioner(num_partitions=2).mesh.shape)
    assert shape == {"data": 4, "fsdp": 1, "model": 2}


def test_one_process_reads_every_row():
    p = meshes.Partitioner(mesh_shape={"data": 2, "fsdp": 2, "model": 2})
    np.testing.assert_array_equal(p.process_rows(8), np.arange(8))
    assert p.data_shard() == (0, 1)
    batch = {"x": np.arange(24).reshape(8, 3)}
    np.testing.assert_array_equal(p.put_batch(batch)["x"], batch["x"])
    with pytest.raises(UserError, match="BATCH_SIZE 6 does not divide into 4 parts"):
        p.process_rows(6)


_Device = collections.namedtuple("_Device", ("process_index", "id"))


@pytest.mark.parametrize(
    ("processes", "shard"),
    [
        ([[0, 0], [1, 1]], (1, 2)),  # of two devices each: [data, model] of processes
        ([[0, 1], [0, 1]], (0, 1)),  # `model` joins them: both read all
        ([[0, 1], [2, 3]], (0, 2)),
        ([[0, 0, 1], [1, 2, 2]], None),
    ],
)
def test_processes_that_hold_the_same_rows_read_the_same_shard(processes, shard, monkeypatch):
    rows = len(processes)
    held = {
        _Device(process, (i, j)): (slice(i, i + 1),)
        for i, row in enumerate(processes)
        for j, process in enumerate(row)
    }
    sharding = types.SimpleNamespace(devices_indices_map=lambda shape: held)
    monkeypatch.setattr(meshes.Partitioner, "batch_sharding", sharding)
    monkeypatch.setattr(meshes.Partitioner, "batch_parts", rows)
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    if shard is None:
        with pytest.raises(UserError, match="gives two processes some rows of a batch in common"):
            meshes.Partitioner().data_shard()
    else:
        assert meshes.Partitioner().data_shard() == shard
