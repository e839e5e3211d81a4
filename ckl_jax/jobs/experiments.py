"""`ckl experiment`: the tables of a paper by their names, cell by cell, ours beside the paper's.

An experiment is a set of scenarios; a scenario is what each method is trained on, and its cells are
trainings of a method's gin file under the scenario's overlay (`gin_configs/experiments`), each in a
process of its own. Experiments share a folder, and with it the cells that they have in common.
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax import checks
from ckl_jax.analysis import experiment_tables, published_ckl
from ckl_jax.errors import UserError, nearest
from ckl_jax.jobs import pipeline
from ckl_jax.jobs.demo import METHODS

INITIAL = "initial"
SIZES = ("tiny", "small", "full")
_PROBES = "closed_book.ClosedBook.probes"
_IL, _P1, _P2 = "invariant_lama", "new_lama_easy_p1", "new_lama_easy_p2"
_MAIN = (_IL, "updated_lama", "new_lama", "new_lama_easy")
# Methods that add parameters add a second set in a second phase.
_PHASES = {
    "lora": "lora.lora", "k_adapter_k2": "k_adapter.k_adapter",
    "k_adapter_k3": "k_adapter.k_adapter", "modular": "modular.modular",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Cell:
    """One training of a scenario.

    Attributes:
      name: of its row; a method, and a learning rate where there are several.
      method: of `ckl_<method>.gin`.
      rate: LEARNING_RATE; None is the overlay's.
    """

    name: str
    method: str
    rate: float | None = None


@dataclasses.dataclass(frozen=True)
class Scenario:
    """What methods are trained on.

    Attributes:
      name: of its folder, and in the paper's numbers.
      overlay: gin file.
      probes: what models are asked.
      cells: the trainings.
      acquired: probes that FUAR takes for new knowledge; () is the usual choice.
      after: the scenario whose models these start from; None is the Initial model.
    """

    name: str
    overlay: str
    probes: tuple[str, ...]
    cells: tuple[Cell, ...]
    acquired: tuple[str, ...] = ()
    after: str | None = None


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A table of a paper.

    Attributes:
      title: what it shows.
      scenarios: in order.
      published: {scenario: {row: {probe: EM in percent, "fuar": ...}}}.
    """

    title: str
    scenarios: tuple[Scenario, ...]
    published: Mapping[str, Mapping[str, Any]]


def _every(methods: Sequence[str]) -> tuple[Cell, ...]:
    return tuple(Cell(method, method) for method in methods)


def _at(method: str, *rates: float) -> tuple[Cell, ...]:
    return tuple(Cell(f"{method}-{rate:g}", method, rate) for rate in rates)


