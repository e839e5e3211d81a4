"""What a run asks of an encoder-decoder: its loss, its answers, its scores.

The counterpart of T5X's `models.EncoderDecoderModel`; it joins a linen module, the vocabularies
and a decoding function, and holds no parameters.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from ckl_jax import checks
from ckl_jax.models import decoding
from ckl_jax.models.t5 import Transformer

Batch = Mapping[str, jax.Array]
NORMALIZING_FACTORS = (
    "NUM_REAL_TARGET_TOKENS",
    "NUM_TOTAL_TARGET_TOKENS",
    "AVERAGE_PER_SEQUENCE",
)
# The three arrays of a batch that the module is called with, in its order.
MODEL_INPUTS = ("encoder_input_tokens", "decoder_input_tokens", "decoder_target_tokens")


def logits_of(targets: jax.Array, logits: jax.Array) -> jax.Array:
    """The logits [B, T] of the target tokens [B, T], out of [B, T, V]."""
    return jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]


def token_losses(
    logits: jax.Array, targets: jax.Array, label_smoothing: float = 0.0, z_loss: float = 0.0
) -> tuple[jax.Array, jax.Array]:
    """Cross entropy of each token.

    Args:
      logits: [B, T, V] float32.
      targets: [B, T] int32.
      label_smoothing: mass spread over the other V - 1 tokens; the entropy of the smoothed target
        is subtracted, so that a perfect prediction scores 0.
      z_loss: factor of log^2 Z, added to the loss.

    Returns:
      The loss with z-loss, and the z-loss alone, each [B, T] float32.
    """
    log_z = jax.nn.logsumexp(logits, axis=-1)
    loss = log_z - logits_of(targets, logits)
    if label_smoothing:
        others = logits.shape[-1] - 1
        low = label_smoothing / others
        high = 1.0 - label_smoothing
        # The sum of -log p over the whole vocabulary, without storing log p.
        total = logits.shape[-1] * log_z - logits.sum(axis=-1)
        entropy = -(high * jnp.log(high) + others * low * jnp.log(low + 1e-20))
        loss = (high - low) * loss + low * total - entropy
    z = z_loss * jnp.square(log_z)
    return loss + z, z


def weight_of_sequence(weights: jax.Array, segment_ids: jax.Array | None) -> jax.Array:
    """The summed weight of the sequence that each token belongs to.

    Args:
      weights: [B, T] float32.
      segment_ids: [B, T] int32, from 1, of the sequences packed into a row; None is one a row.

    Returns:
      [B, T], or [B, 1] for unpacked rows.
    """
    if segment_ids is None:
        return jnp.sum(weights, axis=-1, keepdims=True)
    count = weights.shape[-1] + 1  # 0 is padding, and no row holds more sequences than tokens

    def row(weights: jax.Array, ids: jax.Array) -> jax.Array:
        return jax.ops.segment_sum(weights, ids, num_segments=count)[ids]

    return jax.vmap(row)(weights, segment_ids)


@dataclasses.dataclass(frozen=True)
class EncoderDecoderModel:
    """An encoder-decoder as the runner sees it.

    Attributes:
      module: a linen module with T5X's signatures.
      input_vocabulary, output_vocabulary: objects with `encode`, `decode`, `eos_id`.
      decode_fn: `decoding.beam_search`, `decoding.greedy_decode`, or a partial of either.
      label_smoothing, z_loss: see `token_losses`.
      loss_normalizing_factor: what the summed loss is divided by: a number, None (1), or one of
        NORMALIZING_FACTORS. The default is the mean over the tokens of the global batch.
    """

    module: nn.Module
    input_vocabulary: Any = None
    output_vocabulary: Any = None
    decode_fn: Callable[..., decoding.Decoded] = decoding.beam_search
    label_smoothing: float = 0.0
    z_loss: float = 0.0
    loss_normalizing_factor: str | float | None = "NUM_REAL_TARGET_TOKENS"

    def __post_init__(self) -> None:
        factor = self.loss_normalizing_factor
        if isinstance(factor, str):
            checks.require_choice(NORMALIZING_FACTORS, LOSS_NORMALIZING_FACTOR=factor)
        else:
            checks.require_positive(LOSS_NORMALIZING_FACTOR=factor)
        checks.require_number("a number in [0, 1)", 0.0, 1.0, LABEL_SMOOTHING=self.label_smoothing)
        checks.require_number("a finite number, 0 or more", 0.0, Z_LOSS=self.z_loss)

    @property
    def config(self) -> Any:
        return self.module.config

    def with_method(self, method: Any) -> "EncoderDecoderModel":
        """The same model with a method's projections and side networks in it."""
        module = self.module.clone(config=method.extend(self.config))
        return dataclasses.replace(self, module=module)

    def init(self, key: jax.Array) -> dict[str, Any]:
        """Initial variables: `params`, and their logical axes in `params_axes`."""
        ids = jnp.ones((1, 1), jnp.int32)
        return self.module.init(key, ids, ids, ids, enable_dropout=False)

    def logits(self, params: Any, batch: Batch, dropout_rng: jax.Array | None = None) -> jax.Array:
        """Teacher-forced logits [B, T, V] float32; with dropout if a key is given."""
        return self.module.apply(
            {"params": params},
            *(batch[name] for name in MODEL_INPUTS),
            encoder_segment_ids=batch.get("encoder_segment_ids"),
            decoder_segment_ids=batch.get("decoder_segment_ids"),
            enable_dropout=dropout_rng is not None,
            rngs=None if dropout_rng is None else {"dropout": dropout_rng},
        )

    def loss_fn(
        self, params: Any, batch: Batch, dropout_rng: jax.Array | None = None
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """The *sum* of the loss, and what to divide it by.

        Kept apart so that micro-batches and hosts add both and divide once.

        Returns:
          The unnormalised loss (), and sums over the batch, each (): `denominator`, `loss`,
          `z_loss`, `correct` and `tokens`.
        """
        targets = batch["decoder_target_tokens"]
        weights = batch["decoder_loss_weights"].astype(jnp.float32)
        logits = self.logits(params, batch, dropout_rng)
        loss, z = token_losses(logits, targets, self.label_smoothing, self.z_loss)
        # The maximum is at hand from the loss; an argmax over the vocabulary would be dearer.
        correct = (logits_of(targets, logits) == jnp.max(logits, axis=-1)) * weights
        scale, denominator = self._normalizer(weights, batch.get("decoder_segment_ids"))
        sums = {
            "denominator": denominator,
            "loss": jnp.sum(loss * weights),
            "z_loss": jnp.sum(z * weights),
            "correct": jnp.sum(correct),
            "tokens": jnp.sum(weights),
        }
        return jnp.sum(loss * weights * scale), sums

    def _normalizer(
        self, weights: jax.Array, segment_ids: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        factor = self.loss_normalizing_factor
        one = jnp.ones((), jnp.float32)
        if factor is None:
            return one, jnp.zeros((), jnp.float32)
        if factor == "NUM_REAL_TARGET_TOKENS":
            return one, jnp.sum(weights)
        if factor == "NUM_TOTAL_TARGET_TOKENS":
            return one, jnp.asarray(weights.size, jnp.float32)
        if factor == "AVERAGE_PER_SEQUENCE":
            total = weight_of_sequence(weights, segment_ids)
            scale = jnp.where(total > 0, 1.0 / jnp.where(total > 0, total, 1.0), 0.0)
            return scale, jnp.sum(weights * scale)
        # A constant must not grow with the number of micro-batches.
        return one / factor, jnp.zeros((), jnp.float32)

    def predict(
        self, params: Any, encoder_input_tokens: jax.Array, max_decode_length: int, **decode_kwargs
    ) -> decoding.Decoded:
        """Decodes answers.

        Args:
          params: parameters.
          encoder_input_tokens: [B, S] int32.
          max_decode_length: L; neither the start token nor anything before it counts.
          **decode_kwargs: passed to `decode_fn` (`beam_size`, `rule`, `num_return`, ...).

        Returns:
          Tokens [B, R, L] best first, and scores [B, R].
        """
        batch, length = encoder_input_tokens.shape[0], max_decode_length
        variables = {"params": params}
        encoded = self.module.apply(
            variables, encoder_input_tokens, enable_dropout=False, method=Transformer.encode
        )
        ids = jnp.ones((batch, length), jnp.int32)
        shapes = jax.eval_shape(
            lambda: self.module.apply(
                variables,
                encoder_input_tokens,
                ids,
                ids,
                decode=True,
                enable_dropout=False,
                mutable=["cache"],
            )  # fmt: skip
        )[1]["cache"]
        cache = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

        def tokens_to_logits(ids: jax.Array, cache: Any) -> tuple[jax.Array, Any]:
            logits, updated = self.module.apply(
                {**variables, "cache": cache}, encoded, encoder_input_tokens, ids, ids,
                enable_dropout=False, decode=True, max_decode_length=length, mutable=["cache"],
                method=Transformer.decode,
            )  # fmt: skip
            return logits[:, 0], updated["cache"]

        return self.decode_fn(
            tokens_to_logits, cache, batch_size=batch, max_decode_len=length,
            eos_id=getattr(self.output_vocabulary, "eos_id", 1),
            cache_offset=int(self.config.scan_layers), **decode_kwargs,
        )  # fmt: skip

    def score_batch(self, params: Any, batch: Batch) -> jax.Array:
        """Log likelihood of the targets, [B]: no smoothing, no z-loss, no dropout."""
        losses, _ = token_losses(self.logits(params, batch), batch["decoder_target_tokens"])
        return -jnp.sum(losses * batch["decoder_loss_weights"], axis=-1)
