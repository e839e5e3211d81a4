"""Answers of several models to the same questions: accuracy, F1, and Figure 4.

Error bars are two standard errors, 2 √(p (1 - p) / n) of an accuracy p over n questions.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.analysis.figures import legend, panels, png
from ckl_jax.analysis.sections import Cell, Section, two
from ckl_jax.errors import UserError
from ckl_jax.files import write_file, write_json

SCORES = ("em", "f1")


def summarize(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """{model: {"questions", "em": {"value", "error"}, "f1": ...}}; values in percent.

    Args:
      rows: {model: a row for each question, with `id`, `em` and `f1`}.

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
    return {
        name: {"questions": len(mine), **{s: _mean([r[s] for r in mine]) for s in SCORES}}
        for name, mine in rows.items()
    }


def _mean(values: Sequence[float]) -> dict[str, float]:
    """The mean and two of its standard errors, percent."""
    stddev = float(np.std(values))  # of zeros and ones: the root of p (1 - p)
    return {
        "value": 100.0 * float(np.mean(values)),
        "error": 200.0 * stddev / math.sqrt(len(values)),
    }


def write(rows: Mapping[str, Sequence[Mapping[str, Any]]], out: Path) -> Path:
    """Writes asked.json and asked.png, and prints the table; returns the path of the first."""
    scores = summarize(rows)
    write_json(out / "asked.json", scores)
    write_file(out / "asked.png", draw(scores))
    table(scores).show()
    return out / "asked.json"


def table(scores: Mapping[str, Mapping[str, Any]]) -> Section:
    """The models in their order, with two standard errors."""
    rows = [[name, x["questions"], *(_cell(x[s]) for s in SCORES)] for name, x in scores.items()]
    return Section("", ["Model", "Questions", "EM", "F1"], rows)


def _cell(x: Mapping[str, float]) -> Cell:
    return Cell(two(x["value"]), f"± {x['error']:.2f}")


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
