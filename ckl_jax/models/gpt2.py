"""GPT-2 in linen, with T5X's call signature for decoders and parameter paths in its style.

Radford et al. 2019, "Language Models are Unsupervised Multitask Learners". Norms come before each
block and once after the last, positions are learned, projections have biases, the activation is
the tanh form of GELU (`gelu_new`), and the output is tied to the embedding. Query, key and value
are projections of their own, so that methods choose them as on T5. Methods enter at `dense` and
`side` of the configuration; the model knows none of them by name.
"""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from ckl_jax.models import layers
from ckl_jax.models.stack import StackConfig, constrain_embed, run_layers

Array = jax.Array

_INIT_STDDEV = 0.02


@dataclasses.dataclass(frozen=True)
class GPT2Config(StackConfig):
    """Hyper-parameters; the defaults are GPT-2 small's.

    `vocab_size` is 50257, or 50262 with the five tokens that TemporalWiki adds. With
    `legacy_bypass_side` the side networks are never called, neither in training nor afterwards,
    which is what the released GPT-2 code did.
    """

    @property
    def tapped(self) -> tuple[str, int]:
        """The stack whose hidden states side networks read, and its depth."""
        return "decoder", self.num_layers

    @property
    def inits(self) -> dict[str, Any]:
        """Initial values of a block's kernels: those that end a residual branch are smaller."""
        return {
            "kernel_init": nn.initializers.normal(_INIT_STDDEV),
            # Radford et al. 2019, section 2.3: scaled by 1/sqrt(number of residual branches), two a
            # layer.
            "out_init": nn.initializers.normal(_INIT_STDDEV / np.sqrt(2 * self.num_layers)),
        }

    def attention(self, name: str) -> layers.Attention:
        return layers.Attention(
            self.num_heads,
            self.head_dim,
            self.dropout_rate,
            self.dense,
            self.dtype,
            self.float32_attention_logits,
            use_bias=True,
            scale_query=True,
            **self.inits,
            implementation=self.attention_impl,
            name=name,
        )

    def mlp(self) -> layers.MlpBlock:
        return layers.MlpBlock(
            self.mlp_dim,
            ("gelu",),
            0.0,
            self.dense,
            self.dtype,
            use_bias=True,
            **self.inits,
            name="mlp",
        )

    def side_layer(
        self, i: int, x: Array, bias: Array | None, deterministic: bool, decode: bool
    ) -> Array:
        """Layer `i` of a side network: a block of GPT-2, causal, with a cache of its own."""
        return DecoderLayer(self, name=f"layers_{i}")(x, bias, deterministic, decode)


class DecoderLayer(nn.Module):
    """Causal self-attention and feed-forward, each normalised before and added after."""

    config: GPT2Config

    @nn.compact
    def __call__(self, x: Array, bias: Array | None, deterministic: bool, decode: bool) -> Array:
        """x [B, T, D], bias broadcastable to [B, N, T, S] -> [B, T, D]."""
        cfg = self.config
        x = constrain_embed(x)
        y = cfg.norm("pre_self_attention_layer_norm")(x)
        y = cfg.attention("self_attention")(y, y, bias, deterministic, decode)
        x = x + cfg.dropout(y, deterministic)
        y = cfg.norm("pre_mlp_layer_norm")(x)
        y = cfg.mlp()(y, deterministic)
        return constrain_embed(x + cfg.dropout(y, deterministic))


class Decoder(nn.Module):
    """The stack, from embeddings to the state behind the last norm."""

    config: GPT2Config

    @nn.compact
    def __call__(
        self,
        x: Array,
        positions: Array,
        bias: Array | None,
        deterministic: bool,
        decode: bool = False,
        taps: tuple[int, ...] = (),
    ) -> tuple[Array, dict[int, Array]]:
        """x [B, T, D] token embeddings, positions [B, T] or [1, T] -> [B, T, D], {tap: state}.

        Hidden state 0 is the sum of both embeddings (after dropout), j the output of the first j
        layers, before the last norm.
        """
        cfg = self.config
        table = layers.PositionEmbed(
            cfg.max_positions, cfg.emb_dim, cfg.dtype, name="position_embedder"
        )
        x = cfg.dropout(x + table(positions), deterministic).astype(cfg.dtype)
        x, hidden = run_layers(
            cfg,
            DecoderLayer,
            cfg.num_layers,
            "decoder",
            x,
            args=(bias, deterministic, decode),
            taps=taps,
        )
        return cfg.norm("decoder_norm")(x), hidden


