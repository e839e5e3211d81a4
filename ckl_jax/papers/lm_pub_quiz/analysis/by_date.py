"""Results on a dated dataset (`dated_dataset.py`): stale answers, and accuracy by date."""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ckl_jax.analysis import figures, statistics
from ckl_jax.data.facts.dated_facts import DatedFact, check_day
from ckl_jax.errors import UserError
from ckl_jax.papers.lm_pub_quiz.analysis import comparison
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults

STATES = {
    "current": "the current object",
    "stale": "an earlier one",
    "later": "a later one",
    "never": "one that the subject never had",
}
_MAX_DATES = 30


def measure(results: DatasetResults) -> dict[str, Any] | None:
    """States of the best options, and accuracy by date; None of results of undated datasets.

    Returns:
      {"as_of": day; "states": {one of STATES: {"value", "low", "high", "chance": percent}};
      "by_date", of instances whose object changed: a list of {"date", "value", "low", "high":
      accuracy in percent if the objects of that date are right, "instances": with a known one;
      one alone has no interval, None};
      "best": the date of the highest value, {"date", "value", "low", "high"}, or None}. Intervals
      are 95 % of a bootstrap over instances; "chance" is of an option drawn at random.
    """
    if not all("as_of" in result.relation_info for result in results):
        return None
    as_of = check_day(str(max(result.relation_info["as_of"] for result in results)), "as_of")
    rows = list(_instances(results))
    states, chance = (np.array(x) for x in zip(*(_states(*x, as_of) for x in rows), strict=True))
    drawn = 100 * statistics.bootstrap_means(states.T)
    estimates = {
        state: statistics.estimate(100 * states[:, i].mean(), drawn[i])
        | {"chance": 100 * float(chance[:, i].mean())}
        for i, state in enumerate(STATES)
    }
    return {"as_of": as_of, "states": estimates, **_by_date(rows)}


def _instances(results: DatasetResults) -> Iterator[tuple]:
    """The facts of each instance's subject, the options, the right and the best ones, as ids."""
    for result in results:
        ids, rows = result.metadata["answer_space_ids"], {}
        best = [ids[i] for i in result.reduced().scores.argmax(axis=1)]
        for number, row, one in zip(comparison.instances(result), result.table, best, strict=True):
            new = _facts(row), ids, ids[row["answer_idx"]], []
            rows.setdefault(number, new)[3].append(one)
        yield from rows.values()


def _facts(row: Mapping[str, Any]) -> list[DatedFact]:
    try:
        return [
            DatedFact(row["sub_label"], "", x.pop("obj_id"), seen=tuple(x.pop("seen", ())), **x)
            for x in map(dict, row["holders"])
        ]
    except (KeyError, TypeError, ValueError) as e:
        raise UserError(
            f"The `holders` of {row['sub_label']} are not those of `ckl data dated-quiz` ({e}); "
            "make the dataset anew."
        ) from e


def _states(facts, options, right, best, as_of: str) -> list[np.ndarray]:
    """The fraction of each state among the best options of an instance, and among all options."""
    begins: dict[str, list[str]] = {}
    for fact in facts:
        begins.setdefault(fact.object, []).extend(begin for begin, _ in fact.spans())
    own = {name: 1 if min(days, default="~") <= as_of else 2 for name, days in begins.items()}
    own[right] = 0
    both = ([own.get(name, 3) for name in names] for names in (best, options))
    return [np.bincount(states, minlength=len(STATES)) / len(states) for states in both]


def _by_date(instances: Sequence[tuple]) -> dict[str, Any]:
    rows = [x for x in instances if len({fact.object for fact in x[0]}) > 1]
    begins = {begin for facts, *_ in rows for f in facts for begin, _ in f.spans()}
    # A fact that was seen in a month, YYYY-MM, holds on its first day.
    days = sorted({f"{day}-01"[:10] for day in begins if "" < day < "9999"})
    if not days:
        return {"by_date": [], "best": None}
    days = [days[i] for i in np.unique(np.linspace(0, len(days) - 1, _MAX_DATES).astype(int))]
    known, right = np.zeros((2, len(days), len(rows)))
    for j, (facts, _, _, chosen) in enumerate(rows):
        for i, day in enumerate(days):
            objects = {fact.object for fact in facts if fact.holds(day)}
            known[i, j] = bool(objects)
            right[i, j] = np.mean([one in objects for one in chosen])
    above, below = np.split(statistics.bootstrap_means(np.concatenate([right, known])), 2)
    drawn = np.divide(100 * above, below, out=np.full_like(above, np.nan), where=below > 0)
    values = 100 * right.sum(axis=1) / known.sum(axis=1)
    curve = [
        {"date": day, "instances": int(n), **_estimate(value, samples, n)}
        for day, value, n, samples in zip(days, values, known.sum(axis=1), drawn, strict=True)
    ]
    tops = np.where(np.isnan(drawn), -1.0, drawn).argmax(axis=0)
    low, high = (days[int(i)] for i in statistics.interval(tops))
    top = int(values.argmax())
    best = {"date": days[top], "value": float(values[top]), "low": low, "high": high}
    return {"by_date": curve, "best": best}


def _estimate(value: float, samples: np.ndarray, instances: int) -> dict[str, float | None]:
    """A value with its interval over the resamples that have an instance; one has no interval."""
    if instances < 2:
        return {"value": float(value), "low": None, "high": None}
    return statistics.estimate(float(value), samples[~np.isnan(samples)])


def sentence(dated: Mapping[str, Any]) -> str:
    """What `measure` found."""
    states = ", ".join(
        f"{STATES[name]} in {x['value']:.2f} % ({x['chance']:.2f} %)"
        for name, x in dated["states"].items()
    )
    text = f"as of {dated['as_of']} the best option (by chance) is {states} of rows"
    if best := dated["best"]:
        text += (
            f"; of facts that changed, those of {best['date']} are named most often "
            f"({best['value']:.2f} %; 95 % interval of that date {best['low']} to {best['high']})"
        )
    return text


@figures.png
def plot(models: Mapping[str, Mapping[str, Any]]):
    """Accuracy by the date whose objects count as right; a line and its band for each model."""
    figure, (ax,) = figures.panels(1, size=(7.2, 3.6))
    first = next(iter(models.values()))  # models have the same rows, and so the same dates
    x = [datetime.date.fromisoformat(point["date"]) for point in first["by_date"]]
    figures.bands(ax, x, {name: of["by_date"] for name, of in models.items()})
    as_of = datetime.date.fromisoformat(first["as_of"])
    ax.axvline(as_of, color="black", linestyle="--", linewidth=1.0, label="as of")
    ax.set(ylabel="accuracy, %", xlabel="day whose facts count as right")
    figures.legend(figure, [ax], beside=True)
    return figure
