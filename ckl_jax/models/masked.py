"""The interface of a masked language model: the loss of masked tokens, and scores of tokens."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from ckl_jax import checks
from ckl_jax.models.base import Batch, OneVocabularyModel

_SHOWN = (0.8, 0.9)  # below the first: [MASK]; up to the second: another token; else itself


@dataclasses.dataclass(frozen=True)
class MaskedModel(OneVocabularyModel):
    """A masked language model; see `BaseTransformerModel` for the other fields.

    A batch is `data.tasks.converters.masked_batch`'s, and its hidden tokens are those of
    evaluations. In training they are drawn anew in every step, from the key of dropout (RoBERTa's
    dynamic masking): of `mask_rate` of the tokens 80 % become the mask, 10 % any token, 10 % stay
    (BERT, 3.1).

    Attributes:
      vocabulary: an object with `mask_id`, `bos_id`, `eos_id`, `vocab_size`, `encode`, `decode`.
      mask_rate: fraction of tokens that are predicted; of marked ones it is multiplied by their
        weight (`train.configs.DatasetConfig`).
    """

    task_features = ("targets",)

    vocabulary: Any = None
    mask_rate: float = 0.15

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.require_number("a number in (0, 1)", 0.0, 1.0, MASK_RATE=self.mask_rate)

    @property
    def draws(self) -> bool:
        """True: the masked tokens are drawn, with dropout or without."""
        return True

    @property
    def masking(self) -> dict[str, Any]:
        """Masking of rows in evaluations: the fields of `data.tasks.converters.Masking`."""
        special = (self.vocabulary.bos_id, self.vocabulary.eos_id)
        return {"rate": self.mask_rate, "mask_id": self.vocabulary.mask_id, "special_ids": special}

    def init(self, key: jax.Array) -> dict[str, Any]:
        return self.module.init(key, jnp.ones((1, 1), jnp.int32), enable_dropout=False)

    def hide(self, batch: Batch, key: jax.Array) -> Batch:
        """The batch of one step: masked tokens, which are the targets with weight 1."""
        tokens = batch["decoder_target_tokens"]
        # Three draws that must not share a key: which tokens, how they are shown, by which other
        # token.
        chosen, kind, other = jax.random.split(key, 3)
        # `maskable` is 0 on padding and special tokens, and a weight on others.
        hidden = jax.random.bernoulli(chosen, self.mask_rate * batch["maskable"])
        draw = jax.random.uniform(kind, tokens.shape)
        # 10 % of the hidden tokens show a random one, which may be the right one, as in BERT.
        random = jax.random.randint(other, tokens.shape, 0, self.vocabulary.vocab_size)
        shown = jnp.where(draw < _SHOWN[1], random, tokens)
        shown = jnp.where(draw < _SHOWN[0], self.vocabulary.mask_id, shown)
        return {
            **batch,
            "encoder_input_tokens": jnp.where(hidden, shown, tokens),
            "decoder_loss_weights": hidden.astype(jnp.float32),
        }

    def loss_fn(
        self, params: Any, batch: Batch, dropout_rng: jax.Array | None = None
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """See `BaseTransformerModel.loss_fn`; with a key the masked tokens are drawn anew."""
        # Without a key (evaluation) the rows keep the masks that the data came with.
        if dropout_rng is not None:
            chosen, dropout_rng = jax.random.split(dropout_rng)
            batch = self.hide(batch, chosen)
        return super().loss_fn(params, batch, dropout_rng)

    def logits(self, params: Any, batch: Batch, dropout_rng: jax.Array | None = None) -> jax.Array:
        return self._apply(params, batch, dropout_rng)

    def score_positions(self, params: Any, batch: Batch) -> jax.Array:
        """Log probabilities of tokens at positions of texts that are masked already.

        Args:
          batch: `encoder_input_tokens`, `encoder_segment_ids` [B, T]; `target_positions`
            [B, M] and `targets` [B, M], the tokens there.

        Returns:
          [B, M] float32.
        """
        # [B, M, V]: the output layer runs at the masked positions only.
        logits = self._apply(params, batch, None, target_positions=batch["target_positions"])
        chosen = jnp.take_along_axis(logits, batch["targets"][..., None], axis=-1)[..., 0]
        return chosen - jax.nn.logsumexp(logits, axis=-1)

    def rank_positions(self, params: Any, batch: Batch) -> jax.Array:
        """The number of tokens likelier than each target; see `score_positions`. [B, M] float32."""
        logits = self._apply(params, batch, None, target_positions=batch["target_positions"])
        chosen = jnp.take_along_axis(logits, batch["targets"][..., None], axis=-1)
        # Ties do not count against the target: its rank is optimistic.
        return jnp.sum(logits > chosen, axis=-1).astype(jnp.float32)

    def _apply(
        self, params: Any, batch: Batch, dropout_rng: jax.Array | None, **kwargs: Any
    ) -> jax.Array:
        tokens, positions = batch["encoder_input_tokens"], batch.get("encoder_positions")
        # A row may hold several statements to score, each within the model's positions.
        if positions is None or "target_positions" not in kwargs:
            self.check_length(tokens.shape[1])
        segments = batch.get("encoder_segment_ids")
        kwargs |= {"encoder_segment_ids": segments, "encoder_positions": positions}
        return self.apply(params, tokens, dropout_rng=dropout_rng, **kwargs)
