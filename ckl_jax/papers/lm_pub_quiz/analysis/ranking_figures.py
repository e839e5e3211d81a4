"""Figures of ranking results beside each other (Ploner et al. 2024, Figures 3 and 4)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ckl_jax.analysis import labels
from ckl_jax.analysis.figures import legend, panels, style
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults


def _bars(ax: Any, names: list[str], heights: Mapping[str, np.ndarray], ranges=None) -> None:
    """Groups of horizontal bars, a group for each of `names`, a bar for each model."""
    width, colors = 0.8 / len(heights), list(labels.COLORS.values())[2:]  # no grey, no black
    for i, (model, values) in enumerate(heights.items()):
        places = np.arange(len(names)) + (i - (len(heights) - 1) / 2) * width
        error = None if ranges is None else ranges[model]
        ax.barh(
            places,
            values,
            0.9 * width,
            xerr=error,
            label=model,
            color=colors[i % len(colors)],
            error_kw={"elinewidth": 1.0, "ecolor": "#444444"},
        )
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.grid(False, axis="y")


def plot_domains(models: Mapping[str, DatasetResults]) -> Any:
    """Accuracy by domain, a bar for each model (Figure 3).

    Raises:
      UserError: the results do not say their relations' domains.
    """
    scores = {name: r.get_metrics("accuracy", "domains") for name, r in models.items()}
    names = sorted({domain for found in scores.values() for domain in found})
    heights = {
        model: np.array([100 * found[n]["accuracy"] if n in found else np.nan for n in names])
        for model, found in scores.items()
    }
    with style():
        figure, (ax,) = panels(1)
        figure.set_size_inches(6.4, 1.2 + 0.25 * len(names) * (1 + len(models)))
        _bars(ax, names, heights)
        ax.set_xlabel("accuracy, %")
        legend(figure, [ax])
    return figure


def plot_bias(models: Mapping[str, DatasetResults], code: str) -> Any:
    """How likely each option of a relation is found whatever the subject (section 3.2, Figure 4).

    Bars are means over templates, lines their range; the dashed line is a model without bias where
    every option is right as often.
    """
    options = next(iter(models.values()))[code].answer_space
    heights, ranges = {}, {}
    for name, results in models.items():
        bias = np.array(list(results[code].answer_bias().values()))
        accuracy = results[code].get_metric("accuracy")
        label = f"{name} ({100 * accuracy:.0f} % right)"
        heights[label] = bias.mean(axis=0)
        ranges[label] = np.stack([heights[label] - bias.min(0), bias.max(0) - heights[label]])
    with style():
        figure, (ax,) = panels(1)
        figure.set_size_inches(6.4, 1.2 + 0.25 * len(options) * (1 + len(models)))
        _bars(ax, list(options), heights, ranges)
        ax.axvline(1 / len(options), color="#444444", linestyle="--", linewidth=1.0)
        ax.set_xlabel("mean probability among the options")
        ax.set_title(code)
        legend(figure, [ax])
    return figure
