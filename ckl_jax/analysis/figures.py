"""Figures of a study as PNG; None where data are missing.

Colours are Okabe and Ito's; markers differ too, so that figures survive a grey printer.
"""

import contextvars
import functools
import io
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.analysis import hover, labels
from ckl_jax.analysis.ledger import MEANING, STATES, counts
from ckl_jax.analysis.sections import Section
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
    "svg.fonttype": "none",
    "text.parse_math": False,  # a "$" in the name of a run is no formula
    "svg.hashsalt": "ckl_jax",
}
_PANEL = (4.1, 3.2)
# Whether figures are drawn for telephones: a panel a row, and legends below.
_NARROW = contextvars.ContextVar("narrow", default=False)
LINES = tuple(labels.COLORS.values())[2:]  # of models: no grey, no black
_OF_BARS = {"elinewidth": 1.0, "ecolor": "black"}


def png(draw: Callable) -> Callable[..., bytes | None]:
    """Decorator: renders the matplotlib figure that a function returns as PNG.

    The figure is drawn in the style of all figures, without pyplot, which would keep global state.
    """

    @functools.wraps(draw)
    def drawn(*args: Any, **options: Any) -> bytes | None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        with style():
            if (made := draw(*args, **options)) is None:
                return None
            FigureCanvasAgg(made)
            png = io.BytesIO()
            made.savefig(png, format="png", facecolor="white")
            image = Drawn(png.getvalue())
            image.svg = hover.svg(made)
            token = _NARROW.set(True)
            try:
                image.svg += hover.svg(draw(*args, **options), "narrow")
            finally:
                _NARROW.reset(token)
        return image

    return drawn


class Drawn(bytes):
    """A PNG, with the same figure as SVG for wide and narrow pages; these show values on hover."""

    svg: str


def style() -> AbstractContextManager[None]:
    """A `with` block in which figures look alike, whatever the user's own matplotlibrc says."""
    # Imported late: `--help` and tables need no matplotlib.
    import matplotlib

    return matplotlib.rc_context(_STYLE)


def sections(drawn: Mapping[str, tuple[str, str, bytes | None]]) -> dict[str, Section]:
    """{name: section} for {name: (title, caption, PNG or None)}, without the None ones."""
    return {
        name: Section(title, notes=[caption], png=image, anchor=name)
        for name, (title, caption, image) in drawn.items()
        if image
    }


def save(drawn: Mapping[str, Section], folder: Path) -> None:
    """Writes <folder>/<name>.png."""
    for name, section in drawn.items():
        write_file(folder / f"{name}.png", section.png)


