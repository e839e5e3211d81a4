"""The report of successive updates: report.html, table.md, *.json, matrix.csv and figures/*.png."""

import csv
import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.analysis import figures, page
from ckl_jax.analysis.perplexity import rounded
from ckl_jax.analysis.render_table import TableCell, compact, markdown, print_cells, ratio, terminal
from ckl_jax.analysis.report import versions
from ckl_jax.files import atomic_write, write_file, write_json
from ckl_jax.papers.temporalwiki.analysis import extra_evaluations, tables
from ckl_jax.papers.temporalwiki.analysis import figures as temporalwiki_figures
from ckl_jax.papers.temporalwiki.analysis.results import INITIAL, Study, load, method_label

Cells = tuple[list[str], list[list[TableCell]]]
_NARROW = 120  # columns of a terminal that has no room for intervals
_LEGEND = (
    "Perplexity of whole facts (exp of the mean loss of a token), lower is better, of each model "
    "on the facts of the interval that it was updated by last; Initial is the model before any "
    "update. Un: unchanged facts; C: changed ones; Avg: their mean. Below them 95 % intervals of a "
    "bootstrap over facts: they say how far the choice of facts matters, not how far the random "
    "seed does. Bold is best of its column, underlined second best. Seconds are of training alone, "
    "a mean over the intervals."
)
_MATRIX = (
    "Perplexity of changed facts. Rows: the interval that the model was updated by last; columns: "
    "the interval of the facts. On the diagonal (bold) they agree."
)
_TRANSFER = (
    "Scores are minus the logarithm of perplexities, nats a token. FUAR: what an update lost on "
    "unchanged facts over what it gained on updated and new ones, relative to the model before it; "
    "0 loses nothing. Backward transfer: what was gained on changed facts of earlier intervals "
    "after their own update (negative: lost); forward transfer: what was gained, relative to "
    "Initial, on those of an interval before its update."
)
_TUNED = (
    "Each model, tuned with all its parameters on facts of the class that are no probes, and then "
    "asked: perplexity of the facts, and F1 of what it writes for the object, in percent."
)
_NOUNS = (
    "Perplexity of proper nouns over that of Initial, in the new text of the interval and in the "
    "rest of its new snapshot; below 1 they are likelier than they were. 95 % intervals of a "
    "bootstrap over rows of text."
)
_SHORT = {"unchanged": "Un", "changed": "C", "avg": "Avg"}


def write_report(root: str | Path, out_dir: str | Path | None = None) -> Path:
    """Writes the report of a folder of `ckl temporalwiki` and prints its tables.

    Args:
      root: the folder.
      out_dir: gets the files; None is `root`.

    Returns:
      The path of report.html.

    Raises:
      UserError: the folder is none, or cannot be written.
    """
    out = Path(out_dir or root)
    study = load(root)
    numbers = tables.Perplexities(study)
    three, matrices = tables.table_3(study, numbers), tables.matrices(study, numbers)
    made = {
        "table_1": tables.table_1(study),
        "table_2": tables.table_2(study),
        "table_7": tables.table_7(study),
        "transfer": tables.transfer(study),
        "light_tuned": extra_evaluations.light_tuned(study),
        "proper_nouns": extra_evaluations.proper_nouns(study),
    }
    drawn = temporalwiki_figures.draw(study, three, matrices, made["table_7"], made["proper_nouns"])
    figures.save(drawn, out / "figures")
    write_json(
        out / "tables.json",
        {"intervals": study.intervals, "table_3": three, "matrices": matrices, **made},
    )
    _write_csv(out / "matrix.csv", matrices)
    write_file(out / "tables.md", _markdown(study, three, matrices, made))
    write_file(out / "report.html", _html(study, three, matrices, made, drawn))
    _print(study, three, matrices)
    return out / "report.html"


def _write_csv(path: Path, matrices: dict[str, Any]) -> None:
    with atomic_write(path) as f:
        writer = csv.writer(f, lineterminator="\n")
        writer.writerow(("method", "model", "facts_of", "perplexity", "low", "high", "facts"))
        for method, after in matrices.items():
            for model, row in after.items():
                for name, cell in row.items():
                    values = (
                        [cell[k] for k in ("value", "low", "high", "facts")] if cell else [""] * 4
                    )
                    writer.writerow((method, model or INITIAL, name, *values))


# --- cells


