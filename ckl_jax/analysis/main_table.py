"""The main table of a study (CKL, Table 2): scores, intervals, FUAR and tests."""

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from ckl_jax.analysis import labels, statistics
from ckl_jax.analysis.rows import training_flops
from ckl_jax.analysis.sections import COSTS, Cell, Section, compact, costs, estimate, ratio
from ckl_jax.analysis.study import Entry, Study
from ckl_jax.data.facts.probe import ROLES, Probe
from ckl_jax.errors import refuse_unknown
from ckl_jax.probes.forgetting import fuar

ALPHA = 0.05
_MEANINGS = {
    "em": "EM is exact match of the answer.",
    "f1": "F1 is the overlap of the prediction's words with the answer's.",
    "score": "Each data set of KILT has its own metric.",
}


@dataclasses.dataclass(frozen=True)
class FuarTasks:
    """The probes that FUAR compares, and the paper's notation for them."""

    forgotten: Sequence[str]
    updated: Sequence[str]
    acquired: Sequence[str]
    notation: str

    @property
    def cells(self) -> list:
        """The arguments of `probes.forgetting.fuar` after the scores."""
        parts = (self.forgotten, self.updated, self.acquired)
        # All weights 1: the unweighted mean over a role's probes, as CKL takes for NLE_P1 and
        # NLE_P2.
        first, *gained = ([(name, 1.0) for name in part] or None for part in parts)
        return [[first], *gained]


def fuar_tasks(
    probes: Iterable[Probe], acquired: Sequence[str] = (), earlier: int = 0
) -> FuarTasks | None:
    """The probes that FUAR compares, by role; None if it is not defined on them.

    Of each role it takes the first probe by `Probe.order`, with those of its group. So CKL's are
    ((IL), UL, NL) where all are there; without NewLAMA, NewLAMA-Easy takes its place, or the mean
    gap of its two halves; a missing UpdatedLAMA is not defined (n.d.). Of TemporalWiki's probes of
    one interval it is ((Unchanged), Changed, n.d.): the rows do not hold updated and new apart.

    Args:
      probes: what the models were put to.
      acquired: the probes of newly acquired knowledge, in place of the choice above. Of a second
        phase, the paper counts its own half: ["new_lama_easy_p2"].
      earlier: phases before, whose knowledge is not probed: n.d. beside what is forgotten.

    Raises:
      UserError: the models were not put to a probe of `acquired`.
    """
    ordered = sorted(probes, key=lambda probe: probe.order)
    known = {probe.name: probe for probe in ordered}
    for name in acquired:
        said = f"The runs were not put to {name!r}; they were to"
        refuse_unknown(name, sorted(known), said)
    if not acquired and (pair := _fact_pair(known)):
        return FuarTasks([pair[0]], [pair[1]], [], "((Unchanged), Changed, n.d.)")
    retained, updated, new = (_first_of(role, ordered) for role in ROLES)
    new = [known[name] for name in acquired] or new
    if not retained or not (updated or new):
        return None
    # The notation of CKL's tables, such as ((IL), UL, NL).
    first, *gained = (" & ".join(p.short for p in m) or "n.d." for m in (retained, updated, new))
    notation = f"(({', '.join([first, *['n.d.'] * earlier])}), {', '.join(gained)})"
    return FuarTasks(*([p.name for p in mine] for mine in (retained, updated, new)), notation)


def _first_of(role: str, ordered: Sequence[Probe]) -> list[Probe]:
    """The first probe of a role, with those of its group, such as the halves of NewLAMA-Easy."""
    mine = [probe for probe in ordered if probe.role == role]
    return [p for p in mine if p is mine[0] or (p.group and p.group == mine[0].group)]


def _fact_pair(names: Collection[str]) -> tuple[str, str] | None:
    """TemporalWiki's unchanged and changed facts of an interval (`fact_files`) among probes.

    None without a pair, and with those of several intervals, on which FUAR is not defined.
    """
    stems = [name.removesuffix("_unchanged") for name in names if name.endswith("_unchanged")]
    if len(stems) == 1 and f"{stems[0]}_changed" in names:
        return f"{stems[0]}_unchanged", f"{stems[0]}_changed"
    return None


