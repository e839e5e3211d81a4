"""Reading checkpoints: strict about names, shapes and dtypes; damage has an error of its own.

A checkpoint is a folder in the form that `store` writes, which T5X writes too, or in T5X's legacy
form (`from_t5x`). Whatever reads one here reads both.
"""

import contextlib
import functools
import logging
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from ckl_jax import checks
from ckl_jax.checkpoints import from_t5x, integrity, layout
from ckl_jax.checkpoints.assignment import some
from ckl_jax.errors import UserError
from ckl_jax.files import ANY_NUMBER, parse_json, refuse_pipe
from ckl_jax.trees import keys

PREFIX = "checkpoint_"
ORIGIN = "hf_config.json"  # of a MODEL_DIR: the config.json to export it with
CHECKSUMS = "sha256"  # in the metadata: {name of an array: its `layout.leaf_digest`}
REMEDY = "restore the folder, or use an earlier checkpoint."
_TEXT = (str, types.NoneType)
# What the items of a checkpoint may record; an earlier version's and an import's have less.
_KINDS: dict[str, dict[str, Any]] = {
    "metadata": {
        **dict.fromkeys(("ckl_jax", "method", "vocabulary_digest", "inputs_digest"), _TEXT),
        **dict.fromkeys(("base_checkpoint", "base_from_model_dir", "frozen_digest"), _TEXT),
        "frozen_dtype": str,
        "frozen_paths": ([str], types.NoneType),
        "phase": int,
        "dense": (dict, types.NoneType),
        "side": ([{"name": str}], types.NoneType),
        "scan_layers": bool,
        "metrics": {"*": (int, float)},
        CHECKSUMS: {"*": str},
    },
    "dataset": {
        **dict.fromkeys(("next_step", "epoch"), int),
        **dict.fromkeys(("train_seconds", "train_cpu_seconds", "seconds"), (int, float)),
    },
}
INSTEAD = "The checkpoint before it is used instead."


class UnreadableCheckpoint(UserError):
    """A checkpoint whose files are damaged or missing."""


def absolute(path: Any) -> epath.Path:
    """Returns a path that does not depend on the working folder; addresses stay as they are."""
    path = epath.Path(path).expanduser()
    return path if is_remote(path) else epath.Path(path.absolute())


def is_remote(path: Any) -> bool:
    """Whether `path` is an address such as gs://..., where folders cannot be renamed."""
    return str(path).startswith(("gs:/", "s3:/"))


def step_of(path: epath.Path) -> int | None:
    """Returns the step of a complete checkpoint folder, None if it is not one."""
    match = re.fullmatch(rf"{PREFIX}(\d+)", path.name)
    # Objects cannot be renamed in a bucket, so orbax marks a finished save by a file.
    if not match or (is_remote(path) and not (path / "commit_success.txt").exists()):
        return None
    return int(match[1])


def complete_steps(model_dir: Any) -> list[int]:
    """Returns the steps of the complete checkpoints in a folder, ascending."""
    model_dir = absolute(model_dir)
    if not model_dir.is_dir():
        return []
    steps = [step_of(path) for path in model_dir.iterdir()]
    return sorted(step for step in steps if step is not None)


def is_checkpoint(path: Any) -> bool:
    """Whether `path` is itself a checkpoint, and not a folder that holds some."""
    root = absolute(path)
    if not ((root / "state").is_dir() or from_t5x.is_legacy(root)):
        return False
    for file in () if is_remote(root) else Path(root).rglob("*"):
        refuse_pipe(file)  # which would be waited for
    return True


def find_checkpoint(path: Any) -> epath.Path:
    """Returns a checkpoint folder: `path` itself, or the newest complete one in a model folder.

    One that has lost its arrays is passed over with a warning.

    Raises:
      UnreadableCheckpoint: `path` is a checkpoint without arrays, or all in it are.
      UserError: there is none.
    """
    root = absolute(path)
    if is_checkpoint(root):
        return root
    steps = complete_steps(root)
    # Newest first; one that lost its arrays must not end the run while an older one is whole.
    for step in reversed(steps):
        folder = root / f"{PREFIX}{step}"
        if is_checkpoint(folder):
            return folder
        if step != steps[0]:
            warnings.warn(f"{_without_arrays(folder)} {INSTEAD}", stacklevel=2)
    if steps or (root.is_dir() and step_of(root) is not None):
        raise UnreadableCheckpoint(_without_arrays(root / f"{PREFIX}{steps[0]}" if steps else root))
    what = "it has no checkpoint_<step> folder" if root.is_dir() else "no such folder"
    raise UserError(f"No checkpoint at {path}: {what}; give a MODEL_DIR or a checkpoint in it.")


