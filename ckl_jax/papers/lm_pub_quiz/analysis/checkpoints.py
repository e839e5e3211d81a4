"""Facts learned, kept and forgotten along the checkpoints of a training, or along a family."""

from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.analysis import figures, labels, sections, statistics
from ckl_jax.analysis.sections import Section
from ckl_jax.files import write_file, write_json
from ckl_jax.papers.lm_pub_quiz.analysis import comparison, ranking_report

_NOTES = (
    "A fact (an instance) is known if it is right in more than half of its templates. Learned and "
    "forgotten: since the checkpoint before. Still known: percent of the facts known at the first "
    "checkpoint. Known since: facts that are known now and were not at the first. Below: "
    "95 % intervals of a bootstrap over facts.",
)


def measure(models: comparison.Models) -> list[dict[str, Any]]:
    """What is known at each checkpoint.

    Args:
      models: {checkpoint: results}, in their order, with the same rows (`comparison.align`).

    Returns:
      For each, {"name", "accuracy": {"value", "low", "high"} in percent of rows, "facts", "known",
      "learned" and "forgotten" since the one before, "known_since": numbers of facts,
      "still_known": {"value", "low", "high"} in percent of those known at the first, or None}.
    """
    known = np.array(
        [np.concatenate([comparison.by_instance(x)[0] for x in r]) > 0.5 for r in models.values()]
    )
    points, before = [], known[0]
    for (name, results), now in zip(models.items(), known, strict=True):
        overall = ranking_report.overall(results)
        points.append(
            {
                "name": name,
                "accuracy": {key: overall[key] for key in ("value", "low", "high")},
                "facts": len(now),
                "known": int(now.sum()),
                "learned": int((now & ~before).sum()),
                "forgotten": int((before & ~now).sum()),
                "still_known": _still(now, known[0]),
                "known_since": int((now & ~known[0]).sum()),
            }
        )
        before = now
    return points


def _still(now: np.ndarray, first: np.ndarray) -> dict[str, float] | None:
    if not first.any():
        return None
    both, all_of_first = statistics.bootstrap_means(np.array([now & first, first]))
    # Resamples without a known fact say nothing.
    drawn = 100 * both[all_of_first > 0] / all_of_first[all_of_first > 0]
    return statistics.estimate(100 * (now & first).sum() / first.sum(), drawn)


def write_curves(models: comparison.Models, out: str | Path) -> tuple[Path, list[dict[str, Any]]]:
    """Writes `checkpoints.html`, `.json` and `.png`; returns its path, and `measure`."""
    points, out = measure(models), Path(out)
    image = _plot(points)
    counts = ("known", "learned", "forgotten", "known_since")
    cells = [
        [x["name"], sections.estimate(x["accuracy"]), *(x[c] for c in counts)]
        + [sections.estimate(x["still_known"])]
        for x in points
    ]
    headers = ["Checkpoint", "Accuracy", "Known", "Learned", "Forgotten", "Known since"]
    table = Section(
        "Checkpoints", [*headers, "Still known, %"], cells, _NOTES, anchor="checkpoints"
    )
    last = points[-1]
    lead = (
        f"{last['known']:,} of {last['facts']:,} facts are known at {last['name']}, "
        f"{points[0]['known']:,} at {points[0]['name']}: {last['known_since']:,} were learned in "
        f"between, and {points[0]['known'] - last['known'] + last['known_since']:,} forgotten."
    )
    title = "Facts along checkpoints"
    figure = Section("Curves", png=image, anchor="curves")
    # The page comes first: by it a report that was interrupted is known as this package's.
    page = sections.write_page(out / "checkpoints.html", title, [table, figure], [lead])
    write_json(out / "checkpoints.json", points)
    write_file(out / "checkpoints.png", image)
    table.show()
    return page, points


@figures.png
def _plot(points: list[dict[str, Any]]):
    """The accuracy, and the numbers of facts kept, learned and forgotten since the first."""
    figure, (left, right) = figures.panels(2, size=(9.6, 3.6))
    at = range(len(points))
    figures.bands(left, at, {"accuracy": [x["accuracy"] for x in points]})
    left.set(ylabel="accuracy, %")
    first = points[0]["known"]
    kept = np.array([x["known"] - x["known_since"] for x in points])
    curves = {
        "kept": ("known at the first, and now", kept),
        "learned": ("learned since", [x["known_since"] for x in points]),
        "forgotten": ("forgotten since", first - kept),
    }
    for state, (label, values) in curves.items():
        right.plot(at, values, marker="o", label=label, color=labels.STATE_COLORS[state])
    right.set(ylabel="facts")
    for ax in (left, right):
        ax.set_xticks(at, [x["name"][-16:] for x in points], rotation=25)
        ax.set_ylim(bottom=0)
    figures.legend(figure, [right])
    return figure
