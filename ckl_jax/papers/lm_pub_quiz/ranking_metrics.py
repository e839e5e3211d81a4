"""Metrics of ranking: functions of the options' scores; none of them runs a model.

Definitions are LM-PUB-QUIZ's (Ploner et al. 2024, section 2), with its faults mended where
docs/fidelity.md says so. A relation has scores [R, K] float64, K options in each of R rows, and
answers [R] int, the right options.
"""

import collections
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ckl_jax.errors import UserError, refuse_unknown

Array = np.ndarray
Metric = str | Callable[[Array, Array], Any]  # a name, or a function such as those below


def correct(scores: Array, answers: Array) -> Array:
    """Whether the right option has the highest score; of equal ones the first counts. [R] bool."""
    # np.argmax returns the first of equal maxima.
    return np.argmax(scores, axis=1) == answers


def accuracy(scores: Array, answers: Array) -> float:
    return float(correct(scores, answers).mean())


def ranks(scores: Array, answers: Array) -> Array:
    """The right option's place, from 0; among equal scores the order of the options. [R] int."""
    # [R, 1], to compare with all options of the row.
    own = np.take_along_axis(scores, answers[:, None], axis=1)
    # Consistent with `correct`: rank 0 is exactly where argmax finds the right option, also with
    # ties.
    before = (scores == own) & (np.arange(scores.shape[1]) < answers[:, None])
    return ((scores > own) | before).sum(axis=1)


def precision_at_k(scores: Array, answers: Array) -> Array:
    """[K]: entry k-1 is the fraction of rows with the right option among the k best."""
    # The number of rows at each rank; their cumulative sum is the number within the k best.
    counts = np.bincount(ranks(scores, answers), minlength=scores.shape[1])
    return np.cumsum(counts) / len(answers)


def softmax(scores: Array) -> Array:
    """Probabilities over the options, [R, K]."""
    # Log likelihoods of statements are around -50, where exp would be near 0 for all options; the
    # difference to the best is the same softmax, stably.
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def _by_correctness(values: Array, right: Array) -> dict[str, Any]:
    groups = {"all": np.ones_like(right), "correct": right, "incorrect": ~right}
    return {
        # None of an empty group, as LM-PUB-QUIZ has it: the mean of nothing is not a number.
        name: values[group].mean(axis=0) if group.any() else None
        for name, group in groups.items()
    }


def avg_softmax(scores: Array, answers: Array) -> dict[str, Any]:
    """The mean probability of each option: the bias of section 3.2 where answers are balanced."""
    return _by_correctness(softmax(scores), correct(scores, answers))


def confidence_score(scores: Array, answers: Array) -> dict[str, Any]:
    """The mean probability of the best option."""
    return _by_correctness(softmax(scores).max(axis=1), correct(scores, answers))


def margin_of_confidence(scores: Array, answers: Array) -> dict[str, Any]:
    """The mean distance of the two largest probabilities."""
    p = np.sort(softmax(scores), axis=1)
    # A relation with a single option has a margin of 1.
    margin = p[:, -1] - (p[:, -2] if p.shape[1] > 1 else 0.0)
    return _by_correctness(margin, correct(scores, answers))


def uncertainty_score(scores: Array, answers: Array) -> dict[str, Any]:
    """Entropy of the probabilities over that of a uniform choice among the right answers."""
    p = softmax(scores)
    # 0 log 0 is 0: `where` leaves those entries at the zeros of `out`.
    entropy = -(p * np.log2(p, where=p > 0, out=np.zeros_like(p))).sum(axis=1)
    # Options that are no row's answer do not count: LM-PUB-QUIZ normalizes so, and values above 1
    # are possible.
    distinct = len(np.unique(answers))
    values = entropy / np.log2(distinct) if distinct > 1 else np.full_like(entropy, np.nan)
    return _by_correctness(values, correct(scores, answers))


def brier_score(scores: Array, answers: Array) -> float:
    """The mean squared distance of the probabilities to the right answer's, over rows, options."""
    # The mean also over options, as LM-PUB-QUIZ has it; the usual Brier score sums over them.
    return float(np.square(softmax(scores) - np.eye(scores.shape[1])[answers]).mean())


def calibration_error(scores: Array, answers: Array) -> float:
    """Expected calibration error of the best option's probability, see `calibration`."""
    return calibration(softmax(scores).max(axis=1), correct(scores, answers))[0]


