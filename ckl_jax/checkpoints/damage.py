"""Which arrays of a checkpoint lie in files that are too short or gone, without reading them.

Orbax keeps all arrays in the few data files of an OCDBT database. Its errors name the database; the
tree of it tells which bytes of which file each array needs.
"""

from collections.abc import Iterator
from typing import NamedTuple

import tensorstore as ts
from etils import epath

from ckl_jax.checkpoints.from_t5x import kvstore


class CutOff(NamedTuple):
    """A part of an array that its file does not reach to.

    Attributes:
      array: its name, "target/decoder/decoder_norm/scale".
      file: relative to the checkpoint.
      length: bytes that the file has; None: it is missing.
      needed: bytes that it had.
    """

    array: str
    file: str
    length: int | None
    needed: int


def sentence(path: epath.Path) -> str | None:
    """What is cut off in a checkpoint, in words; None if nothing is, or its index is unreadable."""
    try:
        found = list(cut_off(path))
    except (ValueError, KeyError, OSError):
        return None
    if not found:
        return None
    first, arrays = found[0], list(dict.fromkeys(part.array for part in found))
    more = f" and {len(arrays) - 1} more arrays" if len(arrays) > 1 else ""
    if first.length is None:
        return f"its file {first.file}, which holds {arrays[0]}{more}, is missing"
    ends = f"ends after {first.length:,} of at least {first.needed:,} bytes"
    return f"its file {first.file} {ends}, which cuts off {arrays[0]}{more}"


def cut_off(path: epath.Path) -> Iterator[CutOff]:
    """The parts of arrays whose bytes are not there, in the order of their names.

    Raises:
      ValueError, KeyError: the folder is no OCDBT database, or the tree of it is damaged too.
    """
    base = ts.KvStore.open(kvstore(path, "state")).result()
    manifest = ts.ocdbt.dump(base).result()
    lengths: dict[str, int | None] = {}
    for key, place in _values(base, manifest["versions"][-1]["root"]["location"]):
        _, folder, name, offset, size = place.split(":")
        file, needed = f"state/{folder}{name}", int(offset) + int(size)
        if file not in lengths:
            there = path / file
            lengths[file] = there.stat().length if there.exists() else None
        if lengths[file] is None or lengths[file] < needed:
            array = key.decode().split("/")[0].replace(".", "/")
            yield CutOff(array, file, lengths[file], needed)


def _values(base: ts.KvStore, node: str) -> Iterator[tuple[bytes, str]]:
    """(key, where its value is) below a node of the tree; values within the tree are left out."""
    for entry in ts.ocdbt.dump(base, node).result()["entries"]:
        if "location" in entry:
            yield from _values(base, entry["location"])
        elif "indirect_value" in entry:
            yield entry["key"], entry["indirect_value"]
