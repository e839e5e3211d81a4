"""Several processes on this machine do what one does, stop together, and notice a loss."""

import json
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from ckl_jax.checkpoints.restore import find_checkpoint, restore_params
from ckl_jax.parallel import processes
from ckl_jax.trees.paths import flatten
from tests.tiny import ROOT, newest_step, read_rows
from tests.xla_flags import xla_flags

STEPS = 12 * 2
SETTINGS = {
    "EPOCHS": 2,
    "CHECKPOINT_PERIOD": 8,
    "closed_book.ClosedBook.probes": ("updated_lama",),
    "DROPOUT_RATE": 0.0,
    "train.train.log_period": 1,
}


def free_port():
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


def devices(count):
    return {"XLA_FLAGS": xla_flags(count)}


class Group:
    """Processes of one run; each has a log."""

    def __init__(self, tiny, argv, folder, count=2, each=1):
        folder.mkdir(exist_ok=True)
        meet = [f"--coordinator_address=localhost:{free_port()}", f"--process_count={count}"]
        self.logs = [folder / f"log_{i}" for i in range(count)]
        self.members = [
            tiny.start([*argv, *meet, f"--process_index={i}"], log, devices(each))
            for i, log in enumerate(self.logs)
        ]

    def wait(self, timeout=180):
        """The exit codes."""
        return [member.wait(timeout=timeout) for member in self.members]

    def text(self):
        return "\n".join(log.read_text() for log in self.logs)


def wait_for(folder, step, group):
    deadline = time.monotonic() + 120
    while newest_step(folder) < step:
        assert time.monotonic() < deadline and group.members[0].poll() is None, group.text()
        time.sleep(0.01)


def losses(folder):
    rows = read_rows(folder / "metrics.jsonl")
    return {row["step"]: row["loss"] for row in rows if row["split"] == "train"}


def parameters(folder):
    return flatten(restore_params(find_checkpoint(str(folder / f"checkpoint_{STEPS}"))))


def assert_close(folder, other):
    """The same losses, and parameters that differ by rounding."""
    found, expected = losses(folder), losses(other)
    assert sorted(found) == sorted(expected) == list(range(1, STEPS + 1))
    np.testing.assert_allclose(list(found.values()), list(expected.values()), rtol=5e-3)
    ours, theirs = parameters(folder), parameters(other)
    for name, leaf in theirs.items():
        # Where a gradient is zero up to rounding, Adafactor's first steps have a random sign.
        assert np.isclose(ours[name], leaf, rtol=1e-2, atol=2e-3).mean() > 0.95, name


@pytest.fixture(scope="module")
def alone(tiny, tmp_path_factory):
    """The folder of a run by one process with one device."""
    folder = tmp_path_factory.mktemp("one") / "run"
    argv = ["train", *tiny.argv("lora", folder, **SETTINGS)]
    log = folder.parent / "log"
    assert tiny.start(argv, log, devices(1)).wait() == 0, log.read_text()
    return folder


def test_errors_of_a_lost_process_are_recognised():
    lost = RuntimeError("UNKNOWN: Gloo all-reduce failed: Connection closed by peer [::1]:1\nmore")
    sentence = processes.explain_loss(lost)
    assert "Gloo all-reduce failed" in sentence and "start the same command again" in sentence
    assert processes.explain_loss(ValueError("shapes differ")) is None
    assert not processes.are_several()


