"""Squared gradients on earlier text, for optimizers that need them before step 1.

Such an optimizer's state has `with_statistics(mean_square, batches)`, which returns it with them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ckl_jax.errors import UserError
from ckl_jax.trees.partition import merge

_WEIGHTS, _SEGMENTS = "decoder_loss_weights", "decoder_segment_ids"


def wants_statistics(opt_state: Any) -> bool:
    """Whether a state of this kind is in that of an optimizer, which may be a chain."""
    return any(_wants(x) for x in jax.tree.leaves(opt_state, is_leaf=_wants))


def with_statistics(opt_state: Any, mean_square: optax.Params, batches: int) -> Any:
    """An optimizer's state with the statistics of gradients in it.

    Args:
      opt_state: of an optimizer, which may be a chain.
      mean_square: the mean of the squares of gradients, a tree like the parameters.
      batches: N, of how many.
    """

    def put(node):
        return node.with_statistics(mean_square, batches) if _wants(node) else node

    return jax.tree.map(put, opt_state, is_leaf=_wants)


def _wants(node: Any) -> bool:
    return hasattr(node, "with_statistics")


def of_examples(
    score: Callable[[Any, Mapping[str, jax.Array]], jax.Array],
    trainable: Any,
    frozen: Any,
    batches: Iterable[Mapping[str, jax.Array]],
) -> tuple[Any, int]:
    """The diagonal of the empirical Fisher matrix: the mean square of log likelihoods' gradients.

    Args:
      score: `(parameters, batch) -> log likelihoods [B]`, without dropout.
      trainable, frozen: the parameters; of the first is the gradient.
      batches: on the devices; each example of a packed row counts, and none without a target.

    Returns:
      A tree like `trainable`, and the number of examples.

    Raises:
      UserError: there are no examples, or a gradient is not finite.
    """

    @jax.jit
    def add(totals: Any, trainable: Any, frozen: Any, batch: Mapping[str, jax.Array]):
        # The Fisher information is a mean of squares of single examples' gradients; the square of a
        # batch's mean gradient would be smaller. A scan, because a vmap would hold B gradients.
        def add_row(totals, row):
            # The model expects a batch axis.
            row = jax.tree.map(lambda x: x[None], row)
            segments = row.get(_SEGMENTS, jnp.ones_like(row[_WEIGHTS], jnp.int32))

            def add_example(segment, totals):
                total, count = totals
                weights = jnp.where(segments == segment, row[_WEIGHTS], 0)
                own = {**row, _WEIGHTS: weights}
                grads = jax.grad(lambda p: jnp.sum(score(merge(p, frozen), own)))(trainable)
                total = jax.tree.map(lambda t, g: t + jnp.square(g), total, grads)
                # Padding has zero gradients and must not enter the mean.
                return total, count + jnp.any(weights > 0).astype(count.dtype)

            return jax.lax.fori_loop(1, jnp.max(segments) + 1, add_example, totals), None

        return jax.lax.scan(add_row, totals, batch)[0]

    totals = jax.tree.map(jnp.zeros_like, trainable), jnp.zeros((), jnp.int32)
    for batch in batches:
        totals = add(totals, trainable, frozen, batch)
    total, count = totals[0], int(totals[1])
    if not count:
        raise UserError("The earlier corpus has no example with a target to take gradients on.")
    # Checked once on the host: a NaN in the state would spoil every later step without an error.
    if not all(np.isfinite(float(jnp.sum(x))) for x in jax.tree.leaves(total)):
        raise UserError("A gradient on the earlier corpus is not finite; check the checkpoint.")
    return jax.tree.map(lambda x: x / count, total), count
