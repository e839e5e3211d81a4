"""The report on staleness: tables and curves of several models' dumps, as HTML, JSON and PNG."""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckl_jax.analysis import labels
from ckl_jax.analysis.figures import save
from ckl_jax.analysis.report import versions
from ckl_jax.analysis.sections import Cell, Section, estimate, whole, write_page
from ckl_jax.files import without_nan, write_file, write_json
from ckl_jax.papers.mind_the_gap.analysis.emerging import EmergingMentions
from ckl_jax.papers.mind_the_gap.analysis.figures import draw
from ckl_jax.papers.mind_the_gap.analysis.past_text import ALL as POOLED
from ckl_jax.papers.mind_the_gap.analysis.staleness import ALL
from ckl_jax.papers.mind_the_gap.analysis.staleness_study import CONTROL, StalenessStudy, compute

Results = Mapping[str, Any]
_SHOWN_WORDS = 40
_SHOWN_LETTERS = 40  # of a word, which may be a long address
_LEGEND = (
    "Perplexity of {:,.0f} words (not of tokens, of which each model has its own). Below a number "
    "the 95 % interval of a bootstrap over documents, which says nothing on the choice of the "
    "seed. Under stale: percent below the perplexity of the stale model, the first."
)
_SLOPES = (
    "The line through the monthly values; a month in which one document alone has the words, and "
    "so no interval, has no part in it where others do. Its interval is of the bootstrap over "
    "documents, p of the t-test. The last two columns: whether the slope is the stale model's, by "
    "the interaction term of both curves, and by the line through their difference."
)


def write_report(study: StalenessStudy, out: str | Path, *more: Section, names: str = "") -> Path:
    """Computes everything and writes results.json, tables.md, report.html and figures.

    Args:
      *more: further sections of the page.
      names: a sentence on what the models' names mean.

    Returns:
      The path of the page.
    """
    out = Path(out)
    results = compute(study)
    drawn = draw(results)
    tables = tables_of(results)
    plain = [dataclasses.replace(table, notes=()) for table in tables.values()]
    given = [
        Section(name.capitalize(), code=json.dumps(results[name], indent=1))
        for name in ("settings", "about")
    ]
    settings = Section("Settings", notes=[versions()], sections=given, anchor="settings")
    sections = [*parts_of(results, drawn).values(), *more, settings]
    stale = results["months"][results["stale"]]
    against = "a control" if _has_control(results) else "the loss on equally frequent words"
    cutoffs, warning = cutoff_sentences(results), few_documents(results)
    lead = [
        headline(results),
        names,
        f"{labels.count(len(results['months']), 'model')} against {against}, on "
        f"{sum(stale['documents']):,.0f} documents of {stale['labels'][0]} to "
        f"{stale['labels'][-1]}; {results['words'][ALL]:,.0f} words.",
        _new_words(results),
        *cutoffs,
        warning,
    ]
    # The page comes first: by it a report that was interrupted is known as this package's.
    page = write_page(out / "report.html", "How fast the model goes stale", sections, lead)
    save(drawn, out)
    write_json(out / "results.json", without_nan(results))  # which the claims read again
    write_file(out / "tables.md", "\n".join(table.markdown() for table in plain))
    for table in plain:
        table.show()
    for sentence in filter(None, (*cutoffs, warning)):
        print(sentence)
    return page


def _new_words(results: Results) -> str:
    """Two words that the stale model has hardly read, or ""."""
    words = results["emerging"]["words"][:2] if "emerging" in results else []
    shown = (
        f"“{w['word']}” ({w['test']:,} times in the test documents, {w['train']:,} in training)"
        for w in words
    )
    return f"New words, for example: {', '.join(shown)}." if words else ""


def parts_of(results: Results, drawn: Mapping[str, Section]) -> dict[str, Section]:
    """{anchor: section} of the page, in order; those without data are empty."""
    tables = tables_of(results)

    def joined(title: str, anchor: str, *parts: Section | None, name: str = "") -> Section:
        figure = drawn.get(name or anchor, Section())
        return dataclasses.replace(figure, title=title, anchor=anchor, sections=parts)

    sections = [
        dataclasses.replace(tables["Perplexity"], anchor="perplexity"),
        joined("By month", "months", tables.get("Slopes")),
        *_sources(results),
        joined("Parts of speech and topics", "groups", tables.get("Groups of words")),
        dataclasses.replace(tables.get("Emerging new words", Section()), anchor="emerging"),
        joined("By week", "weeks", Section(notes=_overtakes(results))),
        joined("The past", "past", tables.get("The past"), name="forgetting"),
    ]
    return {section.anchor: section for section in sections}


