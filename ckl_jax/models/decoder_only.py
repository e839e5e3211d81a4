"""The interface of a decoder-only model beyond its loss: continuing prompts.

The counterpart of T5X's `models.DecoderOnlyModel`.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from ckl_jax import checks
from ckl_jax.models import decoding
from ckl_jax.models.base import Batch, OneVocabularyModel
from ckl_jax.models.layers import PerToken


@dataclasses.dataclass(frozen=True)
class DecoderOnlyModel(OneVocabularyModel):
    """A decoder-only model; see `BaseTransformerModel` for the other fields.

    A batch has `decoder_input_tokens`, `decoder_target_tokens` [B, T] int32 (the token after each
    input) and `decoder_loss_weights` [B, T]; packed rows also `decoder_segment_ids` and
    `decoder_positions` [B, T].

    Attributes:
      vocabulary: an object with `encode`, `decode`, `eos_id`, `pad_id`.
      left_pad_legacy: rows are padded on the left, positions count the padding, and the first
        token of a row is predicted from it, as in TemporalWiki's released code. For parity with
        its published perplexities.
    """

    task_features = ("targets",)
    splits_logits = True

    vocabulary: Any = None
    left_pad_legacy: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.require_bool(LEFT_PAD_LEGACY=self.left_pad_legacy)

    @property
    def start_id(self) -> int | None:
        """The token before the first of a text, or None."""
        return self.vocabulary.bos_id

    def init(self, key: jax.Array) -> dict[str, Any]:
        # No parameter's shape depends on the batch or the length, so one token is enough.
        ids = jnp.ones((1, 1), jnp.int32)
        return self.module.init(key, ids, ids, enable_dropout=False)

    def logits(
        self,
        params: Any,
        batch: Batch,
        dropout_rng: jax.Array | None = None,
        per_token: PerToken | None = None,
    ) -> Any:
        self.check_length(batch["decoder_input_tokens"].shape[1])
        return self.apply(
            params,
            batch["decoder_input_tokens"],
            batch["decoder_target_tokens"],
            decoder_segment_ids=batch.get("decoder_segment_ids"),
            decoder_positions=batch.get("decoder_positions"),
            dropout_rng=dropout_rng,
            **({} if per_token is None else {"per_token": per_token}),
        )

    def score_tree(self, params: Any, batch: Batch) -> jax.Array:
        """Log probabilities of tokens after the paths of a tree, see `papers.lm_pub_quiz.tries`.

        Args:
          batch: `decoder_input_tokens`, `decoder_positions`, `decoder_subtree_ends`, each [B, T]
            int32; `edge_parents` [B, M], the position that a token follows, and
            `edge_targets` [B, M], the token.

        Returns:
          [B, M] float32.
        """
        # In the order of the module's arguments.
        names = (
            "decoder_input_tokens",
            "decoder_positions",
            "decoder_subtree_ends",
            "edge_parents",
            "edge_targets",
        )
        arrays = (batch[name] for name in names)
        return self.module.apply({"params": params}, *arrays, method="score_tree")

    def predict(
        self,
        params: Any,
        prompts: jax.Array,
        max_decode_length: int,
        prompt_lengths: jax.Array | None = None,
        **decode_kwargs: Any,
    ) -> decoding.Decoded:
        """Continues prompts.

        All but the last token of each prompt go into the cache at once; decoding starts from the
        last one. Positions and what is seen are those of each prompt alone, whatever its padding.

        Args:
          prompts: [B, P] int32, padded on the right (with any token).
          max_decode_length: L, the maximum number of new tokens.
          prompt_lengths: [B] int32, each 1 to P; None is P.
          **decode_kwargs: passed to `decode_fn` (`beam_size`, `rule`, `num_return`, ...).

        Returns:
          Tokens [B, R, L] best first, without the prompt, and scores [B, R].

        Raises:
          UserError: prompt and answer are longer than the model's positions.
        """
        batch, width = prompts.shape
        # The last prompt token is the first that decoding feeds, so it needs no slot of its own
        # here.
        size = width - 1 + max_decode_length
        self.check_length(size, "A prompt and its answer")
        if prompt_lengths is None:
            prompt_lengths = jnp.full((batch,), width, jnp.int32)
        step = self._step(params, prompt_lengths - 1, width - 1, size)
        # Prefill: all of the prompt but its last token, in one call. Rows shorter than the longest
        # are padded on the right, and the padding stays in the cache, masked (`prefill_lengths`).
        ids = jnp.ones((batch, size), jnp.int32)
        cache = self.empty_cache(params, ids, ids)
        if width > 1:
            _, cache = step(prompts[:, :-1], cache)
        # [B]: each prompt's own last token.
        last = jnp.take_along_axis(prompts, prompt_lengths[:, None] - 1, axis=1)[:, 0]

        def tokens_to_logits(ids: jax.Array, cache: Any) -> tuple[jax.Array, Any]:
            logits, cache = step(ids, cache)
            return logits[:, 0], cache

        return self.decode_fn(
            tokens_to_logits,
            cache,
            batch_size=batch,
            max_decode_len=max_decode_length,
            eos_id=getattr(self.vocabulary, "eos_id", 1),
            start_id=last,
            prompt_length=width,
            cache_offset=self._row_axis,
            **decode_kwargs,
        )

    def _step(self, params: Any, lengths: jax.Array, width: int, size: int):
        """The decoder over its cache: (ids [N, T], cache) -> (logits [N, T, V], cache)."""

        def step(ids: jax.Array, cache: Any) -> tuple[jax.Array, Any]:
            logits, updated = self.module.apply(
                {"params": params, "cache": cache},
                ids,
                ids,
                # [N]: the search expands B examples to N = B * K rows, neighbours of one example
                # together.
                prefill_lengths=jnp.repeat(lengths, ids.shape[0] // lengths.shape[0]),
                prefill_width=width,
                max_decode_length=size,
                enable_dropout=False,
                decode=True,
                mutable=["cache"],
            )
            return logits, updated["cache"]

        return step

    def _row_axis(self, names: tuple[str, ...]) -> int:
        """Behind the axis of stacked layers; side networks are never stacked."""
        # A stacked leaf is [L, N, ...].
        return int(self.config.scan_layers and names[:1] == ("decoder",))
