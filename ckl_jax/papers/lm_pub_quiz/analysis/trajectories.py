"""Scores of a model along a stream of trainings (LM-PUB-QUIZ's Figure 5 and Table 2)."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ckl_jax import files
from ckl_jax.analysis import figures
from ckl_jax.analysis.sections import Section
from ckl_jax.errors import UserError
from ckl_jax.papers.lm_pub_quiz import ranking_metrics
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults

SCORES = {
    "ranking": "ranking, all facts",
    "ranking_same_items": "ranking, facts with a one-piece answer",
    "mask_filling": "mask filling, facts with a one-piece answer",
}


def write(folders: Mapping[str, Path], out: Path, dataset: str) -> Path:
    """Writes `trajectories.json` and `trajectories.png`, and prints the table.

    Args:
      folders: {name: MODEL_DIR} in the order of the stream.
      out: where to.
      dataset: name of the dataset that the trainings were asked.

    Returns:
      The path of the figure.

    Raises:
      UserError: a training holds no such results.
    """
    points: dict[str, dict[str, float]] = {}
    for i, (name, folder) in enumerate(folders.items()):
        steps = _steps(folder, dataset)
        # The first training of an imported model also evaluates at its step 0: the score of the
        # model before any experience, to which the others are relative.
        if i == 0 and len(steps) > 1:
            points["start"] = _scores(folder, dataset, steps[0])
        points[name] = _scores(folder, dataset, steps[-1])
    files.write_json(out / "trajectories.json", {"dataset": dataset, "scores": points})
    section(points).show()
    files.write_file(out / "trajectories.png", plot(points))
    return out / "trajectories.png"


def _steps(folder: Path, dataset: str) -> list[str]:
    # Names are steps with six digits, so alphabetical order is the order of the steps (up to
    # 999,999).
    found = sorted(path.stem for path in (folder / "mask_filling" / dataset).glob("*.jsonl"))
    if not found:
        raise UserError(f"{folder} holds no answers to {dataset!r}; was it trained with it?")
    return found


def _scores(folder: Path, dataset: str, step: str) -> dict[str, float]:
    """The three scores in percent, of template 0."""
    ranked = DatasetResults.from_path(folder / "ranking" / dataset / step)
    # Keyed by fact, so that the ranking of the same facts that can be asked by mask filling can be
    # looked up below.
    right = {
        (result.code, row["sub_id"]): bool(correct)
        for result in ranked
        for row, correct in zip(
            result.table, ranking_metrics.correct(result.scores, result.answers), strict=True
        )
        # Mask filling asks template 0 alone, so ranking is compared on it too.
        if row["template_index"] == 0
    }
    rows = list(files.read_jsonl(folder / "mask_filling" / dataset / f"{step}.jsonl"))
    asked = [row for row in rows if row["template"] == 0]
    return {
        "ranking": 100 * float(np.mean(list(right.values()))),
        # Answers of one token are another, mostly easier, selection of facts; without this row a
        # difference between the two ways to ask could be one of the facts.
        "ranking_same_items": 100
        * float(np.mean([right[row["relation"], row["sub_id"]] for row in asked])),
        # Rank 0 of the whole vocabulary, which is precision@1.
        "mask_filling": 100 * float(np.mean([row["rank"] == 0 for row in asked])),
        "facts": len(right),
        "one_piece_facts": len(asked),
    }


def relative(points: Mapping[str, Mapping[str, float]], score: str) -> list[float]:
    """A score along the stream in percent of the first; NaN where that is 0."""
    values = [point[score] for point in points.values()]
    return [100 * value / values[0] if values[0] else float("nan") for value in values]


def section(points: Mapping[str, Mapping[str, float]]) -> Section:
    """Each score along the stream, in percent, and in percent of the first."""
    rows = []
    for score, label in SCORES.items():
        cells = zip(points.values(), relative(points, score), strict=True)
        fractions = ((p[score], "–" if math.isnan(r) else f"{r:.1f}") for p, r in cells)
        rows.append([label, *(f"{value:.2f} ({fraction}%)" for value, fraction in fractions)])
    return Section(headers=["Score", *points], rows=rows)


@figures.png
def plot(points: Mapping[str, Mapping[str, float]]):
    """Scores relative to the first, along the stream."""
    figure, (ax,) = figures.panels(1, size=(6.4, 4.0))
    for score, marker in zip(SCORES, "os^", strict=True):
        ax.plot(list(points), relative(points, score), marker=marker, label=SCORES[score])
    ax.set_ylabel("% of the score at the start")
    ax.set_ylim(bottom=0)
    ax.tick_params(axis="x", rotation=20)
    ax.legend(loc="upper right", fontsize=9)
    return figure
