"""Forgetting in dynamic evaluation: losses of past text by snapshot -> relative increase."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from ckl_jax.errors import UserError

START = "start"  # the snapshot before any update
ALL = "all"  # the period that pools all


def summarize(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """F(y, m) = 100 (PPL_m / PPL_0 - 1) of each past period y at each snapshot m, in percent.

    Positive is forgetting. Perplexities are by words, over all words of a period.

    Args:
      rows: {task, period, snapshot, words, nll}: `nll` the summed loss of the words; the snapshot
        before any update is "start".

    Returns:
      {task: {period: {snapshot: F}}} in the order of the rows; the period "all" pools a task's.

    Raises:
      UserError: a task has no rows of "start".
    """
    sums: dict[tuple, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in rows:
        # Perplexity pools losses and words; a mean of the periods' perplexities would be another
        # number.
        for period in (row["period"], ALL):
            entry = sums[row["task"], period, row["snapshot"]]
            entry[0] += row["nll"]
            entry[1] += row["words"]
    by_task: dict[str, dict[str, dict[str, float]]] = {}
    for (task, period, snapshot), (nll, words) in sums.items():
        if (task, period, START) not in sums:
            raise UserError(
                f"The past task {task!r} was not measured before the first update; remove the "
                "folder 'forgetting' and the run's checkpoints, and run it again."
            )
        nll_0, words_0 = sums[task, period, START]
        # Of one text the counts are the same; a difference of means is safe from overflow.
        change = min(nll / words - nll_0 / words_0, 700.0)
        by_period = by_task.setdefault(task, {}).setdefault(period, {})
        by_period[snapshot] = 100.0 * math.expm1(change)
    return by_task
