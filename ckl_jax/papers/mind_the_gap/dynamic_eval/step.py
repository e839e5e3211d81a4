"""Settings and compiled step of dynamic evaluation: each chunk is scored before it is trained on.

One call runs over all rows of a block. Of each row, one forward and backward pass gives the losses
under the parameters before the update, the gradient that the update is made of, and the memory for
the next chunk. The gradient is taken with respect to the trainable tree only; without one the step
is a forward pass.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct

from ckl_jax import checks
from ckl_jax.errors import UserError
from ckl_jax.models.base import BaseTransformerModel
from ckl_jax.models.encoder_decoder import EncoderDecoderModel
from ckl_jax.models.products import with_gradients_in_row_order
from ckl_jax.optim.clipping import clip_by_global_norm
from ckl_jax.trees.partition import merge

REDUCTIONS = ("mean", "sum")


@dataclasses.dataclass(frozen=True)
class StreamConfig:
    """Settings for reading a stream.

    Attributes:
      chunk_len: T, tokens that are scored at once, and learned from at once.
      memory_length: positions of the model's memory; None is the model's own, of an
        encoder-decoder `chunk_len`: its encoder reads the previous chunk. 0 is for models without.
      reset_at_doc: whether the memory is emptied where a document begins.
      score_eos: also score the end of a document, as a word of its own.
      block_rows: chunks of one call of the compiled step.
      lengths: how many lengths of chunks are compiled: T, its half, its quarter, ..., so that a
        short document is not computed as a long one.
      batch_size: B, documents that are scored at once where nothing is learned and the memory is
        emptied between them: faster on an accelerator.
    """

    chunk_len: int = 512
    memory_length: int | None = None
    reset_at_doc: bool = True
    score_eos: bool = False
    block_rows: int = 64
    lengths: int = 3
    batch_size: int = 1

    def __post_init__(self) -> None:
        checks.require_size(
            CHUNK_LENGTH=self.chunk_len,
            BLOCK_ROWS=self.block_rows,
            CHUNK_LENGTHS=self.lengths,
            STREAM_BATCH_SIZE=self.batch_size,
        )
        checks.require_int(0, MEMORY_LENGTH=self.memory_length)
        checks.require_bool(RESET_AT_DOC=self.reset_at_doc, SCORE_EOS=self.score_eos)

    def for_model(self, model: BaseTransformerModel) -> "StreamConfig":
        """The same settings with the memory length of a model; 0 means none.

        Raises:
          UserError: the model has fewer positions than a chunk, or has no memory where the settings
            want one.
        """
        max_positions = getattr(model.config, "max_positions", None)
        if max_positions is not None and self.chunk_len > max_positions:
            raise UserError(
                f"CHUNK_LENGTH is {self.chunk_len}, but the model has {max_positions} positions; "
                f"give {max_positions} or fewer."
            )
        length = self.memory_length
        if not jax.tree.leaves(jax.eval_shape(lambda: model.initial_memory(1))):
            if length:
                raise UserError(
                    f"MEMORY_LENGTH is {length}, but a {type(model.config).__name__} has no "
                    "memory; leave it at None."
                )
            length = 0
        elif length is None:
            own = getattr(model, "memory_length", None)
            length = self.chunk_len if isinstance(model, EncoderDecoderModel) else own
        batch_size = self.batch_size if self.reset_at_doc else 1
        return dataclasses.replace(self, batch_size=batch_size, memory_length=length)


@dataclasses.dataclass(frozen=True)
class UpdateConfig:
    """Settings for training on the last scored chunk.

    Attributes:
      optimizer: `learning rate -> optax transformation`, such as `optax.sgd`, `optax.adam` or
        `krause.rms_decay`.
      learning_rate: a number; it does not change along the stream.
      reduction: of a chunk's loss: "mean" over its tokens, or their "sum".
      num_updates: K, steps on a chunk.
      update_every: chunks for one step.
      min_tokens: shorter chunks are scored and not learned.
      clip_norm: bound of the global gradient norm, or None.
    """

    optimizer: Callable[..., optax.GradientTransformation] = optax.sgd
    learning_rate: float = 1e-3
    reduction: str = "mean"
    num_updates: int = 1
    update_every: int = 1
    min_tokens: int = 1
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        if not callable(self.optimizer):
            raise UserError(
                f"OPTIMIZER is {self.optimizer!r}; give a function, such as @optax.sgd (without "
                "parentheses)."
            )
        at_least_0 = {"LEARNING_RATE": self.learning_rate}
        checks.require_number("a finite number, 0 or more", 0.0, **at_least_0)
        if self.learning_rate is None:
            raise UserError("LEARNING_RATE is None; give a number.")
        checks.require_choice(REDUCTIONS, LOSS_REDUCTION=self.reduction)
        checks.require_size(
            NUM_UPDATES=self.num_updates, UPDATE_EVERY=self.update_every, MIN_TOKENS=self.min_tokens
        )
        checks.require_positive(CLIP_NORM=self.clip_norm)
        if self.num_updates > 1 and self.update_every > 1:
            raise UserError(
                f"NUM_UPDATES is {self.num_updates} and UPDATE_EVERY {self.update_every}: several "
                "steps on one chunk and one step for several exclude each other; give 1 for one."
            )

    def transformation(self) -> optax.GradientTransformation:
        tx = self.optimizer(self.learning_rate)
        return optax.chain(clip_by_global_norm(self.clip_norm), tx) if self.clip_norm else tx


@struct.dataclass
class StreamState:
    """The state carried from chunk to chunk; donated to every step."""

    params: Any  # the trainable leaves, float32; {} trains nothing
    opt_state: Any  # optax state of those leaves
    memory: Any
    gradients: Any  # sum of those that wait for an update, where that takes several chunks; else ()
    waiting: jax.Array  # () int32, how many they are

    @classmethod
    def create(
        cls, params: Any, tx: optax.GradientTransformation | None, memory: Any, update_every: int
    ) -> "StreamState":
        opt_state = tx.init(params) if tx else ()
        gradients = jax.tree.map(jnp.zeros_like, params) if update_every > 1 else ()
        return cls(params, opt_state, memory, gradients, jnp.zeros((), jnp.int32))


def make_stream_step(
    model: BaseTransformerModel,
    tx: optax.GradientTransformation | None,
    stream: StreamConfig,
    updates: UpdateConfig,
    lengths: Sequence[int],
) -> Callable:
    """Builds `step(state, frozen, rows, count) -> (state, losses)`, ready for `jax.jit`.

    Args:
      model: has `stream_losses`.
      tx: the optimizer of the trainable leaves; None updates nothing.
      stream: how it is read; `batch_size` is B.
      updates: how a chunk is learned. With several steps on a chunk the gradient is computed anew
        for each; where one step takes several chunks it is of their mean (their sum with "sum").
      lengths: that a row may have, ascending; the last is T. The graph has the model once for each.

    Returns:
      The step. `rows` are those of `data.tasks.chunks.Block`; the first `count` of them, () int32,
      are run. Losses are [N, B, T] float32, in nats.
    """
    axes, update_every = _batch_axes(model, stream.memory_length), updates.update_every

    def initial() -> Any:
        return model.initial_memory(stream.batch_size, stream.memory_length)

    def losses_of(params, row, memory, length):
        # [B, length + 1]: inputs and targets overlap but for one.
        tokens = row["tokens"][:, : length + 1]
        # [B, length], False on padding.
        real = jnp.arange(length)[None] < row["lengths"][:, None]
        batch = {
            "decoder_input_tokens": tokens[:, :-1],
            "decoder_target_tokens": tokens[:, 1:],
            "decoder_loss_weights": real.astype(jnp.float32),
        }
        if jax.tree.leaves(memory):  # which padding must not enter
            batch["decoder_segment_ids"] = real.astype(jnp.int32)
        losses, memory = model.stream_losses(params, batch, memory)
        losses = jnp.where(real, losses, 0.0)
        # To T, so that all branches of the switch have one shape.
        return jnp.pad(losses, ((0, 0), (0, lengths[-1] - length))), memory

    def objective(trainable, frozen, row, memory, length):
        losses, memory = losses_of(merge(trainable, frozen), row, memory, length)
        value = jnp.sum(losses)
        if updates.reduction == "mean":
            # "mean": a step does not grow with the length of a chunk.
            value = value / jnp.float32(jnp.maximum(jnp.sum(row["lengths"]), 1))
        return value, (losses, memory)

    def by_length(function: Callable) -> Callable:
        """Calls `function(length, *operands)` with the length of the row."""

        def call(row, *operands):
            # `length=length` binds the loop variable, which the lambda would read too late.
            branches = [
                lambda row, *operands, length=length: function(length, row, *operands)
                for length in lengths
            ]
            if len(branches) == 1:
                return branches[0](row, *operands)
            return jax.lax.switch(row["bucket"], branches, row, *operands)

        return call

    @by_length
    def score(length, row, frozen, memory):
        return losses_of(frozen, row, memory, length)

    @by_length
    def differentiate(length, row, trainable, frozen, memory):
        # One pass gives losses before the update, gradient and next memory.
        one_pass = with_gradients_in_row_order(jax.value_and_grad(objective, has_aux=True))
        (_, (losses, memory)), grads = one_pass(trainable, frozen, row, memory, length)
        return losses, memory, grads

    def update(params, opt_state, grads):
        changes, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, changes), opt_state

    def learn(state, grads, row, frozen):
        """The state after a step by a chunk's gradient `grads`; its memory is still the old one."""
        if update_every > 1:
            return _wait(state, grads, update, update_every, updates.reduction)
        params, opt_state = update(state.params, state.opt_state, grads)

        def again(_, now):
            # The same chunk under the moved parameters; the memory is still that before the chunk.
            grads = differentiate(row, now[0], frozen, state.memory)[2]
            return update(*now, grads)

        if updates.num_updates > 1:
            params, opt_state = jax.lax.fori_loop(
                1, updates.num_updates, again, (params, opt_state)
            )
        return state.replace(params=params, opt_state=opt_state)

    def step(state: StreamState, frozen: Any, rows: Any, count: jax.Array):
        def run(i, carried):
            state, out = carried
            # Rows are indexed inside of the loop: one compiled body for any count.
            row = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, i, keepdims=False), rows)
            if stream.reset_at_doc:
                memory = _reset(row["begins"], initial(), state.memory, axes)
                state = state.replace(memory=memory)
            if tx is None:
                losses, memory = score(row, frozen, state.memory)
            else:
                losses, memory, grads = differentiate(row, state.params, frozen, state.memory)
                if updates.min_tokens > 1:
                    state = jax.lax.cond(
                        jnp.sum(row["lengths"]) >= updates.min_tokens,
                        lambda s, g: learn(s, g, row, frozen),
                        lambda s, g: s,
                        state,
                        grads,
                    )
                else:
                    state = learn(state, grads, row, frozen)
            # The memory is that of the parameters before the update, without gradient.
            return state.replace(memory=memory), out.at[i].set(losses)

        size, batch_size, width = rows["tokens"].shape
        out = jnp.zeros((size, batch_size, width - 1), jnp.float32)
        # A traced bound: the last block of a segment is shorter.
        return jax.lax.fori_loop(0, count, run, (state, out))

    return step


