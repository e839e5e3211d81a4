"""`ckl demo`: the main experiment of the CKL paper, from nothing to a report.

World -> vocabulary -> Initial model on D0 -> every method on D1 -> report. Each training is a
`t5x train` of its gin file in a process of its own, so the demo runs what a user would run, and
goes on where it was when it is started again.
"""

import collections
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ckl_jax import files
from ckl_jax.analysis import labels
from ckl_jax.errors import UserError, nearest
from ckl_jax.jobs import processes
from ckl_jax.world.ckl import check_data_dir, check_world

METHODS = (
    "vanilla", "recadam", "mix_review", "lora", "k_adapter_k2", "k_adapter_k3", "modular",
)  # fmt: skip
SOURCES = ("simulated", "wikidata")
_WIDTH = max(map(len, METHODS))


@dataclasses.dataclass(frozen=True)
class Demo:
    """What the demo makes, and where.

    Attributes:
      out: folder of everything.
      source: "simulated" or "wikidata".
      seed: of the world, the parameters and the order of the data.
      size: of the simulated world.
      data: folder of real facts and texts, for "wikidata".
      methods: which of METHODS to run.
      jobs: trainings at once; 0 is one for each core.
      bindings: gin bindings for every training, such as "EPOCHS = 2".
    """

    out: str = "runs/demo"
    source: str = "simulated"
    seed: int = 0
    size: str = "small"
    data: str | None = None
    methods: Sequence[str] = METHODS
    jobs: int = 0
    bindings: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not self.methods:
            raise UserError(f"No methods are given; choose from {', '.join(METHODS)}.")
        for name in self.methods:
            if name not in METHODS:
                raise UserError(
                    f"Unknown method {name!r}; choose from {', '.join(METHODS)}."
                    f"{nearest(name, METHODS)}"
                )
        if self.source not in SOURCES:
            raise UserError(f"Unknown source {self.source!r}; choose from {', '.join(SOURCES)}.")
        check_data_dir(self.source, self.data)
        for name, value in (("seed", self.seed), ("jobs", self.jobs)):
            if value < 0:
                raise UserError(f"--{name} is {value}; give 0 or more.")

    @property
    def root(self) -> Path:
        return Path(self.out)


def run(demo: Demo) -> Path:
    """Runs the demo; returns the path of its report.

    Raises:
      UserError: data are missing, or a training failed; its log's last lines are in the message.
    """
    _check(demo)
    with files.os_errors(demo.root):
        demo.root.mkdir(parents=True, exist_ok=True)
    with processes.FolderLock() as lock:
        lock.acquire(demo.root, "filled", "--out")
        return _run(demo)


def _check(demo: Demo) -> None:
    """Refuses what would fail later, before anything is written."""
    if not (demo.root / "data" / "ckl" / "manifest.json").exists():
        check_world(demo.source, demo.size, demo.data)
    if demo.bindings:
        from ckl_jax.jobs import gin_config  # slow, and needed for this only

        for name in ("initial", *demo.methods):
            gin_config.read(_gin_files(demo, name), demo.bindings)
        gin_config.load(_gin_files(demo, "vanilla"), demo.bindings)


def _run(demo: Demo) -> Path:
    started = time.monotonic()
    _record(demo)
    print(f"1. Data: {demo.source}, seed {demo.seed}", flush=True)
    _prepare(demo)
    print("2. Initial model on D0", flush=True)
    _train_all(demo, ["initial"])
    print(f"3. {labels.count(len(demo.methods), 'method')} on D1", flush=True)
    _train_all(demo, list(demo.methods))
    print("4. Report", flush=True)
    from ckl_jax.analysis.report import write_report

    report = write_report(_finished(demo), demo.root)
    print(f"Done in {time.monotonic() - started:.0f} s: {report}", flush=True)
    return report


def _finished(demo: Demo) -> list[Path]:
    """The trainings that the folder holds, be it of an earlier start with other methods."""
    folders = [demo.root / name for name in ("initial", *METHODS)]
    return [folder for folder in folders if (folder / "summary.json").exists()]


def _record(demo: Demo) -> None:
    """Keeps the settings beside the results, and refuses to mix two settings in one folder.

    Bindings may change as long as there are no results: some values fail only in a training.
    """
    path = demo.root / "demo.json"
    settings = json.loads(json.dumps(dataclasses.asdict(demo)))
    for free in ("out", "jobs", "methods"):
        settings.pop(free)
    if path.exists():
        before = json.loads(path.read_text())
        different = [k for k in settings if settings[k] != before.get(k)]
        if different == ["bindings"] and not any(demo.root.glob("*/checkpoint_*")):
            different = []
        if different:
            other = "other bindings" if different[0] == "bindings" else f"another {different[0]}"
            raise UserError(
                f"{demo.out} holds a demo with {other} ({before.get(different[0])!r}, not "
                f"{settings[different[0]]!r}); choose another --out or remove that folder."
            )
    files.write_json(path, settings)


