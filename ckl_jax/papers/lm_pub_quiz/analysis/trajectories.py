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

RECORD = "stream.json"
Fact = tuple[str, str]  # relation and subject
SCORES = {
    "ranking": "ranking, all facts",
    "ranking_same_items": "ranking, facts with a one-token answer",
    "mask_filling": "mask filling, facts with a one-token answer",
}


def write_trajectories(folders: Mapping[str, Path], out: Path, dataset: str) -> Path:
    """Writes `trajectories.json` and `trajectories.png`, and prints the table.

    Args:
      folders: {name: MODEL_DIR} in the order of the stream.
      dataset: name of the dataset that the trainings were evaluated on.

    Returns:
      The path of the figure.

    Raises:
      UserError: a training holds no such results.
    """
    where = points_of(folders, dataset)
    points = {name: _scores(folder, dataset, step) for name, (folder, step) in where.items()}
    files.write_json(out / "trajectories.json", {"dataset": dataset, "scores": points})
    section(points).show()
    files.write_file(out / "trajectories.png", plot(points))
    return out / "trajectories.png"


def points_of(folders: Mapping[str, Path], dataset: str) -> dict[str, tuple[Path, str]]:
    """{point of the stream: MODEL_DIR, step}, the first before any experience."""
    points = {}
    for i, (name, folder) in enumerate(folders.items()):
        steps = _steps(folder, dataset)
        # The first training of an imported model also evaluates at its step 0: the score of the
        # model before any experience, to which the others are relative.
        if i == 0 and len(steps) > 1:
            points["start"] = folder, steps[0]
        points[name] = folder, steps[-1]
    return points


def _steps(folder: Path, dataset: str) -> list[str]:
    # Names are steps with six digits, so alphabetical order is the order of the steps (up to
    # 999,999).
    steps = sorted(path.stem for path in (folder / "mask_filling" / dataset).glob("*.jsonl"))
    if not steps:
        raise UserError(f"{folder} holds no answers to {dataset!r}; was it trained with it?")
    return steps


def _scores(folder: Path, dataset: str, step: str) -> dict[str, float]:
    """The three scores in percent, of template 0."""
    ranked, filled = right_answers(folder, dataset, step)
    return {
        "ranking": 100 * float(np.mean(list(ranked.values()))),
        # Answers of one token are another, mostly easier, selection of facts; without this row a
        # difference between the two measures could be one of the facts.
        "ranking_same_items": 100 * float(np.mean([ranked[fact] for fact in filled])),
        # Rank 0 of the whole vocabulary, which is precision@1.
        "mask_filling": 100 * float(np.mean(list(filled.values()))),
        "facts": len(ranked),
        "one_piece_facts": len(filled),
    }


def right_answers(
    folder: Path, dataset: str, step: str
) -> tuple[dict[Fact, bool], dict[Fact, bool]]:
    """Which facts a model knows by ranking and, of those with a one-token answer, mask filling."""
    results = DatasetResults.from_path(folder / "ranking" / dataset / step)
    ranked = {
        (result.code, row["sub_id"]): bool(correct)
        for result in results
        for row, correct in zip(
            result.table, ranking_metrics.correct(result.scores, result.answers), strict=True
        )
        # Mask filling uses template 0 alone, so ranking is compared on it too.
        if row["template_index"] == 0
    }
    rows = files.read_jsonl(folder / "mask_filling" / dataset / f"{step}.jsonl")
    filled = {
        (row["relation"], row["sub_id"]): row["rank"] == 0 for row in rows if row["template"] == 0
    }
    return ranked, filled


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
