"""The report of successive updates: HTML, Markdown, JSON, CSV and figures."""

import csv
import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.analysis import figures, labels
from ckl_jax.analysis.changes import overlap_section
from ckl_jax.analysis.perplexity import rounded
from ckl_jax.analysis.report import configs, versions
from ckl_jax.analysis.sections import (
    COSTS,
    Cell,
    Section,
    compact,
    costs,
    estimate,
    ratio,
    write_page,
)
from ckl_jax.data.facts.fact_files import CLASSES
from ckl_jax.files import atomic_write, finite, read_json, write_file, write_json
from ckl_jax.papers.temporalwiki.analysis import examples, promotion, published, results, tables
from ckl_jax.papers.temporalwiki.analysis.figures import NO_AVERAGES, draw
from ckl_jax.papers.temporalwiki.analysis.results import Study, method_label

Rows = Sequence[dict[str, Any]]
_LEGEND = (
    "Perplexity of whole facts (exp of the mean loss of a token), lower is better, of each model "
    "on the facts of the interval that it was updated by last; Initial is the model before any "
    "update. Un: unchanged facts; C: changed ones; Avg: their mean. Below them 95 % intervals of a "
    "bootstrap over facts: they say how far the choice of facts matters, not how far the random "
    "seed does. Bold is best of its column, underlined second best. TFLOP (of matrix products) and "
    "CPU seconds are of training alone, a mean over the intervals."
)
_MATRIX = (
    "Rows: the interval that the model was updated by last; columns: the interval of the {}. On "
    "the diagonal (bold) they agree."
)
_TRANSFER = (
    "Scores are minus the logarithm of perplexities, nats a token. FUAR: what an update lost on "
    "unchanged facts over what it gained on updated and new ones, relative to the model before it; "
    "0 loses nothing. Below it is the 95 % interval of a bootstrap over facts. Backward transfer: "
    "what was gained on changed facts of earlier intervals after their own update (negative: "
    "lost); forward transfer: what was gained, relative to Initial, on those of an interval before "
    "its update."
)
_TUNED = (
    "Each model, tuned with all its parameters on facts of the class that are not probes, and then "
    "asked: perplexity of the facts, and F1 of what it writes for the object, in percent."
)
_NOUNS = (
    "Perplexity of proper nouns over that of Initial, in the new text of the interval and in the "
    "rest of its new snapshot, and of the changed spans of the new text (new articles, new "
    "sentences, and in edited ones the spans with a new number or name); below 1 they are likelier "
    "than they were. n: the rows of text that have such tokens, which the 95 % intervals are a "
    "bootstrap over."
)
_NO_NOUNS = (
    "No proper noun was found in the text: they are known by their capitals, which not every "
    "language has."
)
_COLUMNS = 9  # of numbers, on a page
STEPS = ("initial", "aligned", "final")  # of a class of facts (Table 2)
SHORT = {"unchanged": "Un", "changed": "C", "avg": "Avg"}


