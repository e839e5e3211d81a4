"""The mean square of single examples' gradients: the diagonal of the empirical Fisher matrix."""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ckl_jax.errors import UserError
from ckl_jax.models.base import BaseTransformerModel, Batch
from ckl_jax.trees.partition import merge

_WEIGHTS = "decoder_loss_weights"


def of_examples(
    model: BaseTransformerModel,
    trainable: Any,
    frozen: Any,
    batches: Iterable[Batch],
    put: Callable[[Batch], Batch],
) -> tuple[Any, int]:
    """The mean over examples of the squared gradient of each one's log likelihood, without dropout.

    Args:
      model: with its method in it.
      trainable, frozen: the parameters; of the first is the gradient.
      batches: on the host; rows without a target do not count.
      put: onto the devices.

    Returns:
      A tree like `trainable`, and the number of examples.

    Raises:
      UserError: there are no examples, or a gradient is not finite.
    """

    @jax.jit
    def add(total: Any, trainable: Any, frozen: Any, batch: Batch):
        def one(total, row):
            row = jax.tree.map(lambda x: x[None], row)
            grads = jax.grad(lambda p: jnp.sum(model.score_batch(merge(p, frozen), row)))(trainable)
            return jax.tree.map(lambda t, g: t + jnp.square(g), total, grads), None

        total, _ = jax.lax.scan(one, total, batch)
        return total, jnp.sum(jnp.any(batch[_WEIGHTS] > 0, axis=-1))

    total, count = jax.tree.map(jnp.zeros_like, trainable), 0
    for batch in batches:
        total, found = add(total, trainable, frozen, put(batch))
        count += int(found)
    if not count:
        raise UserError("The earlier corpus has no example with a target to take gradients on.")
    if not all(np.isfinite(float(jnp.sum(x))) for x in jax.tree.leaves(total)):
        raise UserError("A gradient on the earlier corpus is not finite; check the checkpoint.")
    return jax.tree.map(lambda x: x / count, total), count
