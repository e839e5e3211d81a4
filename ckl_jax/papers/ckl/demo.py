"""`ckl demo`: the main experiment of the CKL paper, from nothing to a report.

World -> vocabulary -> Initial model on D0 -> every method on D1 -> report. Each training is a
`t5x train` of its gin file in a process of its own, so the demo runs what a user would run, and
goes on where it was when it is started again.
"""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from ckl_jax.analysis import labels
from ckl_jax.errors import UserError, nearest
from ckl_jax.options import Bindings, Names
from ckl_jax.train import subprocess_runs
from ckl_jax.world.ckl import check_data_dir, check_world
from ckl_jax.world.timeline import SIZES

METHODS = (
    "vanilla",
    "recadam",
    "mix_review",
    "lora",
    "k_adapter_k2",
    "k_adapter_k3",
    "modular",
)
BASELINES = ("replay", "lora_mix_review", "ewc", "lwf", "ema")  # only run if --methods names them
SOURCES = ("simulated", "wikidata")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Demo:
    """Settings of `ckl demo`.

    Attributes:
      out: Folder of everything; by default runs/demo, or runs/demo-wikidata.
      source: Simulated facts, or real ones of Wikidata.
      seed: Random seed for the simulated world, parameter initialisation and data order.
      size: Size of the simulated world.
      data: Folder of the real facts and texts (docs/wikidata.md).
      methods: Methods to compare, of METHODS and BASELINES (docs/methods); "all" is the paper's.
      jobs: Trainings that run at once; 0 is one for each core.
      bindings: Gin bindings for every training, such as "EPOCHS = 2".
    """

    out: str | None = None
    source: Literal[*SOURCES] = "simulated"
    seed: int = 0
    size: Literal[*SIZES] = "small"
    data: str | None = None
    methods: Names = METHODS
    jobs: int = 0
    bindings: Bindings = ()

    def __post_init__(self) -> None:
        if self.out is None:
            suffix = "" if self.source == "simulated" else f"-{self.source}"
            object.__setattr__(self, "out", f"runs/demo{suffix}")
        if tuple(self.methods) == ("all",):
            object.__setattr__(self, "methods", METHODS)
        if not self.methods:
            raise UserError(f"No methods are given; choose from {', '.join(METHODS + BASELINES)}.")
        for name in self.methods:
            if name not in METHODS + BASELINES:
                raise UserError(
                    f"Unknown method {name!r}; choose from {', '.join(METHODS + BASELINES)}."
                    f"{nearest(name, METHODS + BASELINES)}"
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
    with subprocess_runs.only_one(demo.root):
        return _run(demo)


def _check(demo: Demo) -> None:
    """Refuses what would fail later, before anything is written."""
    if not (demo.root / "data" / "ckl" / "manifest.json").exists():
        check_world(demo.source, demo.size, demo.data)
    if demo.bindings:
        subprocess_runs.refuse_own(demo.bindings, _macros(demo, "vanilla"))
        from ckl_jax.config import gin_config  # slow, and needed for this only

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
    """The trainings that the folder holds, also of an earlier start with other methods."""
    folders = [demo.root / name for name in ("initial", *METHODS, *BASELINES)]
    return [folder for folder in folders if (folder / "summary.json").exists()]


def _record(demo: Demo) -> None:
    settings = dataclasses.asdict(demo)
    for free in ("out", "jobs", "methods"):
        settings.pop(free)
    subprocess_runs.record(demo.root / "demo.json", settings, "demo")


def _prepare(demo: Demo) -> None:
    from ckl_jax.papers.ckl import simulated

    simulated.prepare(
        str(demo.root / "data"), demo.seed, demo.size, source=demo.source, facts_dir=demo.data
    )


def command(demo: Demo, name: str) -> tuple[str, ...]:
    """The command line of one training."""
    return subprocess_runs.t5x("train", _gin_files(demo, name), _macros(demo, name), demo.bindings)


def _macros(demo: Demo, name: str) -> dict[str, Any]:
    data = demo.root / "data"
    return {
        "MODEL_DIR": str(demo.root / name),
        "DATA_DIR": str(data),
        "PROBE_DIR": str(data / "ckl"),
        "CACHE_DIRS": (str(data / "prepared" / "tasks"),),
        "INITIAL_CHECKPOINT_PATH": str(demo.root / "initial") if name != "initial" else None,
        "RANDOM_SEED": demo.seed,
        "WORLD_SIZE": demo.size,
        "WORLD_SEED": demo.seed,
    }


def _gin_files(demo: Demo, name: str) -> list[str]:
    return [f"ckl_{name}.gin", *(["data/wikidata.gin"] if demo.source == "wikidata" else [])]


def _train_all(demo: Demo, names: Sequence[str]) -> None:
    trainings = [subprocess_runs.Training(n, demo.root / n, command(demo, n)) for n in names]
    subprocess_runs.run_all(trainings, demo.jobs, max(map(len, ("initial", *demo.methods))))
