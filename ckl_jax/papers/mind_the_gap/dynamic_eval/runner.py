"""Runs a dated task through a model chunk by chunk and returns its losses."""

import collections
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ckl_jax import checks
from ckl_jax.data.tasks import chunks
from ckl_jax.data.tasks.dated_task import DatedTask
from ckl_jax.data.tasks.word_losses import WordLosses
from ckl_jax.errors import UserError
from ckl_jax.models.base import BaseTransformerModel
from ckl_jax.papers.mind_the_gap.dynamic_eval.step import (
    StreamConfig,
    StreamState,
    UpdateConfig,
    make_stream_step,
)
from ckl_jax.parallel.mesh import Partitioner

_BLOCKS_BEHIND = 2  # blocks that the host reads behind the device, so that neither waits


class DivergedError(UserError):
    """The loss of a chunk is not finite, or far above that of a uniform guess.

    Attributes:
      document: the number of its document.
    """

    def __init__(self, message: str, document: int):
        super().__init__(message)
        self.document = document


class StreamRunner:
    """A model with its compiled step, and the loop over blocks.

    Args:
      model: with its method in it.
      trainable, frozen: `jax.ShapeDtypeStruct`s with shardings; {} trains nothing.
      stream: how it is read; see `StreamConfig.for_model`.
      tx: the transformation of `trainable`; None updates nothing.
    """

    def __init__(
        self,
        model: BaseTransformerModel,
        trainable: Any,
        frozen: Any,
        stream: StreamConfig,
        updates: UpdateConfig,
        tx: optax.GradientTransformation | None,
        partitioner: Partitioner,
    ):
        self.stream, self._tx, self._partitioner = stream, tx, partitioner
        self.eos_id = checks.need_vocabulary(model.output_vocabulary, "dated text").eos_id
        self.lengths = chunks.buckets(stream.chunk_len, stream.lengths)
        self._every = updates.update_every if tx else 1
        self._rate = updates.learning_rate if tx else None
        self._guessing = float(np.log(model.config.vocab_size))
        self._initial_memory = lambda: model.initial_memory(stream.batch_size, stream.memory_length)
        step = make_stream_step(model, tx, stream, updates, self.lengths)
        shapes = self.state_shapes(trainable)
        out = jax.tree.map(lambda x: x.sharding, shapes)
        # Compiled ahead with shapes and shardings: the first block does not wait, and a mismatch
        # shows here.
        lowered = jax.jit(step, donate_argnums=0, out_shardings=(out, None)).lower(
            shapes, frozen, self._row_shapes(), jax.ShapeDtypeStruct((), jnp.int32)
        )
        self._compiled = lowered.compile()

    def state_shapes(self, trainable: Any) -> StreamState:
        """Shapes and shardings of the state."""
        put = self._partitioner
        abstract = jax.eval_shape(self._make, trainable)
        shardings = jax.tree.map(lambda x: x.sharding, trainable)
        tree = StreamState(
            shardings,
            put.state_shardings(abstract.opt_state, trainable, shardings) if trainable else (),
            jax.tree.map(lambda _: put.replicated, abstract.memory),
            shardings if abstract.gradients else (),
            put.replicated,
        )
        return jax.tree.map(
            lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), abstract, tree
        )

    def start(self, trainable: Any) -> StreamState:
        """The state before the first document; the arrays of `trainable` are copied."""
        shapes = self.state_shapes(trainable)
        make = jax.jit(self._make, out_shardings=jax.tree.map(lambda x: x.sharding, shapes))
        return make(trainable)

    def _make(self, trainable: Any) -> StreamState:
        # The caller keeps its arrays; the state's are donated.
        trainable = jax.tree.map(jnp.copy, trainable)
        return StreamState.create(trainable, self._tx, self._initial_memory(), self._every)

    def _row_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        rows = (self.stream.block_rows, self.stream.batch_size)
        shapes = {
            "tokens": ((*rows, self.stream.chunk_len + 1), np.int32),
            "lengths": (rows, np.int32),
            "begins": (rows, np.bool_),
            "bucket": (rows[:1], np.int32),
        }
        sharding = self._partitioner.replicated
        return {n: jax.ShapeDtypeStruct(*x, sharding=sharding) for n, x in shapes.items()}

    def segments(self, task: DatedTask, start: int, period: int) -> Iterator[chunks.Segment]:
        """The segments of a task from document `start` on; see `data.tasks.chunks`."""
        eos = self.eos_id if self.stream.score_eos else None
        return chunks.segments(chunks.stream_documents(task, start, eos), period)

    def run(
        self,
        state: StreamState,
        frozen: Any,
        segments: Iterator[chunks.Segment],
        take: Callable[[WordLosses, int], None],
    ) -> Iterator[tuple[chunks.Segment, StreamState]]:
        """Scores segments and trains on them.

        Args:
          state: donated.
          take: called with each document in its order, and how many tokens it has.

        Yields:
          Each segment when all of it was taken, and the state behind it.

        Raises:
          DivergedError: see there; the documents before that one were taken.
        """
        late: collections.deque = collections.deque()
        for segment, block, assembler, last in chunks.read_ahead(self._blocks(segments)):
            rows = jax.device_put(block.rows, self._partitioner.replicated)
            state, losses = self._compiled(state, frozen, rows, np.int32(block.count))
            # The copy overlaps with the next block.
            losses.copy_to_host_async()
            late.append((segment, block, assembler, losses))
            # The device is always some blocks ahead; at a segment's end all are taken.
            while len(late) > (0 if last else _BLOCKS_BEHIND):
                self._take(*late.popleft(), take)
            if last:
                yield segment, state

    def _blocks(self, segments: Iterator[chunks.Segment]) -> Iterator[tuple]:
        config = self.stream
        for segment in segments:
            assembler = chunks.Assembler(segment, config.chunk_len)
            made = chunks.blocks(
                segment, self.lengths, config.block_rows, self.eos_id, config.batch_size
            )
            # One block behind, to know which is the segment's last.
            block = next(made)
            for following in made:
                yield segment, block, assembler, False
                block = following
            yield segment, block, assembler, True

    def _take(self, segment, block, assembler, losses, take) -> None:
        losses = np.asarray(losses)
        for place in block.positions:
            chunk_losses = losses[place.row, place.slot, : place.stop - place.start]
            self._check(segment.documents[place.document], place, chunk_losses)
            for document in assembler.add(place, chunk_losses):
                take(document, int(document.tokens.sum()))

    def _check(self, document: chunks.StreamDocument, place: chunks.Place, losses) -> None:
        mean = float(losses.mean())
        if np.isfinite(mean) and mean < _HOPELESS * self._guessing:
            return
        where = (
            f"chunk {place.start // self.stream.chunk_len} of document {document.number} "
            f"({document.id!r}, {document.date})"
        )
        rate = "without any update" if self._rate is None else f"with learning rate {self._rate:g}"
        raise DivergedError(
            f"The loss is {mean:.4g} nats a token at {where} {rate}, where guessing costs "
            f"{self._guessing:.3g}",
            document.number,
        )


# Times the loss of guessing at which an update is said to have diverged: a model that is merely
# wrong stays far below.
_HOPELESS = 20.0
