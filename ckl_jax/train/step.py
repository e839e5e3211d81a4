"""The jitted train step; nothing else.

The loss is differentiated with respect to the trainable tree only. Where a whole stack is frozen,
no gradient flows into it, so the compiler keeps none of its activations and its backward pass
does not exist: a method that freezes the encoder gets a cheaper step for it.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from ckl_jax.errors import UserError
from ckl_jax.models.products import with_gradients_in_row_order
from ckl_jax.optim.clipping import global_norm
from ckl_jax.train.state import TrainState
from ckl_jax.trees.partition import merge

SUMS = ("denominator", "loss", "z_loss", "correct", "tokens")  # that every loss returns
MEMORY = "memory"  # in a batch: of the state; among a loss's sums: of the next one
LossFn = Callable[[Any, Any, jax.Array | None], tuple[jax.Array, dict[str, jax.Array]]]


def make_train_step(
    loss_fn: LossFn,
    tx: optax.GradientTransformation,
    *,
    num_microbatches: int = 1,
    dropout: bool = True,
    legacy_microbatch_means: bool = False,
) -> Callable:
    """Builds `step(state, frozen, batch, key) -> (state, metrics)`, ready for `jax.jit`.

    Args:
      loss_fn: `(params, batch, dropout key) -> (summed loss, sums)`, where `sums["denominator"]` is
        what to divide by (0: by nothing). A state's memory, if it has any, is `batch["memory"]`,
        the batch first in every leaf, and the next one comes back as `sums["memory"]`.
      tx: the optimizer of the trainable leaves.
      num_microbatches: N; the batch is cut in N, gradients and denominators are summed and divided
        once, so the result does not depend on N (dropout apart).
      dropout: False trains without dropout.
      legacy_microbatch_means: as T5X does it: the batch is cut in its order, each part's sum is
        divided by the part's own denominator, and the N means are added up.

    Returns:
      The step. `key` is the run's; the step's own is `fold_in(key, state.step)`.
    """

    def objective(trainable, frozen, batch, key):
        value, sums = loss_fn(merge(trainable, frozen), batch, key if dropout else None)
        if legacy_microbatch_means:
            # A denominator of 0 makes the division after the sum one by 1: the means have been
            # taken here.
            value = value / _or_one(sums["denominator"])
            sums = {**sums, "denominator": jnp.zeros_like(sums["denominator"])}
        return value, {**sums, "objective": value}

    differentiate = with_gradients_in_row_order(jax.value_and_grad(objective, has_aux=True))

    def step(state: TrainState, frozen: Any, batch: Any, key: jax.Array):
        # Derived from the step number, not carried: a resumed run draws the same dropout masks as
        # one that was not interrupted.
        key = jax.random.fold_in(key, state.step)
        # The memory has the batch first in every leaf, so micro-batches cut it as they do the rows.
        if jax.tree.leaves(state.memory):
            batch = {**batch, MEMORY: state.memory}
        if num_microbatches == 1:
            (_, sums), grads = differentiate(state.params, frozen, batch, key)
        else:
            grads, sums = _accumulate(
                differentiate,
                state.params,
                frozen,
                batch,
                key,
                num_microbatches,
                in_order=legacy_microbatch_means,
            )
        memory = sums.pop(MEMORY, state.memory)
        # The loss is differentiated as a sum; one division here makes the mean over all
        # micro-batches exact, whatever number of tokens each has.
        denominator = _or_one(sums["denominator"])
        grads = jax.tree.map(lambda g: g / denominator, grads)
        updates, opt_state = tx.update(grads, state.opt_state, state.params)
        _check_updates(updates, state.params)
        params = optax.apply_updates(state.params, updates)
        # A batch without a target token has a loss of 0, not NaN.
        tokens = jnp.maximum(sums["tokens"], 1.0)
        metrics = {
            "loss": sums["loss"] / tokens,
            "z_loss": sums["z_loss"] / tokens,
            "accuracy": sums["correct"] / tokens,
            "tokens": sums["tokens"],
            "objective": sums["objective"] / denominator,
            # Before the clip.
            "gradient_norm": global_norm(grads),
        }
        return TrainState(state.step + 1, params, opt_state, memory), metrics

    return step


def _check_updates(updates: Any, params: Any) -> None:
    """Raises UserError if a transformation of a method's `tx` or `wrap` changes shapes."""
    given, wanted = (
        {jax.tree_util.keystr(path, simple=True, separator="/"): jnp.shape(x) for path, x in leaves}
        for leaves in map(jax.tree_util.tree_leaves_with_path, (updates, params))
    )
    for path, shape in given.items():  # optax leaves a parameter without update as it is
        if shape != wanted.get(path):
            raise UserError(
                f"The optimizer, with the method's `tx` and `wrap`, gives {path} an update of "
                f"shape {shape}, and the parameter has {wanted.get(path)}; return updates like the "
                "gradients."
            )


def _or_one(denominator: jax.Array) -> jax.Array:
    return jnp.where(denominator > 0, denominator, 1.0)


def _accumulate(differentiate, params, frozen, batch, key, count: int, in_order: bool = False):
    """Sums gradients and `sums` over `count` micro-batches, in float32."""
    rows = jax.tree.leaves(batch)[0].shape[0]
    if rows % count:
        raise UserError(f"num_microbatches={count} does not divide the batch of {rows} rows.")

    def cut(x):
        if in_order:
            # As T5X cuts it.
            return x.reshape(count, rows // count, *x.shape[1:])
        # Rows i, i + N, i + 2N, ... : each device keeps the rows that it has.
        return jnp.swapaxes(x.reshape(rows // count, count, *x.shape[1:]), 0, 1)

    def join(x):
        """The inverse of `cut`."""
        return (x if in_order else jnp.swapaxes(x, 0, 1)).reshape(rows, *x.shape[2:])

    parts = jax.tree.map(cut, batch)

    def add(total, part):
        (_, sums), grads = differentiate(params, frozen, part[0], part[1])
        memory = {MEMORY: sums.pop(MEMORY)} if MEMORY in sums else {}
        return jax.tree.map(jnp.add, total, (grads, sums)), memory

    # Each micro-batch has dropout masks of its own.
    keys = jax.random.split(key, count)
    # eval_shape gives shapes and dtypes of gradients and sums, for zeros to begin the scan with.
    first = jax.tree.map(lambda x: x[0], parts)
    (_, sums), grads = jax.eval_shape(
        lambda p, b, k: differentiate(p, frozen, b, k), params, first, key
    )
    # Memory is not summed: the scan stacks it, and `join` puts the rows back in their order.
    sums.pop(MEMORY, None)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), (grads, sums))
    # A scan, so that the activations of one micro-batch are held at a time.
    (grads, sums), memory = jax.lax.scan(add, zeros, (parts, keys))
    return grads, {**sums, **jax.tree.map(join, memory)}
