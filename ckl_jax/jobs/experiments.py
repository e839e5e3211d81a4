"""`ckl experiment`: the tables of a paper by their names, cell by cell, ours beside the paper's.

An experiment is a set of scenarios; a scenario is what each method is trained on, and its cells are
trainings of a method's gin file under the scenario's overlay (`gin_configs/experiments`), each in a
process of its own. Experiments share a folder, and with it the cells that they have in common.
"""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ckl_jax import checks
from ckl_jax.analysis import experiment_tables
from ckl_jax.data.kilt import CUT, DEV, KILT_SETS, TRAIN, cut_sentence, find_file
from ckl_jax.errors import UserError
from ckl_jax.files import read_json
from ckl_jax.jobs import pipeline
from ckl_jax.jobs.demo import METHODS
from ckl_jax.jobs.experiment_scenarios import (
    EXPERIMENTS,
    INITIAL,
    KILT,
    OVERLAYS,
    Cell,
    Experiment,
    Scenario,
    find,
)
from ckl_jax.probes import metrics

SIZES = ("tiny", "small", "full")
_PROBES = "closed_book.ClosedBook.probes"
# Methods that add parameters add a second set in a second phase.
_PHASES = {
    "lora": "lora.lora", "k_adapter_k2": "k_adapter.k_adapter",
    "k_adapter_k3": "k_adapter.k_adapter", "modular": "modular.modular",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Running:
    """How experiments are run, and where.

    Attributes:
      out: folder of all of them; the data and the Initial model too, but at size "full".
      size: "tiny" (seconds a cell; its numbers mean nothing), "small" (the demo's), or "full".
      data: folder of the published files and the Initial model, for "full".
      seed: of world, parameters and data order.
      methods: which rows; () is all.
      jobs: trainings at once; 0 is one for each core.
      bindings: gin bindings for every training.
    """

    out: str = "runs/experiments"
    size: str = "small"
    data: str | None = None
    seed: int = 0
    methods: Sequence[str] = ()
    jobs: int = 0
    bindings: Sequence[str] = ()

    def __post_init__(self) -> None:
        checks.require_choice(SIZES, **{"--size": self.size})
        checks.require_int(0, **{"--seed": self.seed, "--jobs": self.jobs})
        if self.methods:
            checks.require_names(METHODS, **{"--methods": tuple(self.methods)})
        if (self.size == "full") != (self.data is not None):
            raise UserError(
                "--data, a folder of the published files, belongs to --size full: give both or "
                "neither."
            )

    @property
    def root(self) -> Path:
        return Path(self.out)

    def of(self, tuned: bool) -> list[str]:
        """The bindings; those of KILT's macros are for fine-tuning alone."""
        return [b for b in self.bindings if tuned or not b.strip().startswith("KILT_")]

    def chosen(self, scenario: Scenario) -> list[Cell]:
        """The cells that were asked for; the Initial model's always."""
        every = not self.methods
        return [
            c for c in scenario.cells if every or c.name == INITIAL or c.method in self.methods
        ]


def run(name: str, running: Running) -> Path:
    """Trains all cells of an experiment that are not there yet, and writes its tables.

    Returns:
      The path of the table in Markdown.

    Raises:
      UserError: there is no such experiment; or a training failed: its log's last lines are in the
        message.
    """
    experiment = find(name)
    if any(scenario.tuned for scenario in experiment.scenarios):
        _check_kilt(running)
    with pipeline.only_one(running.root):
        began = time.monotonic()
        settings = dataclasses.asdict(running)
        for free in ("out", "jobs", "methods"):
            settings.pop(free)
        pipeline.record(running.root / "experiments.json", settings, "folder")
        if running.size != "full":
            _prepare(running, any(scenario.tuned for scenario in experiment.scenarios))
        cells = trainings(experiment, running)
        width = max(len(cell.name) for cell in cells)
        with pipeline.compiling_once() as environment:
            pipeline.run_all(cells, running.jobs, width, environment)
        path = _write(name, experiment, running)
        print(f"Done in {time.monotonic() - began:.0f} s: {path}", flush=True)
        return path


def _check_kilt(running: Running) -> None:
    """Refuses what would be missing after the models of Table 2 are trained."""
    metrics.rouge_l("a", "a")
    if running.data is not None:
        for name, form in KILT_SETS.items():
            for split in (DEV, TRAIN)[: 1 + form.trains]:
                find_file(Path(running.data) / KILT, name, split)


def _prepare(running: Running, kilt: bool) -> None:
    from ckl_jax.jobs import simulated
    from ckl_jax.world.ckl import open_world
    from ckl_jax.world.kilt import write_kilt

    print(f"Data: simulated, seed {running.seed}", flush=True)
    data = running.root / "data"
    simulated.prepare(str(data), running.seed, running.size)
    if kilt:
        write_kilt(open_world("simulated", running.seed, running.size), data / KILT)


def folder(running: Running, scenario: Scenario | str, cell: Cell) -> Path:
    name = scenario if isinstance(scenario, str) else scenario.name
    return running.root / name / cell.name


def trainings(experiment: Experiment, running: Running) -> list[pipeline.Training]:
    """The Initial model's training, where it is made here, and those of all cells."""
    untuned = [s for s in experiment.scenarios if not s.tuned]
    probes = tuple(dict.fromkeys(p for s in untuned for p in s.probes))
    made = []
    if running.size != "full":
        macros = {**_macros(running, running.root / INITIAL), "INITIAL_CHECKPOINT_PATH": None}
        files = ["ckl_initial.gin", *_tiny(running)]
        bindings = [f"{_PROBES} = {_all_probes(probes)!r}", *running.of(tuned=False)]
        command = pipeline.t5x("train", files, macros, bindings)
        made.append(pipeline.Training(INITIAL, running.root / INITIAL, command))
    for scenario in experiment.scenarios:
        for cell in running.chosen(scenario):
            made.append(_training(running, scenario, cell))
    return made


def _all_probes(probes: Sequence[str]) -> tuple[str, ...]:
    """What the Initial model is asked: of every experiment, which share it."""
    scenarios = [s for e in EXPERIMENTS.values() for s in e.scenarios if not s.tuned]
    found = [p for s in scenarios for p in s.probes]
    return tuple(dict.fromkeys((*probes, *found)))


def _tiny(running: Running) -> list[str]:
    return ["tiny.gin"] if running.size == "tiny" else []


def _training(running: Running, scenario: Scenario, cell: Cell) -> pipeline.Training:
    target = folder(running, scenario, cell)
    macros = _macros(running, target)
    bindings = [] if scenario.tuned else [f"{_PROBES} = {scenario.probes!r}"]
    base, after = _start(running, scenario, cell)
    if base is not None:
        macros["INITIAL_CHECKPOINT_PATH"] = str(base)
    if scenario.after and not scenario.tuned and cell.method in _PHASES:
        bindings.append(f"{_PHASES[cell.method]}.phase = 1")
    if cell.rate is not None:
        macros["LEARNING_RATE"] = cell.rate
    full = ["ckl_full.gin"] if running.size == "full" else []
    world = [OVERLAYS.format("kilt_world")] if scenario.tuned and not full else []
    files = [f"ckl_{cell.method}.gin", *full, scenario.overlay, *world, *_tiny(running)]
    command = pipeline.t5x("train", files, macros, [*bindings, *running.of(scenario.tuned)])
    return pipeline.Training(f"{scenario.name} {cell.name}", target, command, after)


def _start(
    running: Running, scenario: Scenario, cell: Cell
) -> tuple[Path | None, tuple[str, ...]]:
    """The model that a cell starts from (None: the gin file's), and the trainings it waits for."""
    full = running.size == "full"
    if scenario.after is None or cell.name == INITIAL:
        given = Path(running.data) / INITIAL if full and scenario.after else None
        base, after = (given, ()) if full else (running.root / INITIAL, (INITIAL,))
    else:
        base = folder(running, scenario.after, cell)
        after = (f"{scenario.after} {cell.name}",)
    first = running.chosen(scenario)[0]
    if scenario.tuned and cell != first:  # which makes the cached task
        after += (f"{scenario.name} {first.name}",)
    return base, after


def _macros(running: Running, target: Path) -> dict[str, Any]:
    macros: dict[str, Any] = {"MODEL_DIR": str(target), "RANDOM_SEED": running.seed}
    if running.size == "full":
        return {**macros, "DATA_DIR": running.data}
    data = running.root / "data"
    return {
        **macros, "DATA_DIR": str(data), "PROBE_DIR": str(data / "ckl"),
        "CACHE_DIRS": (str(data / "prepared" / "tasks"),), "WORLD_SIZE": running.size,
        "WORLD_SEED": running.seed,
    }  # fmt: skip


def _write(name: str, experiment: Experiment, running: Running) -> Path:
    initial = running.root / INITIAL
    parts = {}
    for scenario in (s for s in experiment.scenarios if s.name in experiment.published):
        folders = [folder(running, scenario, cell) for cell in running.chosen(scenario)]
        before = [initial] if initial.is_dir() else []
        parts[scenario.name] = experiment_tables.compare(
            [*before, *folders], scenario.probes, scenario.acquired,
            experiment.published[scenario.name],
        )  # fmt: skip
    if tuned := [s for s in experiment.scenarios if s.tuned]:
        folders = [[folder(running, s, cell) for cell in running.chosen(s)] for s in tuned]
        parts[KILT] = experiment_tables.compare_tuned(folders, experiment.published[KILT])
        parts[KILT]["notes"] += _cut_in_training(running)
    return experiment_tables.write(name, experiment.title, parts, running.root)


def _cut_in_training(running: Running) -> list[str]:
    """Sentences about the training files of which the lengths cut something."""
    data = running.root / "data" if running.data is None else Path(running.data)
    tasks = [data / "prepared" / KILT / name for name in KILT_SETS]
    cut = [t for t in tasks if (t / CUT).exists() and any(read_json(t / CUT)["cut"].values())]
    told = [f"{task.name}, training: {cut_sentence(task)}" for task in cut]
    return [*told, f"Of {'the other' if cut else 'the'} training files nothing is cut."]