def compute_table(
    study: Study,
    metric: str = "em",
    samples: int = statistics.SAMPLES,
    acquired: Sequence[str] = (),
    earlier: int = 0,
) -> dict[str, Any]:
    """All numbers of the main table, in percent points, as JSON would hold them.

    Args:
      metric: "em", "f1" or "score".
      acquired, earlier: see `fuar_tasks`.

    Returns:
      {"metric", "probes", "labels": {probe: short}, "columns": {"<probe>/<column>": title}, "fuar",
      "baseline" (key of the model that the others are tested against), "rows": [{"key", "label",
      "trainable", "total", "added", "flops", "cpu_seconds", "steps", "scores": {probe: {"value",
      "low", "high", "right", "items"}}, "columns": {"<probe>/<column>": value}, "fuar": {"value"
      (None: no gain), "low", "high"} or None, "tests": {probe or "fuar": {"difference", "p",
      "p_holm"}}}]}. A missing number is None.
    """
    tasks = fuar_tasks(study.records.values(), acquired, earlier) if study.initial else None
    numbers = _Numbers(study, metric, samples, tasks)
    rows = [_row(study, entry, numbers) for entry in study.entries]
    _add_tests(study, rows, numbers)
    return {
        "metric": metric,
        "probes": study.probes,
        "labels": {name: probe.short for name, probe in study.records.items()},
        "columns": {
            f"{name}/{column}": f"{probe.short} {labels.METRICS.get(column, column)}"
            for name, probe in study.records.items()
            for column in probe.columns
            if any(f"{name}/{column}" in row["columns"] for row in rows)
        },
        "fuar": tasks.notation if tasks else None,
        "baseline": study.baseline.key if study.baseline else None,
        "bootstrap": {"samples": samples, "seed": 0, "level": 0.95},
        "alpha": ALPHA,
        "rows": rows,
    }


class _Numbers:
    """Means and bootstrap means of every model and probe, in percent points, and their FUAR.

    `means[model][probe]` is a number, `draws[model][probe]` is [B]; the resamples of a probe are
    the same for all models. `fuar[model]` is (FUAR, [B] its samples) where that is defined.
    """

    def __init__(self, study: Study, metric: str, samples: int, tasks: FuarTasks | None):
        self.metric = metric
        self.means: dict[str, dict] = {entry.key: {} for entry in study.entries}
        self.draws: dict[str, dict] = {entry.key: {} for entry in study.entries}
        for i, probe in enumerate(study.probes):
            # values [M, N], all models on the same items.
            keys, values = study.values(probe, metric)
            # [M, B]. A seed for each probe: resamples of different probes are independent.
            sampled = statistics.bootstrap_means(values, samples, seed=i)
            for key, row, draw in zip(keys, values, sampled, strict=True):
                self.means[key][probe] = 100.0 * float(row.mean())
                self.draws[key][probe] = 100.0 * draw
        compared = {*tasks.forgotten, *tasks.updated, *tasks.acquired} if tasks else set()
        self.fuar = {}
        for key in (entry.key for entry in study.methods if compared):
            if compared <= self.means[key].keys() & self.means["initial"].keys():
                means, draws = ([of["initial"], of[key]] for of in (self.means, self.draws))
                drawn = statistics.fuar_samples(draws, *tasks.cells)
                self.fuar[key] = fuar(means, *tasks.cells), drawn