def _without_arrays(path: epath.Path) -> str:
    what = "folder 'state', which holds the arrays,"
    if any(path.glob("target.*/.zarray")):
        what = f"file '{from_t5x.INDEX}', T5X's index of its arrays,"
    return f"Checkpoint {path} is damaged: its {what} is missing; {REMEDY}"


def read_json_item(path: epath.Path, item: str) -> dict[str, Any]:
    """Returns a JSON item of a checkpoint folder without touching the arrays; {} if absent.

    The item `metadata` is never empty: without it a run would not be known for what it is.
    """
    name = f"{item}/metadata"
    if not (path / name).exists():
        return {}
    check = integrity.unreadable_object if item == "metadata" else integrity.unreadable
    if reason := check(path, name):
        raise UnreadableCheckpoint(f"Checkpoint {path} is damaged: {reason}; {REMEDY}")
    value = parse_json((path / name).read_bytes(), ANY_NUMBER)
    there = value if isinstance(value, dict) else ()
    recorded = {name: kind for name, kind in _KINDS[item].items() if name in there}
    try:
        checks.require_fields(name, value, recorded, REMEDY.rstrip("."))
    except UserError as e:
        raise UnreadableCheckpoint(f"Checkpoint {path} is damaged: its file {e}") from None
    checks.refuse_newer(f"Checkpoint {path}", value.get("ckl_jax"))
    return value


def stored_step(path: Any) -> int:
    """The step that a checkpoint says it is of; raises `UserError` if there is none."""
    path, name = find_checkpoint(path), layout.T5X_NAMES["step"]
    if name not in stored_leaves(path):
        raise UserError(f"Checkpoint {path} does not say of which step it is ({name} is missing).")
    return int(_read(path, {name: jax.ShapeDtypeStruct((), np.int32)})[name])


def stored_leaves(path: epath.Path) -> dict[str, Any]:
    """Returns name -> metadata (with `shape` and `dtype`) of the arrays of a checkpoint."""
    with _damage(path):
        if from_t5x.is_legacy(path):
            return from_t5x.legacy_leaves(path)
        # orbax wraps the tree in newer versions.
        tree = ocp.PyTreeCheckpointHandler().metadata(path / "state")
        tree = getattr(tree, "tree", tree)
    return dict(keys.named_leaves(tree, is_leaf=lambda x: hasattr(x, "shape")))


def restore_state(path: Any, like: Any) -> Any:
    """Restores a whole training state, bit for bit (T5X's legacy form may keep other dtypes).

    Args:
      like: the state's structure: arrays or `jax.ShapeDtypeStruct`s; a leaf with a sharding is
        restored on it, one without as a numpy array, a Python number as one.

    Raises:
      UnreadableCheckpoint: damaged files.
      UserError: names, shapes or dtypes differ from `like`.
    """
    path = absolute(path)
    if not path.is_dir():
        raise UserError(f"There is no checkpoint {path}.")
    if not is_checkpoint(path):
        raise UnreadableCheckpoint(_without_arrays(path))
    stored = stored_leaves(path)
    named = [(_name_in(stored, leaf), leaf.leaf) for leaf in layout.named_state(like)]
    # Names and shapes first, from metadata alone: an error comes before gigabytes are read.
    _check(path, dict(named), stored, dtypes=not from_t5x.is_legacy(path))
    # Damage to the position in the data must show now, while an older checkpoint can be taken.
    read_json_item(path, "dataset")
    values = _read(path, dict(named))
    treedef = jax.tree.structure(like)
    return jax.tree.unflatten(treedef, [values[name] for name, _ in named])


