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


def main() -> None:
    rows = table("temporalwiki.md", "The World Factbook, 2015 to 2026")
    write_file(_DOCS / "images" / "factbook.png", factbook(rows))


if __name__ == "__main__":
    main()