def panels(
    n: int,
    columns: int = 2,
    size: tuple[float, float] | None = None,
    make: Callable[..., Any] | None = None,
) -> tuple[Any, np.ndarray]:
    """A figure and its first `n` axes, [n].

    Args:
      columns: of axes, at most.
      size: of the figure in inches.
      make: makes the figure; None makes one without pyplot.
    """
    from matplotlib.figure import Figure

    columns = min(n, columns)
    # Rounded up.
    rows = -(-n // columns)
    width, height = size or (_PANEL[0] * columns, _PANEL[1] * rows + 0.7)
    if _NARROW.get():
        width, height, rows, columns = _PANEL[0], height / rows * n, n, 1
    figure = (make or Figure)(figsize=(width, height))
    axes = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for spare in axes[n:]:
        spare.set_visible(False)
    return figure, axes[:n]


def legend(figure: Any, axes: Iterable[Any], beside: bool = False) -> None:
    """One legend for all panels, below them or to their right."""
    handles: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            # By label: a method that is missing in the first panel still gets its entry.
            handles.setdefault(label, handle)
    columns = len(handles) if len(handles) <= 6 else 4
    longest = max(map(len, handles), default=0)
    if narrow := _NARROW.get():
        columns = 2 if longest <= 16 else 1
        figure.set_figheight(figure.get_figheight() + 0.25 * len(handles) / columns)
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": columns}
    if beside and not narrow:
        place = {"loc": "outside right center", "labelspacing": 0.9}
    if narrow and longest > 36:  # it would be cut at the edge
        place["fontsize"] = "small"
    for handle in figure.legend(handles.values(), handles, **place).legend_handles:
        if hasattr(handle, "set_sizes"):  # of a scatter plot, whose areas say something
            handle.set_sizes([60])


def bands(ax: Any, at: Sequence[Any], lines: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    """A line of "value" for each label, with a band from "low" to "high" where these are known."""
    for (label, cells), color in zip(lines.items(), itertools.cycle(LINES), strict=False):
        value, low, high = ([c[key] for c in cells] for key in ("value", "low", "high"))
        ax.plot(at, value, marker="o", markersize=4, label=label[-24:], color=color)
        ax.fill_between(at, *np.array([low, high], float), alpha=0.15, color=color)


def bars(ax: Any, at: Sequence[float], cells: Sequence[Mapping[str, float]], **look: Any) -> None:
    """Bars of the cells' "value", each with its interval from "low" to "high".

    Its lines have a light edge, which shows on dark bars too.
    """
    from matplotlib.patheffects import withStroke

    errors = [
        # matplotlib refuses negative error bars, which rounding can produce.
        [max(0.0, c["value"] - c["low"]) for c in cells],
        [max(0.0, c["high"] - c["value"]) for c in cells],
    ]
    lines = _OF_BARS | {"path_effects": [withStroke(linewidth=2.8, foreground="white")]}
    ax.bar(at, [c["value"] for c in cells], yerr=errors, error_kw=lines, **look)


def few_ticks(ax: Any, ticks: Mapping[str, float], most: int = 12, **text: Any) -> None:
    """Labels the x axis by {label: position}, as every second or third if there are too many."""
    ax.xaxis.names = {position: name for name, position in ticks.items()}  # for `hover`
    most = most // 2 if _NARROW.get() else most
    names, at = zip(*list(ticks.items())[:: max(1, -(-len(ticks) // most))], strict=True)
    ax.set_xticks(at, names, rotation=45, ha="right", **text)


def rows_of_bars(ax: Any, names: Sequence[str], **ticks: Any) -> None:
    """Labels the rows of horizontal bars, the first on top."""
    ax.set_yticks(range(len(names)), names, **ticks)
    # Row 0 is at the bottom in matplotlib.
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)


def stack(
    ax: Any, parts: Mapping[str, Sequence[float]], colors: Sequence[str], **look: Any
) -> None:
    """Stacked horizontal bars of {label: [rows]}."""
    left = np.zeros(len(next(iter(parts.values()))))
    for (label, widths), color in zip(parts.items(), colors, strict=True):
        at, edge = range(len(left)), {"edgecolor": "white", "lw": 0.5}
        ax.barh(at, widths, left=left, label=label, color=color, **edge, **look)
        left += widths


def look(key: str, position: int = 0) -> dict[str, Any]:
    """Colour and marker of a method."""
    return {
        "color": labels.color(key, position),
        "marker": labels.marker(key, position),
        "markeredgecolor": "white",
        "markeredgewidth": 0.6,
    }


Curves = dict[str, list[tuple[int, float, dict[str, float]]]]


def read_curves(study: Study) -> Curves:
    """{method: [(step, epoch, {probe: EM in percent})]}; reads one evaluation at a time."""
    return {
        e.key: [
            (s, e.run.epoch_at(s), {p: 100.0 * v for p, v in e.run.means_at(s).items()})
            for s in e.run.steps
        ]
        for e in study.methods
    }


@png
def plot_curves(study: Study, curves: Curves):
    """Score of each probe during training (CKL, Figure 2)."""
    # A curve of one evaluation is a point, which the table shows better.
    drawn = {k: c for k, c in curves.items() if len(c) > 1}
    scored = {probe for curve in drawn.values() for _, _, scores in curve for probe in scores}
    probes = [probe for probe in study.probes if probe in scored]
    if not probes:
        return None
    figure, axes = panels(len(probes))
    for ax, probe in zip(axes, probes, strict=True):
        draw_curves(ax, study, drawn, probe)
    legend(figure, axes)
    return figure


def draw_curves(ax: Any, study: Study, curves: Curves, probe: str) -> None:
    """The curves of one probe."""
    if study.initial and probe in study.initial.scores:
        value = 100.0 * float(study.initial.scores[probe].em.mean())
        ax.axhline(value, color=labels.COLORS["initial"], ls="--", lw=1.4, label="Initial")
    for i, entry in enumerate(study.methods):
        measured = curves.get(entry.key, ())
        if points := [(epoch, scores[probe]) for _, epoch, scores in measured if probe in scores]:
            ax.plot(*zip(*points, strict=True), **look(entry.key, i), label=entry.label)
    ax.set(title=study.records[probe].long, xlabel="epoch", ylabel="EM (%)")
    # From 0, so that small differences do not look large.
    ax.set_ylim(bottom=0)
    ax.locator_params(axis="x", integer=True, nbins=7)


@png
def plot_precision(study: Study):
    """P@k of each probe (CKL, Figure 9)."""
    wide: dict[str, list[tuple[int, Entry]]] = {}
    for probe in study.probes:
        # Methods count from 0, as in the other figures.
        for i, entry in enumerate(study.entries, -bool(study.initial)):
            # 2 beams are the ordinary search of the published numbers.
            if probe in entry.scores and entry.scores[probe].beams.max() > 2:
                wide.setdefault(probe, []).append((i, entry))
    if not wide:
        return None
    figure, axes = panels(len(wide))
    for ax, (probe, entries) in zip(axes, wide.items(), strict=True):
        ticks: set[int] = set()
        for i, entry in entries:
            scored = entry.scores[probe]
            curve = precision_curve(scored.hit_rank, scored.beams)
            dashes = "--" if entry is study.initial else "-"
            values = [100.0 * v for v in curve.values()]
            ax.plot(list(curve), values, dashes, **look(entry.key, i), label=entry.label)
            ticks |= set(curve)
            items = int((scored.beams == scored.beams.max()).sum())
        ax.set_xscale("log")
        ax.set_xticks(sorted(ticks), map(str, sorted(ticks)))
        ax.minorticks_off()
        title = f"{study.records[probe].long} ({labels.count(items, 'item')})"
        ax.set(title=title, xlabel="k", ylabel="P@k (%)", ylim=(0, None))
    legend(figure, axes)
    return figure


def _with_fuar(table: Mapping[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """The rows that have a FUAR, each with the method's position."""
    methods = (row for row in table["rows"] if row["key"] != "initial")
    return [(i, row) for i, row in enumerate(methods) if row["fuar"]]


@png
def plot_balance(table: Mapping[str, Any]):
    """Forgetting against gain; a point's area is the FLOPs of its training."""
    if not _with_fuar(table):
        return None
    figure, (ax,) = panels(1, size=(7.4, 4.8))
    draw_balance(ax, table)
    legend(figure, [ax], beside=True)
    return figure


def draw_balance(ax: Any, table: Mapping[str, Any]) -> None:
    """A point for each row of the table that has a FUAR, of which there must be one."""
    rows = _with_fuar(table)
    # `or 1.0`: runs without recorded FLOPs must not divide by 0.
    largest = max((row["flops"] or 0) for _, row in rows) or 1.0
    gains, losses = ([row["fuar"][name] for _, row in rows] for name in ("gained", "lost"))
    for (i, row), x, y in zip(rows, gains, losses, strict=True):
        ax.scatter(
            x,
            y,
            s=60 + 340 * (row["flops"] or 0) / largest,
            color=labels.color(row["key"], i),
            marker=labels.marker(row["key"], i),
            edgecolor="white",
            linewidth=0.8,
            zorder=3,
            label=row["label"]
            + ("" if row["flops"] is None else f", {row['flops'] / 1e12:.3g} TFLOP"),
        )
    right, top = 1.12 * max(*gains, 1e-3, 0), 1.2 * max(*losses, 1e-3, 0)
    ax.set_xlim(-0.04 * right, right)
    ax.set_ylim(-0.06 * top, top)
    # Lines through the origin join points of equal FUAR.
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


_COSTS = {
    "flops": (1e12, "matrix products of the training (TFLOP)"),
    "added": (1, "parameters added"),
}


@png
def plot_cost(table: Mapping[str, Any]):
    """Forgetting against the FLOPs of the training and the number of added parameters."""
    from matplotlib.ticker import EngFormatter

    rows = _with_fuar(table)
    known = [name for name in _COSTS if any(row[name] for _, row in rows)]
    if not known:
        return None
    figure, axes = panels(len(known), size=(_PANEL[0] * len(known) + 1.8, _PANEL[1] + 0.7))
    for ax, name in zip(axes, known, strict=True):
        unit, title = _COSTS[name]
        for i, row in rows:
            if row[name] is not None:
                at = row[name] / unit, row["fuar"]["lost"]
                ax.plot(*at, ls="", ms=9, **look(row["key"], i), label=row["label"])
        ax.set(xlabel=title, ylabel="forgotten (points)")
        high = ax.dataLim.x1
        ax.set_xlim(-0.05 * high, 1.05 * high)
        ax.locator_params(axis="x", nbins=5)
        ax.xaxis.set_major_formatter(EngFormatter(sep="") if name == "added" else "{x:g}")
    legend(figure, axes[:1], beside=True)
    return figure


@png
def plot_ledger(study: Study):
    """States of the facts of each probe, as stacked bars."""
    if not (probes := study.compared):
        return None
    figure, axes = panels(len(probes))
    for ax, probe in zip(axes, probes, strict=True):
        draw_ledger(ax, study, probe)
    legend(figure, axes)
    return figure


def draw_ledger(ax: Any, study: Study, probe: str) -> None:
    """The bars of one of the probes that can be compared with Initial."""
    entries = [e for e in study.methods if probe in e.scores]
    items = len(study.initial.scores[probe].items)
    totals = [counts(study.states(e, probe)) for e in entries]
    percents = {s: [100.0 * t[s] / items for t in totals] for s in STATES}
    stack(ax, percents, [labels.STATE_COLORS[s] for s in STATES], height=0.7)
    rows_of_bars(ax, [e.label for e in entries], fontsize=9.5)
    ax.grid(visible=False)
    ax.set(title=study.records[probe].long, xlim=(0, 100), xlabel="facts (%)")


def draw(study: Study, table: Mapping[str, Any]) -> dict[str, Section]:
    """{name: section} of all figures for which there are data."""
    return sections(
        {
            "curves": (
                "Scores during training",
                "After each evaluation; dashed, the Initial model.",
                plot_curves(study, read_curves(study)),
            ),
            "balance": (
                "Forgetting against learning",
                "Lower right is better. The area of a point is what its training computed. Dotted "
                "lines join equal ratios.",
                plot_balance(table),
            ),
            "cost": (
                "Forgetting against cost",
                "What was forgotten, against what the training computed (products of matrices, "
                "those of gradients and of what is computed again among them) and, where Initial "
                "is one of the folders, what it added.",
                plot_cost(table),
            ),
            "ledger": (
                "What became of each fact",
                MEANING,
                plot_ledger(study),
            ),
            "precision_at_k": (
                "Precision at k",
                "Fraction of items with a right answer among the first k of a wide beam search; it "
                "may have been put to fewer items than the main table's narrow one.",
                plot_precision(study),
            ),
        }
    )
