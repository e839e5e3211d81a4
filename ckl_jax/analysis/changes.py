"""What changed: examples of predictions (CKL, Table 12) and scores by relation."""

import collections
import dataclasses

import numpy as np

from ckl_jax.analysis.ledger import STATES
from ckl_jax.analysis.statistics import by_relation, macro_mean
from ckl_jax.analysis.study import Study

_KINDS = ("forgotten", "stale", "updated", "learned", "kept", "never known")


@dataclasses.dataclass(frozen=True)
class Example:
    """A fact and what each model answered: [(answer, state)] in the order of the study.

    `title` is its probe's.
    """

    probe: str
    title: str
    kind: str
    question: str
    answer: str
    predictions: tuple[tuple[str, str], ...]


def pick_examples(study: Study, per_kind: int = 2) -> list[Example]:
    """Facts on which the methods differ most, of each kind that some method shows.

    The kind of a fact is the state it has under Vanilla (the first method, if that was not run).
    """
    if study.initial is None or not study.methods:
        return []
    examples = []
    for probe in study.probes:
        methods = [e for e in study.methods if probe in e.scores]
        if probe not in study.initial.scores or not methods:
            continue
        states = np.stack([study.states(e, probe) for e in methods])  # [M, N]
        leader = study.vanilla if study.vanilla in methods else methods[0]
        kinds = states[methods.index(leader)]
        variety = np.array([len(set(column)) for column in states.T])
        telling = np.argsort(-variety, kind="stable")
        for kind in _KINDS:
            mine = [int(i) for i in telling if STATES[kinds[i]] == kind]
            if kind == "never known":  # only worth showing where another method knows
                mine = [i for i in mine if variety[i] > 1][:1]
            for i in mine[:per_kind]:
                examples.append(_example(study, probe, kind, i, methods, states[:, i]))
    return examples


def _example(study: Study, probe: str, kind: str, i: int, methods, states) -> Example:
    row = study.initial.scores[probe].rows[i]
    right = "right" if row["em"] else "old answer" if row.get("em_old") else ""
    cells = [(row["predictions"][0], right)]
    answers = dict(zip((e.key for e in methods), states, strict=True))
    for entry in study.methods:
        if entry.key in answers:
            text = entry.scores[probe].rows[i]["predictions"][0]
            cells.append((text, STATES[answers[entry.key]]))
        else:
            cells.append(("–", ""))
    old = row.get("old_answers") or []
    answer = row["answers"][0] + (f" (before: {old[0]})" if old else "")
    title, question = study.records[probe].long, str(row.get("input", ""))
    return Example(probe, title, kind, question, answer, tuple(cells))


def relation_table(study: Study, probe: str, metric: str = "em", limit: int = 40):
    """Scores by relation: [(relation, items, [percent or None of each model])], largest first.

    The last row is the mean over relations, as LAMA reports it. Empty where there is only one
    relation.
    """
    columns, sizes = _grouped(study, probe, metric, "relations")
    if len(sizes) < 2:
        return []
    rows = [_group_row(name, n, columns) for name, n in sizes.most_common(limit)]
    means = [
        100.0 * macro_mean(getattr(e.scores[probe], metric), e.scores[probe].relations)
        if probe in e.scores
        else None
        for e in study.entries
    ]
    return [*rows, (f"mean over {len(sizes)} relations", sum(sizes.values()), means)]


def date_table(study: Study, probe: str, metric: str = "em") -> list[tuple]:
    """Scores by date, as `relation_table` has them by relation, earliest first; [] without dates.

    Items without a date come last.
    """
    columns, sizes = _grouped(study, probe, metric, "dates")
    if not any(sizes):
        return []
    return [
        _group_row(date, sizes[date], columns) for date in sorted(sizes, key=lambda d: (not d, d))
    ]


def _grouped(
    study: Study, probe: str, metric: str, of: str
) -> tuple[list[dict[str, tuple[int, float]]], collections.Counter[str]]:
    """Of each model {group: (items, mean)}, and {group: items}; `of` are "relations" or "dates"."""
    columns, sizes = [], collections.Counter()
    for entry in study.entries:
        scored = entry.scores.get(probe)
        values = by_relation(getattr(scored, metric), getattr(scored, of)) if scored else {}
        columns.append(values)
        sizes.update({name: n for name, (n, _) in values.items() if name not in sizes})
    return columns, sizes


def _group_row(name: str, items: int, columns: list[dict[str, tuple[int, float]]]) -> tuple:
    scores = [100.0 * c[name][1] if name in c else None for c in columns]
    return (name or "(none)", items, scores)
