"""Layers stacked for a scan, and layers apart: from one form of a checkpoint to the other.

T5X's names: `encoder/layers_<i>/...` apart, `encoder/encoder/...` stacked along axis 1 (the last
one of a vector). The side networks of methods keep their own form.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

AXIS = 1
_APART = re.compile(r"((?:target/)?(encoder|decoder))/layers_(\d+)/(.*)")
_STACKED = re.compile(r"((?:target/)?(encoder|decoder))/\2/(.*)")


def is_stacked(names: Iterable[str]) -> bool | None:
    """Whether the layers of a model are stacked; None if the names don't tell (or tell both)."""
    names = list(names)
    stacked = any(_STACKED.fullmatch(name) for name in names)
    apart = any(_APART.fullmatch(name) for name in names)
    return stacked if stacked != apart else None


def convert(leaves: Mapping[str, Any], wanted: Iterable[str]) -> dict[str, Any]:
    """Lays out parameters as `wanted` has them.

    Args:
      leaves: name -> numpy array. Emptied on the way where it is a dict, such that the memory of
        one leaf is needed twice and not that of all.
      wanted: names of the model's parameters.

    Returns:
      name -> array; `leaves` itself if both have the same form or the names don't tell.

    Raises:
      ValueError: the stored layers are not numbered 0, 1, 2, ...
    """
    want, have = is_stacked(wanted), is_stacked(leaves)
    if want is None or have is None or want == have:
        return dict(leaves)
    remaining = leaves if isinstance(leaves, dict) else dict(leaves)
    return _stack(remaining) if want else _unstack(remaining)


def _stack(leaves: dict[str, Any]) -> dict[str, Any]:
    groups: dict[str, dict[int, str]] = {}
    for name in leaves:
        match = _APART.fullmatch(name)
        if match:
            stack, kind, number, rest = match.groups()
            groups.setdefault(f"{stack}/{kind}/{rest}", {})[int(number)] = name
    out = {}
    for target, members in groups.items():
        if sorted(members) != list(range(len(members))):
            raise ValueError(f"the layers of {target} are numbered {sorted(members)}")
        parts = [np.asarray(leaves.pop(members[i])) for i in range(len(members))]
        out[target] = np.stack(parts, axis=min(AXIS, parts[0].ndim))
    return {**leaves, **out}


def _unstack(leaves: dict[str, Any]) -> dict[str, Any]:
    out = {}
    for name in list(leaves):
        match = _STACKED.fullmatch(name)
        if not match:
            continue
        stack, _, rest = match.groups()
        array = np.asarray(leaves.pop(name))
        axis = min(AXIS, array.ndim - 1)
        for i in range(array.shape[axis]):
            # A copy: a view would keep the whole stack alive.
            out[f"{stack}/layers_{i}/{rest}"] = np.ascontiguousarray(np.take(array, i, axis))
    return {**leaves, **out}
