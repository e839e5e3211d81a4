"""The same experiment under several seeds: mean and range of every number of the main table."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.analysis import labels, page
from ckl_jax.analysis.render_table import compact, ratio
from ckl_jax.analysis.report import find_runs, is_run
from ckl_jax.analysis.study import load_study
from ckl_jax.analysis.tables import cell_value, compute_table
from ckl_jax.errors import UserError
from ckl_jax.files import atomic_write, write_json


def compare_seeds(
    demo_dirs: Sequence[str | Path], out: str | Path, *, acquired: Sequence[str] = ()
) -> Path:
    """Writes seeds.html, seeds.md and seeds.json over demos that differ by their seed.

    Unlike the intervals of a single report, the range over seeds holds what the order of the data
    and the new parameters do to a result; in a simulated world, the choice of facts as well.

    Args:
      demo_dirs: folders of demos.
      out: folder to write.
      acquired: probes that FUAR takes for new knowledge; default, see `tables.fuar_tasks`.

    Returns:
      The path of seeds.html.

    Raises:
      UserError: fewer than two demos, or one without runs.
    """
    if len(demo_dirs) < 2:
        raise UserError("Comparing seeds takes at least two demo folders; give more of them.")
    folders = [Path(folder).resolve() for folder in demo_dirs]
    for i, folder in enumerate(folders):
        if folder in folders[:i]:
            raise UserError(f"{demo_dirs[i]} is given twice; give demos of different seeds.")
        if is_run(folder):
            raise UserError(
                f"{demo_dirs[i]} is the MODEL_DIR of one run; --seeds compares folders of demos."
            )
    # The intervals over items are not used here, hence the fewest samples.
    tables = [
        compute_table(load_study(find_runs([folder])), samples=2, acquired=acquired)
        for folder in demo_dirs
    ]
    rows = summarize_tables(tables)
    headers, cells = _layout(tables, rows)
    out = Path(out)
    note = (
        f"Mean over {len(tables)} demos; below it, the smallest and the largest. A mean of FUAR "
        "is over the demos in which something was gained."
    )
    folders = ", ".join(map(str, demo_dirs))
    write_json(out / "seeds.json", {"folders": [str(d) for d in demo_dirs], "rows": rows})
    with atomic_write(out / "seeds.md") as f:
        f.write(_markdown(headers, cells) + f"\n{note}\n")
    html_cells = [
        [page.text(mean) + (f'<span class="ci">{page.text(span)}</span>' if span else "")
         for mean, span in row] for row in cells
    ]  # fmt: skip
    content = page.grid(headers, html_cells) + page.note(note) + page.note(f"Folders: {folders}.")
    with atomic_write(out / "seeds.html") as f:
        f.write(page.page("Results over seeds", "", [("scores", "Scores", content)]))
    _print(headers, cells)
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
        known = [v for v in values if v is not None]
        columns[name] = {
            "mean": float(np.mean(known)) if known else None,
            "low": min(known, default=None), "high": max(known, default=None), "values": values,
            "no_gain": sum(
                1 for row in found
                if name == "fuar" and row and row["fuar"] and row["fuar"]["value"] is None
            ),
        }  # fmt: skip
    return {"key": key, "label": labels.method_label(key), "columns": columns}


def _layout(tables, rows) -> tuple[list[str], list[list[tuple[str, str]]]]:
    probes = labels.probe_order(dict.fromkeys(p for t in tables for p in t["probes"]))
    notation = next((t["fuar"] for t in tables if t["fuar"]), None)
    names = [*probes, "old", *(["fuar"] if notation else []), "seconds"]
    titles = {
        **{p: f"{labels.short(p)} EM" for p in probes},
        "old": "UL old answer", "fuar": f"FUAR {notation}", "seconds": "Seconds",
    }  # fmt: skip
    headers = ["Method", "Trainable", *(titles[n] for n in names)]
    cells = [
        [(row["label"], ""), _parameters(row), *(_cell(row["columns"][n], n) for n in names)]
        for row in rows
    ]
    return headers, cells


def _parameters(row: dict) -> tuple[str, str]:
    mean = row["columns"]["trainable"]["mean"]
    return ("–" if mean is None else compact(round(mean)), "")


def _cell(column: dict, name: str) -> tuple[str, str]:
    none = f"no gain in {column['no_gain']}" if column["no_gain"] else ""
    if column["mean"] is None:
        return ("no gain" if none else "–", "")
    if name == "seconds":
        return f"{column['mean']:,.0f}", f"{column['low']:,.0f}–{column['high']:,.0f}"
    span = f"{ratio(column['low'])}–{ratio(column['high'])}"
    return ratio(column["mean"]), ", ".join(filter(None, (span, none)))


def _markdown(headers, cells) -> str:
    lines = ["| " + " | ".join(headers) + " |", "|" + " --- |" + " ---: |" * (len(headers) - 1)]
    for row in cells:
        shown = (f"{mean} <sub>{span}</sub>" if span else mean for mean, span in row)
        lines.append("| " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def _print(headers, cells) -> None:
    import rich.console
    import rich.table

    table = rich.table.Table(headers[0], header_style="bold")
    for header in headers[1:]:
        table.add_column(header, justify="right")
    for row in cells:
        table.add_row(*(f"{mean}\n{span}" if span else mean for mean, span in row))
    console = rich.console.Console()
    if not console.is_terminal:
        console.width = 160
    console.print(table)
