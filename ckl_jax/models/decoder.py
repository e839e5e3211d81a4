"""One decoder for GPT-2, Llama, Mistral, Qwen, Gemma, OLMo, Phi, Pythia, OPT and BLOOM.

What differs between them is fields of `DecoderConfig`: norms and where they stand, rotary, learned
or linear (ALiBi) positions, heads that share keys, windows, caps, biases, gates. Which values a
family has is said by its record in `checkpoints.hf_decoder`. Methods enter at `dense` and `side` of
the configuration; the model knows none of them by name.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from ckl_jax import checks
from ckl_jax.errors import UserError
from ckl_jax.models import layers
from ckl_jax.models.decoder_context import (
    Context,
    Mask,
    make_context,
    prompt_mask,
    row_context,
    visible,
)
from ckl_jax.models.log_probs import log_probs
from ckl_jax.models.per_token import PerToken, logits_of
from ckl_jax.models.rope import frequencies
from ckl_jax.models.splash import RowMask, row_mask
from ckl_jax.models.stack import StackConfig, constrain_embed, run_layers

Array = jax.Array

NORMS = ("rms", "layer")
PLACES = ("before", "after", "output", "both", "mlp")
POSITIONS = ("rope", "learned", "alibi")
QK_NORMS = (None, "head", "flat")
INIT_STDDEV = 0.02


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderConfig(StackConfig):
    """Hyper-parameters beside those of every stack; the defaults are Llama's.

    Attributes:
      family: the `model_type` at Hugging Face, which decides the names of parameters there.
      num_kv_heads: K, keys and values of a layer; None is N.
      norm_kind: "rms" or "layer".
      norm_bias: whether norms of the kind "layer" have one.
      norm_plus_one: factors are 1 + scale, and applied in float32 (Gemma).
      norm_place: of both branches of a layer: "before", "after" the sum with its input, on the
        branch's "output", or "both" before the branch and on its output; "mlp" is before the
        feed-forward alone.
      parallel: attention and feed-forward read the layer's input, and both are added to it.
      embed_norm, final_norm: whether there is a norm after the embedding, and after the last layer.
      qk_norm: norms of queries and keys: None, of each "head", or "flat", of all heads at once.
      query_scale: factor of queries; None is 1/sqrt(H).
      attention_softcap, logits_softcap: c of c tanh(x / c); None is none.
      positions: "rope", "learned" or "alibi".
      position_offset: rows of the table of learned positions before the first.
      layer_types: repeated over the layers, such as ("sliding", "full").
      ropes: {layer type: settings of `rope.frequencies`}; layers of other types turn nothing.
      rotary_dim: R, dimensions of a head that are turned; None is H.
      window: w, how far layers of the type "sliding" look back, themselves included.
      embed_scale: factor of the token embedding as an input.
      table_dim: width of the token embedding where projections bring it to D and back; None is D.
      attention_bias: projections of attention that have a bias.
      mlp_bias: whether those of the feed-forward have.
      mlp_activations: one, or two for a gated feed-forward.
      logits_via_embedding: the output is the token embedding.
    """

    causal: ClassVar[bool] = True  # an encoder's windows reach to both sides
    memory_dim: ClassVar[int | None] = None  # width of what cross-attention reads, if there is one

    family: str = "llama"
    vocab_size: int = 32000
    layer_norm_epsilon: float = 1e-6
    dropout_rate: float = 0.0
    num_kv_heads: int | None = None
    norm_kind: str = "rms"
    norm_bias: bool = True
    norm_plus_one: bool = False
    norm_place: str = "before"
    parallel: bool = False
    embed_norm: bool = False
    final_norm: bool = True
    qk_norm: str | None = None
    query_scale: float | None = None
    attention_softcap: float | None = None
    logits_softcap: float | None = None
    positions: str = "rope"
    position_offset: int = 0
    layer_types: tuple[str, ...] = ("full",)
    ropes: Any = (("full", (("rope_theta", 10000.0),)),)
    rotary_dim: int | None = None
    window: int | None = None
    embed_scale: float = 1.0
    table_dim: int | None = None
    attention_bias: tuple[str, ...] = ()
    mlp_bias: bool = False
    mlp_activations: tuple[str, ...] = ("silu", "linear")
    logits_via_embedding: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("layer_types", "attention_bias", "mlp_activations"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        ropes = {k: {"rope_type": "default", **dict(v)} for k, v in dict(self.ropes).items()}
        object.__setattr__(self, "ropes", _hashable(ropes))
        checks.require_choice(NORMS, **self._named("norm_kind"))
        checks.require_choice(PLACES, **self._named("norm_place"))
        checks.require_choice(POSITIONS, **self._named("positions"))
        if self.qk_norm is not None:
            checks.require_choice(QK_NORMS[1:], **self._named("qk_norm"))
        for name in ("num_kv_heads", "rotary_dim", "window", "table_dim"):
            if getattr(self, name) is not None:
                checks.require_size(**self._named(name))
        checks.require_names(layers.ATTENTION, empty=True, **self._named("attention_bias"))
        checks.require_names(layers.ACTIVATIONS, **self._named("mlp_activations"))
        if self.num_heads % self.groups:
            raise UserError(
                f"DecoderConfig.num_kv_heads is {self.groups}, which does not divide num_heads, "
                f"{self.num_heads}."
            )
        for settings in ropes.values() if self.positions == "rope" else ():
            frequencies(settings, self.rotary_dim or self.head_dim, self.max_positions)
        if "sliding" in self.layer_types and self.window is None:
            raise UserError(
                "DecoderConfig.window is None, and layers of the type 'sliding' need it."
            )

    @property
    def not_for_splash(self) -> str | None:
        return "ALiBi adds to the logits" if self.positions == "alibi" else None

    @property
    def first(self) -> "DecoderConfig | None":
        """The configuration of the first layer, if it differs from the others."""
        return None

    def _named(self, name: str) -> dict[str, Any]:
        return {f"DecoderConfig.{name}": getattr(self, name)}

    @property
    def groups(self) -> int:
        return self.num_kv_heads or self.num_heads

    @property
    def output_is_embedding(self) -> bool:
        return self.logits_via_embedding and self.table_dim is None

    @property
    def stack(self) -> tuple[str, int]:
        """The name of the stack of layers, and its depth."""
        return "decoder", self.num_layers

    @property
    def tapped(self) -> tuple[str, int]:
        """The stack whose hidden states side networks read, and its depth."""
        return self.stack

    @property
    def projections(self) -> tuple[str, ...]:
        """Names of the projections that `dense` makes, for methods that choose some."""
        gated = len(self.mlp_activations) > 1
        return (*layers.ATTENTION, *(("wi_0", "wi_1") if gated else ("wi",)), "wo")

    @property
    def kinds(self) -> tuple[str, ...]:
        """The types of layers that occur, in order."""
        return tuple(dict.fromkeys(self.types))

    @property
    def types(self) -> tuple[str, ...]:
        """The type of each layer."""
        repeats = -(-self.num_layers // len(self.layer_types))
        return (self.layer_types * repeats)[: self.num_layers]

    def norm(self, name: str, axis: str = "embed") -> nn.Module:
        if self.norm_kind == "layer":
            return layers.LayerNorm(self.layer_norm_epsilon, self.dtype, self.norm_bias, name=name)
        return layers.RMSNorm(
            self.layer_norm_epsilon,
            self.dtype,
            plus_one=self.norm_plus_one,
            scale_first=self.norm_plus_one or self.norm_place == "output",
            axis=axis,
            name=name,
        )

    def attention(self, name: str) -> layers.Attention:
        return layers.Attention(
            self.num_heads,
            self.head_dim,
            self.dropout_rate,
            self.dense,
            self.dtype,
            self.float32_attention_logits,
            use_bias=self.attention_bias,
            scale_query=True if self.query_scale is None else self.query_scale,
            kernel_init=nn.initializers.normal(INIT_STDDEV),
            out_init=nn.initializers.normal(INIT_STDDEV / np.sqrt(2 * self.num_layers)),
            num_kv_heads=self.groups,
            qk_norm=self.qk_norm and (self.qk_norm, self.norm),
            softcap=self.attention_softcap,
            implementation=self.attention_impl,
            name=name,
        )

    def mlp(self) -> layers.MlpBlock:
        return layers.MlpBlock(
            self.mlp_dim,
            self.mlp_activations,
            0.0,
            self.dense,
            self.dtype,
            use_bias=self.mlp_bias,
            kernel_init=nn.initializers.normal(INIT_STDDEV),
            out_init=nn.initializers.normal(INIT_STDDEV / np.sqrt(2 * self.num_layers)),
            name="mlp",
        )

    def side_layer(
        self, i: int, x: Array, bias: Context | Mask, deterministic: bool, decode: bool
    ) -> Array:
        """Layer `i` of a side network: a layer of the first type, with a cache of its own.

        An encoder's is given the bias of the mask, see `row_context`, a decoder's the `Context`.
        """
        context = bias if self.causal else row_context(self, x.shape[1], bias)
        return DecoderLayer(self, name=f"layers_{i}")(x, 0, *context, deterministic, decode)


def _hashable(value: Any) -> Any:
    """Mappings as sorted pairs and lists as tuples, all the way down."""
    if isinstance(value, Mapping):
        return tuple((k, _hashable(v)) for k, v in sorted(value.items()))
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention where there is a memory, and feed-forward, with the norms
    that the configuration says."""

    config: DecoderConfig

    @nn.compact
    def __call__(
        self,
        x: Array,
        kind: Array | int,
        cosines: Array | None,
        sines: Array | None,
        bias: Mask,
        memory: Array | None,
        memory_bias: Array | None,
        deterministic: bool,
        decode: bool,
    ) -> Array:
        """x [B, T, D], kind [] (the index of its type), and a `Context` -> [B, T, D]."""
        cfg = self.config
        x = constrain_embed(x)
        cosines, sines, bias = (_of_kind(a, kind) for a in (cosines, sines, bias))
        rotation = None if cosines is None else (cosines, sines)

        def attention(y: Array) -> Array:
            y = cfg.attention("self_attention")(y, y, bias, deterministic, decode, rotation)
            return cfg.dropout(y, deterministic)

        def cross_attention(y: Array) -> Array:
            y = cfg.attention("encoder_decoder_attention")(y, memory, memory_bias, deterministic)
            return cfg.dropout(y, deterministic)

        def mlp(y: Array) -> Array:
            return cfg.dropout(cfg.mlp()(y, deterministic), deterministic)

        if cfg.parallel:
            one = attention(cfg.norm("pre_self_attention_layer_norm")(x))
            return constrain_embed(x + one + mlp(cfg.norm("pre_mlp_layer_norm")(x)))
        x = self._branch(x, attention, "self_attention_layer_norm")
        if memory is not None:
            x = self._branch(x, cross_attention, "cross_attention_layer_norm")
        return constrain_embed(self._branch(x, mlp, "mlp_layer_norm"))

    def _branch(self, x: Array, branch: Any, name: str) -> Array:
        cfg = self.config
        place, before, after = cfg.norm_place, f"pre_{name}", f"post_{name}"
        is_before = place in ("before", "both") or (place == "mlp" and name.startswith("mlp"))
        y = cfg.norm(before)(x) if is_before else x
        y = branch(y)
        if place in ("output", "both"):
            y = cfg.norm(after)(y)
        y = x + y
        return cfg.norm(after)(y) if place == "after" else y