def cells_3(study: Study, three: Sequence[dict[str, Any]]) -> Cells:
    """Table 3: a row for each method, and Un, C and Avg of each interval."""
    columns = [(i, name) for i in study.intervals for name in _SHORT]
    ranks = {column: _ranks(three, *column) for column in columns}
    headers = ["Method", "Trainable", "Total", "Seconds"]
    headers += [f"{study.label(i)} {_SHORT[name]}" for i, name in columns]
    rows = []
    for row in three:
        shown = [
            _number(row["intervals"][i][n], ranks[i, n].get(row["method"], 0)) for i, n in columns
        ]
        rows.append([TableCell(method_label(row["method"])), *_costs(row), *shown])
    return headers, rows


def _costs(row: dict[str, Any]) -> list[TableCell]:
    counts = [row["trainable"] if row["seconds"] else None, row["total"]]
    seconds = [s for s in row["seconds"].values() if s is not None]
    mean = f"{sum(seconds) / len(seconds):,.1f}" if seconds else "–"
    return [TableCell("–" if c is None else compact(c)) for c in counts] + [TableCell(mean)]


def _ranks(three: Sequence[dict[str, Any]], interval: str, name: str) -> dict[str, int]:
    """{method: 1 for the best, 2 for the second}; ties share a rank."""
    perplexities = {row["method"]: row["intervals"][interval][name] for row in three}
    known = {m: rounded(c["value"]) for m, c in perplexities.items() if c}
    best = sorted(set(known.values()))[:2] if len(known) > 1 else []
    return {m: best.index(v) + 1 for m, v in known.items() if v in best}


def _number(cell: dict[str, Any] | None, rank: int = 0) -> TableCell:
    if cell is None:
        return TableCell("–")
    low, high = (f"{rounded(cell[end])}" for end in ("low", "high"))
    return TableCell(f"{rounded(cell['value'])}", f"{low}–{high}", rank=rank)


def cells_of_kinds(study: Study, three: Sequence[dict[str, Any]]) -> Cells:
    """Perplexity of updated, new and deleted facts, apart."""
    columns = [
        (i, k)
        for i in study.intervals
        for k in tables.KINDS
        if any(row["intervals"][i][k] for row in three)
    ]
    headers = ["Method", *(f"{study.label(i)} {k}" for i, k in columns)]
    rows = [
        [TableCell(method_label(row["method"]))]
        + [_number(row["intervals"][i][k]) for i, k in columns]
        for row in three
    ]
    return headers, rows


def cells_4(study: Study, matrix: dict[str, Any]) -> Cells:
    """The matrix of one method."""
    headers = ["Updated by", *map(study.label, study.intervals)]
    rows = [
        [TableCell(study.label(model) if model else "Initial")]
        + [_number(cell, int(model == name)) for name, cell in row.items()]
        for model, row in matrix.items()
    ]
    return headers, rows


def cells_of_transfer(study: Study, rows: Sequence[dict[str, Any]]) -> Cells:
    """FUAR of each update, and transfer over all of them."""
    headers = ["Method", *(f"FUAR {study.label(i)}" for i in study.intervals)]
    cells = [
        [TableCell(method_label(row["method"]))]
        + [TableCell(ratio(cell["value"]) if cell else "–") for cell in row["fuar"].values()]
        + [TableCell("–" if row[n] is None else f"{row[n]:+.3f}") for n in ("backward", "forward")]
        for row in rows
    ]
    return [*headers, "Backward transfer", "Forward transfer"], cells


def cells_1(rows: Sequence[dict[str, Any]]) -> Cells:
    shown = [
        [TableCell(f"{row['kind']} {row['name']}")]
        + [
            TableCell("–" if row[n] is None else f"{row[n]:,}")
            for n in ("articles", "words", "tokens")
        ]
        for row in rows
    ]
    return ["Corpus", "Articles", "Words", "Tokens"], shown


def cells_2(study: Study, rows: Sequence[dict[str, Any]]) -> Cells:
    """Facts after each step of the alignment and the filters."""
    steps = ("initial", "aligned", "final")
    columns = [(c, s) for c in ("unchanged", "changed", "deleted") for s in steps]
    shown = [
        [TableCell(study.label(row["interval"]))]
        + [TableCell(f"{row[c][s]:,}") for c, s in columns]
        for row in rows
    ]
    return ["Interval", *(f"{c.capitalize()}, {s}" for c, s in columns)], shown


def cells_7(study: Study, rows: Sequence[dict[str, Any]]) -> Cells:
    """Facts and how they are spread over relations and subjects."""
    names = {
        "facts": "Facts",
        "relations": "Relations",
        "max_repetition": "Most of one relation",
        "subjects": "Subjects",
        "objects": "Objects",
    }
    shown = [
        [
            TableCell(f"{study.label(row['interval'])} {c}"),
            *(TableCell(f"{row[c][n]:,}") for n in names),
        ]
        for row in rows
        for c in ("unchanged", "changed")
    ]
    return ["Facts of", *names.values()], shown


