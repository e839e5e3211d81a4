"""Clipping by global norm exactly as PyTorch's `clip_grad_norm_` does it."""

import jax
import jax.numpy as jnp
import optax


def clip_by_global_norm(max_norm: float) -> optax.GradientTransformation:
    """Scales all gradients by `min(1, max_norm / (norm + 1e-6))`.

    `norm` is the Euclidean norm of all leaves together, in float32. optax's transformation of the
    same name has no `1e-6` and so differs by up to `1e-6 / norm`.

    Args:
      max_norm: the norm not to exceed; 0.5 in the released continual-knowledge-learning runs.

    Returns:
      A stateless optax transformation; leaves keep their dtype.
    """

    def update(grads, state, params=None):
        del params
        # PyTorch's order: the small constant is in the denominator, the minimum comes last.
        scale = jnp.minimum(1.0, max_norm / (global_norm(grads) + 1e-6))
        return jax.tree.map(lambda g: (g * scale).astype(g.dtype), grads), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def global_norm(tree) -> jax.Array:
    """Euclidean norm of all leaves together, float32 scalar."""
    # float32: squares of bfloat16 gradients would lose their small terms in the sum.
    squares = [jnp.sum(jnp.square(leaf.astype(jnp.float32))) for leaf in jax.tree.leaves(tree)]
    return jnp.sqrt(jnp.sum(jnp.stack(squares)))
