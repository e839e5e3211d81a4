"""Reads T5X's legacy checkpoints: one msgpack file, and a zarr folder for each large array.

`checkpoint_<step>/checkpoint` holds {"version", "optimizer": tree}. A small array is in the tree
itself; in the place of a large one is a TensorStore specification whose path is relative to the
folder. All public T5, mT5, ByT5 and LongT5 checkpoints have this form. Orbax checkpoints of T5X
have the form of our own and need nothing from here.

The tree is data, not code: msgpack has no way to run anything. Of a specification only the path
is used, and only below the checkpoint's folder.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import ml_dtypes
import numpy as np
import tensorstore as ts
from etils import epath
from flax import serialization, traverse_util

from ckl_jax.errors import UserError

INDEX = "checkpoint"
# Version 1 named its leaves otherwise; 3 is the last that was written.
VERSIONS = (2, 3)


class Damaged(ValueError):
    """Describes the damage to a checkpoint's files, as a clause."""


@dataclasses.dataclass(frozen=True)
class LegacyLeaf:
    """One array of a legacy checkpoint, not read yet.

    Attributes:
      shape, dtype: of the array.
      read: index -> that part of it as a numpy array; `...` is all of it.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[Any], np.ndarray]


def is_legacy(path: epath.Path) -> bool:
    """Whether a folder is a checkpoint in T5X's legacy form."""
    return (path / INDEX).is_file()


def legacy_leaves(path: epath.Path) -> dict[str, LegacyLeaf]:
    """Returns name -> leaf of a legacy checkpoint; reads the index only, no zarr folder.

    Names are `target/...`, `state/step`, `state/param_states/...`. Empty places (the optimizer
    states of frozen parameters) are left out.

    Raises:
      UserError: a version that cannot be read.
      Damaged: the files are.
    """
    try:
        # The index holds small arrays itself; large ones are zarr folders that are opened when
        # read.
        content = serialization.msgpack_restore((path / INDEX).read_bytes())
    except ValueError as e:  # whatever msgpack raises is one
        raise Damaged(f"its file {INDEX} is cut off or overwritten") from e
    if not isinstance(content, Mapping):
        raise Damaged(f"its file {INDEX} holds no tree")
    version = content.get("version", 0)
    if version not in VERSIONS or "optimizer" not in content:
        raise UserError(
            f"Checkpoint {path} is of T5X's version {version}; versions {VERSIONS[0]} to "
            f"{VERSIONS[-1]} can be read: load it in the T5X that wrote it and save it again."
        )
    # A specification is a dict too; `is_leaf` keeps it whole.
    flat = traverse_util.flatten_dict(content["optimizer"], is_leaf=lambda _, x: _is_spec(x))
    named = {"/".join(map(str, key)): value for key, value in flat.items()}
    return {name: _leaf(path, name, value) for name, value in named.items() if value is not None}


def read_leaf(leaf: LegacyLeaf, like: Any) -> Any:
    """Reads one array in the form of `like`, cast to `like.dtype`.

    Args:
      leaf: of `legacy_leaves`.
      like: has `shape` and `dtype`; with a sharding, the result is a jax.Array, and each process
        reads its own parts only; without, it is a numpy array.
    """
    dtype = np.dtype(getattr(like, "dtype", leaf.dtype))
    sharding = getattr(like, "sharding", None)
    if sharding is None:
        return np.asarray(leaf.read(...)).astype(dtype, copy=False)
    # Called once for each shard that this process holds, with its index.
    return jax.make_array_from_callback(
        leaf.shape, sharding, lambda index: np.asarray(leaf.read(index)).astype(dtype, copy=False)
    )


def _is_spec(value: Any) -> bool:
    return isinstance(value, Mapping) and {"driver", "kvstore", "metadata"} <= value.keys()


def _leaf(path: epath.Path, name: str, value: Any) -> LegacyLeaf:
    if _is_spec(value):
        return _zarr_leaf(path, name, value)
    array = np.asarray(value)
    if array.dtype == object:
        raise Damaged(f"{name} is not an array")
    return LegacyLeaf(array.shape, array.dtype, array.__getitem__)


def _zarr_leaf(path: epath.Path, name: str, spec: Mapping[str, Any]) -> LegacyLeaf:
    # Old and new spellings of TensorStore specifications.
    folder = spec["kvstore"].get("path") or spec.get("path") or ""
    parts = folder.strip("/").split("/")
    if folder.startswith("/") or ".." in parts or not parts[-1]:
        raise Damaged(f"{name} is said to be in {folder!r}, outside the checkpoint")
    shape = tuple(spec["metadata"]["shape"])
    dtype = np.dtype(spec.get("dtype") or spec["metadata"]["dtype"])
    # Version 2 kept the bits of bfloat16 in integers, a type that no weight has.
    coded = dtype == np.uint16
    # Opened once, at the first read: metadata of all arrays is wanted more often than values.
    open_ = functools.cache(functools.partial(_open, path, folder.strip("/"), shape, name))

    def read(index: Any) -> np.ndarray:
        array = np.asarray(open_()[index].read().result())
        return array.view(ml_dtypes.bfloat16) if coded else array

    return LegacyLeaf(shape, np.dtype(ml_dtypes.bfloat16) if coded else dtype, read)


def _open(path: epath.Path, folder: str, shape: tuple[int, ...], name: str) -> ts.TensorStore:
    # A specification of our own: the stored one may name another bucket or driver.
    spec = {"driver": "zarr", "kvstore": kvstore(path, folder)}
    store = ts.open(spec, open=True, read=True).result()
    if store.shape != shape:
        raise Damaged(f"{name} has shape {list(store.shape)}, the index says {list(shape)}")
    return store


def kvstore(path: epath.Path, folder: str) -> dict[str, str]:
    """TensorStore's address of a folder in a checkpoint, wherever that one was written."""
    # One slash or two, as in `restore.is_remote`.
    match = re.fullmatch(r"gs:/+([^/]+)/(.*)", str(path))
    if match:
        return {"driver": "gcs", "bucket": match[1], "path": f"{match[2]}/{folder}/"}
    return {"driver": "file", "path": f"{path}/{folder}/"}
