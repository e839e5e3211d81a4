"""The report of successive updates: HTML, Markdown, JSON, CSV and figures."""

import csv
import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
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
from ckl_jax.files import atomic_write, read_json, write_file, write_json
from ckl_jax.papers.temporalwiki.analysis import examples, promotion, tables
from ckl_jax.papers.temporalwiki.analysis.figures import draw
from ckl_jax.papers.temporalwiki.analysis.results import (
    INITIAL,
    KINDS_OF_TEXT,
    OVERLAP,
    Study,
    load,
    method_label,
)

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
    "Each model, tuned with all its parameters on facts of the class that are not probes, and then "
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
    # Bootstraps once; all tables take their cells from it.
    numbers = tables.Perplexities(study)
    made: dict[str, Any] = {
        "table_3": tables.table_3(study, numbers),
        "matrices": tables.matrices(study, numbers),
        "table_1": tables.table_1(study),
        "table_2": tables.of_probes(study, "table_2"),
        "table_7": tables.of_probes(study, "table_7"),
        "transfer": tables.transfer(study),
        "light_tuned": tables.light_tuned(study),
        "proper_nouns": tables.proper_nouns(study),
    }
    drawn = draw(study, made)
    figures.save(drawn, out / "figures")
    write_json(out / "tables.json", {"intervals": study.intervals, **made})
    _write_csv(out / "matrix.csv", made["matrices"])
    matrices = [
        matrix_section(study, method, matrix) for method, matrix in made["matrices"].items()
    ]
    misalignment = Section("Temporal misalignment", sections=matrices, anchor="misalignment")
    if figure := drawn.get("misalignment"):
        notes = [*figure.notes, _MATRIX]
        misalignment = dataclasses.replace(misalignment, png=figure.png, notes=notes)
    scores, kinds, transfer = (
        make(study, made[name])
        for make, name in ((section_3, "table_3"), (_kinds, "table_3"), (_transfer, "transfer"))
    )
    extra = [_tuned(study, made["light_tuned"]), nouns(study, made["proper_nouns"])]
    extra += [drawn["proper_nouns"]] if "proper_nouns" in drawn else []
    extra_evaluations = Section(
        "Light-tuning and proper nouns", sections=extra, anchor="extra_evaluations"
    )
    in_markdown = filter(None, (scores, kinds, transfer, extra_evaluations, misalignment))
    write_file(out / "tables.md", "\n".join(section.markdown() for section in in_markdown))
    for start in range(0, len(study.intervals), 3):  # as many as are read at once
        part = dataclasses.replace(study, intervals=study.intervals[start : start + 3])
        dataclasses.replace(section_3(part, made["table_3"]), title="", notes=()).show()
    for matrix in matrices:
        matrix.show()
    sections = [
        _verdicts(Path(root) / promotion.VERDICT),
        scores,
        *(drawn[name] for name in ("averages", "course") if name in drawn),
        kinds,
        transfer,
        extra_evaluations,
        examples.section(study),
        misalignment,
        _corpora(made["table_1"]),
        _facts(study, made["table_2"], made["table_7"]),
        overlap_section(
            read_json(measured) if (measured := Path(root) / OVERLAP).is_file() else {}
        ),
        *(drawn[name] for name in ("relations", "types") if name in drawn),
        _settings(study),
    ]
    title = "What each update learned and forgot"
    return write_page(out / "report.html", title, sections, _lead(study, made["table_3"]))


def _verdicts(path: Path) -> Section:
    """What the gate decided, if there was one."""
    found = read_json(path)["verdicts"] if path.is_file() else []
    headers = ["Model", "Relative to", "Verdict", "Score", "Ratio", "95 %", "Facts"]
    rows = []
    for verdict in found:
        names = [verdict[name] for name in ("model", "relative_to", "verdict")]
        for name, s in verdict["scores"].items():
            span = f"{s['low']:.3f} to {s['high']:.3f}"
            rows.append([*names, name, f"{s['value']:.3f}", span, s["n"]])
            names = [""] * 3
    notes = [f"Condition: {found[0]['condition']}, of whole intervals."] if found else []
    return Section(
        "The gate", headers, rows, [*notes, *(v["sentence"] for v in found)], anchor="gate"
    )


def _write_csv(path: Path, matrices: dict[str, Any]) -> None:
    columns = ("value", "low", "high", "facts")
    with atomic_write(path) as f:
        writer = csv.writer(f, lineterminator="\n")
        writer.writerow(("method", "model", "facts_of", "perplexity", *columns[1:]))
        for method, after in matrices.items():
            for model, row in after.items():
                for name, cell in row.items():
                    values = [cell[k] if cell else "" for k in columns]
                    writer.writerow((method, model or INITIAL, name, *values))


