"""The order of examples: a pure function of (seed, step).

An epoch is one shuffled pass over the new corpus (D1) plus, for methods that replay, a sample of
the old corpus (D0) drawn without replacement. Nothing here is an iterator with hidden state, so a
run resumed at step n sees the batches of an uninterrupted one, on any number of hosts.

The order is the sort order of raw 64-bit Philox output, which (unlike the shuffles of
`numpy.random.Generator`) is fixed across versions of numpy.
"""

import dataclasses
import functools
import math

import numpy as np

from ckl_jax import checks
from ckl_jax.errors import UserError

MAIN, REPLAY, REVIEW = 0, 1, 2  # the values of `source`
_ORDER, _SAMPLE = 0, 1  # what a stream of random numbers is for


@dataclasses.dataclass(frozen=True)
class Mixture:
    """The fraction of the old corpus that is replayed beside the new one (Mix-Review; CKL, section
    4).

    Epoch e (from 0) replays ⌊ratio · decay^e · |D1|⌋ rows. The paper's text swaps the names of the
    two numbers; here they have the names of the released code.

    Attributes:
      ratio: replayed rows per row of D1 in the first epoch.
      decay: factor from one epoch to the next.
      frozen_sample: legacy of the released trainer, which goes on using the rows of epoch 0 (and so
        also their number) in every epoch.
      review_phases: the corpora of earlier updates also come whole in every epoch, if they are
        named.
    """

    ratio: float = 4.0
    decay: float = 0.7
    frozen_sample: bool = False
    review_phases: bool = False

    def __post_init__(self):
        checks.require_number("a finite number, 0 or more", 0.0, **{"mix_review.ratio": self.ratio})
        one = math.nextafter(1.0, 2.0)
        checks.require_number("a number from 0 to 1", 0.0, one, **{"mix_review.decay": self.decay})
        checks.require_bool(**{"mix_review.legacy_frozen_sample": self.frozen_sample})
        checks.require_bool(**{"mix_review.review_phases": self.review_phases})

    def sample_epoch(self, epoch: int) -> int:
        """Returns the epoch whose sample of old rows `epoch` reuses."""
        return 0 if self.frozen_sample else epoch

    def sample_rows(self, main_rows: int, epoch: int) -> int:
        """Returns how many old rows `epoch` requests beside `main_rows` new ones."""
        wanted = main_rows * self.ratio * self.decay ** self.sample_epoch(epoch)
        return math.floor(wanted + 1e-6)  # 1000 · 4 · 0.7² is 1960, not 1959.99...


