"""Evaluations of finished models of `ckl temporalwiki`: later probes, and requested extras.

Later probes: those of the intervals that came after a model was trained. Light-tuning
(TemporalWiki, appendices E and F): each model is tuned on facts of a class that are not probes, and
asked for those that are. Proper nouns (Figure 2): what they cost in the new text of an interval,
and in the rest of its new snapshot. See docs/temporalwiki_evaluation.md.
"""

import csv
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.analysis.rows import EVAL
from ckl_jax.errors import UserError
from ckl_jax.files import os_errors
from ckl_jax.papers.temporalwiki.analysis import results
from ckl_jax.papers.temporalwiki.data.snapshots import Interval
from ckl_jax.papers.temporalwiki.settings import Model, Updates
from ckl_jax.papers.temporalwiki.study_data import RUNNING_TEXT, Data
from ckl_jax.train import studies
from ckl_jax.train.subprocess_runs import Training

TUNING = "temporalwiki_light_tune.gin"
TUNED_CLASSES = ("unchanged", "changed")
_BATCH = "LIGHT_TUNE_BATCH"
OWN = ("LIGHT_TUNE_FACTS", "LIGHT_TUNE_NAME")  # set for each tuning
_OF_MADE = {"CACHE_DIRS": (), "VOCABULARY_PATH": ""}  # of what is made by then
_OF_STUDY = ("RANDOM_SEED", "FACT_PROBES")
_OF_MODEL = re.compile(r"(?!configs\.)\w+\.\w+Config\.")  # bindings of a model's configuration


def check(updates: Updates) -> None:
    """Raises `UserError` for a binding of light-tuning that cannot work, or where none is done."""
    bindings = updates.tuning_bindings
    if bindings and not updates.light_tuning:
        raise UserError(f"--gin.{bindings[0]} is of light-tuning; give --light-tuning FACTS too.")
    _wanted_batch(updates)
    if bindings:
        macros = {**_OF_MADE, "MODEL_DIR": updates.root / TUNING}
        statements = studies.gin_statements(macros, _bindings(updates, results.INITIAL))
        studies.check_settings([*updates.gin_files(results.INITIAL), TUNING], statements)


def _bindings(updates: Updates, method: str) -> list[str]:
    from ckl_jax.config import gin_files, gin_scan  # slow

    tuning = gin_scan.scan_alone(gin_files.find(TUNING, [gin_files.BUNDLED])).macros()
    own = studies.own_macros(updates.gin_files(method)[0], {*tuning, *_OF_MADE, *_OF_STUDY})
    # The paper's rate hardly moves so small a model.
    small = [] if updates.model else ["LIGHT_TUNE_RATE = 1e-3", f"{_BATCH} = 8"]
    of_model = filter(_OF_MODEL.match, updates.training_bindings)
    return [*own, *of_model, *small, *updates.tuning_bindings]


def _wanted_batch(updates: Updates) -> int:
    names = [*updates.gin_files(results.INITIAL), TUNING]
    return studies.gin_values(names, _OF_MADE, _bindings(updates, results.INITIAL))[_BATCH]


def later_probes(data: Data, models: Sequence[Model]) -> list[Training]:
    """Evaluations that finished models lack because the interval came later."""
    trainings = []
    for model in models:
        folder = data.updates.model_dir(model)
        probed = results.probes_of(folder)
        if missing := tuple(f for f in data.fact_files() if Path(f).stem not in probed):
            out = folder / results.LATER / data.snapshots[-1].date
            macros = {"FACT_PROBES": missing, "CACHE_DIRS": ()}
            trainings.append(_evaluation(data, model, model.name, out, macros, "probes"))
    return trainings


def wanted(data: Data, models: Sequence[Model], tuned: bool = True) -> list[Training]:
    """The requested tunings (where `tuned`) and evaluations of finished models.

    A class without facts to tune on is left out, with a warning.
    """
    trainings, batch = [], _wanted_batch(data.updates)
    facts = _facts_to_tune_on(data) if tuned and data.updates.light_tuning else {}
    for model in models:
        # Initial is evaluated on every interval, an updated model on its own.
        own = [i for i in data.intervals if model.interval in (None, i)]
        trainings += _tunings(data, model, own, facts, batch)
        if data.updates.proper_nouns:
            trainings.append(_nouns(data, model, own))
    return trainings


