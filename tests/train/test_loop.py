"""The training loop compiles once, and from a cached task it needs neither TensorFlow nor seqio."""

import logging
import os
import subprocess
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.cli import t5x
from ckl_jax.errors import UserError
from ckl_jax.optim import schedules
from ckl_jax.parallel import mesh
from ckl_jax.train.prepare import Prepared
from ckl_jax.train.step_evaluation import StepEvaluation
from tests.tiny import ROOT, read_rows
from tests.xla_flags import xla_flags

BLOCKER = """
import sys
from importlib.machinery import ModuleSpec

class Blocker:
    def find_spec(self, name, path=None, target=None):  # asking whether it is there is allowed
        if name.split(".")[0] in ("tensorflow", "seqio", "tensorflow_datasets", "tensorflow_text"):
            return ModuleSpec(name, self)

    def create_module(self, spec):
        raise AssertionError(f"{spec.name} is imported")

    def exec_module(self, module):
        pass

sys.meta_path.insert(0, Blocker())
from ckl_jax.cli import t5x
sys.exit(t5x.main(sys.argv[1:]))
"""


def test_a_token_without_a_row_is_named_before_its_step():
    config = SimpleNamespace(vocab_size=8)
    run = SimpleNamespace(model=SimpleNamespace(config=config))
    batch = {"decoder_input_tokens": np.array([[3, 7]]), "decoder_positions": np.array([[0, 9]])}
    assert Prepared._checked(run, batch) is batch
    with pytest.raises(UserError, match="has the token 8, and the model rows for 8 tokens"):
        Prepared._checked(run, {**batch, "decoder_target_tokens": np.array([[7, 8]])})


class _Compilations(logging.Handler):
    """What jax compiles, with the number of steps that the loop had done by then."""

    def __init__(self, steps):
        super().__init__()
        self.steps, self.seen = steps, []

    def emit(self, record):
        text = record.getMessage()
        if text.startswith("Compiling "):
            self.seen.append((len(self.steps), text.split(" with ")[0][:200]))


# tests/methods/test_matrix.py counts the programs of every method's step.
@pytest.mark.slow
def test_the_step_compiles_once_and_nothing_after_the_first_save(tiny, tmp_path, monkeypatch):
    """Three epochs, the last batch of each filled up, micro-batches, saves: compiled once."""
    steps = []
    put_batch = mesh.Partitioner.put_batch

    def counted(self, batch):
        steps.append(1)
        return put_batch(self, batch)

    monkeypatch.setattr(mesh.Partitioner, "put_batch", counted)
    handler = _Compilations(steps)
    logger = logging.getLogger("jax")
    logger.addHandler(handler)
    try:
        with jax.log_compiles():
            macros = {"PROBES": None, "EPOCHS": 3, "CHECKPOINT_PERIOD": 40}
            argv = tiny.argv("mix_review", tmp_path / "run", **macros)
            assert t5x.main(["train", *argv, "--gin.NUM_MICROBATCHES=2"]) == 0
    finally:
        logger.removeHandler(handler)
    names = [text for _, text in handler.seen]
    assert sum("jit(step)" in name for name in names) == 1, names
    # The first save compiles a check of its own.
    assert not [(n, text) for n, text in handler.seen if n > 40]
    assert len(steps) > 100


def test_a_training_that_fails_finishes_its_save_first(tiny, tmp_path, monkeypatch, capsys):
    """Else the end of Python would cut it off, or wait for it for minutes."""
    run = tmp_path / "run"

    def fails_at_the_end(self, state, frozen, telemetry):
        if int(state.step) == 4:
            raise UserError("no such score")
        return True

    monkeypatch.setattr(StepEvaluation, "__call__", fails_at_the_end)
    steps = {"TRAIN_STEPS": 4, "EPOCHS": None, "CHECKPOINT_PERIOD": 3}
    closed, close = [], CheckpointStore.close
    monkeypatch.setattr(
        CheckpointStore, "close", lambda s: (close(s), closed.append(s.all_steps()))
    )
    assert t5x.main(["train", *tiny.argv("vanilla", run, **steps)]) == 2
    assert capsys.readouterr().err == "t5x: no such score\n" and closed == [[3]]


@pytest.mark.slow
def test_the_schedule_of_the_released_code(tiny, tmp_path, capsys):
    argv = tiny.argv("vanilla", tmp_path / "run", "ckl_onecycle.gin", PROBES=None, EPOCHS=1)
    assert t5x.main(["train", *argv, "--gin.train.train.log_period=1"]) == 0
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    found = [row["learning_rate"] for row in rows if "learning_rate" in row]
    rate = schedules.onecycle_legacy(2e-3, 12, 2)
    np.testing.assert_allclose(found, [float(rate(step)) for step in range(12)], rtol=1e-6)
    assert t5x.main(["train", *argv, "--gin.ONECYCLE_MULTIPLIER=0.5"]) == 2
    assert "ONECYCLE_MULTIPLIER is 0.5; give a finite number, 1 or" in capsys.readouterr().err


# The environment of `make test` has no TensorFlow: there every training shows it.
@pytest.mark.slow
def test_training_from_a_cached_task_needs_no_tensorflow(tiny, tmp_path):
    argv = ["train", *tiny.argv("lora", tmp_path / "run", EPOCHS=1)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "XLA_FLAGS": xla_flags(devices=1)}
    done = subprocess.run(
        [sys.executable, "-c", BLOCKER, *argv], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "probes" / "rows_000012.jsonl").exists()
