"""The main table of a study (CKL, Table 2): scores, intervals, FUAR, tests, in three formats."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ckl_jax.analysis import labels
from ckl_jax.analysis.statistics import (
    SAMPLES,
    bootstrap_means,
    fuar_samples,
    holm,
    interval,
    mcnemar,
    two_sided,
)
from ckl_jax.analysis.study import Entry, Study
from ckl_jax.data.facts.probe import ROLES, Probe
from ckl_jax.errors import UserError, nearest
from ckl_jax.probes.forgetting import Cell, fuar

ALPHA = 0.05


@dataclasses.dataclass(frozen=True)
class FuarTasks:
    """Which probes FUAR compares, and how the paper writes that."""

    forgotten: Cell
    updated: Cell
    acquired: Cell
    notation: str


def fuar_tasks(
    probes: Iterable[Probe], acquired: Sequence[str] = (), earlier: int = 0
) -> FuarTasks | None:
    """What FUAR compares, by the roles of the probes; None if it is not defined on them.

    Of each role it takes the first probe by `Probe.order`, with those of its group. So CKL's are
    ((IL), UL, NL) where all are there; without NewLAMA, NewLAMA-Easy takes its place, or the mean
    gap of its two halves; a missing UpdatedLAMA is not defined (n.d.). Of TemporalWiki's probes of
    one interval it is ((Unchanged), Changed, n.d.): the rows do not hold updated and new apart.

    Args:
      probes: what the models were put to.
      acquired: the probes of newly acquired knowledge, in place of the choice above. Of a second
        phase, the paper counts its own half: ["new_lama_easy_p2"].
      earlier: phases before, of whose knowledge nothing is asked: n.d. beside what is forgotten.

    Raises:
      UserError: the models were not put to a probe of `acquired`.
    """
    ordered = sorted(probes, key=lambda probe: probe.order)
    probes = {probe.name: probe for probe in ordered}
    if missing := [p for p in acquired if p not in probes]:
        raise UserError(
            f"The runs were not put to {missing[0]!r}; they were to {', '.join(sorted(probes))}."
            f"{nearest(missing[0], probes)}"
        )
    if (facts := _fact_tasks(set(probes))) and not acquired:
        return facts
    retained, updated, new = (_of_role(role, ordered) for role in ROLES)
    new = [probes[name] for name in acquired] or new
    if not retained or not (updated or new):
        return None
    kept = ", ".join([_notation(retained), *["n.d."] * earlier])
    notation = f"(({kept}), {_notation(updated)}, {_notation(new)})"
    return FuarTasks(*map(_cell, (retained, updated, new)), notation)


def _of_role(role: str, ordered: Sequence[Probe]) -> list[Probe]:
    """The first probe of a role, with those of its group."""
    mine = [probe for probe in ordered if probe.role == role]
    return [p for p in mine if p is mine[0] or (p.group and p.group == mine[0].group)]


def _cell(probes: Sequence[Probe]) -> Cell:
    return [(probe.name, 1.0) for probe in probes] or None


def _notation(probes: Sequence[Probe]) -> str:
    return " & ".join(probe.short for probe in probes) or "n.d."


def _fact_tasks(probes: set[str]) -> FuarTasks | None:
    """Of files of facts, see `fact_files`; None if they are not of just one interval."""
    stems = [p.removesuffix("_unchanged") for p in probes if p.endswith("_unchanged")]
    if len(stems) != 1 or (changed := f"{stems[0]}_changed") not in probes:
        return None
    unchanged = f"{stems[0]}_unchanged"
    return FuarTasks(unchanged, changed, None, "((Unchanged), Changed, n.d.)")


def compute_table(
    study: Study,
    metric: str = "em",
    samples: int = SAMPLES,
    seed: int = 0,
    acquired: Sequence[str] = (),
    earlier: int = 0,
) -> dict[str, Any]:
    """All numbers of the main table, in percent points, as JSON would hold them.

    Args:
      study: the runs.
      metric: "em" or "f1".
      samples: of the bootstrap.
      seed: of the bootstrap.
      acquired, earlier: see `fuar_tasks`.

    Returns:
      {"metric", "probes", "labels": {probe: short}, "columns": {"<probe>/<column>": title}, "fuar",
      "baseline", "rows": [{"key", "label", "trainable", "total", "added", "flops", "seconds",
      "steps", "scores": {probe: {"value", "low", "high", "right", "items"}}, "columns":
      {"<probe>/<column>": value}, "fuar": {"value" (None: no gain), "low", "high"} or None,
      "tests": {probe or "fuar": {"difference", "p", "p_holm"}}}]}. A missing number is None.
    """
    numbers = _Numbers(study, metric, samples, seed)
    tasks = fuar_tasks(study.records.values(), acquired, earlier) if study.initial else None
    rows = [_row(study, entry, numbers, tasks) for entry in study.entries]
    _add_tests(study, rows, numbers, tasks)
    return {
        "metric": metric,
        "probes": study.probes,
        "labels": {name: probe.short for name, probe in study.records.items()},
        "columns": _columns(study, metric),
        "fuar": tasks.notation if tasks else None,
        "baseline": study.vanilla.key if study.vanilla else None,
        "bootstrap": {"samples": samples, "seed": seed, "level": 0.95},
        "alpha": ALPHA,
        "rows": rows,
    }


class _Numbers:
    """Means and bootstrap means of every model and probe, in percent points.

    `means[model][probe]` is a number, `draws[model][probe]` is [B]; the resamples of a probe are
    the same for all models.
    """

    def __init__(self, study: Study, metric: str, samples: int, seed: int):
        self.metric = metric
        self.means: dict[str, dict] = {entry.key: {} for entry in study.entries}
        self.draws: dict[str, dict] = {entry.key: {} for entry in study.entries}
        for i, probe in enumerate(study.probes):
            keys, values = study.values(probe, metric)
            sampled = bootstrap_means(values, samples, seed + i)
            for key, row, draw in zip(keys, values, sampled, strict=True):
                self.means[key][probe] = 100.0 * float(row.mean())
                self.draws[key][probe] = 100.0 * draw


def _row(study: Study, entry: Entry, numbers: _Numbers, tasks: FuarTasks | None) -> dict:
    summary = entry.summary
    is_initial = entry is study.initial
    scores = {}
    for probe, scored in entry.scores.items():
        low, high = interval(numbers.draws[entry.key][probe])
        scores[probe] = {
            "value": numbers.means[entry.key][probe],
            "low": low,
            "high": high,
            "right": int(scored.em.sum()),
            "items": len(scored.items),
        }
    return {
        "key": entry.key,
        "label": entry.label,
        "trainable": None if is_initial else summary.get("trainable_parameters"),
        "total": summary.get("total_parameters"),
        "added": None if is_initial else _added(study, summary),
        "flops": None if is_initial else _flops(summary),
        "seconds": None if is_initial else summary.get("train_seconds"),
        "steps": None if is_initial else summary.get("steps"),
        "scores": scores,
        "columns": {
            f"{probe}/{column}": 100.0 * float(values.mean())
            for probe, scored in entry.scores.items()
            for column, values in scored.columns.items()
            if column != numbers.metric
        },
        "fuar": None if is_initial else _fuar(study, entry, numbers, tasks),
        "tests": {},
    }


def _columns(study: Study, metric: str) -> dict[str, str]:
    """{"<probe>/<column>": title} of what the records show beside the score, and rows have."""
    return {
        f"{name}/{column}": f"{probe.short} {labels.METRICS.get(column, column)}"
        for name, probe in study.records.items()
        for column in probe.columns
        if column != metric
        and any(column in e.scores[name].columns for e in study.entries if name in e.scores)
    }


def _added(study: Study, summary: dict) -> int | None:
    """The parameters that the model has and Initial does not."""
    total = summary.get("total_parameters")
    before = study.initial.summary.get("total_parameters") if study.initial else None
    return None if total is None or before is None else total - before


def _flops(summary: dict) -> int | None:
    """Of the matrix products of the whole training."""
    per_step = summary.get("matmul_flops_per_step")
    return None if per_step is None else per_step * summary["steps"]


def _cells(tasks: FuarTasks) -> tuple:
    return [tasks.forgotten], tasks.updated, tasks.acquired


def _is_defined(study: Study, entry: Entry, tasks: FuarTasks | None) -> bool:
    if tasks is None or study.initial is None:
        return False
    cells = (tasks.forgotten, tasks.updated, tasks.acquired)
    parts = [[(c, 1.0)] if isinstance(c, str) else c or () for c in cells]
    names = [name for part in parts for name, _ in part]
    return all(n in entry.scores and n in study.initial.scores for n in names)


def _fuar(study: Study, entry: Entry, numbers: _Numbers, tasks: FuarTasks | None) -> dict | None:
    if not _is_defined(study, entry, tasks):
        return None
    means = [numbers.means["initial"], numbers.means[entry.key]]
    result = fuar(means, *_cells(tasks))
    low, high = interval(_sampled(entry, numbers, tasks))
    return {
        "value": result.value,
        "lost": result.lost,
        "gained": result.gained,
        "low": _finite(low),
        "high": _finite(high),
    }


def _sampled(entry: Entry, numbers: _Numbers, tasks: FuarTasks) -> np.ndarray:
    return fuar_samples([numbers.draws["initial"], numbers.draws[entry.key]], *_cells(tasks))


def _finite(value: float) -> float | None:
    """None in place of infinity, which JSON cannot hold: "no gain"."""
    return value if np.isfinite(value) else None


def _add_tests(study: Study, rows: list[dict], numbers: _Numbers, tasks) -> None:
    """Tests of every method against Vanilla, corrected for their number (Holm).

    Exact McNemar on right answers for EM; paired bootstrap for F1 and for FUAR.
    """
    base = study.vanilla
    if base is None:
        return
    p_values, differences = {}, {}
    for entry in (e for e in study.methods if e is not base):
        for probe in set(entry.scores) & set(base.scores):
            test = (entry.key, probe)
            means = numbers.means
            differences[test] = means[entry.key][probe] - means[base.key][probe]
            if numbers.metric == "em":
                p_values[test] = mcnemar(entry.scores[probe].em, base.scores[probe].em)
            else:
                draws = numbers.draws
                p_values[test] = two_sided(draws[entry.key][probe] - draws[base.key][probe])
        if _is_defined(study, entry, tasks) and _is_defined(study, base, tasks):
            test = (entry.key, "fuar")
            ours, theirs = (_sampled(e, numbers, tasks) for e in (entry, base))
            p_values[test] = two_sided(_order(ours, theirs))
            differences[test] = None
    adjusted = holm(p_values)
    for row in rows:
        row["tests"] = {
            name: {"difference": differences[key, name], "p": p, "p_holm": adjusted[key, name]}
            for (key, name), p in p_values.items()
            if key == row["key"]
        }


def _order(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Sign of a - b; two infinities ("no gain" twice) are equal."""
    return (a > b).astype(float) - (a < b)


