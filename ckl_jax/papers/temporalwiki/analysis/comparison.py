"""Tables and figures of the paper out of a study, with the paper's numbers beside ours.

The paper's numbers are of English Wikipedia of August to December 2021; those of its k-th update
stand beside those of our k-th.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ckl_jax.analysis.sections import Section
from ckl_jax.data.facts.fact_files import CLASSES
from ckl_jax.papers.temporalwiki.analysis import examples, figures, report, tables
from ckl_jax.papers.temporalwiki.analysis import published as paper
from ckl_jax.papers.temporalwiki.analysis.results import (
    Study,
    manifests,
    method_label,
)

Numbers = Any  # as JSON holds them
Made = tuple[list[Section], Numbers]
_SHORT = {"unchanged": "Un", "changed": "C", "avg": "Avg"}
_NO_NUMBERS = "The paper draws these numbers and does not print them."


def _months(study: Study) -> dict[str, str]:
    """{interval: the paper's month of the update of the same rank}."""
    return dict(zip(study.intervals, paper.MONTHS, strict=False))


def _by_interval(
    study: Study,
    rows: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    cells: Callable[[Mapping[str, Any], str], Mapping[str, Any]],
    printed: Callable[[str, str, str], str | None],
    shown: Callable[[Any], Any] = report.perplexity,
) -> list[Section]:
    """A table for each interval: each method's numbers, and what the paper has of it.

    Args:
      study: for its intervals.
      rows: one for each method.
      names: of the numbers.
      cells: (row, interval): {name: number}.
      printed: (label of a method, month, name): of the paper.
      shown: makes a table's cell of a number.
    """
    sections = []
    for interval in study.intervals:
        month = _months(study).get(interval)
        about = [
            _SHORT.get(n, n) + report.facts_of(cells(r, interval)[n] for r in rows) for n in names
        ]
        body = []
        for row in rows:
            label = method_label(row["method"])
            line = [label]
            for name in names:
                known = month and label in paper.METHODS
                line += [shown(cells(row, interval)[name])]
                line += [printed(label, month, name) if known else None]
            body.append(line)
        headers = ["Method", *(h for n in about for h in (n, "Paper"))]
        title = study.label(interval) + (f"; in the paper {month}" if month else "")
        sections.append(Section(title, headers, body))
    return sections


def table_1(study: Study) -> Made:
    found = tables.table_1(study)
    dates = sorted({date for i in study.intervals for date in i.split("-")})
    names = _months(study) | dict(zip(dates, ("08", "09", "10", "11", "12"), strict=False))
    rows = []
    for row in found:
        theirs = paper.TABLE_1.get(names.get(row["name"], ""), (None, None))
        pairs = zip((row["articles"], row["tokens"]), theirs, strict=True)
        name = f"{row['kind']} {row['name']}"
        rows.append([name, *(x for pair in pairs for x in pair), row["words"]])
    headers = ["Corpus", "Articles", "Paper", "Tokens", "Paper", "Words"]
    return [Section("", headers, rows)], found


def table_2(study: Study) -> Made:
    found = tables.of_probes(study, "table_2")
    steps = ("initial", "aligned", "final")
    rows = []
    for row in found:
        month = _months(study).get(row["interval"])
        for kind in (c for c in CLASSES if c in row):
            theirs = paper.TABLE_2[month].get(kind) if month else None
            pairs = zip((row[kind][s] for s in steps), theirs or [None] * 3, strict=True)
            rows.append([f"{study.label(row['interval'])} {kind}", *(x for p in pairs for x in p)])
    headers = ["Facts of", *(h for s in steps for h in (s.capitalize(), "Paper"))]
    return [Section("", headers, rows)], found


def table_3(study: Study) -> Made:
    found = tables.table_3(study, tables.Perplexities(study))
    sections = _by_interval(study, found, tuple(_SHORT), _of_table_3, _printed(paper.TABLE_3))
    return [*sections, _time(found)], found


def _of_table_3(row: Mapping[str, Any], interval: str) -> Mapping[str, Any]:
    return row["intervals"][interval]


def _printed(table: Mapping[str, Any]) -> Callable[[str, str, str], str | None]:
    return lambda label, month, name: table[label][month][tuple(_SHORT).index(name)]


def _time(found: Sequence[Mapping[str, Any]]) -> Section:
    """The time of an update, as a fraction of Full's."""
    seconds = {method_label(r["method"]): report.mean(r["cpu_seconds"].values()) for r in found}
    rows = [
        [label, mine, _fraction(mine, seconds.get("Full")), hours, _fraction(hours, 24.0)]
        for label, mine in seconds.items()
        if (hours := paper.HOURS.get(label)) is not None or mine
    ]
    headers = ["Method", "CPU s", "Of Full's", "Hours, paper", "Of Full's, paper"]
    return Section("Time of an update", headers, rows)


def _fraction(x: float | None, of: float | None) -> float | None:
    return x / of if x is not None and of else None


def table_4(study: Study) -> Made:
    section = examples.aligned(study)
    notes = [*section.notes, "The paper's examples are of TWiki-Probes-0910."]
    return [Section("", section.headers, section.rows, notes, kind=section.kind)], []


def table_5(study: Study) -> Made:
    found = tables.light_tuned(study)
    return _by_interval(
        study, found, ("unchanged", "changed"), _of_kinds, _printed(paper.TABLE_5)
    ), found


def table_6(study: Study) -> Made:
    found, printed = tables.light_tuned(study), _printed(paper.TABLE_6)
    shown = lambda x: x and x["f1"]  # noqa: E731
    return _by_interval(study, found, ("unchanged", "changed"), _of_kinds, printed, shown), found


def _of_kinds(row: Mapping[str, Any], interval: str) -> Mapping[str, Any]:
    return row["cells"][interval]


def table_7(study: Study) -> Made:
    made = {i: m.get("table_7_tuning", {}) for i, m in manifests(study, "probes").items()}
    names = {"facts": "Size", "relations": "Relations", "max_repetition": "Most of one relation"}
    names |= {"subjects": "Subjects"}
    rows = [
        [
            f"{study.label(i)} {kind}",
            *(
                x
                for pair in zip(map(of.get, names), paper.TABLE_7[kind], strict=True)
                for x in pair
            ),
        ]
        for i, of_kinds in made.items()
        for kind, of in of_kinds.items()
        if kind in paper.TABLE_7
    ]
    headers = ["Facts of", *(h for name in names.values() for h in (name, "Paper"))]
    return [Section("", headers, rows)], made


def figure_2(study: Study) -> Made:
    found = tables.proper_nouns(study)
    section = report.nouns(study, found)
    drawn = Section("Proper nouns", notes=[_NO_NUMBERS], png=figures.plot_nouns(study, found))
    return [drawn, section], found


def figure_3(study: Study) -> Made:
    found = tables.table_3(study, tables.Perplexities(study))
    drawn = Section("Averages", png=figures.plot_averages(study, found))
    parts = _by_interval(study, found, ("avg",), _of_table_3, _printed(paper.TABLE_3))
    return [drawn, *parts], found


def figure_4(study: Study) -> Made:
    found = tables.matrices(study, tables.Perplexities(study))
    drawn = Section(
        "Temporal misalignment",
        notes=["The paper prints the numbers of the diagonal only (in Table 3)."],
        png=figures.plot_matrices(study, found),
    )
    rows = [
        [
            method_label(method),
            study.label(i),
            report.perplexity(of[i][i]),
            _on_diagonal(study, method, i),
        ]
        for method, of in found.items()
        for i in study.intervals
        if i in of
    ]
    diagonal = Section("The diagonal", ["Method", "Interval", "C", "Paper"], rows)
    return [
        drawn,
        diagonal,
        *(report.matrix_section(study, *item) for item in found.items()),
    ], found


def _on_diagonal(study: Study, method: str, interval: str) -> str | None:
    months = paper.TABLE_3.get(method_label(method), {})
    return months.get(_months(study).get(interval, ""), [None, None])[1]


def _fractions(of: Callable[[Iterable[Any]], Mapping[str, Any]]) -> Callable[[Study], Made]:
    def figure(study: Study) -> Made:
        counts = of(tables.of_probes(study, "table_7"))
        return [
            Section("Of all intervals", notes=[_NO_NUMBERS], png=figures.plot_fractions(counts))
        ], counts

    return figure


ANALYSES: dict[str, Callable[[Study], Made]] = {
    "table1": table_1,
    "table2": table_2,
    "table3": table_3,
    "table4": table_4,
    "table5": table_5,
    "table6": table_6,
    "table7": table_7,
    "figure2": figure_2,
    "figure3": figure_3,
    "figure4": figure_4,
    "figure6": _fractions(figures.types_of),
    "figure7": _fractions(figures.relations_of),
}