def write_report(root: str | Path, out_dir: str | Path | None = None) -> Path:
    """Writes the report of a folder of `ckl temporalwiki` and prints its tables.

    Args:
      out_dir: gets the files; None is `root`.

    Returns:
      The path of report.html.

    Raises:
      UserError: the folder is none, or cannot be written.
    """
    out = Path(out_dir or root)
    study = results.load(root)
    # Bootstraps once; all tables take their cells from it.
    numbers = tables.Perplexities(study)
    made: dict[str, Any] = {
        "table_3": tables.table_3(study, numbers),
        "matrices": tables.matrices(study, numbers),
        "table_1": tables.table_1(study),
        "table_2": tables.of_probes(study, "table_2"),
        "table_7": tables.of_probes(study, "table_7"),
        "transfer": tables.transfer(study, numbers),
        "light_tuned": tables.light_tuned(study),
        "proper_nouns": tables.proper_nouns(study),
    }
    drawn = draw(study, made)
    matrices = [
        matrix_section(study, method, matrix) for method, matrix in made["matrices"].items()
    ]
    figure = drawn.get("misalignment", Section())
    notes = [*figure.notes, _MATRIX.format(study.changed)] if figure else []
    about = {"notes": notes, "png": figure.png, "anchor": "misalignment"}
    misalignment = Section("Temporal misalignment", sections=matrices, **about)
    scores, kinds = section_3(study, made["table_3"]), _kinds(study, made["table_3"])
    transfer = _transfer(study, made["transfer"])
    extra = [_tuned(study, made["light_tuned"]), nouns(study, made["proper_nouns"])]
    extra.append(drawn.get("proper_nouns"))
    extra_evaluations = Section(
        "Light-tuning and running text", sections=extra, anchor="extra_evaluations"
    )
    in_markdown = filter(None, (scores, kinds, transfer, extra_evaluations, misalignment))
    measured, facts = Path(root) / results.OVERLAP, examples.section(study)
    sections = [
        _verdicts(Path(root) / promotion.VERDICT),
        scores,
        drawn.get("averages") or _no_averages(study),
        drawn.get("course"),
        kinds,
        transfer,
        extra_evaluations,
        misalignment,
        _corpora(made["table_1"]),
        _facts(study, made["table_2"], made["table_7"]),
        overlap_section(read_json(measured) if measured.is_file() else {}),
        *map(drawn.get, ("relations", "types")),
        facts,
        _settings(study),
    ]
    title = "What each update learned and forgot"
    # The page comes first: by it a report that was interrupted is known as this package's.
    lead = [*overview(study, made["table_3"]), examples_of(facts)]
    page = write_page(out / "report.html", title, sections, lead)
    figures.save(drawn, out / "figures")
    write_file(out / "tables.md", "\n".join(section.markdown() for section in in_markdown))
    write_json(out / "tables.json", finite({"intervals": study.intervals, **made}))
    with atomic_write(out / "matrix.csv") as f:
        writer = csv.DictWriter(f, tables.MATRIX, lineterminator="\n")
        writer.writeheader()
        writer.writerows(tables.matrix_rows(made["matrices"]))
    for part in (*scores.sections, *matrices):
        part.show()
    return page


def _verdicts(path: Path) -> Section:
    """What the gate decided, if there was one."""
    verdicts = read_json(path)["verdicts"] if path.is_file() else []
    headers = ["Model", "Relative to", "Verdict", "Score", "Ratio", "95 %", "Facts"]
    rows = []
    for verdict in verdicts:
        names = [verdict[name] for name in ("model", "relative_to", "verdict")]
        for name, s in verdict["scores"].items():
            span = "–" if s["low"] is None else f"{s['low']:.3f} to {s['high']:.3f}"
            rows.append([*names, name, f"{s['value']:.3f}", span, s["n"]])
    notes = [f"Condition: {verdicts[0]['condition']}, of whole intervals."] if verdicts else []
    notes += [verdict["sentence"] for verdict in verdicts]
    return Section("The gate", headers, rows, notes, anchor="gate")


# --- sections


def _no_averages(study: Study) -> Section:
    """Why there is no figure of averages; of a study without facts all of the page says so."""
    return Section("Averages", notes=[NO_AVERAGES] if study.has_facts else [], anchor="averages")


def perplexity(x: dict[str, Any] | None, rank: int = 0) -> Cell:
    """A table's cell of a perplexity."""
    return estimate(x, lambda value: str(rounded(value)), rank=rank)


@dataclasses.dataclass(frozen=True)
class Column:
    """A column that a table of methods has for each interval.

    Attributes:
      of: (row of a method, interval): its number, see `tables.Perplexities.cell`, or None.
      shown: makes a cell of it.
      ranked: whether the lowest perplexities are marked.
      printed: (label of a method, month): what the paper has.
    """

    name: str
    of: Callable[[dict[str, Any], str], Any]
    shown: Callable[[Any], Any] = perplexity
    ranked: bool = True
    printed: Callable[[str, str], str | None] = lambda label, month: None


