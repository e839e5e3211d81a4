"""Dot-product attention: as products, a block of queries at a time, or by a device's kernel."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from ckl_jax.errors import UserError
from ckl_jax.models.dropout import keep_mask
from ckl_jax.models.products import scores
from ckl_jax.models.splash import RowMask, splash
from ckl_jax.parallel.topology import platform

Array = jax.Array
Biases = Array | tuple[Array, ...] | RowMask | None

IMPLEMENTATIONS = ("auto", "xla", "cudnn", "splash")
MASKED = -1e10  # bias of what is not seen: finite, so that a row without keys stays finite
_BLOCK = 512  # queries at a time, of rows that are twice as long or longer


def join(*biases: Array | RowMask | None) -> Biases:
    """The sum of biases, each broadcastable to [B, N, T, S]; of long rows, the biases themselves.

    Of long rows, the sum of what differs by head and what differs by row is as large as the logits.
    A mask that a kernel computes takes the others with it.
    """
    given = tuple(bias for bias in biases if bias is not None)
    if masks := [bias for bias in given if isinstance(bias, RowMask)]:
        others = [bias for bias in (*given, masks[0].bias) if not isinstance(bias, RowMask | None)]
        return dataclasses.replace(masks[0], bias=sum(others) if others else None)
    if len(given) > 1 and max(bias.shape[-2] for bias in given) >= 2 * _BLOCK:
        return given
    return sum(given[1:], start=given[0]) if given else None


def attend(
    query: Array,
    key: Array,
    value: Array,
    bias: Biases,
    *,
    dropout_rng: Array | None = None,
    dropout_rate: float = 0.0,
    float32_logits: bool = False,
    softcap: float | None = None,
    implementation: str = "auto",
) -> Array:
    """Dot-product attention without 1/sqrt(H): the caller scales the query, or its init (T5).

    Args:
      query: [B, T, N, H].
      key: [B, S, K, H]; K divides N, and N / K neighbouring queries share a key (grouped queries).
      value: [B, S, K, H].
      bias: added to the logits, of `join`: broadcastable to [B, N, T, S], several such, or None; or
        a mask that a kernel computes: splash attention, whose logits are float32, or cuDNN's.
      dropout_rng: drops attention weights where given; all queries of an example share a mask.
      dropout_rate: fraction of the weights to drop.
      float32_logits: take the logits and the softmax in float32 when the inputs are bfloat16.
      softcap: c of the logits c tanh(x / c), before `bias` is added (Gemma 2); None is none.
      implementation: "xla", matrix products, of long rows a block of queries at a time, so that
        [B, N, T, S] never exists whole; "cudnn", a GPU's fused kernel; "auto", that kernel on GPUs
        where it takes these arguments. "splash" is "auto" where `bias` is no mask for it.

    Returns:
      [B, T, N, H].

    Raises:
      UserError: cuDNN's kernel is asked for, and does not take these arguments.
    """
    if dropout_rng is not None and dropout_rate > 0:
        # One mask for all queries may as well fall on the values: no pass over [B, N, T, S]. It
        # is drawn heads first, as T5X draws it: the same key drops the same.
        rows, size, width, _ = value.shape
        mask = keep_mask(dropout_rng, dropout_rate, (rows, width, size), query.dtype)
        value = value * jnp.swapaxes(mask, 1, 2)[..., None]
    length = query.shape[1]
    if isinstance(bias, RowMask):
        if platform() != "gpu":
            return splash(query, key, value, bias, softcap)
        # It has no window that looks ahead.
        if _not_for_cudnn(query, key, float32_logits, softcap) is None and (
            bias.causal or bias.windows == (None,)
        ):
            return bias.by_window(functools.partial(_cudnn, bias), query, key, value)
        seen = jnp.where(bias.seen(length, key.shape[1]), 0.0, MASKED)
        bias = join(seen, bias.bias)
    biases = bias if isinstance(bias, tuple) else () if bias is None else (bias,)
    if implementation == "cudnn" or (implementation != "xla" and platform() == "gpu"):
        reason = _not_for_cudnn(query, key, float32_logits, softcap)
        if reason is None:
            total = None
            if biases:
                total = sum(biases[1:], start=biases[0])
            mask = RowMask(None, bias=total, causal=False)
            return _cudnn(mask, None)(query, key, value)
        # One query at a time is a decoder's, which no setting can change.
        if implementation == "cudnn" and length > 1:
            raise UserError(f"ATTENTION_IMPL = 'cudnn' is not possible: {reason}; give 'auto'.")

    if length < 2 * _BLOCK:
        return _products(query, key, value, biases, float32_logits, softcap)
    return _by_blocks(query, key, value, biases, float32_logits, softcap)


def _by_blocks(
    query: Array,
    key: Array,
    value: Array,
    biases: tuple[Array, ...],
    float32_logits: bool,
    softcap: float | None,
) -> Array:
    """`_products` of a block of queries at a time; see `attend`."""
    length = query.shape[1]
    count = -(-length // _BLOCK)

    def cut(x: Array, axis: int) -> Array:
        """[..., T, ...] -> [count, ..., _BLOCK, ...]"""
        pads = [(0, count * _BLOCK - length if i == axis else 0) for i in range(x.ndim)]
        shape = (*x.shape[:axis], count, _BLOCK, *x.shape[axis + 1 :])
        return jnp.moveaxis(jnp.pad(x, pads).reshape(shape), axis, 0)

    by_row = [b.shape[-2] > 1 for b in biases]

    @functools.partial(jax.checkpoint, prevent_cse=False)  # a block's weights are computed again
    def block(given: tuple[Array, list[Array]]) -> Array:
        rows, own = given[0], iter(given[1])
        chosen = [next(own) if cut else b for b, cut in zip(biases, by_row, strict=True)]
        return _products(rows, key, value, chosen, float32_logits, softcap)

    own = [cut(b, 2) for b, is_cut in zip(biases, by_row, strict=True) if is_cut]
    # [count, B, _BLOCK, N, H]; one block after the other, whatever the compiler would like.
    parts = jnp.moveaxis(jax.lax.map(block, (cut(query, 1), own)), 0, 1)
    return parts.reshape(len(query), -1, *query.shape[2:])[:, :length]


def _cudnn(mask: RowMask, window: int | None) -> Callable[[Array, Array, Array], Array]:
    """cuDNN's kernel, which skips what is not seen."""

    def kernel(query: Array, key: Array, value: Array) -> Array:
        bias = mask.bias
        if bias is not None:  # it may be broadcast over rows and heads, but not queries and keys
            shape = (*bias.shape[:2], query.shape[1], key.shape[1])
            bias = jnp.broadcast_to(bias.astype(query.dtype), shape)
        return jax.nn.dot_product_attention(
            query,
            key,
            value,
            bias,
            scale=1.0,
            is_causal=mask.causal,
            key_value_seq_lengths=mask.lengths,
            local_window_size=None if window is None else (window - 1, 0),
            implementation="cudnn",
        )

    return kernel


