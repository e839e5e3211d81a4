"""Layers that every architecture shares, with T5X's parameter names and logical axes.

Dimension letters, and the logical axis that each one is known by to the partitioner:

| letter | meaning              | logical axis         |
| ------ | -------------------- | -------------------- |
| B      | batch                | batch                |
| T, S   | query and key length | length               |
| D      | model width          | embed                |
| N, H   | heads, head width    | heads, kv            |
| N*H    | all heads, flat      | joined_kv            |
| F      | mlp width            | mlp                  |
| V      | vocabulary           | vocab                |
| R      | rank of an adapter   | lora_rank            |

Every kernel is created by a *projection factory* (`DenseFactory`): the one seam by which a
method can change all projections of a model without a copy of it.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.linen import partitioning

from ckl_jax.models.attention import MASKED, Biases, attend
from ckl_jax.models.dropout import Dropout
from ckl_jax.models.log_probs import log_probs
from ckl_jax.models.products import linear

Array = jax.Array
Initializer = Callable[..., Array]

# Parameters are float32 whatever the activations' dtype: the optimizer's small steps would be lost
# in bfloat16, which has 8 bits of precision.
# T5X's default: standard deviation 1/sqrt(fan in).
default_kernel_init = nn.initializers.variance_scaling(1.0, "fan_in", "normal")
ATTENTION = ("query", "key", "value", "out")  # projections of an attention
ACTIVATIONS = (
    "linear",
    "relu",
    "gelu",
    "gelu_exact",
    "silu",
    "swish",
    "sigmoid",
    "tanh",
    "elu",
    "selu",
    "softplus",
)


def param(name: str, init: Initializer, shape: tuple[int, ...], axes: tuple[str, ...]) -> Array:
    """Creates a float32 parameter of the module being called, with logical axis names.

    The names are sown into the `params_axes` collection, where T5X looks for them.
    """
    return partitioning.param_with_axes(name, init, shape, jnp.float32, axes=axes)


def over_last_axis(vector: Array, x: Array) -> Array:
    """`vector` [D], float32, as x [..., D] in shape and dtype.

    Cast after it is broadcast: its gradient is a sum over all positions, which would stop growing
    in bfloat16.
    """
    return jnp.broadcast_to(jnp.expand_dims(vector, range(x.ndim - 1)), x.shape).astype(x.dtype)


def kept_as_given(compute: Callable[..., Array]) -> Callable[..., Array]:
    """`compute`, of which the backward pass of scanned layers keeps the arguments alone.

    They take less memory than what is made of them in float32, unless they are float32 themselves.
    """
    remat = jax.checkpoint(compute, prevent_cse=False)

    @functools.wraps(compute)
    def kept(x: Array, *args: Array) -> Array:
        return (compute if x.dtype == jnp.float32 else remat)(x, *args)

    return kept


@kept_as_given
def scaled(x: Array, factors: Array) -> Array:
    """x [..., D] times `factors` [D], in the dtype of x."""
    return x * over_last_axis(factors, x)


def constrain(x: Array, axes: tuple[str | None, ...]) -> Array:
    """Asks the partitioner to lay `x` out by logical `axes`; the identity without a mesh."""
    return partitioning.with_sharding_constraint(x, axes)


def shards(axis: str) -> int:
    """How many parts the mesh, if there is one, cuts a logical axis into."""
    sizes = dict(jax.sharding.get_abstract_mesh().shape)
    over = dict(reversed(partitioning.get_axis_rules())).get(axis) or ()
    return math.prod(sizes.get(name, 1) for name in ((over,) if isinstance(over, str) else over))


class Dense(nn.Module):
    """A linear map of the last axis, [..., in] -> [..., features]; T5's has no bias.

    The kernel is stored flat, [in, features], as T5X stores it; a bias is [features].
    """

    features: int
    kernel_axes: tuple[str, str]
    kernel_init: Initializer = default_kernel_init
    dtype: Any = jnp.float32
    use_bias: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        y = self.product(x)
        if not self.use_bias:
            return y
        bias = param("bias", nn.initializers.zeros, (self.features,), self.kernel_axes[1:])
        return y + over_last_axis(bias, y)

    def product(self, x: Array) -> Array:
        """The map without the bias; a method's subclass may add to it."""
        kernel = param("kernel", self.kernel_init, (x.shape[-1], self.features), self.kernel_axes)
        # The kernel is stored in float32 and cast for each product.
        return linear(x.astype(self.dtype), kernel.astype(self.dtype))


