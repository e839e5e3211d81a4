"""Figures of a study. Each function returns a matplotlib figure, or None where data are missing.

Colours are Okabe and Ito's; markers differ too, so that figures survive a grey printer.
"""

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.analysis import labels
from ckl_jax.analysis.ledger import STATES, counts
from ckl_jax.analysis.statistics import precision_curve
from ckl_jax.analysis.study import Entry, Study
from ckl_jax.files import write_file

_STYLE = {
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
    "savefig.dpi": 130,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.1,
    "figure.constrained_layout.w_pad": 0.1,
    "font.family": "DejaVu Sans",
}
_PANEL = (4.1, 3.2)


@contextlib.contextmanager
def style() -> Iterator[None]:
    # A figure object without pyplot keeps no global state and needs no display.
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        yield


def bars(ax: Any, at: Sequence[float], cells: Sequence[Mapping[str, float]], **look: Any) -> None:
    """Bars of cells' "value", with the interval from "low" to "high" on each.

    Its lines have a light edge, which shows on dark bars too.
    """
    from matplotlib.patheffects import withStroke

    errors = [
        [max(0.0, c["value"] - c["low"]) for c in cells],
        [max(0.0, c["high"] - c["value"]) for c in cells],
    ]
    edge = withStroke(linewidth=2.8, foreground="white")
    lines = {"elinewidth": 1.0, "ecolor": "#303030", "path_effects": [edge]}
    ax.bar(at, [c["value"] for c in cells], yerr=errors, error_kw=lines, **look)


def panels(n: int, columns: int = 2):
    from matplotlib.figure import Figure

    columns = min(n, columns)
    rows = -(-n // columns)
    figure = Figure(figsize=(_PANEL[0] * columns, _PANEL[1] * rows + 0.7))
    axes = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for spare in axes[n:]:
        spare.set_visible(False)
    return figure, axes[:n]


def legend(figure, axes) -> None:
    """One legend for all panels, below them."""
    handles: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    columns = len(handles) if len(handles) <= 6 else 4
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=columns)


def _look(entry: Entry, position: int) -> dict[str, Any]:
    return {
        "color": labels.color(entry.key, position),
        "marker": labels.marker(entry.key, position),
        "label": entry.label,
        "markeredgecolor": "white",
        "markeredgewidth": 0.6,
    }


Curves = dict[str, list[tuple[int, float, dict[str, float]]]]


def read_curves(study: Study, metric: str = "em") -> Curves:
    """{method: [(step, epoch, {probe: score in percent})]}; reads one evaluation at a time."""
    curves: Curves = {}
    for entry in study.methods:
        run = entry.run
        curves[entry.key] = [
            (s, run.epoch_at(s), {p: 100.0 * v for p, v in run.means_at(s, metric).items()})
            for s in run.steps
        ]
    return curves


def plot_curves(study: Study, curves: Curves, axis: str = "epoch"):
    """Score of each probe as training goes on (CKL, Figure 2); `axis` is "epoch" or "step"."""
    drawn = {k: c for k, c in curves.items() if len(c) > 1}
    if not drawn:
        return None
    with style():
        figure, axes = panels(len(study.probes))
        for ax, probe in zip(axes, study.probes, strict=True):
            _initial_line(ax, study, probe)
            for i, entry in enumerate(study.methods):
                points = [
                    (epoch if axis == "epoch" else step, scores[probe])
                    for step, epoch, scores in drawn.get(entry.key, ())
                    if probe in scores
                ]
                if points:
                    ax.plot(*zip(*points, strict=True), **_look(entry, i))
            ax.set(title=study.records[probe].long, xlabel=axis, ylabel="EM (%)")
            ax.set_ylim(bottom=0)
            ax.locator_params(axis="x", integer=True, nbins=7)
        legend(figure, axes)
    return figure


def _initial_line(ax, study: Study, probe: str) -> None:
    if study.initial and probe in study.initial.scores:
        value = 100.0 * float(study.initial.scores[probe].em.mean())
        ax.axhline(value, color=labels.COLORS["initial"], ls="--", lw=1.4, label="Initial")


