"""Names of the leaves of any pytree: dicts, tuples, named tuples, dataclasses."""

from typing import Any

import jax


def components(path: tuple) -> list[str]:
    """Returns the components of a jax key path as strings.

    A dict key that holds slashes counts as several components, so a tree and its flattened form
    ({"a/b": leaf}) name their leaves alike.
    """
    parts = []
    for key in path:
        # DictKey and FlattenedIndexKey have `key`, GetAttrKey `name`, SequenceKey `idx`.
        for attribute in ("key", "name", "idx"):
            if hasattr(key, attribute):
                parts += str(getattr(key, attribute)).split("/")
                break
        else:
            raise TypeError(f"Unknown kind of key {key!r} in a tree path.")
    return parts


def name(path: tuple) -> str:
    """Returns a jax key path as "a/b/0"."""
    return "/".join(components(path))


def named_leaves(tree: Any, is_leaf: Any = None) -> list[tuple[str, Any]]:
    """Returns (name, leaf) for every leaf, in the order of `jax.tree.leaves`."""
    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_leaf)
    return [(name(path), leaf) for path, leaf in leaves]
