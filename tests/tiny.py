"""The simulated world at its smallest, and the command lines of runs on it."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

from ckl_jax.cli import t5x
from ckl_jax.train import subprocess_runs
from tests.xla_flags import xla_flags

ROOT = Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True)
class Tiny:
    """A folder with `world/` and `initial/`."""

    root: Path

    @classmethod
    def make(cls, root: Path) -> "Tiny":
        tiny = cls(root)
        quiet = {"PROBES": None, "EPOCHS": 1}
        argv = tiny.argv("initial", root / "initial", INITIAL_CHECKPOINT_PATH=None, **quiet)
        assert t5x.main(["train", *argv]) == 0
        return tiny

    @property
    def tasks(self) -> Path:
        return self.root / "world" / "prepared" / "tasks"

    @property
    def probes(self) -> Path:
        return self.root / "world" / "ckl"

    def argv(self, method: str, model_dir: Path, *files: str, **macros) -> list[str]:
        """Flags of a run of `ckl_<method>.gin`; macros are set to Python values."""
        macros = {
            "MODEL_DIR": str(model_dir),
            "DATA_DIR": str(self.root / "world"),
            "INITIAL_DIR": str(self.root / "initial"),
            **macros,
        }
        names = (f"ckl_{method}.gin", "tiny.gin", *files)
        bindings = [f"--gin_bindings={name} = {value!r}" for name, value in macros.items()]
        return [*(f"--gin_file={name}" for name in names), *bindings]

    def start(self, argv: list[str], log: Path, env: dict | None = None) -> subprocess.Popen:
        """Starts `t5x` with these arguments in a process of its own, with one device."""
        device = {"XLA_FLAGS": xla_flags(devices=1)}
        cache = {"JAX_COMPILATION_CACHE_DIR": str(self.root / "compiled")}
        always = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        paths = {"PYTHONPATH": str(ROOT)}
        with open(log, "a") as f:
            return subprocess.Popen(
                [sys.executable, "-m", "ckl_jax", *argv],
                stdout=f,
                stderr=subprocess.STDOUT,
                cwd=self.root,
                env={**os.environ, **device, **cache, **always, **paths, **(env or {})},
            )


def train_here(monkeypatch) -> None:
    """Trainings that a command starts run in this process from now on."""

    def start(training, width, environment):
        path = training.folder / "log.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a") as log, contextlib.redirect_stdout(log):
            with contextlib.redirect_stderr(log):
                code = t5x.main(list(training.command[len(subprocess_runs._T5X) :]))
        process = types.SimpleNamespace(poll=lambda: code)
        return subprocess_runs.Started(training, path, 0, width, process)

    monkeypatch.setattr(subprocess_runs, "_start", start)


def newest_step(model_dir: Path) -> int:
    """The newest checkpoint in a folder that a run may be writing to; -1 if there is none."""
    names = [path.name for path in model_dir.glob("checkpoint_*")]
    return max([int(n.split("_")[1]) for n in names if n.split("_")[1].isdigit()], default=-1)


def stop_at(process: subprocess.Popen, model_dir: Path, step: int, delay: float, *numbers: int):
    """Sends signals `delay` seconds after the checkpoint of `step`; returns the exit code."""
    deadline = time.monotonic() + 120
    while newest_step(model_dir) < step and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    time.sleep(delay)
    for number in numbers:
        process.send_signal(number)
    return process.wait(timeout=60)


def kill_at(process: subprocess.Popen, model_dir: Path, step: int, delay: float) -> int:
    return stop_at(process, model_dir, step, delay, signal.SIGKILL)


def read_rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]
