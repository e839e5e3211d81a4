"""BERT, RoBERTa and ELECTRA's generator in linen: encoders that fill masked tokens.

Devlin et al. 2019, "BERT"; Liu et al. 2019, "RoBERTa"; Clark et al. 2020, "ELECTRA". Norms come
after each block and after the embeddings, positions are learned, projections have biases, the
activation is GELU in its exact form, and the output is a transformed state against the embedding.
RoBERTa is the same network; its first position is row 2 of its table, and it has one type of
tokens. ELECTRA's embeddings may be narrower than the stack.
"""

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from ckl_jax import checks
from ckl_jax.models import layers
from ckl_jax.models.splash import RowMask, row_mask
from ckl_jax.models.stack import StackConfig, constrain_embed, run_layers

Array = jax.Array
Mask = Array | RowMask | None

_INIT = nn.initializers.normal(0.02)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertConfig(StackConfig):
    """Hyper-parameters; the defaults are those of bert-base-cased.

    Attributes:
      position_offset: row of the position table that the first token gets; RoBERTa: 2.
      token_types: kinds of tokens that have an embedding; RoBERTa: 1, DistilBERT: 0.
      layer_norm_epsilon: of all norms; RoBERTa: 1e-5.
      table_dim: E, width of the embeddings of ELECTRA, and of the state that is compared with
        them; a projection brings them to D if that is another. None is D, without a projection.
      head_bias: whether the projection of the head has a bias.
    """

    output_is_embedding = False  # there is a bias for each token
    head_bias: ClassVar[bool] = True

    vocab_size: int = 28996
    max_positions: int = 512
    layer_norm_epsilon: float = 1e-12
    position_offset: int = 0
    token_types: int = 2
    table_dim: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.require_int(0, **{"BertConfig.token_types": self.token_types})
        if self.table_dim is not None:
            checks.require_size(**{"BertConfig.table_dim": self.table_dim})

    @property
    def tapped(self) -> tuple[str, int]:
        """The stack whose hidden states side networks read, and its depth."""
        return "encoder", self.num_layers

    def attention(self) -> layers.Attention:
        return layers.Attention(
            self.num_heads,
            self.head_dim,
            self.dropout_rate,
            self.dense,
            self.dtype,
            self.float32_attention_logits,
            use_bias=True,
            scale_query=True,
            kernel_init=_INIT,
            out_init=_INIT,
            implementation=self.attention_impl,
            name="attention",
        )

    def mlp(self) -> layers.MlpBlock:
        return layers.MlpBlock(
            self.mlp_dim,
            ("gelu_exact",),
            0.0,
            self.dense,
            self.dtype,
            use_bias=True,
            kernel_init=_INIT,
            out_init=_INIT,
            name="mlp",
        )

    def side_layer(self, i: int, x: Array, bias: Mask, deterministic: bool, decode: bool) -> Array:
        """Layer `i` of a side network: a block of BERT. There is nothing to decode."""
        del decode
        return EncoderLayer(self, name=f"layers_{i}")(x, bias, deterministic)


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each added before it is normalised."""

    config: BertConfig

    @nn.compact
    def __call__(self, x: Array, bias: Mask, deterministic: bool) -> Array:
        """x [B, T, D], a bias broadcastable to [B, N, T, T] or a mask -> [B, T, D]."""
        cfg = self.config
        x = constrain_embed(x)
        y = cfg.attention()(x, x, bias, deterministic)
        # Post-norm: the residual is added before the norm, unlike T5 and GPT-2.
        x = cfg.norm("post_attention_layer_norm")(x + cfg.dropout(y, deterministic))
        y = cfg.mlp()(x, deterministic)
        return constrain_embed(cfg.norm("post_mlp_layer_norm")(x + cfg.dropout(y, deterministic)))


class Encoder(nn.Module):
    """The stack, from token embeddings to the last block's state."""

    config: BertConfig

    @nn.compact
    def __call__(
        self,
        x: Array,
        bias: Mask,
        deterministic: bool,
        taps: tuple[int, ...],
        positions: Array,
        types: Array,
    ) -> tuple[Array, dict[int, Array]]:
        """x [B, T, table width], positions and types [B, T] or [1, T] -> [B, T, D], {tap: state}.

        Hidden state 0 is the input of the first layer, j the output of the first j layers.
        """
        cfg = self.config
        # RoBERTa reserves the rows below the offset for padding; they stay in the table, so that
        # its checkpoints import without a change of shape.
        rows = cfg.max_positions + cfg.position_offset
        place = layers.PositionEmbed(rows, x.shape[-1], cfg.dtype, name="position_embedder")
        if cfg.token_types:
            kind = layers.PositionEmbed(
                cfg.token_types, x.shape[-1], cfg.dtype, name="token_type_embedder"
            )
            x = x + kind(types)
        x = x + place(positions + cfg.position_offset)
        # BERT normalises the embeddings before the first block, and drops out after the norm.
        x = cfg.dropout(cfg.norm("embedding_layer_norm")(x), deterministic).astype(cfg.dtype)
        if x.shape[-1] != cfg.emb_dim:
            x = layers.Dense(
                cfg.emb_dim,
                ("joined_kv", "embed"),
                _INIT,
                cfg.dtype,
                use_bias=True,
                name="embed_dense",
            )(x)
        return run_layers(
            cfg, EncoderLayer, cfg.num_layers, "encoder", x, args=(bias, deterministic), taps=taps
        )


