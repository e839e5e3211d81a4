"""Extra evaluations of finished models of `ckl temporalwiki`, if the settings want them.

Light-tuning (TemporalWiki, appendices E and F): each model is tuned on facts of a class that are no
probes, and asked for those that are. Proper nouns (Figure 2): what they cost in the new text of an
interval, and in the rest of its new snapshot. See docs/temporalwiki_evaluation.md.
"""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.analysis.rows import EVAL
from ckl_jax.errors import UserError
from ckl_jax.files import os_errors
from ckl_jax.papers.temporalwiki.analysis.results import INITIAL, LIGHT_TUNED, NEW_TEXT, OLD_TEXT
from ckl_jax.papers.temporalwiki.settings import Updates
from ckl_jax.papers.temporalwiki.study_data import NOUNS, Data, Interval, intervals
from ckl_jax.train import subprocess_runs

TUNING = "temporalwiki_light_tune.gin"
TUNED_CLASSES = ("unchanged", "changed")
_BATCH = "LIGHT_TUNE_BATCH"


def check(updates: Updates) -> None:
    """Refuses settings of light-tuning that it does not have.

    Raises:
      UserError: a binding is unknown, or there is no light-tuning.
    """
    bindings = updates.tuning_bindings
    if bindings and not updates.light_tuning:
        raise UserError(f"--gin.{bindings[0]} is of light-tuning; give --light-tuning FACTS too.")
    _wanted_batch(updates)


def _bindings(updates: Updates) -> list[str]:
    # The paper's rate hardly moves so small a model.
    small = [] if updates.model else ["LIGHT_TUNE_RATE = 1e-3", f"{_BATCH} = 8"]
    return [*small, *updates.tuning_bindings]


def _wanted_batch(updates: Updates) -> int:
    from ckl_jax.config import gin_config

    names = [*updates.gin_files(INITIAL), TUNING]
    macros = {"MODEL_DIR": "", "CACHE_DIRS": (), "VOCABULARY_PATH": ""}
    bindings = [*(f"{k} = {v!r}" for k, v in macros.items()), *_bindings(updates)]
    return {b.name: b.value for b in gin_config.read(names, bindings).scan.bindings}[_BATCH]


def runs(
    updates: Updates, data: Data, models: Sequence[subprocess_runs.Training]
) -> list[subprocess_runs.Training]:
    """The tunings and evaluations of trained models; none that was not asked for.

    Args:
      updates: what is made.
      data: where.
      models: the trainings of all models.
    """
    trainings, batch = [], _wanted_batch(updates) if updates.light_tuning else 0
    for model in models:
        if model.is_done:
            own = [i for i in intervals(data.snapshots) if model.name in (INITIAL, _name(i, model))]
            trainings += _tunings(updates, data, model, own, batch) if updates.light_tuning else []
            trainings += [_nouns(updates, data, model, own)] if updates.proper_nouns else []
    return trainings


def _method(model: subprocess_runs.Training) -> str:
    return model.name.rpartition(" ")[2]


def _name(interval: Interval, model: subprocess_runs.Training) -> str:
    return f"{interval.name} {_method(model)}"


def _macros(updates: Updates, model: subprocess_runs.Training) -> dict[str, Any]:
    data = Data(updates.root, ())
    return {
        "MODEL_DIR": str(model.folder),
        "CACHE_DIRS": (),
        "VOCABULARY_PATH": str(data.vocabulary),
        "RANDOM_SEED": updates.seed,
    }


def _tunings(
    updates: Updates,
    data: Data,
    model: subprocess_runs.Training,
    own: Sequence[Interval],
    batch: int,
) -> Iterator[subprocess_runs.Training]:
    names = [*updates.gin_files(_method(model)), TUNING]
    for interval in own:
        for kind in TUNED_CLASSES:
            facts = data.tuning_facts(interval, kind)
            asked = data.fact_file(interval, kind)
            if not (facts.is_file() and asked.is_file()):
                continue
            name = f"{interval.name}_{kind}"
            macros = _macros(updates, model) | {
                "LIGHT_TUNE_FACTS": str(facts),
                "LIGHT_TUNE_NAME": name,
                "FACT_PROBES": (str(asked),),
            }
            # There may be fewer facts than were asked for, of changed ones above all.
            fitting = f"{_BATCH} = {min(batch, _number_of(facts))}"
            command = subprocess_runs.t5x("train", names, macros, [*_bindings(updates), fitting])
            folder = model.folder / LIGHT_TUNED / name
            title = name if model.name == INITIAL else kind  # the others are asked their own
            yield subprocess_runs.Training(f"{model.name}, tuned: {title}", folder, command)


def _number_of(facts: Path) -> int:
    with os_errors(facts, "read"), open(facts, encoding="utf-8", newline="") as f:
        return sum(1 for _ in csv.DictReader(f))


def _nouns(
    updates: Updates, data: Data, model: subprocess_runs.Training, own: Sequence[Interval]
) -> subprocess_runs.Training:
    out = model.folder / EVAL
    macros = _macros(updates, model) | {
        "CHECKPOINT_PATH": str(model.folder),
        "INITIAL_CHECKPOINT_PATH": None,
        "EVAL_OUTPUT_DIR": str(out),
        "FACT_PROBES": (),
        "CACHE_DIRS": (str(data.rows(NOUNS)),),
        "PROPER_NOUN_ROWS": updates.proper_nouns,
        "PROPER_NOUN_TASKS": tuple(f"{i.name}_{k}" for i in own for k in (NEW_TEXT, OLD_TEXT)),
    }
    names = [*updates.gin_files(_method(model)), "temporalwiki_eval.gin"]
    command = subprocess_runs.t5x("eval", names, macros, updates.training_bindings)
    marker = "proper_nouns/rows_*.jsonl"
    return subprocess_runs.Training(f"{model.name}, proper nouns", out, command, marker=marker)


def build(updates: Updates, data: Data, vocabulary: Any, length: int) -> None:
    """Makes the rows in which proper nouns are looked for: the new text, and the rest."""
    if updates.proper_nouns:
        for interval in intervals(data.snapshots):
            data.make_noun_rows(interval, vocabulary, length)
