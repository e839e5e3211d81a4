"""The same experiment under several seeds: mean and range of every number of the main table."""

import dataclasses
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.analysis import labels, page, statistics
from ckl_jax.analysis.render_table import TableCell, compact, markdown, print_cells, ratio
from ckl_jax.analysis.report import find_runs, is_run
from ckl_jax.analysis.study import load_study
from ckl_jax.analysis.tables import cell_value, compute_table
from ckl_jax.errors import UserError
from ckl_jax.files import read_json, write_file, write_json

# Bindings that say when a model is asked, and not what it becomes.
_OF_WHEN = ("EVAL_PERIOD",)


@dataclasses.dataclass(frozen=True)
class Summary:
    """A table over seeds.

    Attributes:
      headers, cells: the mean in each cell, and the smallest and the largest as its interval.
      rows: the numbers, for JSON.
      note: what they are.
    """

    headers: list[str]
    cells: list[list[TableCell]]
    rows: list[dict[str, Any]]
    note: str


Summarize = Callable[[Sequence[str | Path]], Summary]


def compare_seeds(
    folders: Sequence[str | Path], out: str | Path, summarize: Summarize | None = None
) -> Path:
    """Writes seeds.html, seeds.md and seeds.json over experiments that differ by their seed.

    Unlike the intervals of a single report, the range over seeds holds what the order of the data
    and the new parameters do to a result; in a simulated world, the choice of facts as well.

    Args:
      folders: of one kind of study, one for each seed.
      out: folder to write.
      summarize: makes the table of such folders; default, that of demos (`of_demos`).

    Returns:
      The path of seeds.html.

    Raises:
      UserError: fewer than two folders, one twice, or one without runs.
    """
    check_folders(folders)
    summary = (summarize or of_demos)(folders)
    return _write(summary, folders, Path(out))


def check_folders(folders: Sequence[str | Path]) -> None:
    """Raises `UserError` for fewer than two folders, one given twice, or a single run."""
    if len(folders) < 2:
        raise UserError("Comparing seeds takes at least two demo folders; give more of them.")
    resolved = [Path(folder).resolve() for folder in folders]
    for i, folder in enumerate(resolved):
        if folder in resolved[:i]:
            raise UserError(f"{folders[i]} is given twice; give demos of different seeds.")
        if is_run(folder):
            raise UserError(
                f"{folders[i]} is the MODEL_DIR of one run; --seeds compares folders of demos."
            )


def of_demos(folders: Sequence[str | Path], acquired: Sequence[str] = ()) -> Summary:
    """The main table of `ckl demo` over seeds.

    Args:
      folders: of demos.
      acquired: probes that FUAR takes for new knowledge; default, see `tables.fuar_tasks`.
    """
    # The intervals over items are not used here, hence the fewest samples.
    tables = [
        compute_table(load_study(find_runs([folder])), samples=2, acquired=acquired)
        for folder in folders
    ]
    rows = summarize_tables(tables)
    note = (
        f"Mean over {len(tables)} demos; below it, the smallest and the largest. A mean of FUAR "
        "is over the demos in which something was gained."
    )
    return Summary(*_layout(tables, rows), rows, note)


def _write(summary: Summary, folders: Sequence[str | Path], out: Path) -> Path:
    given = [str(folder) for folder in folders]
    write_json(out / "seeds.json", {"folders": given, "rows": summary.rows})
    table = markdown(summary.headers, summary.cells)
    write_file(out / "seeds.md", f"{table}\n{summary.note}\n")
    content = page.cells(summary.headers, summary.cells) + page.note(summary.note)
    content += page.note(f"Folders: {', '.join(given)}.")
    write_file(
        out / "seeds.html", page.page("Results over seeds", "", [("scores", "Scores", content)])
    )
    print_cells(summary.headers, summary.cells)
    return out / "seeds.html"


def summarize_tables(tables: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """[{"key", "label", "total", "columns": {name: {"mean", "low", "high", "values"}}}].

    `values` has one entry of each table, None where the number is missing or "no gain".
    """
    keys = dict.fromkeys(row["key"] for table in tables for row in table["rows"])
    return [_summary(key, tables) for key in keys]


def _summary(key: str, tables: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found = [next((r for r in t["rows"] if r["key"] == key), None) for t in tables]
    names = dict.fromkeys(p for t in tables for p in t["probes"])
    columns = {}
    for name in (*names, *_extra(tables), "fuar", "trainable", "seconds"):
        values = [cell_value(row, name) if row else None for row in found]
        columns[name] = {
            **statistics.spread(values),
            "no_gain": sum(
                1
                for row in found
                if name == "fuar" and row and row["fuar"] and row["fuar"]["value"] is None
            ),
        }
    return {"key": key, "label": labels.method_label(key), "columns": columns}


def _layout(tables, rows) -> tuple[list[str], list[list[TableCell]]]:
    short = {p: label for t in tables for p, label in t["labels"].items()}
    extra = _extra(tables)
    notation = next((t["fuar"] for t in tables if t["fuar"]), None)
    names = [*short, *extra, *(["fuar"] if notation else []), "seconds"]
    titles = {
        **{p: f"{label} EM" for p, label in short.items()},
        **extra,
        "fuar": f"FUAR {notation}",
        "seconds": "Seconds",
    }
    headers = ["Method", "Trainable", *(titles[n] for n in names)]
    cells = [
        [TableCell(row["label"]), _parameters(row), *(_cell(row["columns"][n], n) for n in names)]
        for row in rows
    ]
    return headers, cells


def _extra(tables: Sequence[dict[str, Any]]) -> dict[str, str]:
    """{column: title} of what tables show beside scores."""
    return {column: title for t in tables for column, title in t["columns"].items()}


def _parameters(row: dict) -> TableCell:
    mean = row["columns"]["trainable"]["mean"]
    return TableCell("–" if mean is None else compact(round(mean)))


def _cell(column: dict, name: str) -> TableCell:
    none = f"no gain in {column['no_gain']}" if column["no_gain"] else ""
    if column["mean"] is None:
        return TableCell("no gain" if none else "–")
    if name == "seconds":
        span = f"{column['low']:,.0f}–{column['high']:,.0f}"
        return TableCell(f"{column['mean']:,.0f}", span)
    span = f"{ratio(column['low'])}–{ratio(column['high'])}"
    return TableCell(ratio(column["mean"]), ", ".join(filter(None, (span, none))))


def check_seeds(folders: Sequence[str | Path], record: str, free: Collection[str] = ()) -> None:
    """Refuses folders that are not of different seeds and else the same settings.

    Args:
      folders: each with its settings.
      record: the file of them.
      free: settings that may differ besides the seed.

    Raises:
      UserError: a folder has no record, the seed of another, or other settings.
    """
    first, seeds = read_json(Path(folders[0]) / record), set()
    for folder in folders:
        settings = read_json(Path(folder) / record)
        if settings.get("seed") in seeds:
            raise UserError(
                f"{folder} has the seed {settings.get('seed')} of another folder; give folders of "
                "different seeds."
            )
        seeds.add(settings.get("seed"))
        names = [n for n in {**first, **settings} if n not in ("seed", *free)]
        if other := [n for n in names if _deciding(first.get(n)) != _deciding(settings.get(n))]:
            raise UserError(
                f"{folder} was made with other settings than {folders[0]} ({', '.join(other)}); "
                "give folders that differ by their seed alone."
            )


def _deciding(setting: Any) -> Any:
    """A setting, of gin's bindings without those of when a model is asked."""
    if not isinstance(setting, list):
        return setting
    return [b for b in setting if str(b).partition("=")[0].strip() not in _OF_WHEN]
