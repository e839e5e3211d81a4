"""Answers of several models to the same questions: accuracy, F1, and Figure 4.

Error bars are two standard errors, 2 √(p (1 - p) / n) of an accuracy p over n questions.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.analysis.figures import as_png, legend, style
from ckl_jax.analysis.render_table import TableCell, print_cells
from ckl_jax.errors import UserError
from ckl_jax.files import write_file, write_json

SCORES = ("em", "f1")


def summarize(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """{model: {"questions", "em": {"value", "error"}, "f1": ...}}; values in percent.

    Args:
      rows: {model: a row for each question, with `id`, `em` and `f1`}.

    Raises:
      UserError: the models were asked different questions.
    """
    asked = {name: [row["id"] for row in mine] for name, mine in rows.items()}
    first = next(iter(asked))
    for name, ids in asked.items():
        if ids != asked[first]:
            raise UserError(f"{name} was asked other questions than {first}; ask both again.")
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
    write_file(out / "asked.png", as_png(draw(scores)))
    headers = ["Model", "Questions", "EM", "F1"]
    print_cells(
        headers,
        [
            [
                TableCell(name),
                TableCell(f"{x['questions']:,}"),
                *(TableCell(f"{x[s]['value']:.2f}", f"± {x[s]['error']:.2f}") for s in SCORES),
            ]
            for name, x in scores.items()
        ],
    )
    return out / "asked.json"


def draw(scores: Mapping[str, Mapping[str, Any]]) -> Any:
    """Accuracy and F1 of the models in their order."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(7.0, 4.0))
        ax = figure.subplots()
        positions = range(len(scores))
        for score, color, marker in zip(SCORES, ("#0072B2", "#E69F00"), "os", strict=True):
            ax.errorbar(
                positions,
                [x[score]["value"] for x in scores.values()],
                [x[score]["error"] for x in scores.values()],
                label=score.upper(),
                color=color,
                marker=marker,
                capsize=3,
            )
        ax.set_xticks(positions, list(scores))
        ax.set(ylabel="score (%)", ylim=(0, None))
        legend(figure, [ax])
    return figure