def _macros(data: Data, model: Model) -> dict[str, Any]:
    return {
        "MODEL_DIR": data.updates.model_dir(model),
        "CACHE_DIRS": (),
        "VOCABULARY_PATH": data.updates.vocabulary,
        "RANDOM_SEED": data.updates.seed,
    }


def _facts_to_tune_on(data: Data) -> dict[tuple[str, str], int]:
    """{(interval, class): number of facts to tune on}, of those that have probes and such facts."""
    numbers = {}
    for interval in data.intervals:
        for kind in TUNED_CLASSES:
            facts, probed = data.tuning_facts(interval, kind), data.fact_file(interval, kind)
            if not (facts.is_file() and probed.is_file()):
                continue
            if number := _number_of(facts):
                numbers[interval.name, kind] = number
            else:
                warnings.warn(results.untuned(interval.name, kind), stacklevel=2)
    return numbers


def _tunings(
    data: Data,
    model: Model,
    own: Sequence[Interval],
    numbers: Mapping[tuple[str, str], int],
    batch: int,
) -> Iterator[Training]:
    updates = data.updates
    for interval in own:
        for kind in TUNED_CLASSES:
            if (interval.name, kind) not in numbers:
                continue
            name = f"{interval.name}_{kind}"
            macros = {
                "LIGHT_TUNE_FACTS": data.tuning_facts(interval, kind),
                "LIGHT_TUNE_NAME": name,
                "FACT_PROBES": (data.fact_file(interval, kind),),
            }
            # There may be fewer facts than wanted, of changed ones above all.
            fitting = f"{_BATCH} = {min(batch, numbers[interval.name, kind])}"
            # Updated models are evaluated on their own interval alone.
            title = name if model.interval is None else kind
            yield Training.of(
                f"{model.name}, tuned: {title}",
                updates.model_dir(model) / results.LIGHT_TUNED / name,
                [*updates.gin_files(model.method), TUNING],
                _macros(data, model) | macros,
                [*_bindings(updates, model.method), fitting],
            )


def _number_of(facts: Path) -> int:
    with os_errors(facts, "read"), open(facts, encoding="utf-8", newline="") as f:
        return sum(1 for _ in csv.DictReader(f))


def _nouns(data: Data, model: Model, own: Sequence[Interval]) -> Training:
    tasks = [f"{i.name}_{kind}" for i in own for kind in results.KINDS_OF_TEXT]
    if not data.fact_files():  # misalignment in time is then measured on the new text
        tasks += [f"{i.name}_{results.NEW_TEXT}" for i in data.intervals if i not in own]
    tasks = [task for task in tasks if (data.rows(RUNNING_TEXT) / task).exists()]  # have text
    folder = data.updates.model_dir(model)
    known = results.texts_of(folder)
    missing = [task for task in tasks if task not in known]
    out = folder / EVAL
    if known and missing:  # an interval came later
        out, tasks = folder / results.LATER / f"{data.snapshots[-1].date}-text", missing
    macros = {
        "FACT_PROBES": (),
        "CACHE_DIRS": (data.rows(RUNNING_TEXT),),
        "PROPER_NOUN_ROWS": data.updates.proper_nouns,
        "PROPER_NOUN_TASKS": tuple(tasks),
    }
    return _evaluation(data, model, f"{model.name}, proper nouns", out, macros, "proper_nouns")


def _evaluation(
    data: Data, model: Model, name: str, out: Path, macros: dict[str, Any], rows: str
) -> Training:
    """A `t5x eval` of a model, which leaves its rows in a folder of that name."""
    updates = data.updates
    start = {"CHECKPOINT_PATH": updates.model_dir(model), "INITIAL_CHECKPOINT_PATH": None}
    macros = _macros(data, model) | start | macros
    return Training.of(
        name,
        out,
        [*updates.gin_files(model.method), "temporalwiki_eval.gin"],
        macros,
        updates.bindings_of(model.method, macros),
        job="eval",
        # An evaluation writes no summary; its rows say that it is done.
        marker=f"{rows}/rows_*.jsonl",
    )