def holds_optimizer(path: Any, like: Any) -> bool:
    """Whether a checkpoint has the optimizer state `like`: all its names, in the same shapes."""
    named, stored = _named_optimizer(find_checkpoint(path), like)
    return all(name in stored and tuple(stored[name].shape) == x.shape for name, x in named)


def restore_optimizer(path: Any, like: Any) -> Any:
    """Restores the optimizer's state alone; see `holds_optimizer`, which must be true."""
    path = find_checkpoint(path)
    named, _ = _named_optimizer(path, like)
    values = _read(path, dict(named))
    return jax.tree.unflatten(jax.tree.structure(like), [values[name] for name, _ in named])


def _named_optimizer(path: epath.Path, like: Any) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
    stored = stored_leaves(path)
    leaves = layout.named_state({"opt_state": like})
    return [(_name_in(stored, leaf), leaf.leaf) for leaf in leaves], stored


def _name_in(stored: dict[str, Any], leaf: layout.NamedLeaf) -> str:
    """The name of a leaf in a checkpoint, which an earlier version or T5X may have written."""
    return next((name for name in (leaf.name, *leaf.others) if name in stored), leaf.name)


def restore_params(path: Any, like: Any = None, *, strict: bool = True) -> Any:
    """Restores the parameters only, from a checkpoint folder or a model folder's newest.

    Args:
      path: `checkpoint_<step>`, or a folder that holds such folders.
      like: tree of arrays or `jax.ShapeDtypeStruct`s, giving shapes, dtypes (values are cast)
        and shardings; None restores all parameters as numpy arrays in a nested dict.
      strict: parameters of the checkpoint that `like` lacks are an error.

    Raises:
      UserError: no checkpoint, or names or shapes differ from `like`.
    """
    path = find_checkpoint(path)
    top = layout.T5X_NAMES["params"] + "/"
    stored = {name: leaf for name, leaf in stored_leaves(path).items() if name.startswith(top)}
    if like is None:
        wanted = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in stored.items()}
        values = _read(path, wanted)
        return layout.to_nested({name.removeprefix(top): x for name, x in values.items()})
    named = layout.checkpoint_names({"params": like})
    if not strict:
        stored = {name: stored[name] for name, _ in named if name in stored}
    # Parameters are cast to the dtypes of `like`.
    _check(path, dict(named), stored, dtypes=False)
    values = _read(path, dict(named))
    return jax.tree.unflatten(jax.tree.structure(like), [values[name] for name, _ in named])


def _check(path: epath.Path, wanted: dict, stored: dict, *, dtypes: bool) -> None:
    """Raises `UserError` unless the names, shapes (and dtypes) of the two are the same."""
    missing = [name for name in wanted if name not in stored]
    unexpected = [name for name in stored if name not in wanted]
    differing = []
    for name in wanted.keys() & stored.keys():
        want, have = _description(wanted[name], dtypes), _description(stored[name], dtypes)
        if want != have:
            differing.append(f"{name} (saved {have}, expected {want})")
    problems = [
        f"{title} ({len(names)}): {some(names)}"
        for title, names in (
            ("missing in it", missing),
            ("in it but not expected", unexpected),
            ("different", sorted(differing)),
        )
        if names
    ]
    if problems:
        # The usual cause is another method in the same folder, so the message names it.
        held = read_json_item(path, "metadata").get("method")
        run = f"holds a run of {held!r} and " if held else ""
        raise UserError(
            f"Checkpoint {path} {run}does not fit the model and method that this run configures: "
            + "; ".join(problems)
            + "; use the same gin files, or another MODEL_DIR."
        )


def _description(leaf: Any, dtypes: bool) -> str:
    if layout.is_key(leaf):
        leaf = layout.key_data_like(leaf)
    leaf = leaf if hasattr(leaf, "shape") else np.asarray(leaf)
    shape = f"[{', '.join(map(str, leaf.shape))}]"
    return f"{np.dtype(leaf.dtype).name}{shape}" if dtypes else shape


