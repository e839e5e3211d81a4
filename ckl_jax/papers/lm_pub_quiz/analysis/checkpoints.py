"""Facts learned, kept and forgotten along the checkpoints of a training, or along a family."""

from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.analysis import figures, labels, sections, statistics
from ckl_jax.analysis.sections import Section
from ckl_jax.errors import UserError
from ckl_jax.files import write_file, write_json, write_jsonl
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
      For each, {"name", "accuracy": {"value", "low", "high"} in percent of rows, "known", "learned"
      and "forgotten" since the one before, "still_known": {"value", "low", "high"} in percent of
      those known at the first (None if there was none), "known_since"}; the others are numbers of
      facts.
    """
    known = np.array([fractions > 0.5 for fractions in _fractions(models)])
    found, before = [], known[0]
    for (name, results), now in zip(models.items(), known, strict=True):
        overall = ranking_report.overall(results)
        found.append(
            {
                "name": name,
                "accuracy": {key: overall[key] for key in ("value", "low", "high")},
                "known": int(now.sum()),
                "learned": int((now & ~before).sum()),
                "forgotten": int((before & ~now).sum()),
                "still_known": _still(now, known[0]),
                "known_since": int((now & ~known[0]).sum()),
            }
        )
        before = now
    return found


def _fractions(models: comparison.Models) -> list[np.ndarray]:
    """[N] the fraction of the templates of each fact that a model answers right, by model."""
    return [np.concatenate([comparison.by_instance(x)[0] for x in r]) for r in models.values()]


def _still(now: np.ndarray, first: np.ndarray) -> dict[str, float] | None:
    if not first.any():
        return None
    both, all_of_first = statistics.bootstrap_means(np.array([now & first, first]))
    # Resamples without a known fact say nothing.
    drawn = 100 * both[all_of_first > 0] / all_of_first[all_of_first > 0]
    value = 100 * float((now & first).sum() / first.sum())
    return {"value": value, **dict(zip(("low", "high"), statistics.interval(drawn), strict=True))}


def write(models: comparison.Models, out: str | Path) -> tuple[Path, list[dict[str, Any]]]:
    """Writes `checkpoints.html`, `.json` and `.png`, and `facts.jsonl`: of each fact the fraction
    of templates that each checkpoint answers right.

    Returns:
      The path of the page, and `measure`.

    Raises:
      UserError: there are fewer than two checkpoints.
    """
    if len(models) < 2:
        raise UserError("There is one checkpoint, along which nothing changes; give two or more.")
    found, out = measure(models), Path(out)
    image = _plot(found)
    write_json(out / "checkpoints.json", found)
    write_file(out / "checkpoints.png", image)
    columns = np.array(_fractions(models)).T.tolist()
    facts = []
    for result in next(iter(models.values())):
        for row in comparison.facts(result):
            answer = result.answer_space[row["answer_idx"]]
            facts.append({"relation": result.code, "sub_label": row["sub_label"], "answer": answer})
    for fact, column in zip(facts, columns, strict=True):
        fact["right"] = dict(zip(models, column, strict=True))
    write_jsonl(out / "facts.jsonl", facts)
    counts = ("known", "learned", "forgotten", "known_since")
    cells = [
        [x["name"], sections.estimate(x["accuracy"]), *(x[c] for c in counts)]
        + [sections.estimate(x["still_known"])]
        for x in found
    ]
    headers = ["Checkpoint", "Accuracy", "Known", "Learned", "Forgotten", "Known since"]
    table = Section(
        "Checkpoints", [*headers, "Still known, %"], cells, _NOTES, anchor="checkpoints"
    )
    table.show()
    last = found[-1]
    lead = (
        f"{last['known']:,} of {len(facts):,} facts are known at {last['name']}, "
        f"{found[0]['known']:,} at {found[0]['name']}: {last['known_since']:,} were learned in "
        f"between, and {found[0]['known'] - last['known'] + last['known_since']:,} forgotten."
    )
    title = "Facts along checkpoints"
    figure = Section("Curves", png=image, anchor="curves")
    page = sections.write_page(out / "checkpoints.html", title, [table, figure], [lead])
    return page, found


@figures.png
def _plot(found: list[dict[str, Any]]):
    """The accuracy, and the numbers of facts kept, learned and forgotten since the first."""
    figure, (left, right) = figures.panels(2, size=(9.6, 3.6))
    at = range(len(found))
    figures.bands(left, at, {"accuracy": [x["accuracy"] for x in found]})
    left.set(ylabel="accuracy, %")
    first = found[0]["known"]
    kept = np.array([x["known"] - x["known_since"] for x in found])
    curves = {
        "kept": ("known at the first, and now", kept),
        "learned": ("learned since", [x["known_since"] for x in found]),
        "forgotten": ("forgotten since", first - kept),
    }
    for state, (label, values) in curves.items():
        right.plot(at, values, marker="o", label=label, color=labels.STATE_COLORS[state])
    right.set(ylabel="facts")
    for ax in (left, right):
        ax.set_xticks(at, [x["name"][-16:] for x in found], rotation=25)
        ax.set_ylim(bottom=0)
    figures.legend(figure, [right])
    return figure
