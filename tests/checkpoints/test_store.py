"""Checkpoints come back bit for bit, say what does not fit, and survive kills."""

import copy
import errno
import json
import resource
import signal
import subprocess
import sys
import textwrap
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ckl_jax.checkpoints import layout, store
from ckl_jax.checkpoints.layout import to_t5x_tree, tree_digest
from ckl_jax.checkpoints.restore import restore_params
from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.errors import UserError
from ckl_jax.optim.adafactor import adafactor_t5x
from tests.checkpoints.helpers import abstract, assert_same


def test_a_state_with_optax_tuples_and_a_key_returns_bit_for_bit(tmp_path, state):
    with CheckpointStore(tmp_path) as s:
        s.save(7, state, {"scan_layers": True}, {"next_step": 7})
        step, restored = s.restore(state)
    assert step == 7
    assert_same(restored, state)
    assert restored["opt_state"][1][0].count.sharding == state["step"].sharding
    assert s.metadata()["scan_layers"] is True
    assert s.dataset(7) == {"next_step": 7}
    step, on_host = s.restore(abstract(state))
    assert_same(on_host, state)
    assert isinstance(on_host["params"]["encoder"]["kernel"], np.ndarray)


def test_a_train_state_record_returns_as_one(tmp_path):
    from ckl_jax.train.state import TrainState

    record = TrainState.create({"a": jnp.ones(3)}, optax.adam(1e-3))
    with CheckpointStore(tmp_path) as s:
        s.save(0, record)
        _, restored = s.restore(record)
    assert isinstance(restored, TrainState)
    assert_same(restored, record)
    np.testing.assert_array_equal(restore_params(tmp_path)["a"], np.ones(3))


def test_disk_layout_is_that_of_t5x(tmp_path, state):
    with CheckpointStore(tmp_path) as s:
        s.save(7, state)
    folder = tmp_path / "checkpoint_7"
    assert {"state", "dataset", "metadata"} <= {p.name for p in folder.iterdir()}
    tree = json.loads((folder / "state" / "_METADATA").read_text())["tree_metadata"]
    assert "('target', 'encoder', 'kernel')" in tree
    assert "('state', 'step')" in tree
    assert "('state', 'param_states', '1', '0', 'mu', 'encoder', 'kernel')" in tree


def test_saved_arrays_may_be_donated_at_once(tmp_path):
    def move(x):
        return jax.tree.map(lambda a: a * 2 + 1, x)

    step_fn = jax.jit(move, donate_argnums=0)
    x = {"params": {str(i): jnp.full((512, 1024), float(i)) for i in range(8)}}
    host = np.ones(4)
    with CheckpointStore(tmp_path) as s:
        for step in range(4):
            expected = tree_digest(x["params"])
            s.save(step, x | {"host": host}, {"digest": expected})
            host += 1
            for _ in range(3):
                x = step_fn(x)
        for step in range(4):
            s.wait()
            params = restore_params(tmp_path / f"checkpoint_{step}")
            assert tree_digest(params) == s.metadata(step)["digest"]
        assert s.restore({**x, "host": host}, step=0)[1]["host"].tolist() == [1.0] * 4


def test_a_save_without_copies_writes_the_arrays_from_where_they_lie(tmp_path):
    params = {f"kernel_{i}": np.full((64, 32), i, np.float32) for i in range(4)}
    state = {"params": params, "step": np.int32(0)}
    for copied in (True, False):
        # Orbax copies host arrays by `deepcopy` before it writes them.
        written = copy.deepcopy(to_t5x_tree(state, copied))["target"]["kernel_3"]
        assert np.shares_memory(written, params["kernel_3"]) != copied
        with CheckpointStore(tmp_path / str(copied)) as opened:
            opened.save(0, state, copy=copied)
        assert tree_digest(restore_params(tmp_path / str(copied))) == tree_digest(params)


def test_misfit_names_both_lists_and_shapes(tmp_path, state):
    with CheckpointStore(tmp_path) as s:
        s.save(1, state)
        other = abstract(state)
        other["params"]["lora"] = {str(i): jnp.zeros(1) for i in range(29)}
        del other["params"]["decoder"]
        other["params"]["encoder"] = {"kernel": jax.ShapeDtypeStruct((2, 4), "float32")}
        other["step"] = jax.ShapeDtypeStruct((), "float32")
        with pytest.raises(UserError) as e:
            s.restore(other)
    message = str(e.value)
    assert "missing in it (29): target/lora/0," in message
    assert "and 9 more" in message
    assert "in it but not expected (1): target/decoder/bias" in message
    assert "target/encoder/kernel (saved float32[2, 3], expected float32[2, 4])" in message
    assert "state/step (saved int32[], expected float32[])" in message


