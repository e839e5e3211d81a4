"""One spelling of parameter paths: components joined by "/", no leading slash."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import traverse_util

Tree = Mapping[str, Any]
# Leaves of layers apart, and of layers stacked, in a tree or in a checkpoint.
APART = re.compile(r"((?:target/)?(encoder|decoder))/layers_(\d+)/(.*)")
STACKED = re.compile(r"((?:target/)?(encoder|decoder))/\2/(.*)")


def flatten(tree: Tree) -> dict[str, Any]:
    """{"a": {"b": x}} -> {"a/b": x}."""
    return traverse_util.flatten_dict(dict(tree), sep="/")


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `flatten`."""
    return traverse_util.unflatten_dict(dict(flat), sep="/")


def loop_to_scan(params: Tree, axis: int = 1, before: int = 0) -> dict[str, Any]:
    """Stacks `encoder/layers_<i>/...` into `encoder/encoder/...`, layer axis at `axis`.

    The first layers, as many as `before`, stay as they are.
    """
    return unflatten(stack_layers(flatten(params), axis, before))


def scan_to_loop(params: Tree, axis: int = 1) -> dict[str, Any]:
    """The inverse of `loop_to_scan`."""
    return unflatten(unstack_layers(flatten(params), axis))


def stack_layers(leaves: dict[str, Any], axis: int = 1, before: int = 0) -> dict[str, Any]:
    """`loop_to_scan` of {path: leaf}, paths as they are or below "target/".

    The layers' leaves are taken out of the dict on the way, such that the memory of one leaf is
    needed twice and not that of all.

    Raises:
      ValueError: the layers are not numbered 0, 1, 2, ..., or from `before` on.
    """
    # {path of the stacked leaf: {layer number: path of its leaf}}
    groups: dict[str, dict[int, str]] = {}
    for path in leaves:
        match = APART.fullmatch(path)
        if match and int(match.group(3)) >= before:
            stack, kind, number, rest = match.groups()
            groups.setdefault(f"{stack}/{kind}/{rest}", {})[int(number)] = path
    out = {}
    for target, members in groups.items():
        if sorted(members) != list(range(before, before + len(members))):
            raise ValueError(f"the layers of {target} are numbered {sorted(members)}")
        parts = [leaves.pop(members[i]) for i in sorted(members)]
        # Vectors have one axis only: [D] stack to [D, L] with axis 1.
        out[target] = _library(parts[0]).stack(parts, axis=min(axis, parts[0].ndim))
    return {**leaves, **out}


def unstack_layers(leaves: dict[str, Any], axis: int = 1) -> dict[str, Any]:
    """The inverse of `stack_layers`."""
    out, before = {}, first_layers(leaves)
    for path in list(leaves):
        if match := STACKED.fullmatch(path):
            stack, _, rest = match.groups()
            leaf = leaves.pop(path)
            at = min(axis, leaf.ndim - 1)
            for i in range(leaf.shape[at]):  # by copies: a view would keep the whole stack alive
                out[f"{stack}/layers_{before + i}/{rest}"] = _library(leaf).take(leaf, i, axis=at)
    return {**leaves, **out}


def first_layers(names: Iterable[str]) -> int:
    """How many layers come before those that are stacked, each under its own name."""
    return len({match.group(3) for name in names if (match := APART.fullmatch(name))})


def _library(leaf: Any) -> Any:
    # NumPy arrays stay on the host: checkpoints are converted leaf by leaf without device memory.
    return np if isinstance(leaf, np.ndarray) else jnp
