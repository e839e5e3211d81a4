"""Damage to a checkpoint is found, named with its file, and gives way to the one before."""

import json
import re
import shutil
import subprocess
import sys
import textwrap
import time
import types

import jax
import numpy as np
import pytest
from etils import epath

from ckl_jax.checkpoints import integrity as damage
from ckl_jax.checkpoints import layout, restore, store
from ckl_jax.checkpoints.restore import restore_params
from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.errors import UserError
from tests.checkpoints.helpers import abstract, assert_same


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("damage", ["truncate", "manifest", "metadata", "json", "item"])
def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(tmp_path, state, damage):
    with CheckpointStore(tmp_path) as s:
        s.save(1, state)
        s.save(2, state)
    folder = tmp_path / "checkpoint_2"
    if damage == "truncate":
        for file in (*folder.glob("state/d/*"), *folder.glob("state/ocdbt*/d/*")):
            file.write_bytes(file.read_bytes()[:-20])
    elif damage == "item":
        shutil.rmtree(folder / "state")
    else:
        name = {"manifest": "state/manifest.ocdbt", "metadata": "state/_METADATA"}
        (folder / name.get(damage, "dataset/metadata")).write_text("{")
    with pytest.warns(UserWarning, match="checkpoint_2 is damaged.*before it is used"):
        step, restored = s.restore(abstract(state))
    assert step == 1
    assert_same(restored, state)
    with pytest.raises(store.UnreadableCheckpoint, match="checkpoint_2 is damaged"):
        s.restore(state, step=2)
    with CheckpointStore(tmp_path) as s:
        s.save(2, state)
        assert s.restore(state)[0] == 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:.*before it is used")
