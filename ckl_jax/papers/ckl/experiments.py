"""`ckl experiment`: the paper's tables and figures by name, cell by cell, with the printed numbers.

An experiment is a set of scenarios; a scenario is what each method is trained on, and its cells are
trainings of a method's gin file under the scenario's overlay (`gin_configs/experiments`), each in a
process of its own. Experiments share a folder, and with it the cells that they have in common.
"""

import functools
import tempfile
from pathlib import Path
from typing import Any

from ckl_jax.checkpoints.restore import find_checkpoint
from ckl_jax.data.compressed import csv_rows
from ckl_jax.data.facts.ckl_files import TEXTS
from ckl_jax.data.process_pool import Progress, no_progress
from ckl_jax.data.tasks.cached import CachedTask
from ckl_jax.data.tasks.prepare import prepare_ckl
from ckl_jax.errors import UserError
from ckl_jax.files import require_file
from ckl_jax.papers.ckl import cost, gpt2, results
from ckl_jax.papers.ckl.analysis.experiment_tables import RECORD
from ckl_jax.papers.ckl.data.kilt import DEV, KILT_SETS, TRAIN, find_file
from ckl_jax.papers.ckl.imported import GPT2, T5
from ckl_jax.papers.ckl.methods import METHODS, check_own, in_order
from ckl_jax.papers.ckl.scenarios import EXPERIMENTS, INITIAL, KILT, Experiment, find
from ckl_jax.papers.ckl.settings import Running
from ckl_jax.papers.ckl.trainings import refuse_own, trainings
from ckl_jax.probes import metrics
from ckl_jax.train import studies
from ckl_jax.world.ckl import build_world, check_world, open_world

__all__ = ["EXPERIMENTS", "Running", "find", "run", "trainings"]

_FILES = ("LIGHT_TUNE_TREX", "LIGHT_TUNE_QUESTIONS")  # macros that name one


def run(name: str, running: Running, progress: Progress = no_progress) -> Path:
    """Trains the missing cells of an experiment and writes its tables; each training has a log.

    Raises:
      UserError: there is no such experiment; or a training failed: its log's last lines are in the
        message.
    """
    experiment = find(name)
    _check(name, experiment, running)
    # Settings that may differ between two starts in one folder.
    free = ("methods", "rates", "strengths", "tuning_seeds", "keep_light_tuned")
    with studies.open_study(running, RECORD, "study", free=free, may_become=_is_older) as study:
        if not running.is_full:
            study.step(f"Data: {running.source}, {running.world}, seed {running.seed}")
            _prepare(running, any(scenario.tuned for scenario in experiment.scenarios))
        elif running.model and not _is_of_gpt2(experiment):
            study.step(f"Data: {running.data}, in the vocabulary of {running.model}")
            prepare_ckl(running.data, running.prepared, vocabulary=running.imported.vocabulary)
        plan = trainings(experiment, running)
        study.step("Trainings")
        rows = functools.partial(_rows, running.probe_dir, running.prepared / "tasks")
        if running.bindings:
            cost.check_rows(plan, rows)
        for line in cost.lines(plan, rows):
            print(f"   {line}", flush=True)
        # Trainings that are finished are skipped; see `train.subprocess_runs`.
        study.run(plan)
        study.step("Tables and figures")
        return study.done(results.write_results(name, experiment, running))


def describe(name: str, running: Running) -> list[str]:
    """Sentences about the trainings that `run` would do, and their cost. Writes nothing.

    A world that is not there yet is made in a temporary folder, to count its rows.
    """
    experiment = find(name)
    _check(name, experiment, running)
    plan = trainings(experiment, running)
    with tempfile.TemporaryDirectory(prefix="ckl_world_") as folder:
        probes = running.probe_dir
        if not running.is_full and not (probes / "manifest.json").exists():
            probes, facts = Path(folder), {"source": running.source, "data_dir": running.data}
            build_world(folder, running.seed, running.size, variant=running.world, **facts)
        plan_lines = cost.lines(plan, functools.partial(_rows, probes, running.prepared / "tasks"))
    return [*(f"{training.name}: {training.folder}" for training in plan), *plan_lines]


