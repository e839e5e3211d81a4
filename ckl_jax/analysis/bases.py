"""Finds each run's base model, the reference for forgetting."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ckl_jax.analysis import labels
from ckl_jax.analysis.rows import ProbedRun, Scored, added_to_initial, base_of, initial_scores
from ckl_jax.errors import UserError
from ckl_jax.files import checkpoint_digest


@dataclasses.dataclass(frozen=True)
class Base:
    """A model that a run started from, directly or through earlier phases."""

    folder: Path  # its MODEL_DIR, where it was or is
    step: str  # name of its checkpoint, "" for the newest
    source: ProbedRun | None  # its run, if that was probed and is still there
    user: ProbedRun  # the run that started from it; the base itself, for a base that is given

    @property
    def path(self) -> Path:
        return self.folder / self.step

    @property
    def scores(self) -> dict[str, Scored] | None:
        """Its scores."""
        # The base's own rows if it was probed, else the user's rows of step 0.
        return self.user.last if self.user is self.source else initial_scores(self.user)

    @property
    def is_exact(self) -> bool:
        """Whether `scores` are of the base alone, without what a method added to it."""
        return self.user is self.source or added_to_initial(self.user) == 0

    @property
    def digests(self) -> set[str]:
        """What tells its checkpoints apart; of runs of earlier versions nothing may be known."""
        if self.user is not self.source and (recorded := self.user.summary.get("base_digest")):
            return {recorded}
        paths = [self.path] if self.step else self.folder.glob("checkpoint_*")
        return {digest for path in paths if (digest := checkpoint_digest(path))}

    def is_same(self, other: "Base") -> bool:
        """Whether both are the same model, possibly as two copies."""
        if self.folder.resolve() == other.folder.resolve():
            # "" is the newest checkpoint, which may be either.
            return self.step == other.step or "" in (self.step, other.step)
        # Copies of one model in two folders: equal answers are the evidence that is left.
        alike = _same_answers(self.scores or {}, other.scores or {})
        if self.source and other.source:
            return bool(alike)
        if self.folder.exists() and other.folder.exists():
            return False
        digests = [base.digests for base in (self, other)]
        if all(digests):
            return bool(alike or digests[0] & digests[1])
        if alike is None or (alike is False and not (self.is_exact and other.is_exact)):
            return self.folder.name == other.folder.name  # one was moved
        return alike


def _same_answers(a: dict[str, Scored], b: dict[str, Scored]) -> bool | None:
    """Whether the same items have the same first answers, or losses where none was decoded.

    None if the two share no items.
    """
    alike = [
        _alike(a[probe], b[probe]) if a[probe].items == b[probe].items else None
        for probe in a.keys() & b.keys()
    ]
    return None if not alike or None in alike else all(alike)


def _alike(a: Scored, b: Scored) -> bool | None:
    # Decoding is deterministic, so equal models answer alike on every item.
    if a.answered and b.answered:
        pairs = zip(a.rows, b.rows, strict=True)
        return all(x["predictions"][0] == y["predictions"][0] for x, y in pairs)
    if a.losses and b.losses:
        return np.allclose(a.losses.nll, b.losses.nll, rtol=1e-4)
    return None


def stand_in_note(run: ProbedRun) -> list[str]:
    """What to say where `initial_scores` of a run are not of its base alone."""
    if (added := added_to_initial(run)) == 0:
        return []
    what = "what" if added is None else f"{added:,} parameters that"
    return [
        f"Initial is {labels.run_label(run.name)} before its first step, with {what} the method "
        "added: the model that it started from was not found, or was not probed."
    ]


def notes_on(runs: Sequence[ProbedRun], base: Base) -> list[str]:
    """What to say of runs that have no more in common with `base` than the name of its folder."""
    return [
        f"{labels.run_label(run.name)} ({run.path}) says that it started from {other.path}, which "
        f"is taken for a copy of {base.path}; the answers of the two do not show it."
        for run in runs
        for other in bases_of(run)
        if other.folder.resolve() != base.folder.resolve() and other.is_same(base)
        if not (
            other.digests & base.digests or _same_answers(other.scores or {}, base.scores or {})
        )
    ]


def bases_of(run: ProbedRun) -> list[Base]:
    """The models that a run was updated from, nearest first; empty if unknown or none."""
    bases: list[Base] = []
    # Guards against summaries that name each other.
    seen = {run.path.resolve()}
    while run is not None and (recorded := run.base_checkpoint):
        source = base_of(run)
        path = Path(recorded)
        step = path.name if re.fullmatch(r"checkpoint_\d+", path.name) else ""
        # The recorded path may have moved; where `base_of` found the run, its present folder
        # counts.
        folder = source.path if source else path.parent if step else path
        if folder.resolve() in seen:
            break
        seen.add(folder.resolve())
        bases.append(Base(folder, step, source, run))
        run = source
    return bases


def common_base(runs: Sequence[ProbedRun], initial: ProbedRun | None) -> Base | None:
    """The nearest common base model of all `runs`; None if no run records its base.

    Args:
      runs: the updated models. Those that do not say what they started from are not looked at.
      initial: the Initial model, if it is among the runs.

    Raises:
      UserError: there is no such model, or it is not `initial`.
    """
    chains = [(run, chain) for run in runs if (chain := bases_of(run))]
    if not chains:
        return None
    first, candidates = chains[0]
    if initial is not None:
        first, candidates = initial, [Base(initial.path, "", initial, initial)]
        # A probed copy of a checkpoint (only step 0) stands for the model that it was copied from.
        candidates += bases_of(initial) if initial.steps == (0,) else []
    # Intersects the chains; the order stays that of the first, nearest base first.
    left = candidates
    for run, chain in chains:
        kept = [base for base in left if any(base.is_same(other) for other in chain)]
        if not kept:
            began, apart = chain[-1], "write a report for each Initial model"
            if first is initial and not began.folder.exists():
                raise UserError(
                    f"{run.path} started from {began.path}, which is not there, and nothing shows "
                    f"that {first.path} is the same; call it {began.folder.name} again, or {apart}."
                )
            known = "is another Initial model"
            if first is not initial:
                known = f"started from {candidates[-1].path}"
            raise UserError(
                f"{run.path} started from {began.path}, but {first.path} {known}; {apart}, or "
                "compare demo folders by --seeds."
            )
        left = kept
    return left[0]
