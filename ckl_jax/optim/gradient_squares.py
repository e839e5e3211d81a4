"""Optimizers that want to know how large gradients were on earlier text, before their first step.

Such an optimizer's state has `with_statistics(mean_square, batches)`, which returns it with them.
"""

from typing import Any

import jax
import optax


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