# --- sections


def _by_method(title: str, headers: list[str], found: Rows, cells: Callable, **about) -> Section:
    """One row per method: its label and the `cells` of its numbers."""
    rows = [[method_label(row["method"]), *cells(row)] for row in found]
    return Section(title, ["Method", *headers], rows, **about)


def section_3(study: Study, three: Rows) -> Section:
    """Table 3: a row for each method, and Un, C and Avg of each interval."""
    columns = [(i, name) for i in study.intervals for name in _SHORT]
    ranks = {column: _ranks(three, *column) for column in columns}

    def cells(row: dict[str, Any]) -> list[Any]:
        ranked = [(row["intervals"][i][n], ranks[i, n].get(row["method"], 0)) for i, n in columns]
        return [*(perplexity(x, rank) for x, rank in ranked), *_costs(row)]

    headers = [
        f"{study.label(i)} {_SHORT[n]}{facts_of(r['intervals'][i][n] for r in three)}"
        for i, n in columns
    ]
    headers += ["Trainable", "Total", *COSTS]
    about = {"notes": [_LEGEND], "anchor": "scores"}
    return _by_method("Perplexity of facts", headers, three, cells, **about)


def _costs(row: dict[str, Any]) -> list[str]:
    trained = bool(row["steps"])
    means = (mean(row[name].values()) for name in ("flops", "cpu_seconds"))
    return [compact(row["trainable"] if trained else None), compact(row["total"]), *costs(*means)]


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are known."""
    known = [x for x in values if x is not None]
    return sum(known) / len(known) if known else None


def _ranks(three: Rows, interval: str, name: str) -> dict[str, int]:
    """{method: 1 for the best, 2 for the second}; ties share a rank."""
    perplexities = {row["method"]: row["intervals"][interval][name] for row in three}
    # Ranked as printed.
    known = {m: rounded(c["value"]) for m, c in perplexities.items() if c}
    best = sorted(set(known.values()))[:2] if len(known) > 1 else []
    return {m: best.index(v) + 1 for m, v in known.items() if v in best}


def facts_of(cells: Iterable[dict[str, Any] | None]) -> str:
    """ ", n = 93" for a column's header: the number of facts, which its models share; or ""."""
    numbers = {cell["facts"] for cell in cells if cell and "facts" in cell}
    return (
        ", n = " + " to ".join(f"{n:,}" for n in sorted({min(numbers), max(numbers)}))
        if numbers
        else ""
    )


def perplexity(x: dict[str, Any] | None, rank: int = 0) -> Cell:
    """A table's cell of a perplexity."""
    return estimate(x, lambda value: str(rounded(value)), rank=rank)


def _kinds(study: Study, three: Rows) -> Section:
    """Perplexity of updated, new, deleted and ended facts separately."""
    columns = [
        (i, k)
        for i in study.intervals
        for k in tables.KINDS
        if any(row["intervals"][i][k] for row in three)
    ]

    def cells(row: dict[str, Any]) -> list[Cell]:
        return [perplexity(row["intervals"][i][k]) for i, k in columns]

    headers = [
        f"{study.label(i)} {k}{facts_of(r['intervals'][i][k] for r in three)}" for i, k in columns
    ]
    return _by_method(
        "Updated, new, deleted and ended facts", headers, three, cells, anchor="kinds"
    )


def matrix_section(study: Study, method: str, matrix: dict[str, Any]) -> Section:
    """The misalignment matrix of a method (Figure 4)."""
    headers = ["Updated by"]
    headers += [
        study.label(i) + facts_of(row[i] for row in matrix.values()) for i in study.intervals
    ]
    rows = [
        [
            study.label(model) if model else "Initial",
            *(perplexity(cell, rank=int(model == name)) for name, cell in row.items()),
        ]
        for model, row in matrix.items()
    ]
    title = f"{method_label(method)}: changed facts (columns) after each update (rows)"
    return Section(title, headers, rows)


def _transfer(study: Study, found: Rows) -> Section:
    """FUAR of each update, and transfer over all of them."""

    def cells(row: dict[str, Any]) -> list[str | None]:
        over_time = (row["backward"], row["forward"])
        return [
            *(ratio(x["value"]) if x else None for x in row["fuar"].values()),
            *(None if x is None else f"{x:+.3f}" for x in over_time),
        ]

    headers = [f"FUAR {study.label(i)}" for i in study.intervals]
    headers += ["Backward transfer", "Forward transfer"]
    about = {"notes": [_TRANSFER], "anchor": "transfer"}
    return _by_method("Forgetting and transfer", headers, found, cells, **about)