@dataclasses.dataclass(frozen=True)
class EpochPlan:
    """The order of all examples of a run.

    Attributes:
      main: rows of the new corpus; each comes once per epoch.
      replay: rows of the old corpus, from which `mixture` samples; 0 if there is none.
      mixture: None trains on the new corpus alone.
      batch_size: rows of a global batch. The last batch of an epoch is filled up with rows that
        are marked not valid, so that no batch spans two epochs and all have one shape.
      epochs: passes over the new corpus.
      review: rows that all come once per epoch in addition (earlier phases, when a later phase
        replays the whole of them).
    """

    main: int
    replay: int = 0
    mixture: Mixture | None = None
    batch_size: int = 32
    epochs: int = 1
    seed: int = 0
    review: int = 0

    def __post_init__(self):
        if self.main < 1:
            raise UserError("The corpus to train on has no rows; check its files.")
        if self.batch_size < 1 or self.epochs < 0:
            raise UserError(
                f"batch_size={self.batch_size}, epochs={self.epochs}: "
                "a plan needs at least one row per batch and no fewer than 0 epochs."
            )
        if self.mixture is not None and self.mixture.ratio > 0 and self.replay < 1:
            raise UserError("This method replays the old corpus, but no rows of it were given.")

    def refuse_padding(self, name: str) -> None:
        """Raises `UserError` if an epoch of the task `name` has fewer rows than a batch."""
        if self.batch_size > self.epoch_rows(0):
            raise UserError(
                f"BATCH_SIZE {self.batch_size} exceeds the {self.epoch_rows(0)} rows of an epoch "
                f"of {name!r}: the batch would be padding; give a smaller one."
            )

    def shortage(self) -> str | None:
        """A warning if an epoch needs more old rows than exist, else None."""
        wanted = max((self._wanted(e) for e in range(self.epochs)), default=0)
        if wanted <= self.replay:
            return None
        return (
            f"The review asks for {wanted} rows of the old corpus in one epoch, which has "
            f"{self.replay}: it uses all of them."
        )

    def _wanted(self, epoch: int) -> int:
        return 0 if self.mixture is None else self.mixture.sample_rows(self.main, epoch)

    def replay_rows(self, epoch: int) -> int:
        """Returns the number of old rows in `epoch`."""
        return min(self._wanted(epoch), self.replay)

    def epoch_rows(self, epoch: int) -> int:
        """Returns the number of examples in `epoch`."""
        return self.main + self.review + self.replay_rows(epoch)

    @functools.cached_property
    def steps_per_epoch(self) -> list[int]:
        """The number of batches of each epoch."""
        return [-(-self.epoch_rows(e) // self.batch_size) for e in range(self.epochs)]

    @functools.cached_property
    def _first_steps(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.steps_per_epoch, dtype=np.int64)])

    @property
    def total_steps(self) -> int:
        return int(self._first_steps[-1])

    def epoch_of(self, step: int) -> int:
        """Returns the epoch to which `step` belongs."""
        if not 0 <= step < self.total_steps:
            raise IndexError(f"step {step} is not in [0, {self.total_steps})")
        return int(np.searchsorted(self._first_steps, step, side="right")) - 1

    def is_last_of_epoch(self, step: int) -> bool:
        return step + 1 == self._first_steps[self.epoch_of(step) + 1]

    def rows(self, step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the examples of the global batch of `step`.

        Returns:
          source: int8 [B], 0 the new corpus, 1 the old one, 2 earlier phases.
          index: int64 [B], the row within its corpus.
          valid: bool [B], False for the rows that only fill up the batch (source 0, index 0).
        """
        epoch = self.epoch_of(step)
        sources, indices = _epoch_order(self, epoch)
        start = (step - int(self._first_steps[epoch])) * self.batch_size
        stop = min(start + self.batch_size, len(indices))
        source = np.zeros(self.batch_size, np.int8)
        index = np.zeros(self.batch_size, np.int64)
        source[: stop - start] = sources[start:stop]
        index[: stop - start] = indices[start:stop]
        return source, index, np.arange(self.batch_size) < stop - start


@functools.lru_cache(maxsize=4)
def _epoch_order(plan: EpochPlan, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns source int8 [n] and index int64 [n] of the n examples of `epoch`, in order."""
    sample = np.zeros(0, np.int64)
    if plan.replay_rows(epoch):
        sampled_in = plan.mixture.sample_epoch(epoch)
        keys = random_keys(plan.replay, plan.seed, sampled_in, _SAMPLE)
        # The positions of the smallest keys, in ascending order.
        count = plan.replay_rows(epoch)
        sample = np.arange(len(keys))
        if count < len(keys):
            sample = np.sort(np.argpartition(keys, count - 1)[:count])
    index = np.concatenate([np.arange(plan.main), sample, np.arange(plan.review)])
    source = np.repeat(
        np.array([MAIN, REPLAY, REVIEW], np.int8), [plan.main, len(sample), plan.review]
    )
    order = np.argsort(random_keys(len(index), plan.seed, epoch, _ORDER), kind="stable")
    return source[order], index[order]


def random_keys(count: int, seed: int, epoch: int, purpose: int = _ORDER) -> np.ndarray:
    """Returns uint64 [count] of random bits; their sort order is that of an epoch."""
    key = np.random.SeedSequence([seed % 2**64, epoch, purpose]).generate_state(2, np.uint64)
    return np.random.Philox(key=key).random_raw(count)
