"""One spelling of parameter paths: components joined by "/", no leading slash."""

import re
from collections.abc import Mapping
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


def loop_to_scan(params: Tree, axis: int = 1) -> dict[str, Any]:
    """Stacks `encoder/layers_<i>/...` into `encoder/encoder/...`, layer axis at `axis`."""
    return unflatten(stack_layers(flatten(params), axis))


def scan_to_loop(params: Tree, axis: int = 1) -> dict[str, Any]:
    """The inverse of `loop_to_scan`."""
    return unflatten(unstack_layers(flatten(params), axis))


def stack_layers(leaves: dict[str, Any], axis: int = 1) -> dict[str, Any]:
    """`loop_to_scan` of {path: leaf}, paths as they are or below "target/".

    The layers' leaves are taken out of the dict on the way, such that the memory of one leaf is
    needed twice and not that of all.

    Raises:
      ValueError: the layers are not numbered 0, 1, 2, ...
    """
    # {path of the stacked leaf: {layer number: path of its leaf}}
    groups: dict[str, dict[int, str]] = {}
    for path in leaves:
        if match := APART.fullmatch(path):
            stack, kind, number, rest = match.groups()
            groups.setdefault(f"{stack}/{kind}/{rest}", {})[int(number)] = path
    out = {}
    for target, members in groups.items():
        if sorted(members) != list(range(len(members))):
            raise ValueError(f"the layers of {target} are numbered {sorted(members)}")
        parts = [leaves.pop(members[i]) for i in range(len(members))]
        # Vectors have one axis only: [D] stack to [D, L] with axis 1.
        out[target] = _library(parts[0]).stack(parts, axis=min(axis, parts[0].ndim))
    return {**leaves, **out}


def unstack_layers(leaves: dict[str, Any], axis: int = 1) -> dict[str, Any]:
    """The inverse of `stack_layers`."""
    out = {}
    for path in list(leaves):
        if match := STACKED.fullmatch(path):
            stack, _, rest = match.groups()
            leaf = leaves.pop(path)
            at = min(axis, leaf.ndim - 1)
            for i in range(leaf.shape[at]):  # by copies: a view would keep the whole stack alive
                out[f"{stack}/layers_{i}/{rest}"] = _library(leaf).take(leaf, i, axis=at)
    return {**leaves, **out}


def _library(leaf: Any) -> Any:
    # NumPy arrays stay on the host: checkpoints are converted leaf by leaf without device memory.
    return np if isinstance(leaf, np.ndarray) else jnp
