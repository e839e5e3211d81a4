"""A study: the Initial model and the runs that updated it, evaluated on the same probes."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ckl_jax.analysis import labels
from ckl_jax.analysis.bases import Base, common_base, notes_on, stand_in_note
from ckl_jax.analysis.ledger import fact_states
from ckl_jax.analysis.rows import NotProbed, ProbedRun, Scored, initial_scores
from ckl_jax.data.facts.probe import Probe
from ckl_jax.errors import UserError


@dataclasses.dataclass(frozen=True)
class Entry:
    """One row of the tables."""

    key: str  # name of the method or run; unique
    run: (
        ProbedRun | None
    )  # where it comes from; None for an Initial model known by its scores alone
    scores: dict[str, Scored]  # {probe: its last evaluation}

    @property
    def label(self) -> str:
        return labels.method_label(self.key)

    def __repr__(self) -> str:
        return f"Entry({self.key!r})"

    @property
    def summary(self) -> dict:
        return dict(self.run.summary) if self.run else {}


@dataclasses.dataclass(frozen=True)
class Study:
    """The runs of one experiment."""

    initial: Entry | None  # the model before any update; None if unknown
    methods: tuple[Entry, ...]  # the updated models, in the order given
    notes: tuple[str, ...] = ()  # what had to be left out, in sentences

    @property
    def entries(self) -> tuple[Entry, ...]:
        return ((self.initial,) if self.initial else ()) + self.methods

    @functools.cached_property
    def records(self) -> dict[str, Probe]:
        """{name: probe} in table order; where runs differ, the first run's."""
        # Reversed, so that the first entry's record wins.
        probes = {p: s.probe for e in reversed(self.entries) for p, s in e.scores.items()}
        first = dict.fromkeys(p for e in self.entries for p in e.scores)
        return {p: probes[p] for p in sorted(first, key=lambda p: probes[p].order)}

    @property
    def probes(self) -> list[str]:
        return list(self.records)

    @property
    def compared(self) -> list[str]:
        """The probes of updated models that the Initial model answered too."""
        before = self.initial.scores if self.initial and self.methods else {}
        return [probe for probe in self.probes if probe in before]

    @property
    def baseline(self) -> Entry | None:
        """What the others are tested against: Vanilla, or the first updated model."""
        vanilla = (e for e in self.methods if e.key == "vanilla")
        return next(vanilla, next(iter(self.methods), None))

    def __repr__(self) -> str:
        return f"Study({', '.join(entry.label for entry in self.entries)})"

    def values(self, probe: str, metric: str) -> tuple[list[str], np.ndarray]:
        """Keys [M] of the models with rows of a probe, and their scores [M, N]."""
        mine = [e for e in self.entries if probe in e.scores]
        return [e.key for e in mine], np.stack([getattr(e.scores[probe], metric) for e in mine])

    def states(self, entry: Entry, probe: str) -> np.ndarray | None:
        """Fact states [N] of a model relative to Initial, if both have answers."""
        if self.initial is None or probe not in entry.scores or probe not in self.initial.scores:
            return None
        return fact_states(entry.scores[probe], self.initial.scores[probe])


def load_study(run_dirs: Sequence[str | Path]) -> Study:
    """Reads the last evaluation of every run.

    Folders without rows are left out with a note. The Initial model is the first run that did
    not start from a checkpoint; without one it is the nearest model that all runs come from.

    Raises:
      UserError: no folder has rows, the runs answered different items, or they come from
        different Initial models.
    """
    runs, notes, errors = [], [], []
    for folder in map(Path, run_dirs):
        try:
            runs.append(ProbedRun.open(folder))
        except NotProbed as e:
            errors.append(e)
            # A demo that is still running: the finished runs are reported.
            notes.append(f"{labels.run_label(folder.name)}: not probed yet, so it is left out.")
    if not runs:
        raise errors[0] if errors else UserError("No runs to report on; give their MODEL_DIRs.")
    unfinished = "not finished; its newest evaluation is shown."
    notes += [f"{labels.run_label(run.name)}: {unfinished}" for run in runs if not run.summary]
    first = next((r for r in runs if _is_initial(r)), None)
    updated = [r for r in runs if r is not first]
    # Raises for runs of different Initial models: their gaps would not be comparable.
    base = common_base(updated, first)
    if base is not None:
        notes += notes_on(updated, base)
    if first is not None:
        initial = Entry("initial", first, first.last)
    else:
        scores, note = _scores_before(base, runs)
        initial, notes = Entry("initial", None, scores) if scores else None, [*notes, *note]
    study = _answered(Study(initial, _entries(updated), tuple(notes)))
    _check_items(study)
    return study


