"""Figures of successive updates, as PNG; None without data."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ckl_jax.analysis import labels
from ckl_jax.analysis.figures import bars, legend, look, panels, png, rows_of_bars, sections
from ckl_jax.analysis.sections import Section
from ckl_jax.papers.temporalwiki.analysis.results import TEXT_MEASURES, Study, method_label

_TOP = 30  # relations that are shown
_TITLES = {"unchanged": "Unchanged facts", "changed": "Changed facts"}
_COLORS = {"unchanged": "#56B4E9", "changed": "#D55E00"}
NO_AVERAGES = (
    "There is no average (Un + C) / 2 to draw: no interval has both unchanged and changed facts."
)
Rows = Sequence[dict[str, Any]]


@png
def plot_matrices(study: Study, matrices: Mapping[str, Any]):
    """Heat map of each method's temporal misalignment matrix (Figure 4)."""
    nothing = {"value": np.nan}
    values = {
        method: np.array(
            [[(row[i] or nothing)["value"] for i in study.intervals] for row in matrix.values()]
        )
        for method, matrix in matrices.items()
    }
    known = [x for grid in values.values() for x in grid[np.isfinite(grid)]]
    if not known:
        return None
    # One colour scale for all panels, or methods could not be compared.
    low, high = min(known), max(known)
    figure, axes = panels(len(values), columns=3)
    for ax, (method, grid) in zip(axes, values.items(), strict=True):
        image = ax.imshow(grid, cmap="viridis", vmin=low, vmax=high, aspect="auto")
        for (row, column), value in np.ndenumerate(grid):
            text = f"{value:.1f}" if np.isfinite(value) else "–"
            # Readable on both ends of the colour map, in the dark mode of a page as well: black and
            # white would become the page's colours.
            color = "#f8f8f8" if value < (low + high) / 2 else "#080808"
            ax.text(column, row, text, ha="center", va="center", color=color, fontsize=9)
        names = [study.label(m) if m else "Initial" for m in matrices[method]]
        ax.set_yticks(range(len(names)), names, fontsize=9)
        _name_intervals(ax, study, fontsize=9)
        ax.grid(visible=False)
        ax.set(title=method_label(method), xlabel=f"{study.changed} of", ylabel="updated by")
    figure.colorbar(image, ax=list(axes), label="perplexity", shrink=0.8)
    return figure


def _name_intervals(ax: Any, study: Study, **text: Any) -> None:
    # Slanted: side by side they run together on a narrow page.
    look = {"rotation": 30, "ha": "right", **text}
    ax.set_xticks(range(len(study.intervals)), list(map(study.label, study.intervals)), **look)


@png
def plot_averages(study: Study, three: Rows):
    """Bars of Avg by interval (Figure 3)."""
    if not any(cells["avg"] for row in three for cells in row["intervals"].values()):
        return None
    figure, (ax,) = panels(1, size=(8.4, 3.9))
    _bars(ax, study, three, lambda row, i: row["intervals"][i]["avg"])
    ax.set(ylabel="perplexity, (Un + C) / 2")
    legend(figure, [ax])
    return figure


def _bars(ax: Any, study: Study, rows: Rows, cell: Callable) -> None:
    """A group of bars per interval, one for each row with a cell there."""
    width = 0.8 / len(rows)
    for n, row in enumerate(rows):
        cells = {x: c for x, i in enumerate(study.intervals) if (c := cell(row, i))}
        # Centres the group of bars on the interval's tick.
        at = [x + (n - (len(rows) - 1) / 2) * width for x in cells]
        if cells:
            name = row["method"]
            color = labels.color(name, (study.initial.method, *study.methods).index(name))
            values = list(cells.values())
            bars(ax, at, values, width=width, label=method_label(name), color=color)
    _name_intervals(ax, study)
    ax.grid(axis="x", visible=False)


@png
def plot_nouns(study: Study, rows: Rows):
    """Perplexity of proper nouns and of changed spans relative to Initial (Figure 2)."""
    updated = [row for row in rows if row["method"] != study.initial.method]
    if not updated:
        return None
    measured = [
        k for k in TEXT_MEASURES if any(of[k] for r in updated for of in r["cells"].values())
    ]
    figure, axes = panels(len(measured))
    for ax, kind in zip(axes, measured, strict=True):
        _bars(ax, study, updated, lambda row, i, kind=kind: row["cells"][i][kind])
        ax.axhline(1.0, color=labels.COLORS["initial"], ls="--", lw=1.4)
        ax.set(title=TEXT_MEASURES[kind], ylabel="perplexity / Initial")
    legend(figure, axes)
    return figure


