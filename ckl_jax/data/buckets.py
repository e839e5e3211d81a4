"""Rows partitioned into files by a hash of their key, for joins in bounded memory."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from ckl_jax.files import os_errors, read_jsonl


def bucket_path(folder: Path, number: int) -> Path:
    return folder / f"{number:05d}.jsonl"


@contextlib.contextmanager
def bucket_files(folder: Path, count: int) -> Iterator[list[IO[str]]]:
    """Opens new files for `count` buckets."""
    with os_errors(folder), contextlib.ExitStack() as stack:
        folder.mkdir(parents=True, exist_ok=True)
        yield [
            stack.enter_context(open(bucket_path(folder, i), "w", encoding="utf-8"))
            for i in range(count)
        ]


def write_rows(rows: Iterable[tuple[int, Any]], folder: Path, count: int) -> None:
    """Writes each (key, JSON value) into the bucket key modulo `count`."""
    with bucket_files(folder, count) as files:
        for key, row in rows:
            files[key % count].write(json.dumps(row, ensure_ascii=False) + "\n")


def read_rows(folder: Path, count: int) -> Iterator[Any]:
    """Yields the rows of all buckets."""
    for i in range(count):
        yield from read_jsonl(bucket_path(folder, i))


def hash64(*parts: Any) -> int:
    """A hash in [0, 2^63) of the parts, the same in every process."""
    text = "\0".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


class KeySet:
    """A set of texts as a sorted file of 64-bit hashes: eight bytes each, shared by processes."""

    def __init__(self, path: str | os.PathLike):
        with os_errors(path, "read"):
            self._hashes = np.load(path, mmap_mode="r", allow_pickle=False)

    @staticmethod
    def write(path: Path, keys: Iterable[str]) -> None:
        hashes = np.unique(np.fromiter((hash64(key) for key in keys), dtype=np.int64))
        with os_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, hashes)

    def __contains__(self, key: str) -> bool:
        value = hash64(key)
        i = int(np.searchsorted(self._hashes, value))
        return i < len(self._hashes) and int(self._hashes[i]) == value