def _row(study: Study, entry: Entry, numbers: _Numbers) -> dict[str, Any]:
    scores = {}
    for probe, scored in entry.scores.items():
        mean, draws = numbers.means[entry.key][probe], numbers.draws[entry.key][probe]
        counted = {"right": int(scored.em.sum()), "items": len(scored.items)}
        scores[probe] = statistics.estimate(mean, draws) | counted
    total = entry.summary.get("total_parameters")
    # Initial's own training is not a cost of an update.
    summary = {} if entry is study.initial else entry.summary
    before = study.initial.summary.get("total_parameters") if summary and study.initial else None
    return {
        "key": entry.key,
        "label": entry.label,
        "trainable": summary.get("trainable_parameters"),
        "total": total,
        "added": None if total is None or before is None else total - before,
        "flops": training_flops(summary),
        "cpu_seconds": summary.get("train_cpu_seconds"),
        "steps": summary.get("steps"),
        "scores": scores,
        "columns": {
            f"{probe}/{column}": 100.0 * float(values.mean())
            for probe, scored in entry.scores.items()
            for column, values in scored.columns.items()
            if column != numbers.metric
        },
        "fuar": fuar_cell(*numbers.fuar[entry.key]) if entry.key in numbers.fuar else None,
        "tests": {},
    }


def fuar_cell(result: Any, samples: np.ndarray) -> dict[str, float | None]:
    """FUAR and its interval, NaN of one fact; None ("no gain") is infinity, which JSON lacks."""
    low, high = (None if np.isinf(end) else end for end in statistics.interval(samples))
    return {**dataclasses.asdict(result), "low": low, "high": high}


def _add_tests(study: Study, rows: list[dict], numbers: _Numbers) -> None:
    """Tests of every method against the baseline, Holm-corrected.

    Exact McNemar on right answers for EM; paired bootstrap for F1 and for FUAR.
    """
    base = study.baseline
    if base is None:
        return
    p_values, differences = {}, {}
    for entry in (e for e in study.methods if e is not base):
        means, draws = ((of[entry.key], of[base.key]) for of in (numbers.means, numbers.draws))
        for probe in (p for p in entry.scores if p in base.scores):
            test = (entry.key, probe)
            differences[test] = means[0][probe] - means[1][probe]
            if numbers.metric == "em":
                p_values[test] = statistics.mcnemar(entry.scores[probe].em, base.scores[probe].em)
            else:
                p_values[test] = statistics.two_sided(draws[0][probe] - draws[1][probe])
        if entry.key in numbers.fuar and base.key in numbers.fuar:
            ours, theirs = (numbers.fuar[e.key][1] for e in (entry, base))
            # Signs, as two infinities ("no gain" twice) are equal.
            signs = (ours > theirs).astype(float) - (ours < theirs)
            p_values[entry.key, "fuar"] = statistics.two_sided(signs)
            differences[entry.key, "fuar"] = None
    # Once over all tests of the table, not per column: a star anywhere counts as a finding.
    adjusted = statistics.holm(p_values)
    for row in rows:
        row["tests"] = {
            name: {"difference": differences[key, name], "p": p, "p_holm": adjusted[key, name]}
            for (key, name), p in p_values.items()
            if key == row["key"]
        }


def best(table: dict[str, Any], column: str) -> dict[str, int]:
    """{key: 1 for the best, 2 for the second best} of a column; ties share a rank.

    A rank that more than half of the models have says nothing and is left out.

    Of scores, higher is better; of FUAR, lower. Where FUAR's interval reaches "no gain" it never
    ranks, nor do other columns, nor does the Initial model: it is what the methods start from.
    """
    if column != "fuar" and column not in table["probes"]:
        return {}
    ranking = [row for row in table["rows"] if row["key"] != "initial"]
    if column == "fuar":
        ranking = [row for row in ranking if gains(row)]
    values = {row["key"]: cell_value(row, column) for row in ranking}
    # Ranked as printed: two cells that show the same number share a rank.
    known = {k: round(v, 2) for k, v in values.items() if v is not None}
    if len(known) < 2:
        return {}
    ranked = sorted(set(known.values()), reverse=column != "fuar")[:2]
    telling = [v for v in ranked if 2 * list(known.values()).count(v) <= len(known)]
    return {k: ranked.index(v) + 1 for k, v in known.items() if v in telling}


