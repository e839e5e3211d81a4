"""Transformer-XL in linen, with T5X's call signature for decoders and paths in its style.

Dai et al. 2019, "Transformer-XL: Attentive Language Models beyond a Fixed-Length Context". Layers
attend to their own inputs of earlier chunks (the memory), and positions enter as distances. Norms
come after each block and none after the last, query, key and value have no biases, the output is
tied to the embedding and has a bias. As in the Haiku models of the authors of "Mind the Gap", each
layer has its own `content_query` and `position_query` (u and v of the paper), and `out` has a bias.

Letters beside those of `layers`: M slots of the memory, S = M + T keys.
"""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from ckl_jax import checks
from ckl_jax.errors import UserError
from ckl_jax.models import layers
from ckl_jax.models.attention import attend
from ckl_jax.models.stack import StackConfig, constrain_embed, run_layers

Array = jax.Array
Memory = dict[str, Array]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerXLConfig(StackConfig):
    """Hyper-parameters; see `StackConfig` for the others.

    The defaults have the depth, width and vocabulary that "Mind the Gap" gives; it states neither
    the heads nor `mlp_dim`.

    Attributes:
      max_positions: the longest row; no parameter depends on it.
      activation: of the feed-forward block, one of `layers.ACTIVATIONS`; the first release of
        Transformer-XL has "relu".
      clamp_len: distances beyond it count as it; None clamps none.
      same_length: every position sees itself and the M before it, however long the chunk is.
      scale_embedding: multiply embeddings by sqrt(D), as the first release does.
      reset_at_doc: a position sees its own document only, in the row and in the memory.
      init_stddev: standard deviation of all initial values; None for those of the Haiku models:
        variance 2/L over the fan in, and for the embedding 1 over D.
    """

    output_is_embedding = False  # there is a bias for each token

    vocab_size: int = 50259
    emb_dim: int = 1024
    num_heads: int = 16
    num_layers: int = 18
    head_dim: int = 64
    mlp_dim: int = 4096
    max_positions: int = 1 << 20
    activation: str = "gelu"
    clamp_len: int | None = None
    same_length: bool = False
    scale_embedding: bool = False
    reset_at_doc: bool = True
    init_stddev: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.require_choice(layers.ACTIVATIONS, ACTIVATION=self.activation)
        checks.require_int(CLAMP_LEN=self.clamp_len)
        checks.require_positive(INIT_STDDEV=self.init_stddev)
        checks.require_bool(
            SAME_LENGTH=self.same_length,
            SCALE_EMBEDDING=self.scale_embedding,
            RESET_AT_DOC=self.reset_at_doc,
        )
        if self.emb_dim % 2:
            raise UserError(f"TransformerXLConfig.emb_dim is {self.emb_dim}; give an even number.")

    @property
    def not_for_splash(self) -> str:
        return "Transformer-XL adds relative positions to the logits"

    @property
    def projections(self) -> tuple[str, ...]:
        return (*layers.ATTENTION, "relative", "wi", "wo")

    @property
    def tapped(self) -> tuple[str, int]:
        raise UserError(
            "the layers of a Transformer-XL read a memory of their own inputs, which a side "
            "network does not have; choose a method without one."
        )

    @property
    def kernel_init(self) -> layers.Initializer:
        if self.init_stddev is not None:
            return nn.initializers.normal(self.init_stddev)
        return nn.initializers.variance_scaling(2 / self.num_layers, "fan_in", "truncated_normal")

    @property
    def embedding_init(self) -> layers.Initializer:
        if self.init_stddev is not None:
            return nn.initializers.normal(self.init_stddev)
        return nn.initializers.variance_scaling(1.0, "fan_out", "uniform")

    @property
    def query_init(self) -> layers.Initializer:
        """Initial values of the queries that all positions share, [N*H]."""
        width = self.num_heads * self.head_dim
        return nn.initializers.normal(self.init_stddev or width**-0.5)

    def mlp(self) -> layers.MlpBlock:
        return layers.MlpBlock(
            self.mlp_dim,
            (self.activation,),
            self.dropout_rate,
            self.dense,
            self.dtype,
            use_bias=True,
            kernel_init=self.kernel_init,
            out_init=self.kernel_init,
            name="mlp",
        )


def position_encodings(length: int, width: int, clamp_len: int | None = None) -> np.ndarray:
    """Encodings of the distances `length` - 1 to 0, [S, D] float32: sines, then cosines."""
    # Entry a is the distance S - 1 - a: `relative_shift` expects the farthest first.
    distances = np.arange(length - 1, -1, -1.0)
    if clamp_len is not None:
        distances = np.minimum(distances, clamp_len)
    angles = distances[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1).astype(np.float32)


