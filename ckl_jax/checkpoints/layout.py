"""The names that a training state has inside a checkpoint, and a digest of its content.

A checkpoint holds nested dicts only. Optax states are named tuples inside tuples: their leaves
are named by path (Adafactor's apart), and come back by laying those names on the caller's own
structure.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

from ckl_jax.errors import UserError
from ckl_jax.optim.adafactor import AdafactorState
from ckl_jax.trees import keys

# The one place that maps our names to T5X's; any other key of a state is kept under "extra/".
T5X_NAMES = {"params": "target", "step": "state/step", "opt_state": "state/param_states"}


class NamedLeaf(NamedTuple):
    """A leaf of a state with its name in a checkpoint."""

    name: str  # as it is written
    leaf: Any  # the array, key or number
    others: tuple[str, ...] = ()  # names under which it is looked for next


def named_state(state: Any) -> list[NamedLeaf]:
    """Returns every leaf with its names, in the order of `jax.tree.leaves`.

    Adafactor's moments are named as T5X names them, `state/param_states/<parameter>/v_row`,
    wherever in the optimizer they are; earlier versions had the parameter last. T5X counts its
    steps in `state/step` alone.

    Raises:
      UserError: two leaves would have one name.
    """
    named = []
    # Stops at Adafactor's state, whose leaves are named by parameter first, as T5X does.
    for path, node in jax.tree_util.tree_leaves_with_path(state, is_leaf=_is_adafactor):
        place = keys.name(path)
        if _is_adafactor(node):
            named += _adafactor_leaves(place, node)
        else:
            named.append(NamedLeaf(_generic_name(place), node))
    seen = set()
    for name, *_ in named:
        if name in seen:
            raise UserError(f"Two leaves of the training state are both named {name}.")
        seen.add(name)
    return named


def checkpoint_names(state: Any) -> list[tuple[str, Any]]:
    """Returns (name in the checkpoint, leaf) for every leaf; see `named_state`."""
    return [(name, leaf) for name, leaf, _ in named_state(state)]


def _generic_name(place: str) -> str:
    top, _, rest = place.partition("/")
    top = T5X_NAMES.get(top, f"extra/{top}")
    return f"{top}/{rest}" if rest else top


def _is_adafactor(node: Any) -> bool:
    return isinstance(node, AdafactorState)


def _adafactor_leaves(place: str, state: AdafactorState) -> list[NamedLeaf]:
    older = _generic_name(place)
    # Where older checkpoints, and T5X's own, keep the count.
    counts = (f"{older}/count", T5X_NAMES["step"])
    named = [NamedLeaf(f"extra/{place}/count", state.count, counts)]
    for moment in state._fields[1:]:
        for param, leaf in keys.named_leaves(getattr(state, moment)):
            name = f"{T5X_NAMES['opt_state']}/{param}/{moment}"
            named.append(NamedLeaf(name, leaf, (f"{older}/{moment}/{param}",)))
    return named


def to_nested(named: Mapping[str, Any]) -> dict[str, Any]:
    """{"a/b": x} -> {"a": {"b": x}}; unlike Flax's, it refuses a leaf at a folder's name."""
    tree: dict[str, Any] = {}
    for name, leaf in named.items():
        *parents, last = name.split("/")
        node = tree
        for part in parents:
            node = node.setdefault(part, {})
        if not isinstance(node, dict) or last in node:
            raise UserError(f"The training state has a leaf and a folder of the name {name}.")
        node[last] = leaf
    return tree


class _Uncopied(np.ndarray):
    """An array of which orbax makes no copy before it writes."""

    def __deepcopy__(self, memo: Any) -> "_Uncopied":
        return self


def to_t5x_tree(state: Any, copy: bool = True) -> dict[str, Any]:
    """Returns the nested dict of arrays that is written.

    Args:
      state: arrays on devices or on the host.
      copy: whether orbax copies the host's arrays before it writes them in the background.
    """
    named = {name: _to_array(leaf) for name, leaf in checkpoint_names(state)}
    if not copy:
        named = {k: x.view(_Uncopied) if isinstance(x, np.ndarray) else x for k, x in named.items()}
    return to_nested(named)


def _to_array(leaf: Any) -> Any:
    if is_key(leaf):
        leaf = jax.random.key_data(leaf)
    if isinstance(leaf, jax.Array) and not is_local(leaf.sharding):
        return leaf
    return np.asarray(leaf)


def is_local(sharding: jax.sharding.Sharding | None) -> bool:
    """Whether each of several processes has its own array; orbax then takes the first one's."""
    return sharding is not None and jax.process_count() > 1 and sharding.is_fully_addressable


def is_key(leaf: Any) -> bool:
    """Whether `leaf` is a typed random key, concrete or abstract."""
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)


def key_data_like(key: Any) -> jax.ShapeDtypeStruct:
    """Returns shape and dtype of the integers behind a typed random key."""
    return jax.eval_shape(jax.random.key_data, key)


def wrap_key(data: np.ndarray, like: Any) -> jax.Array:
    """Makes a typed random key of the kind of `like` from its integers."""
    kind = []
    # The implementation (threefry, rbg) is read off the abstract key; the integers do not say it.
    jax.eval_shape(lambda key: kind.append(jax.random.key_impl(key)), like)
    key = jax.random.wrap_key_data(data, impl=kind[0])
    sharding = getattr(like, "sharding", None)
    return key if sharding is None else jax.device_put(key, sharding)


def leaf_digest(leaf: Any) -> str:
    """Returns "<dtype> <SHA-256>" of an array's bytes and shape."""
    array = np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)
    # The shape is digested too: [2, 3] and [3, 2] have the same bytes.
    digest = hashlib.sha256(str(array.shape).encode())
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return f"{array.dtype.name} {digest.hexdigest()}"


def tree_digest(tree: Any) -> str:
    """Returns the SHA-256 of a tree's leaves: their names, dtypes, shapes and bytes.

    Equal for equal content whatever the containers, the order of dicts, the device or the
    sharding. Leaves are fetched one at a time.
    """
    digest = hashlib.sha256()
    # Sorted by name: the digest must not depend on the order of dicts.
    for name, leaf in sorted(keys.named_leaves(tree), key=lambda item: item[0]):
        if is_key(leaf):
            leaf = jax.random.key_data(leaf)
        if isinstance(leaf, jax.Array) and not (
            leaf.is_fully_addressable or leaf.is_fully_replicated
        ):  # other processes have parts of it
            leaf = multihost_utils.process_allgather(leaf, tiled=True)
        array = np.asarray(leaf)
        digest.update(f"{name} {array.dtype.name} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
