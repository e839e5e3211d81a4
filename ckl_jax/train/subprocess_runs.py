"""Runs trainings and evaluations in subprocesses, as many at once as there are cores or GPUs.

Each is a `t5x` command of its gin files, so that a study runs what a user would run, and goes on
where it was when it is started again.
"""

import contextlib
import dataclasses
import functools
import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax import files
from ckl_jax.analysis import labels
from ckl_jax.errors import UserError
from ckl_jax.files import ANY_NUMBER, read_json_object
from ckl_jax.parallel import processes
from ckl_jax.train.progress import EVALUATING

_TIME = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  ")  # before a line of the log
_THREADS = "NPROC"  # the variable that XLA reads: as many threads compute on a CPU
_CUDA_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")  # packages of `jax[cuda12]`, ...
_DEVICES = Path("/dev")
# -P: no file of the working folder, such as a json.py, takes a standard module's place.
_T5X = (sys.executable, "-P", "-m", "ckl_jax")
SUMMARY = "summary.json"  # the last file that a training writes


@dataclasses.dataclass(frozen=True)
class Training:
    """One `t5x` subprocess: a training or an evaluation.

    Attributes:
      name: for lines of progress; unique.
      folder: gets its log.txt, and its files.
      command: what is run.
      after: names of the trainings that it starts from, where they are run together.
      marker: pattern of the file of the folder that says that it is done.
      given_up: pattern of one that says that it failed as it may, such as at too high a rate.
      keeps_model: whether its checkpoints stay when it is done.
    """

    name: str
    folder: Path
    command: tuple[str, ...]
    after: tuple[str, ...] = ()
    marker: str = SUMMARY
    given_up: str | None = None
    keeps_model: bool = True

    @classmethod
    def of(
        cls,
        name: str,
        folder: Path,
        gin_files: Sequence[str],
        macros: Mapping[str, Any],
        bindings: Sequence[str] = (),
        *,
        job: str = "train",
        **options: Any,
    ) -> "Training":
        """A `Training` of `t5x JOB`; its files go into `folder` unless the macros set it."""
        output = "MODEL_DIR" if job == "train" else "EVAL_OUTPUT_DIR"
        command = t5x(job, gin_files, {output: folder, **macros}, bindings)
        return cls(name, folder, command, **options)

    def gin(self) -> tuple[list[str], list[str]]:
        """Its gin files, and the statements of its command line."""
        names, macros, bindings = (
            [argument.removeprefix(flag) for argument in self.command if argument.startswith(flag)]
            for flag in ("--gin_file=", "--gin.", "--gin_bindings=")
        )
        return names, [*macros, *bindings]

    @property
    def trains(self) -> bool:
        """Whether it is a `t5x train`, no evaluation."""
        return self.command[len(_T5X) :][:1] == ("train",)

    @property
    def is_done(self) -> bool:
        return any(self.folder.glob(self.marker)) or self.has_given_up

    @property
    def has_given_up(self) -> bool:
        return self.given_up is not None and any(self.folder.glob(self.given_up))

    def tidy(self) -> None:
        """Removes checkpoints that a completed training need not keep."""
        if self.is_done and not self.keeps_model:
            for checkpoint in self.folder.glob("checkpoint_*"):
                shutil.rmtree(checkpoint, ignore_errors=True)


def t5x(
    job: str, gin_files: Sequence[str], macros: Mapping[str, Any], bindings: Sequence[str] = ()
) -> tuple[str, ...]:
    """The command line of `t5x JOB`, see `t5x_arguments`, by this Python."""
    return *_T5X, *t5x_arguments(job, gin_files, macros, bindings)


def t5x_arguments(
    job: str, gin_files: Sequence[str], macros: Mapping[str, Any], bindings: Sequence[str] = ()
) -> tuple[str, ...]:
    """What follows `t5x` on a command line: macros from Python values, then the user's bindings."""
    return (
        job,
        *(f"--gin_file={f}" for f in gin_files),
        *(f"--gin.{k}={as_gin(v)!r}" for k, v in macros.items()),
        *(f"--gin_bindings={b}" for b in bindings),
    )


