"""Forgetting relative to the gain: FUAR (CKL, section 3.3), and transfer.

FUAR, "forgotten / (updated + acquired) ratio", compares the last of several models LM_0 ... LM_n
with each earlier one:

    sum_i max(0, score_i(F_i) - score_n(F_i))
    -----------------------------------------------------------------------------
    sum_i max(0, score_n(U) - score_i(U)) + max(0, score_n(A) - score_i(A))

where i = 0 ... n-1 runs over the phases whose forgotten task F_i is defined. Each gap is bounded
by 0 on its own: what improved on F_i and what was lost on U or A is not credited. Where nothing
was gained there is no ratio; the result then says so and is never NaN or infinity.

Pure functions on scores; they take percent points or fractions alike.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

Cell = str | Sequence[tuple[str, float]] | None
"""A task: its name, several names with weights (their weighted mean), or None: not defined."""


@dataclasses.dataclass(frozen=True)
class Fuar:
    """A forgetting ratio."""

    value: float | None  # lost / gained, 0 is best; None where nothing was gained, which is worst
    lost: float = 0.0  # the numerator
    gained: float = 0.0  # the denominator

    @property
    def no_gain(self) -> bool:
        return self.value is None

    @property
    def order(self) -> float:
        """For sorting, best first: "no gain" comes last."""
        return float("inf") if self.value is None else self.value

    def __str__(self) -> str:
        return "no gain" if self.value is None else f"{self.value:.2f}"


NO_GAIN = Fuar(None)


def fuar(
    scores: Sequence[Mapping[str, float]], forgotten: Sequence[Cell], updated: Cell, acquired: Cell
) -> Fuar:
    """FUAR of the last of `scores`.

    The main experiment is `fuar([initial, updated], ["invariant_lama"], "updated_lama",
    "new_lama")`.

    Args:
      scores: {task: score} of LM_0 ... LM_n.
      forgotten: F_0 ... F_{n-1}; a None removes its phase from both sums.
      updated: U; None contributes nothing.
      acquired: A; None contributes nothing.

    Raises:
      ValueError: the numbers of scores and phases do not fit, or a task has no score.
    """
    lost, gained = fuar_parts(scores, forgotten, updated, acquired)
    return as_fuar(float(lost), float(gained))


def fuar_parts(scores, forgotten, updated, acquired):
    """Numerator and denominator of FUAR; scores may be arrays, such as bootstrap samples [B]."""
    if len(scores) != len(forgotten) + 1:
        raise ValueError(
            f"{len(forgotten)} phases need the scores of {len(forgotten) + 1} models, "
            f"not {len(scores)}"
        )
    last = scores[-1]
    lost, gained = 0.0, 0.0
    for before, task in zip(scores[:-1], forgotten, strict=True):
        # n.d. in CKL's tables: the phase is left out of the denominator as well, else Table 3's
        # second updates do not come out.
        if task is None:
            continue
        # np.maximum and not max: bootstrap samples are arrays.
        lost = lost + np.maximum(0.0, gap(task, before, last))
        for gain in (updated, acquired):
            if gain is not None:
                gained = gained + np.maximum(0.0, gap(gain, last, before))
    return lost, gained


def as_fuar(lost: float, gained: float) -> Fuar:
    """The tagged ratio of the two sums."""
    # Scores are rounded decimals or counts: a gain below 1e-9 is an artefact of subtraction.
    return Fuar(lost / gained, lost, gained) if gained > 1e-9 else Fuar(None, lost, 0.0)


def gap(task: Cell, a: Mapping[str, float], b: Mapping[str, float]):
    """score_a(task) - score_b(task); for several tasks, the weighted mean of their gaps."""
    parts = [(task, 1.0)] if isinstance(task, str) else list(task)
    missing = [name for name, _ in parts if name not in a or name not in b]
    if missing:
        raise ValueError(f"no score for the task {missing[0]!r}")
    total = sum(weight for _, weight in parts)
    return sum(weight * (a[name] - b[name]) for name, weight in parts) / total


def backward_transfer(scores: Sequence[Mapping[str, float]], tasks: Sequence[str]) -> float:
    """Mean over earlier phases of: score of the last model minus score right after the phase.

    Negative is forgetting (Lopez-Paz and Ranzato, 2017). `scores[i]` is the model after phase i,
    `tasks[i]` is of what that phase learned. Scores may be arrays, such as bootstrap samples [B].
    """
    if len(scores) != len(tasks) or len(tasks) < 2:
        raise ValueError("backward transfer needs one task for each of at least two models")
    return _mean([scores[-1][task] - scores[i][task] for i, task in enumerate(tasks[:-1])])


def forward_transfer(
    scores: Sequence[Mapping[str, float]], tasks: Sequence[str], baseline: Mapping[str, float]
) -> float:
    """Mean over later phases of: score just before the phase minus the baseline's score."""
    if len(scores) != len(tasks) or len(tasks) < 2:
        raise ValueError("forward transfer needs one task for each of at least two models")
    return _mean([scores[i - 1][tasks[i]] - baseline[tasks[i]] for i in range(1, len(tasks))])


def _mean(gains: Sequence) -> float | np.ndarray:
    """Over phases; of scores that are arrays, such as bootstrap samples [B], an array."""
    mean = np.mean(gains, axis=0)
    return mean if mean.ndim else float(mean)
