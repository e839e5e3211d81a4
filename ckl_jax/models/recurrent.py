"""The interface of a decoder-only model with a memory: losses and continuations given it."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from ckl_jax import checks
from ckl_jax.errors import UserError
from ckl_jax.models import transformer_xl
from ckl_jax.models.base import Batch, token_losses
from ckl_jax.models.decoder_only import DecoderOnlyModel, Step


@dataclasses.dataclass(frozen=True)
class RecurrentModel(DecoderOnlyModel):
    """A Transformer-XL; see `DecoderOnlyModel` for the other fields.

    A batch may hold `memory`, of `initial_memory`: the loss is then that of text which goes on
    where the memory ends, and the sums hold the memory of the next batch. Without it every row is
    a text of its own.

    Attributes:
      memory_length: M, the default number of slots of the memory: 1600, as in the evaluations of
        "Mind the Gap".
      train_memory_length: M in training; 384 there.
    """

    memory_length: int = 1600
    train_memory_length: int = 384

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.require_size(
            EVAL_MEMORY_LENGTH=self.memory_length, TRAIN_MEMORY_LENGTH=self.train_memory_length
        )
        if self.left_pad_legacy:
            raise UserError("LEFT_PAD_LEGACY is for GPT-2: a memory begins where a row ends.")

    @property
    def start_id(self) -> int:
        """EOS, which precedes the first token of a document in running text."""
        return self.vocabulary.eos_id

    def initial_memory(self, batch_size: int, length: int | None = None) -> Any:
        """Empty slots, see `transformer_xl.empty_memory`; every leaf has the batch first.

        Args:
          batch_size: B, rows.
          length: M, any number of slots; None is `memory_length`.
        """
        checks.require_int(0, **{"The length of a memory": length})
        slots = self.memory_length if length is None else length
        return transformer_xl.empty_memory(self.config, batch_size, slots)

    def stream_losses(
        self, params: Any, batch: Batch, memory: Any, dropout_rng: jax.Array | None = None
    ) -> tuple[jax.Array, Any]:
        """See `BaseTransformerModel.stream_losses`.

        `decoder_segment_ids` [B, T] may say of which document a token is (from 1, 0 is padding on
        the right); without them a row is of one document, and what follows the last token with a
        weight is padding.
        """
        logits, memory = self.remember(params, batch, memory, dropout_rng)
        return token_losses(logits, batch["decoder_target_tokens"])[0], memory

    def remember(
        self, params: Any, batch: Batch, memory: Any, dropout_rng: jax.Array | None = None
    ) -> tuple[jax.Array, Any]:
        """Logits [B, T, V] float32 given the memory, and the next memory."""
        ids = batch.get("decoder_segment_ids")
        if ids is None:
            # A reversed running maximum: 1 up to the last token that has a weight, 0 on the padding
            # behind it.
            weighted = batch["decoder_loss_weights"] > 0
            ids = jax.lax.cummax(weighted.astype(jnp.int32), axis=1, reverse=True)
        tokens = batch["decoder_input_tokens"]
        options = {"decoder_segment_ids": ids, "memory": memory}
        return self.apply(params, tokens, dropout_rng=dropout_rng, **options)

    def loss_fn(
        self, params: Any, batch: Batch, dropout_rng: jax.Array | None = None
    ) -> tuple[jax.Array, dict[str, Any]]:
        """See `BaseTransformerModel.loss_fn`; sums hold `memory` where the batch does."""
        # Rows that are texts of their own: no memory to read or to return.
        if "memory" not in batch:
            return super().loss_fn(params, batch, dropout_rng)
        logits, memory = self.remember(params, batch, batch["memory"], dropout_rng)
        value, sums = self.sums_of(logits, batch)
        # The runner carries `memory` to the next batch; it is a state, not a sum.
        return value, {**sums, "memory": memory}

    def _prefill(
        self, params: Any, prompts: jax.Array, lengths: jax.Array, max_decode_length: int
    ) -> tuple[Step, Any]:
        """See `DecoderOnlyModel`: a memory that holds prompt and answer in place of a cache."""

        def step(
            ids: jax.Array, memory: Any, real: jax.Array | None = None
        ) -> tuple[jax.Array, Any]:
            real = jnp.ones_like(ids) if real is None else real.astype(jnp.int32)
            return self.apply(params, ids, decoder_segment_ids=real, memory=memory)

        batch, width = prompts.shape
        # A slot for each token but the last that is decoded: nothing falls out of this memory.
        memory = self.initial_memory(batch, width + max_decode_length)
        if width:
            # [B, P]; `_advance` leaves the padding of short prompts out of the memory.
            real = jnp.arange(width)[None] < lengths[:, None]
            _, memory = step(prompts, memory, real)
        return step, memory

    def _row_axis(self, names: tuple[str, ...]) -> int:
        """Memory leaves are [B, L, M, D]: rows first, also with scanned layers."""
        return 0
