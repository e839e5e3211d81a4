"""Tables and figures of an experiment's cells, with the paper's numbers beside ours."""

import dataclasses
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ckl_jax.analysis.changes import all_facts
from ckl_jax.analysis.report import overview
from ckl_jax.analysis.sections import Section, write_markdown
from ckl_jax.analysis.study import Study, load_study
from ckl_jax.data.facts.ckl_files import CORPORA, corpus_texts
from ckl_jax.data.tasks.cached import CachedTask
from ckl_jax.data.text.answer_types import AnswerTypes, labelled_finder
from ckl_jax.files import read_json
from ckl_jax.papers.ckl import gpt2
from ckl_jax.papers.ckl.analysis import (
    answer_analysis,
    experiment_curves,
    experiment_tables,
    pareto,
    prediction_changes,
    published_ckl,
)
from ckl_jax.papers.ckl.analysis.experiment_tables import only_probes
from ckl_jax.papers.ckl.analysis.transfer import compare_transfers
from ckl_jax.papers.ckl.data.kilt import CUT, KILT_SETS, cut_sentence
from ckl_jax.papers.ckl.methods import METHODS
from ckl_jax.papers.ckl.scenarios import INITIAL, KILT, Cell, Experiment, Scenario
from ckl_jax.papers.ckl.settings import Running
from ckl_jax.train.subprocess_runs import SUMMARY


def write_results(name: str, experiment: Experiment, running: Running) -> Path:
    """Writes an experiment's table or figure; returns the path of its Markdown."""
    # Tables return parts by scenario; figures return (sections, numbers).
    made = _ANALYSES[experiment.analysis](experiment, running)
    more = _overview(experiment, running)
    if isinstance(made, dict):  # the parts of a table
        return experiment_tables.write_tables(name, experiment.title, made, running.root, *more)
    return write_markdown(name, experiment.title, *made, running.root, *more)


def _overview(experiment: Experiment, running: Running) -> tuple[list[str], list[Section]]:
    """Sentences on what came out, and all facts."""
    if KILT in experiment.published:
        study = experiment_tables.joined_study(_tuned_folders(experiment, running))
        return experiment_tables.overview_of_tuned(study), [all_facts(study)]
    sizes, sentences, asked, facts = "", [], "", []
    for scenario in experiment.scenarios:
        prefix = f"{scenario.name}: " if len(experiment.scenarios) > 1 else ""
        if scenario.tunings:
            study = experiment_tables.averaged_study(gpt2.tuned_folders(scenario, running))
        else:
            study = _study(scenario, running)
            shown, of = study, ""
            if scenario.is_swept:  # too many models for one table
                shown, of = pareto.most_learned(study), ", of each method's run that learned most"
            title = f"{prefix}all facts{of}"
            facts.append(dataclasses.replace(all_facts(shown), title=title))
        sizes, scores, asked = overview(study, scenario.acquired)
        sentences.append(f"{prefix}{scores}")
    return list(filter(None, [sizes, *sentences, asked])), facts


def _trained(scenario: Scenario, cell: Cell, running: Running) -> bool:
    return (running.folder(scenario, cell) / SUMMARY).exists()


def _folders(scenario: Scenario, running: Running) -> list[Path]:
    """The MODEL_DIRs of a scenario, the Initial model's first where it was trained here."""
    # A full-size Initial model is given as a checkpoint and has no folder here.
    initial = running.root / INITIAL
    folders = [running.folder(scenario, cell) for cell in _shown(scenario, running)]
    return [initial, *folders] if initial.is_dir() else folders


def _shown(scenario: Scenario, running: Running) -> list[Cell]:
    """The requested cells, and those trained by an earlier start."""
    chosen = running.chosen(scenario)
    every = dataclasses.replace(running, methods=(*METHODS, *running.methods)).chosen(scenario)
    return [c for c in every if c in chosen or _trained(scenario, c, running)]


def _tables(experiment: Experiment, running: Running):
    parts = {}
    for scenario in (s for s in experiment.scenarios if s.name in experiment.published):
        published = experiment.published[scenario.name]
        parts[scenario.name] = experiment_tables.compare(
            _folders(scenario, running),
            scenario.probes,
            scenario.acquired,
            published,
            parameters=published_ckl.PARAMETERS.get(scenario.name),
            # One earlier phase: n.d. beside what is forgotten.
            earlier=int(scenario.after is not None),
        )
        if scenario.about:
            parts[scenario.name]["about"] = scenario.about
        if scenario.after and not scenario.tuned:
            parts[f"{scenario.name}_transfer"] = _transfer(scenario, experiment, running)
    if folders := _tuned_folders(experiment, running):
        parts[KILT] = experiment_tables.compare_tuned(folders, experiment.published[KILT])
        parts[KILT]["notes"] += _cut_in_training(running)
    return parts


