"""Figures of successive updates; each function makes a matplotlib figure, None without data."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ckl_jax.analysis import labels
from ckl_jax.analysis.figures import as_png, bars, legend, panels, style
from ckl_jax.papers.temporalwiki.analysis.results import KINDS_OF_TEXT, Study, method_label

_TOP = 30  # relations that are shown
_TITLES = {"unchanged": "Unchanged facts", "changed": "Changed facts"}
_COLORS = {"unchanged": "#56B4E9", "changed": "#D55E00"}


def plot_matrices(study: Study, matrices: Mapping[str, Any]):
    """The temporal misalignment matrix of each method as a heat map (Figure 4), darker: better."""
    values = {m: _values(study, matrix) for m, matrix in matrices.items()}
    known = [x for grid in values.values() for x in grid[np.isfinite(grid)]]
    if not known:
        return None
    low, high = min(known), max(known)
    with style():
        figure, axes = panels(len(values), columns=3)
        for ax, (method, grid) in zip(axes, values.items(), strict=True):
            image = ax.imshow(grid, cmap="viridis", vmin=low, vmax=high, aspect="auto")
            _number_cells(ax, grid, (low + high) / 2)
            names = [study.label(m) if m else "Initial" for m in matrices[method]]
            ax.set_yticks(range(len(names)), names, fontsize=9)
            columns = list(map(study.label, study.intervals))
            ax.set_xticks(range(len(columns)), columns, fontsize=9)
            ax.grid(visible=False)
            ax.set(title=method_label(method), xlabel="changed facts of", ylabel="updated by")
        figure.colorbar(image, ax=list(axes), label="perplexity", shrink=0.8)
    return figure


def _values(study: Study, matrix: Mapping[str, Any]) -> np.ndarray:
    return np.array(
        [
            [cell["value"] if (cell := row[i]) else np.nan for i in study.intervals]
            for row in matrix.values()
        ]
    )


def _number_cells(ax, grid: np.ndarray, middle: float) -> None:
    for (row, column), value in np.ndenumerate(grid):
        text = f"{value:.1f}" if np.isfinite(value) else "–"
        color = "white" if value < middle else "black"
        ax.text(column, row, text, ha="center", va="center", color=color, fontsize=9)


def plot_averages(study: Study, three: Sequence[dict[str, Any]]):
    """Bars of Avg by interval (Figure 3)."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(8.4, 3.9))
        ax = figure.subplots()
        _bars(ax, study, three, lambda row, i: row["intervals"][i]["avg"])
        ax.set(ylabel="perplexity, (Un + C) / 2")
        legend(figure, [ax])
    return figure


def _bars(ax, study: Study, rows: Sequence[dict[str, Any]], cell: Callable) -> None:
    """A group of bars for each interval, one for each row that has a cell there."""
    width = 0.8 / len(rows)
    for n, row in enumerate(rows):
        cells = [cell(row, i) for i in study.intervals]
        at = [x + (n - (len(rows) - 1) / 2) * width for x, c in enumerate(cells) if c]
        shown = [c for c in cells if c]
        if shown:
            label, color = method_label(row["method"]), labels.color(row["method"], n)
            bars(ax, at, shown, width=width, label=label, color=color)
    ax.set_xticks(range(len(study.intervals)), list(map(study.label, study.intervals)))
    ax.grid(axis="x", visible=False)


def plot_nouns(study: Study, rows: Sequence[dict[str, Any]]):
    """Perplexity of proper nouns relative to Initial, in new text and in the rest (Figure 2)."""
    updated = [row for row in rows if row["method"] != study.initial.method]
    if not updated:
        return None
    with style():
        figure, axes = panels(2)
        for ax, (kind, title) in zip(axes, KINDS_OF_TEXT.items(), strict=True):
            _bars(ax, study, updated, lambda row, i, kind=kind: row["cells"][i][kind])
            ax.axhline(1.0, color=labels.COLORS["initial"], ls="--", lw=1.4)
            ax.set(title=title.capitalize(), ylabel="perplexity / Initial")
        legend(figure, axes)
    return figure