_OVERLAYS = "experiments/ckl/{}.gin"
EXPERIMENTS = {
    "ckl/table2": Experiment(
        "the main experiment",
        (Scenario("main", _OVERLAYS.format("table2"), _MAIN, _every(METHODS)),),
        published_ckl.TABLE_2,
    ),
    "ckl/table3": Experiment(
        "fewer articles, and two phases",
        (
            Scenario("small", _OVERLAYS.format("small"), (_IL, _P1, _P2), _every(METHODS)),
            Scenario("p1", _OVERLAYS.format("p1"), (_IL, _P1, _P2), _every(METHODS), (_P1,)),
            Scenario(
                "p1_p2", _OVERLAYS.format("p1_p2"), (_IL, _P1, _P2), _every(METHODS), (_P2,), "p1"
            ),
        ),
        published_ckl.TABLE_3,
    ),
    "ckl/table7": Experiment(
        "learning rates",
        (
            Scenario(
                "rates", _OVERLAYS.format("rates"), (_IL, "new_lama_easy_small"),
                (*_at("vanilla", 1e-5, 1e-4, 5e-4, 1e-3), *_at("k_adapter_k2", 1e-4, 1e-3)),
            ),
        ),
        published_ckl.TABLE_7,
    ),
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

    def chosen(self, scenario: Scenario) -> list[Cell]:
        return [c for c in scenario.cells if not self.methods or c.method in self.methods]


def find(name: str) -> Experiment:
    """The experiment of that name.

    Raises:
      UserError: there is none; the message lists those that there are.
    """
    if name not in EXPERIMENTS:
        raise UserError(
            f"There is no experiment {name!r}; there are {', '.join(EXPERIMENTS)}."
            f"{nearest(name, EXPERIMENTS)}"
        )
    return EXPERIMENTS[name]


def run(name: str, running: Running) -> Path:
    """Trains all cells of an experiment that are not there yet, and writes its tables.

    Returns:
      The path of the table in Markdown.

    Raises:
      UserError: there is no such experiment; or a training failed: its log's last lines are in the
        message.
    """
    experiment = find(name)
    with pipeline.only_one(running.root):
        began = time.monotonic()
        settings = dataclasses.asdict(running)
        for free in ("out", "jobs", "methods"):
            settings.pop(free)
        pipeline.record(running.root / "experiments.json", settings, "folder")
        if running.size != "full":
            _prepare(running)
        cells = trainings(experiment, running)
        width = max(len(cell.name) for cell in cells)
        pipeline.run_all(cells, running.jobs, width)
        path = _write(name, experiment, running)
        print(f"Done in {time.monotonic() - began:.0f} s: {path}", flush=True)
        return path


def _prepare(running: Running) -> None:
    from ckl_jax.jobs import simulated

    print(f"Data: simulated, seed {running.seed}", flush=True)
    simulated.prepare(str(running.root / "data"), running.seed, running.size)


def folder(running: Running, scenario: Scenario | str, cell: Cell) -> Path:
    name = scenario if isinstance(scenario, str) else scenario.name
    return running.root / name / cell.name


def trainings(experiment: Experiment, running: Running) -> list[pipeline.Training]:
    """The Initial model's training, where it is made here, and those of all cells."""
    probes = tuple(dict.fromkeys(p for s in experiment.scenarios for p in s.probes))
    made = []
    if running.size != "full":
        macros = {**_macros(running, running.root / INITIAL), "INITIAL_CHECKPOINT_PATH": None}
        files = ["ckl_initial.gin", *_tiny(running)]
        bindings = [f"{_PROBES} = {_all_probes(probes)!r}", *running.bindings]
        command = pipeline.t5x("train", files, macros, bindings)
        made.append(pipeline.Training(INITIAL, running.root / INITIAL, command))
    for scenario in experiment.scenarios:
        for cell in running.chosen(scenario):
            made.append(_training(running, scenario, cell))
    return made


def _all_probes(probes: Sequence[str]) -> tuple[str, ...]:
    """What the Initial model is asked: of every experiment, which share it."""
    found = [p for e in EXPERIMENTS.values() for s in e.scenarios for p in s.probes]
    return tuple(dict.fromkeys((*probes, *found)))


def _tiny(running: Running) -> list[str]:
    return ["tiny.gin"] if running.size == "tiny" else []


def _training(running: Running, scenario: Scenario, cell: Cell) -> pipeline.Training:
    target = folder(running, scenario, cell)
    macros = _macros(running, target)
    bindings = [f"{_PROBES} = {scenario.probes!r}"]
    after: tuple[str, ...] = () if running.size == "full" else (INITIAL,)
    if scenario.after:
        before = folder(running, scenario.after, cell)
        macros["INITIAL_CHECKPOINT_PATH"] = str(before)
        after = (f"{scenario.after} {cell.name}",)
        if cell.method in _PHASES:
            bindings.append(f"{_PHASES[cell.method]}.phase = 1")
    elif running.size != "full":
        macros["INITIAL_CHECKPOINT_PATH"] = str(running.root / INITIAL)
    if cell.rate is not None:
        macros["LEARNING_RATE"] = cell.rate
    full = ["ckl_full.gin"] if running.size == "full" else []
    files = [f"ckl_{cell.method}.gin", *full, scenario.overlay, *_tiny(running)]
    command = pipeline.t5x("train", files, macros, [*bindings, *running.bindings])
    return pipeline.Training(f"{scenario.name} {cell.name}", target, command, after)


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
    for scenario in experiment.scenarios:
        folders = [folder(running, scenario, cell) for cell in running.chosen(scenario)]
        before = [initial] if initial.is_dir() else []
        parts[scenario.name] = experiment_tables.compare(
            [*before, *folders], scenario.probes, scenario.acquired,
            experiment.published[scenario.name],
        )  # fmt: skip
    return experiment_tables.write(name, experiment.title, parts, running.root)