def test_no_checkpoint_is_none_or_a_sentence(tmp_path, state):
    s = CheckpointStore(tmp_path / "new")
    assert s.restore(state) is None
    assert s.latest_step() is None
    assert not (tmp_path / "new").exists()
    with pytest.raises(UserError, match="There is no checkpoint .*checkpoint_3"):
        s.restore(state, step=3)
    with pytest.raises(UserError, match="No checkpoint at .*no such folder"):
        restore_params(tmp_path / "nowhere")


def test_params_alone_from_a_model_folder(tmp_path, state):
    with CheckpointStore(tmp_path) as s:
        s.save(3, state)
        s.save(12, state | {"params": jax.tree.map(lambda x: x + 1, state["params"])})
    params = restore_params(tmp_path)
    np.testing.assert_array_equal(
        params["encoder"]["kernel"], state["params"]["encoder"]["kernel"] + 1
    )
    like = {"encoder": {"kernel": jax.ShapeDtypeStruct((2, 3), "bfloat16")}}
    with pytest.raises(UserError, match="not expected .1.: target/decoder/bias"):
        restore_params(tmp_path, like)
    half = restore_params(tmp_path, like, strict=False)
    assert half["encoder"]["kernel"].dtype == jnp.bfloat16


def test_keep_removes_the_oldest(tmp_path, state):
    with CheckpointStore(tmp_path, keep=2) as s:
        for step in (0, 5, 10, 15):
            s.save(step, state)
            assert len(s.all_steps()) <= 3
    assert s.all_steps() == [10, 15]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint_10", "checkpoint_15"]


@pytest.mark.parametrize(("mode", "best"), [("max", 4), ("min", 1)])
def test_the_best_stays_besides_the_newest(tmp_path, state, mode, best):
    values = {1: 0.1, 2: 0.3, 3: np.nan, 4: 0.3, 5: None, 6: 0.2, 7: 0.25}
    rule = store.KeepBest("inference_eval/lama/em", mode)
    for step, value in values.items():  # each process is a new one
        with CheckpointStore(tmp_path, keep=2, keep_best=rule) as s:
            metrics = {} if value is None else {rule.metric: value, "other": -step}
            s.save(step, state, {"scan_layers": False}, metrics=metrics)
    assert s.all_steps() == [best, 6, 7]
    assert s.latest_step() == 7
    assert s.metadata(best)["metrics"][rule.metric] == values[best]
    assert s.metadata(best)["scan_layers"] is False
    with pytest.raises(UserError, match="'max' or 'min'"):
        store.KeepBest("em", "most")
    with pytest.raises(UserError, match="KeepBest.patience is 0; give 1 or more"):
        store.KeepBest("em", patience=0)
    with pytest.raises(UserError, match="KeepBest.threshold is nan; give 0 or more"):
        store.KeepBest("em", threshold=np.nan)


@pytest.mark.parametrize(
    ("values", "mode", "over"),
    [
        ([], "max", False),
        ([5, 5], "max", False),  # one that is not better
        ([5, 5, 4], "max", True),
        ([5, 4, 6, 6], "max", False),  # better in between
        ([5, 6, 7], "min", True),
        ([5, np.nan, np.nan], "max", True),
        ([5, 5.4, 5.8], "max", True),  # each by less than the threshold
        ([5, 5.4, 6.0], "max", False),  # by more than it over the best, 5.4
    ],
)
def test_a_training_is_over_after_enough_evaluations_that_are_not_better(values, mode, over):
    assert store.KeepBest("em", mode, patience=2, threshold=0.5).is_over(values) == over
    assert not store.KeepBest("em", mode).is_over(values)


def test_an_amended_checkpoint_is_written_as_a_saved_one(tmp_path, state):
    metrics, paths = {"words": 3, "loss": np.float32(0.5)}, (tmp_path / "a", tmp_path / "b")
    for path in paths:
        with CheckpointStore(path) as s:
            s.save(1, state, metrics=metrics if path.name == "a" else {"loss": 2})
    with CheckpointStore(paths[1]) as s:
        s.amend(1, metrics, s.dataset(1))
    one, other = ((p / "checkpoint_1/metadata/metadata").read_text() for p in paths)
    assert json.loads(one)["metrics"] == {"words": 3.0, "loss": 0.5}
    assert repr(json.loads(one)) == repr(json.loads(other))  # 3 == 3.0


def test_saving_a_step_again_replaces_it(tmp_path, state):
    with CheckpointStore(tmp_path) as s:
        s.save(0, state, {"try": 1})
        s.save(0, state, {"try": 2})
    assert s.metadata(0)["try"] == 2
    with CheckpointStore(tmp_path) as s:
        s.save(5, state)
    assert s.all_steps() == [0, 5]


