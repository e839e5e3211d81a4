"""`t5x.optimizers`: optax's optimizers in the form that a model's `optimizer_def` has.

Each takes optax's own arguments, and gives `(schedule, stacked=()) -> optax transformation`. In
T5X a wrapped optimizer ignores the trainer's learning rate and needs its own; here the trainer's
is used where `learning_rate` is left out.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import optax

from ckl_jax.t5x_api import names

OptimizerDef = Callable[..., optax.GradientTransformation]


def wrap_optax_optimizer(optax_optimizer: Callable[..., optax.GradientTransformation]):
    """Wraps an optax constructor so that its result waits for the trainer's learning rate."""

    # gin reads the arguments from the signature of the wrapped function.
    @functools.wraps(optax_optimizer)
    def wrapped(*args: Any, **kwargs: Any) -> OptimizerDef:
        def make(schedule: optax.ScalarOrSchedule, stacked=()) -> optax.GradientTransformation:
            del stacked  # nothing of these mixes the layers of a leaf
            # A positional argument is taken for the learning rate, which is the first one of
            # optax's optimizers.
            parameters = inspect.signature(optax_optimizer).parameters
            if "learning_rate" in parameters and not args and "learning_rate" not in kwargs:
                return optax_optimizer(learning_rate=schedule, **kwargs)
            return optax_optimizer(*args, **kwargs)

        return make

    # gin names a configurable by its module: t5x.optimizers.adam, not optax.adam.
    wrapped.__module__ = __name__
    return wrapped


def chain(transformations: Sequence[optax.GradientTransformation]) -> OptimizerDef:
    """optax.chain of a list, which gin can express."""

    def make(schedule: optax.ScalarOrSchedule, stacked=()) -> optax.GradientTransformation:
        # An optax transformation is a named tuple and not callable; this module's optimizers are
        # functions.
        made = [t(schedule, stacked) if callable(t) else t for t in transformations]
        return optax.chain(*made)

    return make


def MultiOptimizer(*unused: Any, **also_unused: Any):  # noqa: N802 (T5X's name)
    """T5X's optimizer by traversals of parameters; supports freezing.

    Raises:
      UserError: always: here a method says by patterns what trains.
    """
    names.not_offered("optimizers", MultiOptimizer="(bind train.method, whose patterns freeze)")


adabelief = wrap_optax_optimizer(optax.adabelief)
adagrad = wrap_optax_optimizer(optax.adagrad)
adam = wrap_optax_optimizer(optax.adam)
adamw = wrap_optax_optimizer(optax.adamw)
fromage = wrap_optax_optimizer(optax.fromage)
lamb = wrap_optax_optimizer(optax.lamb)
lars = wrap_optax_optimizer(optax.lars)
lion = wrap_optax_optimizer(optax.lion)
noisy_sgd = wrap_optax_optimizer(optax.noisy_sgd)
radam = wrap_optax_optimizer(optax.radam)
rmsprop = wrap_optax_optimizer(optax.rmsprop)
sgd = wrap_optax_optimizer(optax.sgd)
yogi = wrap_optax_optimizer(optax.yogi)
