"""Finds the damaged file of a checkpoint and describes the damage.

Orbax keeps all arrays in the few data files of an OCDBT database. Its errors name the database; the
tree of it says which bytes of which file each array needs. Where that finds nothing, the error of
TensorStore is reduced to the file it ends with and the cause behind it.
"""

import contextlib
import re
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

import tensorstore as ts
from etils import epath

from ckl_jax.checkpoints import from_t5x
from ckl_jax.files import ANY_NUMBER, parse_json


class CutOff(NamedTuple):
    """A part of an array that its file does not reach to."""

    array: str  # its name, "target/decoder/decoder_norm/scale"
    file: str  # relative to the checkpoint
    length: int | None  # bytes that the file has; None: it is missing
    needed: int  # bytes that it had


def sentence(path: epath.Path, error: Exception) -> str:
    """Describes the damage to a checkpoint."""
    # From the most precise description to the least: a named file, a named array, the library's
    # text.
    if isinstance(error, from_t5x.Damaged):
        return str(error)
    return (
        _descriptions(path)
        or _arrays(path)
        or _of_text(path, str(error))
        or f"its files cannot be read: {_cause(error)}"
    )


def unreadable(path: epath.Path, file: str) -> str | None:
    """Describes the damage to a JSON file of a checkpoint; None if it is sound."""
    text = b""
    try:
        text = (path / file).read_bytes()
        parse_json(text, ANY_NUMBER)
    except OSError as e:
        return f"its file {file} cannot be read: {e.strerror or e}"
    except ValueError:
        return f"its file {file} is {'cut off or overwritten' if text else 'empty'}"
    return None


def unreadable_object(path: epath.Path, file: str) -> str | None:
    """The same of a file that holds a JSON object with something in it."""
    if reason := unreadable(path, file):
        return reason
    value = parse_json((path / file).read_bytes(), ANY_NUMBER)
    return None if isinstance(value, dict) and value else f"its file {file} was overwritten"


def _descriptions(path: epath.Path) -> str | None:
    """Describes the damage to the files that list the arrays and their locations."""
    state = path / "state"
    if not state.is_dir():
        return None
    # "d" is the data folder of OCDBT; checkpoints without it need no manifest.
    needed = ["_METADATA", *(["manifest.ocdbt"] if (state / "d").is_dir() else [])]
    for name in needed:
        if not (state / name).exists():
            return f"its file state/{name} is missing"
    for pattern in ("_METADATA", "_sharding", "array_metadatas/*"):
        for file in sorted(state.glob(pattern)):
            if reason := unreadable(path, _within(path, str(file))):
                return reason
    return _shardings(state / "_sharding")


def _shardings(file: epath.Path) -> str | None:
    """The same of orbax's file {name: JSON of a sharding}, of arrays on devices."""
    with contextlib.suppress(FileNotFoundError, ValueError, TypeError, AttributeError):
        for text in parse_json(file.read_bytes()).values():
            parse_json(text).items()
        return None
    return "its file state/_sharding was overwritten" if file.exists() else None


def _arrays(path: epath.Path) -> str | None:
    """Names truncated arrays; None if there are none, or if the tree is damaged itself."""
    try:
        truncated = list(cut_off(path))
    except (ValueError, KeyError, OSError):
        return None
    if not truncated:
        return None
    first, arrays = truncated[0], list(dict.fromkeys(part.array for part in truncated))
    more = f" and {len(arrays) - 1} more arrays" if len(arrays) > 1 else ""
    if first.length is None:
        return f"its file {first.file}, which holds {arrays[0]}{more}, is missing"
    ends = f"ends after {first.length:,} of at least {first.needed:,} bytes"
    return f"its file {first.file} {ends}, which cuts off {arrays[0]}{more}"


def _of_text(path: epath.Path, text: str) -> str | None:
    """The file that TensorStore's text names last, and what it says of it; None if it names none.

    Its form is: Error ... "a": Error ... "b": cause; at byte ... [settings and source lines].
    """
    # TensorStore nests its errors; the last quoted file is the one that failed.
    named = [m for m in re.finditer(r'"([^"]*)"', _first_line(text)) if _within(path, m[1])]
    if not named:
        return None
    file = _within(path, named[-1][1])
    if not (path / file).exists():
        return f"its file {file} is missing"
    if not (path / file).stat().length:
        return f"its file {file} is empty"
    reason = re.split(r"; |: expected=", _first_line(text)[named[-1].end() :].strip(": "))[0]
    reason = re.sub(r"^(Error [^:]*: )*", "", reason)
    return f"its file {file} cannot be read{reason and ': '}{_short(reason)}"


def _within(path: epath.Path, file: str) -> str:
    """A file relative to the checkpoint; empty if it is none of it."""
    return file.removeprefix(f"{path}/") if file.startswith(f"{path}/") else ""


def _cause(error: Exception) -> str:
    reason = _short(_first_line(str(error)).strip().rstrip(" :([{,."))
    return reason if type(error) is ValueError else f"{type(error).__name__}: {reason}"


def _first_line(text: str) -> str:
    """The first line without the settings and the repr of what failed, which libraries append."""
    text = re.split(r"<bound method|\[(?:tensorstore_spec|source locations)=", text.strip())[0]
    return text.split("\n")[0]


def _short(text: str) -> str:
    return textwrap.shorten(text, 200, placeholder=" ...")


def cut_off(path: epath.Path) -> Iterator[CutOff]:
    """The parts of arrays whose bytes are not there, in the order of their names.

    Raises:
      ValueError, KeyError: the folder is not an OCDBT database, or the tree of it is damaged too.
    """
    # `ocdbt.dump` decodes nodes of the database without reading the arrays.
    base = ts.KvStore.open(from_t5x.kvstore(path, "state")).result()
    manifest = ts.ocdbt.dump(base).result()
    lengths: dict[str, int | None] = {}
    for key, place in _values(base, manifest["versions"][-1]["root"]["location"]):
        # Five fields, of which the last four are folder, file, offset and length.
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
        # Inner nodes point to nodes; leaves hold small values themselves or point into a data file.
        if "location" in entry:
            yield from _values(base, entry["location"])
        elif "indirect_value" in entry:
            yield entry["key"], entry["indirect_value"]