@pytest.mark.slow
def test_two_processes_equal_one(tiny, alone, tmp_path):
    argv = ["train", *tiny.argv("lora", tmp_path / "run", **SETTINGS)]
    group = Group(tiny, argv, tmp_path)
    assert group.wait() == [0, 0], group.text()
    assert_close(tmp_path / "run", alone)
    rows = [read_rows(p) for p in sorted((tmp_path / "run" / "probes").glob("*.jsonl"))]
    expected = [read_rows(p) for p in sorted((alone / "probes").glob("*.jsonl"))]
    assert [[r["item"] for r in part] for part in rows] == [
        [r["item"] for r in part] for part in expected
    ]

    # Of the same checkpoint, two processes read the same answers and scores as one.
    for job, macros, file in (
        ("eval", {"EVAL_OUTPUT_DIR": "out"}, "probes/*.jsonl"),
        ("infer", {"INFER_OUTPUT_DIR": "out", "INFER_INPUTS": "updated_lama"}, "*-00000-of-00001"),
    ):
        outputs = []
        for count in (1, 2):
            out = tmp_path / f"{job}_{count}"
            bound = {k: str(out) if v == "out" else v for k, v in macros.items()}
            given = tiny.argv("lora", alone, f"ckl_{job}.gin", **{**SETTINGS, **bound})
            group = Group(tiny, [job, *given], tmp_path / f"logs_{job}_{count}", count)
            assert group.wait() == [0] * count, group.text()
            (path,) = out.glob(file)
            outputs.append([json.loads(line) for line in path.read_text().splitlines()])
        answers = [[r.get("predictions", r.get("prediction")) for r in part] for part in outputs]
        assert outputs[0] and answers[0] == answers[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "each", "mesh"),
    [
        (2, 1, {"fsdp": 2}),
        (2, 1, {"model": 2}),
        (2, 2, {"fsdp": 2, "model": 2}),
        (4, 1, {"data": 2, "model": 2}),
        (4, 1, {"data": 2, "fsdp": 2}),
        (4, 1, {"fsdp": 2, "model": 2}),
    ],
)
def test_a_mesh_whose_axes_cross_processes_equals_one(tiny, alone, tmp_path, count, each, mesh):
    argv = ["train", *tiny.argv("lora", tmp_path / "run", **SETTINGS, MESH_SHAPE=mesh)]
    group = Group(tiny, argv, tmp_path / "logs", count, each)
    assert group.wait() == [0] * count, group.text()
    assert_close(tmp_path / "run", alone)


_LEAVES = """
import sys, time
from ckl_jax.parallel import processes
index = int(sys.argv[2])
processes.initialize(sys.argv[1], 2, index)
assert processes.are_several()
time.sleep(1.5 * index)  # the second takes longer to find what is wrong
print("refused", flush=True)
processes.leave(2)
"""


