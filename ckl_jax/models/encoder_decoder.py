"""The interface of an encoder-decoder beyond its loss: decoding answers.

The counterpart of T5X's `models.EncoderDecoderModel`.
"""

import dataclasses
from typing import Any, Self

import flax.linen as nn
import jax
import jax.numpy as jnp

from ckl_jax.models import decoding
from ckl_jax.models.base import BaseTransformerModel, Batch, token_losses
from ckl_jax.models.per_token import PerToken

# The three arrays of a batch that the module is called with, in its order.
MODEL_INPUTS = ("encoder_input_tokens", "decoder_input_tokens", "decoder_target_tokens")
_STREAM_LENGTH = 512  # tokens before a chunk of running text that the encoder reads


@dataclasses.dataclass(frozen=True)
class EncoderDecoderModel(BaseTransformerModel):
    """An encoder-decoder; see `BaseTransformerModel` for the other fields.

    Attributes:
      input_vocabulary, output_vocabulary: objects with `encode`, `decode`, `eos_id`.
    """

    task_features = ("inputs", "targets")
    splits_logits = True

    input_vocabulary: Any = None
    output_vocabulary: Any = None

    @classmethod
    def with_vocabulary(cls, module: nn.Module, vocabulary: Any, **fields: Any) -> Self:
        return cls(module, vocabulary, vocabulary, **fields)

    def init(self, key: jax.Array) -> dict[str, Any]:
        """Initial variables: `params`, and their logical axes in `params_axes`."""
        # No parameter's shape depends on the batch or the lengths, so one token is enough.
        ids = jnp.ones((1, 1), jnp.int32)
        return self.module.init(key, ids, ids, ids, enable_dropout=False)

    def logits(
        self,
        params: Any,
        batch: Batch,
        dropout_rng: jax.Array | None = None,
        per_token: PerToken | None = None,
    ) -> Any:
        """Teacher-forced logits [B, T, V] float32, or what `per_token` makes of them."""
        inputs = [batch[name] for name in MODEL_INPUTS]
        self.check_length(max(x.shape[1] for x in inputs))
        return self.apply(
            params,
            *inputs,
            encoder_segment_ids=batch.get("encoder_segment_ids"),
            decoder_segment_ids=batch.get("decoder_segment_ids"),
            dropout_rng=dropout_rng,
            **({} if per_token is None else {"per_token": per_token}),
        )

    def predict(
        self, params: Any, encoder_input_tokens: jax.Array, max_decode_length: int, **decode_kwargs
    ) -> decoding.Decoded:
        """Decodes answers.

        Args:
          encoder_input_tokens: [B, S] int32.
          max_decode_length: L; neither the start token nor anything before it counts.
          **decode_kwargs: passed to `decode_fn` (`beam_size`, `rule`, `num_return`, ...).

        Returns:
          Tokens [B, R, L] best first, and scores [B, R].
        """
        batch, length = encoder_input_tokens.shape[0], max_decode_length
        # The encoder runs once; every step of the decoder reads its output, [B, S, D].
        encoded = self.apply(params, encoder_input_tokens, method="encode")
        ids = jnp.ones((batch, length), jnp.int32)
        cache = self.empty_cache(params, encoder_input_tokens, ids, ids)

        # ids [N, 1] with N = B * K beams; `encoded` keeps B rows, which the beams of an example
        # share (see `layers.Attention`).
        def tokens_to_logits(ids: jax.Array, cache: Any) -> tuple[jax.Array, Any]:
            logits, updated = self.module.apply(
                {"params": params, "cache": cache},
                encoded,
                encoder_input_tokens,
                ids,
                ids,
                enable_dropout=False,
                decode=True,
                max_decode_length=length,
                mutable=["cache"],
                method="decode",
            )
            return logits[:, 0], updated["cache"]

        return self.decode_fn(
            tokens_to_logits,
            cache,
            batch_size=batch,
            max_decode_len=length,
            eos_id=getattr(self.output_vocabulary, "eos_id", 1),
            cache_offset=int(self.config.scan_layers),
            **decode_kwargs,
        )

    def score_options(self, params: Any, batch: Batch) -> jax.Array:
        """Log probabilities of target tokens, of several targets for one input.

        Args:
          batch: `encoder_input_tokens` [U, S]; `input_of_row` [B] int32, the input that a row
            answers; `decoder_target_tokens` [B, T].

        Returns:
          [B, T] float32; padding has numbers too.
        """
        targets = batch["decoder_target_tokens"]
        encoded = self.apply(params, batch["encoder_input_tokens"], method="encode")
        # Inputs with several answer options are encoded once: [U, S, D] -> [B, S, D].
        row = batch["input_of_row"]
        logits = self.apply(
            params,
            encoded[row],
            batch["encoder_input_tokens"][row],
            # Teacher forcing: targets shifted right behind the start token 0.
            jnp.pad(targets[:, :-1], ((0, 0), (1, 0))),
            targets,
            method="decode",
        )
        return -token_losses(logits, targets)[0]

    def initial_memory(self, batch_size: int, length: int | None = None) -> Any:
        """The encoder's input at the start of a document: EOS alone.

        Args:
          batch_size: B, rows.
          length: S, how many of the latest tokens the encoder reads; None is 512.

        Returns:
          {"tokens": [B, S] int32}, 0 is padding.
        """
        tokens = jnp.zeros((batch_size, length or _STREAM_LENGTH), jnp.int32)
        return {"tokens": tokens.at[:, 0].set(getattr(self.output_vocabulary, "eos_id", 1))}

    def stream_losses(
        self, params: Any, batch: Batch, memory: Any, dropout_rng: jax.Array | None = None
    ) -> tuple[jax.Array, Any]:
        """The loss of each token of a chunk of running text, given the memory.

        The chunk is the decoder's target, and the encoder reads the S tokens before it: with S the
        length of a chunk, the previous chunk. The decoder's input begins with its start token 0,
        not with `decoder_input_tokens`.

        Args:
          batch: `decoder_target_tokens` [B, T] int32, `decoder_loss_weights` [B, T], 0 on padding,
            which is on the right.
          memory: {"tokens": [B, S] int32}, the tokens before the chunk; padding on the right.
          dropout_rng: None is without dropout.

        Returns:
          Losses [B, T] float32 in nats, and the memory for the next chunk: the latest S tokens.
        """
        targets = batch["decoder_target_tokens"]
        # T5's start token is its padding token, 0.
        inputs = jnp.pad(targets[:, :-1], ((0, 0), (1, 0)))
        known = {
            "encoder_input_tokens": memory["tokens"],
            "decoder_input_tokens": inputs,
            "decoder_target_tokens": targets,
        }
        losses, _ = self.per_token(token_losses, params, known, dropout_rng)
        # Tokens of weight 0 must not enter the memory: they are padding of the last chunk.
        real = jnp.where(batch["decoder_loss_weights"] > 0, targets, 0)
        return losses, {"tokens": _latest(memory["tokens"], real)}


def _latest(before: jax.Array, after: jax.Array) -> jax.Array:
    """The last S tokens but padding (0) of `before` [B, S] and `after` [B, T] in their order."""
    size = before.shape[1]
    # A stable sort by "is padding" moves the real tokens to the left, in their order.
    both = jnp.concatenate([before, after], axis=1)
    together = jnp.take_along_axis(both, jnp.argsort(both == 0, axis=1, stable=True), axis=1)
    # [B, 1]: how many of the oldest tokens do not fit into S positions.
    skipped = jnp.maximum(jnp.sum(both > 0, axis=1, keepdims=True) - size, 0)
    return jnp.take_along_axis(together, skipped + jnp.arange(size)[None], axis=1)