@png
def plot_course(study: Study, three: Rows):
    """Un and C of each model over the updates."""
    every = [cells for row in three for cells in row["intervals"].values()]
    kinds = [kind for kind in _TITLES if any(cells[kind] for cells in every)]
    if len(study.intervals) < 2 or not kinds:
        return None
    figure, axes = panels(len(kinds))
    for ax, kind in zip(axes, kinds, strict=True):
        for n, row in enumerate(three):
            cells = [row["intervals"][i][kind] for i in study.intervals]
            points = [(x, c["value"]) for x, c in enumerate(cells) if c]
            if points:
                name = method_label(row["method"])
                ax.plot(*zip(*points, strict=True), **look(row["method"], n), label=name)
        _name_intervals(ax, study)
        ax.set(title=_TITLES[kind], ylabel="perplexity")
    legend(figure, axes)
    return figure


@png
def plot_fractions(counts: Mapping[str, Iterable[Mapping[str, int]]]):
    """Bars of the most frequent entries in percent, a panel per group (Figures 6 and 7)."""
    totals: dict[str, Counter[str]] = {name: Counter() for name in counts}
    for name, parts in counts.items():
        for part in parts:
            totals[name].update(part)
    # Largest first; names break ties, so that figures are reproducible.
    shown = {n: sorted(c.items(), key=lambda x: (-x[1], x[0])) for n, c in totals.items() if c}
    if not shown:
        return None
    longest = min(_TOP, max(map(len, shown.values())))
    size = (10.4, -(-len(shown) // 2) * (0.24 * longest + 1.1))
    figure, axes = panels(len(shown), size=size)
    for ax, (name, items) in zip(axes, shown.items(), strict=True):
        names, values = zip(*items[:_TOP], strict=True)
        whole = totals[name].total()
        color = _COLORS["unchanged" if "unchanged" in name else "changed"]
        ax.barh(range(len(names)), [100 * n / whole for n in values], color=color)
        rows_of_bars(ax, names, fontsize=8.5)
        title = _TITLES.get(name, name)
        ax.set(title=f"{title[0].upper()}{title[1:]} ({whole:,})", xlabel="fraction (%)")
    return figure


def relations_of(sevens: Rows) -> dict[str, list[Mapping[str, int]]]:
    """What `plot_fractions` takes, of relations (Figure 7); `sevens` are the rows of Table 7."""
    return {c: [s[c]["by_relation"] for s in sevens] for c in _TITLES}


def types_of(sevens: Rows) -> dict[str, list[Mapping[str, int]]]:
    """The same, of types of subjects and objects (Figure 6)."""
    return {
        f"{side} of {c} facts": [s[c].get(f"{side}_types", {}) for s in sevens]
        for side in ("subject", "object")
        for c in _TITLES
    }


def draw(study: Study, made: Mapping[str, Any]) -> dict[str, Section]:
    """{name: section} of all figures that have data; `made` are the tables by name."""
    three, sevens = made["table_3"], made["table_7"]
    return sections(
        {
            "misalignment": (
                "Temporal misalignment",
                f"Perplexity of {study.changed}; lower is better, one scale for all methods.",
                plot_matrices(study, made["matrices"]),
            ),
            "averages": (
                "Averages",
                "Average perplexity: stability and plasticity weigh the same; lower is better.",
                plot_averages(study, three),
            ),
            "course": (
                "From update to update",
                "Each model on the facts of its own interval: from point to point they are others.",
                plot_course(study, three),
            ),
            "proper_nouns": (
                "Proper nouns and changed spans",
                "Relative to Initial, the dashed line; lower is better.",
                plot_nouns(study, made["proper_nouns"]),
            ),
            "relations": (
                "Relations",
                f"The {_TOP} most frequent of all intervals.",
                plot_fractions(relations_of(sevens)),
            ),
            "types": (
                "Types of entities",
                "Of subjects and objects, by 'instance of' in the dumps.",
                plot_fractions(types_of(sevens)),
            ),
        }
    )
