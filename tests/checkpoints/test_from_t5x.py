"""Checkpoints that upstream T5X wrote in its legacy form come back as they were."""

import json
import zipfile

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tensorstore as ts
from flax import serialization
from jax.sharding import NamedSharding, PartitionSpec

from ckl_jax.checkpoints import from_t5x, restore
from ckl_jax.errors import UserError
from ckl_jax.optim.adafactor import adafactor_t5x
from ckl_jax.train.state import TrainState
from ckl_jax.trees.paths import flatten, unflatten
from tests.parity.golden import packing
from tests.parity.golden_t5 import GOLDEN


@pytest.fixture
def folder(tmp_path):
    with zipfile.ZipFile(GOLDEN / "t5x_legacy.zip") as archive:
        archive.extractall(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def content():
    with np.load(GOLDEN / "t5x_legacy.npz") as stored:
        return packing.unpack(stored)


def params_of(content):
    return {k.removeprefix("target/"): v for k, v in content.items() if k.startswith("target/")}


def test_parameters_come_from_the_index_and_from_zarr_folders(folder, content):
    leaves = from_t5x.legacy_leaves(restore.absolute(folder / "checkpoint_3"))
    assert leaves.keys() == content.keys()
    found = flatten(restore.restore_params(folder))
    expected = params_of(content)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(found[name], value.astype(ml_dtypes.bfloat16), err_msg=name)
    in_index = (folder / "checkpoint_3" / "checkpoint").stat().st_size
    assert in_index > 0 and (folder / "checkpoint_3/target.token_embedder.embedding").is_dir()


def test_a_model_folder_counts_the_checkpoint_and_keeps_its_step(folder):
    assert restore.complete_steps(folder) == [3]
    assert restore.is_checkpoint(folder / "checkpoint_3")
    assert not restore.is_checkpoint(folder)
    assert restore.stored_step(folder) == 3


def test_the_optimizer_state_continues(folder, content):
    params = unflatten({k: jnp.zeros(v.shape) for k, v in params_of(content).items()})
    state = TrainState.create(params, adafactor_t5x(0.01))
    like = {"step": state.step, "params": params, "opt_state": state.opt_state}
    restored = restore.restore_state(folder / "checkpoint_3", jax.eval_shape(lambda: like))
    assert int(restored["step"]) == 3
    assert int(restored["opt_state"].count) == 3
    moved = 0
    for moment in ("m", "v", "v_row", "v_col"):
        for name, value in flatten(getattr(restored["opt_state"], moment)).items():
            np.testing.assert_array_equal(value, content[f"state/param_states/{name}/{moment}"])
            moved += bool(np.any(value))
    assert moved == len(params_of(content))


def test_arrays_are_put_where_the_model_wants_them(folder, content):
    mesh = jax.make_mesh((1,), ("model",))
    where = NamedSharding(mesh, PartitionSpec("model"))
    like = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, jnp.float32, sharding=where),
        unflatten(params_of(content)),
    )
    found = flatten(restore.restore_params(folder, like))
    assert all(x.sharding == where and x.dtype == jnp.float32 for x in found.values())
    name = "token_embedder/embedding"
    half = params_of(content)[name].astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(found[name], half.astype(np.float32))


def rewrite(folder, change):
    """Changes the content of the index."""
    file = folder / "checkpoint_3" / "checkpoint"
    content = serialization.msgpack_restore(file.read_bytes())
    change(content)
    file.write_bytes(serialization.msgpack_serialize(content))


@pytest.mark.parametrize("driver", ["gfile", "gcs"])
def test_it_does_not_matter_where_it_was_written(folder, content, driver):
    def change(tree):
        kvstore = tree["optimizer"]["target"]["token_embedder"]["embedding"]["kvstore"]
        kvstore.update(driver=driver, bucket="t5x-dummy-bucket")

    rewrite(folder, change)
    name = "token_embedder/embedding"
    found = flatten(restore.restore_params(folder))[name]
    np.testing.assert_array_equal(found, params_of(content)[name].astype(ml_dtypes.bfloat16))
    there = restore.absolute("gs://bucket/runs/checkpoint_3")
    address = {"driver": "gcs", "bucket": "bucket", "path": "runs/checkpoint_3/target.a/"}
    assert from_t5x.kvstore(there, "target.a") == address


def test_bfloat16_in_integers_is_understood(folder):
    where = "target.token_embedder.embedding"
    bits = np.arange(16, dtype=ml_dtypes.bfloat16).reshape(4, 4)
    store = ts.open(
        {
            "driver": "zarr",
            "kvstore": f"file://{folder}/checkpoint_3/{where}/",
            "metadata": {"dtype": "<u2", "shape": [4, 4]},
        },
        create=True,
        delete_existing=True,
    ).result()
    store.write(bits.view(np.uint16)).result()

    def change(tree):
        tree["version"] = 2
        tree["optimizer"]["target"]["token_embedder"]["embedding"]["dtype"] = "uint16"

    rewrite(folder, change)
    found = flatten(restore.restore_params(folder))["token_embedder/embedding"]
    np.testing.assert_array_equal(found, bits)


@pytest.mark.parametrize("version", [1, 4])
def test_other_versions_are_refused(folder, version):
    rewrite(folder, lambda tree: tree.update(version=version))
    with pytest.raises(UserError, match=f"of T5X's version {version}; versions 2 to 3"):
        restore.restore_params(folder)


@pytest.mark.parametrize("path", ["/etc/passwd", "../../x", ""])
def test_a_path_out_of_the_folder_is_refused(folder, path):
    def change(tree):
        tree["optimizer"]["target"]["token_embedder"]["embedding"]["kvstore"]["path"] = path

    rewrite(folder, change)
    with pytest.raises(restore.UnreadableCheckpoint, match="outside the checkpoint"):
        restore.restore_params(folder)


@pytest.mark.parametrize(
    "damage, told",
    [
        ("index", "its file checkpoint is cut off or overwritten"),
        ("no index", "its file 'checkpoint', T5X's index of its arrays, is missing"),
        ("folder", "its file target.token_embedder.embedding/.zarray is missing"),
        ("header", "its file target.token_embedder.embedding/.zarray cannot be read: Invalid JSON"),
        ("chunk", "its file target.token_embedder.embedding/0.0 cannot be read: Not enough data"),
    ],
)
def test_damage_is_named(folder, damage, told):
    checkpoint = folder / "checkpoint_3"
    array = checkpoint / "target.token_embedder.embedding"
    if damage == "index":
        file = checkpoint / "checkpoint"
        file.write_bytes(file.read_bytes()[:-30])
    elif damage == "no index":
        (checkpoint / "checkpoint").unlink()
    elif damage == "folder":
        for file in array.iterdir():
            file.unlink()
    else:
        file = array / (".zarray" if damage == "header" else "0.0")
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(restore.UnreadableCheckpoint, match="checkpoint_3 is damaged") as e:
        restore.restore_params(folder)
    assert told in str(e.value) and "driver" not in str(e.value)
    assert str(e.value).endswith("; restore the folder, or use an earlier checkpoint.")


def test_the_stored_values_say_where_they_come_from():
    with np.load(GOLDEN / "t5x_legacy.npz") as stored:
        assert json.loads(str(stored["provenance"]))["t5x"] == "cc342d4"