def _of_kind(tables: Mask, kind: Array | int) -> Mask:
    """The table of a type of layer; with one type there is nothing to choose."""
    if isinstance(tables, RowMask):
        return tables.of_kind(kind)
    return None if tables is None else tables[0] if len(tables) == 1 else tables[kind]


class Decoder(nn.Module):
    """The stack, from embeddings to the state behind the last norm."""

    config: DecoderConfig

    @nn.compact
    def __call__(
        self,
        x: Array,
        positions: Array,
        context: Context,
        deterministic: bool,
        decode: bool = False,
        taps: tuple[int, ...] = (),
    ) -> tuple[Array, dict[int, Array]]:
        """x [B, T, table width], positions [B or 1, T] -> [B, T, D], {tap: state}.

        Hidden state 0 is the input of the first layer, j the output of the first j layers.
        """
        cfg = self.config
        if cfg.table_dim is not None:
            x = _projection(cfg, cfg.emb_dim, ("joined_kv", "embed"), "embed_dense")(x)
        if cfg.positions == "learned":
            table = layers.PositionEmbed(
                cfg.max_positions + cfg.position_offset,
                cfg.emb_dim,
                cfg.dtype,
                name="position_embedder",
            )
            x = x + table(positions + cfg.position_offset)
        if cfg.embed_norm:
            x = cfg.norm("embed_norm")(x)
        x = cfg.dropout(x, deterministic).astype(cfg.dtype)
        kinds = np.asarray([cfg.kinds.index(t) for t in cfg.types], np.int32)
        stack, count = cfg.stack
        x, hidden = run_layers(
            cfg,
            DecoderLayer,
            count,
            stack,
            x,
            args=(*context, deterministic, decode),
            each=(kinds,),
            taps=taps,
            first=cfg.first,
        )
        return cfg.norm(f"{stack}_norm")(x) if cfg.final_norm else x, hidden


