"""The main table as cells: one list of columns for Markdown, HTML and the terminal."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from ckl_jax.analysis.tables import best, mark

_WIDE = 160  # columns of the terminal that the whole table needs


@dataclasses.dataclass(frozen=True)
class TableCell:
    """Text of a cell, its interval, its mark, and its rank: 1 bold, 2 underlined, 0 plain."""

    text: str
    interval: str = ""
    mark: str = ""
    rank: int = 0


def layout(table: dict[str, Any]) -> tuple[list[str], list[list[TableCell]]]:
    """Headers and rows of a table from `tables.compute_table`."""
    columns = _columns(table)
    ranks = {name: best(table, name) for name, _ in columns}
    rows = [
        [_cell(row, name, ranks[name].get(row["key"], 0)) for name, _ in columns]
        for row in table["rows"]
    ]
    return [header for _, header in columns], rows


def _columns(table: dict[str, Any]) -> list[tuple[str, str]]:
    columns = [("label", "Method"), ("trainable", "Trainable"), ("total", "Total")]
    for probe in table["probes"]:
        columns.append((probe, f"{table['labels'][probe]} {table['metric'].upper()}"))
        columns += [(c, title) for c, title in table["columns"].items() if _is_of(c, probe)]
    if table["fuar"]:
        columns.append(("fuar", f"FUAR {table['fuar']}"))
    return [*columns, ("seconds", "Seconds")]


def _is_of(column: str, probe: str) -> bool:
    return column.rpartition("/")[0] == probe


def _cell(row: dict, name: str, rank: int) -> TableCell:
    if name == "label":
        return TableCell(row["label"])
    if name in ("trainable", "total"):
        return TableCell("–" if row[name] is None else compact(row[name]))
    if name == "seconds":
        return TableCell("–" if row[name] is None else f"{row[name]:,.0f}")
    if name in row["columns"]:
        return TableCell(f"{row['columns'][name]:.2f}")
    value = row["fuar"] if name == "fuar" else row["scores"].get(name)
    if value is None:
        return TableCell("–")
    text = ratio(value["value"])
    interval = "" if value["value"] is None else f"{ratio(value['low'])}–{ratio(value['high'])}"
    return TableCell(text, interval, mark(row, name), rank)


def ratio(value: float | None) -> str:
    """Two decimals, or "no gain"."""
    return "no gain" if value is None else f"{value:.2f}"


def compact(count: int) -> str:
    """A number of parameters with its unit: 1.31M."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return str(count)


def legend(table: dict[str, Any]) -> str:
    """What the signs in the table mean, in sentences."""
    parts = [
        f"Scores in percent ({table['metric'].upper()}); below them, 95 % intervals of a bootstrap "
        f"over items ({table['bootstrap']['samples']} samples): they say how far the choice of "
        "items matters, not how far the random seed does.",
        "Bold is best of its column, underlined second best.",
    ]
    if table["baseline"]:
        test = "exact McNemar test" if table["metric"] == "em" else "paired bootstrap"
        parts.append(
            f"* differs from Vanilla at {table['alpha']:.2f} ({test}, for FUAR the paired "
            "bootstrap; Holm's correction over the whole table)."
        )
    if table["fuar"]:
        parts.append(
            "FUAR is what was forgotten over what was gained: 0 forgets nothing, 1 loses as much "
            'as it gains; "no gain" is worst.'
        )
    parts += [
        f"{title}: fraction of facts still answered as they used to be."
        for column, title in table["columns"].items()
        if column.endswith("/em_old")
    ]
    return " ".join(parts)


def as_markdown(table: dict[str, Any]) -> str:
    """The table in Markdown."""
    return markdown(*layout(table)) + f"\n{legend(table)}\n"


def markdown(headers: Sequence[str], rows: Sequence[Sequence[TableCell]]) -> str:
    """Cells in Markdown, the first column to the left."""
    lines = ["| " + " | ".join(headers) + " |", "|" + " --- |" + " ---: |" * (len(headers) - 1)]
    for row in rows:
        lines.append("| " + " | ".join(_markdown(cell) for cell in row) + " |")
    return "\n".join([*lines, ""])


def _markdown(cell: TableCell) -> str:
    text = {1: f"**{cell.text}**", 2: f"<u>{cell.text}</u>"}.get(cell.rank, cell.text)
    star = "\\*" if cell.mark else ""
    return text + star + (f" <sub>{cell.interval}</sub>" if cell.interval else "")


def print_table(table: dict[str, Any], console=None) -> None:
    """The table in the terminal; a narrow one gets no intervals and no numbers of parameters."""
    console = terminal(console)
    headers, rows = layout(table)
    if console.width < _WIDE:
        headers = headers[:1] + headers[3:]
        rows = [[dataclasses.replace(c, interval="") for c in (*r[:1], *r[3:])] for r in rows]
    print_cells(headers, rows, console)


def terminal(console=None):
    """The console of the terminal, or a wide one where the output goes elsewhere."""
    import rich.console

    console = console or rich.console.Console()
    if not console.is_terminal:
        console.width = _WIDE
    return console


def print_cells(
    headers: Sequence[str], rows: Sequence[Sequence[TableCell]], console=None, title: str = ""
) -> None:
    """Cells in the terminal, the first column to the left."""
    import rich.table

    shown = rich.table.Table(
        headers[0], header_style="bold", title=title or None, title_justify="left"
    )
    for header in headers[1:]:
        shown.add_column(header, justify="right")
    for row in rows:
        shown.add_row(*map(_terminal, row))
    terminal(console).print(shown)


def _terminal(cell: TableCell):
    from rich.text import Text

    style = {1: "bold", 2: "underline"}.get(cell.rank, "")
    text = Text(cell.text, style=style) + Text(cell.mark)
    return text + Text(f"\n{cell.interval}", style="dim") if cell.interval else text
