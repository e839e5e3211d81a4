"""Matrix products whose gradients suit a CPU.

The gradient of a kernel, x^T dy, is a product over the first axis of both, and so is that of the
keys of attention. XLA gives them on CPUs to a library that takes up to twice as long for them as
for products in row order, or transposes the larger operand for it. Here the smaller one is
transposed first. On accelerators the compiler chooses layouts, and nothing is to be gained.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from ckl_jax.parallel.topology import platform

_SCORES = "btnh,bsnh->bnts"
_HEADS = ((0, 1), (0, 1))  # axes of batch and heads
# Parts of what JAX says of a custom gradient, and of the barrier, that is differentiated again.
_NOT_TWICE = ("forward-mode", "optimization_barrier", "custom_lin")
_barrier = jax.lax.optimization_barrier
_row_order: contextvars.ContextVar[bool] = contextvars.ContextVar("row_order", default=False)


@contextlib.contextmanager
def _in_row_order() -> Iterator[None]:
    """A `with` block in which the products below are traced so; outside, they are plain ones."""
    # A context variable rather than an argument: the products are deep inside of linen modules. It
    # is read while tracing, so a compiled function keeps what it was traced with.
    token = _row_order.set(platform() == "cpu")
    try:
        yield
    finally:
        _row_order.reset(token)


def with_gradients_in_row_order(differentiate: Callable[..., Any]) -> Callable[..., Any]:
    """A function that takes gradients, traced so where what it differentiates allows it.

    Derivatives within a loss (`jax.jvp`, `jax.grad` of a penalty) need the plain products.
    """

    def chosen(*args):
        try:
            with _in_row_order():
                return differentiate(*args)
        except (TypeError, NotImplementedError) as e:
            if not any(reason in str(e) for reason in _NOT_TWICE):
                raise
        return differentiate(*args)

    return chosen


def linear(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """x [..., K], kernel [K, N] -> [..., N]."""
    return _linear(x, kernel) if _row_order.get() else jnp.dot(x, kernel)


@jax.custom_vjp
def _linear(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return jnp.dot(x, kernel)


def _forward(x: jax.Array, kernel: jax.Array):
    return jnp.dot(x, kernel), (x, kernel)


def _backward(kept, dy: jax.Array):
    x, kernel = kept
    # The gradient of the input is in row order anyway.
    dx = jnp.dot(dy, kernel.T)
    # [rows, K] and [rows, N]: all leading axes are summed over.
    x, dy = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
    # Without the barriers the compiler would make one product of transposing and multiplying.
    if x.size <= dy.size + kernel.size:  # what is transposed: x, or dy and the product
        return dx, jnp.dot(_barrier(x.T), dy)
    return dx, _barrier(jnp.dot(_barrier(dy.T), x)).T


_linear.defvjp(_forward, _backward)


def scores(query: jax.Array, key: jax.Array) -> jax.Array:
    """query [B, T, N, H], key [B, S, N, H] -> [B, N, T, S]."""
    return _scores(query, key) if _row_order.get() else jnp.einsum(_SCORES, query, key)


@jax.custom_vjp
def _scores(query: jax.Array, key: jax.Array) -> jax.Array:
    return jnp.einsum(_SCORES, query, key)


def _scores_forward(query: jax.Array, key: jax.Array):
    return jnp.einsum(_SCORES, query, key), (query, key)


def _scores_backward(kept, dy: jax.Array):
    query, key = kept
    # Not by einsum, which may exchange the two and so transpose the larger one.
    key = jnp.transpose(key, (0, 2, 1, 3))
    dquery = _barrier(jax.lax.dot_general(dy, key, (((3,), (2,)), _HEADS)))  # [B, N, T, H]
    columns = _barrier(jnp.transpose(query, (0, 2, 3, 1)))
    dkey = _barrier(jax.lax.dot_general(columns, dy, (((3,), (2,)), _HEADS)))  # [B, N, H, S]
    return jnp.transpose(dquery, (0, 2, 1, 3)), jnp.transpose(dkey, (0, 3, 1, 2))


_scores.defvjp(_scores_forward, _scores_backward)