def headline(results: Results) -> str:
    """What the study says of the stale model; "" without a control: see `cutoff_sentences`."""
    if not _has_control(results):
        return ""
    name, curve = results["stale"], results["months"][results["stale"]]
    slope = {"value": curve["line"]["slope"], **curve["line"]}
    differs = "is higher than" if curve["overall"]["value"] > 0 else "differs from"
    sentences = [
        f"The perplexity of {name} {differs} the control's by {inline(curve['overall'], '%')}.",
        f"{_change(slope)} {inline(slope, _points(results))}.",
    ]
    won = {n: x[ALL] for n, x in results["reduction"].items() if x[ALL]["low"] > 0}
    if won:
        best = max(won, key=lambda n: won[n]["value"])
        sentences.append(
            f"The perplexity of {best} is lower than {name}'s by {inline(won[best], '%')}."
        )
    return " ".join(sentences)


def _change(slope: Mapping[str, float]) -> str:
    if slope["low"] > 0:
        return "The gap grows by"
    return (
        "The gap changes by" if slope["high"] < 0 else "No growth of the gap is shown: the slope is"
    )


def inline(x: Mapping[str, float], unit: str) -> str:
    """A value and its interval in a sentence."""
    shown = rounded(x)
    return f"{shown.text} {unit}" + (f" (95 % interval {shown.below})" if shown.below else "")


# --- tables


def tables_of(results: Results) -> dict[str, Section]:
    """{title: table}; those without data are left out."""
    tables = (_models(results), _slopes(results), _groups(results), _emerging(results))
    return {table.title: table for table in (*tables, _past(results)) if table.rows}


def _models(results: Results) -> Section:
    """Tables 2 and 4: each model, relative to the control and to the stale model."""
    headers = ["Model", "Perplexity", _over(results), "Under stale (%)"]
    rows = []
    if _has_control(results):
        rows.append([CONTROL, perplexity(results["perplexity"][CONTROL][ALL]), None, None])
    for name, curve in results["months"].items():
        reduction = results["reduction"].get(name, {}).get(ALL)
        over = rounded(curve["overall"])
        rows.append([name, perplexity(results["perplexity"][name][ALL]), over, rounded(reduction)])
    return Section("Perplexity", headers, rows, [_LEGEND.format(results["words"][ALL])])


def _slopes(results: Results) -> Section:
    """The line through each curve, and whether an update's rises less than the stale model's."""
    tests = ["p (slope is 0)", "p (as the stale one's)", "p (paired)"]
    rows = []
    for name, curve in results["months"].items():
        slope = results["slopes"].get(name) or {}
        compared = (_p(slope[kind]["p"] if slope else None) for kind in ("unpaired", "paired"))
        rows.append([name, slope_of(curve), _p(curve["line"]["p"]), *compared])
    return Section("Slopes", ["Model", _slope_title(results), *tests], rows, [_SLOPES])


def _groups(results: Results) -> Section:
    """The stale model by part of speech and topic."""
    headers = ["Words", "Number", _over(results), _slope_title(results)]
    rows = [
        [name, whole(results["words"][name]), rounded(curve["overall"]), slope_of(curve)]
        for curves in results["groups"].values()
        for name, curve in curves.items()
        if curve
    ]
    notes = [f"Tagger: {results['tagger']}."] if "tagger" in results else []
    if without := [n for curves in results["groups"].values() for n, c in curves.items() if not c]:
        notes.append(f"Not in the test documents: {'; '.join(without)}.")
    return Section("Groups of words", headers, rows, notes)


def _emerging(results: Results) -> Section:
    """Table 3: emerging new words, by mention, under the stale model and its updates."""
    if "emerging" not in results:
        return Section()
    stale = results["stale"]
    updates = [name for name in results["months"] if name != stale]
    headers = ["Words", "Number", stale]
    headers += [h for name in updates for h in (name, f"{name}: reduction (%)")]
    about, settings, perplexities = (results[k] for k in ("emerging", "settings", "perplexity"))
    rows = []
    for group in (ALL, *EmergingMentions.names):
        if results["words"][group] and about["types"]:
            words = whole(results["words"][group])
            rows.append([group, words, perplexity(perplexities[stale][group])])
            for name in updates:
                reduction = rounded(results["reduction"].get(name, {}).get(group))
                rows[-1] += [perplexity(perplexities[name][group]), reduction]
    unseen = about["unseen_types"].values()
    note = (
        f"{about['types']:,} words with {about['mentions']:,} mentions: at least "
        f"{settings['emerging_min_count']} in the test documents, and there at least "
        f"{settings['emerging_factor']:g} times as probable as in training. Of the different words "
        f"of a month, {100 * min(unseen):.1f} to {100 * max(unseen):.1f} % never occur in training."
        " 1st, 2nd: the mention in a document; in memory: the model still saw the first."
    )
    words = [[w["word"], w["test"], w["train"]] for w in about["words"][:_SHOWN_WORDS]]
    below = Section("", ["Word", "Test", "Training"], words)
    return Section("Emerging new words", headers, rows, [note], sections=[below])


