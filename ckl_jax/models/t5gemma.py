"""T5Gemma in linen: T5's encoder-decoder, its two stacks of the parts of today's decoders.

Zhang et al. 2025, arXiv:2504.06225. The encoder sees both sides, the decoder attends to it between
its self-attention and its feed-forward, without positions. They may differ in every size, and each
has a token embedding of its own.
"""

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from ckl_jax import checks
from ckl_jax.errors import UserError
from ckl_jax.models import decoder, decoder_context, layers, t5
from ckl_jax.models.decoder import DecoderConfig
from ckl_jax.models.encoder import Encoder, EncoderConfig
from ckl_jax.models.per_token import PerToken, logits_of

Array = jax.Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class T5GemmaConfig(DecoderConfig):
    """Hyper-parameters of the decoder, and what is different in the encoder.

    Attributes:
      num_encoder_layers: depth of the encoder; `num_layers` is the decoder's.
      encoder_fields: {field: value} where the encoder's is not the decoder's.
      start_id: the token before the first of a target. Batches and decoding have 0 in its place, as
        T5's, and the decoder reads `start_id` wherever its input is 0.
    """

    has_encoder: ClassVar[bool] = True

    family: str = "t5gemma"
    num_encoder_layers: int = 12
    encoder_fields: Any = ()
    start_id: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.require_size(**{"T5GemmaConfig.num_encoder_layers": self.num_encoder_layers})
        checks.require_int(1, self.vocab_size - 1, **{"T5GemmaConfig.start_id": self.start_id})
        if self.parallel:
            raise UserError("T5GemmaConfig.parallel is True; cross-attention needs False.")
        fields = dict(self.encoder_fields)  # of a mapping or of pairs
        names = [f.name for f in dataclasses.fields(EncoderConfig)]
        checks.require_names(names, empty=True, **{"T5GemmaConfig.encoder_fields": tuple(fields)})
        object.__setattr__(self, "encoder_fields", tuple(fields.items()))
        # As that class has them, and only what is different: equal models have equal fields.
        own = [(n, getattr(self.encoder_config, n)) for n in sorted(fields)]
        differing = tuple((n, x) for n, x in own if x != getattr(self, n))
        object.__setattr__(self, "encoder_fields", differing)

    @property
    def encoder_config(self) -> EncoderConfig:
        names = [f.name for f in dataclasses.fields(EncoderConfig)]
        fields = {n: getattr(self, n) for n in names} | dict(self.encoder_fields)
        fields |= {"num_layers": self.num_encoder_layers, "logits_via_embedding": True}
        return EncoderConfig(**fields)

    @property
    def memory_dim(self) -> int:
        return dict(self.encoder_fields).get("emb_dim", self.emb_dim)

    @property
    def tapped(self) -> tuple[str, int]:
        return "encoder", self.num_encoder_layers


class Decoder(decoder.Decoder):
    """The decoder's stack, up to the logits; called as T5's is."""

    config: T5GemmaConfig
    token_embedder: layers.Embed

    @nn.compact
    def __call__(
        self,
        encoded: Array,
        tokens: Array,
        bias: decoder.Mask,
        cross_bias: Array | None,
        deterministic: bool,
        decode: bool = False,
        max_decode_length: int | None = None,
        per_token: PerToken | None = None,
    ) -> Any:
        """See `t5.Decoder`."""
        cfg, length = self.config, tokens.shape[1]
        if decode:
            positions = decoder.CachePositions(name="cache_positions")(length)[None]
            keys = jnp.arange(max_decode_length or length)[None]
            context = decoder_context.make_context(cfg, positions, keys, None)
        else:
            positions, context = (
                jnp.arange(length)[None],
                decoder_context.row_context(cfg, length, bias),
            )
        x = self.token_embedder(jnp.where(tokens == 0, cfg.start_id, tokens))
        x = x * jnp.asarray(cfg.embed_scale, x.dtype)
        context = (*context[:3], encoded, cross_bias)
        x, _ = super().__call__(x, positions, context, deterministic, decode)
        x = cfg.dropout(x, deterministic)
        return logits_of(self, Decoder._logits, x, per_token)

    def _logits(self, x: Array) -> Array:
        cfg = self.config
        tied = cfg.logits_via_embedding
        logits = self.token_embedder.attend(x) if tied else decoder.output(cfg)(x)
        return decoder.capped(logits, cfg.logits_softcap)


class Transformer(t5.Transformer):
    """The whole encoder-decoder; arguments and results are those of T5's."""

    config: T5GemmaConfig

    def setup(self) -> None:
        cfg, own = self.config, self.config.encoder_config
        init = nn.initializers.normal(decoder.INIT_STDDEV)
        self.token_embedder = layers.Embed(cfg.vocab_size, own.emb_dim, cfg.dtype, init)
        self.decoder_token_embedder = layers.Embed(cfg.vocab_size, cfg.emb_dim, cfg.dtype, init)
        self.encoder = Encoder(own)
        self.decoder = Decoder(cfg, self.decoder_token_embedder)
        for side in cfg.side:
            setattr(self, side.name, side.build(own))