def _projection(cfg: DecoderConfig, features: int, axes: tuple[str, str], name: str) -> nn.Module:
    init = nn.initializers.normal(INIT_STDDEV)
    return layers.Dense(features, axes, init, cfg.dtype, name=name)


def output(cfg: DecoderConfig) -> nn.Module:
    """The projection to logits where they are not of the token embedding."""
    return _projection(cfg, cfg.vocab_size, ("embed", "vocab"), "logits_dense")


def capped(logits: Array, cap: float | None) -> Array:
    """c tanh(x / c) of each logit."""
    return cap * jnp.tanh(logits.astype(jnp.float32) / cap) if cap else logits


class Transformer(nn.Module):
    """The whole language model, side networks of the configuration included."""

    config: DecoderConfig

    def setup(self) -> None:
        cfg = self.config
        init = nn.initializers.normal(INIT_STDDEV)
        width = cfg.table_dim or cfg.emb_dim
        self.token_embedder = layers.Embed(cfg.vocab_size, width, cfg.dtype, init)
        self.decoder = Decoder(cfg)
        if cfg.table_dim is not None:
            axes = ("embed", "joined_kv")
            self.output_dense = _projection(cfg, cfg.table_dim, axes, "output_dense")
        if not cfg.logits_via_embedding:
            self.logits_dense = output(cfg)
        self.cache_positions = CachePositions()
        for side in cfg.side:
            setattr(self, side.name, side.build(cfg))

    def __call__(
        self,
        decoder_input_tokens: Array,
        decoder_target_tokens: Array,
        decoder_segment_ids: Array | None = None,
        decoder_positions: Array | None = None,
        decoder_causal_attention: Array | None = None,
        *,
        enable_dropout: bool = True,
        decode: bool = False,
        max_decode_length: int | None = None,
        prefill: bool = False,
        prefill_lengths: Array | None = None,
        prefill_width: int = 0,
        per_token: PerToken | None = None,
    ) -> Any:
        """Logits of the next token at every position.

        Args:
          decoder_input_tokens: [B, T]; with `decode` the next positions, [B*K, 1] with K beams.
          decoder_target_tokens: unused; kept for T5X's signature.
          decoder_segment_ids: [B, T], from 1, of packed rows; 0 is padding, which nothing sees.
            Without them every position sees those before it: padding on the right needs no more.
          decoder_positions: [B, T]; None counts from 0 along the row.
          decoder_causal_attention: [B, T], 1 on a prefix whose positions see each other, as in
            T5X's prefix language models.
          enable_dropout: training.
          decode: use the `cache` collection. The first call only sizes it.
          max_decode_length: S, the length of the cache; needed with `prefill_lengths`.
          prefill: unused: a call with `decode` takes any number of positions.
          prefill_lengths: [B], with `decode`: how many of the first `prefill_width` positions of
            the cache are a row's prompt. The rest of them is padding: nothing sees it, and
            positions go on behind the prompt as if it were not there.
          prefill_width: see `prefill_lengths`.
          per_token: what to make of the logits.

        Returns:
          [B, T, V] float32, or what `per_token` makes of it.
        """
        del decoder_target_tokens, prefill
        length = decoder_input_tokens.shape[1]
        if decode:
            positions = self.cache_positions(length)[None]
            size = max_decode_length or length
            keys, mask = jnp.arange(size)[None], None
            if prefill_lengths is not None:
                mask = prompt_mask(prefill_lengths, prefill_width, size)
                # Positions behind a short prompt are counted without its padding.
                padding = (prefill_width - prefill_lengths)[:, None]
                positions, keys = (
                    p - jnp.where(p < prefill_width, 0, padding) for p in (positions, keys)
                )
        else:
            positions = jnp.arange(length)[None]
            if decoder_positions is not None:
                positions = decoder_positions
            keys, mask = positions, None
            if decoder_causal_attention is None and not self.config.not_for_splash:
                mask = row_mask(self.config.attention_impl, length, decoder_segment_ids, True)
            if mask is None:
                mask = visible(length, decoder_segment_ids, decoder_causal_attention)
        context = make_context(self.config, positions, keys, mask)
        deterministic = not enable_dropout
        x = self._states(decoder_input_tokens, positions, context, deterministic, decode)
        return logits_of(self, Transformer._logits, x, per_token)

    def _logits(self, x: Array) -> Array:
        tied = self.config.logits_via_embedding
        logits = self.token_embedder.attend(x) if tied else self.logits_dense(x)
        return capped(logits, self.config.logits_softcap)

    def score_tree(
        self, tokens: Array, positions: Array, ends: Array, parents: Array, targets: Array
    ) -> Array:
        """Log probabilities of the edges of trees; see `DecoderOnlyModel.score_tree`."""
        context = make_context(self.config, positions, positions, layers.subtree_mask(ends))
        x = self._states(tokens, positions, context, deterministic=True)
        table = self.token_embedder.embedding
        if not self.config.logits_via_embedding:
            table = self.logits_dense.variables["params"]["kernel"].T
        dtype, cap = self.config.dtype, self.config.logits_softcap
        return log_probs(x.astype(dtype), table.astype(dtype), None, parents, targets, cap)

    def _states(
        self,
        tokens: Array,
        positions: Array,
        context: Context,
        deterministic: bool,
        decode: bool = False,
    ) -> Array:
        """The input of the output layer, [B, T, table width], side networks included."""
        cfg = self.config
        sides = () if cfg.legacy_bypass_side else cfg.side
        taps = tuple(sorted({t for side in sides for t in side.taps}))
        x = self.token_embedder(tokens)
        # Rounded to the activations' dtype, as transformers does.
        x = x * jnp.asarray(cfg.embed_scale, x.dtype)
        x, hidden = self.decoder(x, positions, context, deterministic, decode, taps)
        for side in sides:
            extra = getattr(self, side.name)(tokens, hidden, context, deterministic, decode)
            x = x + jnp.asarray(side.scale, x.dtype) * extra
        return x if cfg.table_dim is None else self.output_dense(x)


class CachePositions(nn.Module):
    """The positions of the next tokens in the cache; counts them in `position_embedder_index`."""

    @nn.compact
    def __call__(self, length: int) -> Array:
        """[T]; the first call only makes the counter, as in `layers.Attention`."""
        ready = self.has_variable("cache", "position_embedder_index")
        index = self.variable("cache", "position_embedder_index", jnp.zeros, (), jnp.int32)
        positions = index.value + jnp.arange(length)
        # The call that creates the cache must not advance it: `eval_shape` only asks for its
        # shapes.
        if ready:
            index.value = index.value + length
        return positions
