"""Adafactor as Hugging Face and as T5X implement it, leaf for leaf.

Both are Shazeer & Stern's Adafactor (https://arxiv.org/abs/1804.04235, algorithms 4 to 6) without
momentum: at step `t` (from 1), with `beta_t = 1 - t**-0.8`,

    s   = g**2 + 1e-30
    v   = beta_t * v + (1 - beta_t) * s      as row means r and column means c if factored,
                                             then v = r c / mean(r)
    u   = g / sqrt(v);   u = u / max(1, rms(u) / 1.0)
    theta = theta - learning_rate * scale * u

They differ in three points:

|                       | `adafactor_hf`                | `adafactor_t5x`                         |
|-----------------------|-------------------------------|-----------------------------------------|
| `scale`               | 1                             | `max(rms(theta), 1e-3)`                 |
| factored              | every leaf of rank 2 or more, | leaves of rank 2 whose sizes are both   |
|                       | over its last two axes        | at least 128, larger size as columns    |
| weight decay a step   | `weight_decay * learning_rate`| `weight_decay`                          |

Both means and the root mean square run over one layer's leaf. A leaf that holds all layers of a
scanned stack must therefore say on which axis they lie: `stacked=[(pattern, axis), ...]`. It then
moves exactly as the separate leaves would. (T5X itself factors stacked leaves of any size and
separate ones only from 128; here the threshold applies to the layer in both forms.)

The state has T5X's four trees, so that its optimizer state can be stored and read under the same
names: `v_row` (mean over the columns), `v_col` (mean over the rows), `v` (not factored), `m`
(momentum); the ones a leaf does not use have shape `[1]`. All of it is float32. Frozen leaves
should not be in the tree at all: the state is as large as what trains.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

Stacked = Sequence[tuple[str, int]]

# The axis of the layers in a scanned T5: `encoder/encoder/...`, `decoder/decoder/...`.
T5_SCANNED: Stacked = ((r"^(encoder/encoder|decoder/decoder)/", 1),)


class AdafactorState(NamedTuple):
    """`count` is the number of steps taken; the rest are trees like the parameters."""

    count: jax.Array
    v_row: Any
    v_col: Any
    v: Any
    m: Any


class _Leaf(NamedTuple):
    """One leaf's update and statistics."""

    # the gradient on the way in, the update on the way out
    update: Any
    v_row: Any
    v_col: Any
    v: Any
    m: Any


@dataclasses.dataclass(frozen=True)
class _Axes:
    """Settings of one leaf: axes to average over, and the two axes to factor over (or None)."""

    averaged: tuple[int, ...]
    row: int | None = None
    column: int | None = None


@dataclasses.dataclass(frozen=True)
class _Settings:
    learning_rate: Callable[[jax.Array], Any]
    choose_axes: Callable[[tuple[int, ...], tuple[int, ...], str], _Axes]
    parameter_scale_floor: float | None
    decay_exponent: float
    clipping_threshold: float | None
    epsilon: float
    beta1: float | None
    weight_decay: float
    decay_follows_learning_rate: bool


def adafactor_hf(
    learning_rate: optax.ScalarOrSchedule,
    *,
    decay_exponent: float = 0.8,
    clipping_threshold: float | None = 1.0,
    epsilon: float = 1e-30,
    beta1: float | None = None,
    weight_decay: float = 0.0,
    stacked: Stacked = (),
) -> optax.GradientTransformation:
    """Hugging Face's Adafactor with `scale_parameter=False, relative_step=False`.

    Args:
      learning_rate: a number, or a function of the number of steps taken (0 at the first).
      decay_exponent: `beta_t = 1 - t**-decay_exponent`.
      clipping_threshold: bound on an update's root mean square; None for no bound.
      epsilon: added to the squared gradient.
      beta1: momentum of the scaled update; None for none (and no memory for it).
      weight_decay: `theta` also loses `weight_decay * learning_rate * theta`.
      stacked: `(pattern, axis)` pairs: leaves whose path matches hold one layer per index of
        `axis`. The first pattern that matches counts.

    Returns:
      An optax transformation whose `update` needs `params` and returns float32 updates.

    Raises:
      ValueError: at `init`, if a pattern in `stacked` matches no leaf.
    """
    return _adafactor(
        _Settings(
            learning_rate=_as_schedule(learning_rate),
            choose_axes=_last_two_axes,
            parameter_scale_floor=None,
            decay_exponent=decay_exponent,
            clipping_threshold=clipping_threshold,
            epsilon=epsilon,
            beta1=beta1,
            weight_decay=weight_decay,
            decay_follows_learning_rate=True,
        ),
        stacked,
    )


