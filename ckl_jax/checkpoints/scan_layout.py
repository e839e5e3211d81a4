"""Layers stacked for a scan, and layers apart: from one form of a checkpoint to the other.

T5X's names: `encoder/layers_<i>/...` apart, `encoder/encoder/...` stacked along axis 1 (the last
one of a vector). Layers that differ from the others, such as ModernBERT's first, stay apart before
those that are stacked. The side networks of methods keep their own form.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ckl_jax.trees.paths import APART, STACKED, first_layers, stack_layers, unstack_layers


def is_stacked(names: Iterable[str]) -> bool | None:
    """Whether the layers of a model are stacked; None if the names do not say."""
    names = list(names)
    if any(STACKED.fullmatch(name) for name in names):
        return True
    return False if any(APART.fullmatch(name) for name in names) else None


def convert(leaves: Mapping[str, Any], wanted: Iterable[str]) -> dict[str, Any]:
    """Lays out parameters as `wanted` has them.

    Args:
      leaves: name -> numpy array. Emptied on the way where it is a dict, such that the memory of
        one leaf is needed twice and not that of all.
      wanted: names of the model's parameters.

    Returns:
      name -> array; `leaves` itself if both have the same form or the names do not show it.

    Raises:
      ValueError: the stored layers are not numbered 0, 1, 2, ...
    """
    wanted = list(wanted)
    want, have = is_stacked(wanted), is_stacked(leaves)
    if want is None or have is None or want == have:
        return dict(leaves)
    remaining = leaves if isinstance(leaves, dict) else dict(leaves)
    if want:
        return stack_layers(remaining, before=first_layers(wanted))
    return unstack_layers(remaining)
