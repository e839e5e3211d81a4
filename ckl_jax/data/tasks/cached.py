"""Cached tasks: tokenised examples as memory-mapped flat token files with a manifest.

A cached task is a folder:

    manifest.json      features (dtype, tokens, bytes, SHA-256), rows, and what the maker recorded
    <feature>.tokens   all rows of a feature, end to end, little-endian
    <feature>.offsets  int64 [rows + 1], where each row begins

The manifest is written last: a folder without one is incomplete and is not opened. A batch is one
gather over the memory map, without a Python loop over rows.
"""

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax import checks
from ckl_jax.errors import UserError
from ckl_jax.files import ANY_NUMBER, os_errors, parents_of, parse_json, sha256, write_json

FORMAT = 1
_DTYPES = ("<u2", "<u4")  # of token ids
Row = Mapping[str, Sequence[int]]
_FLUSH_ROWS = 8192
_HASHED_BYTES = 1 << 28  # larger files take more than a moment


class _FeatureWriter:
    """Appends the rows of one feature to its two files, hashing as it goes."""

    def __init__(self, directory: Path, name: str, dtype: np.dtype):
        self.name, self.dtype, self.tokens, self.rows = name, dtype, 0, 0
        self._pending: list[Sequence[int]] = []
        self._files = {k: open(directory / f"{name}.{k}", "wb") for k in ("tokens", "offsets")}
        self._hashes = {k: hashlib.sha256() for k in self._files}
        self._append("offsets", np.zeros(1, "<i8"))

    def _append(self, kind: str, values: np.ndarray) -> None:
        data = values.tobytes()
        self._files[kind].write(data)
        self._hashes[kind].update(data)

    def add(self, row: Sequence[int]) -> None:
        self._pending.append(row)
        self.rows += 1
        if len(self._pending) >= _FLUSH_ROWS:
            self.flush()

    def flush(self) -> None:
        lengths = np.array([len(r) for r in self._pending], np.int64)
        flat = np.fromiter((t for r in self._pending for t in r), np.int64, int(lengths.sum()))
        if len(flat) and (flat.min() < 0 or flat.max() > np.iinfo(self.dtype).max):
            raise ValueError(f"{self.name}: a token id does not fit {self.dtype}")
        self._append("tokens", flat.astype(self.dtype))
        self._append("offsets", (self.tokens + np.cumsum(lengths)).astype("<i8"))
        self.tokens += len(flat)
        self._pending = []

    def close(self) -> dict[str, Any]:
        """Returns the feature's entry of the manifest."""
        self.flush()
        for f in self._files.values():
            f.flush()
            os.fsync(f.fileno())
        sizes = {k: f.tell() for k, f in self._files.items()}
        self.abandon()
        return {
            "dtype": self.dtype.str,
            "tokens": self.tokens,
            "bytes": sizes,
            "sha256": {k: h.hexdigest() for k, h in self._hashes.items()},
        }

    def abandon(self) -> None:
        for f in self._files.values():
            f.close()


def write_cached(
    directory: str | os.PathLike,
    rows: Iterable[Row] | Callable[[Path], Iterable[Row]],
    *,
    meta: Mapping[str, Any] | None = None,
    features: Sequence[str] = ("inputs", "targets"),
    vocab_size: int = 2**16,
    eos_id: int = 1,
) -> dict[str, Any]:
    """Writes a cached task from a stream of rows; an existing one is replaced only when the new one
    is complete.

    Args:
      rows: each row maps every feature to its token ids. Memory does not grow with their number.
        Or a function that makes them, given a folder whose other files become the task's too.
      meta: what to record in the manifest (source and its hash, vocabulary digest, versions, ...).
      vocab_size: the vocabulary's size; up to 65,536 ids are stored in two bytes, else in four.
      eos_id: the id that a truncated row keeps as its last.

    Returns:
      The manifest.

    Raises:
      UserError: there are no rows, or the folder cannot be written.
    """
    directory = Path(directory)
    dtype = np.dtype(_DTYPES[0] if vocab_size <= 2**16 else _DTYPES[1])
    with parents_of(directory):
        with os_errors(directory):
            work = Path(tempfile.mkdtemp(dir=directory.parent, prefix=f".{directory.name}."))
        writers: list[_FeatureWriter] = []
        try:
            with os_errors(directory):
                writers += [_FeatureWriter(work, name, dtype) for name in features]
            for row in rows(work) if callable(rows) else rows:
                for writer in writers:
                    with os_errors(directory):
                        writer.add(row[writer.name])
            if not writers[0].rows:
                raise UserError(
                    f"No rows to write to {directory}: its corpus is empty, or the vocabulary "
                    "makes no tokens of it."
                )
            with os_errors(directory):
                entries = {w.name: w.close() for w in writers}
            manifest = {
                "format": FORMAT,
                "rows": writers[0].rows,
                "eos_id": eos_id,
                "features": entries,
                "meta": dict(meta or {}),
            }
            write_json(work / "manifest.json", manifest)
            _put_in_place(work, directory)
        finally:
            for writer in writers:
                with contextlib.suppress(OSError):
                    writer.abandon()
            shutil.rmtree(work, ignore_errors=True)
    return manifest