@dataclasses.dataclass(frozen=True)
class DenseFactory:
    """Makes the projections of a model. A method may supply a subclass (see `methods.lora`).

    Hashable by value, because it travels inside a model's static configuration.
    """

    def __call__(
        self, features: int, kernel_axes: tuple[str, str], *, name: str, **kw
    ) -> nn.Module:
        """Returns the module for the projection called `name` (`query`, `wi_0`, ...)."""
        return Dense(features, kernel_axes, name=name, **kw)

    def check_names(self, names: Sequence[str]) -> None:
        """Raises `UserError` if the factory waits for a projection that is not among `names`."""

    def settings(self) -> dict[str, Any]:
        """Settings that checkpoints record because no parameter's shape shows them, by name."""
        return dataclasses.asdict(self)


class Embed(nn.Module):
    """Token embeddings, [V, D]; `attend` gives logits against the same table."""

    vocab_size: int
    features: int
    dtype: Any = jnp.float32
    # 1.0 is T5's; GPT-2 and BERT pass 0.02.
    embedding_init: Initializer = nn.initializers.normal(stddev=1.0)

    def setup(self) -> None:
        self.embedding = param(
            "embedding", self.embedding_init, (self.vocab_size, self.features), ("vocab", "embed")
        )

    def __call__(self, tokens: Array) -> Array:
        """[B, T] integers (floats are cast: T5X initialises with them) -> [B, T, D]."""
        tokens = tokens.astype(jnp.int32)
        # Where the width of the table is split over devices that also split the batch, each looks
        # up its own columns for the rows of all of them, and then they exchange. Without rules for
        # these axes XLA all-gathers the batch; T5X's rule set has none.
        has_rules = "lookup" in dict(partitioning.get_axis_rules())
        if has_rules:
            tokens = constrain(tokens, ("lookup", "length"))
        # [B, T, D]. Cast afterwards: the gradient of a frequent token sums many terms, which would
        # stop growing in bfloat16.
        x = jnp.take(self.embedding, tokens, axis=0).astype(self.dtype)
        if has_rules:
            x = constrain(x, ("lookup", "length", "lookup_embed"))
        return constrain(x, ("batch", "length", "embed"))

    def attend(self, x: Array) -> Array:
        """[B, T, D] -> [B, T, V]."""
        # [..., D] x [D, V]
        return jnp.dot(x.astype(self.dtype), self.embedding.astype(self.dtype).T)

    def log_probs(
        self, x: Array, positions: Array, targets: Array, bias: Array | None = None
    ) -> Array:
        """Log probabilities of a few tokens, [B, M] float32; see `log_probs.log_probs`."""
        x, table = x.astype(self.dtype), self.embedding.astype(self.dtype)
        return log_probs(x, table, bias, positions, targets)


class RMSNorm(nn.Module):
    """T5's layer norm: no mean, no bias; the statistics are taken in float32.

    With `plus_one` the factor is 1 + `scale`, which starts at 0 (Gemma). With `scale_first` it is
    applied in float32, before the cast to `dtype` (Gemma, OLMo).
    """

    epsilon: float = 1e-6
    dtype: Any = jnp.float32
    plus_one: bool = False
    scale_first: bool = False
    axis: str = "embed"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        init = nn.initializers.zeros if self.plus_one else nn.initializers.ones
        scale = param("scale", init, (x.shape[-1],), (self.axis,))
        if self.plus_one:
            scale = 1.0 + scale

        @kept_as_given  # or else the backward pass keeps x, x normed, and that scaled
        def normed(x: Array, scale: Array) -> Array:
            # Squares of bfloat16 activations lose too much; T5X takes them in float32 as well.
            x = x.astype(jnp.float32)
            variance = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
            x = x * jax.lax.rsqrt(variance + self.epsilon)
            if self.scale_first:
                return scaled(x, scale).astype(self.dtype)
            return scaled(x.astype(self.dtype), scale)

        return normed(x, scale)


