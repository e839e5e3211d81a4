"""`ckl demo`: the main experiment of the CKL paper, from nothing to a report.

World -> vocabulary -> Initial model on D0 -> every method on D1 -> report. Each training is a
`t5x train` of its gin file in a process of its own, so the demo runs what a user would run, and
goes on where it was when it is started again.
"""

import collections
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ckl_jax.errors import UserError, nearest

METHODS = (
    "vanilla", "recadam", "mix_review", "lora", "k_adapter_k2", "k_adapter_k3", "modular",
)  # fmt: skip
SOURCES = ("simulated", "wikidata")


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
        for name in self.methods:
            if name not in METHODS:
                raise UserError(
                    f"Unknown method {name!r}; choose from {', '.join(METHODS)}."
                    f"{nearest(name, METHODS)}"
                )
        if self.source not in SOURCES:
            raise UserError(f"Unknown source {self.source!r}; choose from {', '.join(SOURCES)}.")

    @property
    def root(self) -> Path:
        return Path(self.out)


def run(demo: Demo) -> Path:
    """Runs the demo; returns the path of its report.

    Raises:
      UserError: data are missing, or a training failed; its log's last lines are in the message.
    """
    started = time.monotonic()
    _record(demo)
    print(f"1. Data: {demo.source}, seed {demo.seed}", flush=True)
    _prepare(demo)
    print("2. Initial model on D0", flush=True)
    _train_all(demo, ["initial"])
    print(f"3. {len(demo.methods)} methods on D1", flush=True)
    _train_all(demo, list(demo.methods))
    print("4. Report", flush=True)
    from ckl_jax.analysis.report import write_report

    names = ["initial", *demo.methods]
    report = write_report([demo.root / name for name in names], demo.root)
    print(f"Done in {time.monotonic() - started:.0f} s: {report}", flush=True)
    return report


def _record(demo: Demo) -> None:
    """Keeps the settings beside the results, and refuses to mix two settings in one folder."""
    from ckl_jax import files

    path = demo.root / "demo.json"
    settings = json.loads(json.dumps(dataclasses.asdict(demo)))
    for free in ("out", "jobs", "methods"):
        settings.pop(free)
    if path.exists():
        before = json.loads(path.read_text())
        different = [k for k in settings if settings[k] != before.get(k)]
        if different:
            raise UserError(
                f"{demo.out} holds a demo with another {different[0]} "
                f"({before.get(different[0])!r}, not {settings[different[0]]!r}); choose another "
                "--out or remove that folder."
            )
        return
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
    }
    files = [f"ckl_{name}.gin"]
    if demo.source == "wikidata":
        files.append("data/wikidata.gin")
    return [
        sys.executable, "-m", "ckl_jax", "train",
        *(f"--gin_file={f}" for f in files),
        *(f"--gin.{k}={v!r}" for k, v in bindings.items()),
        *(f"--gin_bindings={b}" for b in demo.bindings),
    ]  # fmt: skip


def _train_all(demo: Demo, names: list[str]) -> None:
    """Runs the trainings, `jobs` at a time, each on a core of its own where cores are shared."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    jobs = min(demo.jobs or len(cores), len(names))
    waiting = collections.deque(n for n in names if not (demo.root / n / "summary.json").exists())
    free = collections.deque(range(jobs))
    running: dict[subprocess.Popen, tuple[str, int]] = {}
    try:
        while waiting or running:
            while waiting and free:
                slot, name = free.popleft(), waiting.popleft()
                mine = {cores[slot]} if jobs > 1 and len(cores) >= jobs else None
                running[_start(demo, name, mine)] = (name, slot)
            _wait(demo, running, free)
    finally:
        for process in running:
            process.terminate()  # it saves a checkpoint and stops
        for process in running:
            process.wait()


def _start(demo: Demo, name: str, cores: set[int] | None) -> subprocess.Popen:
    folder = demo.root / name
    folder.mkdir(parents=True, exist_ok=True)
    print(f"   {name}: started", flush=True)
    pin = (lambda: os.sched_setaffinity(0, cores)) if cores else None
    with open(folder / "log.txt", "a", encoding="utf-8") as log:
        return subprocess.Popen(
            command(demo, name), stdout=log, stderr=subprocess.STDOUT, preexec_fn=pin
        )


def _wait(demo: Demo, running: dict, free: collections.deque) -> None:
    """Shows progress until a training ends."""
    shown, tick = {}, 0
    while True:
        for process, (name, slot) in list(running.items()):
            if process.poll() is None:
                continue
            del running[process]
            free.append(slot)
            if process.returncode:
                raise UserError(
                    f"Training {name!r} failed (exit code {process.returncode}); the end of "
                    f"{demo.root / name / 'log.txt'} says: {_last_line(demo, name)}"
                )
            summary = json.loads((demo.root / name / "summary.json").read_text())
            print(
                f"   {name}: done, {summary['steps']} steps in {summary['train_seconds']:.0f} s",
                flush=True,
            )
            return
        time.sleep(0.5)
        tick += 1
        if tick % (10 if sys.stdout.isatty() else 40) == 0:
            for name, _ in running.values():
                line = _last_line(demo, name)
                if line and line != shown.get(name):
                    print(f"   {name}: {line}", flush=True)
                    shown[name] = line


def _last_line(demo: Demo, name: str) -> str:
    path = demo.root / name / "log.txt"
    with open(path, "rb") as f:
        f.seek(max(0, path.stat().st_size - 4096))
        lines = [x.strip() for x in f.read().decode("utf-8", "replace").splitlines() if x.strip()]
    return lines[-1] if lines else ""
