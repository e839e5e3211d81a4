"""Changes between models: examples of predictions (CKL, Table 12) and scores by relation."""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ckl_jax.analysis.labels import STATE_COLORS
from ckl_jax.analysis.ledger import BY_INTEREST, STATES
from ckl_jax.analysis.rows import Scored
from ckl_jax.analysis.sections import Cell, Section
from ckl_jax.analysis.statistics import by_relation
from ckl_jax.analysis.study import Entry, Study
from ckl_jax.data.facts.ckl_files import BLANK
from ckl_jax.data.facts.overlap import BINS


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


def pick_examples(study: Study) -> list[Example]:
    """The facts on which the methods differ most, of each state that occurs.

    The kind of a fact is the state it has under the baseline.
    """
    examples = []
    for probe, methods, states in _compared(study):
        keys = [e.key for e in methods]
        leader = study.baseline if study.baseline in methods else methods[0]
        kinds = states[methods.index(leader)]
        telling = _telling(states)
        for kind in BY_INTEREST:
            mine = [i for i in telling if STATES[kinds[i]] == kind]
            if kind == "never known":  # only worth showing where another method knows
                mine = [i for i in mine if len(set(states[:, i])) > 1][:1]
            for i in mine[:_PER_KIND]:
                by_method = dict(zip(keys, states[:, i], strict=True))
                examples.append(_example(study, probe, kind, i, by_method))
    return examples


def _compared(study: Study) -> Iterator[tuple[str, list[Entry], np.ndarray]]:
    """(probe, methods with answers, [M, N] fact states) for each probe."""
    for probe in study.probes if study.initial and study.methods else ():
        methods = [e for e in study.methods if probe in e.scores]
        if methods and probe in study.initial.scores:
            yield probe, methods, np.stack([study.states(e, probe) for e in methods])


def _telling(states: np.ndarray) -> list[int]:
    """Indices of facts with states [M, N], those on which the methods differ most first."""
    variety = [len(set(column)) for column in states.T]
    # Stable: facts of equal variety stay in file order, so that reports are reproducible.
    return np.argsort(np.negative(variety), kind="stable").tolist()


def _example(study: Study, probe: str, kind: str, i: int, states: Mapping[str, int]) -> Example:
    """Fact `i` of a probe.

    Args:
      states: {entry's key: ledger state}; an entry without one, such as Initial, is compared with
        nothing, so that its answer is right, the old one or wrong.
    """
    cells, row = [], {}
    for entry in study.entries:
        if probe not in entry.scores:
            cells.append(("–", ""))
            continue
        row = entry.scores[probe].rows[i]
        state = "right" if row["em"] else "old answer" if row.get("em_old") else "wrong"
        if entry.key in states:
            state = STATES[states[entry.key]]
        cells.append((row["predictions"][0], state))
    old = row.get("old_answers") or []
    answer = row["answers"][0] + (f" (before: {old[0]})" if old else "")
    title, question = study.records[probe].long, str(row.get("input", ""))
    return Example(probe, title, kind, question, answer, tuple(cells))


_PER_KIND = 2  # examples of a probe
_MAX_FACTS = 4000  # of a page of some 3 MB
_MAX_LETTERS = 300  # of a cell
_GROUPS = {
    "frequency": "frequency: how often the training text states the fact.",
    "reviewed": "reviewed: whether the fact stands in the text that Mix-Review and replay reread.",
}
_SHOWN = 40  # relations of a table
# {state of an answer that is compared with nothing: the state whose colour it has}
_AT_INITIAL = {"right": "kept", "old answer": "stale", "wrong": "never known"}


def examples(study: Study) -> Section:
    """Tables of predictions, one for each probe."""
    chosen = pick_examples(study)
    headers = ["Question and answer", *(entry.label for entry in study.entries)]
    tables = []
    for probe, title in dict.fromkeys((e.probe, e.title) for e in chosen):
        rows = [[_question(e), *_predictions(e)] for e in chosen if e.probe == probe]
        tables.append(Section(title, headers, rows, kind="examples"))
    note = (
        "First answers, with the state of the fact relative to the Initial model; facts on which "
        "the methods differ most."
    )
    return Section(
        "Changed predictions", notes=chosen and [note], sections=tables, anchor="examples"
    )


def all_facts(study: Study) -> Section:
    """One table of the facts of all probes, at most 4,000."""
    rows, left_out = [], 0
    compared = {probe: (methods, states) for probe, methods, states in _compared(study)}
    for probe in study.probes:
        # Without an Initial model facts have no states, and are ordered by who is right.
        methods, values = compared.get(probe, ((), study.values(probe, "em")[1]))
        order = _telling(values)
        room = max(0, _MAX_FACTS - len(rows))
        left_out += len(order[room:])
        for i in order[:room]:
            mine = dict(zip((e.key for e in methods), values[: len(methods), i], strict=True))
            e = _example(study, probe, "", i, mine)
            rows.append([_question(e), e.title, *_predictions(e)])
    notes = [f"{left_out:,} facts more are in the runs' rows."] if left_out else []
    headers = ["Question and answer", "Probe", *(entry.label for entry in study.entries)]
    return Section("All facts", headers, rows, notes, anchor="facts", kind="examples")


