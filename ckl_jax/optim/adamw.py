"""AdamW as TemporalWiki's released code runs it (Loshchilov & Hutter 2019)."""

import re
from collections.abc import Sequence

import jax
import optax

from ckl_jax import checks
from ckl_jax.trees.paths import flatten, unflatten

# Hugging Face's usual pattern also names LayerNorm.weight, which matches nothing in GPT-2.
NOT_DECAYED = (r"(^|/)bias$",)


def adamw(
    learning_rate: optax.ScalarOrSchedule,
    *,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    mu_dtype: str = "float32",
    not_decayed: Sequence[str] = NOT_DECAYED,
    stacked: object = (),
) -> optax.GradientTransformation:
    """Adam with decoupled weight decay: `theta -= lr * decay * theta`.

    Args:
      learning_rate: a number, or a function of the number of steps taken (0 at the first).
      b1, b2, eps: Adam's.
      weight_decay: of all parameters but those of `not_decayed`. Biases are left out, the scales
        of norms are not, as in TemporalWiki's released code.
      mu_dtype: of the first moment, "float32" or "bfloat16", which takes half the memory. The
        second one stays float32: its steps of 1 - b2 would be lost in bfloat16.
      not_decayed: patterns, searched in parameter paths.
      stacked: unused: every number moves alone, so stacked layers need no care.
    """
    del stacked
    checks.require_number("a finite number, 0 or more", 0.0, WEIGHT_DECAY=weight_decay)
    checks.require_choice(("float32", "bfloat16"), **{"adamw.mu_dtype": mu_dtype})

    def decayed(params):
        # A function of the parameters, so that the mask has the structure of what trains, frozen
        # leaves left out.
        paths = flatten(params)
        return unflatten({p: not any(re.search(n, p) for n in not_decayed) for p in paths})

    tx = optax.adamw(
        learning_rate, b1, b2, eps, mu_dtype=mu_dtype, weight_decay=weight_decay, mask=decayed
    )

    def update(*args):
        with jax.numpy_dtype_promotion("standard"):  # optax adds bfloat16 to float32
            return tx.update(*args)

    return optax.GradientTransformation(tx.init, update)
