"""Both arms for several test periods: the other test years of Mind the Gap's Appendix A.1."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckl_jax.analysis.figures import save
from ckl_jax.analysis.sections import Section
from ckl_jax.files import without_nan, write_json
from ckl_jax.papers.mind_the_gap.analysis.figures import plot_periods
from ckl_jax.papers.mind_the_gap.analysis.report import perplexity, rounded, slope_of
from ckl_jax.papers.mind_the_gap.analysis.staleness import ALL
from ckl_jax.papers.mind_the_gap.analysis.staleness_study import CONTROL

NAME = "other_test_years"


def write_test_years(by_period: Mapping[str, Mapping[str, Any]], out: Path) -> Section:
    """Writes `other_test_years.json` and `.png`; returns the section of the report.

    Args:
      by_period: {test period: what `staleness_study.compute` says of its two arms}.
    """
    periods = {
        name: {
            "perplexity": {model: x[ALL] for model, x in results["perplexity"].items()},
            **results["months"][results["stale"]],
        }
        for name, results in by_period.items()
    }
    write_json(out / f"{NAME}.json", without_nan(periods))
    rows = [
        [name, *map(perplexity, x["perplexity"].values()), rounded(x["overall"]), slope_of(x)]
        for name, x in periods.items()
    ]
    models = list(next(iter(periods.values()))["perplexity"])
    stale = next(model for model in models if model != CONTROL)
    rises = sum(x["line"]["low"] > 0 for x in periods.values())
    notes = [
        "For each test period both arms are trained anew, on the text before it and with text of "
        f"it. The gap grows with time in {rises} of {len(periods)} periods (the interval of the "
        "slope is above 0). The paper finds the same in test years other than 2018 and 2019."
    ]
    headers = ["Test period", *models, f"{stale} over {CONTROL} (%)", "Slope (points a bin)"]
    table = Section("", headers, rows)
    png = plot_periods(periods)
    figure = Section("Test years", [], [], notes, png, sections=[table], anchor=NAME)
    save({NAME: figure}, out)
    return figure
