"""`t5x.adafactor`: T5X's arguments over `optim.adafactor.adafactor_t5x`."""

from collections.abc import Callable
from typing import Any

import optax

from ckl_jax.optim.adafactor import adafactor_t5x
from ckl_jax.optim.clipping import clip_by_global_norm
from ckl_jax.t5x_api import names

STANDARD_RULES = "standard_logical_factor_rules"
# A size that no axis has: nothing is factored.
_NEVER = 2**31


def standard_logical_factor_rules() -> str:
    """Stands for T5X's standard rules, which the factoring here follows."""
    return STANDARD_RULES


def Adafactor(  # noqa: N802 (T5X's name)
    learning_rate: float | None = None,
    factored: bool = True,
    multiply_by_parameter_scale: bool = True,
    beta1: float | None = None,
    decay_rate: float = 0.8,
    step_offset: int = 0,
    clipping_threshold: float | None = 1.0,
    weight_decay_rate: float | None = None,
    min_dim_size_to_factor: int = 128,
    epsilon1: float = 1e-30,
    epsilon2: float = 1e-3,
    dtype_momentum: Any = None,
    factor_map: Any = None,
    logical_factor_rules: Any = None,
    weight_decay_rate_lr_exponent: float | None = None,
    global_norm_clip_threshold: float | None = None,
    max_parameter_scale: float | None = None,
    skip_nan_updates: bool = False,
) -> Callable[..., optax.GradientTransformation]:
    """T5X's Adafactor as a function of the trainer's learning rate.

    Args:
      learning_rate: not used, as in T5X: the trainer's `learning_rate_fn` gives the rate.
      epsilon1: added to the squared gradient.
      epsilon2: least scale of a parameter.
      logical_factor_rules: `standard_logical_factor_rules()` or None.
      global_norm_clip_threshold: bound of the gradients' global norm.
      Others: as in `optim.adafactor.adafactor_t5x`.

    Returns:
      `(schedule, stacked=()) -> optax transformation`.

    Raises:
      UserError: an argument that has no counterpart here.
    """
    # Momentum is kept in float32 here, whatever dtype T5X would take.
    del learning_rate, dtype_momentum
    # T5X's gin files bind the standard rules; only others have no counterpart.
    if logical_factor_rules == STANDARD_RULES:
        logical_factor_rules = None
    names.not_offered(
        "adafactor.Adafactor",
        factor_map=factor_map,
        step_offset=step_offset,
        logical_factor_rules=logical_factor_rules,
        max_parameter_scale=max_parameter_scale,
        weight_decay_rate_lr_exponent=weight_decay_rate_lr_exponent,
        skip_nan_updates=skip_nan_updates,
    )

    def make(schedule: optax.ScalarOrSchedule, stacked=()) -> optax.GradientTransformation:
        tx = adafactor_t5x(
            schedule,
            multiply_by_parameter_scale=multiply_by_parameter_scale,
            parameter_scale_floor=epsilon2,
            # `factored=False` as a size, for which the native optimizer needs no flag.
            min_dim_size_to_factor=min_dim_size_to_factor if factored else _NEVER,
            # T5X's decay_rate is the exponent of 1 - step^-decay_rate.
            decay_exponent=decay_rate,
            clipping_threshold=clipping_threshold,
            epsilon=epsilon1,
            beta1=beta1,
            weight_decay=weight_decay_rate or 0.0,
            stacked=stacked,
        )
        if global_norm_clip_threshold:
            return optax.chain(clip_by_global_norm(global_norm_clip_threshold), tx)
        return tx

    return make