@pytest.mark.slow
def test_processes_that_are_refused_abort_none(tmp_path):
    where = f"localhost:{free_port()}"
    members = [
        subprocess.Popen(
            [sys.executable, "-c", _LEAVES, where, str(i)],
            text=True,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for i in range(2)
    ]
    ended = [(*member.communicate(timeout=120), member.returncode) for member in members]
    assert [(out, code) for out, _, code in ended] == [("refused\n", 2)] * 2, ended
    assert "another task died" not in str(ended)


@pytest.mark.slow
def test_several_processes_want_an_initial_model(tiny, tmp_path):
    """And train it, where they are told so, as one."""
    places = {"DATA_DIR": str(tmp_path / "world"), "INITIAL_DIR": str(tmp_path / "initial")}
    argv = ["train", *tiny.argv("lora", tmp_path / "run", **places, PROBES=None, TRAIN_STEPS=5)]
    group = Group(tiny, argv, tmp_path / "refused")
    assert group.wait() == [2, 2] and not (tmp_path / "world").exists(), group.text()
    assert group.text().count("does not train it on the way; first start") == 2
    macros = {**places, "PROBES": None, "INITIAL_CHECKPOINT_PATH": None, "EPOCHS": 1}
    first = ["train", *tiny.argv("initial", tmp_path / "initial", **macros)]
    for words in (first, argv):
        group = Group(tiny, words, tmp_path / words[1].removeprefix("--gin_file="))
        assert group.wait() == [0, 0], group.text()
    assert newest_step(tmp_path / "run") == 5


@pytest.mark.slow
def test_the_launcher_of_one_machine_starts_two(tiny, tmp_path):
    argv = tiny.argv("lora", tmp_path / "run", **SETTINGS, PROBES=None, TRAIN_STEPS=5)
    command = [sys.executable, "-m", "ckl_jax", "train", *argv]
    launcher = ROOT / "tpu_scripts" / "gpu" / "single_node.sh"
    flags = ["--cpu", "--processes=2", f"--port={free_port()}", f"--logs={tmp_path}"]
    done = subprocess.run([launcher, *flags, "--", *command], cwd=ROOT, timeout=180)
    text = "\n".join((tmp_path / f"process_{i}.log").read_text() for i in range(2))
    assert done.returncode == 0 and text.count("step 5/5") == 1, text
    assert newest_step(tmp_path / "run") == 5


@pytest.mark.slow
def test_a_killed_process_ends_the_other_and_a_restart_resumes(tiny, alone, tmp_path):
    folder = tmp_path / "run"
    argv = ["train", *tiny.argv("lora", folder, **SETTINGS)]
    for victim in (0, 1):
        group = Group(tiny, argv, tmp_path / f"kill_{victim}")
        wait_for(folder, 8 * (victim + 1), group)
        start = time.monotonic()
        group.members[victim].kill()
        other = 1 - victim
        code = group.members[other].wait(timeout=60)
        text = group.logs[other].read_text()
        assert code != 0 and time.monotonic() - start < 60, text
        assert "another process of the run has ended" in text and "Traceback" not in text
    group = Group(tiny, argv, tmp_path / "again")
    assert group.wait() == [0, 0], group.text()
    assert "Resuming from" in group.text()
    assert_close(folder, alone)


@pytest.mark.slow
def test_sigterm_to_one_within_an_evaluation_stops_all_and_they_go_on(tiny, alone, tmp_path):
    folder = tmp_path / "run"
    longer = {
        "closed_book.ClosedBook.probes": ("updated_lama",),
        "closed_book.ClosedBook.precision": "always",
    }
    # JAX notices the signal after a second or two: nearly all of the time goes to evaluations.
    longer |= {"PROBE_BATCH_SIZE": 2, "EVAL_PERIOD": 1}
    argv = ["train", *tiny.argv("lora", folder, **{**SETTINGS, **longer})]
    group = Group(tiny, argv, tmp_path / "both")
    deadline = time.monotonic() + 120
    while not (folder / "probes" / "rows_000002.jsonl").exists():
        assert time.monotonic() < deadline, group.text()
        time.sleep(0.01)
    group.members[1].send_signal(signal.SIGTERM)
    assert group.wait(60) == [143, 143], group.text()
    text, step = group.text(), newest_step(folder)
    assert f"Stopped at step {step}, which is saved" in text and "Traceback" not in text, text
    assert 2 < step < 24 and not (folder / "probes" / f"rows_{step:06d}.jsonl").exists()
    group = Group(tiny, argv, tmp_path / "again")
    assert group.wait() == [0, 0], group.text()
    assert (folder / "probes" / f"rows_{step:06d}.jsonl").exists()
    assert_close(folder, alone)


@pytest.mark.slow
def test_sigterm_to_one_stops_all_at_one_step_and_fewer_devices_go_on(tiny, alone, tmp_path):
    folder = tmp_path / "run"
    mesh = {"MESH_SHAPE": {"data": -1, "fsdp": 2, "model": 2}}
    argv = tiny.argv("lora", folder, **SETTINGS, **mesh)
    group = Group(tiny, ["train", *argv], tmp_path / "both", each=4)
    wait_for(folder, 8, group)
    group.members[1].send_signal(signal.SIGTERM)
    assert group.wait(60) == [143, 143], group.text()
    saved = newest_step(folder)
    assert 8 < saved < STEPS and "Traceback" not in group.text()
    argv = tiny.argv("lora", folder, **SETTINGS, MESH_SHAPE={"fsdp": 2})
    log = tmp_path / "log"
    assert tiny.start(["train", *argv], log, devices(2)).wait(timeout=180) == 0, log.read_text()
    assert f"Resuming from {folder}/checkpoint_{saved}" in log.read_text()
    assert_close(folder, alone)
