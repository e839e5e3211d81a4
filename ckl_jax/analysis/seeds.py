"""The same experiment under several seeds: mean and range of every number of the main table."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ckl_jax.analysis import (
    drift_seeds,
    experiment_seeds,
    experiment_tables,
    labels,
    page,
    statistics,
)
from ckl_jax.analysis.render_table import TableCell, compact, markdown, print_cells, ratio
from ckl_jax.analysis.report import find_runs, is_run
from ckl_jax.analysis.study import load_study
from ckl_jax.analysis.tables import cell_value, compute_table
from ckl_jax.errors import UserError
from ckl_jax.files import atomic_write, write_json


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


def compare_seeds(
    folders: Sequence[str | Path], out: str | Path, *, acquired: Sequence[str] = ()
) -> Path:
    """Writes seeds.html, seeds.md and seeds.json over experiments that differ by their seed.

    Unlike the intervals of a single report, the range over seeds holds what the order of the data
    and the new parameters do to a result; in a simulated world, the choice of facts as well.

    Args:
      folders: of `ckl demo`, or all of them of `ckl mind-the-gap` or of `ckl experiment`.
      out: folder to write.
      acquired: probes that FUAR takes for new knowledge; default, see `tables.fuar_tasks`.

    Returns:
      The path of seeds.html; of experiments that of the last table (`experiment_seeds.write`).

    Raises:
      UserError: fewer than two folders, one twice, or one without runs.
    """
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
    if any(map(experiment_tables.is_experiment, folders)):
        return experiment_seeds.write(folders, Path(out))[-1]
    if any(drift_seeds.is_drift(folder) for folder in folders):
        summary = Summary(*drift_seeds.summarize(folders))
    else:
        summary = _of_demos(folders, acquired)
    return _write(summary, folders, Path(out))


def _of_demos(folders: Sequence[str | Path], acquired: Sequence[str]) -> Summary:
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
    with atomic_write(out / "seeds.md") as f:
        f.write(f"{table}\n{summary.note}\n")
    content = page.cells(summary.headers, summary.cells) + page.note(summary.note)
    content += page.note(f"Folders: {', '.join(given)}.")
    with atomic_write(out / "seeds.html") as f:
        f.write(page.page("Results over seeds", "", [("scores", "Scores", content)]))
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
    for name in (*names, "old", "fuar", "trainable", "seconds"):
        values = [cell_value(row, name) if row else None for row in found]
        columns[name] = {
            **statistics.spread(values),
            "no_gain": sum(
                1 for row in found
                if name == "fuar" and row and row["fuar"] and row["fuar"]["value"] is None
            ),
        }  # fmt: skip
    return {"key": key, "label": labels.method_label(key), "columns": columns}


def _layout(tables, rows) -> tuple[list[str], list[list[TableCell]]]:
    probes = labels.probe_order(dict.fromkeys(p for t in tables for p in t["probes"]))
    notation = next((t["fuar"] for t in tables if t["fuar"]), None)
    names = [*probes, "old", *(["fuar"] if notation else []), "seconds"]
    titles = {
        **{p: f"{labels.short(p)} EM" for p in probes},
        "old": "UL old answer", "fuar": f"FUAR {notation}", "seconds": "Seconds",
    }  # fmt: skip
    headers = ["Method", "Trainable", *(titles[n] for n in names)]
    cells = [
        [TableCell(row["label"]), _parameters(row), *(_cell(row["columns"][n], n) for n in names)]
        for row in rows
    ]
    return headers, cells


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