class Head(nn.Module):
    """The transformation between the last hidden state and the output embedding."""

    config: BertConfig

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[..., D] -> [..., table width]."""
        cfg = self.config
        dense = layers.Dense(
            cfg.table_dim or cfg.emb_dim,
            ("embed", "joined_kv"),
            _INIT,
            cfg.dtype,
            use_bias=cfg.head_bias,
            name="dense",
        )
        # Transform, GELU, norm: `cls.predictions.transform` (BERT), `lm_head.dense` (RoBERTa) in
        # transformers.
        return cfg.norm("layer_norm")(layers.activate("gelu_exact", dense(x)))


class Transformer(nn.Module):
    """The whole masked language model, side networks of the configuration included."""

    encoder_cls: ClassVar[Any] = Encoder

    config: BertConfig

    def setup(self) -> None:
        cfg = self.config
        width = cfg.table_dim or cfg.emb_dim
        self.token_embedder = layers.Embed(cfg.vocab_size, width, cfg.dtype, _INIT)
        self.encoder = self.encoder_cls(cfg)
        self.head = Head(cfg)
        self.output_bias = layers.Bias(cfg.vocab_size, "vocab")
        for side in cfg.side:
            setattr(self, side.name, side.build(cfg))

    def __call__(
        self,
        encoder_input_tokens: Array,
        encoder_segment_ids: Array | None = None,
        encoder_positions: Array | None = None,
        encoder_token_types: Array | None = None,
        target_positions: Array | None = None,
        *,
        enable_dropout: bool = True,
    ) -> Array:
        """Logits of the token at every position, or at `target_positions`.

        Args:
          encoder_input_tokens: [B, T], special tokens and masks among them.
          encoder_segment_ids: [B, T], from 1, of packed rows; 0 is padding, which nothing sees.
            None: no padding.
          encoder_positions: [B, T]; None counts from 0 along the row.
          encoder_token_types: [B, T]; None is 0 everywhere.
          target_positions: [B, M], the positions whose logits are wanted; None is all.
          enable_dropout: training.

        Returns:
          [B, T, V] or [B, M, V] float32.
        """
        cfg, tokens = self.config, encoder_input_tokens
        # [1, T]
        line = jnp.arange(tokens.shape[1])[None]
        positions = line if encoder_positions is None else encoder_positions
        types = jnp.zeros_like(line) if encoder_token_types is None else encoder_token_types
        bias, ids = None, encoder_segment_ids
        if (own := row_mask(cfg.attention_impl, tokens.shape[1], ids, causal=False)) is not None:
            bias = own
        elif ids is not None:
            # [B, 1, T, T]: same text, and the key is not padding. Padding queries see nothing, and
            # attend evenly to everything, which no other position reads.
            mask = layers.segment_mask(ids, ids) & (ids > 0)[:, None, None, :]
            bias = layers.mask_to_bias(mask).astype(cfg.dtype)
        sides = () if cfg.legacy_bypass_side else cfg.side
        taps = tuple(sorted({t for side in sides for t in side.taps}))
        x = self.token_embedder(tokens)
        x, hidden = self.encoder(x, bias, not enable_dropout, taps, positions, types)
        for side in sides:
            extra = getattr(self, side.name)(tokens, hidden, bias, not enable_dropout)
            x = x + jnp.asarray(side.scale, x.dtype) * extra
        # Before the output projection, which is the larger part of the cost: [B, M, D] instead of
        # [B, T, D].
        if target_positions is not None:
            x = jnp.take_along_axis(x, target_positions[..., None], axis=1)
        logits = self.token_embedder.attend(self.head(x)).astype(jnp.float32)
        return layers.constrain(self.output_bias(logits), ("batch", "length", "vocab"))