class Transformer(nn.Module):
    """The whole language model, side networks of the configuration included."""

    config: GPT2Config

    def setup(self) -> None:
        cfg = self.config
        init = nn.initializers.normal(_INIT_STDDEV)
        self.token_embedder = layers.Embed(cfg.vocab_size, cfg.emb_dim, cfg.dtype, init)
        self.decoder = Decoder(cfg)
        # The position counter is shared by all layers; each attention has a counter of its own
        # besides, as T5X's have.
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
        per_token: layers.PerToken | None = None,
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
        # Decoding: positions come from the cache's counter, and the mask within the cache from each
        # attention, which hides what is not filled yet.
        if decode:
            positions, mask = self.cache_positions(length)[None], None
            if prefill_lengths is not None:
                size = max_decode_length or length
                mask = prompt_mask(prefill_lengths, prefill_width, size)
                # A short prompt leaves a gap of padding in the cache; positions behind it are
                # counted without it.
                padding = (prefill_width - prefill_lengths)[:, None]
                positions = positions - jnp.where(positions < prefill_width, 0, padding)
        # Training and scoring: positions along the row, all masks known here.
        else:
            positions = jnp.arange(length)[None]
            mask = visible(length, decoder_segment_ids, decoder_causal_attention)
        if decoder_positions is not None:
            positions = decoder_positions
        x = self._states(decoder_input_tokens, positions, mask, not enable_dropout, decode)
        return layers.logits_of(self, lambda model, x: model.token_embedder.attend(x), x, per_token)

    def score_tree(
        self, tokens: Array, positions: Array, ends: Array, parents: Array, targets: Array
    ) -> Array:
        """Log probabilities of the edges of trees; see `DecoderOnlyModel.score_tree`."""
        mask = layers.subtree_mask(ends)
        # No cache and no dropout: trees are scored in one forward pass.
        x = self._states(tokens, positions, mask, deterministic=True)
        return self.token_embedder.log_probs(x, parents, targets)

    def _states(
        self,
        tokens: Array,
        positions: Array,
        mask: Array | None,
        deterministic: bool,
        decode: bool = False,
    ) -> Array:
        """The input of the output layer, [B, T, D], side networks included."""
        cfg = self.config
        # The mask as a bias that is added to attention logits: [B or 1, 1, T, S].
        bias = None if mask is None else layers.mask_to_bias(mask).astype(cfg.dtype)
        sides = () if cfg.legacy_bypass_side else cfg.side
        taps = tuple(sorted({t for side in sides for t in side.taps}))
        x = self.token_embedder(tokens)
        x, hidden = self.decoder(x, positions, bias, deterministic, decode, taps)
        for side in sides:
            extra = getattr(self, side.name)(tokens, hidden, bias, deterministic, decode)
            # Cast, so that no scalar promotes bfloat16 activations.
            x = x + jnp.asarray(side.scale, x.dtype) * extra
        return x


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


def visible(length: int, segment_ids: Array | None, prefix: Array | None) -> Array:
    """Which position sees which, broadcastable to [B, 1, T, T]."""
    mask = layers.causal_mask(length)
    if prefix is not None:
        mask = mask | layers.padding_mask(prefix > 0, prefix > 0)
    if segment_ids is not None:
        mask = mask & layers.segment_mask(segment_ids, segment_ids)
        # Segment 0 is padding, which segment_mask alone would let see itself.
        mask = mask & (segment_ids > 0)[:, None, None, :]
    return mask


def prompt_mask(lengths: Array, width: int, size: int) -> Array:
    """[B, 1, 1, S]: false on the padding behind each prompt, the first `width` of S positions."""
    positions = jnp.arange(size)[None]
    seen = (positions < lengths[:, None]) | (positions >= width)
    return seen[:, None, None, :]