def _not_for_cudnn(
    query: Array, key: Array, float32_logits: bool, softcap: float | None
) -> str | None:
    """Why cuDNN's kernel does not take an attention; None if it does."""
    head_dim = query.shape[-1]
    if query.dtype not in (jnp.bfloat16, jnp.float16) or float32_logits:
        return "attention logits are float32"
    if softcap is not None:
        return "attention logits are capped"
    if head_dim % 8 or head_dim > 128:
        return f"heads of {head_dim} are no multiple of 8 up to 128"
    if query.shape[1] % 2 or key.shape[1] % 2:
        return f"lengths of {query.shape[1]} and {key.shape[1]} are not even"
    return None


def _products(
    query: Array,
    key: Array,
    value: Array,
    biases: Sequence[Array],
    float32_logits: bool,
    softcap: float | None,
) -> Array:
    dtype = query.dtype
    # Only query and key are cast; the product with the values stays in `dtype`.
    if float32_logits:
        query, key = query.astype(jnp.float32), key.astype(jnp.float32)
    batch, length, heads, _ = query.shape
    groups = key.shape[2]
    of_group = heads // groups
    query = query.reshape(batch, length, groups, of_group, -1)
    # On CPUs the heads of a group are further queries of its key, so that nothing of the size of
    # [B, N, T, S] is transposed. Elsewhere XLA chooses the order, and axes that may be split over
    # devices stay apart.
    merges = of_group == 1 or platform() == "cpu"
    if merges:
        query = jnp.moveaxis(query, 3, 1).reshape(batch, -1, groups, query.shape[-1])
        logits = scores(query, key)
    else:
        logits = jnp.einsum("btkgh,bskh->bkgts", query, key)
    logits = logits.reshape(batch, heads, length, -1)
    if softcap is not None:
        logits = softcap * jnp.tanh(logits / softcap)
    if biases:
        logits = logits + sum(biases[1:], start=biases[0]).astype(logits.dtype)
    # softmax(logits) @ value, divided last, where there are H numbers to a query instead of S.
    # The peak cancels out of the quotient, so no gradient needs to pass through the maximum.
    peak = jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    weights = jnp.exp(logits - peak)
    # [B, N, T], in float32: a bfloat16 sum of many terms would stop growing.
    total = jnp.sum(weights, axis=-1, dtype=jnp.float32)
    weights = weights.astype(dtype)
    if merges:
        weights = weights.reshape(batch, groups, of_group * length, -1)
        y = jnp.einsum("bnts,bsnh->btnh", weights, value)
        y = jnp.moveaxis(y.reshape(batch, of_group, length, groups, -1), 1, 3)
    else:
        weights = weights.reshape(batch, groups, of_group, length, -1)
        y = jnp.einsum("bkgts,bskh->btkgh", weights, value)
    y = y.reshape(batch, length, heads, -1)
    return y / jnp.swapaxes(total, 1, 2)[..., None].astype(dtype)
