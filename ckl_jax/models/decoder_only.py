"""The interface of a decoder-only model beyond its loss: continuing prompts.

The counterpart of T5X's `models.DecoderOnlyModel`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ckl_jax import checks
from ckl_jax.models import decoding
from ckl_jax.models.base import Batch, OneVocabularyModel
from ckl_jax.models.per_token import PerToken

# (ids [N, T], state) -> (logits [N, T, V], state): the state is a cache or a memory.
Step = Callable[[jax.Array, Any], tuple[jax.Array, Any]]


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
        if prompt_lengths is None:
            prompt_lengths = jnp.full((batch,), width, jnp.int32)
        step, state = self._prefill(params, prompts[:, :-1], prompt_lengths - 1, max_decode_length)
        # [B]: each prompt's own last token, the first that decoding feeds.
        last = jnp.take_along_axis(prompts, prompt_lengths[:, None] - 1, axis=1)[:, 0]

        def tokens_to_logits(ids: jax.Array, state: Any) -> tuple[jax.Array, Any]:
            logits, state = step(ids, state)
            return logits[:, 0], state

        return self.decode_fn(
            tokens_to_logits,
            state,
            batch_size=batch,
            max_decode_len=max_decode_length,
            eos_id=getattr(self.vocabulary, "eos_id", 1),
            start_id=last,
            prompt_length=width,
            cache_offset=self._row_axis,
            **decode_kwargs,
        )

    def _prefill(
        self, params: Any, prompts: jax.Array, lengths: jax.Array, max_decode_length: int
    ) -> tuple[Step, Any]:
        """The decoder over its state, and the state behind prompts [B, P], in one call.

        Rows shorter than the longest are padded on the right, and the padding stays in the cache,
        masked (`prefill_lengths`).
        """
        batch, width = prompts.shape
        size = width + max_decode_length
        self.check_length(size, "A prompt and its answer")

        def step(ids: jax.Array, cache: Any) -> tuple[jax.Array, Any]:
            logits, updated = self.module.apply(
                {"params": params, "cache": cache},
                ids,
                ids,
                # [N]: the search expands B examples to N = B * K rows, neighbours of one example
                # together.
                prefill_lengths=jnp.repeat(lengths, ids.shape[0] // batch),
                prefill_width=width,
                max_decode_length=size,
                enable_dropout=False,
                decode=True,
                mutable=["cache"],
            )
            return logits, updated["cache"]

        ids = jnp.ones((batch, size), jnp.int32)
        cache = self.empty_cache(params, ids, ids)
        return step, step(prompts, cache)[1] if width else cache

    def _row_axis(self, names: tuple[str, ...]) -> int:
        """Behind the axis of stacked layers; side networks are never stacked."""
        # A stacked leaf is [L, N, ...].
        return int(self.config.scan_layers and names[:1] == ("decoder",))