def _put_in_place(work: Path, directory: Path) -> None:
    """Moves the finished files of `work` to `directory`, the manifest last."""
    with os_errors(directory):
        os.chmod(work, 0o755)
        directory.mkdir(exist_ok=True)
        (directory / "manifest.json").unlink(missing_ok=True)
        # By the first files `is_ours` knows the folder from then on.
        order = {".offsets": 0, ".tokens": 1, ".jsonl": 2, ".json": 3}
        for path in sorted(work.iterdir(), key=lambda p: (order[p.suffix], p.name)):
            os.replace(path, directory / path.name)


def is_ours(directory: str | os.PathLike) -> bool:
    """Whether a folder may be filled: it is empty, missing, or contains (part of) a task."""
    directory = Path(directory)
    with os_errors(directory, "read"):
        return not os.path.lexists(directory) or (
            directory.is_dir()
            and (not any(directory.iterdir()) or any(map(_has_row, directory.glob("*.offsets"))))
        )


def _has_row(offsets: Path) -> bool:
    """Whether a file holds what its name says: numbers of eight bytes, the first of them 0."""
    with open(offsets, "rb") as f:
        return f.read(8) == bytes(8) and offsets.stat().st_size % 8 == 0


_OF_FILES = {"tokens": str, "offsets": str}
_ENTRY = {"dtype": str, "bytes": dict.fromkeys(_OF_FILES, int), "sha256": _OF_FILES}
# Those that are None or missing were not recorded.
_META = {"vocabulary_digest": str, "legacy_spacing": bool, "lengths": {"*": int}}
_FIELDS = {"rows": int, "eos_id": int, "meta": dict, "features": {"*": _ENTRY}}


def read_manifest(directory: str | os.PathLike) -> dict[str, Any] | None:
    """Returns the manifest of a complete cached task, or None if there is none."""
    path = Path(directory) / "manifest.json"
    try:
        manifest = parse_json(path.read_bytes(), ANY_NUMBER)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as e:
        raise UserError(f"Cannot read {path} ({e}); delete the folder and cache it again.") from e
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise UserError(f"{path} is not a manifest of format {FORMAT}; cache the task again.")
    if not isinstance(manifest.get("features"), dict):
        raise UserError(f"{path} is not the manifest of a cached task; name a folder that is one.")
    do = "delete the folder and cache the task again"
    checks.require_fields(str(path), manifest, _FIELDS, do)
    meta = manifest["meta"]
    there = {name: kind for name, kind in _META.items() if meta.get(name) is not None}
    checks.require_fields(f"{path}, 'meta'", meta, there, do)
    for entry in manifest["features"].values():
        if entry["dtype"] not in _DTYPES:
            raise UserError(f"{path}: a dtype is {entry['dtype']!r}, none of {_DTYPES}; {do}.")
        if entry["bytes"]["offsets"] != 8 * (manifest["rows"] + 1):
            raise UserError(f"{path}: the field 'rows' is not the number of offsets; {do}.")
        if not 0 <= manifest["eos_id"] <= np.iinfo(entry["dtype"]).max:
            raise UserError(f"{path}: the field 'eos_id' is not the id of a token; {do}.")
    return manifest


def find_task(name: str, roots: Sequence[str | os.PathLike]) -> Path | None:
    """The folder of the task `name` in one of `roots`, or the folder `name` itself; None if neither
    exists.

    The roots come first: a folder beside which a command is called must not stand for a task.

    Raises:
      UserError: a name or a root is no text.
    """
    checks.require_texts(CACHE_DIRS=roots)
    checks.require_text(**{"The name of a task": name})
    folders = (*(Path(root) / name for root in roots), Path(name))
    return next((folder for folder in folders if (folder / "manifest.json").exists()), None)