def best(table: dict[str, Any], column: str) -> dict[str, int]:
    """{key: 1 for the best, 2 for the second best} of a column; ties share a rank.

    A rank that more than half of the models have says nothing and is left out.

    Of scores, higher is better; of FUAR, lower. "no gain" never ranks, nor do other columns, nor
    does the Initial model: it is what the methods start from.
    """
    if column != "fuar" and column not in table["probes"]:
        return {}
    ranking = [row for row in table["rows"] if row["key"] != "initial"]
    values = {row["key"]: cell_value(row, column) for row in ranking}
    known = {k: round(v, 2) for k, v in values.items() if v is not None}
    if len(known) < 2:
        return {}
    ranked = sorted(set(known.values()), reverse=column != "fuar")[:2]
    telling = [v for v in ranked if 2 * list(known.values()).count(v) <= len(known)]
    return {k: ranked.index(v) + 1 for k, v in known.items() if v in telling}


def cell_value(row: dict, column: str) -> float | None:
    """The number of a cell: a score, "fuar", one of "columns", or a number such as "seconds"."""
    if column in row["scores"]:
        return row["scores"][column]["value"]
    if column == "fuar":
        return row["fuar"]["value"] if row["fuar"] else None
    return row["columns"].get(column, row.get(column))


def mark(row: dict, column: str) -> str:
    """ "*" where a method differs from Vanilla, after Holm's correction."""
    test = row["tests"].get(column)
    return "*" if test and test["p_holm"] <= ALPHA else ""
