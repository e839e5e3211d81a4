"""Contiguous batches for models with a memory: each row continues the same row of the last batch.

The documents of a corpus, each followed by EOS, form one stream, which is cut into as many parts
as a batch has rows. Step s reads the s-th `length` tokens of every part. Each token is predicted
from the one before it; EOS precedes the first token of a document. The tokens of a step are a
function of the seed and the step, as in `data.tasks.epochs`.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator

import numpy as np

from ckl_jax.data.tasks.cached import CachedTask
from ckl_jax.data.tasks.converters import positions_within
from ckl_jax.data.tasks.epochs import random_keys
from ckl_jax.data.tasks.pipeline import Batch, iterate
from ckl_jax.errors import UserError

# Features of a batch; the weights are one more.
FEATURES = (
    "decoder_input_tokens",
    "decoder_target_tokens",
    "decoder_segment_ids",
    "decoder_positions",
)
WEIGHTS = "decoder_loss_weights"
_MAX_IDS = 2**31 - 2


@dataclasses.dataclass(frozen=True, eq=False)
class ContiguousPlan:
    """The order of tokens, as a pure function of the step."""

    sizes: np.ndarray  # int64 [documents], the tokens of each, EOS included
    batch_size: int  # B, the parts of the stream
    length: int  # T, tokens of each part in one step
    epochs: int = 1  # passes over the stream; each cuts it anew
    # of the order of documents, another one in every epoch; None keeps that of the corpus
    seed: int | None = None

    def __post_init__(self) -> None:
        if not len(self.sizes):
            raise UserError("The corpus to read has no documents; check its files.")
        if self.tokens < self.batch_size:
            raise UserError(
                f"The corpus has {self.tokens} tokens, too few for BATCH_SIZE={self.batch_size} "
                "rows of running text; give a smaller one."
            )

    @functools.cached_property
    def tokens(self) -> int:
        """N, of one pass."""
        return int(np.sum(self.sizes))

    @property
    def steps(self) -> int:
        """Steps per pass: the longest part decides; shorter ones end in padding."""
        longest = math.ceil(self.tokens / self.batch_size)
        return math.ceil(longest / self.length)

    @property
    def steps_per_epoch(self) -> list[int]:
        return [self.steps] * self.epochs

    @property
    def total_steps(self) -> int:
        return self.steps * self.epochs

    def epoch_of(self, step: int) -> int:
        """Returns the epoch to which `step` belongs."""
        if not 0 <= step < self.total_steps:
            raise IndexError(f"step {step} is not in [0, {self.total_steps})")
        return step // self.steps

    def is_last_of_epoch(self, step: int) -> bool:
        return (step + 1) % self.steps == 0

    def positions(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the positions of the targets of `step` in the stream of its epoch.

        Returns:
          int64 [B, T], and bool [B, T], False behind the end of a part (where the position is 0).
        """
        borders = np.arange(self.batch_size + 1) * self.tokens // self.batch_size
        start = borders[:-1] + (step % self.steps) * self.length
        positions = start[:, None] + np.arange(self.length)
        inside = positions < borders[1:, None]
        return np.where(inside, positions, 0), inside

    def documents(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns order and ends, int64 [documents] each, of the stream that `step` reads."""
        return _stream(self, self.epoch_of(step) if self.seed is not None else 0)


@functools.lru_cache(maxsize=3)
def _stream(plan: ContiguousPlan, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.arange(len(plan.sizes))
    if plan.seed is not None:
        order = np.argsort(random_keys(len(order), plan.seed, epoch), kind="stable")
    return order, np.cumsum(plan.sizes[order])


class ContiguousSource:
    """The batches of a run, by step; stateless, as `data.tasks.pipeline.BatchSource` is.

    A batch has `decoder_input_tokens`, `decoder_target_tokens`, `decoder_segment_ids` (documents,
    counted from 1 along the stream, 0 is padding), `decoder_positions` (within the part of the
    document that is in the row) int32 [B, T], and `decoder_loss_weights` float32 [B, T].

    Args:
      task: whose rows are documents, of which `targets` is read.
      eos_id: follows each document.
      rows: int [documents], rows of the task that the plan is of; None is all.
      score_eos: whether the loss counts the end of a document.
      batch_rows: int [b], which rows of a batch this host builds; None is all.
    """

    def __init__(
        self,
        plan: ContiguousPlan,
        task: CachedTask,
        eos_id: int,
        *,
        rows: np.ndarray | None = None,
        score_eos: bool = True,
        batch_rows: np.ndarray | None = None,
    ):
        self.plan, self.task, self.eos_id, self.score_eos = plan, task, eos_id, score_eos
        self.tasks = (task,)
        self.rows = np.arange(len(plan.sizes)) if rows is None else np.asarray(rows)
        self._mine = np.arange(plan.batch_size) if batch_rows is None else batch_rows

    def __len__(self) -> int:
        return self.plan.total_steps

    def shapes(self) -> Batch:
        """Arrays of the shapes and dtypes of this host's part of a batch; reads nothing."""
        ids = np.zeros((len(self._mine), self.plan.length), np.int32)
        return {name: ids for name in FEATURES} | {WEIGHTS: ids.astype(np.float32)}

    def iterate(self, start_step: int = 0) -> Iterator[Batch]:
        """The batches from `start_step` on, read ahead; see `pipeline.iterate`."""
        return iterate(self, start_step)

    def __getitem__(self, step: int) -> Batch:
        """Returns this host's rows of the batch of `step`."""
        positions, inside = (x[self._mine] for x in self.plan.positions(step))
        order, ends = self.plan.documents(step)
        number = np.searchsorted(ends, positions, side="right")  # along the stream
        targets = self._tokens(order, ends, number, positions)
        earlier = np.maximum(positions - 1, 0)
        inputs = self._tokens(order, ends, np.searchsorted(ends, earlier, side="right"), earlier)
        inputs = np.where(positions > 0, inputs, self.eos_id)  # before the stream
        passes = self.plan.epoch_of(step) * len(ends)
        ids = np.where(inside, 1 + (number + passes) % _MAX_IDS, 0).astype(np.int32)
        counted = inside if self.score_eos else inside & (positions < ends[number] - 1)
        tokens = (np.where(inside, x, 0).astype(np.int32) for x in (inputs, targets))
        batch = dict(zip(FEATURES, (*tokens, ids, positions_within(ids)), strict=True))
        return {**batch, WEIGHTS: counted.astype(np.float32)}

    def _tokens(self, order, ends, number, positions) -> np.ndarray:
        """The tokens at `positions` [B, T] of the stream; `number` is of their documents."""
        flat, offsets = dict(self.task.items())["targets"]
        document = self.rows[order[number]]
        from_end = ends[number] - positions  # 1 at EOS
        last = np.maximum(offsets[document + 1] - 1, 0)
        index = np.maximum(offsets[document + 1] + 1 - from_end, 0)
        return np.where(from_end == 1, self.eos_id, flat[np.minimum(index, last)].astype(np.int64))


def contiguous_source(
    task: CachedTask,
    eos_id: int,
    batch_size: int,
    length: int,
    *,
    epochs: int | None = 1,
    total_steps: int | None = None,
    seed: int | None = None,
    most: int | None = None,
    **options,
) -> ContiguousSource:
    """The parts of a task.

    Args:
      task: its rows are documents; see `data.tasks.dated_task`.
      eos_id, batch_size, length, seed: see `ContiguousSource` and `ContiguousPlan`.
      epochs: passes; None takes as many as `total_steps` need.
      total_steps: where `epochs` is None.
      most: documents at most, spread evenly over the task; None is all.
      **options: of `ContiguousSource`.

    Raises:
      UserError: rows of the task are not documents, or too few for the parts.
    """
    if "targets" not in task.features or "segments" in task.features:
        raise UserError(
            f"Task {task.directory} has the features {task.features}: running text is read from "
            "rows of 'targets', one document each, which 'ckl data dated' makes."
        )
    rows = np.arange(len(task))
    if most is not None and most < len(task):
        rows = np.unique(np.linspace(0, len(task) - 1, most).astype(np.int64))
    sizes = task.row_lengths(rows, ("targets",))["targets"] + 1
    plan = ContiguousPlan(sizes, batch_size, length, epochs or 1, seed)
    if epochs is None:
        plan = dataclasses.replace(plan, epochs=max(1, -(-total_steps // plan.steps)))
    return ContiguousSource(plan, task, eos_id, rows=rows, **options)