def by_interval(
    study: Study, rows: Rows, columns: Sequence[Column], beside: bool = False
) -> list[Section]:
    """Tables with a row for each method, of as many intervals as a page is wide.

    Args:
      rows: of methods.
      columns: of each interval.
      beside: whether the paper's numbers stand beside ours, those of its k-th update beside the
        k-th; each interval then has a table.
    """
    months = dict(zip(study.intervals, published.MONTHS, strict=False)) if beside else {}
    every = 1 if beside else max(1, _COLUMNS // len(columns))
    sections = []
    for start in range(0, len(study.intervals) if rows else 0, every):
        part = study.intervals[start : start + every]
        headers, body = ["Method"], [[method_label(row["method"])] for row in rows]
        for i, column in ((i, c) for i in part for c in columns):
            numbers = [column.of(row, i) for row in rows]
            name = f"{column.name}{_count_of(numbers)}"
            if not beside and not any(numbers):
                continue
            headers += [name, "Paper"] if beside else [f"{study.label(i)} {name}"]
            for line, shown in zip(body, _cells(column, numbers), strict=True):
                known = i in months and line[0] in published.METHODS
                line += [shown, column.printed(line[0], months[i]) if known else None][: 1 + beside]
        titles = [f"{study.label(i)} (in the paper: {months.get(i, 'none')})" for i in part]
        if headers[1:]:
            sections.append(Section(titles[0] if beside else "", headers, body))
    return sections


def _cells(column: Column, numbers: Sequence[dict[str, Any] | None]) -> list[Any]:
    """The cells of a column; the best perplexity is bold, the second underlined; ties share."""
    shown = [column.shown(x) for x in numbers]
    if not column.ranked or column.shown is not perplexity or sum(map(bool, numbers)) < 2:
        return shown
    # Ranked as printed.
    best = sorted({rounded(x["value"]) for x in numbers if x})[:2]
    ranks = [1 + best.index(v) if x and (v := rounded(x["value"])) in best else 0 for x in numbers]
    return [dataclasses.replace(c, rank=rank) for c, rank in zip(shown, ranks, strict=True)]


def _count_of(numbers: Iterable[dict[str, Any] | None]) -> str:
    """ ", n = 93" for a column's header: the facts, or rows of text, of its models; or ""."""
    counts = {x.get("facts", x.get("rows")) for x in numbers if x} - {None}
    return f", n\u00a0=\u00a0{' to '.join(f'{n:,}' for n in sorted(counts))}" if counts else ""


def of_table_3(name: str) -> Callable[[dict[str, Any], str], Any]:
    """`Column.of` for a number of Table 3's rows."""
    return lambda row, interval: row["intervals"][interval][name]


def of_cells(name: str) -> Callable[[dict[str, Any], str], Any]:
    """`Column.of` for a number of the rows of extra evaluations."""
    return lambda row, interval: row["cells"][interval][name]


def section_3(study: Study, three: Rows) -> Section:
    """Table 3: a row for each method, and Un, C and Avg of each interval; and what it cost."""
    columns = [Column(short, of_table_3(name)) for name, short in SHORT.items()]
    parts = by_interval(study, three, columns)
    title, notes = ("Perplexity of facts", [_LEGEND]) if parts else ("Costs", [])
    return Section(title, notes=notes, sections=[*parts, costs_of(three)], anchor="scores")


def costs_of(three: Rows) -> Section:
    """Parameters of each method, and the means of the costs of its updates."""
    rows = []
    for row in three:
        trained = compact(row["trainable"] if row["steps"] else None)
        means = (_mean(row[name].values()) for name in ("flops", "cpu_seconds"))
        rows.append([method_label(row["method"]), trained, compact(row["total"]), *costs(*means)])
    return Section("", ["Method", "Trainable", "Total", *COSTS], rows)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [x for x in values if x is not None]
    return sum(known) / len(known) if known else None


def _kinds(study: Study, three: Rows) -> Section:
    """Perplexity of updated, new, deleted and ended facts separately."""
    # Of deleted and ended facts, a lower perplexity is no better.
    columns = [Column(kind, of_table_3(kind), ranked=False) for kind in tables.KINDS]
    title = "Updated, new, deleted and ended facts"
    return Section(title, sections=by_interval(study, three, columns), anchor="kinds")


def matrix_section(study: Study, method: str, matrix: dict[str, Any]) -> Section:
    """The misalignment matrix of a method (Figure 4)."""
    rows = [
        [
            study.label(model) if model else "Initial",
            *(perplexity(cell, rank=int(model == name)) for name, cell in row.items()),
        ]
        for model, row in matrix.items()
    ]
    columns = {i: _count_of(row[i] for row in matrix.values()) for i in study.intervals}
    headers = ["Updated by", *(study.label(i) + n for i, n in columns.items())]
    title = f"{method_label(method)}: {study.changed} (columns) after each update (rows)"
    return Section(title, headers, rows)


def _transfer(study: Study, methods: Rows) -> Section:
    """FUAR of each update, and transfer over all of them."""
    if not study.has_facts:
        return Section()
    rows = [
        [
            method_label(row["method"]),
            *(estimate(x, ratio, " to ") for x in row["fuar"].values()),
            *(x if x is None else f"{x:+.3f}" for x in (row["backward"], row["forward"])),
        ]
        for row in methods
    ]
    sizes = {i: _count_of(row["fuar"][i] for row in methods) for i in study.intervals}
    headers = ["Method", *(f"FUAR {study.label(i)}{n}" for i, n in sizes.items())]
    headers += ["Backward transfer", "Forward transfer"]
    return Section("Forgetting and transfer", headers, rows, [_TRANSFER], anchor="transfer")


def _tuned(study: Study, rows: Rows) -> Section:
    """Tables 5 and 6: perplexity and F1 of light-tuned models, by interval and class."""
    columns = [
        column
        for kind in ("unchanged", "changed")
        for column in (Column(kind, of_cells(kind)), Column("F1", of_cells(kind), f1))
    ]
    notes = [*[_TUNED][: len(rows)], *untuned(study)]
    return Section("", notes=notes, sections=by_interval(study, rows, columns))


def untuned(study: Study) -> list[str]:
    """Sentences on the classes that have probes but no facts to tune on."""
    return [
        results.untuned(study.label(interval), kind)
        for interval, made in results.manifests(study, "probes").items()
        for kind, of in made.get("table_7_tuning", {}).items()
        if not of["facts"]
    ]


def f1(x: dict[str, Any] | None) -> float | None:
    """A table's cell of F1, in percent."""
    return x and x["f1"]


def nouns(study: Study, rows: Rows) -> Section:
    """Figure 2: ratios by interval, of proper nouns and of changed spans."""

    def shown(x: dict[str, Any] | None) -> Cell:
        return estimate(x, "{:.3f}".format)

    columns = [Column(name, of_cells(kind), shown) for kind, name in results.TEXT_MEASURES.items()]
    notes = [_NOUNS][: len(rows)] + no_nouns(rows)
    return Section("", notes=notes, sections=by_interval(study, rows, columns))


def no_nouns(rows: Rows) -> list[str]:
    """A sentence, if running text was measured and no proper noun was found in it."""
    cells = [cell for row in rows for cell in row["cells"].values()]
    found = any(cell.get(kind) for cell in cells for kind in (results.NEW_TEXT, results.OLD_TEXT))
    return [] if found or not rows else [_NO_NOUNS]


def _corpora(corpora: Rows) -> Section:
    counts = ("articles", "words", "tokens")
    rows = [[f"{row['kind']} {row['name']}", *(row[n] for n in counts)] for row in corpora]
    return Section("Corpora", ["Corpus", *map(str.capitalize, counts)], rows, anchor="corpora")


def _facts(study: Study, of_filters: Rows, of_relations: Rows) -> Section:
    """Facts left after each alignment step and filter, and their distribution over relations."""
    classes = [(row, c) for row in of_filters for c in CLASSES if c in row]
    rows = [[f"{study.label(r['interval'])} {c}", *map(r[c].get, STEPS)] for r, c in classes]
    headers = ["Facts of", *map(str.capitalize, STEPS)]
    names = {"facts": "Facts", "relations": "Relations", "max_repetition": "Most of one relation"}
    names |= {"subjects": "Subjects", "objects": "Objects"}
    spread = [
        [f"{study.label(row['interval'])} {c}", *(row[c][n] for n in names)]
        for row in of_relations
        for c in ("unchanged", "changed")
    ]
    below = Section("", ["Facts of", *names.values()], spread)
    return Section("Facts", headers, rows, sections=[below], anchor="facts")


def overview(study: Study, three: Rows) -> list[str]:
    """Sentences: the updates, and the best perplexities of the last one, from `tables.table_3`."""
    names = ", ".join(map(method_label, study.methods)) or "no method yet"
    unfinished = [
        f"{method_label(m)} after {', '.join(missing)}"
        for m, after in study.models.items()
        if (missing := [study.label(i) for i in study.intervals if i not in after])
    ]
    left_out = f" Without a model: {'; '.join(unfinished)}." if unfinished else ""
    when = ", ".join(map(study.label, study.intervals))
    sentences = [f"{labels.count(len(study.intervals), 'update')} ({when}) by {names}.{left_out}"]
    if not study.has_facts:
        return [*sentences, "There are no facts to probe: running text alone was measured."]
    return sentences + [_perplexities(three, i, study.label(i)) for i in study.intervals[-1:]]


def examples_of(facts: Section) -> str:
    """What two of the probes ask."""
    shown = (
        f"“{fact.text} ____” ({fact.below}: {now.text}"
        f"{f', before {before.text}' if before.text != now.text else ''})"
        for fact, before, now, *_ in dict.fromkeys(map(tuple, (*facts.rows[:1], *facts.rows[-1:])))
    )
    return f"What probes ask, for example: {'; '.join(shown)}." if facts.rows else ""


def _with_interval(x: Mapping[str, Any]) -> str:
    """A perplexity, with its interval where there are facts enough for one."""
    value, low, high = (rounded(x[end]) for end in ("value", "low", "high"))
    return f"{value} ({low} to {high})" if x["low"] == x["low"] else str(value)


def _perplexities(three: Rows, interval: str, when: str) -> str:
    """Of changed and unchanged facts: before the updates, and after the best of each on both."""
    first, *updated = ({"of": row["method"], **row["intervals"][interval]} for row in three)
    names = [n for n in ("changed", "unchanged") if first[n] and any(cell[n] for cell in updated)]
    if not names:
        return f"Perplexity after the update of {when}: not measured yet."

    def describe(cells: Mapping[str, Any]) -> str:
        known = filter(None, map(cells.get, names))
        return " and ".join(map(_with_interval, known))

    best = {
        n: min(filter(lambda x, n=n: x[n], updated), key=lambda x, n=n: x[n]["value"])
        for n in names
    }
    unsure = [n for n in names if best[n][n]["high"] >= first[n]["low"]]
    lost = [
        f"{method_label(cells['of'])} is worse on {n} facts"
        for cells in {cells["of"]: cells for cells in best.values()}.values()
        for n in names
        if cells[n] and cells[n]["low"] > first[n]["high"]
    ]
    overlap = (
        f" No gain on {' or '.join(unsure)} facts is sure: the intervals overlap." if unsure else ""
    )
    if lost:
        overlap += f" That {' and '.join(lost)} is sure: these intervals do not."
    facts = " and ".join(f"{first[n]['facts']:,} {n}" for n in names)
    shown = {cells["of"]: describe(cells) for cells in best.values()}
    return (
        f"Perplexity of {facts} facts after the update of {when} (95 % interval; lower is better): "
        f"before any update {describe(first)}; "
        f"{'; '.join(f'{method_label(of)} {numbers}' for of, numbers in shown.items())}.{overlap}"
    )


def _settings(study: Study) -> Section:
    notes = [versions(), f"Settings: {json.dumps(study.settings, ensure_ascii=False)}"]
    models = [
        (f"{method_label(m.method)} {m.interval}".strip(), m.path) for m in study.all_models()
    ]
    return Section("Settings", notes=notes, sections=configs(models), anchor="settings")
