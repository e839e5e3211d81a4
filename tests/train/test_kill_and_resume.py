"""A run that is killed and restarted ends with the same bits as one that was left alone."""

import json
import os
import random
import signal

import numpy as np
import orbax.checkpoint as ocp
import pytest

from ckl_jax.cli import t5x
from ckl_jax.parallel import mesh
from ckl_jax.trees import keys
from tests.tiny import kill_at, newest_step, read_rows, stop_at

STEPS = 12 * 6
SETTINGS = {
    "EPOCHS": 6,
    "CHECKPOINT_PERIOD": 7,
    "CHECKPOINTS_KEPT": 2,
    "EVAL_PERIOD": 24,
    "closed_book.ClosedBook.probes": ("updated_lama",),
    "train.train.log_period": 3,
}


@pytest.fixture(scope="module")
def left_alone(tiny, tmp_path_factory):
    """The model folder of a run that nothing interrupts."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    argv, log = ["train", *tiny.argv("lora", folder, **SETTINGS)], folder.parent / "log"
    assert tiny.start(argv, log).wait() == 0, log.read_text()
    return folder


def content(model_dir):
    """Everything that a run leaves and that does not tell the time."""
    path = model_dir / f"checkpoint_{newest_step(model_dir)}"
    state = ocp.PyTreeCheckpointHandler().restore(path / "state")
    found = {name: np.asarray(leaf) for name, leaf in keys.named_leaves(state)}
    for item in ("dataset", "metadata"):
        held = json.loads((path / item / "metadata").read_text())
        held |= {k: v for k, v in held.pop("metrics", {}).items() if "timing" not in k}
        held = {k: v for k, v in held.items() if "seconds" not in k and "_model_dir" not in k}
        found[item] = json.dumps(held, sort_keys=True)
    for pattern in ("probes/*", "inference_eval/*.jsonl", "model-info.txt"):
        for file in model_dir.glob(pattern):
            found[str(file.relative_to(model_dir))] = file.read_text()
    for row in read_rows(model_dir / "metrics.jsonl"):
        row = {k: v for k, v in row.items() if not k.startswith("timing/")}
        key = f"metrics {row['split']} {row['step']}"
        assert key not in found, f"{key} occurs twice"
        found[key] = json.dumps(row, sort_keys=True)
    return found


def names(folder, pattern):
    return sorted(path.name for path in folder.glob(pattern))


def assert_same(killed, alone):
    killed, alone = content(killed), content(alone)
    assert sorted(killed) == sorted(alone)
    for name, value in alone.items():
        if isinstance(value, str):
            assert killed[name] == value, name
        else:
            assert killed[name].dtype == value.dtype, name
            np.testing.assert_array_equal(killed[name], value, err_msg=name)


def run_with_kills(tiny, folder, kills, seed):
    """Kills a run `kills` times at random moments; returns its command line and log."""
    rng, log = random.Random(seed), folder.parent / "log"
    argv = ["train", *tiny.argv("lora", folder, **SETTINGS, CHECKPOINT_MINUTES=0.005)]
    moments = sorted(rng.randrange(-14, STEPS - 7) for _ in range(kills))
    hit = 0
    for step in moments:
        # Before the first checkpoint a delay may fall into imports and compilation.
        delay = rng.uniform(0, 6) if step < 0 else rng.uniform(0, 0.3)
        hit += kill_at(tiny.start(argv, log), folder, step, delay) == -signal.SIGKILL
    assert hit >= max(kills - 2, 1), f"only {hit} of {kills} kills met a running process"
    return argv, log


@pytest.mark.slow
def test_a_kill_and_signals_together_change_no_bit(tiny, left_alone, tmp_path):
    folder = tmp_path / "run"
    argv, log = run_with_kills(tiny, folder, kills=1, seed=3)
    killed = newest_step(folder)
    both = (signal.SIGINT, signal.SIGTERM)  # of a terminal and of a parent
    code = stop_at(tiny.start(argv, log), folder, killed + 1, 0.02, *both)
    saved = newest_step(folder)
    assert code == 130 and killed < saved < STEPS, log.read_text()
    assert f"Stopped at step {saved}, which is saved" in log.read_text()
    assert tiny.start(argv, log).wait() == 0, log.read_text()
    assert f"Resuming from {folder}/checkpoint_{saved}" in log.read_text()
    assert (
        f"train run  step {STEPS}/{STEPS}" in log.read_text() and "Traceback" not in log.read_text()
    )
    assert_same(folder, left_alone)
    # Those saved by time, and by the signals, are gone.
    assert names(folder, "checkpoint_*") == names(left_alone, "checkpoint_*")


@pytest.mark.slow
@pytest.mark.parametrize("step, before, epochs", [(24, 0, 3), (STEPS, 48, 6)])
def test_a_sigterm_within_an_evaluation_changes_no_bit(
    tiny, tmp_path, monkeypatch, capsys, step, before, epochs
):
    alone, settings = tmp_path / "alone" / "run", SETTINGS | {"EPOCHS": epochs}
    assert t5x.main(["train", *tiny.argv("lora", alone, **settings, PROBE_BATCH_SIZE=16)]) == 0
    folder, put_whole, after = tmp_path / "run", mesh.Partitioner.put_whole, []

    def counted(self, batch):
        if (folder / "probes" / f"rows_{before:06d}.jsonl").exists():  # in the evaluation at `step`
            after.append(1)
            if len(after) == 2:
                os.kill(os.getpid(), signal.SIGTERM)
        return put_whole(self, batch)

    monkeypatch.setattr(mesh.Partitioner, "put_whole", counted)
    argv = ["train", *tiny.argv("lora", folder, **settings, PROBE_BATCH_SIZE=8)]
    with pytest.raises(SystemExit) as end:
        t5x.main(argv)
    said = capsys.readouterr().out
    assert end.value.code == 143 and len(after) == 2, said
    told = (
        "SIGTERM: stopping after this batch of the evaluation; what is trained by then is saved.\n"
    )
    assert told in said and f"Stopped at step {step}, which is saved" in said
    assert newest_step(folder) == step
    assert not (folder / "probes" / f"rows_{step:06d}.jsonl").exists()
    monkeypatch.undo()
    assert t5x.main(argv) == 0
    assert_same(folder, alone)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_ten_kills_change_no_bit(tiny, left_alone, tmp_path, seed):
    argv, log = run_with_kills(tiny, tmp_path / "run", kills=10, seed=seed)
    assert tiny.start(argv, log).wait() == 0, log.read_text()
    assert_same(tmp_path / "run", left_alone)
