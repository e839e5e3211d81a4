"""Sparse updates: a step moves only the entries of each parameter with the largest gradients.

Sparse memory finetuning (Lin et al. 2025, arXiv:2510.15103) updates the few slots of a memory layer
that new text uses. This is its idea for models without such layers. MoFO (Chen et al. 2024,
arXiv:2407.20999) chooses entries by their momentum instead of their gradient. Differs from vanilla
training in one seam: what is wrapped around the optimizer.
"""

import math

import jax
import jax.numpy as jnp
import optax

from ckl_jax import checks
from ckl_jax.methods.method import Method


def sparse(fraction: float = 0.01, accumulated: bool = False) -> Method:
    """Plain training in which a step moves a fraction of the entries of each parameter.

    Args:
      fraction: of the entries of each leaf, at least one; scanned layers are one leaf.
      accumulated: chosen by the squares of all gradients so far, not by the newest gradient, so
        that a run keeps to nearly the same entries; one number more in memory for each that trains.

    Raises:
      UserError: `fraction` is out of range.
    """
    checks.require_number("a number above 0, up to 1", 1e-9, 1 + 1e-9, fraction=fraction)
    checks.require_bool(accumulated=accumulated)
    return Method(name="sparse", wrap=lambda tx: keep_largest(tx, fraction, accumulated))


def keep_largest(
    tx: optax.GradientTransformation, fraction: float, accumulated: bool
) -> optax.GradientTransformation:
    """`tx`, whose updates are 0 but where gradients are largest; its own state sees all of them.

    Args:
      tx: the optimizer.
      fraction, accumulated: see `sparse`.
    """

    def init_fn(params):
        squares = jax.tree.map(jnp.zeros_like, params) if accumulated else optax.EmptyState()
        return squares, tx.init(params)

    def update_fn(gradients, state, params=None):
        squares, inner = state
        sizes = jax.tree.map(jnp.abs, gradients)
        if accumulated:
            sizes = squares = jax.tree.map(lambda s, g: s + jnp.square(g), squares, gradients)
        updates, inner = tx.update(gradients, inner, params)
        updates = jax.tree.map(lambda u, s: jnp.where(largest(s, fraction), u, 0), updates, sizes)
        return updates, (squares, inner)

    return optax.GradientTransformation(init_fn, update_fn)


def largest(x: jax.Array, fraction: float) -> jax.Array:
    """Which entries of a non-negative array are among the largest; equal ones all are, 0 never.

    The bits of such a float32 are ordered as numbers are: 31 counts find the least of the largest
    exactly, and of an array that is cut over devices no more than counts is exchanged.
    """
    count = math.ceil(fraction * x.size)
    bits = jax.lax.bitcast_convert_type(x.astype(jnp.float32), jnp.int32)

    def halve(i, least):
        higher = least | (1 << (30 - i))
        return jnp.where(jnp.sum(bits >= higher) >= count, higher, least)

    least = jax.lax.fori_loop(0, 31, halve, jnp.int32(0))
    return bits >= jnp.maximum(least, 1)