# Orbax's reader leaves callbacks of a closed event loop behind when a file is broken.
def test_adafactor_has_the_names_of_t5x_and_earlier_ones_are_understood(tmp_path, monkeypatch):
    params = {"embedding": jnp.ones((128, 128)), "scale": jnp.arange(3.0)}
    tx = optax.chain(optax.clip(1.0), adafactor_t5x(0.1))
    opt_state = tx.init(params)
    for _ in range(2):
        _, opt_state = tx.update(params, opt_state, params)
    state = {"params": params, "opt_state": opt_state, "step": jnp.int32(2)}
    names = {name for name, _ in layout.checkpoint_names(state)}
    assert {f"state/param_states/scale/{m}" for m in ("m", "v", "v_row", "v_col")} < names
    assert "extra/opt_state/1/count" in names
    with CheckpointStore(tmp_path / "new", checksum=True) as s:
        s.save(2, state)
        assert_same(s.restore(state)[1], state)
    monkeypatch.setattr(layout, "_is_adafactor", lambda node: False)
    assert "state/param_states/1/v_row/embedding" in dict(layout.checkpoint_names(state))
    with CheckpointStore(tmp_path / "old", checksum=True) as s:
        s.save(2, state)
    monkeypatch.undo()
    assert_same(CheckpointStore(tmp_path / "old").restore(state)[1], state)


def test_storage_that_refuses_is_one_sentence(tmp_path, state, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="Cannot write the checkpoint .*file/checkpoint_1"):
        CheckpointStore(tmp_path / "file").save(1, state)
    s = CheckpointStore(tmp_path)
    s.save(1, state)
    s.wait()

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(s._checkpointer, "save", full)
    with pytest.raises(UserError, match="No space left on device; free space"):
        s.save(2, state)
    assert s.all_steps() == [1]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.raises(UserError, match="larger than the system allows"):
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
            with CheckpointStore(tmp_path / "large") as s:
                s.save(1, {"params": {"w": np.random.rand(500, 500)}})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(UserError, match="keep=0"):
        CheckpointStore(tmp_path, keep=0)


def test_names_that_collide_are_refused():
    with pytest.raises(UserError, match="both named"):
        layout.to_t5x_tree({"params": {"a": {"b": 1}, "a/b": 2}})


def test_digest_sees_names_types_shapes_and_bytes():
    base = {"a": jnp.zeros((2, 3)), "b": jnp.ones(2)}
    same = {"b": np.ones(2, np.float32), "a": np.zeros((2, 3), np.float32)}
    assert tree_digest(base) == tree_digest(same)
    others = [
        {"a": jnp.zeros((3, 2)), "b": jnp.ones(2)},
        {"a": jnp.zeros((2, 3)), "c": jnp.ones(2)},
        {"a": jnp.zeros((2, 3), jnp.int32), "b": jnp.ones(2)},
        {"a": jnp.zeros((2, 3)).at[1, 1].set(-0.0), "b": jnp.ones(2)},
    ]
    assert len({tree_digest(tree) for tree in (base, *others)}) == 5


CHILD = """
    import sys
    import jax.numpy as jnp
    from ckl_jax.checkpoints.layout import tree_digest
    from ckl_jax.checkpoints.store import CheckpointStore
    s = CheckpointStore(sys.argv[1], keep=2)
    like = {"params": {str(i): jnp.zeros((64, 64)) for i in range(20)}, "step": jnp.int32(0)}
    found = s.restore(like)
    step = found[0] if found else 0
    if found:
        assert s.metadata(step)["digest"] == tree_digest(found[1]["params"])
    print("ready", flush=True)
    while True:
        step += 1
        params = {k: x + step for k, x in like["params"].items()}
        state = {"params": params, "step": jnp.int32(step)}
        s.save(step, state, {"digest": tree_digest(params)})
"""


@pytest.mark.parametrize(
    "delays", [(0.05,), pytest.param((0.02, 0.05, 0.11, 0.17, 0.23), marks=pytest.mark.slow)]
)
def test_a_kill_during_saves_leaves_a_readable_newest_checkpoint(delays, tmp_path):
    last = 0
    for delay in delays:
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(CHILD), str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
        )
        with child.stdout:
            assert child.stdout.readline() == "ready\n"
        while store.complete_steps(tmp_path)[-1:] <= [last]:
            time.sleep(0.01)
        time.sleep(delay)
        child.send_signal(signal.SIGKILL)
        child.wait()
        steps = store.complete_steps(tmp_path)
        assert steps[-1] > last
        last = steps[-1]
        for step in steps:
            params = restore_params(tmp_path / f"checkpoint_{step}")
            metadata = CheckpointStore(tmp_path).metadata(step)
            assert tree_digest(params) == metadata["digest"]