class LayerNorm(nn.Module):
    """Layer norm with mean, `scale` and `bias`, as GPT-2 has it; statistics in float32."""

    epsilon: float = 1e-5
    dtype: Any = jnp.float32
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: Array) -> Array:
        scale = param("scale", nn.initializers.ones, (x.shape[-1],), ("embed",))

        @kept_as_given
        def normed(x: Array) -> Array:
            # Two passes (mean, then squares of the differences): E[x^2] - E[x]^2 would cancel.
            x = x.astype(jnp.float32)
            x = x - jnp.mean(x, axis=-1, keepdims=True)
            variance = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
            return x * jax.lax.rsqrt(variance + self.epsilon)

        x = scaled(normed(x).astype(self.dtype), scale)
        if not self.use_bias:
            return x
        bias = param("bias", nn.initializers.zeros, (x.shape[-1],), ("embed",))
        return x + over_last_axis(bias, x)


class PositionEmbed(nn.Module):
    """Learned absolute positions: a table [positions, D]."""

    num_embeddings: int
    features: int
    dtype: Any = jnp.float32
    embedding_init: Initializer = nn.initializers.normal(stddev=0.02)

    @nn.compact
    def __call__(self, positions: Array) -> Array:
        """[B, T] or [1, T] integers below `num_embeddings` -> [B, T, D]."""
        table = param(
            "pos_embedding",
            self.embedding_init,
            (self.num_embeddings, self.features),
            ("abspos_buckets", "embed"),
        )
        return jnp.take(table, positions.astype(jnp.int32), axis=0).astype(self.dtype)


class Bias(nn.Module):
    """Adds a bias [features] to the last axis."""

    features: int
    axis: str

    @nn.compact
    def __call__(self, x: Array) -> Array:
        bias = param("bias", nn.initializers.zeros, (self.features,), (self.axis,))
        return x + over_last_axis(bias, x)


def activate(name: str, x: Array) -> Array:
    """One of ACTIVATIONS; "gelu" is its tanh form, as in T5X, and "gelu_exact" BERT's."""
    if name == "linear":
        return x
    return nn.gelu(x, approximate=False) if name == "gelu_exact" else getattr(nn, name)(x)


class MlpBlock(nn.Module):
    """Feed-forward block: `wi` (ReLU, v1.0) or the product of `wi_0` and `wi_1` (v1.1), `wo`.

    `dropout_rate` is that of the hidden layer, which T5 has and GPT-2 does not.
    """

    mlp_dim: int
    activations: tuple[str, ...]
    dropout_rate: float
    dense: DenseFactory
    dtype: Any = jnp.float32
    use_bias: bool = False
    kernel_init: Initializer = default_kernel_init
    out_init: Initializer = default_kernel_init

    @nn.compact
    def __call__(self, x: Array, deterministic: bool) -> Array:
        """[B, T, D] -> [B, T, D]."""
        hidden = []
        for i, name in enumerate(self.activations):
            # T5X's names, which its public checkpoints hold: `wi` in v1.0, `wi_0` and `wi_1` in
            # v1.1.
            wi = "wi" if len(self.activations) == 1 else f"wi_{i}"
            h = self._project(self.mlp_dim, ("embed", "mlp"), wi, self.kernel_init)(x)
            hidden.append(activate(name, h))
        # Gated: act(x wi_0) * (x wi_1), [B, T, F].
        h = hidden[0] if len(hidden) == 1 else hidden[0] * hidden[1]
        h = Dropout(self.dropout_rate)(h, deterministic)
        h = constrain(h, ("batch", "length", "mlp"))
        return self._project(x.shape[-1], ("mlp", "embed"), "wo", self.out_init)(h)

    def _project(self, features: int, axes: tuple[str, str], name: str, init: Initializer):
        return self.dense(
            features, axes, name=name, dtype=self.dtype, kernel_init=init, use_bias=self.use_bias
        )