def _past(results: Results) -> Section:
    """The change of perplexity of each past period after the last update, percent."""
    forgetting = results["forgetting"]
    periods = {period for mine in forgetting.values() for period in mine}
    periods = sorted(periods, key=lambda period: (period == POOLED, period))
    rows = [
        [name, *(f"{list(mine[p].values())[-1]:+.2f}" if mine.get(p) else None for p in periods)]
        for name, mine in forgetting.items()
    ]
    return Section("The past", ["Model", *(f"{period} (%)" for period in periods)], rows)


def _has_control(results: Results) -> bool:
    return CONTROL in results["perplexity"]


def _over(results: Results) -> str:
    return "Over control (%)" if _has_control(results) else "Over expected (%)"


def cutoff_sentences(results: Results) -> list[str]:
    """For each model, the month from which its perplexity rises, if it does."""
    sentences = []
    for name, cutoff in results["cutoffs"].items():
        line = results["months"][name]["line"]
        if cutoff:
            sentences.append(
                f"{name}: perplexity rises from {cutoff['month']} on (95 % interval "
                f"{cutoff['low']} to {cutoff['high']}), by {cutoff['slope']:.2f} "
                f"{_points(results)} ({cutoff['slope_low']:.2f} to {cutoff['slope_high']:.2f})."
            )
        elif not _has_control(results):
            if math.isnan(line["p"]):
                sentences.append(f"{name}: no slope is tested, which needs three points.")
            elif not line["low"] > 0:
                sentences.append(f"{name}: no rise of perplexity with time is found.")
    return sentences


def _sources(results: Results) -> list[Section]:
    """The words and documents that a model loses most on, beyond equally frequent words."""
    note = "From the month of the rise on, or of all documents where none is found."
    headers = ["Word", "Number", "Excess (nats)", "In all (nats)"]
    of_documents = ["Document", "Date", "Excess a word (nats)", "Its beginning"]
    sections = []
    for name, source in results["sources"].items():
        words = [
            [w["word"][:_SHOWN_LETTERS], whole(w["count"]), f"{w['nats']:.2f}", f"{w['total']:.1f}"]
            for w in source["words"]
        ]
        documents = [
            [d["id"], d["date"], f"{d['nats']:.2f}", d["text"]] for d in source["documents"]
        ]
        below = Section("", of_documents, documents, kind="plain")
        more = {"sections": [below], "anchor": f"sources-{name}"}
        sections.append(Section(f"Where {name} loses most", headers, words, [note], **more))
    return sections


def _points(results: Results) -> str:
    months = results["settings"]["bin_months"]
    return f"points {'a month' if months == 1 else f'in {months} months'}"


def _slope_title(results: Results) -> str:
    return f"Slope ({_points(results)})"


def perplexity(value: float | None) -> str:
    """A perplexity with four digits or more; \"–\" for None."""
    if value is None or value != value:
        return "–"
    return f"{value:.2f}" if value < 100 else f"{value:.1f}" if value < 1e5 else f"{value:.2e}"


def rounded(x: Mapping[str, float] | None) -> Cell:
    """A number with as many digits as its interval supports: two or three of its width."""
    if x is None or x["value"] != x["value"]:
        return Cell("–")
    width = x["high"] - x["low"]
    digits = math.ceil(1.5 - math.log10(width)) if width > 0 else 2
    return estimate(x, f"{{:z.{min(max(digits, 0), 3)}f}}".format, " to ")


def slope_of(curve: Mapping[str, Any]) -> Cell:
    """The slope of a curve's line, with its interval."""
    return rounded({"value": curve["line"]["slope"], **curve["line"]})


def _p(value: float | None) -> str:
    if value is None or math.isnan(value):  # fewer than three months
        return "–"
    return "< 0.0001" if value < 1e-4 else f"{value:.4f}"


def _overtakes(results: Results) -> list[str]:
    since = {name: curve["overtakes"] for name, curve in results["weeks"].items()}
    lines = [
        f"{name}: better than the control from the week of {week} on."
        for name, week in since.items()
        if week
    ]
    none = "No model is better than the control in three successive weeks."
    return lines or ([none] if since else [])


def few_documents(results: Results) -> str:
    """A note on points of the curve with a single document each, or ""."""
    counts = results["months"][results["stale"]]["documents"]
    single = sum(n < 2 for n in counts)
    if not single:
        return ""
    return (
        f"{single} of {len(counts)} points of the curves are of one document each: their spread is "
        "unknown, and what the intervals leave out. Give more test documents a month "
        "(--per-month, --test-fraction) or longer bins (--bin-months)."
    )
