"""AdamW as TemporalWiki's released code runs it (Loshchilov & Hutter 2019)."""

import re
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import optax

from ckl_jax import checks
from ckl_jax.trees.paths import flatten, unflatten

# Hugging Face's usual pattern also names LayerNorm.weight, which matches nothing in GPT-2.
NOT_DECAYED = (r"(^|/)bias$",)
DTYPES = ("float32", "bfloat16")


def adamw(
    learning_rate: optax.ScalarOrSchedule,
    *,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    mu_dtype: str = "float32",
    nu_dtype: str = "float32",
    not_decayed: Sequence[str] = NOT_DECAYED,
    stacked: object = (),
) -> optax.GradientTransformation:
    """Adam with decoupled weight decay: `theta -= lr * decay * theta`.

    Args:
      learning_rate: a number, or a function of the number of steps taken (0 at the first).
      b1, b2, eps: Adam's.
      weight_decay: of all parameters but those of `not_decayed`. Biases are left out, the scales
        of norms are not, as in TemporalWiki's released code.
      mu_dtype: of the first moment, "float32" or "bfloat16", which takes half the memory.
      nu_dtype: of the second, the same; see `bfloat16_second_moment`.
      not_decayed: patterns, searched in parameter paths.
      stacked: unused: every number moves alone, so stacked layers need no care.
    """
    del stacked
    checks.require_number("a finite number, 0 or more", 0.0, WEIGHT_DECAY=weight_decay)
    checks.require_choice(DTYPES, **{"adamw.mu_dtype": mu_dtype, "adamw.nu_dtype": nu_dtype})

    def decayed(params):
        # A function of the parameters, so that the mask has the structure of what trains, frozen
        # leaves left out.
        paths = flatten(params)
        return unflatten({p: not any(re.search(n, p) for n in not_decayed) for p in paths})

    adam = optax.scale_by_adam(b1, b2, eps, mu_dtype=mu_dtype)
    # The chain of `optax.adamw`.
    tx = optax.chain(
        bfloat16_second_moment(adam) if nu_dtype == "bfloat16" else adam,
        optax.add_decayed_weights(weight_decay, decayed),
        optax.scale_by_learning_rate(learning_rate),
    )

    def update(*args):
        with jax.numpy_dtype_promotion("standard"):  # optax adds bfloat16 to float32
            return tx.update(*args)

    return optax.GradientTransformation(tx.init, update)


def bfloat16_second_moment(tx: optax.GradientTransformation) -> optax.GradientTransformation:
    """Keeps the field `nu` of a state in bfloat16, rounded up or down at random.

    bfloat16 has 8 bits of precision, so a step of less than 2^-9 of the number, such as Adam's
    1 - b2 = 0.001, is lost if it is rounded to the nearest, and `nu` would never decay. Rounded at
    random, it is the float32 one in expectation. The step itself is taken before the rounding. The
    random numbers depend on the field `count` and on the leaf: a resumed run draws the same.

    Args:
      tx: its state is a tuple with the fields `count` and `nu`, as that of `optax.scale_by_adam`.
    """

    def init(params):
        state = tx.init(params)
        return state._replace(nu=jax.tree.map(lambda v: v.astype(jnp.bfloat16), state.nu))

    def update(updates, state, params=None):
        nu = jax.tree.map(lambda v: v.astype(jnp.float32), state.nu)
        updates, state = tx.update(updates, state._replace(nu=nu), params)
        leaves, structure = jax.tree.flatten(state.nu)
        key = jax.random.fold_in(jax.random.key(0), state.count)
        rounded = [_rounded(v, jax.random.fold_in(key, i)) for i, v in enumerate(leaves)]
        return updates, state._replace(nu=jax.tree.unflatten(structure, rounded))

    return optax.GradientTransformation(init, update)


def _rounded(x: jax.Array, key: jax.Array) -> jax.Array:
    """x in bfloat16, up with the probability that makes its expectation x; float32, 0 or more."""
    # bfloat16 is the upper half of float32: what the lower half and a random number carry over.
    bits = jax.lax.bitcast_convert_type(x.astype(jnp.float32), jnp.uint32)
    noise = jax.random.bits(key, x.shape, jnp.uint16).astype(jnp.uint32)
    upper = ((bits + noise) >> 16).astype(jnp.uint16)
    return jax.lax.bitcast_convert_type(upper, jnp.bfloat16)
