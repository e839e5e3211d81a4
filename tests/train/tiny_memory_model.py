"""A language model with a memory that compiles in no time."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from ckl_jax.models import layers
from ckl_jax.models.base import token_losses
from ckl_jax.models.decoder_only import DecoderOnlyModel


@dataclasses.dataclass(frozen=True)
class TinyConfig:
    vocab_size: int = 30
    max_positions: int = 64
    scan_layers: bool = False
    dropout_rate: float = 0.0
    dense: Any = None
    side: tuple = ()


class TinyModule(nn.Module):
    """The next token's logits from a token and the mean of those in the memory."""

    config: TinyConfig

    @nn.compact
    def __call__(self, tokens, targets, memory=None, **options):
        del targets, options
        embed = layers.Embed(self.config.vocab_size, 8, name="token_embedder")
        x = embed(tokens)
        if memory is not None:
            seen = jnp.float32(memory > 0)[..., None]
            mean = jnp.sum(embed(memory) * seen, axis=1) / jnp.maximum(seen.sum(axis=1), 1)
            x = x + mean[:, None]
        x = nn.tanh(layers.Dense(8, ("embed", "mlp"), use_bias=True, name="mlp")(x))
        return embed.attend(x)


@dataclasses.dataclass(frozen=True)
class TinyModel(DecoderOnlyModel):
    """Its memory is the last tokens, [B, M]; 0 is an empty slot."""

    memory_length: int = 3

    def initial_memory(self, batch_size, length=None):
        return {"tokens": jnp.zeros((batch_size, length or self.memory_length), jnp.int32)}

    def stream_losses(self, params, batch, memory, dropout_rng=None):
        tokens, targets = batch["decoder_input_tokens"], batch["decoder_target_tokens"]
        logits = self.module.apply({"params": params}, tokens, targets, memory["tokens"])
        losses, _ = token_losses(logits, targets)
        count = batch["decoder_segment_ids"].sum(axis=1, keepdims=True)  # padding is on the right
        size = memory["tokens"].shape[1]
        both = jnp.concatenate([memory["tokens"], targets], axis=1)
        return losses, {"tokens": jnp.take_along_axis(both, count + jnp.arange(size)[None], axis=1)}


def tiny_model(vocabulary: Any) -> TinyModel:
    return TinyModel(TinyModule(TinyConfig()), vocabulary=vocabulary)


def init(model: TinyModel) -> Any:
    return model.init(jax.random.key(0))["params"]
