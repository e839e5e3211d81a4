"""Models that were light-tuned several times before they were asked: means over the seeds."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.analysis.rows import Run, Scored
from ckl_jax.analysis.study import Entry, Study
from ckl_jax.data.ckl_files import known_probe
from ckl_jax.data.probe import Probe
from ckl_jax.errors import UserError

# NewLAMA-Easy put as questions (appendix G), which a column of its own shows.
QUESTIONS = Probe(name="new_questions_easy", short="NQE", long="NewQuestions-Easy", order=9)


def averaged_study(folders: Mapping[str, Mapping[str, Sequence[Path]]]) -> Study:
    """The study of light-tuned models, the Initial one's among them.

    Args:
      folders: {row: {probe: the runs that were asked it, one of each seed}}; a run was asked one
        probe, whatever its own name is.

    Returns:
      Entries whose `score` of an item is its mean EM over the seeds.

    Raises:
      UserError: a run was not asked, was asked several probes, or others than its siblings.
    """
    entries = {
        row: Entry(
            row, None, {probe: _as(probe, average(runs)) for probe, runs in by_probe.items()}
        )
        for row, by_probe in folders.items()
    }
    return Study(entries.pop("initial", None), tuple(entries.values()))


def _as(name: str, scored: Scored) -> Scored:
    """Scores under the name of their column."""
    return dataclasses.replace(
        scored, probe=QUESTIONS if name == QUESTIONS.name else known_probe(name), columns={}
    )


def average(runs: Sequence[Path]) -> Scored:
    """The last answers of runs to one probe, `em`, `f1` and `score` averaged over them."""
    asked = [_only_probe(Run.open(folder)) for folder in runs]
    first = asked[0]
    for folder, other in zip(runs, asked, strict=True):
        if other.items != first.items:
            raise UserError(f"{runs[0]} and {folder} were asked different items; probe again.")
    em = np.mean([scored.em for scored in asked], axis=0)
    f1 = np.mean([scored.f1 for scored in asked], axis=0)
    return dataclasses.replace(first, em=em, f1=f1, score=em)


def by_seed(runs: Sequence[Path]) -> list[float]:
    """EM in percent of each run."""
    return [100.0 * float(_only_probe(Run.open(folder)).em.mean()) for folder in runs]


def _only_probe(run: Run) -> Scored:
    found: dict[str, Any] = run.last
    if len(found) != 1:
        raise UserError(f"{run.path} was asked {len(found)} probes; give runs of one.")
    return next(iter(found.values()))
