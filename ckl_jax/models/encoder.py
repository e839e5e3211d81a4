"""An encoder of the parts of today's decoders: T5Gemma's, and that of ModernBERT."""

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from ckl_jax.models import layers
from ckl_jax.models.decoder import Decoder, DecoderConfig
from ckl_jax.models.decoder_context import Mask, row_context

Array = jax.Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig(DecoderConfig):
    """A stack that sees both sides; layers of the type "sliding" see `window` - 1 to either."""

    causal: ClassVar[bool] = False

    @property
    def stack(self) -> tuple[str, int]:
        return "encoder", self.num_layers

    def encoder(self, name: str) -> "Encoder":
        return Encoder(self, name=name)

    def for_second_encoder(self, num_layers: int, **sizes: Any) -> "EncoderConfig":
        """The configuration of a further `encoder` of other sizes, without a method's parts."""
        own = dict(num_kv_heads=None, query_scale=None, rotary_dim=None, embed_scale=1.0)
        plain = dict(dense=layers.DenseFactory(), side=(), scan_layers=False)
        return dataclasses.replace(self, num_layers=num_layers, **own, **plain, **sizes)


class Encoder(Decoder):
    """The stack of an encoder: what it sees is a bias, and the embedding is scaled here."""

    config: EncoderConfig

    @nn.compact
    def __call__(
        self,
        x: Array,
        bias: Mask,
        deterministic: bool,
        taps: tuple[int, ...] = (),
        positions: Array | None = None,
        types: Array | None = None,
    ) -> tuple[Array, dict[int, Array]]:
        """x [B, S, D] and what `row_context` takes -> [B, S, D], {tap: state}; no types."""
        del types
        context = row_context(self.config, x.shape[1], bias, positions)
        x = x * jnp.asarray(self.config.embed_scale, x.dtype)
        # `positions` are those of a table, which an encoder with angles has not.
        return super().__call__(x, positions, context, deterministic, False, taps)
