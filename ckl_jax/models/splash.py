"""Splash attention: JAX's kernel for TPUs, which skips the blocks of a row that a mask hides.

`RowMask` is what models give to it, and to cuDNN's kernel (see `attention`), in place of a bias.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from ckl_jax.parallel.topology import platform

Array = jax.Array

_LANES = 128  # the kernel's blocks are multiples of it
_BLOCKS = (512, 384, 256, 128)  # queries, and keys, of a block: the first that divides a row
_INTERPRET = False  # tests run the kernel on CPUs


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("segment_ids", "kind", "lengths", "bias"),
    meta_fields=("causal", "windows"),
)
@dataclasses.dataclass(frozen=True)
class RowMask:
    """What positions see of a row, in the place of a bias: the kernel computes the mask.

    Attributes:
      segment_ids: [B, T], a position sees its own segment only; None is one segment.
      kind: [], the index of the layer's window; None where there is one window.
      lengths: [B], how much of each row is seen, from its start; None is all. cuDNN's alone.
      bias: added to the logits, broadcastable to [B, N, T, S]; None is none. cuDNN's alone.
      causal: a position sees nothing behind it.
      windows: of each type of layer, w: a position sees less than w away; None is any distance.
    """

    segment_ids: Array | None
    kind: Array | None = None
    lengths: Array | None = None
    bias: Array | None = None
    causal: bool = True
    windows: tuple[int | None, ...] = (None,)

    def of_kind(self, kind: Array | int) -> "RowMask":
        """The mask of one type of layer, which need not be known before the program runs."""
        if len(self.windows) == 1:
            return self
        if isinstance(kind, int | np.integer):
            return dataclasses.replace(self, windows=(self.windows[kind],))
        return dataclasses.replace(self, kind=kind)

    def by_window(self, make: Callable[[int | None], Callable[..., Array]], *args: Any) -> Array:
        """`make(window)(*args)`; a layer scanned over several types chooses when it runs."""
        functions = [make(window) for window in self.windows]
        if self.kind is None:
            return functions[0](*args)
        return jax.lax.switch(self.kind, functions, *args)

    def seen(self, queries: int, keys: int) -> Array:
        """[B or 1, 1, T, S], which query sees which key, of rows of one segment."""
        away = jnp.arange(queries)[:, None] - jnp.arange(keys)[None]
        limits = jnp.asarray([max(queries, keys) if w is None else w for w in self.windows])
        away = away if self.causal else jnp.abs(away)
        seen = ((away >= 0) & (away < limits[0 if self.kind is None else self.kind]))[None, None]
        if self.lengths is None:
            return seen
        return seen & (jnp.arange(keys)[None, None, None] < self.lengths[:, None, None, None])


def row_mask(
    implementation: str,
    length: int,
    segment_ids: Array | None,
    causal: bool,
    valid: Array | None = None,
) -> RowMask | None:
    """The mask of rows of T tokens if a kernel may compute it, else None.

    Splash attention is for TPUs, and rows that are no shorter than its smallest block. cuDNN's
    kernel knows causal masks, and how long rows are, of rows of one segment.

    Args:
      implementation: see `attention.attend`.
      length: T.
      segment_ids: [B, T] of packed texts, or of one and padding; None is one.
      causal: whether a position sees nothing behind it.
      valid: [B, T], which tokens are no padding, if not `segment_ids` says it.
    """
    if platform() == "gpu" and implementation in ("auto", "cudnn"):
        if segment_ids is not None:
            return None
        # Padding is behind a row's tokens, where nothing causal sees it.
        return RowMask(None) if causal else padding_row_mask(implementation, valid)
    if valid is not None:
        segment_ids = jnp.where(valid, 1 if segment_ids is None else segment_ids, 0)
    is_there = platform() == "tpu" or _INTERPRET
    if implementation != "splash" or length < _LANES or not is_there:
        return None
    return RowMask(segment_ids, causal=causal)


def padding_row_mask(implementation: str, valid: Array | None) -> RowMask | None:
    """The mask of keys where cuDNN's kernel may compute it, else None.

    Args:
      valid: [B, S], False behind the last token of a row. Padding before it would be seen: in a
        batch there is none.
    """
    if valid is None or platform() != "gpu" or implementation not in ("auto", "cudnn"):
        return None
    # Of a row of padding alone it is all: the weights of no keys are not numbers.
    lengths = valid.shape[1] - jnp.argmax(valid[:, ::-1], axis=1)
    return RowMask(None, lengths=lengths.astype(jnp.int32), causal=False)


def splash(
    query: Array, key: Array, value: Array, mask: RowMask, softcap: float | None = None
) -> Array:
    """Attention of rows to themselves; see `attention.attend`.

    Rows are padded to a multiple of 128. On a mesh each device computes its rows and heads.

    Args:
      query: [B, T, N, H].
      key, value: [B, T, K, H].
      mask: which positions see which.
      softcap: c of the logits c tanh(x / c).

    Returns:
      [B, T, N, H].
    """
    batch, length, heads, _ = query.shape
    ids, padding = mask.segment_ids, -length % _LANES
    if padding:
        if ids is None and not mask.causal:
            ids = jnp.zeros((batch, length), jnp.int32)
        query, key, value = (
            jnp.pad(x, ((0, 0), (0, padding), (0, 0), (0, 0))) for x in (query, key, value)
        )
        if ids is not None:  # causal rows without segments see no padding, which is behind them
            ids = jnp.pad(ids, ((0, 0), (0, padding)), constant_values=-1)
    local = functools.partial(_local, mask=mask, softcap=softcap)
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.size > 1:
        rows, _, over, _ = nn.logical_to_mesh_axes(("batch", "length", "heads", "kv"))
        rows = rows if batch % _parts(mesh, rows) == 0 else None
        over = over if heads % _parts(mesh, over) == 0 else None
        # Each device needs the keys of its queries: few of them are repeated to be divided.
        copies = _parts(mesh, over) // math.gcd(_parts(mesh, over), key.shape[2])
        key, value = (jnp.repeat(x, copies, axis=2) if copies > 1 else x for x in (key, value))
        by_head = jax.P(rows, None, over, None)
        local = jax.shard_map(
            local,
            in_specs=(by_head, by_head, by_head, jax.P(rows, None), jax.P()),
            out_specs=by_head,
            check_vma=False,  # the kernel says nothing of what varies over the mesh
        )
    return local(query, key, value, ids, mask.kind)[:, :length]


def _parts(mesh: Any, axes: str | tuple[str, ...] | None) -> int:
    return math.prod(mesh.shape[a] for a in ((axes,) if isinstance(axes, str) else axes or ()))


def _local(
    query: Array,
    key: Array,
    value: Array,
    ids: Array | None,
    kind: Array | None,
    *,
    mask: RowMask,
    softcap: float | None,
) -> Array:
    """`splash` of the rows and heads of one device."""
    _, length, heads, _ = query.shape
    make = functools.partial(_kernel, length, heads, mask.causal, softcap=softcap)
    args = (*(jnp.swapaxes(x, 1, 2) for x in (query, key, value)), ids)
    # Its own `kind` is of the whole mesh; `kind` is this device's.
    y = dataclasses.replace(mask, kind=kind).by_window(make, *args)
    return jnp.swapaxes(y, 1, 2)


def _kernel(
    length: int, heads: int, causal: bool, window: int | None, softcap: float | None
) -> Callable[..., Array]:
    """Maps [B, N, T, H], [B, K, T, H] twice and segments [B, T] or None to [B, N, T, H]."""
    # Here, as most programs need none of it.
    from jax.experimental.pallas.ops.tpu import splash_attention as kernels

    size = next(size for size in _BLOCKS if length % size == 0)
    attend = kernels.make_splash_mha(
        kernels.MultiHeadMask([_mask(length, causal, window)] * heads),
        head_shards=1,
        q_seq_shards=1,
        attn_logits_soft_cap=softcap,
        block_sizes=kernels.BlockSizes(
            block_q=size,
            block_kv=size,
            block_q_dkv=size,
            block_kv_dkv=size,
            block_q_dq=size,
            block_kv_dq=size,
        ),
        interpret=_INTERPRET,
    )

    def row(query: Array, key: Array, value: Array, ids: Array | None) -> Array:
        return attend(query, key, value, ids if ids is None else kernels.SegmentIds(ids, ids))

    return jax.vmap(row)


# Cached, since the kernel is compiled once for one and the same function of a mask.
@functools.lru_cache(maxsize=64)
def _mask(length: int, causal: bool, window: int | None) -> Any:
    from jax.experimental.pallas.ops.tpu import splash_attention as kernels

    shape = (length, length)
    if not causal and window is None:
        return kernels.FullMask(shape)
    away = None if window is None else window - 1
    return kernels.LocalMask(shape, (away, 0 if causal else away), 0)