def relative_shift(scores: Array) -> Array:
    """From scores by distance to scores by key.

    Args:
      scores: [..., T, S], of query i against distance S - 1 - a in column a.

    Returns:
      [..., T, S], of query i against key j: where j <= i + M, that of distance i + M - j. Later
      keys have scores without a meaning, which the caller masks.
    """
    *batch, queries, keys = scores.shape
    # Appendix B of the paper: pad a column, read the rows with a width less by one, drop the first.
    # Row i is thereby shifted left by T - 1 - i, without a gather.
    padded = jnp.pad(scores, [(0, 0)] * (scores.ndim - 1) + [(1, 0)])
    rows = padded.reshape(*batch, keys + 1, queries)[..., 1:, :]
    return rows.reshape(*batch, queries, keys)


def relative_gather(scores: Array, distances: Array) -> Array:
    """From scores by distance to scores by key, where distances are not along the row.

    Args:
      scores: [B, N, T, S], of query i against distance S - 1 - a in column a.
      distances: [B, T, S] int32, of query i and key j; those below 0 have no meaning.

    Returns:
      [B, N, T, S].
    """
    # Clipped, because later keys have negative distances; the mask hides them.
    columns = jnp.clip(scores.shape[-1] - 1 - distances, 0, scores.shape[-1] - 1)
    return jnp.take_along_axis(scores, columns[:, None], axis=-1)


def attention_mask(
    ids: Array, memory_ids: Array, same_length: bool = False, reset_at_doc: bool = False
) -> Array:
    """Which position sees which, [B, 1, T, M + T] bool.

    Args:
      ids: [B, T] int32, the document of each position, from 1; 0 is padding, which nothing but
        itself sees.
      memory_ids: [B, M] int32, in the same way; 0 is an empty slot.
      same_length, reset_at_doc: see `TransformerXLConfig`.
    """
    length, slots = ids.shape[1], memory_ids.shape[1]
    # [T, M + T]: query i stands at M + i in the memory followed by the chunk.
    distance = jnp.arange(length)[:, None] + slots - jnp.arange(slots + length)[None]
    distance = distance[None, None]
    keys = jnp.concatenate([memory_ids, ids], axis=1)
    mask = (distance >= 0) & (keys > 0)[:, None, None, :]
    if same_length:
        mask = mask & (distance <= slots)
    if reset_at_doc:
        mask = mask & layers.segment_mask(ids, keys)
    return mask | (distance == 0)  # padding too sees something, and stays finite


class RelativeAttention(nn.Module):
    """Attention to memory and chunk by content and by distance (paper, section 3.3)."""

    config: TransformerXLConfig

    @nn.compact
    def __call__(
        self,
        x: Array,
        memory: Array,
        encodings: Array,
        bias: Array,
        distances: Array | None,
        deterministic: bool,
    ) -> Array:
        """x [B, T, D], memory [B, M, D], encodings [S, D], bias [B, 1, T, S] -> [B, T, D].

        distances [B, T, S] are those of queries and keys; None is along the row.
        """
        cfg = self.config
        # [B, M + T, D]; the memory may be kept in another dtype.
        context = jnp.concatenate([memory.astype(x.dtype), x], axis=1)
        query = self._heads("query", x)
        key, value = self._heads("key", context), self._heads("value", context)
        distance = self._heads("relative", encodings)  # [S, N, H]
        # NumPy, so that the scale is a constant of the trace and not an operation.
        scale = np.sqrt(cfg.head_dim).astype(cfg.dtype)
        # Equation (a) + (c) of section 3.3: content and its global bias u.
        by_content = (query + self._shared_query("content_query")) / scale
        # Equation (b) + (d): position and its global bias v.
        by_position = (query + self._shared_query("position_query")) / scale
        if cfg.float32_attention_logits:
            by_position, distance = by_position.astype(jnp.float32), distance.astype(jnp.float32)
        # [B, N, T, S], the last axis by distance.
        scores = jnp.einsum("btnh,snh->bnts", by_position, distance)
        if distances is None:
            scores = relative_shift(scores)
        else:
            scores = relative_gather(scores, distances)
        rng = None
        if cfg.dropout_rate > 0 and not deterministic:
            rng = self.make_rng("dropout")
        y = attend(
            by_content,
            key,
            value,
            # `attend` adds the content term; positions enter as its bias.
            scores + bias.astype(scores.dtype),
            dropout_rng=rng,
            dropout_rate=cfg.dropout_rate,
            float32_logits=cfg.float32_attention_logits,
        )
        return cfg.dense(
            x.shape[-1],
            ("joined_kv", "embed"),
            name="out",
            dtype=cfg.dtype,
            kernel_init=cfg.kernel_init,
            use_bias=True,
        )(y.reshape(*y.shape[:2], -1))

    def _heads(self, name: str, x: Array) -> Array:
        """A projection [..., D] -> [..., N, H] without a bias."""
        cfg = self.config
        y = cfg.dense(
            cfg.num_heads * cfg.head_dim,
            ("embed", "joined_kv"),
            name=name,
            dtype=cfg.dtype,
            kernel_init=cfg.kernel_init,
        )(x)
        y = y.reshape(*y.shape[:-1], cfg.num_heads, cfg.head_dim)
        # Encodings have no batch axis: [S, N, H].
        return layers.constrain(y, ("batch", "length", "heads", "kv")[-y.ndim :])

    def _shared_query(self, name: str) -> Array:
        """[1, 1, N, H], the same for all positions."""
        cfg = self.config
        shape = (cfg.num_heads * cfg.head_dim,)
        shared = layers.param(name, cfg.query_init, shape, ("joined_kv",))
        return shared.astype(cfg.dtype).reshape(1, 1, cfg.num_heads, cfg.head_dim)