def adafactor_t5x(
    learning_rate: optax.ScalarOrSchedule,
    *,
    multiply_by_parameter_scale: bool = True,
    parameter_scale_floor: float = 1e-3,
    min_dim_size_to_factor: int = 128,
    decay_exponent: float = 0.8,
    clipping_threshold: float | None = 1.0,
    epsilon: float = 1e-30,
    beta1: float | None = None,
    weight_decay: float = 0.0,
    stacked: Stacked = (),
) -> optax.GradientTransformation:
    """T5X's own Adafactor.

    Args:
      learning_rate: a number, or a function of the number of steps taken (0 at the first).
      multiply_by_parameter_scale: scale the step by the leaf's root mean square.
      parameter_scale_floor: and by no less than this.
      min_dim_size_to_factor: both sizes of a factored leaf reach it.
      decay_exponent: `beta_t = 1 - t**-decay_exponent`.
      clipping_threshold: bound on an update's root mean square; None for no bound.
      epsilon: added to the squared gradient.
      beta1: momentum of the scaled update; None for none (and no memory for it).
      weight_decay: `theta` also loses `weight_decay * theta`, whatever the learning rate.
      stacked: `(pattern, axis)` pairs, as in `adafactor_hf`.

    Returns:
      An optax transformation whose `update` needs `params` and returns float32 updates.

    Raises:
      ValueError: at `init`, if a pattern in `stacked` matches no leaf, or a layer's leaf has rank
        3 or more (T5X asks for explicit rules there).
    """
    return _adafactor(
        _Settings(
            learning_rate=_as_schedule(learning_rate),
            choose_axes=functools.partial(_two_large_axes, min_dim_size_to_factor),
            parameter_scale_floor=parameter_scale_floor if multiply_by_parameter_scale else None,
            decay_exponent=decay_exponent,
            clipping_threshold=clipping_threshold,
            epsilon=epsilon,
            beta1=beta1,
            weight_decay=weight_decay,
            decay_follows_learning_rate=False,
        ),
        stacked,
    )


def _last_two_axes(shape, axes, path):
    del shape, path
    return _Axes(axes, *axes[-2:]) if len(axes) >= 2 else _Axes(axes)


def _two_large_axes(minimum, shape, axes, path):
    if len(axes) > 2:
        raise ValueError(
            f"T5X's Adafactor has no rule to factor {path} of shape {tuple(shape)}: "
            "name its layer axis in `stacked`, or use adafactor_hf"
        )
    # T5X averages rows over the larger axis; a stable sort keeps the last axis as columns in a tie.
    by_size = sorted(axes, key=lambda axis: shape[axis])
    if len(axes) < 2 or shape[by_size[0]] < minimum:
        return _Axes(axes)
    return _Axes(axes, *by_size)


def _adafactor(settings: _Settings, stacked: Stacked) -> optax.GradientTransformation:
    def axes_of(path, leaf):
        name = "/".join(_key_name(key) for key in path)
        layer_axis = _layer_axis(name, jnp.ndim(leaf), stacked)
        # The layer axis is left out: statistics are neither factored nor averaged over it.
        within = tuple(i for i in range(jnp.ndim(leaf)) if i != layer_axis)
        return settings.choose_axes(jnp.shape(leaf), within, name)

    def init(params):
        _check_patterns(params, stacked)
        leaves = jax.tree_util.tree_map_with_path(
            lambda path, leaf: _zeros(leaf, axes_of(path, leaf), settings), params
        )
        return AdafactorState(jnp.zeros([], jnp.int32), *_unzip(params, leaves)[1:])

    def update(grads, state, params=None):
        if params is None:
            raise ValueError("Adafactor needs params: call update(grads, state, params)")
        rate = settings.learning_rate(state.count)
        # beta_1 = 0: the first step takes its own square, so no bias correction is needed.
        beta = 1.0 - (jnp.float32(state.count) + 1.0) ** -settings.decay_exponent

        # Everything of a leaf in one function, so that its gradient is read once; the tree of
        # results is taken apart afterwards.
        def move(path, grad, param, *moments):
            axes = axes_of(path, grad)
            return _move(param, _Leaf(grad, *moments), axes, rate, beta, settings)

        leaves = jax.tree_util.tree_map_with_path(
            move, grads, params, state.v_row, state.v_col, state.v, state.m
        )
        updates, *moments = _unzip(grads, leaves)
        return updates, AdafactorState(optax.safe_increment(state.count), *moments)

    return optax.GradientTransformation(init, update)