# --- the three forms


def _markdown(study: Study, three: Sequence[dict[str, Any]], matrices: dict, made: dict) -> str:
    parts = [markdown(*cells_3(study, three)), _LEGEND, "", markdown(*cells_of_kinds(study, three))]
    parts += [markdown(*cells_of_transfer(study, made["transfer"])), _TRANSFER, ""]
    for rows, cells, legend in _besides(made):
        parts += [markdown(*cells(study, rows)), legend, ""]
    for method, matrix in matrices.items():
        parts += [f"{method_label(method)}: {_MATRIX}", "", markdown(*cells_4(study, matrix))]
    return "\n".join(parts)


def _besides(made: dict[str, Any]) -> Iterator[tuple[list, Callable[..., Cells], str]]:
    """Rows, cells and legend of the extra evaluations."""
    if made["light_tuned"]:
        yield made["light_tuned"], extra_evaluations.cells_of_tuned, _TUNED
    if made["proper_nouns"]:
        yield made["proper_nouns"], extra_evaluations.cells_of_nouns, _NOUNS


def _print(study: Study, three: Sequence[dict[str, Any]], matrices: dict[str, Any]) -> None:
    console = terminal()
    for start in range(0, len(study.intervals), 3):  # as many as are read at once
        part = dataclasses.replace(study, intervals=study.intervals[start : start + 3])
        headers, rows = cells_3(part, three)
        print_cells(headers, _fitting(rows, console.width), console)
    for method, matrix in matrices.items():
        title = f"{method_label(method)}: changed facts (columns) after each update (rows)"
        print_cells(*cells_4(study, matrix), console, title)


def _fitting(rows: list[list[TableCell]], width: int) -> list[list[TableCell]]:
    if width >= _NARROW:
        return rows
    return [[dataclasses.replace(cell, interval="") for cell in row] for row in rows]


def _html(study, three, matrices, made, drawn) -> str:
    def figure(name: str) -> str:
        return page.figure(*drawn[name]) if name in drawn else ""

    sections = [
        ("scores", "Perplexity of facts", page.cells(*cells_3(study, three)) + page.note(_LEGEND)),
        ("averages", "Averages", figure("averages")),
        ("course", "From update to update", figure("course")),
        ("kinds", "Updated, new and deleted facts", page.cells(*cells_of_kinds(study, three))),
        (
            "transfer",
            "Forgetting and transfer",
            page.cells(*cells_of_transfer(study, made["transfer"])) + page.note(_TRANSFER),
        ),
        (
            "besides",
            "Light-tuning and proper nouns",
            "".join(
                page.cells(*cells(study, rows)) + page.note(legend)
                for rows, cells, legend in _besides(made)
            ),
        ),
        (
            "misalignment",
            "Temporal misalignment",
            figure("misalignment") + "".join(_matrix_html(study, matrices)),
        ),
        ("corpora", "Corpora", page.cells(*cells_1(made["table_1"]))),
        (
            "facts",
            "Facts",
            page.cells(*cells_2(study, made["table_2"]))
            + page.cells(*cells_7(study, made["table_7"])),
        ),
        ("relations", "Relations", figure("relations")),
        ("types", "Types of entities", figure("types")),
        ("settings", "Settings", "".join(_settings(study))),
    ]
    return page.page("What each update taught, and what it cost", page.note(_lead(study)), sections)


def _matrix_html(study: Study, matrices: dict[str, Any]) -> Iterator[str]:
    yield page.note(_MATRIX)
    for method, matrix in matrices.items():
        yield f"<h3>{page.text(method_label(method))}</h3>"
        yield page.cells(*cells_4(study, matrix))


def _lead(study: Study) -> str:
    names = ", ".join(map(method_label, study.methods)) or "no method yet"
    unfinished = [
        f"{method_label(m)} after {', '.join(missing)}"
        for m, after in study.models.items()
        if (missing := [study.label(i) for i in study.intervals if i not in after])
    ]
    left_out = f" Not there yet: {'; '.join(unfinished)}." if unfinished else ""
    return f"Intervals {', '.join(map(study.label, study.intervals))}; {names}.{left_out}"


def _settings(study: Study) -> Iterator[str]:
    yield page.note(versions())
    yield page.note(f"Settings: {json.dumps(study.settings, ensure_ascii=False)}")
    for model in study.all_models():
        config = model.path / "config.gin"
        if config.exists():
            title = f"{method_label(model.method)} {model.interval}: config.gin"
            content = page.text(config.read_text(encoding="utf-8"))
            yield f"<details><summary>{page.text(title)}</summary><pre>{content}</pre></details>\n"