class CachedTask:
    """A cached task, opened by `CachedTask.open`; holds memory maps, no examples."""

    def __init__(self, directory: Path, manifest: dict[str, Any]):
        self.directory, self.manifest = directory, manifest
        self._arrays = {name: self._map(name) for name in manifest["features"]}

    @classmethod
    def rows_in(cls, folder: Path, name: str) -> int | None:
        """The rows of the task of that name in a folder of tasks; None if it is not there."""
        task = folder / name
        return len(cls.open(task)) if (task / "manifest.json").is_file() else None

    @classmethod
    def open(cls, directory: str | os.PathLike) -> "CachedTask":
        """Opens a folder made by `write_cached`.

        Raises:
          UserError: no complete cache, or a file that differs from the manifest: of tokens over 256
            MB in size, of others in their hash.
        """
        directory = Path(directory)
        manifest = read_manifest(directory)
        if manifest is None:
            raise UserError(
                f"{directory} holds no complete cached task (no manifest.json); cache it first."
            )
        for name, entry in manifest["features"].items():
            for kind in ("tokens", "offsets"):
                _check_file(directory / f"{name}.{kind}", entry, kind)
        return cls(directory, manifest)

    def _map(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns all tokens and the row offsets [rows + 1] of the feature `name`."""
        dtype, tokens = self.manifest["features"][name]["dtype"], self.directory / f"{name}.tokens"
        empty = tokens.stat().st_size == 0  # cannot be mapped
        flat = np.zeros(1, dtype) if empty else np.memmap(tokens, dtype, "r")
        return flat, np.memmap(self.directory / f"{name}.offsets", "<i8", "r")

    def __len__(self) -> int:
        return self.manifest["rows"]

    @property
    def features(self) -> list[str]:
        return list(self._arrays)

    @property
    def meta(self) -> dict[str, Any]:
        return self.manifest["meta"]

    def row(self, index: int) -> dict[str, list[int]]:
        """Returns the token ids of one row."""
        spans = {n: (flat, *offsets[index : index + 2]) for n, (flat, offsets) in self.items()}
        return {n: flat[start:stop].tolist() for n, (flat, start, stop) in spans.items()}

    def items(self):
        """Yields (feature, (tokens, offsets))."""
        return self._arrays.items()

    def batch(self, indices: np.ndarray, lengths: Mapping[str, int]) -> dict[str, np.ndarray]:
        """Gathers rows.

        Args:
          indices: int [B], rows of this task.
          lengths: feature to length, for the features wanted.

        Returns:
          feature to int32 [B, length]: zero-padded; longer rows are cut, and keep EOS as the last
          token if they ended with it.
        """
        eos_id = self.manifest["eos_id"]
        return {
            name: _gather(*self._arrays[name], np.asarray(indices, np.int64), length, eos_id)
            for name, length in lengths.items()
        }

    def row_lengths(self, indices: np.ndarray, features: Iterable[str]) -> dict[str, np.ndarray]:
        """The tokens of rows, uncut: feature to int64 [B], for the features wanted."""
        indices = np.asarray(indices, np.int64)
        offsets = {name: self._arrays[name][1] for name in features}
        return {name: at[indices + 1] - at[indices] for name, at in offsets.items()}


def _gather(
    flat: np.ndarray, offsets: np.ndarray, indices: np.ndarray, length: int, eos_id: int
) -> np.ndarray:
    """Returns int32 [B, length], the rows `indices` [B] of a flat token array."""
    if len(indices) and (indices.min() < 0 or indices.max() >= len(offsets) - 1):
        raise IndexError(f"a row is not in [0, {len(offsets) - 1})")
    starts, ends = offsets[indices][:, None], offsets[indices + 1][:, None]  # [B, 1]
    positions = starts + np.arange(length)[None, :]
    inside = positions < ends
    last = np.maximum(ends - 1, 0)  # of an empty row: any token, it is masked
    tokens = flat[np.minimum(positions, last)].astype(np.int32)
    cut = ((ends - starts) > length)[:, 0] & (flat[last[:, 0]] == eos_id)
    tokens[cut, length - 1] = eos_id
    return np.where(inside, tokens, 0)


def _check_file(path: Path, entry: Mapping[str, Any], kind: str) -> None:
    with os_errors(path, "read"):
        size = path.stat().st_size
    if size != entry["bytes"][kind]:
        raise UserError(
            f"{path} has {size} bytes where its manifest says {entry['bytes'][kind]}: "
            "the cache is truncated; delete the folder and cache it again."
        )
    # A wrong token is one word of a row; a wrong offset makes two rows into others.
    if (kind == "offsets" or size <= _HASHED_BYTES) and sha256(path) != entry["sha256"][kind]:
        raise UserError(
            f"{path} differs from the hash in its manifest; delete the folder and cache it again."
        )
