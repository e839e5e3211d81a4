"""Models that end at different times on one test set: perplexity by cut-off and month.

The increasing gap of Mind the Gap's Appendix A.2; all models have seen equally many words.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ckl_jax.analysis.figures import few_ticks, panels, png, save
from ckl_jax.analysis.sections import Section
from ckl_jax.analysis.statistics import estimate
from ckl_jax.files import write_json
from ckl_jax.papers.mind_the_gap.analysis import staleness
from ckl_jax.papers.mind_the_gap.analysis.report import inline, perplexity, rounded, slope_of
from ckl_jax.papers.mind_the_gap.analysis.staleness_study import CONTROL, StalenessStudy

NAME = "cutoffs"


def write_cutoffs(study: StalenessStudy, last: str, out: Path) -> Section:
    """Writes `cutoffs.json` and `cutoffs.png`; returns the section of the report.

    Args:
      study: its models are named by the last year of their training; the control is that of
        `last`.

    Raises:
      UserError: see `read_totals` and `bins_of`.
    """
    totals = staleness.read_totals(study.dumps)
    dates = totals[CONTROL].dates
    bins = staleness.bins_of(dates, months=study.bin_months, first=study.first_month)
    how = {"samples": study.samples, "seed": study.seed}
    curves = {
        name: staleness.relative_increase(totals[name], totals[CONTROL], bins, **how)
        for name in study.models
    }
    months = {name: curve.as_dict() for name, curve in curves.items()}
    every = {name: total.perplexity()[staleness.ALL] for name, total in totals.items()}
    every[last] = every.pop(CONTROL)
    trend = _trend(curves)
    write_json(out / f"{NAME}.json", {"trend": trend, "months": months, "perplexity": every})
    rows = [
        [name, perplexity(every[name]), rounded(increase["overall"]), slope_of(increase)]
        for name, increase in months.items()
    ]
    rows.append([last, perplexity(every[last]), None, None])
    note = (
        f"All models trained on equally many words, until the end of a year; {last} is what they "
        "are compared with."
    )
    if trend:
        note += (
            " On average over the test months a cut-off one year earlier adds "
            f"{inline(trend, 'points')}."
        )
    headers = ["Trained until", "Perplexity", f"Over {last} (%)", "Slope (points a bin)"]
    table = Section("", headers, rows)
    figure = Section(
        "Cut-offs", [], [], [note], _plot(curves, trend), sections=[table], anchor=NAME
    )
    save({NAME: figure}, out)
    return figure


def _trend(curves: Mapping[str, staleness.Curve]) -> dict[str, float] | None:
    """Percentage points that each year of distance adds, by a line through the models."""
    if len(curves) < 2:
        return None
    years = -np.array([float(name) for name in curves])
    x = years - years.mean()
    means = np.array([curve.values.mean() for curve in curves.values()])
    samples = np.array([curve.samples.mean(axis=1) for curve in curves.values()])  # [C, B]
    slope = estimate(x @ means / (x @ x), (x @ samples) / (x @ x))
    return {**slope, "at": float(means.mean())}


@png
def _plot(curves: Mapping[str, staleness.Curve], trend: Mapping[str, float] | None):
    """The matrix of cut-offs and months; beside it the mean over months, with the line."""
    figure, (matrix, line) = panels(2, size=(10.4, 4.2))
    names, labels = list(curves), next(iter(curves.values())).labels
    image = matrix.imshow(
        [curve.values for curve in curves.values()], aspect="auto", cmap="cividis"
    )
    matrix.grid(False)
    matrix.set_yticks(range(len(names)), names)
    few_ticks(matrix, {label: i for i, label in enumerate(labels)}, most=8)
    matrix.set(xlabel="test month", ylabel="trained until the end of")
    figure.colorbar(image, ax=matrix, label="perplexity over the last one's (%)")
    years = np.array([float(name) for name in names])
    means = np.array([curve.values.mean() for curve in curves.values()])
    ends = np.percentile([c.samples.mean(axis=1) for c in curves.values()], [2.5, 97.5], axis=1)
    line.errorbar(years, means, np.abs(ends - means), fmt="o", color="#0072B2", capsize=3)
    if trend:
        fitted = trend["at"] - trend["value"] * (years - years.mean())
        line.plot(years, fitted, "--", color="#0072B2", lw=1.0)
    line.axhline(0.0, color="#808080", lw=1.0)
    line.set_xticks(years, names)
    line.set(xlabel="trained until the end of", ylabel="mean over test months (%)")
    return figure