def plot_precision(study: Study):
    """P@k of each probe (CKL, Figure 9)."""
    wide = {
        (e.key, p): precision_curve(s.hit_rank, s.beams)
        for e in study.entries
        for p, s in e.scores.items()
        if s.beams.max() > 2
    }
    probes = [p for p in study.probes if any(probe == p for _, probe in wide)]
    if not probes:
        return None
    with style():
        figure, axes = panels(len(probes))
        for ax, probe in zip(axes, probes, strict=True):
            ticks: set[int] = set()
            items = 0
            for i, entry in enumerate(study.entries):
                if curve := wide.get((entry.key, probe)):
                    dashed = {"ls": "--"} if entry is study.initial else {}
                    values = [100.0 * v for v in curve.values()]
                    ax.plot(list(curve), values, **_look(entry, i), **dashed)
                    ticks |= set(curve)
                    beams = entry.scores[probe].beams
                    items = int((beams == beams.max()).sum())
            ax.set_xscale("log")
            ax.set_xticks(sorted(ticks), map(str, sorted(ticks)))
            ax.minorticks_off()
            title = f"{study.records[probe].long} ({labels.count(items, 'item')})"
            ax.set(title=title, xlabel="k", ylabel="P@k (%)", ylim=(0, None))
        legend(figure, axes)
    return figure


def plot_balance(table: dict[str, Any]):
    """What was forgotten against what was gained; the area of a point is its training time."""
    rows = [row for row in table["rows"] if row["fuar"]]
    if not rows:
        return None
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(7.4, 4.8))
        ax = figure.subplots()
        longest = max((row["seconds"] or 0) for row in rows) or 1.0
        for i, row in enumerate(rows):
            x, y = row["fuar"]["gained"], row["fuar"]["lost"]
            size = 60 + 340 * (row["seconds"] or 0) / longest
            seconds = "" if row["seconds"] is None else f", {row['seconds']:,.0f} s"
            ax.scatter(
                x,
                y,
                s=size,
                color=labels.color(row["key"], i),
                marker=labels.marker(row["key"], i),
                edgecolor="white",
                linewidth=0.8,
                zorder=3,
                label=f"{row['label']}{seconds}",
            )
        gains = [row["fuar"]["gained"] for row in rows]
        losses = [row["fuar"]["lost"] for row in rows]
        right, top = 1.12 * max(*gains, 1e-3, 0), 1.2 * max(*losses, 1e-3, 0)
        ax.set_xlim(-0.04 * right, right)
        ax.set_ylim(-0.06 * top, top)
        for ratio in (0.25, 0.5, 1.0, 2.0):
            end = min(right, top / ratio)
            ax.plot([0, end], [0, ratio * end], color="#b0b0b0", lw=1, ls=":", zorder=1)
            upright = top / ratio < right  # ends at the upper edge: the label goes to its left
            ax.annotate(
                f"FUAR {ratio:g}",
                (end, ratio * end),
                ha="right",
                fontsize=8,
                va="top" if upright else "bottom",
                color="#707070",
                xytext=(-6, -1) if upright else (-2, 3),
                textcoords="offset points",
            )
        ax.set(xlabel="gained: updated + new (points)", ylabel="forgotten (points)")
        handles, names = ax.get_legend_handles_labels()
        legend = figure.legend(handles, names, loc="outside right center", labelspacing=0.9)
        for handle in legend.legend_handles:
            handle.set_sizes([60])
    return figure


_COSTS = {
    "flops": (1e12, "matrix products of the training (TFLOP)"),
    "added": (1e6, "parameters added (millions)"),
}


def plot_cost(table: dict[str, Any]):
    """What was forgotten, against the FLOPs of the training and the parameters that it added."""
    rows = [row for row in table["rows"] if row["fuar"]]
    known = [name for name in _COSTS if any(row[name] for row in rows)]
    if not known:
        return None
    with style():
        figure, axes = panels(len(known))
        for ax, name in zip(axes, known, strict=True):
            unit, title = _COSTS[name]
            for i, row in enumerate(rows):
                if row[name] is not None:
                    ax.plot(
                        row[name] / unit,
                        row["fuar"]["lost"],
                        ls="",
                        ms=9,
                        color=labels.color(row["key"], i),
                        marker=labels.marker(row["key"], i),
                        markeredgecolor="white",
                        label=row["label"],
                    )
            ax.set(xlabel=title, ylabel="forgotten (points)")
            ax.set_xlim(left=min(0.0, ax.get_xlim()[0]))
        figure.set_figwidth(figure.get_figwidth() + 1.8)
        handles, names = axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside right center", labelspacing=0.9)
    return figure


def plot_fuar(table: dict[str, Any]):
    """FUAR of each method with its interval; an arrow where the interval reaches "no gain"."""
    rows = [row for row in table["rows"] if row["fuar"]]
    if not rows:
        return None
    from matplotlib.figure import Figure

    shown = [v for r in rows for v in (r["fuar"]["value"], r["fuar"]["high"]) if v is not None]
    top = 1.15 * max([*shown, 0.1])
    with style():
        figure = Figure(figsize=(7.4, 0.48 * len(rows) + 1.2))
        ax = figure.subplots()
        for i, row in enumerate(rows):
            _fuar_bar(ax, i, row, top)
        ax.set_yticks(range(len(rows)), [row["label"] for row in rows])
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
        ax.set(xlim=(0, top), xlabel=f"FUAR {table['fuar']}, lower is better")
    return figure


