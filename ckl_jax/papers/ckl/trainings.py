"""The trainings of an experiment as `t5x train` command lines with their dependencies."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ckl_jax.papers.ckl import gpt2, scenarios
from ckl_jax.papers.ckl.imported import LENGTHS
from ckl_jax.papers.ckl.methods import job_files
from ckl_jax.papers.ckl.scenarios import INITIAL, OVERLAYS, Cell, Experiment, Scenario
from ckl_jax.papers.ckl.settings import Running
from ckl_jax.train import studies
from ckl_jax.train.subprocess_runs import Training

_PROBES = "closed_book.ClosedBook.probes"
# Set in addition to `Running.macros`; a user's binding would put results elsewhere.
_OWN = ("CACHE_DIRS", "PROBE_DIR", "INITIAL_CHECKPOINT_PATH", "LIGHT_TUNE_NAME", _PROBES)
# Methods that add parameters add a second set in a second phase.
_PHASES = {
    "lora": "lora.lora",
    "lora_mix_review": "lora.lora",
    "k_adapter_k2": "k_adapter.k_adapter",
    "k_adapter_k3": "k_adapter.k_adapter",
    "modular": "modular.modular",
}


def refuse_own(experiment: Experiment, running: Running) -> None:
    """Raises `UserError` for bindings that the experiment sets itself."""
    own = [*running.macros, *_OWN, *(f"{name}.phase" for name in _PHASES.values())]
    cells = [cell for scenario in experiment.scenarios for cell in running.chosen(scenario)]
    own += ["LEARNING_RATE"] * any(cell.rate is not None for cell in cells)
    own += [binding.split(" = ")[0] for cell in cells for binding in cell.bindings]
    studies.refuse_own(running.bindings, own)


def trainings(experiment: Experiment, running: Running) -> list[Training]:
    """The Initial models' trainings, where they are made here, and those of all cells."""
    decoders = [s for s in experiment.scenarios if s.tunings]
    others = [s for s in experiment.scenarios if not s.tunings]
    made = [_initial(others, running)] if others and not running.is_full else []
    made += [_training(running, s, cell) for s in others for cell in running.chosen(s)]
    return [*made, *(t for s in decoders for t in gpt2.trainings(s, running))]


def _initial(own: Sequence[Scenario], running: Running) -> Training:
    """The Initial model's training; its probes are those of all experiments, which share it."""
    # One Initial model serves all experiments of a folder, whichever experiment came first.
    every = [*own, *(s for e in scenarios.EXPERIMENTS.values() for s in e.scenarios)]
    probes = dict.fromkeys(p for s in every if not (s.tuned or s.tunings) for p in s.probes)
    macros = {**_macros(running), "INITIAL_CHECKPOINT_PATH": running.given}
    bindings = [f"{_PROBES} = {tuple(probes)!r}", *_lengths(running), *running.of(tuned=False)]
    files = ["ckl_initial.gin", *_made(running)]
    return Training.of(INITIAL, running.root / INITIAL, files, macros, bindings)


def _made(running: Running) -> list[str]:
    """The gin files of generated data and of the model."""
    size = [] if running.size in ("small", "full") else [f"{running.size}.gin"]
    source = [f"data/{running.source}.gin"] if running.source != "simulated" else []
    return [*size, *source, *([running.imported.gin_file] if running.imported else [])]


def _lengths(running: Running) -> tuple[str, ...]:
    """Bindings of lengths that suit an imported vocabulary on generated data."""
    return () if running.model is None or running.is_full else LENGTHS


def _training(running: Running, scenario: Scenario, cell: Cell) -> Training:
    macros = _macros(running) | ({} if scenario.tuned else running.reviewed("REPLAY_TASK_NAME"))
    bindings = [] if scenario.tuned else [f"{_PROBES} = {scenario.probes!r}", *_lengths(running)]
    if scenario.tuned and running.model is not None:  # whose vocabulary cuts the questions
        macros["KILT_TASKS"] = running.prepared / scenarios.KILT
    base, after = _start(running, scenario, cell)
    if base is not None:
        macros["INITIAL_CHECKPOINT_PATH"] = base
    # CKL, Table 3: in the second update expansion methods add a second set of parameters.
    if scenario.after and not scenario.tuned and cell.method in _PHASES:
        bindings.append(f"{_PHASES[cell.method]}.phase = 1")
    if cell.rate is not None:
        macros["LEARNING_RATE"] = cell.rate
    full = ["ckl_full.gin"] if running.is_full else []
    world = [OVERLAYS.format("kilt_world")] if scenario.tuned and not full else []
    # Later files overlay earlier ones.
    files = [*job_files(cell.method), *full, scenario.overlay, *world, *_made(running)]
    name, folder = f"{scenario.name} {cell.name}", running.folder(scenario, cell)
    # The Initial model's own training, where there is one, evaluates it on the probes of a sweep.
    bindings += ["train.train.eval_first = False"] * (scenario.is_swept and not running.is_full)
    bindings += [*cell.bindings, *running.of(scenario.tuned)]
    return Training.of(name, folder, files, macros, bindings, after=after)


def _start(running: Running, scenario: Scenario, cell: Cell) -> tuple[Path | None, tuple[str, ...]]:
    """The checkpoint that a cell starts from (None: the gin file's), and what it waits for."""
    if scenario.after is None or cell.name == INITIAL:
        base, after = running.root / INITIAL, (INITIAL,)
        if running.is_full:
            # The gin file's own, unless another is given or it has none.
            is_other = running.model is not None or scenario.after
            base, after = running.given if is_other else None, ()
    else:
        base = running.folder(scenario.after, cell)
        after = (f"{scenario.after} {cell.name}",)
    first = running.chosen(scenario)[0]
    if scenario.tuned and cell != first:  # which makes the cached task
        after += (f"{scenario.name} {first.name}",)
    return base, after


def _macros(running: Running) -> dict[str, Any]:
    macros = running.macros | (running.imported.macros if running.imported else {})
    if running.is_full and running.model is None:
        return macros
    tasks = running.prepared / "tasks"
    return macros | {"PROBE_DIR": running.probe_dir, "CACHE_DIRS": (tasks,)}