def _rows(probes: Path, tasks: Path, name: str) -> int | None:
    """The number of rows of a corpus: of its cached task, else of its published file."""
    if (prepared := CachedTask.rows_in(tasks, name)) is not None:
        return prepared
    path = probes / TEXTS[name] if name in TEXTS else None
    return sum(1 for _ in csv_rows(path)) - 1 if path and path.is_file() else None


def _is_of_gpt2(experiment: Experiment) -> bool:
    return any(scenario.tunings for scenario in experiment.scenarios)


def _is_older(name: str, before: Any, now: Any) -> bool:
    """Whether the record predates the choice of source or world."""
    return before is None and (name, now) in (("source", "simulated"), ("world", "legacy"))


def _check(name: str, experiment: Experiment, running: Running) -> None:
    """Refuses settings that would fail after hours, before anything is written."""
    every = in_order([*METHODS, *running.methods])
    known = [m for m in every if any(s.is_swept or s.cells_of(m) for s in experiment.scenarios)]
    if unknown := [method for method in running.methods if method not in known]:
        raise UserError(
            f"{name} has no cells of --methods {','.join(unknown)}; it has those of "
            f"{', '.join(known)}."
        )
    if (running.rates or running.strengths) and experiment.analysis != "pareto":
        raise UserError(
            f"--rates and --strengths are of ckl/pareto, not of {name}; leave them out."
        )
    if running.tuning_seeds is not None and not _is_of_gpt2(experiment):
        raise UserError(f"--tuning-seeds is of GPT-2, which {name} has none of; leave it out.")
    refuse_own(experiment, running)
    if any(scenario.tuned for scenario in experiment.scenarios):
        _check_kilt(name, running)
    _check_model(name, running, _is_of_gpt2(experiment))
    plan = trainings(experiment, running)
    check_own(running.methods, plan)
    if running.bindings:
        studies.check_trainings(plan, running.bindings)
        for settings in map(studies.settings_of, plan if running.of_tunings else ()):
            for name in _FILES:
                if path := settings.get(name):
                    require_file(path, f"{name} is {path!r}, and there is no such file.")


def _check_model(name: str, running: Running, is_of_gpt2: bool) -> None:
    """Refuses a world or an initial model that is not there or of another architecture."""
    if not running.is_full:
        check_world(running.source, running.size, running.data, running.world)
    else:
        initial = gpt2.IMPORTED if is_of_gpt2 else INITIAL
        find_checkpoint(running.model or Path(running.data) / initial)
    if running.model is not None:
        running.imported.require(GPT2 if is_of_gpt2 else T5, name)
        if is_of_gpt2 and not running.is_full:
            raise UserError(f"{name} trains an imported model at --size full only.")


def _check_kilt(name: str, running: Running) -> None:
    """Refuses missing files that would be needed only after the models of Table 2 are trained."""
    # Raises if the package is missing.
    metrics.rouge_l("a", "a")
    if running.source != "simulated":
        raise UserError(f"{name}: of --source {running.source} no KILT is made; leave it out.")
    if running.is_full:
        for name, form in KILT_SETS.items():
            # Sets without a training file are only evaluated.
            for split in (DEV, TRAIN)[: 1 + form.trains]:
                find_file(Path(running.data) / KILT, name, split)


def _prepare(running: Running, kilt: bool) -> None:
    from ckl_jax.papers.ckl import simulated
    from ckl_jax.papers.ckl.data.simulated_kilt import write_kilt

    simulated.prepare_for(running)
    if kilt:
        world = open_world("simulated", running.seed, running.size, variant=running.world)
        write_kilt(world, running.root / "data" / KILT)