def plot_course(study: Study, three: Sequence[dict[str, Any]]):
    """Un and C of each model from update to update."""
    if len(study.intervals) < 2:
        return None
    with style():
        figure, axes = panels(2)
        for ax, (kind, title) in zip(axes, _TITLES.items(), strict=True):
            for n, row in enumerate(three):
                points = [
                    (x, c["value"])
                    for x, i in enumerate(study.intervals)
                    if (c := row["intervals"][i][kind])
                ]
                if points:
                    ax.plot(
                        *zip(*points, strict=True),
                        label=method_label(row["method"]),
                        color=labels.color(row["method"], n),
                        marker=labels.marker(row["method"]),
                    )
            ax.set_xticks(range(len(study.intervals)), list(map(study.label, study.intervals)))
            ax.set(title=title, ylabel="perplexity")
        legend(figure, axes)
    return figure


def plot_relations(sevens: Sequence[dict[str, Any]]):
    """Fractions of the most frequent relations, over all intervals (Figure 7)."""
    return _shares({c: _added(s[c]["by_relation"] for s in sevens) for c in _TITLES})


def plot_types(sevens: Sequence[dict[str, Any]]):
    """Fractions of the types of subjects and objects, over all intervals (Figure 6)."""
    sides = {
        f"{side} of {c} facts": _added(s[c].get(f"{side}_types", {}) for s in sevens)
        for side in ("subject", "object")
        for c in _TITLES
    }
    return _shares(sides)


def _added(parts) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            total[name] = total.get(name, 0) + count
    return dict(sorted(total.items(), key=lambda pair: (-pair[1], pair[0])))


def _shares(counts: Mapping[str, Mapping[str, int]]):
    """Horizontal bars of shares in percent, one panel a group."""
    shown = {name: found for name, found in counts.items() if found}
    if not shown:
        return None
    from matplotlib.figure import Figure

    longest = min(_TOP, max(map(len, shown.values())))
    rows = -(-len(shown) // 2)
    with style():
        figure = Figure(figsize=(10.4, rows * (0.24 * longest + 1.1)))
        axes = np.atleast_1d(figure.subplots(rows, min(2, len(shown)))).ravel()
        for ax, (name, found) in zip(axes, shown.items(), strict=False):
            top = list(found.items())[:_TOP]
            whole = sum(found.values())
            color = _COLORS["unchanged" if "unchanged" in name else "changed"]
            ax.barh(range(len(top)), [100 * n / whole for _, n in top], color=color)
            ax.set_yticks(range(len(top)), [text for text, _ in top], fontsize=8.5)
            ax.invert_yaxis()
            ax.grid(axis="y", visible=False)
            title = _TITLES.get(name, name)
            ax.set(title=f"{title[0].upper()}{title[1:]} ({whole:,})", xlabel="share (%)")
    return figure


def draw(
    study: Study,
    three: Sequence[dict[str, Any]],
    matrices: Mapping[str, Any],
    sevens: Sequence[dict[str, Any]],
    nouns: Sequence[dict[str, Any]] = (),
) -> dict[str, tuple[str, str, bytes]]:
    """{name: (title, caption, PNG)} of all figures that have data."""
    wanted: dict[str, tuple[str, str, Callable]] = {
        "misalignment": (
            "Temporal misalignment",
            "Changed facts; darker is better, one scale for all methods.",
            lambda: plot_matrices(study, matrices),
        ),
        "averages": (
            "Average perplexity",
            "Stability and plasticity weigh the same; lower is better.",
            lambda: plot_averages(study, three),
        ),
        "course": (
            "From update to update",
            "Each model on the facts of its own interval: from point to point they are others.",
            lambda: plot_course(study, three),
        ),
        "proper_nouns": (
            "Proper nouns",
            "Relative to Initial, the dashed line; lower is better.",
            lambda: plot_nouns(study, nouns),
        ),
        "relations": (
            "Relations",
            f"The {_TOP} most frequent of all intervals.",
            lambda: plot_relations(sevens),
        ),
        "types": (
            "Types of entities",
            "Of subjects and objects, by 'instance of' in the dumps.",
            lambda: plot_types(sevens),
        ),
    }
    figures = {name: (t, c, make()) for name, (t, c, make) in wanted.items()}
    return {n: (t, c, as_png(f)) for n, (t, c, f) in figures.items() if f is not None}