def as_gin(value: Any) -> Any:
    """Converts a value to one that gin can parse: paths to text, numbers of NumPy to Python's."""
    match value:
        case os.PathLike():
            return os.fspath(value)
        case np.generic():
            return value.item()
        case tuple() | list():
            return tuple(map(as_gin, value))
        case Mapping():
            return {as_gin(name): as_gin(each) for name, each in value.items()}
    return value


@dataclasses.dataclass(frozen=True)
class Started:
    """A running training.

    Attributes:
      training: which.
      log: its log file.
      start: where in the log it begins; earlier starts are before it.
      width: of the column of names.
      process: None before it is there.
      slot: number among those that run at once.
    """

    training: Training
    log: Path
    start: int
    width: int
    process: subprocess.Popen | None = None
    slot: int = 0

    def lines(self) -> list[str]:
        """The last lines of its output."""
        with open(self.log, "rb") as f:
            f.seek(max(self.start, self.log.stat().st_size - 8192))
            text = f.read().decode("utf-8", "replace")
        return [_TIME.sub("", line.strip()) for line in text.splitlines() if line.strip()]

    def progress(self) -> str:
        """Progress such as "step 20/100  epoch 2  loss 1.235  0:40 left", or ""."""
        kinds = ("train ", "dynamic_eval ", "after step ", EVALUATING)
        last = next((line for line in reversed(self.lines()) if line.startswith(kinds)), "")
        if last.startswith(("after", EVALUATING)):
            return last
        fields = [field.strip() for field in last.split("  ")[1:]]
        return "  ".join(field for field in fields if not field.endswith("tokens/s"))

    def failure(self) -> str:
        """Its error message, or else the last line of its traceback."""
        lines = self.lines()
        messages = [line.removeprefix("t5x:").strip() for line in lines if line.startswith("t5x:")]
        return (messages or lines or ["nothing"])[-1]

    def say(self, text: str) -> None:
        print(f"   {self.training.name:<{self.width}}  {text}", flush=True)

    def finish(self, code: int) -> None:
        """Prints how the training ended; raises `UserError` if it failed."""
        if code and self.training.has_given_up:
            return self.say(f"given up: {self.failure()}")
        if code:
            how = f"exit code {code}" if code > 0 else f"killed by signal {-code}"
            raise UserError(
                f"Training {self.training.name!r} failed ({how}); {self.log} says: {self.failure()}"
            )
        self.training.tidy()
        if self.training.marker != SUMMARY:
            return self.say("done")
        summary = read_json_object(self.training.folder / SUMMARY, ANY_NUMBER)
        if "steps" not in summary:
            return self.say("done")
        steps = labels.count(summary["steps"], "step")
        messages = next((x for x in reversed(self.lines()) if x.startswith("after step ")), "")
        scores = f"; {messages.partition(': ')[2]}" if messages else ""
        self.say(f"done: {steps} in {summary['train_seconds']:.0f} s{scores}")