def _read(path: epath.Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """Returns name -> value, each in the form of its leaf in `wanted`."""
    if not wanted:
        return {}
    if from_t5x.is_legacy(path):
        return _read_legacy(path, wanted)
    args = ocp.args.PyTreeRestore(
        # The values of `item` are ignored; its structure says what to read.
        item=layout.to_nested(dict.fromkeys(wanted, 0)),
        restore_args=layout.to_nested({name: _restore_args(x) for name, x in wanted.items()}),
        partial_restore=True,
    )
    with _damage(path):
        tree = ocp.PyTreeCheckpointHandler().restore(path / "state", args=args)
    values = dict(keys.named_leaves(tree))
    _check_sums(path, values)
    return {name: _in_form_of(like, values[name]) for name, like in wanted.items()}


def _check_sums(path: epath.Path, values: dict[str, Any]) -> None:
    """Finds flipped bits, which the format does not notice, where a digest was stored.

    Arrays that are read in another dtype, or that other processes have parts of, pass unchecked.
    """
    sums = read_json_item(path, "metadata").get(CHECKSUMS, {})
    for name, value in values.items():
        own = getattr(value, "is_fully_addressable", True) and hasattr(value, "dtype")
        known = own and sums.get(name, "").split(" ")[0] == str(value.dtype)
        if known and layout.leaf_digest(value) != sums[name]:
            raise UnreadableCheckpoint(
                f"Checkpoint {path} is damaged: the checksum of {name} does not match; {REMEDY}"
            )


def _read_legacy(path: epath.Path, wanted: dict[str, Any]) -> dict[str, Any]:
    with _damage(path):
        leaves = from_t5x.legacy_leaves(path)
        return {
            name: _in_form_of(like, from_t5x.read_leaf(leaves[name], _on_host_if_local(like)))
            for name, like in wanted.items()
        }


def _on_host_if_local(like: Any) -> Any:
    if layout.is_local(getattr(like, "sharding", None)):
        return jax.ShapeDtypeStruct(like.shape, like.dtype)
    return like


def _restore_args(like: Any) -> ocp.RestoreArgs:
    if layout.is_key(like):
        return ocp.RestoreArgs(restore_type=np.ndarray)
    sharding = getattr(like, "sharding", None)
    if sharding is None or layout.is_local(sharding):
        return ocp.RestoreArgs(restore_type=np.ndarray, dtype=getattr(like, "dtype", None))
    # Each process reads the parts that its devices hold.
    return ocp.ArrayRestoreArgs(sharding=sharding, global_shape=like.shape, dtype=like.dtype)


def _in_form_of(like: Any, value: Any) -> Any:
    if layout.is_key(like):
        return layout.wrap_key(value, like)
    sharding = getattr(like, "sharding", None)
    if layout.is_local(sharding):
        return jax.device_put(value, sharding)
    return value if hasattr(like, "shape") else type(like)(value)


@contextlib.contextmanager
def _damage(path: epath.Path) -> Iterator[None]:
    """Turns what orbax raises over broken files into `UnreadableCheckpoint`."""
    hide_what_is_raised()
    try:
        yield
    # These are not damage: they must not make a sound checkpoint be passed over.
    except (UserError, MemoryError, jax.errors.JaxRuntimeError):
        raise
    except Exception as e:
        raise UnreadableCheckpoint(
            f"Checkpoint {path} is damaged or incomplete ({integrity.sentence(path, e)}); {REMEDY}"
        ) from e


def hide_what_is_raised() -> None:
    """Drops what orbax's threads and tasks print of errors that its calls raise, then or later."""
    for logger in ("absl", "asyncio"):
        logging.getLogger(logger).addFilter(_is_news)  # adding twice is once
    # Reads of other arrays, when orbax has given up at the first.
    if getattr(sys.unraisablehook, "func", None) is not _pass_on:
        sys.unraisablehook = functools.partial(_pass_on, sys.unraisablehook)


_RAISED = ("_SignalingThread.run() raised", "Handler Commit operations", "never retrieved")


def _is_news(record: logging.LogRecord) -> bool:
    return not any(sign in record.getMessage() for sign in _RAISED)


def _pass_on(before: Callable[[Any], Any], error: Any) -> None:
    """Passes on what `sys.unraisablehook` gets, but for reads that were given up."""
    if str(error.exc_value) != "Event loop is closed":
        before(error)
