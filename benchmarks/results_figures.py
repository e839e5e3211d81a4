"""Draws tables of `docs/results` as figures in `docs/images`, from the numbers on the pages.

python -m benchmarks.results_figures
"""

import re
from pathlib import Path
from typing import Any

from ckl_jax.analysis import figures, labels
from ckl_jax.files import write_file
from ckl_jax.papers.temporalwiki.analysis.results import method_label

_DOCS = Path(__file__).parents[1] / "docs"
_CELL = re.compile(r"([\d.]+) <sub>([\d.]+)–([\d.]+)</sub>")  # value, interval
_SCORE = re.compile(r"(\d\.\d+) \[(-?\d\.\d+), (-?\d\.\d+)\]")
_INTERVALS = ("2015–2020", "2020–2022", "2022–2026")


def table(page: str, heading: str) -> dict[str, list[dict[str, float]]]:
    """The first table with intervals below a heading: {row: its cells}."""
    text = (_DOCS / "results" / page).read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = {}
    for line in text.splitlines():
        if cells := _CELL.findall(line):
            rows[line.split("|")[1].strip()] = [
                dict(zip(("value", "low", "high"), map(float, cell), strict=True)) for cell in cells
            ]
        elif rows:
            break
    return rows


@figures.png
def factbook(rows: dict[str, list[dict[str, float]]]) -> Any:
    """Perplexity of unchanged and changed facts by interval, a line for each method."""
    figure, axes = figures.panels(2, size=(9.6, 4.0))
    keys = {method_label(key): key for key in (*labels.METHODS, "full")}
    for kind, ax in enumerate(axes):
        for position, (name, cells) in enumerate(rows.items()):
            mine = cells[kind::2]
            at = [i + 0.06 * (position - len(rows) / 2) for i in range(len(mine))]
            values = [c["value"] for c in mine]
            errors = [[abs(c["value"] - c[end]) for c in mine] for end in ("low", "high")]
            look = figures.look(keys.get(name, name), position)
            ax.errorbar(at, values, errors, elinewidth=1.0, **look, label=name)
        ax.set_xticks(range(len(_INTERVALS)), _INTERVALS)
        ax.set(title=("Unchanged facts", "Changed facts")[kind], ylabel="perplexity" * (kind == 0))
    figures.legend(figure, axes)
    return figure


def scores(heading: str) -> list[dict[str, list[dict[str, float] | None]]]:
    """The tables of `update.md` below a heading: of each {row: the first score of each cell}."""
    text = (_DOCS / "results" / "update.md").read_text().split(f"# {heading}\n")[1]
    tables: list[dict[str, list[dict[str, float] | None]]] = []
    for line in text.split("\n# ")[0].splitlines():
        name, *cells = [cell.strip() for cell in line.split("|")[1:-1]] or [""]
        if line.startswith("| | to "):
            tables.append({})
        elif cells and tables:
            found = [_SCORE.search(cell) for cell in cells]
            numbers = [f and tuple(map(float, f.groups())) for f in found]
            names = ("value", "low", "high")
            tables[-1][name] = [n and dict(zip(names, n, strict=True)) for n in numbers]
    return tables


@figures.png
def updates(models: dict[str, dict[str, list[dict[str, float] | None]]]) -> Any:
    """Right answers on new, changed and kept facts after each update, a line for each model."""
    figure, axes = figures.panels(3, columns=3, size=(11.4, 3.9))
    for ax, row in zip(axes, ("new facts right", "changed", "kept"), strict=True):
        for position, (name, rows) in enumerate(models.items()):
            known = [(i, cell) for i, cell in enumerate(rows[row]) if cell]
            at = [i + 0.08 * (position - 1) for i, _ in known]
            values = [cell["value"] for _, cell in known]
            errors = [[abs(c["value"] - c[end]) for _, c in known] for end in ("low", "high")]
            look = {"color": figures.LINES[position], "marker": "osD"[position], "label": name}
            ax.errorbar(at, values, errors, elinewidth=1.0, **look)
        ax.set_xticks(range(3), ["to 2017", "2020–2022", "2023–2026"])
        ax.set(title=f"{row.split()[0]} facts", xlim=(-0.3, 2.3), ylim=(0, 0.68))
    axes[0].set_ylabel("right")
    figures.legend(figure, axes)
    return figure


def main() -> None:
    rows = table("temporalwiki.md", "The World Factbook, 2015 to 2026")
    write_file(_DOCS / "images" / "factbook.png", factbook(rows))
    models = ("Llama", "GPT-2", "T5")
    tables = dict(zip(models, scores("The World Factbook, 2017 to 2026"), strict=True))
    write_file(_DOCS / "images" / "factbook_updates.png", updates(tables))


if __name__ == "__main__":
    main()
