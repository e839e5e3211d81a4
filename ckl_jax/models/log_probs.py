"""Log probabilities of a few tokens after each position, without logits of the whole vocabulary.

Ranking needs of 50,000 logits those of the tokens that follow, and the normaliser of all. A CPU
spends as long on writing the logits and reading them again as on computing them, so there the
normaliser is taken over a block of the vocabulary at a time, which stays in the cache. Accelerators
take the product as a whole, which the partitioner can split.
"""

import jax
import jax.numpy as jnp

from ckl_jax.parallel.topology import platform

Array = jax.Array
_BLOCK = 512  # of the vocabulary; 256 to 2,048 are as fast for rows of 512 positions


def log_probs(
    x: Array,
    table: Array,
    bias: Array | None,
    positions: Array,
    targets: Array,
    softcap: float | None = None,
) -> Array:
    """Log probabilities of tokens after chosen positions, [B, M] float32.

    Args:
      x: [B, T, D], the state at every position.
      table: [V, D], of the output.
      bias: [V] of the output, or None.
      positions: [B, M] int32; several tokens may follow the same one.
      targets: [B, M] int32, the tokens.
      softcap: c of the logits c tanh(x / c); None is none.
    """
    # [B, 1], to index with `positions` [B, M].
    rows = jnp.arange(len(x))[:, None]
    # [B, T], one for each position, however many tokens follow it.
    flat = x.reshape(-1, x.shape[-1])
    normalizers = log_normalizers(flat, table, bias, softcap=softcap).reshape(x.shape[:2])
    # Only M products of width D, not V of them.
    logits = jnp.einsum("bmd,bmd->bm", x[rows, positions], table[targets])
    if bias is not None:
        logits = logits + bias[targets]
    return _capped(logits.astype(jnp.float32), softcap) - normalizers[rows, positions]


def _capped(logits: Array, softcap: float | None) -> Array:
    return logits if softcap is None else softcap * jnp.tanh(logits / softcap)


def log_normalizers(
    x: Array,
    table: Array,
    bias: Array | None,
    block: int | None = None,
    softcap: float | None = None,
) -> Array:
    """log sum over v of exp(x . table[v] + bias[v]), [R, D] -> [R] float32.

    Args:
      x, table, bias, softcap: as for `log_probs`.
      block: words of the vocabulary at a time; None is a suitable number for this machine.
    """
    size = len(table)
    block = min(size, block or (_BLOCK if platform() == "cpu" else size))
    bias = jnp.zeros(size, x.dtype) if bias is None else bias

    # One block of the streaming log-sum-exp: `total` is the sum of exp(logit - peak) so far.
    def add(state: tuple[Array, Array], wanted: Array) -> tuple[tuple[Array, Array], None]:
        peak, total = state
        start = jnp.minimum(wanted, size - block)  # the last block begins earlier, inside the table
        part = (jax.lax.dynamic_slice_in_dim(a, start, block) for a in (table, bias))
        # [R, block]
        logits = (jnp.dot(x, next(part).T) + next(part)[None]).astype(jnp.float32)
        logits = _capped(logits, softcap)
        # Columns that the block before held already are left out.
        logits = jnp.where((start + jnp.arange(block) >= wanted)[None], logits, -jnp.inf)
        # The old sum is rescaled to the new peak, so that no exponent exceeds 0.
        higher = jnp.maximum(peak, logits.max(axis=-1))
        total = total * jnp.exp(peak - higher) + jnp.exp(logits - higher[:, None]).sum(axis=-1)
        return (higher, total), None

    # The lowest finite number instead of -inf: (-inf) - (-inf) would be NaN in the first step.
    lowest = jnp.full(len(x), jnp.finfo(jnp.float32).min)
    starts = jnp.arange(0, size, block)
    (peak, total), _ = jax.lax.scan(add, (lowest, jnp.zeros(len(x))), starts)
    return peak + jnp.log(total)