def run_all(
    trainings: Sequence[Training],
    jobs: int = 0,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Runs the incomplete trainings, `jobs` at a time, which share out cores or GPUs.

    Args:
      trainings: those that start from others come after them.
      jobs: 0 is one for each GPU, or one on TPUs, or else three for two cores: with one for each, a
        core has nothing to do while the last of three trainings runs. One alone has all devices.
      environment: variables for the processes in addition to this one's.

    Raises:
      UserError: one failed; its log's last lines are in the message. The others are stopped, which
        saves where they are.
    """
    gpus = gpus_of(os.environ)
    jobs = min(jobs or len(gpus) or _processes(os.environ), len(trainings))
    for training in trainings:
        training.tidy()  # what was stopped just before it was
    waiting = [t for t in trainings if not t.is_done]
    width = max((len(t.name) for t in trainings), default=0)
    running: list[Started] = []
    try:
        while waiting or running:
            while len(running) < jobs and (training := _ready(waiting, running)):
                waiting.remove(training)
                slot = min(set(range(jobs)) - {started.slot for started in running})
                share = {**(environment or {}), **_share(slot, jobs, gpus)}
                started = _start(training, width, share)
                running.append(dataclasses.replace(started, slot=slot))
            _wait(running)
    finally:
        for started in running:
            started.process.terminate()
        if running:
            with contextlib.suppress(OSError):  # nobody reads any more
                print("   stopping; each training saves where it is ...", flush=True)
        for started in running:
            started.process.wait()


def _ready(waiting: Sequence[Training], running: Sequence[Started]) -> Training | None:
    """The first training whose dependencies are complete."""
    ahead = {t.name for t in waiting} | {r.training.name for r in running}
    return next((t for t in waiting if not ahead & set(t.after)), None)


def gpus_of(environment: Mapping[str, str]) -> list[str]:
    """The GPUs, by number, that JAX would use in a process; they are not started.

    Args:
      environment: of the process.
    """
    platforms = environment.get("JAX_PLATFORMS") or "cuda"
    plugins = map(importlib.util.find_spec, _CUDA_PLUGINS)
    if not any(plugins) or not {"cuda", "gpu"} & set(platforms.split(",")):
        return []
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [gpu.strip() for gpu in visible.split(",") if gpu.strip()]
    numbers = (path.name.removeprefix("nvidia") for path in _DEVICES.glob("nvidia[0-9]*"))
    return sorted(numbers, key=int)


@functools.cache
def device_count() -> int:
    """Devices of a training that runs alone; a process of its own asks JAX, and lets go of them.

    Raises:
      UserError: JAX does not start.
    """
    # The last line: plugins may print before it.
    argv = [sys.executable, "-P", "-c", "import jax; print(); print(jax.device_count())"]
    asked = subprocess.run(argv, env=processes.child_environment(), capture_output=True, text=True)
    if asked.returncode:
        reason = (asked.stderr.strip().splitlines() or [f"exit code {asked.returncode}"])[-1]
        raise UserError(f"JAX finds no devices: {reason}")
    return int(asked.stdout.splitlines()[-1])


def _processes(environment: Mapping[str, str]) -> int:
    """As many as run at once without GPUs; one process alone can hold the TPUs of a machine."""
    platforms = environment.get("JAX_PLATFORMS") or "tpu"
    if "tpu" in platforms.split(",") and importlib.util.find_spec("libtpu"):
        if any(_DEVICES.glob("accel[0-9]*")) or any(_DEVICES.glob("vfio/[0-9]*")):
            return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return max(1, cores * 3 // 2)


def _share(slot: int, jobs: int, gpus: Sequence[str]) -> dict[str, str]:
    """Variables that give one of `jobs` processes its share of the cores or GPUs."""
    if jobs == 1:
        return {}
    if not gpus:
        return {_THREADS: "1"}
    mine = {"CUDA_VISIBLE_DEVICES": ",".join(gpus[slot::jobs] or [gpus[slot % len(gpus)]])}
    # By default JAX takes three quarters of a GPU's memory when it starts.
    shared = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} if jobs > len(gpus) else {}
    return {**mine, **shared}


def _start(training: Training, width: int, environment: Mapping[str, str]) -> Started:
    path = training.folder / "log.txt"
    with files.os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8") as log:
            started = Started(training, path, log.tell(), width)
            started.say("started")
            process = subprocess.Popen(
                training.command,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C reaches a terminal's whole process group: only the parent is to get it,
                # which asks the trainings to stop, once.
                start_new_session=True,
                env={**processes.child_environment(), **environment},
            )
    return dataclasses.replace(started, process=process)


def _wait(running: list[Started]) -> None:
    """Shows progress until a training ends."""
    shown: dict[str, str] = {}
    for tick in itertools.count(1):
        for started in running:
            if (code := started.process.poll()) is not None:
                running.remove(started)
                started.finish(code)
                return
        time.sleep(0.1)
        if tick % (50 if sys.stdout.isatty() else 200) == 0:
            for started in running:
                text = started.progress()
                if text and text != shown.get(started.training.name):
                    started.say(text)
                    shown[started.training.name] = text