def calibration(confidence: Array, right: Array, bins: int = 10) -> tuple[float, list[dict]]:
    """Expected calibration error (Guo et al. 2017, equation 3), with bins of equal width.

    Args:
      confidence: [R] probabilities.
      right: [R] bool.
      bins: from 0 to 1; each has its upper end.

    Returns:
      The error, and {"rows", "confidence", "accuracy"} of each bin that has rows.
    """
    at = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    bin_stats = [
        {
            "rows": int((at == i).sum()),
            "confidence": float(confidence[at == i].mean()),
            "accuracy": float(right[at == i].mean()),
        }
        for i in np.unique(at)
    ]
    gaps = [b["rows"] * abs(b["confidence"] - b["accuracy"]) for b in bin_stats]
    return float(sum(gaps) / len(at)), bin_stats


def agreement(best: Sequence[str], instances: Sequence[int]) -> Array:
    """Consistency over templates (Elazar et al. 2021): the fraction of an instance's pairs of rows
    with the same best option, [N] for the N instances with two rows or more.

    Args:
      best, instances: [R], the best option and the instance of each row.
    """
    rows = collections.Counter(instances)
    same: collections.Counter[int] = collections.Counter()
    for (instance, _), n in collections.Counter(zip(instances, best, strict=True)).items():
        same[instance] += n * (n - 1)
    return np.array([same[i] / (n * (n - 1)) for i, n in rows.items() if n > 1])


METRICS: dict[str, Callable[[Array, Array], Any]] = {
    f.__name__: f
    for f in (
        accuracy,
        precision_at_k,
        avg_softmax,
        confidence_score,
        margin_of_confidence,
        uncertainty_score,
        brier_score,
        calibration_error,
    )
}


def named(metrics: Metric | Sequence[Metric], kept: Collection[str] = ()) -> dict[str, Metric]:
    """{name: metric}; a function is called by its own name, and "support" is the number of rows.

    Args:
      kept: names of others, whose values results have.

    Raises:
      UserError: there is none of a name.
    """
    several = [metrics] if isinstance(metrics, str) or callable(metrics) else metrics
    for one in several:
        if one != "support" and one not in kept:
            metric(one)
    by_name = {m if isinstance(m, str) else getattr(m, "__name__", ""): m for m in several}
    if "" in by_name or len(by_name) < len(set(several)):
        raise UserError("Metrics go by name: give each function a name of its own, by `def`.")
    return by_name


def metric(name: Metric) -> Callable[[Array, Array], Any]:
    """Returns a metric by name; raises `UserError` if there is none of that name."""
    if callable(name):
        return name
    refuse_unknown(name, METRICS, f"There is no metric {name!r}; choose from")
    return METRICS[name]


def weighted_mean(values: Sequence[Any], weights: Sequence[float]) -> Any:
    """Mean over relations; lists of different lengths are means of the ks that all have.

    Raises:
      UserError: the metric has several values of a relation.
    """
    if any(isinstance(value, Mapping) for value in values):
        raise UserError(
            "This metric has several values of each relation (of all, right and wrong rows), of "
            "which no mean is defined; take it by accumulate=False, or `get_metric` of a relation."
        )
    arrays = [np.asarray(value, float) for value in values]
    if arrays[0].ndim:
        # precision@k of relations with 5 and with 75 options: a mean over all exists up to k = 5.
        shortest = min(len(a) for a in arrays)
        arrays = [a[:shortest] for a in arrays]
    mean = np.average(np.stack(arrays), axis=0, weights=weights)
    return mean if mean.ndim else float(mean)


def accumulate(
    values: Mapping[str, float | Array],
    support: Mapping[str, int],
    groups: Mapping[str, Sequence[str]] | None = None,
    divide_support: bool = True,
) -> dict[str, dict[str, Any]]:
    """Weighted means over relations, by group.

    Args:
      values: {relation: value of a metric}.
      support: {relation: number of rows}.
      groups: {relation: its groups}, such as its domains; None puts all into "overall".
      divide_support: divide a relation's support among its groups, so that the mean over groups is
        the overall value.

    Returns:
      {group: {"value": ..., "support": ...}}, by name.
    """
    members: dict[str, list[tuple[str, float]]] = {}
    for code in values:
        of = ["overall"] if groups is None else list(groups[code])
        for group in of:
            # Of three domains each gets a third of the rows, so supports add up to the number of
            # rows.
            weight = support[code] / len(of) if divide_support else float(support[code])
            members.setdefault(group, []).append((code, weight))
    return {
        group: {
            "value": weighted_mean([values[code] for code, _ in chosen], [w for _, w in chosen]),
            "support": sum(w for _, w in chosen),
        }
        for group, chosen in sorted(members.items())
    }
