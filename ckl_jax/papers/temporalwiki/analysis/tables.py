"""The tables of TemporalWiki from a study's rows and manifests, as JSON would hold them.

Perplexities are `token_micro`, with the 95 % intervals of the bootstrap over facts. Tables 5 and 6
and the numbers of Figure 2 are of extra evaluations, where `ckl temporalwiki` was to make them.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ckl_jax.analysis import statistics
from ckl_jax.analysis.main_table import fuar_cell
from ckl_jax.analysis.perplexity import average, bootstrap, estimate, perplexity, rounded, score
from ckl_jax.analysis.rows import ProbedRun, training_flops
from ckl_jax.data.facts.fact_files import CLASSES
from ckl_jax.data.tasks.word_marks import CHANGED_SPANS
from ckl_jax.data.text.word_classes import PROPER_NOUNS
from ckl_jax.papers.temporalwiki.analysis import results, text_losses
from ckl_jax.papers.temporalwiki.analysis.results import Key, Model, Study
from ckl_jax.probes import forgetting

KINDS = ("updated", "new", "deleted", "ended")  # beside the two classes of the paper
MATRIX = ("method", "model", "facts_of", "perplexity", "low", "high", "facts")


class Perplexities:
    """Perplexity and bootstrap of every model on every class of facts, paired over models."""

    def __init__(self, study: Study, samples: int = statistics.SAMPLES):
        self._numbers: dict[tuple[str, str, Key], tuple[float, np.ndarray]] = {}
        models = list(study.all_models())
        keys = dict.fromkeys(key for model in models for key in model.losses)
        # A seed for each class of facts, and one resample of it for all models: ratios stay paired.
        for seed, key in enumerate(keys):
            mine = [m for m in models if key in m.losses]
            draws = bootstrap([m.losses[key] for m in mine], samples=samples, seed=seed)
            for model, drawn in zip(mine, draws, strict=True):
                numbers = perplexity(model.losses[key]), drawn
                self._numbers[model.method, model.interval, key] = numbers

    def draws(self, model: Model, key: Key) -> np.ndarray | None:
        """[1 + B] the perplexity and its bootstrap; None where the model was not evaluated."""
        numbers = self._numbers.get((model.method, model.interval, key))
        return numbers and np.array([numbers[0], *numbers[1]])

    def cell(self, model: Model | None, key: Key) -> dict[str, Any] | None:
        """{"value", "low", "high", "facts"}; None where the model was not evaluated."""
        if model is None or key not in model.losses:
            return None
        numbers = self._numbers[model.method, model.interval, key]
        return {**statistics.estimate(*numbers), "facts": len(model.losses[key])}

    def mean(self, model: Model | None, keys: Sequence[Key]) -> dict[str, Any] | None:
        """The mean of two perplexities, of their rounded values as the paper has it."""
        if model is None or not all(key in model.losses for key in keys):
            return None
        numbers = [self._numbers[model.method, model.interval, key] for key in keys]
        # The paper's Avg is the mean of the printed values.
        value = average(*(float(rounded(value)) for value, _ in numbers))
        return statistics.estimate(value, sum(draws for _, draws in numbers) / len(keys))


def table_3(study: Study, numbers: Perplexities) -> list[dict[str, Any]]:
    """Un, C and Avg of each model on the facts of its latest interval.

    Returns:
      [{"method", "trainable", "total", "flops": {interval: n}, "cpu_seconds": {interval: s},
      "steps": {interval: n},
      "intervals": {interval: {"unchanged", "changed", "avg", *KINDS}}}], cells as of
      `Perplexities.cell`.
    """
    rows = []
    for method in (study.initial.method, *study.methods):
        models = study.models.get(method, {})
        is_initial = method == study.initial.method
        # Initial is the same model in every column.
        at = {i: study.initial if is_initial else models.get(i) for i in study.intervals}
        one = study.initial if is_initial else next(iter(models.values()))
        rows.append(
            {
                "method": method,
                "trainable": one.summary.get("trainable_parameters"),
                "total": one.summary.get("total_parameters"),
                "flops": {m.interval: training_flops(m.summary) for m in models.values()},
                "cpu_seconds": {
                    m.interval: m.summary.get("train_cpu_seconds") for m in models.values()
                },
                "steps": {m.interval: m.summary.get("steps") for m in models.values()},
                "intervals": {i: _cells(numbers, at[i], i) for i in study.intervals},
            }
        )
    return rows


def _cells(numbers: Perplexities, model: Model | None, name: str) -> dict[str, Any]:
    cells = {kind: numbers.cell(model, (name, kind)) for kind in (*CLASSES, *KINDS)}
    return cells | {"avg": numbers.mean(model, [(name, "unchanged"), (name, "changed")])}


def matrices(study: Study, numbers: Perplexities) -> dict[str, Any]:
    """The temporal misalignment matrix of each method on changed facts (Figure 4).

    Without facts, on the changed spans of the intervals' new text.

    Returns:
      {method: {interval that the model was updated by last ("" for Initial): {interval of the
      facts: cell}}}.
    """
    kind = "changed" if study.has_facts else CHANGED_SPANS
    return {
        method: {
            model.interval: {i: numbers.cell(model, (i, kind)) for i in study.intervals}
            for model in (study.initial, *study.models[method].values())
        }
        for method in study.methods
    }


def matrix_rows(matrices: dict[str, Any]) -> list[dict[str, Any]]:
    """The cells of `matrices` as rows with the columns of `MATRIX`."""
    return [
        {"method": method, "model": model or results.INITIAL, "facts_of": facts}
        | {name: cell and cell[name.replace("perplexity", "value")] for name in MATRIX[3:]}
        for method, after in matrices.items()
        for model, row in after.items()
        for facts, cell in row.items()
    ]


def transfer(study: Study, numbers: Perplexities) -> list[dict[str, Any]]:
    """FUAR of each update, and backward and forward transfer.

    Scores are minus the logarithm of perplexities, nats a token. FUAR compares each model with the
    one that it was trained from, on the facts of its interval: unchanged ones forgotten, updated
    and new ones gained. Transfer is that of changed facts, over all intervals.

    Returns:
      [{"method", "fuar": {interval: {"value" (None: no gain), "low", "high", "lost", "gained",
      "facts"} or None}, "backward", "forward"}]; None where models or facts are missing.
    """
    return [
        {
            "method": method,
            "fuar": {i: _fuar(study, after.get(i), numbers) for i in study.intervals},
            **_over_time(study, [after.get(i) for i in study.intervals]),
        }
        for method, after in study.models.items()
    ]


def _scores(model: Model | None) -> dict[str, float]:
    losses = model.losses if model else {}
    return {"_".join(key): score(of) for key, of in losses.items()}


def _fuar(study: Study, model: Model | None, numbers: Perplexities) -> dict[str, Any] | None:
    last = study.before(model) if model else None
    both = [_scores(last), _scores(model)]
    if not all(both):
        return None
    # A class without facts is not defined (n.d.) in FUAR.
    forgotten, *gained = (
        name if all(name in scores for scores in both) else None
        for name in (f"{model.interval}_{kind}" for kind in ("unchanged", "updated", "new"))
    )
    if forgotten is None or not any(gained):
        return None
    named = {"_".join(key): key for key in model.losses}
    keys = {name: named[name] for name in filter(None, (forgotten, *gained))}
    drawn = [{n: -np.log(numbers.draws(m, k)[1:]) for n, k in keys.items()} for m in (last, model)]
    cells = [forgotten], *gained
    cell = fuar_cell(forgetting.fuar(both, *cells), statistics.fuar_samples(drawn, *cells))
    return {**cell, "facts": sum(len(model.losses[key]) for key in keys.values())}


def _over_time(study: Study, models: Sequence[Model | None]) -> dict[str, float | None]:
    tasks = [f"{i}_changed" for i in study.intervals]
    base, *scores = map(_scores, (study.initial, *models))
    # Transfer needs every model on every interval.
    if len(tasks) < 2 or not all(set(tasks) <= of.keys() for of in (base, *scores)):
        return {"backward": None, "forward": None}
    return {
        "backward": forgetting.backward_transfer(scores, tasks),
        "forward": forgetting.forward_transfer(scores, tasks, base),
    }


def table_1(study: Study) -> list[dict[str, Any]]:
    """Articles, words and tokens of the snapshots and diffsets, by date."""
    tokens = _tokens(study)
    kinds = {"Wikipedia": results.text_of(study), "Diffset": results.manifests(study, "diffset")}
    rows = [
        {
            "name": name,
            "kind": kind,
            "articles": manifest["articles"],
            "words": manifest["words"],
            "tokens": tokens.get(name),
        }
        for kind, made in kinds.items()
        for name, manifest in made.items()
    ]
    return sorted(rows, key=lambda row: (row["name"].partition("-")[0], row["name"]))


def _tokens(study: Study) -> dict[str, int]:
    """{date or interval: tokens} of the existing rows."""
    from ckl_jax.data.tasks.cached import read_manifest

    rows = study.root / "data" / "rows"
    first = study.intervals[0].partition("-")[0]
    # Of the first snapshot all is trained on; of later ones the diffset, and all for "full".
    folders = {first: rows / "first" / "d0"}
    for name in study.intervals:
        folders |= {name: rows / name / "d1", name.partition("-")[2]: rows / name / "whole"}
    made = {name: read_manifest(folder) for name, folder in folders.items()}
    return {n: m["features"]["targets"]["tokens"] for n, m in made.items() if m}


def of_probes(study: Study, table: str) -> list[dict[str, Any]]:
    """The numbers of "table_2" or "table_7" in the probes' manifests.

    Returns:
      [{"interval", "unchanged", "changed", ...}]: of Table 2 {"initial", "aligned", "final"} of
      each class, of Table 7 {"facts", "relations", ..., "by_relation"}.
    """
    return [{"interval": i, **m[table]} for i, m in results.manifests(study, "probes").items()]


# --- extra evaluations


def light_tuned(study: Study) -> list[dict[str, Any]]:
    """Perplexity (Table 5) and F1 in percent (Table 6) of each model after light-tuning.

    Returns:
      [{"method", "cells": {interval: {kind: numbers or None}}}], whose numbers are {"value", "low",
      "high", "facts", "tokens", "f1", "em"}; [] if no model was tuned.
    """
    return _rows(study, ("unchanged", "changed"), _tuned)


def _tuned(model: Model, interval: str, kind: str) -> dict[str, Any] | None:
    name = f"{interval}_{kind}"
    folder = model.path / results.LIGHT_TUNED / name
    if not (folder / "summary.json").is_file():
        return None
    scored = ProbedRun.open(folder).last[name]
    answers = {"f1": 100 * float(scored.f1.mean()), "em": 100 * float(scored.em.mean())}
    return {**estimate(scored.losses), **answers}


def proper_nouns(study: Study) -> list[dict[str, Any]]:
    """Perplexity of words of running text relative to Initial, by `results.TEXT_MEASURES`.

    Of proper nouns in diffset and NON-diffset (Figure 2), and of the diffset's changed spans.

    Returns:
      As `light_tuned`; the numbers are those of `text_losses.ratios`, 1 for Initial.
    """
    losses = functools.cache(results.texts_of)

    def cell(model: Model, interval: str, kind: str) -> dict[str, Any] | None:
        spans = kind == CHANGED_SPANS
        text, group = (results.NEW_TEXT, kind) if spans else (kind, PROPER_NOUNS)
        task, before = f"{interval}_{text}", losses(study.initial.path)
        ours = losses(model.path)
        if task not in before or group not in ours.get(task, ()):
            return None
        one = {task: {group: ours[task][group]}}  # one bootstrap, not of all groups
        return text_losses.ratios(one, before)[task].get(group)

    return _rows(study, tuple(results.TEXT_MEASURES), cell)


def _rows(study: Study, kinds: tuple[str, ...], number: Any) -> list[dict[str, Any]]:
    """One row per method with a number, Initial first, with each model at its own interval."""
    models = {study.initial.method: dict.fromkeys(study.intervals, study.initial), **study.models}
    rows = []
    for method, after in models.items():
        cells = {
            i: {kind: number(after[i], i, kind) if i in after else None for kind in kinds}
            for i in study.intervals
        }
        if any(any(of_kind.values()) for of_kind in cells.values()):
            rows.append({"method": method, "cells": cells})
    return rows