def _question(example: Example) -> Cell:
    return Cell(cut(example.question.replace(BLANK, "____")), cut(example.answer))


def _predictions(example: Example) -> Iterator[Cell]:
    for answer, state in example.predictions:
        if state:
            color = STATE_COLORS[_AT_INITIAL.get(state, state)]
            yield Cell(cut(answer) or "(nothing)", state, color=color)
        else:
            yield Cell(cut(answer))


def cut(text: str) -> str:
    """The beginning of a text for a cell or a sentence: KILT's inputs have up to 1,000 words."""
    return text if len(text) <= _MAX_LETTERS else f"{text[: _MAX_LETTERS - 1]}…"


def overlap_section(overlaps: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Section:
    """The overlap of each probe with the training text.

    Args:
      overlaps: {probe: {corpus: `overlap.Overlap` as a mapping}}.
    """
    limits = [0, *(round(100 * limit) for limit in BINS), 100]
    headers = ["Probe", "Text", "Items", "Exact"]
    headers += [f"{a}-{b} %" for a, b in itertools.pairwise(limits)]
    rows = [
        [probe, corpus, mine["items"], mine["exact"]]
        + [f"{100 * count / max(1, mine['items']):.0f}" for count in mine["near"]]
        for probe, corpora in overlaps.items()
        for corpus, mine in corpora.items()
    ]
    note = (
        "Exact: items whose filled statement stands in the text word by word. Last columns: "
        "percent of the items by the greatest fraction of their trigrams that one text has."
        if rows
        else "The overlap with training text was not measured: `ckl data overlap` does so."
    )
    if any("d1" in corpora for corpora in overlaps.values()):
        note += " d0 is the text of the Initial model, d1 the new text."
    return Section("Overlap with training text", headers, rows, [note], anchor="overlap")


def grouped(study: Study, of: str) -> Section:
    """EM of each probe by "relations", "dates" or "groups", for the tables below."""
    table, head = {
        "relations": (relation_table, "Relation"),
        "dates": (date_table, "Date"),
        "groups": (group_table, "Group"),
    }[of]
    headers = [head, "Items", *(entry.label for entry in study.entries)]
    tables = []
    for probe, record in study.records.items():
        rows = [
            [name, n, *("–" if x is None else f"{x:.1f}" for x in scores)]
            for name, n, scores in table(study, probe)
        ]
        tables.append(Section(f"{record.long}, EM", headers, rows))
    shown = " ".join(str(row[0]) for part in tables for row in part.rows)
    notes = [text for name, text in _GROUPS.items() if f"{name}:" in shown]
    return Section(f"Scores by {head.lower()}", notes=notes, sections=tables, anchor=of)


def relation_table(study: Study, probe: str) -> list[tuple]:
    """Scores by relation: [(relation, items, [percent or None of each model])], largest first.

    The last row is the mean over relations, as LAMA reports it. Empty where there is only one
    relation.
    """
    columns, sizes = _by(study, probe, lambda scored: scored.relations)
    if len(sizes) < 2:
        return []
    rows = [_group_row(name, n, columns) for name, n in sizes.most_common(_SHOWN)]
    means = [
        100.0 * float(np.mean([mean for _, mean in column.values()])) if column else None
        for column in columns
    ]
    return [*rows, (f"mean over {len(sizes)} relations", sum(sizes.values()), means)]


def date_table(study: Study, probe: str) -> list[tuple]:
    """Scores by date, earliest first, in the form of `relation_table`; [] without dates.

    Items without a date come last.
    """
    columns, sizes = _by(study, probe, lambda scored: scored.dates)
    return _in_order(columns, sizes) if any(sizes) else []


def group_table(study: Study, probe: str) -> list[tuple]:
    """Scores by group of items, such as the fact's frequency in the text; [] without groups."""
    scored = (e.scores[probe] for e in study.entries if probe in e.scores)
    names = dict.fromkeys(name for mine in scored for name in mine.group_names)
    rows = []
    for name in names:
        groups = _in_order(*_by(study, probe, lambda mine, name=name: mine.group(name)))
        rows += [(f"{name}: {part}", *row) for part, *row in groups]
    return rows


def _in_order(columns: list[dict], sizes: Mapping[str, int]) -> list[tuple]:
    """The rows of groups by name, items of none last."""
    names = sorted(sizes, key=lambda name: (not name, name))
    return [_group_row(name, sizes[name], columns) for name in names]


def _by(
    study: Study, probe: str, classes: Callable[[Scored], Sequence[str]]
) -> tuple[list[dict], collections.Counter[str]]:
    """{group: (items, mean EM)} of each model, and {group: items}."""
    columns, sizes = [], collections.Counter()
    for entry in study.entries:
        scored = entry.scores.get(probe)
        columns.append(by_relation(scored.em, classes(scored)) if scored else {})
        sizes |= {name: n for name, (n, _) in columns[-1].items()}
    return columns, sizes


def _group_row(name: str, items: int, columns: list[dict[str, tuple[int, float]]]) -> tuple:
    scores = [100.0 * c[name][1] if name in c else None for c in columns]
    return (name or "(none)", items, scores)