def test_any_file_may_be_cut_short_or_lost(tmp_path, state):
    """Whatever happens to one file, what comes back is right or a checkpoint's error."""
    with CheckpointStore(tmp_path, checksum=True) as s:
        s.save(1, state)
    folder = tmp_path / "checkpoint_1"
    needed = {folder / "state/manifest.ocdbt", folder / "state/_METADATA"}
    noticed = set()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = file.read_bytes()
        flipped = bytearray(content)
        if content:
            flipped[len(content) // 2] ^= 4
        for damaged in (None, content[: len(content) // 2], bytes(flipped)):
            if damaged is None:
                file.unlink()
            else:
                file.write_bytes(damaged)
            try:
                assert_same(s.restore(abstract(state))[1], state)
            except store.UnreadableCheckpoint:
                noticed.add(file)
            file.write_bytes(content)
    assert needed <= noticed
    assert_same(s.restore(state)[1], state)


def test_flipped_bits_are_found_in_whatever_is_read(tmp_path, state):
    with CheckpointStore(tmp_path, keep=2) as s:
        s.save(1, state)
        s.save(2, state)
        assert_same(s.restore(state)[1], state)
        sums = s.metadata(2)["sha256"]
        assert sums.keys() == dict(layout.checkpoint_names(state)).keys()
        file = tmp_path / "checkpoint_2/metadata/metadata"
        name = next(name for name in sums if name.startswith("target/"))
        kind = sums[name].split(" ")[0]
        file.write_text(json.dumps({"sha256": {**sums, name: f"{kind} {'0' * 64}"}}))
        with pytest.raises(store.UnreadableCheckpoint, match=f"the checksum of {name} does not"):
            s.restore(state, 2)
        with pytest.raises(store.UnreadableCheckpoint, match=f"the checksum of {name} does not"):
            restore_params(tmp_path / "checkpoint_2")
        with pytest.warns(UserWarning, match="checksum"):
            assert s.restore(state)[0] == 1, "the last complete one instead"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_file_that_is_cut_short_or_gone_is_named_with_its_arrays(tmp_path):
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    state = {"params": {"a": {"x": draw(30, 30)}, "b": {"y": draw(20, 40), "z": draw(20, 20)}}}
    with CheckpointStore(tmp_path) as s:
        s.save(1, state)
    path = restore.absolute(tmp_path / "checkpoint_1")
    assert list(damage.cut_off(path)) == []
    file = max(tmp_path.rglob("d/*"), key=lambda f: f.stat().st_size)
    content, name = file.read_bytes(), str(file.relative_to(tmp_path / "checkpoint_1"))
    file.write_bytes(content[:1000])
    ends = f"its file {name} ends after 1,000 of at least [0-9,]+ bytes"
    with pytest.raises(store.UnreadableCheckpoint) as e:
        restore.restore_state(path, state)
    assert re.search(rf"\({ends}, which cuts off target/./.( and .*)?\); restore", str(e.value))
    file.unlink()
    with pytest.raises(store.UnreadableCheckpoint) as e:
        restore.restore_state(path, state)
    assert re.search(rf"\(its file {name}, which holds target/./.*, is missing\);", str(e.value))


# What TensorStore and others write when a file is broken, none of which is for users.
LIBRARY_TERMS = ("zarr", "OCDBT", "tensorstore", "JSONDecode", "Error", "line 1", "b-tree")
SPOILT = {
    "state/_METADATA": ("is missing", "is cut off or overwritten", "is empty"),
    "state/manifest.ocdbt": ("is missing", "cannot be read: Length in header", "is empty"),
    "state/d/*": ("is missing", "cannot be read: Requested byte range", "is empty"),
    "dataset/metadata": (None, "is cut off or overwritten", "is empty"),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("pattern", SPOILT)
def test_damage_is_one_sentence_with_the_file_and_what_to_do(tmp_path, state, pattern):
    with CheckpointStore(tmp_path) as s:
        s.save(1, state)
    (file,) = (tmp_path / "checkpoint_1").glob(pattern)
    content, name = file.read_bytes(), file.relative_to(tmp_path / "checkpoint_1")
    spoilt = (None, content[: len(content) // 2], b"")
    for damaged, told in zip(spoilt, SPOILT[pattern], strict=True):
        if told is None:  # a checkpoint without this file is whole
            continue
        file.unlink() if damaged is None else file.write_bytes(damaged)
        with pytest.raises(store.UnreadableCheckpoint) as e:
            s.restore(state, step=1)
        message = str(e.value)
        assert f"its file {name} {told}" in message
        assert message.endswith("; restore the folder, or use an earlier checkpoint.")
        assert not any(term in message for term in LIBRARY_TERMS), message
    file.write_bytes(content)
    assert_same(s.restore(state)[1], state)


def test_reads_that_orbax_gives_up_complain_to_nobody(tmp_path, state):
    with CheckpointStore(tmp_path) as s:
        s.save(1, state)
    (tmp_path / "checkpoint_1/state/manifest.ocdbt").write_bytes(b"0123456789" * 20)
    # Whether orbax's own futures complain now or when the process ends is chance; one more does.
    read = """
    import asyncio, sys
    from ckl_jax.checkpoints import restore
    try:
        restore.restore_params(sys.argv[1])
    except restore.UnreadableCheckpoint:
        asyncio.new_event_loop().create_future().set_exception(ValueError("given up"))
    """
    command = [sys.executable, "-c", textwrap.dedent(read), str(tmp_path / "checkpoint_1")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""


@pytest.mark.parametrize("value", ["{}", "[]", "3"])
def test_metadata_that_says_nothing_is_damage(tmp_path, state, value):
    with CheckpointStore(tmp_path) as s:
        s.save(1, state)
        s.save(2, state)
    (tmp_path / "checkpoint_2/metadata/metadata").write_text(value)
    with pytest.raises(store.UnreadableCheckpoint, match="metadata/metadata was overwritten;"):
        s.restore(state, step=2)
    with pytest.warns(UserWarning, match="checkpoint_2 is damaged"):
        assert s.restore(abstract(state))[0] == 1


@pytest.mark.parametrize(
    ("item", "field", "value"),
    [
        ("metadata", "vocabulary_digest", 3),
        ("metadata", "method", ["vanilla"]),
        ("metadata", "dense", 3),
        ("metadata", "side", 3),
        ("metadata", "side", [3]),
        ("metadata", "frozen_paths", [3]),
        ("metadata", "phase", "one"),
        ("metadata", "base_checkpoint", {}),
        ("metadata", "sha256", dict.fromkeys(map(str, range(99)), 3)),
        ("metadata", "sha256", None),
        ("metadata", "metrics", {"loss": "low"}),
        ("metadata", "phase", None),
        ("dataset", "next_step", "1"),
        ("dataset", "train_seconds", []),
    ],
)
def test_an_item_of_another_type_is_damage(tmp_path, state, item, field, value):
    with CheckpointStore(tmp_path) as s:
        s.save(1, state)
    file = tmp_path / "checkpoint_1" / item / "metadata"
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {field: value}))
    said = rf"checkpoint_1 is damaged: its file {item}/metadata: the field '{field}' has"
    with pytest.raises(store.UnreadableCheckpoint, match=said) as e:
        restore.read_json_item(epath.Path(tmp_path / "checkpoint_1"), item)
    assert len(str(e.value)) < 300 + len(str(tmp_path))
    file.write_text("3")
    with pytest.raises(store.UnreadableCheckpoint, match=f"damaged: its file {item}/metadata"):
        restore.read_json_item(epath.Path(tmp_path / "checkpoint_1"), item)


def test_a_newer_versions_checkpoint_is_told(tmp_path, state):
    with CheckpointStore(tmp_path) as s:
        s.save(1, state)
    file = tmp_path / "checkpoint_1/metadata/metadata"
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {"ckl_jax": "1.0"}))
    with pytest.raises(UserError, match="checkpoint_1 was written by ckl_jax 1.0, which is newer"):
        restore_params(tmp_path / "checkpoint_1")


@pytest.mark.parametrize("value", [-1, "x", "3"])
def test_a_sharding_that_is_none_is_damage(tmp_path, state, value):
    with CheckpointStore(tmp_path) as s:
        s.save(1, jax.device_put(state, jax.devices()[1]))  # sharded arrays alone have one
    file = tmp_path / "checkpoint_1/state/_sharding"
    file.write_text(json.dumps(dict.fromkeys(json.loads(file.read_bytes()), value)))
    with pytest.raises(
        store.UnreadableCheckpoint, match="its file state/_sharding was overwritten"
    ):
        restore_params(tmp_path / "checkpoint_1")


def test_what_the_system_refuses_to_read_is_damage_too(tmp_path, state):
    with CheckpointStore(tmp_path) as s:
        s.save(1, state)
    file = tmp_path / "checkpoint_1/dataset/metadata"
    file.unlink()
    file.mkdir()  # as a permission that is lacking, but also for root
    refused = "its file dataset/metadata cannot be read: Is a directory; restore"
    with pytest.raises(store.UnreadableCheckpoint, match=refused):
        s.restore(state, step=1)


def test_the_reason_for_damage_holds_no_repr_and_is_cut_between_words(tmp_path):
    long = "Error reading a very long path " * 20
    start = f'DATA_LOSS: Error opening "zarr" driver: Error reading "a" at local file "{tmp_path}'
    (tmp_path / "full").write_text("x")
    for text, told in (
        ("Cannot read x: <bound method pybind11.read of <object>>", "read: Cannot read x);"),
        (f"{long}\nsecond line", "Error ...);"),
        (
            f'{start}/full": Error decoding b: CRC failed: expected=1; at byte 3 '
            "[tensorstore_spec='{}']",
            "(its file full cannot be read: CRC failed);",
        ),
        (f'{start}/gone" [source locations=x]', "(its file gone is missing);"),
    ):
        with pytest.raises(UserError) as e, restore._damage(restore.absolute(tmp_path)):
            raise ValueError(text)
        assert told in str(e.value) and "<" not in str(e.value) and len(str(e.value)) < 450
    with pytest.raises(UserError, match="KeyError: 'shape'"), restore._damage(tmp_path):
        raise KeyError("shape")


def test_reads_that_are_given_up_say_nothing(tmp_path, monkeypatch):
    """Where one array cannot be read, those that were being read beside it complain later."""
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    params = {f"layer_{i}": np.full((64, 64), i, np.float32) for i in range(40)}
    with CheckpointStore(str(tmp_path)) as saved:
        saved.save(0, {"params": params, "step": np.zeros((), np.int32)}, {})
    for file in (tmp_path / "checkpoint_0" / "state" / "d").iterdir():
        file.write_bytes(b"{" + file.read_bytes()[1:])
    with pytest.raises(store.UnreadableCheckpoint, match="damaged or incomplete"):
        restore_params(tmp_path)
    time.sleep(0.2)
    assert not told
    hook = sys.unraisablehook
    with pytest.raises(store.UnreadableCheckpoint):
        restore_params(tmp_path)
    assert sys.unraisablehook is hook  # installed once
    hook(types.SimpleNamespace(exc_value="another"))
    assert len(told) == 1
