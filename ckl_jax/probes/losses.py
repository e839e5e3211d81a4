"""Summed token losses of marked tokens by row, with one compiled step for all batches."""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ckl_jax.data.tasks.converters import decoder_only_batch, pad_rows
from ckl_jax.errors import UserError
from ckl_jax.models.base import token_losses
from ckl_jax.models.decoder_only import DecoderOnlyModel
from ckl_jax.probes.answering import fetch

Row = Sequence[int]


class GroupLosses:
    """Losses of a decoder-only model's tokens, by group of tokens.

    Args:
      model: the model with its method in it; with `left_pad_legacy` rows are padded on the left and
        their first token is predicted, unless they fill the width.
      groups: G, at most 31.
      width: tokens of a row; longer ones are cut at the end.
      batch_size: rows at once; the last batch is filled up.
      put_batch: places a dict of host arrays on the devices; default: as they are.

    Raises:
      UserError: the model is not a decoder-only model.
    """

    def __init__(
        self, model: DecoderOnlyModel, groups: int, width: int, batch_size: int, put_batch=None
    ):
        if not isinstance(model, DecoderOnlyModel):
            raise UserError(
                "The perplexity of whole texts is that of a decoder-only model, such as GPT-2, and "
                f"not of a {type(model.config).__name__}; leave FACT_PROBES and PROPER_NOUN_TASKS "
                "empty."
            )
        self.model, self.width, self.batch_size = model, width, batch_size
        self._put = put_batch or (lambda batch: batch)
        # Bit g of a token's mark says that it belongs to group g.
        self._bits = np.arange(groups, dtype=np.int32)
        self._sums = jax.jit(self._group_sums)

    def _group_sums(self, params: Any, batch: Any) -> tuple[jax.Array, jax.Array]:
        losses, _ = self.model.per_token(token_losses, params, batch)
        # [B, T, G] of 0 and 1.
        marked = (batch["groups"][..., None] >> self._bits[None, None]) & 1
        counted = marked.astype(jnp.float32) * batch["decoder_loss_weights"][..., None]
        # [B, G] sums and [B, G] counts: only these leave the device, not the logits.
        return jnp.einsum("bt,btg->bg", losses, counted), counted.sum(1)

    def __call__(
        self, params: Any, rows: Sequence[Row], groups: Sequence[Row]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields the summed loss (nats) and the counted tokens, each [G], of each row.

        Args:
          rows: token ids, each at least one.
          groups: of each token the groups that it counts in: bit g for group g.
        """
        for start in range(0, len(rows), self.batch_size):
            part = slice(start, start + self.batch_size)
            batch = self._put(self._batch(rows[part], groups[part]))
            sums, counts = fetch(self._sums(params, batch))
            yield from zip(sums[: len(rows[part])], counts[: len(rows[part])], strict=True)

    def _batch(self, rows: Sequence[Row], groups: Sequence[Row]) -> dict[str, np.ndarray]:
        missing = self.batch_size - len(rows)
        model, lengths = self.model, [min(len(row), self.width) for row in rows]
        options = {"left_pad_legacy": model.left_pad_legacy}

        # The batch is filled up with its last row, so that one shape is compiled; the caller drops
        # the rows.
        def filled(values: Sequence[Row]) -> np.ndarray:
            return pad_rows([*values, *[values[-1]] * missing], self.width, None)

        counts = np.array(lengths + lengths[-1:] * missing)
        pad_id = getattr(model.vocabulary, "pad_id", 0)
        batch = decoder_only_batch(filled(rows), counts, pad_id=pad_id, **options)
        # Marks move as their tokens do: with the padding, and to where they are predicted.
        marks = decoder_only_batch(filled(groups), counts, **options)
        return {**batch, "groups": marks["decoder_target_tokens"]}