def _scores_before(
    base: Base | None, runs: Sequence[ProbedRun]
) -> tuple[dict[str, Scored] | None, list[str]]:
    """Scores of the base model of all `runs`, and a note if some have another base."""
    if base is not None and base.source is not None and (scores := base.scores):
        return scores, []
    # Of the runs' own rows of step 0, those of the fewest parameters are nearest to the base; of a
    # run that is not finished their number is not known.
    by_size = sorted(runs, key=lambda run: run.summary.get("total_parameters", math.inf))
    for run in by_size:
        if scores := initial_scores(run):
            return scores, stand_in_note(run)
    return None, []


def tuned_study(run_dirs: Sequence[str | Path]) -> Study:
    """The study of models fine-tuned on one probe's task, where none starts from another.

    Raises:
      UserError: a folder has no rows, or the runs answered different items.
    """
    study = Study(None, _entries([ProbedRun.open(folder) for folder in run_dirs]))
    _check_items(study)
    return study


def _answered(study: Study) -> Study:
    """The study restricted to probes with decoded answers.

    Probes that only Initial lacks are left out of its scores alone.
    """
    missing = {
        p for e in study.methods or study.entries for p, s in e.scores.items() if not s.answered
    }
    if missing >= set(study.probes):
        raise UserError(
            "The runs have perplexities of facts but no answers to report on; probe with "
            "FACT_ANSWERS = 'last', or report by `ckl temporalwiki`."
        )

    def without(entry: Entry) -> Entry:
        scores = {p: s for p, s in entry.scores.items() if s.answered and p not in missing}
        return dataclasses.replace(entry, scores=scores)

    initial = without(study.initial) if study.initial else None
    notes = study.notes
    if missing:
        left_out = [p for p in study.probes if p in missing]
        notes += (f"Without answers, so left out: {', '.join(left_out)}.",)
    if study.initial and not initial.scores:
        initial = None
        notes += ("Initial has no answers; FACT_ANSWERS = 'always' makes it write them.",)
    return Study(initial, tuple(map(without, study.methods)), notes)


def _is_initial(run: ProbedRun) -> bool:
    """Whether a finished run began with random parameters, trained nothing, or is named Initial."""
    # An update is probed at step 0, before its first step; a pre-training run is not.
    fresh = 0 not in run.files and not run.base_checkpoint
    # An Initial model may have been trained from an imported one.
    is_named = labels.method_key(run.name) == "initial"
    return bool(run.summary) and (fresh or run.steps == (0,) or is_named)


def _entries(runs: Sequence[ProbedRun]) -> tuple[Entry, ...]:
    keys = [labels.method_key(r.name) for r in runs]
    unique = [
        # Two runs of one method are told apart by their folders.
        k if keys.count(k) == 1 else f"{k} [{r.path}]"
        for k, r in zip(keys, runs, strict=True)
    ]
    return tuple(Entry(k, r, r.last) for k, r in zip(unique, runs, strict=True))


def _check_items(study: Study) -> None:
    for probe in study.probes:
        mine = [e for e in study.entries if probe in e.scores]
        for entry in mine[1:]:
            if entry.scores[probe].items != mine[0].scores[probe].items:
                raise UserError(
                    f"{mine[0].label} and {entry.label} were put to different items of {probe} "
                    f"({len(mine[0].scores[probe].items)} and {len(entry.scores[probe].items)}); "
                    "report on runs that were probed with the same files."
                )


def seed_of(run: ProbedRun) -> str:
    """RANDOM_SEED of the run's config.gin, "" if it is not there."""
    return run.setting("RANDOM_SEED") or ""
