"""The report on staleness: tables and curves of several models' dumps, as HTML, JSON and PNG."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.analysis import page
from ckl_jax.analysis.figures import as_png, save
from ckl_jax.analysis.forgetting import ALL as POOLED
from ckl_jax.analysis.render_table import TableCell, markdown, print_cells
from ckl_jax.analysis.report import versions
from ckl_jax.files import write_file, write_json
from ckl_jax.papers.mind_the_gap.analysis import figures
from ckl_jax.papers.mind_the_gap.analysis.emerging import (
    EMERGING,
    FIRST,
    SECOND_SEEN,
    SECOND_UNSEEN,
)
from ckl_jax.papers.mind_the_gap.analysis.staleness import ALL
from ckl_jax.papers.mind_the_gap.analysis.staleness_study import CONTROL, DriftStudy, compute

Cells = tuple[list[str], list[list[TableCell]]]
Results = Mapping[str, Any]
FIGURES: dict[str, tuple[str, str, Callable[[Results], Any]]] = {
    "months": (
        "Staleness by month",
        "How much higher than the control's a model's perplexity is, on the same documents; bands "
        "are 95 % intervals of a bootstrap over each month's documents.",
        figures.plot_months,
    ),
    "groups": (
        "Parts of speech and topics",
        "The stale model; dotted are topics, if there are any: those that rise most and least. "
        "Where one curve dwarfs the others the axis is logarithmic above 100.",
        figures.plot_groups,
    ),
    "weeks": (
        "Staleness by week",
        "Spans of seven days; below 0 a model is better than the control.",
        figures.plot_weeks,
    ),
    "forgetting": (
        "Text of the past",
        "How much higher the perplexity of text from before the test period is than before the "
        "first update; above 0 the model forgets.",
        figures.plot_forgetting,
    ),
}
_SHOWN_WORDS = 40


def write_report(
    study: DriftStudy, out: str | Path, more: Sequence[tuple[str, str, str]] = ()
) -> Path:
    """Computes everything and writes results.json, tables.md, report.html and figures.

    Args:
      study: what is compared.
      out: folder.
      more: further sections of the page: (anchor, title, HTML).

    Returns:
      The path of the page.
    """
    out = Path(out)
    results = compute(study)
    write_json(out / "results.json", results)
    drawn = {
        name: (title, caption, as_png(figure))
        for name, (title, caption, draw) in FIGURES.items()
        if (figure := draw(results)) is not None
    }
    save(drawn, out)
    tables = tables_of(results)
    write_file(
        out / "tables.md",
        "\n".join(f"### {title}\n\n{markdown(*cells)}" for title, cells in tables.items()),
    )
    for title, cells in tables.items():
        print_cells(*cells, title=title)
    if told := few_documents(results):
        print(told)
    path = out / "report.html"
    write_file(path, _html(results, tables, drawn, more))
    return path


# --- tables


def tables_of(results: Results) -> dict[str, Cells]:
    """{title: headers and rows}; those without data are left out."""
    made = {"Perplexity": cells_of_models(results), "Slopes": cells_of_slopes(results)}
    if results["groups"]["parts of speech"] or results["groups"]["topics"]:
        made["Groups of words"] = cells_of_groups(results)
    if "emerging" in results and results["emerging"]["types"]:
        made["Emerging new words"] = cells_of_emerging(results)
    if results["forgetting"]:
        made["The past"] = cells_of_forgetting(results)
    return {title: cells for title, cells in made.items() if cells[1]}


def cells_of_models(results: Results) -> Cells:
    """Tables 2 and 4 of the paper: each model, over the control, and under the stale model."""
    headers = ["Model", "Perplexity", "Over control (%)", "Under stale (%)"]
    none = TableCell("–")
    rows = [[TableCell(CONTROL), _plain(results["perplexity"][CONTROL][ALL]), none, none]]
    for name, curve in results["months"].items():
        reduction = results["reduction"].get(name, {}).get(ALL)
        rows.append(
            [
                TableCell(name),
                _plain(results["perplexity"][name][ALL]),
                _estimate(curve["overall"]),
                _estimate(reduction),
            ]
        )
    return headers, rows


def cells_of_slopes(results: Results) -> Cells:
    """The line through each curve, and whether an update's rises less than the stale model's."""
    headers = [
        "Model",
        f"Slope (points {_per(results)})",
        "p (slope is 0)",
        "p (as the stale one's)",
        "p (paired)",
    ]
    rows = []
    for name, curve in results["months"].items():
        tests = results["slopes"].get(name) or {}
        compared = (_p(tests[kind]["p"] if tests else None) for kind in ("unpaired", "paired"))
        rows.append([TableCell(name), _slope(curve), _p(curve["line"]["p"]), *compared])
    return headers, rows


def cells_of_groups(results: Results) -> Cells:
    """The stale model by part of speech and topic."""
    headers = ["Words", "Number", "Over control (%)", f"Slope (points {_per(results)})"]
    rows = []
    for curves in results["groups"].values():
        for name, curve in curves.items():
            if curve:
                number = TableCell(f"{results['words'][name]:,.0f}")
                rows.append([TableCell(name), number, _estimate(curve["overall"]), _slope(curve)])
    return headers, rows


def cells_of_emerging(results: Results) -> Cells:
    """Table 3: emerging new words, by mention, under the stale model and its updates."""
    updates = [name for name in results["months"] if name != results["stale"]]
    headers = ["Words", "Number", results["stale"]]
    for name in updates:
        headers += [name, "less (%)"]
    rows = []
    for group in (ALL, EMERGING, FIRST, SECOND_SEEN, SECOND_UNSEEN):
        if not results["words"][group]:
            continue
        row = [TableCell(group), TableCell(f"{results['words'][group]:,.0f}")]
        row.append(_plain(results["perplexity"][results["stale"]][group]))
        for name in updates:
            row += [
                _plain(results["perplexity"][name][group]),
                _estimate(results["reduction"][name][group]),
            ]
        rows.append(row)
    return headers, rows


def cells_of_forgetting(results: Results) -> Cells:
    """The change of perplexity of each past period after the last update, percent."""
    forgetting = results["forgetting"]
    periods = {period for mine in forgetting.values() for period in mine}
    periods = sorted(periods, key=lambda period: (period == POOLED, period))
    rows = []
    for name, mine in forgetting.items():
        last = (list(mine[p].values())[-1] if p in mine else None for p in periods)
        cells = ("–" if value is None else f"{value:+.2f}" for value in last)
        rows.append([TableCell(name), *map(TableCell, cells)])
    return ["Model", *(f"{period} (%)" for period in periods)], rows


def _per(results: Results) -> str:
    months = results["settings"]["bin_months"]
    return "a month" if months == 1 else f"in {months} months"


def _plain(value: float) -> TableCell:
    return TableCell(f"{value:.2f}" if value < 1e5 else f"{value:.2e}")


def _estimate(value: Mapping[str, float] | None, digits: int = 2) -> TableCell:
    if value is None or math.isnan(value["value"]):
        return TableCell("–")
    if math.isnan(value["low"]):
        return TableCell(f"{value['value']:.{digits}f}")
    interval = f"{value['low']:.{digits}f} to {value['high']:.{digits}f}"
    return TableCell(f"{value['value']:.{digits}f}", interval)


def _slope(curve: Mapping[str, Any]) -> TableCell:
    line = curve["line"]
    return _estimate({"value": line["slope"], "low": line["low"], "high": line["high"]}, 3)


def _p(value: float | None) -> TableCell:
    if value is None or math.isnan(value):  # fewer than three months
        return TableCell("–")
    return TableCell("< 0.0001" if value < 1e-4 else f"{value:.4f}")


# --- the page


def _html(results: Results, tables: Mapping[str, Cells], drawn, more) -> str:
    def table(title: str) -> str:
        return page.cells(*tables[title]) if title in tables else ""

    def figure(name: str) -> str:
        return page.figure(*drawn[name]) if name in drawn else ""

    tagger = f"Tagger: {results['tagger']}." if "tagger" in results else ""
    sections = [
        ("perplexity", "Perplexity", table("Perplexity") + page.note(_LEGEND)),
        ("months", "By month", figure("months") + table("Slopes") + page.note(_SLOPES)),
        (
            "groups",
            "Parts of speech and topics",
            figure("groups") + table("Groups of words") + page.note(tagger),
        ),
        ("emerging", "Emerging new words", table("Emerging new words") + _words(results)),
        ("weeks", "By week", figure("weeks") + _overtakes(results)),
        ("past", "The past", figure("forgetting") + table("The past")),
        *more,
        (
            "settings",
            "Settings",
            page.note(versions())
            + f"<pre>{page.text(json.dumps(results['settings'], indent=1))}</pre>"
            + f"<pre>{page.text(json.dumps(results['about'], indent=1))}</pre>",
        ),
    ]
    lead = page.note(
        f"{len(results['months'])} models against a control, on "
        f"{sum(results['months'][results['stale']]['documents']):,.0f} documents of "
        f"{results['months'][results['stale']]['labels'][0]} to "
        f"{results['months'][results['stale']]['labels'][-1]}; {results['words'][ALL]:,.0f} words."
    ) + page.note(few_documents(results))
    return page.page("How fast the model goes stale", lead, sections)


def few_documents(results: Results) -> str:
    """A sentence on points of the curve that are one document each; "" if there are none."""
    counts = results["months"][results["stale"]]["documents"]
    single = sum(n < 2 for n in counts)
    if not single:
        return ""
    return (
        f"{single} of {len(counts)} points of the curves are of one document each: their spread is "
        "unknown, and what the intervals leave out. Give more test documents a month "
        "(--per-month, --test-share) or longer bins (--bin-months)."
    )


_LEGEND = (
    "Perplexity of words (not of pieces, of which each model has its own). Below a number the 95 % "
    "interval of a bootstrap over documents, which says nothing on the choice of the seed."
)
_SLOPES = (
    "The line through the monthly values; its interval is of the bootstrap over documents, p of "
    "the t-test. The last two columns: whether the slope is the stale model's, by the interaction "
    "term of both curves, and by the line through their difference."
)


def _words(results: Results) -> str:
    if "emerging" not in results:
        return ""
    emerging_words = results["emerging"]
    settings = results["settings"]
    rows = [
        [page.text(w["word"]), f"{w['test']:,}", f"{w['train']:,}"]
        for w in emerging_words["words"][:_SHOWN_WORDS]
    ]
    unseen = emerging_words["unseen_types"].values()
    note = page.note(
        f"{emerging_words['types']:,} words with {emerging_words['mentions']:,} mentions: at least "
        f"{settings['emerging_least']} in the test documents, and there at least "
        f"{settings['emerging_factor']:g} times as probable as in training. Of the different words "
        f"of a month, {100 * min(unseen):.1f} to {100 * max(unseen):.1f} % never occur in training."
    )
    return note + (page.grid(["Word", "Test", "Training"], rows) if rows else "")


def _overtakes(results: Results) -> str:
    since = {name: curve["overtakes"] for name, curve in results["weeks"].items()}
    lines = [
        f"{name}: better than the control from the week of {week} on."
        for name, week in since.items()
        if week
    ]
    if since and not lines:
        lines = ["No model is better than the control in three successive weeks."]
    return "".join(map(page.note, lines))