def gains(row: dict) -> bool:
    """Whether a row has a FUAR whose whole interval says that something was gained."""
    return bool(row["fuar"]) and None not in (row["fuar"]["value"], row["fuar"]["high"])


def cell_value(row: dict, column: str) -> float | None:
    """The number of a cell: a score, "fuar", one of "columns", or a number such as "flops"."""
    if column in row["scores"]:
        return row["scores"][column]["value"]
    if column == "fuar":
        return row["fuar"]["value"] if row["fuar"] else None
    return row["columns"].get(column, row.get(column))


# --- as a section


def titles(table: dict[str, Any]) -> dict[str, str]:
    """{column: header} of the scores, the columns beside each, and FUAR.

    Probes that only the Initial model answered are left out if there are others.
    """
    headers = {}
    measured = {p for row in table["rows"] if row["key"] != "initial" for p in row["scores"]}
    for probe in (p for p in table["probes"] if p in measured or not measured):
        headers[probe] = f"{table['labels'][probe]} {table['metric'].upper()}"
        beside = table["columns"].items()
        headers |= {column: t for column, t in beside if column.rpartition("/")[0] == probe}
    return headers | ({"fuar": f"FUAR {table['fuar']}"} if table["fuar"] else {})


def section(table: dict[str, Any], **about: Any) -> Section:
    """A table of `compute_table` with its legend; `about` are further fields of the section."""
    columns = titles(table)
    ranks = {column: best(table, column) for column in columns}
    rows = [
        [
            row["label"],
            *(_cell(row, column, ranks[column].get(row["key"], 0)) for column in columns),
            compact(row["trainable"]),
            compact(row["total"]),
            *costs(row["flops"], row["cpu_seconds"]),
        ]
        for row in table["rows"]
    ]
    wide = ["Trainable", "Total"]
    items = {p: x["items"] for row in table["rows"] for p, x in row["scores"].items()}
    scores = (t + (f", n = {items[c]:,}" if c in items else "") for c, t in columns.items())
    headers = ["Method", *scores, *wide, *COSTS]
    return Section(headers=headers, rows=rows, notes=[_legend(table)], wide=wide, **about)


def _cell(row: dict, column: str, rank: int) -> Cell | float | None:
    if column in row["columns"]:
        return row["columns"][column]
    test = row["tests"].get(column)
    x = row["fuar"] if column == "fuar" else row["scores"].get(column)
    mark = "*" if test and test["p_holm"] <= ALPHA else ""
    return estimate(x, ratio, mark=mark, rank=rank)


def _legend(table: dict[str, Any]) -> str:
    """Explains the symbols in the table."""
    parts = [
        f"Scores in percent ({table['metric'].upper()}); below them, 95 % intervals of a bootstrap "
        f"over items ({table['bootstrap']['samples']} samples): they say how far the choice of "
        "items matters, not how far the random seed does.",
        f"{_MEANINGS[table['metric']]} Bold is best of its column, underlined second best. "
        "Trainable and Total are parameters; TFLOP and CPU s (seconds) are of the training.",
    ]
    label = {row["key"]: row["label"] for row in table["rows"]}
    if any(row["tests"] for row in table["rows"]):
        test = "exact McNemar test" if table["metric"] == "em" else "paired bootstrap"
        parts.append(
            f"* differs from {label[table['baseline']]} at {table['alpha']:.2f} ({test}, for FUAR "
            "the paired bootstrap; Holm's correction over the whole table)."
        )
    if table["fuar"]:
        parts.append(
            "FUAR is what was forgotten over what was gained: 0 forgets nothing, 1 loses as much "
            'as it gains; "no gain" is worst, and an interval that reaches it has no rank.'
        )
    parts += [
        f"{title}: fraction of facts still answered as they used to be."
        for column, title in table["columns"].items()
        if column.endswith("/em_old")
    ]
    return " ".join(parts)