def _tuned(study: Study, found: Rows) -> Section:
    """Tables 5 and 6: perplexity and F1 of light-tuned models, by interval and class."""
    columns = [(i, kind) for i in study.intervals for kind in ("unchanged", "changed")]

    def cells(row: dict[str, Any]) -> list[Any]:
        numbers = [row["cells"][i][kind] for i, kind in columns]
        return [value for x in numbers for value in (perplexity(x), x and x["f1"])]

    headers = [
        h
        for i, kind in columns
        for h in (f"{study.label(i)} {kind}{facts_of(r['cells'][i][kind] for r in found)}", "F1")
    ]
    return _by_method("", headers, found, cells, notes=[_TUNED] if found else ())


def nouns(study: Study, found: Rows) -> Section:
    """Figure 2: ratios by interval, in new text and in the rest."""
    columns = [(i, kind) for i in study.intervals for kind in KINDS_OF_TEXT]

    def cells(row: dict[str, Any]) -> list[Cell]:
        return [estimate(row["cells"][i][kind], "{:.3f}".format) for i, kind in columns]

    headers = [f"{study.label(i)} {KINDS_OF_TEXT[kind]}" for i, kind in columns]
    return _by_method("", headers, found, cells, notes=[_NOUNS] if found else ())


def _corpora(found: Rows) -> Section:
    counts = ("articles", "words", "tokens")
    rows = [[f"{row['kind']} {row['name']}", *(row[n] for n in counts)] for row in found]
    return Section("Corpora", ["Corpus", *map(str.capitalize, counts)], rows, anchor="corpora")


def _facts(study: Study, of_filters: Rows, of_relations: Rows) -> Section:
    """Facts left after each alignment step and filter, and their distribution over relations."""
    steps = ("initial", "aligned", "final")
    classes = [c for c in CLASSES if all(c in row for row in of_filters)]
    columns = [(c, s) for c in classes for s in steps]
    headers = ["Interval", *(f"{c.capitalize()}, {s}" for c, s in columns)]
    rows = [[study.label(r["interval"]), *(r[c][s] for c, s in columns)] for r in of_filters]
    names = {
        "facts": "Facts",
        "relations": "Relations",
        "max_repetition": "Most of one relation",
        "subjects": "Subjects",
        "objects": "Objects",
    }
    spread = [
        [f"{study.label(row['interval'])} {c}", *(row[c][n] for n in names)]
        for row in of_relations
        for c in ("unchanged", "changed")
    ]
    below = Section("", ["Facts of", *names.values()], spread)
    return Section("Facts", headers, rows, sections=[below], anchor="facts")


def _lead(study: Study, three: Rows) -> list[str]:
    names = ", ".join(map(method_label, study.methods)) or "no method yet"
    unfinished = [
        f"{method_label(m)} after {', '.join(missing)}"
        for m, after in study.models.items()
        if (missing := [study.label(i) for i in study.intervals if i not in after])
    ]
    left_out = f" Not there yet: {'; '.join(unfinished)}." if unfinished else ""
    found = [f"Intervals {', '.join(map(study.label, study.intervals))}; {names}.{left_out}"]
    for interval in study.intervals[-1:]:
        told = filter(None, (_told(three, interval, name) for name in ("changed", "unchanged")))
        when = f"Perplexity after the update of {study.label(interval)} (lower is better)"
        found.append(f"{when}: {'; '.join(told) or 'not measured yet'}.")
    return found


def _told(three: Rows, interval: str, name: str) -> str:
    """The perplexity of a class of facts before the updates, and after the best and the worst."""
    cells = [(method_label(row["method"]), row["intervals"][interval][name]) for row in three]
    (_, before), *after = cells
    known = [(label, cell["value"]) for label, cell in after if cell]
    if not before or not known:
        return ""
    ends = dict(f(known, key=lambda x: x[1]) for f in (min, max))
    shown = (f"{rounded(value)} after {label}" for label, value in ends.items())
    facts = labels.count(before["facts"], f"{name} fact")
    return f"{facts}, {rounded(before['value'])} before any update, {', '.join(shown)}"


def _settings(study: Study) -> Section:
    notes = [versions(), f"Settings: {json.dumps(study.settings, ensure_ascii=False)}"]
    models = [
        (f"{method_label(m.method)} {m.interval}".strip(), m.path) for m in study.all_models()
    ]
    return Section("Settings", notes=notes, sections=configs(models), anchor="settings")