class Attention(nn.Module):
    """Multi-head attention with T5X's parameters (`query`, `key`, `value`, `out`) and a cache.

    With `decode=True` the module keeps keys and values in the `cache` collection, batch axis
    first. The first such call only sizes the cache (its length is the length of the input);
    every later call takes the next positions, one (a step) or several (a prompt).

    `scale_query` divides queries by sqrt(H), as GPT-2 does; a number is their factor. Without it
    the query's initial values are scaled so, as T5's are. `num_kv_heads` keys and values are shared
    by groups of queries; `use_bias` may name the projections that have one. `qk_norm` makes the
    norms of queries and keys, by a name and an axis, before ("flat") or after ("head") the split
    into heads. `implementation` is that of `attention.attend`.
    """

    num_heads: int
    head_dim: int
    dropout_rate: float
    dense: DenseFactory
    dtype: Any = jnp.float32
    float32_logits: bool = False
    use_bias: bool | tuple[str, ...] = False
    scale_query: bool | float = False
    kernel_init: Initializer = default_kernel_init
    out_init: Initializer = default_kernel_init
    num_kv_heads: int | None = None
    qk_norm: tuple[str, Callable[..., nn.Module]] | None = None
    softcap: float | None = None
    implementation: str = "auto"

    @nn.compact
    def __call__(
        self,
        x: Array,
        memory: Array,
        bias: Biases,
        deterministic: bool,
        decode: bool = False,
        rotation: tuple[Array, Array] | None = None,
    ) -> Array:
        """Attends from `x` to `memory`.

        Args:
          x: [B, T, D].
          memory: [B, S, D]; `x` itself for self-attention. For cross-attention while decoding,
            B may be a multiple of its batch: the beams of one example share its memory.
          bias: broadcastable to [B, N, T, S] (masks included), several such, or None.
          deterministic: no dropout.
          decode: use the cache (self-attention only).
          rotation: cosines and sines [B or 1, T, R/2] that rotate queries and keys; see `rotate`.

        Returns:
          [B, T, D].
        """
        # N * H, which need not be D: T5 v1.1 small has 6 * 64 = 384 of 512.
        width = self.num_heads * self.head_dim
        # A flat axis of few heads may not be cut as finely as that of all heads.
        groups = self.num_kv_heads or self.num_heads
        shared = "joined_kv" if groups == self.num_heads else "joined_kv_heads"

        def has_bias(name: str) -> bool:
            return self.use_bias if isinstance(self.use_bias, bool) else name in self.use_bias

        def project(
            name: str, inputs: Array, heads: int, init: Initializer = self.kernel_init
        ) -> Array:
            axis = "joined_kv" if name == "query" else shared
            y = self.dense(
                heads * self.head_dim,
                ("embed", axis),
                name=name,
                dtype=self.dtype,
                kernel_init=init,
                use_bias=has_bias(name),
            )(inputs)
            where, make_norm = self.qk_norm or ("", None)
            normed = make_norm is not None and name != "value"
            if normed and where == "flat":
                y = make_norm(f"{name}_norm", axis)(y)
            # The kernel is flat, [D, N * H], as T5X stores it; heads are an axis of activations
            # only.
            y = y.reshape(*y.shape[:-1], heads, self.head_dim)
            if normed and where == "head":
                y = make_norm(f"{name}_norm", "kv")(y)
            split = "heads" if heads == self.num_heads else None
            return constrain(y, ("batch", "length", split, "kv"))

        # T5 has no 1/sqrt(H) in the attention and folds it into the query's initial values.
        if self.scale_query is False:
            init = _scaled_init(self.kernel_init, self.head_dim)
            query = project("query", x, self.num_heads, init)
        else:
            query = project("query", x, self.num_heads)
        key, value = project("key", memory, groups), project("value", memory, groups)
        if rotation is not None:
            query, key = rotate(query, *rotation), rotate(key, *rotation)
        if self.scale_query is True:
            query = query / np.sqrt(self.head_dim).astype(self.dtype)
        elif self.scale_query is not False:
            query = query * jnp.asarray(self.scale_query, query.dtype)
        if decode:
            key, value, bias = self._update_cache(key, value, bias)
        batch, beams = x.shape[0], x.shape[0] // key.shape[0]
        if beams > 1:  # the beams of an example are so many queries to one memory
            query = query.reshape(-1, beams * x.shape[1], *query.shape[2:])
        rng = None
        if self.dropout_rate > 0 and not deterministic:
            rng = self.make_rng("dropout")
        y = attend(
            query,
            key,
            value,
            bias,
            dropout_rng=rng,
            dropout_rate=self.dropout_rate,
            float32_logits=self.float32_logits,
            softcap=self.softcap,
            implementation=self.implementation,
        )
        # Back to one row per beam: [B * K, T, N * H].
        y = y.reshape(batch, -1, width)
        return self.dense(
            x.shape[-1],
            ("joined_kv", "embed"),
            name="out",
            dtype=self.dtype,
            kernel_init=self.out_init,
            use_bias=has_bias("out"),
        )(y)

    def _update_cache(self, key: Array, value: Array, bias: Array | None):
        """Puts the next positions into the cache; returns all keys, values, and a bias that hides
        from each the positions after it."""
        # `variable` creates what is missing, so this must be asked before it.
        ready = self.has_variable("cache", "cached_key")
        cached_key = self.variable("cache", "cached_key", jnp.zeros, key.shape, key.dtype)
        cached_value = self.variable("cache", "cached_value", jnp.zeros, value.shape, value.dtype)
        index = self.variable("cache", "cache_index", jnp.zeros, (), jnp.int32)
        if not ready:
            return key, value, bias
        # Cache leaves are [B, S, N, H]; the write position moves along S.
        at = (0, index.value, 0, 0)
        cached_key.value = jax.lax.dynamic_update_slice(cached_key.value, key, at)
        cached_value.value = jax.lax.dynamic_update_slice(cached_value.value, value, at)
        # [T], positions in the cache of the queries of this call.
        queries = index.value + jnp.arange(key.shape[1])
        # [T, S]: causal, and hides the slots that are still empty, which lie behind all queries.
        filled = jnp.arange(cached_key.value.shape[1])[None] <= queries[:, None]
        hidden = mask_to_bias(filled[None, None])
        index.value = index.value + key.shape[1]
        return cached_key.value, cached_value.value, hidden if bias is None else bias + hidden


