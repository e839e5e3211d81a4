"""Tables and figures of the paper out of a study, with the paper's numbers beside ours.

The paper's numbers are of English Wikipedia of August to December 2021; those of its k-th update
stand beside those of our k-th.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ckl_jax.analysis.sections import Section
from ckl_jax.data.facts.fact_files import CLASSES
from ckl_jax.papers.temporalwiki.analysis import examples, figures, report, tables
from ckl_jax.papers.temporalwiki.analysis import published as paper
from ckl_jax.papers.temporalwiki.analysis.results import Study, manifests

Made = tuple[list[Section], Any]  # sections, and the numbers as JSON holds them
_DATES = ("08", "09", "10", "11", "12")
_NO_NUMBERS = "The paper draws these numbers and does not print them."
_ALIGNED = "The paper's examples are of TWiki-Probes-0910."
_NEW_TEXT = (
    "The paper's examples are of the diffset of November to December 2021; its new information is "
    "of the article SARS-CoV-2 Omicron variant (page 69363482)."
)
_NO_TYPES = (
    "There are no types to draw: the Wikidata dumps do not say what subjects and objects are "
    "instances of (P31). Those of the simulated world never do; give dumps that have P31."
)
_NO_FACTS = "There are no unchanged or changed facts to draw."
_DIAGONAL = "Of this figure the paper prints the diagonal alone, in Table 3."


def _pairs(ours: Iterable[Any], theirs: Iterable[Any] | None) -> list[Any]:
    """Ours, each with the paper's beside it."""
    ours = list(ours)
    return [x for pair in zip(ours, theirs or [None] * len(ours), strict=True) for x in pair]


def _month(study: Study, interval: str) -> str | None:
    """The paper's months of the update of the same rank."""
    return dict(zip(study.intervals, paper.MONTHS, strict=False)).get(interval)


def table_1(study: Study) -> Made:
    numbers = tables.table_1(study)
    dates = sorted({date for i in study.intervals for date in i.split("-")})
    names = dict(zip(dates, _DATES, strict=False)) | {i: _month(study, i) for i in study.intervals}
    rows = [
        [
            f"{row['kind']} {row['name']}",
            *_pairs((row["articles"], row["tokens"]), paper.TABLE_1.get(names.get(row["name"]))),
            row["words"],
        ]
        for row in numbers
    ]
    headers = ["Corpus", "Articles", "Paper", "Tokens", "Paper", "Words"]
    return [Section("", headers, rows)], numbers


def table_2(study: Study) -> Made:
    numbers = tables.of_probes(study, "table_2")
    rows = []
    for row in numbers:
        theirs = paper.TABLE_2.get(_month(study, row["interval"]), {})
        for kind in (c for c in CLASSES if c in row):
            label = f"{study.label(row['interval'])} {kind}"
            rows.append([label, *_pairs(map(row[kind].get, report.STEPS), theirs.get(kind))])
    headers = ["Facts of", *_pairs(map(str.capitalize, report.STEPS), ["Paper"] * 3)]
    return [Section("", headers, rows)], numbers


def _columns(printed: Mapping[str, Any], of: Callable[[str], Any], names: Iterable[str], **shown):
    """Columns of perplexities, in the order of the paper's table."""
    return [
        report.Column(
            report.SHORT[name],
            of(name),
            printed=lambda label, month, n=n: printed[label][month][n],
            **shown,
        )
        for n, name in enumerate(names)
    ]


def table_3(study: Study) -> Made:
    numbers = tables.table_3(study, tables.Perplexities(study))
    columns = _columns(paper.TABLE_3, report.of_table_3, report.SHORT)
    cost = report.costs_of(numbers)
    rows = [[*row, paper.HOURS.get(row[0].text)] for row in cost.rows]
    costs = Section("Cost of an update", [*cost.headers, "Paper, hours"], rows)
    return [*report.by_interval(study, numbers, columns, beside=True), costs], numbers


def table_4(study: Study) -> Made:
    return [examples.aligned(study), Section(notes=[_ALIGNED])], []


