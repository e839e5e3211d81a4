"""Figures of staleness, as PNG; None without data."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ckl_jax.analysis import labels
from ckl_jax.analysis.figures import few_ticks, legend, panels, png, sections
from ckl_jax.analysis.sections import Section
from ckl_jax.papers.mind_the_gap.analysis.past_text import ALL as POOLED
from ckl_jax.papers.mind_the_gap.analysis.past_text import START
from ckl_jax.papers.mind_the_gap.analysis.staleness_study import CONTROL

_TOPICS = 6  # curves that are drawn
_DWARFED, _LINEAR_TO = 30, 100  # times the lowest curve; percent up to which an axis is linear
_SLOPE_WIDTH = 20  # characters of a slope with its interval
_LEGEND_WIDTH = 60  # characters of names that fit below a figure
_INCREASE = "perplexity over {} (%)"
_PALETTE = ("#000000", "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
Curves = Mapping[str, Mapping[str, Any]]


def plot_groups(results: Mapping[str, Any]):
    """The stale model's curves by part of speech (solid) and topic (dotted), as in Figure 2."""
    speech, topics = results["groups"]["parts of speech"], results["groups"]["topics"]
    solid = {name: curve for name, curve in speech.items() if curve}
    ranked = sorted(
        (name for name, curve in topics.items() if curve and len(curve["values"]) > 2),
        key=lambda name: -topics[name]["line"]["slope"],
    )
    half = _TOPICS // 2  # those that rise and fall most
    chosen = ranked if len(ranked) <= _TOPICS else [*ranked[:half], *ranked[-half:]]
    dotted = {name: topics[name] for name in chosen}
    if not solid and not dotted:
        return None
    # Topic names are eight words long; the legend has room for five.
    short = {" ".join(name.split()[:5]): curve for name, curve in dotted.items()}
    # Numbers of percent differ by orders of magnitude between groups of words.
    highest = sorted(max(map(abs, curve["values"])) for curve in solid.values())
    dwarfed = len(highest) > 1 and highest[-1] > max(_DWARFED * highest[0], _LINEAR_TO)
    ylabel = _INCREASE.format(_base(results))
    return _plot(solid, "month", dotted=short, logarithmic=dwarfed, ylabel=ylabel)


def _base(results: Mapping[str, Any]) -> str:
    """What perplexities are compared with."""
    return "the control's" if CONTROL in results["perplexity"] else "expected by frequency"


def plot_periods(periods: Curves):
    """The stale model's curve of each test period, from its first bin on (Appendix A.1)."""
    curves = {
        name: {**curve, "labels": [str(1 + place) for place in curve["places"]]}
        for name, curve in periods.items()
    }
    ylabel = _INCREASE.format("the control's")
    return _plot(curves, "bin of the test period", lines=True, ylabel=ylabel)


def plot_forgetting(results: Mapping[str, Any]):
    """Increase of each updated model's perplexity on past text, by month (Figure 9)."""
    curves = {
        name: {
            "labels": list(pooled),
            "places": range(len(pooled)),
            "values": list(pooled.values()),
        }
        for name, periods in results["forgetting"].items()
        if len(pooled := {m: v for m, v in periods.get(POOLED, {}).items() if m != START}) > 1
    }
    if not curves:
        return None
    return _plot(
        curves,
        "updated to the end of",
        ylabel="perplexity of past text, change (%)",
        order=list(results["months"]),
    )


