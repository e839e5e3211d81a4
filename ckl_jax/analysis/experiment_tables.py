"""A table of a paper with our numbers beside its own."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.analysis import labels
from ckl_jax.analysis.render_table import TableCell, markdown, print_cells
from ckl_jax.analysis.study import Entry, Study, load_study
from ckl_jax.analysis.tables import compute_table
from ckl_jax.files import atomic_write, write_json

FUAR = "fuar"


def compare(
    runs: Sequence[Path],
    probes: Sequence[str],
    acquired: Sequence[str],
    published: Mapping[str, Mapping[str, float | None]],
) -> dict[str, Any]:
    """The numbers of one scenario.

    Args:
      runs: MODEL_DIRs, the Initial model's first.
      probes: the columns.
      acquired: see `tables.fuar_tasks`.
      published: {row: {probe: EM in percent, "fuar": ...}}, as the paper printed them.

    Returns:
      {"probes", "fuar", "rows": {row: {column: {"ours", "low", "high", "paper"}}}}; a FUAR of None
      is "no gain".
    """
    table = compute_table(_only(load_study(runs), probes), acquired=acquired)
    rows = {}
    for row in table["rows"]:
        printed = published.get(row["key"], {})
        columns = {probe: row["scores"].get(probe) for probe in probes} | {FUAR: row["fuar"]}
        rows[row["key"]] = {
            column: {
                "ours": value["value"] if value else None, "low": value and value["low"],
                "high": value and value["high"], "defined": value is not None,
                "paper": printed.get(column), "printed": column in printed,
            }
            for column, value in columns.items()
        }  # fmt: skip
    return {"probes": list(probes), "fuar": table["fuar"], "rows": rows}


def _only(study: Study, probes: Sequence[str]) -> Study:
    """The study of these probes: the Initial model was put to those of other scenarios too."""

    def chosen(entry: Entry) -> Entry:
        scores = {probe: x for probe, x in entry.scores.items() if probe in probes}
        return dataclasses.replace(entry, scores=scores)

    initial = study.initial and chosen(study.initial)
    return Study(initial, tuple(map(chosen, study.methods)), study.notes)


def cells(part: Mapping[str, Any]) -> tuple[list[str], list[list[TableCell]]]:
    """Headers and rows: ours with its interval, and the paper's in brackets."""
    headers = ["Method", *(f"{labels.short(p)} EM" for p in part["probes"])]
    if part["fuar"]:
        headers.append(f"FUAR {part['fuar']}")
    rows = [
        [TableCell(_label(name)), *(_cell(c, k == FUAR) for k, c in row.items()
                                    if k != FUAR or part["fuar"])]
        for name, row in part["rows"].items()
    ]  # fmt: skip
    return headers, rows


def _label(key: str) -> str:
    method, _, rate = key.partition("-")
    return f"{labels.method_label(method)} {rate}".strip() if rate else labels.method_label(key)


def _cell(cell: Mapping[str, Any], ratio: bool) -> TableCell:
    def text(value: float | None) -> str:
        return "no gain" if value is None and ratio else f"{value:.2f}"

    paper = f" ({text(cell['paper'])})" if cell["printed"] else ""
    if not cell["defined"]:
        return TableCell(f"–{paper}")
    interval = "" if cell["ours"] is None else f"{text(cell['low'])}–{text(cell['high'])}"
    return TableCell(text(cell["ours"]) + paper, interval)


def write(name: str, title: str, parts: Mapping[str, Mapping[str, Any]], out: Path) -> Path:
    """Writes NAME.json and NAME.md (with "/" as "-"), and prints the tables.

    Returns:
      The path of NAME.md.
    """
    stem = name.replace("/", "-")
    write_json(out / f"{stem}.json", parts)
    text = [f"# {name}: {title}\n\nOurs, and in brackets the paper's; below, 95 % intervals of a "
            "bootstrap over items.\n"]  # fmt: skip
    for scenario, part in parts.items():
        made = cells(part)
        text.append(f"## {scenario}\n\n{markdown(*made)}")
        print_cells(*made, title=f"{name}, {scenario}: ours (the paper's)")
    path = out / f"{stem}.md"
    with atomic_write(path) as f:
        f.write("\n".join(text))
    return path
