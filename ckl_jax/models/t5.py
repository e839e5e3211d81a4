"""T5 (v1.0 and v1.1) in linen: T5X's call signatures and parameter paths.

Raffel et al. 2020 (https://arxiv.org/abs/1910.10683); v1.1 has a gated-GELU feed-forward and an
output projection of its own. Methods enter at two attributes of the configuration, `dense` and
`side`; the model knows none of them by name.
"""

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from ckl_jax import checks
from ckl_jax.models import layers
from ckl_jax.models.attention import Biases, join
from ckl_jax.models.dropout import Dropout
from ckl_jax.models.per_token import PerToken, logits_of
from ckl_jax.models.relative_positions import RelativePositionBias
from ckl_jax.models.side import Side
from ckl_jax.models.splash import RowMask, padding_row_mask, row_mask
from ckl_jax.models.stack import constrain_embed, run_layers, validate

Array = jax.Array

_SIZES = (
    "vocab_size",
    "emb_dim",
    "num_heads",
    "num_encoder_layers",
    "num_decoder_layers",
    "head_dim",
    "mlp_dim",
    "relpos_buckets",
    "relpos_max_distance",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class T5Config:
    """Hyper-parameters. Field names are those of T5X's own T5 configuration, then ours.

    Attributes:
      vocab_size: V; public checkpoints round it up to 32128.
      dtype: of the activations; parameters stay float32.
      emb_dim, num_heads, head_dim, mlp_dim: D, N, H, F.
      num_encoder_layers, num_decoder_layers: depth of the stacks.
      mlp_activations: ("relu",) for v1.0, ("gelu", "linear") for v1.1.
      dropout_rate: of embeddings, attention weights, feed-forwards and residual branches.
      logits_via_embedding: tie the output to the embedding and scale by D^-0.5 (v1.0).
      float32_attention_logits: attention logits in float32 whatever `dtype` is.
      attention_impl: see `attention.attend`.
      relpos_buckets, relpos_max_distance: relative positions.
      relpos_per_layer: whether each layer has a table of its own (umT5) or a stack one (T5).
      scan_layers: stack the layers of each stack and scan over them (axis 1 of every parameter).
      remat_policy: "none", "minimal" (keep projections) or "full": what backward recomputes.
      dense: the projection factory (first seam of a method).
      side: side networks over the encoder's hidden states (second seam of a method).
      legacy_bypass_side: `encode` leaves the side networks out, as the released CKL evaluation
        did; the teacher-forced call keeps them.
      has_encoder: whether a decoder reads an encoder's output; see `encoder`.
    """

    has_encoder: ClassVar[bool] = True

    vocab_size: int
    dtype: Any = jnp.float32
    emb_dim: int = 512
    num_heads: int = 8
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    head_dim: int = 64
    mlp_dim: int = 2048
    mlp_activations: tuple[str, ...] = ("relu",)
    dropout_rate: float = 0.1
    logits_via_embedding: bool = False
    float32_attention_logits: bool = False
    attention_impl: str = "auto"
    relpos_buckets: int = 32
    relpos_max_distance: int = 128
    relpos_per_layer: bool = False
    scan_layers: bool = False
    remat_policy: str = "none"
    dense: layers.DenseFactory = layers.DenseFactory()
    side: tuple[Side, ...] = ()
    legacy_bypass_side: bool = False

    def __post_init__(self) -> None:
        checks.require_names(
            layers.ACTIVATIONS, **{"T5Config.mlp_activations": self.mlp_activations}
        )
        object.__setattr__(self, "mlp_activations", tuple(self.mlp_activations))
        validate(self, _SIZES)
        # Half of the buckets are of one distance each; the others are behind them.
        checks.require_int(4, **{"T5Config.relpos_buckets": self.relpos_buckets})
        least = self.relpos_buckets // 2 + 1
        checks.require_int(least, **{"T5Config.relpos_max_distance": self.relpos_max_distance})

    @property
    def not_for_splash(self) -> str:
        return "T5 adds relative positions to the logits"

    @property
    def projections(self) -> tuple[str, ...]:
        """Names of the projections that `dense` makes, for methods that choose some."""
        first = tuple(f"wi_{i}" for i in range(len(self.mlp_activations)))
        output = () if self.logits_via_embedding else ("logits_dense",)
        return (*layers.ATTENTION, *(first if len(first) > 1 else ("wi",)), "wo", *output)

    @property
    def tapped(self) -> tuple[str, int]:
        """The stack whose hidden states side networks read, and its depth."""
        return "encoder", self.num_encoder_layers

    @property
    def output_is_embedding(self) -> bool:
        """Whether the output is the token embedding alone, so that it can be given more rows."""
        return self.logits_via_embedding

    def encoder(self, name: str) -> "Encoder":
        return Encoder(self, name=name)

    def for_second_encoder(self, num_layers: int, **sizes: Any) -> "T5Config":
        """The configuration of a further `encoder` of other sizes, without a method's parts."""
        return dataclasses.replace(
            self,
            dense=layers.DenseFactory(),
            side=(),
            num_encoder_layers=num_layers,
            scan_layers=False,
            **sizes,
        )

    def side_layer(self, i: int, x: Array, bias: Array, deterministic: bool, decode: bool) -> Array:
        """Layer `i` of a side network: an encoder layer; only the first knows relative positions.

        x [B, S, D], bias broadcastable to [B, N, S, S] -> [B, S, D].
        """
        if i == 0 and not self.relpos_per_layer:
            # Only block 0 of a T5 stack owns a table; K-Adapter's later blocks then see no
            # positions at all (CKL's released blocks have a zero bias there).
            bias = join(bias, self.relpos_bias()(x.shape[1], x.shape[1], True))
        layer = Layer(self, name=f"layers_{i}")
        return layer(x, bias, None, None, None, deterministic, decode)

    def attention(self, name: str) -> layers.Attention:
        return layers.Attention(
            self.num_heads,
            self.head_dim,
            self.dropout_rate,
            self.dense,
            self.dtype,
            self.float32_attention_logits,
            implementation=self.attention_impl,
            name=name,
        )

    def mlp(self) -> layers.MlpBlock:
        return layers.MlpBlock(
            self.mlp_dim,
            self.mlp_activations,
            self.dropout_rate,
            self.dense,
            self.dtype,
            name="mlp",
        )

    def dropout(self, x: Array, deterministic: bool) -> Array:
        """Drops from [..., T, D]. Each call is a module of its own: T5X's names and masks."""
        return Dropout(self.dropout_rate)(x, deterministic)

    def norm(self, name: str) -> layers.RMSNorm:
        return layers.RMSNorm(dtype=self.dtype, name=name)

    def relpos_bias(self) -> RelativePositionBias:
        return RelativePositionBias(
            self.relpos_buckets,
            self.relpos_max_distance,
            self.num_heads,
            self.dtype,
            name="relpos_bias",
        )


class Layer(nn.Module):
    """Self-attention, cross-attention where an encoder's output is given, and feed-forward."""

    config: T5Config

    @nn.compact
    def __call__(
        self,
        x: Array,
        bias: Biases,
        keys: Array | None,
        encoded: Array | None,
        cross_bias: Array | RowMask | None,
        deterministic: bool,
        decode: bool,
    ) -> Array:
        """x [B, T, D], encoded [B, S, D] and keys [T], or those in the cache (any) -> [B, T, D]."""
        cfg, own = self.config, "attention" if encoded is None else "self_attention"
        x = constrain_embed(x)
        if cfg.relpos_per_layer:
            length = x.shape[1] if encoded is None else keys.shape[0]
            bias = join(cfg.relpos_bias()(length, length, encoded is None, decode), bias)
        y = cfg.norm(f"pre_{own}_layer_norm")(x)
        y = cfg.attention(own)(y, y, bias, deterministic, decode)
        x = x + cfg.dropout(y, deterministic)
        if encoded is not None:
            y = cfg.norm("pre_cross_attention_layer_norm")(x)
            y = cfg.attention("encoder_decoder_attention")(y, encoded, cross_bias, deterministic)
            x = x + cfg.dropout(y, deterministic)
        y = cfg.norm("pre_mlp_layer_norm")(x)
        y = cfg.mlp()(y, deterministic)
        return constrain_embed(x + cfg.dropout(y, deterministic))


class Encoder(nn.Module):
    """The encoder's stack, with its relative positions and final norm."""

    config: T5Config

    @nn.compact
    def __call__(
        self, x: Array, bias: Array | None, deterministic: bool, taps: tuple[int, ...] = ()
    ) -> tuple[Array, dict[int, Array]]:
        """Encodes embedded tokens.

        Args:
          x: [B, S, D] embeddings.
          bias: masks as a bias, broadcastable to [B, N, S, S].
          deterministic: no dropout.
          taps: hidden states to return; 0 is the embedding (after dropout), j the output of the
            first j layers, before the final norm.

        Returns:
          The normalised output [B, S, D], and {tap: [B, S, D]}.
        """
        cfg = self.config
        x = cfg.dropout(x, deterministic).astype(cfg.dtype)
        # [1, N, S, S], computed once and shared by all layers.
        if not cfg.relpos_per_layer:
            bias = join(cfg.relpos_bias()(x.shape[1], x.shape[1], True), bias)
        x, hidden = run_layers(
            cfg,
            Layer,
            cfg.num_encoder_layers,
            "encoder",
            x,
            args=(bias, None, None, None, deterministic, False),
            taps=taps,
        )
        x = cfg.norm("encoder_norm")(x)
        # T5X shares no mask along the length here.
        return nn.Dropout(cfg.dropout_rate)(x, deterministic=deterministic), hidden


class Decoder(nn.Module):
    """The decoder's stack, up to the logits."""

    config: T5Config
    token_embedder: layers.Embed

    @nn.compact
    def __call__(
        self,
        encoded: Array,
        tokens: Array,
        bias: Array | RowMask | None,
        cross_bias: Array | RowMask | None,
        deterministic: bool,
        decode: bool = False,
        max_decode_length: int | None = None,
        per_token: PerToken | None = None,
    ) -> Any:
        """encoded [B, S, D], tokens [B, T] -> logits [B, T, V] float32, or `per_token` of them."""
        cfg = self.config
        x = cfg.dropout(self.token_embedder(tokens), deterministic).astype(cfg.dtype)
        # While decoding the input is one position, but the bias spans the whole cache.
        length = max_decode_length if decode and max_decode_length else tokens.shape[1]
        if not cfg.relpos_per_layer:
            bias = join(cfg.relpos_bias()(length, length, False, decode), bias)
        # An array, for its shape: layers that are scanned take no number.
        keys = jnp.zeros((length,), jnp.int8)
        x, _ = run_layers(
            cfg,
            Layer,
            cfg.num_decoder_layers,
            "decoder",
            x,
            args=(bias, keys, encoded, cross_bias, deterministic, decode),
        )
        x = cfg.norm("decoder_norm")(x)
        x = cfg.dropout(x, deterministic)
        return logits_of(self, Decoder._logits, x, per_token)

    def _logits(self, x: Array) -> Array:
        cfg = self.config
        if cfg.logits_via_embedding:
            # v1.0 ties the output: D^-0.5 keeps logits at the scale of an embedding with stddev 1.
            return self.token_embedder.attend(x / jnp.sqrt(cfg.emb_dim).astype(cfg.dtype))
        # v1.1 has an output projection of its own, made by the factory, so that a method may adapt
        # it.
        axes = ("embed", "vocab")
        return cfg.dense(cfg.vocab_size, axes, name="logits_dense", dtype=cfg.dtype)(x)


class Transformer(nn.Module):
    """The whole encoder-decoder. `encode` includes the side networks of the configuration."""

    config: T5Config

    def setup(self) -> None:
        cfg = self.config
        # One table for encoder and decoder, as in T5.
        self.token_embedder = layers.Embed(cfg.vocab_size, cfg.emb_dim, cfg.dtype)
        self.encoder = Encoder(cfg)
        self.decoder = Decoder(cfg, self.token_embedder)
        # The attribute's name becomes the module's: parameters live under `side.name`, which the
        # patterns of `Method.trainable` look for.
        for side in cfg.side:
            setattr(self, side.name, side.build(cfg))

    def encode(
        self,
        encoder_input_tokens: Array,
        encoder_segment_ids: Array | None = None,
        enable_dropout: bool = True,
    ) -> Array:
        """Encodes [B, S] token ids to [B, S, D], as decoding sees them."""
        # Decoding calls `encode`; the released CKL evaluation bypassed the side networks only
        # there.
        sides = () if self.config.legacy_bypass_side else self.config.side
        return self._encode(encoder_input_tokens, encoder_segment_ids, enable_dropout, sides)

    def _encode(
        self,
        tokens: Array,
        segment_ids: Array | None,
        enable_dropout: bool,
        sides: tuple[Side, ...],
    ) -> Array:
        # Token 0 is padding in T5's vocabularies.
        valid = tokens > 0
        bias = self._own_bias(valid, segment_ids, causal=False)
        taps = tuple(sorted({t for side in sides for t in side.taps}))
        embedded = self.token_embedder(tokens)
        # encoded is after the final norm; hidden states are before it.
        encoded, hidden = self.encoder(embedded, bias, not enable_dropout, taps)
        for side in sides:
            extra = getattr(self, side.name)(tokens, hidden, bias, not enable_dropout)
            # E + scale * side(...): CKL's K-Adapter and Modular change what the decoder attends to,
            # and nothing else.
            encoded = encoded + jnp.asarray(side.scale, encoded.dtype) * extra
        return encoded

    def _own_bias(self, valid: Array, segment_ids: Array | None, causal: bool) -> Array | RowMask:
        """What positions see of their own row, valid [B, T]: as a bias [B, 1, T, T], or a mask."""
        cfg, length = self.config, valid.shape[1]
        own = row_mask(cfg.attention_impl, length, segment_ids, causal, valid)
        if own is not None:
            return own
        mask = layers.padding_mask(valid, valid)
        if causal:
            mask &= layers.causal_mask(length)
        if segment_ids is not None:
            mask &= layers.segment_mask(segment_ids, segment_ids)
        return layers.mask_to_bias(mask).astype(cfg.dtype)

    def decode(
        self,
        encoded: Array,
        encoder_input_tokens: Array,
        decoder_input_tokens: Array,
        decoder_target_tokens: Array,
        encoder_segment_ids: Array | None = None,
        decoder_segment_ids: Array | None = None,
        decoder_positions: Array | None = None,
        enable_dropout: bool = True,
        decode: bool = False,
        max_decode_length: int | None = None,
        per_token: PerToken | None = None,
    ) -> Any:
        """Logits of the decoder.

        Args:
          encoded: [B, S, D] from `encode`.
          encoder_input_tokens: [B, S].
          decoder_input_tokens: [B, T] targets shifted right; one position, [B*K, 1], when
            decoding with K beams an example.
          decoder_target_tokens: [B, T].
          encoder_segment_ids, decoder_segment_ids: [B, S] and [B, T] of packed examples.
          decoder_positions: unused; T5's positions are relative. Kept for T5X's signature.
          enable_dropout: training.
          decode: use the `cache` collection.
          max_decode_length: length of that cache.
          per_token: what to make of the logits.

        Returns:
          [B, T, V] float32, or what `per_token` makes of it.
        """
        del decoder_positions
        dtype = self.config.dtype
        # [B, S]
        keys = encoder_input_tokens > 0
        if decode:
            # The cache's own mask makes decoding causal; see `layers.Attention`.
            bias, cross = None, layers.mask_to_bias(keys[:, None, None, :]).astype(dtype)
        else:
            # Of the targets, as T5X does: the inputs begin with token 0, which is not padding.
            queries = decoder_target_tokens > 0
            bias = self._own_bias(queries, decoder_segment_ids, causal=True)
            cross = None
            if decoder_segment_ids is None:
                cross = padding_row_mask(self.config.attention_impl, keys)
            if cross is None:
                mask = layers.padding_mask(queries, keys)
                if decoder_segment_ids is not None:
                    mask &= layers.segment_mask(decoder_segment_ids, encoder_segment_ids)
                cross = layers.mask_to_bias(mask).astype(dtype)
        return self.decoder(
            encoded,
            decoder_input_tokens,
            bias,
            cross,
            not enable_dropout,
            decode,
            max_decode_length,
            per_token=per_token,
        )

    def __call__(
        self,
        encoder_input_tokens: Array,
        decoder_input_tokens: Array,
        decoder_target_tokens: Array,
        encoder_segment_ids: Array | None = None,
        decoder_segment_ids: Array | None = None,
        encoder_positions: Array | None = None,
        decoder_positions: Array | None = None,
        *,
        enable_dropout: bool = True,
        decode: bool = False,
        per_token: PerToken | None = None,
    ) -> Any:
        """Teacher-forced logits [B, T, V]; see `decode` for the arguments."""
        del encoder_positions
        encoded = self._encode(
            encoder_input_tokens, encoder_segment_ids, enable_dropout, self.config.side
        )
        return self.decode(
            encoded=encoded,
            encoder_input_tokens=encoder_input_tokens,
            decoder_input_tokens=decoder_input_tokens,
            decoder_target_tokens=decoder_target_tokens,
            encoder_segment_ids=encoder_segment_ids,
            decoder_segment_ids=decoder_segment_ids,
            decoder_positions=decoder_positions,
            enable_dropout=enable_dropout,
            decode=decode,
            per_token=per_token,
        )