class DecoderLayer(nn.Module):
    """Attention and feed-forward, each added before it is normalised."""

    config: TransformerXLConfig

    @nn.compact
    def __call__(
        self,
        x: Array,
        memory: Array,
        encodings: Array,
        bias: Array,
        distances: Array | None,
        deterministic: bool,
    ) -> Array:
        """As `RelativeAttention`."""
        cfg = self.config
        x = constrain_embed(x)
        attention = RelativeAttention(cfg, name="self_attention")
        y = attention(x, memory, encodings, bias, distances, deterministic)
        x = cfg.norm("post_self_attention_layer_norm")(x + cfg.dropout(y, deterministic))
        y = cfg.mlp()(x, deterministic)
        return constrain_embed(cfg.norm("post_mlp_layer_norm")(x + cfg.dropout(y, deterministic)))


class Decoder(nn.Module):
    """The stack, from token embeddings to the last layer's output."""

    config: TransformerXLConfig

    @nn.compact
    def __call__(
        self,
        x: Array,
        states: Array,
        bias: Array,
        deterministic: bool,
        distances: Array | None = None,
    ) -> tuple[Array, Array]:
        """x [B, T, D], states [B, L, M, D], bias [B, 1, T, S] -> [B, T, D], inputs [B, L, T, D].

        For `distances` see `RelativeAttention`.
        """
        cfg = self.config
        x = cfg.dropout(x, deterministic).astype(cfg.dtype)
        # [S, D], a constant of the compiled program.
        table = position_encodings(bias.shape[-1], cfg.emb_dim, cfg.clamp_len)
        # The first release of Transformer-XL drops from the encodings too.
        encodings = cfg.dropout(jnp.asarray(table, cfg.dtype), deterministic)
        x, hidden = run_layers(
            cfg,
            DecoderLayer,
            cfg.num_layers,
            "decoder",
            x,
            args=(encodings, bias, distances, deterministic),
            # [L, B, M, D]: layer i reads the memory of its own inputs.
            each=(jnp.moveaxis(states, 1, 0),),
            # Hidden state i is the input of layer i, which the next chunk's memory is made of.
            taps=tuple(range(cfg.num_layers)),
        )
        inputs = jnp.stack([hidden[i] for i in range(cfg.num_layers)], axis=1)
        return cfg.dropout(x, deterministic), inputs


class TiedEmbed(layers.Embed):
    """Token embeddings whose table is also the output's, which also has a bias [V]."""

    def setup(self) -> None:
        super().setup()
        self.bias = layers.param("bias", nn.initializers.zeros, (self.vocab_size,), ("vocab",))

    def attend(self, x: Array) -> Array:
        y = super().attend(x)
        return y + layers.over_last_axis(self.bias, y)

    def log_probs(self, x: Array, positions: Array, targets: Array) -> Array:
        return super().log_probs(x, positions, targets, self.bias.astype(self.dtype))