def _tuned_folders(experiment: Experiment, running: Running) -> list[list[Path]]:
    """Of each of KILT's data sets the MODEL_DIRs."""
    tuned = [s for s in experiment.scenarios if s.tuned]
    return [[running.folder(s, cell) for cell in running.chosen(s)] for s in tuned]


def _transfer(scenario: Scenario, experiment: Experiment, running: Running) -> dict[str, Any]:
    cells, initial = _shown(scenario, running), running.root / INITIAL
    first, second = (
        [running.folder(name, cell) for cell in cells] for name in (scenario.after, scenario.name)
    )
    published = [experiment.published[name] for name in (scenario.after, scenario.name)]
    return compare_transfers(
        initial if initial.is_dir() else None, first, second, scenario.probes, published
    )


def _f1(experiment: Experiment, running: Running):
    (scenario,) = experiment.scenarios
    part = experiment_tables.compare(
        _folders(scenario, running),
        scenario.probes,
        scenario.acquired,
        experiment.published[scenario.name],
        "f1",
    )
    part["notes"] = ["The FUAR that the paper prints here follows from no formula over its scores."]
    return {"main_f1": part}


def _cut_in_training(running: Running) -> list[str]:
    """Sentences about training files whose rows exceed the lengths."""
    tasks = [running.prepared / KILT / name for name in KILT_SETS]
    cut = [t for t in tasks if (t / CUT).exists() and any(read_json(t / CUT)["cut"].values())]
    notes = [f"{task.name}, training: {cut_sentence(task)}" for task in cut]
    return [*notes, f"Of {'the other' if cut else 'the'} training files nothing is cut."]


def _light_tuned(experiment: Experiment, running: Running):
    return {
        scenario.name: experiment_tables.compare_averaged(
            gpt2.tuned_folders(scenario, running),
            scenario.acquired,
            experiment.published[scenario.name],
        )
        for scenario in experiment.scenarios
    }


def _study(scenario: Scenario, running: Running) -> Study:
    """The cells of a scenario that are trained, also by another experiment."""
    return only_probes(load_study(_folders(scenario, running)), scenario.probes)


def _curves(experiment: Experiment, running: Running):
    (scenario,) = experiment.scenarios
    published = experiment.published[scenario.name]
    return experiment_curves.figure_2(_study(scenario, running), published)


def _repeats(experiment: Experiment, running: Running):
    studies = {s.name: _study(s, running) for s in experiment.scenarios}
    rows_of = {s.name: _rows_of(s, running) for s in experiment.scenarios}
    lines = []
    for scenario in experiment.scenarios:
        study, rows = studies[scenario.name], rows_of[scenario.name]
        if scenario.after:
            # Both phases' corpora, in order.
            rows = [*rows_of[scenario.after], *rows]
        for entry in study.methods:
            phases, title = [entry], scenario.name
            if scenario.after:
                # The line of a second phase begins with the first phase of the same method.
                first = {e.key: e for e in studies[scenario.after].methods}
                phases, title = [first[entry.key], entry], f"{scenario.after} → p2"
            start = 100.0 * float(study.initial.scores[experiment_curves.KEPT].em.mean())
            lines.append(experiment_curves.line_of(title, phases, start, rows))
    return experiment_curves.figure_3(lines)


_CORPORA = {"main": "d1", "small": "d1_small", "p1": "p1", "p1_p2": "p2"}


def _rows_of(scenario: Scenario, running: Running) -> list[int]:
    """The number of rows of a scenario's corpus, or None."""
    task = running.prepared / "tasks" / _CORPORA[scenario.name]
    return [len(CachedTask.open(task))] if task.is_dir() else []


def _answers(experiment: Experiment, running: Running):
    (scenario,) = experiment.scenarios
    study = _study(scenario, running)
    types = AnswerTypes.of_folder(running.probe_dir, labelled_finder())
    sections, numbers = answer_analysis.figure_8(
        study, types, published_ckl.ANSWER_TYPES, published_ckl.SHARED_PERSONS
    )
    corpora = {
        name: functools.partial(corpus_texts, running.probe_dir / CORPORA[name])
        for name in ("d0_small", "d1")
        if os.path.lexists(running.probe_dir / CORPORA[name])
    }
    if corpora:
        more, counted = answer_analysis.overlap(study, corpora)
        sections, numbers = [*sections, *more], {**numbers, **counted}
    return sections, numbers


def _predictions(experiment: Experiment, running: Running):
    (scenario,) = experiment.scenarios
    return prediction_changes.table_12(_study(scenario, running), scenario.probes[:3])


_ANALYSES: dict[str, Callable[[Experiment, Running], Any]] = {
    "tables": _tables,
    "light_tuned": _light_tuned,
    "f1": _f1,
    "curves": _curves,
    "repeats": _repeats,
    "answers": _answers,
    "precision": lambda of, running: experiment_curves.figure_9(_study(of.scenarios[0], running)),
    "predictions": _predictions,
    "pareto": lambda _, running: pareto.compare([pareto.runs_of(running.root)]),
}