@png
def _plot(
    curves: Curves,
    unit: str,
    lines: bool = False,
    dotted: Curves | None = None,
    ylabel: str = "",
    order: Sequence[str] = (),
    logarithmic: bool = False,
):
    """One line per model: its relative increase (Figures 1, 3 and 5).

    Args:
      curves: {name: labels, places, values, and for `lines` the line and its band}.
      lines: whether the fitted line of each curve is drawn, with its 95 % band and its slope.
      order: gives names their colours, those of the other figures.
    """
    dotted = dotted or {}
    width = sum(map(len, curves)) + _SLOPE_WIDTH * lines * len(curves)
    beside = width > _LEGEND_WIDTH or bool(dotted)
    figure, (ax,) = panels(1, size=(10.4 if beside else 8.4, 4.6))
    ticks = _positions([*curves.values(), *dotted.values()])
    for i, (name, curve) in enumerate((*curves.items(), *dotted.items())):
        x = [ticks[label] for label in curve["labels"]]
        number = order.index(name) if order else i
        look = {"color": _PALETTE[number % len(_PALETTE)], "label": name}
        dashes, marker = ":" if i >= len(curves) else "-", "." if len(x) < 40 else None
        if lines and len(x) > 2:
            # Pale, so that the line, whose slope is the claim, is what one sees.
            pale = {"color": look["color"], "alpha": 0.3, "lw": 0.8}
            (points,) = ax.plot(x, curve["values"], "-", marker=marker, **pale)
            points.hover = name
            _draw_line(ax, curve, x, **look)
        else:
            ax.plot(x, curve["values"], dashes, marker=marker, **look)
    few_ticks(ax, ticks, fontsize=9)
    ax.axhline(0.0, color=labels.COLORS["initial"], lw=1.0)
    ax.set(xlabel=unit, ylabel=ylabel)
    if logarithmic:
        ax.set_yscale("symlog", linthresh=_LINEAR_TO)
        ax.yaxis.set_major_formatter("{x:g}")  # not powers of 10 as formulas
        lowest = min(min(curve["values"]) for curve in curves.values())
        ax.set_ylim(bottom=min(-10.0, 1.5 * lowest))
    legend(figure, [ax], beside)
    return figure


def _draw_line(ax: Any, curve: Mapping[str, Any], x: Sequence[int], color: str, label: str) -> None:
    """The fitted line, its band with edges, and its slope in the legend."""
    line = curve["line"]
    text = f"{label}: {line['slope']:+.2f} ({line['low']:.2f} to {line['high']:.2f})"
    fitted = [line["intercept"] + line["slope"] * at for at in curve["places"]]
    ax.plot(x, fitted, "-", color=color, lw=1.8, label=text)
    ax.fill_between(x, *curve["band"], color=color, alpha=0.12, lw=0)
    for end in curve["band"]:
        ax.plot(x, end, ":", color=color, lw=0.9)


def _positions(curves: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """{label of a bin: its position in time}; a group may lack bins that others have."""
    pairs = (zip(curve["labels"], curve["places"], strict=True) for curve in curves)
    return dict(sorted(set(itertools.chain.from_iterable(pairs)), key=lambda pair: pair[1]))


def draw(results: Mapping[str, Any]) -> dict[str, Section]:
    """{name: section} of all figures that have data."""
    ylabel = _INCREASE.format(_base(results))
    return sections(
        {
            "months": (
                "Staleness by month",
                f"How much higher than {_base(results)} a model's perplexity is, on the same "
                "documents: each month, and the line through the months, whose slope (points a "
                "bin) is in the legend. Bands and intervals are of 95 %, of a bootstrap over each "
                "month's documents.",
                _plot(results["months"], "month", lines=True, ylabel=ylabel),
            ),
            "groups": (
                "Parts of speech and topics",
                "The stale model; dotted are topics, if there are any: those that rise most and "
                "least. Where one curve dwarfs the others the axis is logarithmic above 100.",
                plot_groups(results),
            ),
            "weeks": (
                "Staleness by week",
                "Spans of seven days; below 0 a model is better than the control.",
                _plot(results["weeks"], "week", ylabel=ylabel) if results["weeks"] else None,
            ),
            "forgetting": (
                "Text of the past",
                "How much higher the perplexity of text from before the test period is than "
                "before the first update; above 0 the model forgets.",
                plot_forgetting(results),
            ),
        }
    )
