"""Finds each run's base model, the reference for forgetting."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ckl_jax.analysis.rows import Run, Scored, base_of, initial_scores
from ckl_jax.errors import UserError


@dataclasses.dataclass(frozen=True)
class Base:
    """A model that a run started from, directly or through earlier phases."""

    folder: Path  # its MODEL_DIR, where it was or is
    step: str  # name of its checkpoint, "" for the newest
    source: Run | None  # its run, if that was probed and is still there
    user: Run  # the run that started from it; the base itself, for a base that is given

    @property
    def path(self) -> Path:
        return self.folder / self.step

    @property
    def scores(self) -> dict[str, Scored] | None:
        """Its scores."""
        # The base's own rows if it was probed, else the user's rows of step 0.
        return self.user.last if self.user is self.source else initial_scores(self.user)

    def is_same(self, other: "Base") -> bool:
        """Whether both are the same model, possibly as two copies."""
        if self.folder.resolve() == other.folder.resolve():
            # "" is the newest checkpoint, which may be either.
            return self.step == other.step or "" in (self.step, other.step)
        # Copies of one model in two folders: equal answers are the evidence that is left.
        alike = bool(self.scores and other.scores) and _same_answers(self.scores, other.scores)
        if self.source and other.source:
            return alike
        gone = [base for base in (self, other) if not base.folder.exists()]
        return bool(gone) and (alike or self.folder.name == other.folder.name)  # one was moved


def _same_answers(a: dict[str, Scored], b: dict[str, Scored]) -> bool:
    shared = set(a) & set(b)
    return bool(shared) and all(_alike(a[p], b[p]) for p in shared)


def _alike(a: Scored, b: Scored) -> bool:
    """Whether the same items have the same first answers, or losses where none was decoded."""
    if a.items != b.items:
        return False
    # Decoding is deterministic, so equal models answer alike on every item.
    if a.answered and b.answered:
        pairs = zip(a.rows, b.rows, strict=True)
        return all(x["predictions"][0] == y["predictions"][0] for x, y in pairs)
    return bool(a.losses and b.losses) and np.allclose(a.losses.nll, b.losses.nll, rtol=1e-4)


def bases_of(run: Run) -> list[Base]:
    """The models that a run was updated from, nearest first; empty if unknown or none."""
    found: list[Base] = []
    # Guards against summaries that name each other.
    seen = {run.path.resolve()}
    while run is not None and (recorded := run.summary.get("base_checkpoint")):
        source = base_of(run)
        path = Path(recorded)
        step = path.name if re.fullmatch(r"checkpoint_\d+", path.name) else ""
        # The recorded path may have moved; where `base_of` found the run, its present folder
        # counts.
        folder = source.path if source else path.parent if step else path
        if folder.resolve() in seen:
            break
        seen.add(folder.resolve())
        found.append(Base(folder, step, source, run))
        run = source
    return found


def common_base(runs: Sequence[Run], initial: Run | None) -> Base | None:
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
            known = "is" if first is initial else "started from"
            raise UserError(
                f"{run.path} started from {chain[-1].path}, but {first.path} {known} "
                f"{'another Initial model' if first is initial else candidates[-1].path}; "
                "write a report for each Initial model, or compare demo folders by --seeds."
            )
        left = kept
    return left[0]