def table_5(study: Study) -> Made:
    numbers = tables.light_tuned(study)
    columns = _columns(paper.TABLE_5, report.of_cells, ("unchanged", "changed"))
    return _light_tuned(study, numbers, columns), numbers


def table_6(study: Study) -> Made:
    numbers = tables.light_tuned(study)
    names = ("unchanged", "changed")
    columns = _columns(paper.TABLE_6, report.of_cells, names, shown=report.f1)
    return _light_tuned(study, numbers, columns), numbers


def _light_tuned(study: Study, numbers: Any, columns: list[report.Column]) -> list[Section]:
    notes = Section(notes=report.untuned(study))
    return [*report.by_interval(study, numbers, columns, beside=True), notes]


def table_7(study: Study) -> Made:
    numbers = {i: m.get("table_7_tuning", {}) for i, m in manifests(study, "probes").items()}
    names = {"facts": "Size", "relations": "Relations", "max_repetition": "Most of one relation"}
    names |= {"subjects": "Subjects"}
    rows = [
        [f"{study.label(i)} {kind}", *_pairs(map(of.get, names), paper.TABLE_7[kind])]
        for i, kinds in numbers.items()
        for kind, of in kinds.items()
    ]
    headers = ["Facts of", *_pairs(names.values(), ["Paper"] * 4)]
    return [Section("", headers, rows)], numbers


def figure_2(study: Study) -> Made:
    numbers = tables.proper_nouns(study)
    notes = [_NO_NUMBERS, *report.no_nouns(numbers)]
    drawn = Section("Proper nouns", notes=notes, png=figures.plot_nouns(study, numbers))
    return [drawn, *report.nouns(study, numbers).sections], numbers


def figure_3(study: Study) -> Made:
    numbers = tables.table_3(study, tables.Perplexities(study))
    png = figures.plot_averages(study, numbers)
    drawn = Section("Averages", notes=[] if png else [figures.NO_AVERAGES], png=png)
    *_, average = _columns(paper.TABLE_3, report.of_table_3, report.SHORT)
    return [drawn, *report.by_interval(study, numbers, [average], beside=True)], numbers


def figure_4(study: Study) -> Made:
    numbers = tables.matrices(study, tables.Perplexities(study))
    drawn = Section(
        "Temporal misalignment", notes=[_DIAGONAL], png=figures.plot_matrices(study, numbers)
    )
    rows = [{"method": method, "cells": of} for method, of in numbers.items()]
    _, changed, _ = _columns(paper.TABLE_3, report.of_table_3, report.SHORT)
    own = dataclasses.replace(changed, of=lambda row, i: row["cells"].get(i, {}).get(i))
    matrices = [report.matrix_section(study, *item) for item in numbers.items()]
    return [drawn, *report.by_interval(study, rows, [own], beside=True), *matrices], numbers


def figure_5(study: Study) -> Made:
    return [examples.new_text(study), Section(notes=[_NEW_TEXT])], []


def figure_6(study: Study) -> Made:
    sevens = tables.of_probes(study, "table_7")
    has_facts = any(map(any, figures.relations_of(sevens).values()))
    return _most_frequent(figures.types_of(sevens), _NO_TYPES if has_facts else _NO_FACTS)


def figure_7(study: Study) -> Made:
    return _most_frequent(figures.relations_of(tables.of_probes(study, "table_7")), _NO_FACTS)


def _most_frequent(counts: Mapping[str, Any], without: str) -> Made:
    """The figure, or the sentence that says why there is none."""
    png = figures.plot_fractions(counts)
    return [Section("Of all intervals", notes=[_NO_NUMBERS if png else without], png=png)], counts


ANALYSES: Mapping[str, Callable[[Study], Made]] = dict(
    zip(
        paper.TITLES,
        (table_1, table_2, table_3, table_4, table_5, table_6, table_7)
        + (figure_2, figure_3, figure_4, figure_5, figure_6, figure_7),
        strict=True,
    )
)