def _fuar_bar(ax, i: int, row: dict, top: float) -> None:
    value, low, high = (row["fuar"][name] for name in ("value", "low", "high"))
    if value is None:
        ax.text(0.01 * top, i, "no gain", va="center", style="italic")
        return
    ax.barh(i, value, color=labels.color(row["key"], i), height=0.62)
    end = top if high is None else high
    start = value if low is None else low
    for color, width in (("white", 4.0), ("#404040", 1.4)):  # the white shows on dark bars
        ax.plot([start, end], [i, i], color=color, lw=width, solid_capstyle="butt")
        for at, sign in ((start, "|"), (end, ">" if high is None else "|")):
            ax.plot([at], [i], sign, color=color, markeredgewidth=width, clip_on=False)
    ax.text(end + 0.012 * top, i, f"{value:.2f}", va="center", fontsize=10)


def plot_ledger(study: Study):
    """What became of the facts of each probe, as stacked bars."""
    if study.initial is None or not study.methods:
        return None
    probes = [p for p in study.probes if p in study.initial.scores]
    with style():
        figure, axes = panels(len(probes))
        for ax, probe in zip(axes, probes, strict=True):
            entries = [e for e in study.methods if probe in e.scores]
            left = np.zeros(len(entries))
            totals = [counts(study.states(e, probe)) for e in entries]
            for state in STATES:
                n = np.array([t[state] for t in totals])
                width = 100.0 * n / len(study.initial.scores[probe].items)
                ax.barh(
                    range(len(entries)),
                    width,
                    left=left,
                    height=0.7,
                    label=state,
                    color=labels.STATE_COLORS[state],
                    edgecolor="white",
                    lw=0.5,
                )
                left += width
            ax.set_yticks(range(len(entries)), [e.label for e in entries], fontsize=9.5)
            ax.invert_yaxis()
            ax.grid(visible=False)
            ax.set(title=study.records[probe].long, xlim=(0, 100), xlabel="facts (%)")
        legend(figure, axes)
    return figure


def draw(study: Study, table: dict[str, Any]) -> dict[str, tuple[str, str, bytes]]:
    """{name: (title, caption, PNG)} of all figures there are data for."""
    curves = read_curves(study)
    wanted: dict[str, tuple[str, str, Callable]] = {
        "curves": (
            "Scores during training",
            "After each evaluation; dashed, the Initial model.",
            lambda: plot_curves(study, curves),
        ),
        "curves_by_step": (
            "The same by training step",
            "An epoch of Mix-Review has more steps, as it also reviews old text.",
            lambda: plot_curves(study, curves, "step"),
        ),
        "balance": (
            "Forgetting against learning",
            "Lower right is better. The area of a point is the training time. Dotted lines join "
            "equal ratios.",
            lambda: plot_balance(table),
        ),
        "cost": (
            "Forgetting against cost",
            "What was forgotten, against what the training computed (products of matrices, those "
            "of gradients and of what is computed again among them) and, where Initial is one of "
            "the folders, what it added.",
            lambda: plot_cost(table),
        ),
        "fuar": ("Forgetting ratio", "With 95 % intervals over items.", lambda: plot_fuar(table)),
        "ledger": (
            "What became of each fact",
            "Relative to the Initial model: kept, updated (from the old answer), learned, stale "
            "(old answer still given), forgotten, never known.",
            lambda: plot_ledger(study),
        ),
        "precision_at_k": (
            "Precision at k",
            "Fraction of items with a right answer among the first k of a wide beam search; it may "
            "have been put to fewer items than the main table's narrow one.",
            lambda: plot_precision(study),
        ),
    }
    figures = {name: (t, c, make()) for name, (t, c, make) in wanted.items()}
    return {n: (t, c, as_png(f)) for n, (t, c, f) in figures.items() if f is not None}


def as_png(figure) -> bytes:
    """The figure as a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    buffer = io.BytesIO()
    with style():
        figure.savefig(buffer, format="png", facecolor="white")
    return buffer.getvalue()


def save(figures: dict[str, tuple[str, str, bytes]], folder: Path) -> None:
    """Writes <folder>/<name>.png."""
    for name, (_, _, png) in figures.items():
        write_file(folder / f"{name}.png", png)
