"""One spelling of parameter paths: components joined by "/", no leading slash."""

import re
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from flax import traverse_util

Tree = Mapping[str, Any]


def flatten(tree: Tree) -> dict[str, Any]:
    """{"a": {"b": x}} -> {"a/b": x}."""
    return traverse_util.flatten_dict(dict(tree), sep="/")


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `flatten`."""
    return traverse_util.unflatten_dict(dict(flat), sep="/")


def loop_to_scan(params: Tree, axis: int = 1) -> dict[str, Any]:
    """Stacks `encoder/layers_<i>/...` into `encoder/encoder/...`, layer axis at `axis`."""
    out, groups = {}, {}
    for path, leaf in flatten(params).items():
        match = re.fullmatch(r"(encoder|decoder)/layers_(\d+)/(.*)", path)
        if match:
            stack, index, rest = match.groups()
            groups.setdefault(f"{stack}/{stack}/{rest}", {})[int(index)] = leaf
        else:
            out[path] = leaf
    for path, leaves in groups.items():
        ordered = [leaves[i] for i in range(len(leaves))]
        out[path] = jnp.stack(ordered, axis=min(axis, ordered[0].ndim))
    return unflatten(out)


def scan_to_loop(params: Tree, axis: int = 1) -> dict[str, Any]:
    """The inverse of `loop_to_scan`."""
    out = {}
    for path, leaf in flatten(params).items():
        match = re.fullmatch(r"(encoder|decoder)/\1/(.*)", path)
        if not match:
            out[path] = leaf
            continue
        stack, rest = match.groups()
        at = min(axis, leaf.ndim - 1)
        for i in range(leaf.shape[at]):
            out[f"{stack}/layers_{i}/{rest}"] = jnp.take(leaf, i, axis=at)
    return unflatten(out)