def _prepare(demo: Demo) -> None:
    from ckl_jax.jobs import simulated

    simulated.prepare(
        str(demo.root / "data"), demo.seed, demo.size, source=demo.source, facts_dir=demo.data
    )


def command(demo: Demo, name: str) -> list[str]:
    """The command line of one training."""
    data = demo.root / "data"
    bindings = {
        "MODEL_DIR": str(demo.root / name),
        "DATA_DIR": str(data),
        "PROBE_DIR": str(data / "ckl"),
        "CACHE_DIRS": (str(data / "prepared" / "tasks"),),
        "INITIAL_CHECKPOINT_PATH": str(demo.root / "initial") if name != "initial" else None,
        "RANDOM_SEED": demo.seed,
        "WORLD_SIZE": demo.size,
        "WORLD_SEED": demo.seed,
    }
    return [
        sys.executable, "-m", "ckl_jax", "train",
        *(f"--gin_file={f}" for f in _gin_files(demo, name)),
        *(f"--gin.{k}={v!r}" for k, v in bindings.items()),
        *(f"--gin_bindings={b}" for b in demo.bindings),
    ]  # fmt: skip


def _gin_files(demo: Demo, name: str) -> list[str]:
    return [f"ckl_{name}.gin", *(["data/wikidata.gin"] if demo.source == "wikidata" else [])]


@dataclasses.dataclass(frozen=True)
class _Training:
    """A training that runs.

    Attributes:
      name: of its method.
      slot: which of the places for trainings it takes.
      log: its log file.
      start: where in the log it begins; earlier starts are before it.
    """

    name: str
    slot: int
    log: Path
    start: int

    def lines(self) -> list[str]:
        """The last lines that it wrote."""
        with open(self.log, "rb") as f:
            f.seek(max(self.start, self.log.stat().st_size - 8192))
            text = f.read().decode("utf-8", "replace")
        return [line.strip() for line in text.splitlines() if line.strip()]

    def progress(self) -> str:
        """Such as "step 20/100  epoch 2  loss 1.235  0:40 left"; "" if it tells nothing."""
        last = next(iter(self.lines()[-1:]), "")
        if not last.startswith("train "):
            return ""
        fields = [field.strip() for field in last.split("  ")[1:]]
        return "  ".join(field for field in fields if not field.endswith("tokens/s"))

    def failure(self) -> str:
        """Its own error sentence, or the last line of a traceback."""
        lines = self.lines()
        told = [line.removeprefix("t5x:").strip() for line in lines if line.startswith("t5x:")]
        return (told or lines or ["nothing"])[-1]


def _train_all(demo: Demo, names: list[str]) -> None:
    """Runs the trainings, `jobs` at a time, each on a core of its own where cores are shared."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    jobs = min(demo.jobs or len(cores), len(names))
    waiting = collections.deque(n for n in names if not (demo.root / n / "summary.json").exists())
    free = collections.deque(range(jobs))
    running: dict[subprocess.Popen, _Training] = {}
    try:
        while waiting or running:
            while waiting and free:
                slot, name = free.popleft(), waiting.popleft()
                process, training = _start(demo, name, slot)
                running[process] = training
                if jobs > 1 and len(cores) >= jobs:
                    with contextlib.suppress(OSError):  # it has ended already
                        os.sched_setaffinity(process.pid, {cores[slot]})
            _wait(running, free)
    finally:
        for process in running:
            process.terminate()  # it saves a checkpoint and stops
        for process in running:
            process.wait()


def _start(demo: Demo, name: str, slot: int) -> tuple[subprocess.Popen, _Training]:
    path = demo.root / name / "log.txt"
    with files.os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8") as log:
            training = _Training(name, slot, path, log.tell())
            _say(name, "started")
            process = subprocess.Popen(
                command(demo, name),
                stdout=log, stderr=subprocess.STDOUT, env=processes.child_environment(),
            )  # fmt: skip
    return process, training


def _say(name: str, text: str) -> None:
    print(f"   {name:<{_WIDTH}}  {text}", flush=True)


def _wait(running: dict[subprocess.Popen, _Training], free: collections.deque) -> None:
    """Shows progress until a training ends."""
    shown: dict[str, str] = {}
    tick = 0
    while True:
        for process, training in list(running.items()):
            if process.poll() is not None:
                del running[process]
                free.append(training.slot)
                _finish(training, process.returncode)
                return
        time.sleep(0.5)
        tick += 1
        if tick % (10 if sys.stdout.isatty() else 40) == 0:
            for training in running.values():
                text = training.progress()
                if text and text != shown.get(training.name):
                    _say(training.name, text)
                    shown[training.name] = text


def _finish(training: _Training, code: int) -> None:
    """Says how a training ended; raises `UserError` if it failed."""
    if code:
        how = f"exit code {code}" if code > 0 else f"killed by signal {-code}"
        raise UserError(
            f"Training {training.name!r} failed ({how}); {training.log} says: {training.failure()}"
        )
    summary = json.loads((training.log.parent / "summary.json").read_text())
    steps = labels.count(summary["steps"], "step")
    _say(training.name, f"done: {steps} in {summary['train_seconds']:.0f} s")