def rotate(x: Array, cosines: Array, sines: Array) -> Array:
    """Rotary positions: turns x [B, T, N, H] by angles [B or 1, T, R/2] of its first R dimensions.

    Dimension j turns with j + R/2, as in the files of Hugging Face (Su et al. 2021 pair 2j with
    2j + 1, which is the same up to the order of dimensions).
    """
    half = cosines.shape[-1]
    cosines, sines = (a[:, :, None].astype(x.dtype) for a in (cosines, sines))
    one, other, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    turned = [one * cosines - other * sines, other * cosines + one * sines]
    return jnp.concatenate([*turned, rest] if rest.shape[-1] else turned, axis=-1)


def _scaled_init(kernel_init: Initializer, head_dim: int) -> Initializer:
    def init(*args, **kwargs) -> Array:
        return kernel_init(*args, **kwargs) / np.sqrt(head_dim).astype(np.float32)

    return init


def padding_mask(queries: Array, keys: Array) -> Array:
    """[B, T], [B, S] truth values -> [B, 1, T, S]: which pairs may attend."""
    return (queries[:, None, :, None] & keys[:, None, None, :]).astype(jnp.bool_)


def causal_mask(length: int) -> Array:
    """[1, 1, T, T], true on and below the diagonal."""
    return jnp.tril(jnp.ones((length, length), jnp.bool_))[None, None]


def segment_mask(queries: Array, keys: Array) -> Array:
    """[B, T], [B, S] segment ids of packed examples -> [B, 1, T, S]: same segment."""
    return queries[:, None, :, None] == keys[:, None, None, :]


def subtree_mask(ends: Array) -> Array:
    """Rows that hold trees in preorder: each position sees the path to it, [B, 1, T, T].

    Args:
      ends: [B, T] int32, where the subtree of each position ends; see `papers.lm_pub_quiz.tries`.
    """
    length = ends.shape[-1]
    positions = jnp.arange(length)[None, None, :, None]
    # Preorder: position j is an ancestor of query i, or i itself, exactly if j <= i < end of j.
    return causal_mask(length) & (positions < ends[:, None, None, :])


def mask_to_bias(mask: Array) -> Array:
    """True -> 0, False -> a large negative number."""
    # float32; callers cast it to the dtype of the activations.
    return jnp.where(mask, 0.0, MASKED)
