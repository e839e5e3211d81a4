"""Answers of several models to the same questions: accuracy, F1, and Figure 4.

Error bars are two standard errors, 2 √(p (1 - p) / n) of an accuracy p over n questions.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.analysis.figures import bands, legend, panels, png
from ckl_jax.analysis.sections import Cell, Section, two
from ckl_jax.errors import UserError
from ckl_jax.files import write_file, write_json
from ckl_jax.papers.mind_the_gap.analysis.report import rounded

SCORES = ("em", "f1")


def summarize(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """{model: {"questions", "em": {"value", "error"}, "f1", "perplexity", "by_date": [{...}]}}.

    Values of `em` and `f1` are in percent.

    Args:
      rows: {model: a row for each question, with `id`, `em` and `f1`; for the perplexity of the
        answers also `loss` and `words`}.

    Raises:
      UserError: the models were evaluated on different questions.
    """
    ids_by_model = {name: [row["id"] for row in mine] for name, mine in rows.items()}
    first = next(iter(ids_by_model))
    # Accuracies over different questions are not comparable, whatever their number.
    for name, ids in ids_by_model.items():
        if ids != ids_by_model[first]:
            raise UserError(
                f"{name} was evaluated on other questions than {first}; evaluate both again."
            )
    return {name: {**_scores(mine), "by_date": _by_date(mine)} for name, mine in rows.items()}


def _scores(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    scores = {s: _mean([row[s] for row in rows]) for s in SCORES}
    if all("loss" in row for row in rows):  # answers of earlier versions have none
        scores["perplexity"] = _perplexity(rows)
    return {"questions": len(rows), **scores}


def _perplexity(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Of the words of the right answers and their ends; low and high are two standard errors off.

    The error is that of a ratio, of losses to words.
    """
    losses, words = (np.array([row[k] for row in rows], float) for k in ("loss", "words"))
    mean = losses.sum() / words.sum()
    error = 2.0 * math.sqrt(np.sum((losses - mean * words) ** 2)) / words.sum()
    ends = {"value": mean, "low": mean - error, "high": mean + error}
    return {name: math.exp(min(x, 700.0)) for name, x in ends.items()}


def _by_date(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The scores by year, or by month of questions of less than three years, with their dates."""
    dates = [row.get("date", "") for row in rows]
    length = 4 if len({date[:4] for date in dates if date}) > 2 else 7
    parts: dict[str, list[Mapping[str, Any]]] = {}
    for date, row in zip(dates, rows, strict=True):
        parts.setdefault(date[:length], []).append(row)
    return [{"date": date, **_scores(parts[date])} for date in sorted(parts) if date]


def _mean(values: Sequence[float]) -> dict[str, float]:
    """The mean and two of its standard errors, percent."""
    stddev = float(np.std(values))  # of zeros and ones: the root of p (1 - p)
    value, error = 100.0 * float(np.mean(values)), 200.0 * stddev / math.sqrt(len(values))
    return {"value": value, "error": error, "low": max(0.0, value - error), "high": value + error}


def write_answers(rows: Mapping[str, Sequence[Mapping[str, Any]]], out: Path) -> Path:
    """Writes asked.json and asked.png, and by_date.png of several dates, and prints the table.

    Returns:
      The path of asked.json.
    """
    scores = summarize(rows)
    write_json(out / "asked.json", scores)
    write_file(out / "asked.png", draw(scores))
    if len(next(iter(scores.values()))["by_date"]) > 1:
        write_file(out / "by_date.png", draw_by_date(scores))
    table(scores).show()
    return out / "asked.json"


def table(
    scores: Mapping[str, Mapping[str, Any]], published: Sequence[Sequence[Any]] = ()
) -> Section:
    """The models in their order, with two standard errors; below them rows of published scores."""
    rows = [
        [name, x["questions"], *(_cell(x[s]) for s in SCORES), rounded(x.get("perplexity"))]
        for name, x in scores.items()
    ]
    rows += [[*row, None] for row in published]
    return Section("", ["Model", "Questions", "EM", "F1", "Perplexity of the answer"], rows)


def _cell(x: Mapping[str, float]) -> Cell:
    return Cell(two(x["value"]), f"± {x['error']:.2f}")


@png
def draw_by_date(scores: Mapping[str, Mapping[str, Any]]):
    """Exact match by the date of the answer, and its perplexity, with two standard errors."""
    by_date = {name: x["by_date"] for name, x in scores.items()}
    every = [one for rows in by_date.values() for one in rows]
    titles = {"em": "exact match (%)", "perplexity": "perplexity of the answer"}
    shown = [score for score in titles if all(score in one for one in every)]
    figure, axes = panels(len(shown), columns=1, size=(8.0, 3.6 * len(shown)))
    dates = [one["date"] for one in next(iter(by_date.values()))]
    step = -(-len(dates) // 12)
    for ax, score in zip(axes, shown, strict=True):
        curves = {name: [one[score] for one in rows] for name, rows in by_date.items()}
        bands(ax, range(len(dates)), curves)
        ax.set_xticks(range(0, len(dates), step), dates[::step], rotation=30)
        ax.set(ylabel=titles[score])
        if score == "em":
            ax.set(ylim=(0, None))
        else:
            ax.set_yscale("log")
            ax.yaxis.set_major_formatter("{x:g}")  # not powers of 10 as formulas
    axes[-1].set(xlabel="date of the answer")
    legend(figure, axes, beside=True)
    return figure


@png
def draw(scores: Mapping[str, Mapping[str, Any]]):
    """Accuracy and F1 of the models in their order."""
    figure, (ax,) = panels(1, size=(7.0, 4.0))
    at = range(len(scores))
    for score, color, marker in zip(SCORES, ("#0072B2", "#E69F00"), "os", strict=True):
        values, errors = ([x[score][k] for x in scores.values()] for k in ("value", "error"))
        look = {"label": score.upper(), "color": color, "marker": marker, "capsize": 3}
        ax.errorbar(at, values, errors, **look)
    ax.set_xticks(at, list(scores))
    ax.set(ylabel="score (%)", ylim=(0, None))
    legend(figure, [ax])
    return figure