def _unzip(like, leaves):
    """A tree of `_Leaf` -> its five fields as trees, each with the structure of `like`."""
    return [
        jax.tree.map(lambda _, leaf, f=f: getattr(leaf, f), like, leaves) for f in _Leaf._fields
    ]


def _zeros(leaf, axes, settings):
    # Not None: T5X's checkpoints hold an array of shape [1] there.
    unused = jnp.zeros((1,), jnp.float32)
    shape = jnp.shape(leaf)
    m = unused if settings.beta1 is None else jnp.zeros(shape, jnp.float32)
    if axes.row is None:
        return _Leaf(None, unused, unused, jnp.zeros(shape, jnp.float32), m)
    # v_row drops the column axis, v_col the row axis; the layer axis stays in both.
    without = [tuple(n for i, n in enumerate(shape) if i != a) for a in (axes.column, axes.row)]
    return _Leaf(None, jnp.zeros(without[0]), jnp.zeros(without[1]), unused, m)


def _move(param, leaf, axes, rate, beta, settings):
    """Replaces the gradient in `update` of a leaf by the leaf's update."""
    param, grad = param.astype(jnp.float32), leaf.update.astype(jnp.float32)
    # The order is that of both originals: normalise, clip, scale, momentum, decay.
    step, leaf = _normalize(grad, leaf, axes, beta, settings.epsilon)
    if settings.clipping_threshold is not None:
        step /= jnp.maximum(1.0, _rms(step, axes) / settings.clipping_threshold)
    scale = rate
    if settings.parameter_scale_floor is not None:
        scale *= jnp.maximum(_rms(param, axes), settings.parameter_scale_floor)
    step *= scale
    if settings.beta1 is not None:
        step = _blend(settings.beta1, leaf.m, step)
        leaf = leaf._replace(m=step)
    if settings.weight_decay:
        follow = rate if settings.decay_follows_learning_rate else 1.0
        step += settings.weight_decay * follow * param
    return leaf._replace(update=-step)


def _normalize(grad, leaf, axes, beta, epsilon):
    """The gradient over the root of its second moment, and the leaf with that moment updated."""
    # epsilon in the square, as in both originals: it keeps the root away from 0.
    squared = jnp.square(grad) + epsilon
    if axes.row is None:
        v = _blend(beta, leaf.v, squared)
        return grad * jax.lax.rsqrt(v), leaf._replace(v=v)
    # [..., rows] and [..., columns]; v = r c / mean(r) is never formed.
    v_row = _blend(beta, leaf.v_row, jnp.mean(squared, axis=axes.column))
    v_col = _blend(beta, leaf.v_col, jnp.mean(squared, axis=axes.row))
    rows = jnp.expand_dims(v_row, axes.column)
    columns = jnp.expand_dims(v_col, axes.row)
    # The mean over the row axis of each layer alone.
    relative = rows / jnp.mean(rows, axis=axes.row, keepdims=True)
    # Two roots, not one of a product: r c can leave float32's range.
    step = grad * jax.lax.rsqrt(relative) * jax.lax.rsqrt(columns)
    return step, leaf._replace(v_row=v_row, v_col=v_col)


def _blend(beta, old, new):
    return beta * old + (1.0 - beta) * new


def _rms(x, axes):
    """Root mean square of each layer, broadcastable against `x`."""
    count = math.prod(x.shape[i] for i in axes.averaged)
    return jnp.sqrt(jnp.sum(jnp.square(x), axis=axes.averaged, keepdims=True) / count)


def _layer_axis(path, rank, stacked):
    for pattern, axis in stacked:
        if re.search(pattern, path):
            # `% rank` allows negative axes, and gives a stack of scalars, [L], its only axis.
            return axis % rank
    return None


def _check_patterns(params, stacked):
    leaves = jax.tree_util.tree_leaves_with_path(params)
    paths = ["/".join(_key_name(key) for key in path) for path, _ in leaves]
    for pattern, _ in stacked:
        # No leaves: optax probes the state's structure with an empty tree.
        if paths and not any(re.search(pattern, path) for path in paths):
            raise ValueError(f"stacked pattern {pattern!r} matches none of {len(paths)} leaves")


def _key_name(key):
    return str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key))))


def _as_schedule(learning_rate):
    return learning_rate if callable(learning_rate) else lambda _: learning_rate