class Transformer(nn.Module):
    """The whole language model."""

    config: TransformerXLConfig

    def setup(self) -> None:
        cfg = self.config
        self.token_embedder = TiedEmbed(cfg.vocab_size, cfg.emb_dim, cfg.dtype, cfg.embedding_init)
        self.decoder = Decoder(cfg)

    def __call__(
        self,
        decoder_input_tokens: Array,
        decoder_target_tokens: Array | None = None,
        decoder_segment_ids: Array | None = None,
        decoder_positions: Array | None = None,
        memory: Memory | None = None,
        *,
        enable_dropout: bool = True,
    ) -> Any:
        """Logits of the next token at every position.

        Args:
          decoder_input_tokens: [B, T].
          decoder_target_tokens, decoder_positions: unused: distances are along the row.
          decoder_segment_ids: [B, T], the document of each position, from 1 and the same in the
            memory; 0 is padding, on the right of a row. None is one document.
          memory: {"states": [B, L, M, D], the inputs of each layer at earlier positions,
            "segment_ids": [B, M] int32, their documents, 0 for empty slots}, or None.
          enable_dropout: training.

        Returns:
          [B, T, V] float32; with `memory` also the memory of the next chunk.
        """
        del decoder_target_tokens, decoder_positions
        cfg, tokens = self.config, decoder_input_tokens
        ids = jnp.ones_like(tokens) if decoder_segment_ids is None else decoder_segment_ids
        before = empty_memory(cfg, len(tokens), 0) if memory is None else memory
        # The paper's SG(.): no backpropagation into earlier chunks.
        before = jax.lax.stop_gradient(before)
        mask = attention_mask(ids, before["segment_ids"], cfg.same_length, cfg.reset_at_doc)
        bias = layers.mask_to_bias(mask).astype(cfg.dtype)
        x, inputs = self.decoder(self._embed(tokens), before["states"], bias, not enable_dropout)
        logits = self.token_embedder.attend(x).astype(jnp.float32)
        logits = layers.constrain(logits, ("batch", "length", "vocab"))
        return logits if memory is None else (logits, _advance(before, inputs, ids))

    def score_tree(
        self, tokens: Array, positions: Array, ends: Array, parents: Array, targets: Array
    ) -> Array:
        """Log probabilities of the edges of trees; see `DecoderOnlyModel.score_tree`.

        Distances are along the paths. The memory is empty and has room for a whole path, so that
        `same_length` hides nothing.
        """
        cfg = self.config
        states = empty_memory(cfg, len(tokens), 0)["states"]
        bias = layers.mask_to_bias(layers.subtree_mask(ends)).astype(cfg.dtype)
        # [B, T, T]: depth differences, as preorder positions are not distances along a path.
        distances = positions[:, :, None] - positions[:, None, :]
        x, _ = self.decoder(self._embed(tokens), states, bias, True, distances)
        return self.token_embedder.log_probs(x, parents, targets)

    def _embed(self, tokens: Array) -> Array:
        """[B, T] -> [B, T, D]."""
        x = self.token_embedder(tokens)
        if self.config.scale_embedding:
            x = x * np.sqrt(self.config.emb_dim).astype(x.dtype)
        return x


def empty_memory(config: TransformerXLConfig, batch_size: int, length: int) -> Memory:
    """A memory of M = `length` empty slots; see `Transformer`. Every leaf has the batch first."""
    shape = (batch_size, config.num_layers, length, config.emb_dim)
    return {
        "states": jnp.zeros(shape, config.dtype),
        "segment_ids": jnp.zeros((batch_size, length), jnp.int32),
    }


def _advance(memory: Memory, inputs: Array, ids: Array) -> Memory:
    """The last M positions of memory and chunk, row by row without the padding on the right."""
    slots, length = memory["segment_ids"].shape[1], ids.shape[1]
    # [B]: positions of the chunk that are not padding; the window of M begins as many later.
    used = jnp.max(jnp.where(ids > 0, jnp.arange(1, length + 1), 0), axis=1)

    def latest(old: Array, new: Array, axis: int) -> Array:
        """`axis` is that of the positions in one row."""
        both = jnp.concatenate([old, new.astype(old.dtype)], axis=axis + 1)
        return jax.vmap(lambda row, start: jax.lax.dynamic_slice_in_dim(row, start, slots, axis))(
            both, used
        )

    states = latest(memory["states"], inputs, 1)
    return jax.lax.stop_gradient(
        {"states": states, "segment_ids": latest(memory["segment_ids"], ids, 0)}
    )