def _wait(state, grads, update, update_every: int, reduction: str) -> StreamState:
    """Accumulates a gradient; the last of a group triggers the optimizer step."""
    total = jax.tree.map(jnp.add, state.gradients, grads)
    waiting = state.waiting + 1

    def now(params, opt_state, total):
        count = update_every if reduction == "mean" else 1
        params, opt_state = update(params, opt_state, jax.tree.map(lambda g: g / count, total))
        return params, opt_state, jax.tree.map(jnp.zeros_like, total), jnp.zeros_like(waiting)

    def later(params, opt_state, total):
        return params, opt_state, total, waiting

    due = waiting == update_every
    params, opt_state, total, waiting = jax.lax.cond(
        due, now, later, state.params, state.opt_state, total
    )
    return state.replace(params=params, opt_state=opt_state, gradients=total, waiting=waiting)


def _batch_axes(model: BaseTransformerModel, length: int | None) -> Any:
    """The batch axis of each array of a memory, found by which axis grows with the batch."""
    one, two = (jax.eval_shape(lambda n=n: model.initial_memory(n, length)) for n in (1, 2))

    def axis(a, b):
        return next(i for i, (x, y) in enumerate(zip(a.shape, b.shape, strict=True)) if x != y)

    return jax.tree.map(axis, one, two)


def _reset(begins: jax.Array, initial: Any, memory: Any, axes: Any) -> Any:
    """Resets the memory in the rows [B] where a document begins."""

    def one(new, old, axis):
        # [B] -> broadcastable along the row axis of each leaf.
        shape = [1] * old.ndim
        shape[axis] = len(begins)
        return jnp.where(begins.reshape(shape), new, old)

    return jax.tree.map(one, initial, memory, axes)
