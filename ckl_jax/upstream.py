"""This project's models, methods and optimizers under upstream T5X, by gin alone.

Needs T5X to be importable; nothing else of this package imports it. `docs/upstream.md` says which
methods run and how, `gin_configs/upstream/` holds the files.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import core, serialization
from t5x import adafactor, optimizers

from ckl_jax.errors import UserError
from ckl_jax.methods.method import Method
from ckl_jax.models import t5
from ckl_jax.trees.partition import merge, split


class Transformer(t5.Transformer):
    """`models.t5.Transformer` with the attribute by which T5X's decoding knows stacked layers."""

    @property
    def scan_layers(self) -> bool:
        return self.config.scan_layers


def transformer(config: t5.T5Config, method: Method) -> Transformer:
    """The module of a base model with a method in it."""
    return Transformer(method.extend(config))


def factor_rules() -> dict[str, Any]:
    """T5X's rules for its Adafactor, and those of the axes that methods add."""
    return {**adafactor.standard_logical_factor_rules(), "lora_rank": adafactor.FactorDim.NONE}


def optimizer_def(
    method: Method, base: Any = None, transformation: Any = None, schedule: Any = None
):
    """An optimizer of upstream's kind for a method: it moves what the method trains.

    Args:
      method: says which leaves train, and perhaps how (RecAdam).
      base: an upstream `OptimizerDef` such as `adafactor.Adafactor`, whose learning rate the
        trainer gives.
      transformation: instead of it, `schedule -> optax transformation`, e.g.
        `ckl_jax.optim.adafactor.adafactor_hf`.
      schedule: `step -> learning rate`, for `transformation` and for methods with one of their
        own. Bind the trainer's, or its log shows another.

    Raises:
      UserError: the method mixes data by epoch or trains nothing; too few or too many arguments.
    """
    if method.mixture is not None or not method.trains:
        raise UserError(
            f"Method {method.name!r} cannot run under upstream T5X: it "
            + ("draws its data anew each epoch." if method.trains else "trains nothing.")
            + " Use 't5x train'."
        )
    made = method.tx or transformation
    if (made is None) == (base is None) or (made is not None and schedule is None):
        raise UserError(
            f"upstream.optimizer_def: method {method.name!r} needs "
            + ("schedule and no base." if method.tx else "base, or transformation and schedule.")
        )
    inner = AnyTransformation(made(schedule)) if made else base
    return TrainableOnly(inner, method.trainable)


class AnyTransformation(optimizers.OptaxWrapper):
    """Any optax transformation; upstream's own wrapper knows a fixed list of their states.

    The state is made anew at step 0: upstream makes it before it restores parameters, and RecAdam's
    anchor is the restored model.
    """

    def init_state(self, params):
        return optimizers.OptimizerState(
            step=jnp.zeros((), jnp.int32), param_states=self.optax_optimizer.init(params)
        )

    def apply_gradient(self, hyper_params, params, state, grads):
        fresh = self.optax_optimizer.init(params)
        first = state.step == 0
        state = state.replace(
            param_states=jax.tree.map(
                lambda new, old: jnp.where(first, new, old), fresh, state.param_states
            )
        )
        return super().apply_gradient(hyper_params, params, state, grads)

    def derive_logical_axes(self, optimizer, param_logical_axes):
        """Leaves of the state that have a parameter's shape get its axes, others none."""
        axes = optax.tree_utils.tree_map_params(
            self.optax_optimizer,
            lambda leaf, param, axes: axes if leaf.shape == param.shape else None,
            optimizer.state.param_states,
            optimizer.target,
            param_logical_axes,
            transform_non_params=lambda _: None,
        )
        nothing = jax.tree.map(lambda x: None, optimizer.state_dict())
        nothing["target"] = param_logical_axes
        nothing["state"]["param_states"] = serialization.to_state_dict(axes)
        return optimizer.restore_state(core.unfreeze(nothing))


class TrainableOnly(optimizers.OptimizerDef):
    """An optimizer over the leaves that patterns select; the others have no state and stay.

    Upstream differentiates them all the same.
    """

    def __init__(self, inner: Any, patterns: tuple[str, ...]):
        self.inner, self.patterns = inner, patterns
        super().__init__(inner.hyper_params)
        if hasattr(inner, "set_param_axes"):
            self.set_param_axes = lambda axes: inner.set_param_axes(self._trainable(axes))

    def _split(self, tree):
        return split(core.unfreeze(tree), self.patterns)

    def _trainable(self, tree):
        return core.freeze(self._split(tree)[0])

    def init_state(self, params):
        return self.inner.init_state(self._trainable(params))

    def apply_gradient(self, hyper_params, params, state, grads):
        trainable, frozen = self._split(params)
        moved, state = self.inner.apply_gradient(
            hyper_params, core.freeze(trainable), state, self._trainable(grads)
        )
        return _like(params, merge(core.unfreeze(moved), frozen)), state

    def state_dict(self, target, state):
        inner_state = self.inner.state_dict(self._trainable(target), state)
        return {**inner_state, "target": serialization.to_state_dict(target)}

    def restore_state(self, opt_target, opt_state, state_dict):
        inner = {**state_dict, "target": self._split(state_dict["target"])[0]}
        _, state = self.inner.restore_state(self._trainable(opt_target), opt_state, inner)
        return serialization.from_state_dict(opt_target, state_dict["target"]), state

    def derive_logical_axes(self, optimizer, param_logical_axes):
        inner = optimizers.Optimizer(self.inner, optimizer.state, self._trainable(optimizer.target))
        derived = self.inner.derive_logical_axes(inner, self._trainable(param_logical_axes))
        target = _like(optimizer.target, core.unfreeze(param_logical_axes))
        return optimizers.Optimizer(self, derived.state, target)


def _like(given, tree):
    return core.freeze(tree) if isinstance(given, core.FrozenDict) else tree
