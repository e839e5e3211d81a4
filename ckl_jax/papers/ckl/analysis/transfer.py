"""Backward and forward transfer over two updates, which CKL's paper does not measure.

Of the models LM_0 (Initial), LM_1 (after the first update) and LM_2 (after the second), in points
of exact match:

    backward, D0       IL(LM_2) - IL(LM_0)           what D0 had taught
    backward, P1       P1(LM_2) - P1(LM_1)           what the first update had taught
    backward           the mean of both (Lopez-Paz and Ranzato, 2017); below 0 is forgetting
    forward, P2        P2(LM_1) - P2(LM_0)           before the second update taught it

The paper's own are computed from the scores of its Table 3.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.analysis.rows import ProbedRun
from ckl_jax.analysis.statistics import bootstrap_means, estimate
from ckl_jax.analysis.study import load_study
from ckl_jax.data.facts.probe import Probe
from ckl_jax.papers.ckl.analysis.experiment_tables import beside
from ckl_jax.probes.forgetting import backward_transfer, forward_transfer

Scores = Mapping[str, Any]  # {task: score}, or [B] samples of it


def transfers(before: Scores, first: Scores, second: Scores, tasks: Sequence[str]) -> dict:
    """{column: points} of one method.

    Args:
      before, first, second: scores of LM_0, LM_1 and LM_2; numbers or [B] samples.
      tasks: the probes of D0, of the first update and of the second.
    """
    kept, one, two = tasks
    return {
        "backward_d0": backward_transfer([before, second], [kept, two]),
        "backward_p1": backward_transfer([first, second], [one, two]),
        "backward": backward_transfer([before, first, second], [kept, one, two]),
        "forward_p2": forward_transfer([first, second], [one, two], before),
    }


def headers(tasks: Sequence[Probe]) -> dict[str, str]:
    """{column: its title}."""
    kept, one, two = (task.short for task in tasks)
    return {
        "backward_d0": f"backward, {kept}",
        "backward_p1": f"backward, {one}",
        "backward": "backward, mean",
        "forward_p2": f"forward, {two}",
    }


def compare_transfers(
    initial: Path | None,
    first: Sequence[Path],
    second: Sequence[Path],
    tasks: Sequence[str],
    published: Sequence[Mapping[str, Mapping[str, float]]],
) -> dict[str, Any]:
    """The transfer of each method, ours and the paper's.

    Args:
      initial: the Initial model's MODEL_DIR; None where only the first runs know its scores.
      first, second: MODEL_DIRs after either update, of the same methods in the same order.
      tasks: see `transfers`.
      published: the paper's rows of either.

    Returns:
      A part as `experiment_tables.compare` makes it; also {"headers", "notes"}.
    """
    study = load_study([*([initial] if initial else []), *first])
    rows = {}
    for entry, folder in zip(study.methods, second, strict=True):
        # LM_0, LM_1, LM_2.
        models = [study.initial.scores, entry.scores, ProbedRun.open(folder).last]
        ours = transfers(*({t: 100.0 * m[t].em.mean() for t in tasks} for m in models), tasks)
        drawn = transfers(*_draws(models, tasks), tasks)
        printed = _printed(published, entry.key, tasks)
        rows[entry.key] = {
            name: beside(estimate(value, drawn[name]), printed, name)
            for name, value in ours.items()
        }
    titles = headers([study.records[task] for task in tasks])
    return {
        "probes": list(titles),
        "fuar": None,
        "rows": rows,
        "headers": titles,
        "notes": [
            "Transfer in points of EM, of the models after both updates; below 0 is "
            "forgotten. The paper's are computed from its printed scores."
        ],
    }


def _draws(models: Sequence[Mapping[str, Any]], tasks: Sequence[str]) -> list[dict[str, Any]]:
    """Bootstrap means of each model, [B] per task in percent; models share the resamples."""
    draws: list[dict[str, Any]] = [{} for _ in models]
    for i, task in enumerate(tasks):
        # Paired over the three models: the same items in each resample.
        sampled = bootstrap_means(np.stack([m[task].em for m in models]), seed=i)
        for mine, values in zip(draws, sampled, strict=True):
            mine[task] = 100.0 * values
    return draws


def _printed(published, key: str, tasks: Sequence[str]) -> dict[str, float]:
    """The paper's transfers of a row; {} where it printed none."""
    rows = [published[0].get("initial"), *(table.get(key) for table in published)]
    if any(row is None for row in rows):
        return {}
    # The paper's scores have two decimals.
    return {name: round(float(v), 2) for name, v in transfers(*rows, tasks).items()}
