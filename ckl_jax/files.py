"""Files that are either whole or absent: write beside the target, sync, rename."""

import codecs
import collections
import contextlib
import errno
import fcntl
import functools
import gzip
import hashlib
import itertools
import json
import math
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from ckl_jax.errors import UserError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
_PART = ".part"  # ends the name of a file that is being written
_MARK = ".made_by"  # in a folder: the command that fills it, and its files
_written: list[set[str]] = []  # what each block of `claimed_folder` has written


@contextlib.contextmanager
def os_errors(path: str | os.PathLike, action: str = "write") -> Iterator[None]:
    """Turns an `OSError` (disk full, read-only folder, ...) into a `UserError` naming `path`.

    So it does with gzip files that are cut off, with what is to be read and is neither a file nor a
    folder, and with text that is not UTF-8, of which it names the line too.
    """
    try:
        if action == "read":
            refuse_pipe(path)
        yield
    except UnicodeDecodeError as e:
        raise UserError(
            f"{os.fspath(path)}{_line_that_is_not_utf8(path)}: not UTF-8 (the byte "
            f"0x{e.object[e.start]:02x}); save the file as UTF-8."
        ) from None
    except UnicodeEncodeError as e:
        raise UserError(
            f"Cannot {action} {os.fspath(path)}: {ascii(e.object[e.start : e.end])} in it is no "
            "character; give options and text in UTF-8."
        ) from None
    except (EOFError, zlib.error) as e:  # of gzip
        raise UserError(
            f"Cannot {action} {os.fspath(path)}: it is cut off or damaged ({e}); fetch it again."
        ) from None
    except OSError as e:
        reason = e.strerror or str(e)
        advice = "check the path" if action == "read" else "choose another folder"
        advice = f"free space or {advice}" if e.errno in _FULL else advice
        if action != "read" and e.errno in (errno.EACCES, errno.EROFS):
            advice = f"make its folder writable, or {advice}"
        raise UserError(f"Cannot {action} {os.fspath(path)}: {reason}; {advice}.") from None


def refuse_pipe(path: str | os.PathLike) -> None:
    """Raises `UserError` for what is neither a file nor a folder."""
    # To open a pipe that nobody writes to waits for ever, and inputs are read more than once.
    mode = os.stat(path).st_mode if os.path.exists(path) else stat.S_IFREG
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise UserError(
            f"Cannot read {os.fspath(path)}: it is a pipe or a device; write it to a file first."
        )


def require_file(path: str | os.PathLike, said: str) -> None:
    """Raises `UserError(said)` unless there is a file; of a pipe or a device it says that."""
    refuse_pipe(path)
    if not os.path.isfile(path):
        raise UserError(said)


def _line_that_is_not_utf8(path: str | os.PathLike) -> str:
    """ ", line n" of the first line of a file, gzip or not, that does not decode; "" if none."""
    opener = gzip.open if os.fspath(path).endswith(".gz") else open
    decoder, line = codecs.getincrementaldecoder("utf-8")(), 1
    with contextlib.suppress(OSError, EOFError, zlib.error), opener(path, "rb") as f:
        try:
            # By blocks: a line may have no end.
            while block := f.read(1 << 16):
                decoder.decode(block)
                line += block.count(b"\n")
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as e:
            return f", line {line + e.object.count(bytes([10]), 0, e.start)}"
    return ""


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike, mode: str = "w") -> Iterator[IO[Any]]:
    """Opens a temporary file that replaces `path` when the block ends without an exception.

    Args:
      path: the file to write; missing parent folders are made.
      mode: "w" (UTF-8 text, no newline translation) or "wb".

    Raises:
      UserError: the file cannot be written (disk full, read-only folder).
    """
    path = Path(path)
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
    with parents_of(path), os_errors(path):
        fd, temporary = _temporary_file(path)
        try:
            with open(fd, mode, **text) as f:
                yield f
                f.flush()
                os.fsync(f.fileno())
                if not os.path.lexists(temporary):
                    _give_name(f.fileno(), temporary)
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
            for written in _written:
                written.add(os.path.abspath(path))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


@contextlib.contextmanager
def parents_of(path: Path) -> Iterator[None]:
    """Makes the folders above `path`; those that the block, failing, leaves empty go again."""
    refuse_address(path)
    missing = [folder for folder in path.parents if not folder.exists()]
    try:
        with os_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for folder in missing:  # the innermost comes first
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def _temporary_file(path: Path) -> tuple[int, str]:
    """A new file beside `path`: its descriptor, and the name that it has or is to get.

    On Linux it has no name until it is complete, so that a killed process leaves nothing behind.
    """
    if hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd"):
        # Some file systems (NFS, older overlays) have no nameless files.
        with contextlib.suppress(OSError):
            fd = os.open(path.parent, os.O_TMPFILE | os.O_RDWR, 0o600)
            return fd, str(path.with_name(f".{path.name}.{secrets.token_hex(4)}{_PART}"))
    return tempfile.mkstemp(_PART, f".{path.name}.", path.parent)


def _give_name(fd: int, name: str) -> None:
    folder = os.open(os.path.dirname(name) or ".", os.O_RDONLY)
    try:
        # Without src_dir_fd Python would call link(2), which links /proc's symbolic link itself.
        os.link(f"/proc/self/fd/{fd}", name, src_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)


def write_file(path: str | os.PathLike, content: str | bytes) -> None:
    """Writes a whole file by `atomic_write`."""
    with atomic_write(path, "wb" if isinstance(content, bytes) else "w") as f:
        f.write(content)


def sha256(path: str | os.PathLike) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with os_errors(path, "read"), open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def checkpoint_digest(path: str | os.PathLike) -> str | None:
    """A digest of the arrays of a checkpoint, by which copies of it are known.

    Returns:
      32 hex digits; None if there is no such folder here, or it records none of its arrays.
    """
    record = Path(path) / "metadata" / "metadata"
    if not record.is_file() or not (arrays := read_json_object(record, ANY_NUMBER).get("sha256")):
        return None
    return hashlib.sha256(json.dumps(arrays, sort_keys=True).encode()).hexdigest()[:32]


def refuse_existing(out: str | os.PathLike, overwrite: bool | None) -> None:
    """Refuses to write over a file or folder, unless `overwrite`; an empty folder is free.

    `overwrite` is None for a command that has no such option.

    Raises:
      UserError: something is there.
    """
    refuse_address(out)
    if overwrite or not os.path.lexists(out):
        return
    with os_errors(out, "read"):
        if not os.path.isdir(out) or os.listdir(out):
            other = "" if overwrite is None else ", or add --overwrite"
            raise UserError(f"{os.fspath(out)} is there already; choose another --out{other}.")


@contextlib.contextmanager
def claimed_folder(
    out: str | os.PathLike, command: str, overwrite: bool | None = None
) -> Iterator[None]:
    """Makes a folder a command's own while the block fills it; the same command may fill it again.

    With `overwrite`, what the command wrote there before and does not write again is removed at the
    end. A folder that was not there is removed if the block fails, as on a full disk.

    Args:
      command: that writes it; it is kept in the folder, with the names of its files. Options may
        follow whose other values need `overwrite`, such as "ckl data dumps --seed 0".
      overwrite: whether it may hold what others have made; see `refuse_existing`.

    Raises:
      UserError: it holds what others have made, or another process fills it.
    """
    was_there = os.path.lexists(out)
    refuse_unclaimed(out, command, overwrite)
    with locked(out):
        (held, *listed), written = _read_mark(out), set()
        # Of another command, they are not this one's to remove.
        made = listed if held.split(" --")[0] == command.split(" --")[0] else []
        _written.append(written)
        try:
            _write_mark(out, command, made)
            yield
            here = functools.partial(_is_inside, out)
            names = {*filter(here, (os.path.relpath(path, out) for path in written))} - {_MARK}
            if overwrite and names:  # it may have found everything there
                for name in filter(here, {*made} - names):
                    os.unlink(Path(out) / name)
                made = []
            _write_mark(out, command, sorted({*made} | names))
        except BaseException:
            if not was_there:
                shutil.rmtree(out, ignore_errors=True)
            elif held and {Path(path).name for path in written} <= {_MARK}:  # nothing was done
                _write_mark(out, held, listed)
            raise
        finally:
            _written.pop()


def _read_mark(out: str | os.PathLike) -> list[str]:
    """The command that a folder is marked with, or "", and the files that it has written."""
    mark = Path(out) / _MARK
    with os_errors(mark, "read"):
        held = mark.read_bytes().decode(errors="replace") if mark.is_file() else ""
    return held.splitlines() or [""]


def _write_mark(out: str | os.PathLike, command: str, names: Iterable[str]) -> None:
    write_file(Path(out) / _MARK, "".join(f"{line}\n" for line in (command, *names)))


def _is_inside(out: str | os.PathLike, name: str) -> bool:
    """Whether a name is that of a file in a folder, not reached by a link; a mark may be forged."""
    root = os.path.join(os.path.realpath(out), "")
    path = os.path.join(root, name)
    return path.startswith(root) and os.path.realpath(path) == path and os.path.isfile(path)


@contextlib.contextmanager
def locked(folder: str | os.PathLike, wait: bool = False) -> Iterator[None]:
    """Keeps this machine's other processes that ask for it out of a folder, made where missing.

    Raises:
      UserError: another process holds it, and it is not to `wait`.
    """
    with parents_of(Path(folder) / _MARK):
        with os_errors(folder):
            held = os.open(folder, os.O_RDONLY)
        try:
            if not lock(held, wait):
                what = "is being filled by another process; wait for it or choose another --out."
                raise UserError(f"{os.fspath(folder)} {what}")
            yield
        finally:
            os.close(held)


def lock(file: Any, wait: bool = False) -> bool:
    """Locks an open file or folder until it is closed; returns whether no other process has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as e:  # or a file system has no locks
        return not isinstance(e, BlockingIOError)
    return True


def refuse_unclaimed(out: str | os.PathLike, command: str, overwrite: bool | None) -> None:
    """Raises `UserError` for a folder with files that is not marked as the command's own."""
    if os.path.exists(out) and not os.path.isdir(out):
        raise UserError(f"{os.fspath(out)} is a file; choose another --out for the folder.")
    if _read_mark(out)[0] != command:
        refuse_existing(out, overwrite)


def refuse_address(out: str | os.PathLike) -> None:
    """Raises `UserError` for gs://... and the like, which would become a folder "gs:"."""
    if re.match(r"[a-z][a-z0-9+.-]+:/", os.fspath(out), re.IGNORECASE):
        raise UserError(
            f"{os.fspath(out)} is an address; give a local folder, and copy its files afterwards."
        )


def refuse_to_replace(out: str | os.PathLike, *inputs: str | os.PathLike) -> None:
    """Raises `UserError` if `out`, a file to be written, is one of the `inputs` that are read."""
    for path in inputs:
        if os.path.exists(out) and os.path.exists(path) and os.path.samefile(out, path):
            raise UserError(
                f"{os.fspath(out)} is read and would be written over; give another --out."
            )


@contextlib.contextmanager
def atomic_folder(path: str | os.PathLike) -> Iterator[Path]:
    """Makes a temporary folder beside `path` that takes its place when the block ends well.

    What was at `path` is removed then, so the caller first sees to it that this may be.

    Raises:
      UserError: the folder cannot be written.
    """
    path = Path(path)
    with parents_of(path):
        with os_errors(path):
            work = Path(tempfile.mkdtemp(_PART, f".{path.name}.", path.parent))
        try:
            yield work
            with os_errors(path):
                os.chmod(work, 0o777 & ~_umask())
                old = work.with_name(f"{work.name}.old")
                if path.exists():
                    os.replace(path, old)
                os.replace(work, path)
                shutil.rmtree(old, ignore_errors=True)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise


def remove_parts(folder: str | os.PathLike, depth: int = 1) -> None:
    """Removes what writers that were killed left in `folder` and in those `depth` levels below it.

    The folder's owner calls it: a file that another process is writing goes too.

    Raises:
      UserError: a file cannot be removed.
    """
    for level in range(depth + 1):
        for path in Path(folder).glob("*/" * level + f".*{_PART}"):
            with os_errors(path, "remove"), contextlib.suppress(FileNotFoundError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# --- JSON


class BadJson(ValueError):
    """What is wrong with a text that should be JSON, in a few words.

    Attributes:
      line: of the text, from 1; 0 if it is not known.
      said: what of the text is wrong, such as "NaN", if that is known.
    """

    def __init__(self, reason: str, line: int = 0, said: str | None = None):
        super().__init__(reason)
        self.line, self.said = line, said


def _names_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(value := dict(pairs)) < len(pairs):
        ((name, count),) = collections.Counter(name for name, _ in pairs).most_common(1)
        raise BadJson(f"not JSON ({name[:40]!r} occurs {count:,} times in an object)")
    return value


def _no_number(name: str) -> None:
    raise BadJson(f"not JSON ({name} is not a number)", said=name)


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise BadJson(f"not JSON ({text} is too large)", said=text)
    return value


_SURROGATE = re.compile(r"\\u[dD]")  # or half of one
_HALF = re.compile(r"\\u(d[89ab]..)(?!\\ud[c-f])|(?<!\\ud[89ab]..)\\u(d[c-f]..)", re.I)
_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[][{}]', re.S)  # texts may hold some, too
ANY_NUMBER = json.JSONDecoder()  # for results, in which a loss may be NaN
_NUMBERS: dict[str, Any] = {"parse_constant": _no_number, "parse_float": _finite}
FINITE = json.JSONDecoder(**_NUMBERS)
NAMES_ONCE = json.JSONDecoder(**_NUMBERS, object_pairs_hook=_names_once)


def parse_json(
    text: str | bytes, decoder: json.JSONDecoder = FINITE, lone_surrogates: bool = False
) -> Any:
    """Returns the value of a JSON text; all JSON that the package reads is read here.

    Args:
      text: a whole file or a line.
      decoder: `FINITE`, `NAMES_ONCE` or `ANY_NUMBER`.
      lone_surrogates: take halves of surrogate pairs, which JSON can write and UTF-8 cannot.

    Raises:
      BadJson: the text is not JSON or not UTF-8, nests too deep, has a number of too many digits or
        one that `decoder` refuses, or half of a surrogate pair.
    """
    try:
        text = (text.decode() if isinstance(text, bytes) else text).removeprefix("\ufeff")
        value = decoder.decode(text)
        # To look for one character first is the fastest.
        if "\\" in text and not lone_surrogates and _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeDecodeError as e:
        line = e.object.count(b"\n", 0, e.start) + 1
        raise BadJson(f"not UTF-8 (the byte 0x{e.object[e.start]:02x})", line) from e
    except json.JSONDecodeError as e:
        raise BadJson(f"not JSON ({e.msg})", e.lineno) from e
    except UnicodeEncodeError as e:
        half = f"\\u{ord(e.object[e.start]):04x}"
        place = _HALF.search(text)
        said = f"not JSON ({half} is half of a surrogate pair)"
        raise BadJson(said, _line(text, place and place.start())) from e
    except RecursionError as e:
        raise BadJson("not JSON (too deep)", _line(text, deepest(text))) from e
    except BadJson as e:
        if e.said is not None:
            e.line = _line(text, text.find(e.said))
        raise
    except ValueError as e:
        digits = sys.get_int_max_str_digits()
        place = re.search(rf"\d{{{digits + 1}}}", text)
        said = f"not JSON (a number of more than {digits:,} digits)"
        raise BadJson(said, _line(text, place and place.start())) from e


def _line(text: str, place: int | None) -> int:
    return 0 if place is None or place < 0 else text.count("\n", 0, place) + 1


def deepest(text: str) -> int:
    """Where a text, of JSON or gin, has opened the most brackets."""
    depth = most = place = 0
    for match in _BRACKET.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match[0], 0)
        if depth > most:
            most, place = depth, match.start()
    return place


def json_value(
    text: str | bytes,
    path: str | os.PathLike,
    line: int = 0,
    decoder: json.JSONDecoder = NAMES_ONCE,
) -> Any:
    """Returns the value of a JSON text of the file `path`, of one of its lines if `line` > 0.

    Raises:
      UserError: see `parse_json`; the sentence names file and line.
    """
    try:
        return parse_json(text, decoder)
    except BadJson as e:
        where = f", line {line or e.line}" if line or e.line else ""
        raise UserError(f"{os.fspath(path)}{where}: {e}; fix it, or make the file again.") from e


def as_json(value: Any) -> Any:
    """A value as it comes back from JSON: tuples become lists, and keys text."""
    return json.loads(json.dumps(value))


def without_nan(value: Any, default: Callable[[Any], Any] | None = None) -> Any:
    """`as_json`, but numbers for which JSON has no word, such as NaN, are None."""
    return json.loads(json.dumps(value, default=default), parse_constant=lambda name: None)


def finite(value: Any) -> Any:
    """`value` with None for numbers that JSON lacks: NaN and the infinities."""
    if isinstance(value, Mapping):
        return {key: finite(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [finite(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Writes `value` as indented JSON, atomically."""
    with atomic_write(path) as f:
        json.dump(value, f, indent=2, ensure_ascii=False)
        f.write("\n")


def read_text(path: str | os.PathLike) -> str:
    """Returns the text of a file; raises `UserError` if it cannot be read, or is not UTF-8."""
    with os_errors(path, "read"):
        return Path(path).read_text(encoding="utf-8")


def read_json(path: str | os.PathLike, decoder: json.JSONDecoder = ANY_NUMBER) -> Any:
    """Returns the JSON value of a file.

    Raises:
      UserError: the file cannot be read, or is not JSON; see `parse_json`.
    """
    with os_errors(path, "read"):
        content = Path(path).read_bytes()
    return json_value(content, path, decoder=decoder)


def read_json_object(
    path: str | os.PathLike, decoder: json.JSONDecoder = NAMES_ONCE
) -> dict[str, Any]:
    """Returns the JSON object of a file; by default numbers are finite and names occur once.

    Raises:
      UserError: see `read_json`; or it is another value.
    """
    value = read_json(path, decoder)
    if not isinstance(value, dict):
        raise UserError(
            f"{os.fspath(path)} holds {json.dumps(value)[:40]}, which is not a JSON object {{...}}."
        )
    return value


def write_jsonl(path: str | os.PathLike, rows: Any) -> int:
    """Writes each of `rows` as one JSON line, atomically; returns how many they are."""
    count = 0
    with atomic_write(path) as f:
        for row in rows:
            f.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    return count


def read_jsonl(path: str | os.PathLike, start: int = 0) -> Iterator[Any]:
    """Yields the JSON value of each non-empty line of a file that a command wrote, from `start` on.

    Lines of any length are read; `json_rows.numbered_rows` is for files that users give.

    Raises:
      UserError: the file cannot be read, or a line is not JSON.
    """
    with os_errors(path, "read"), open(path, "rb") as f:
        for number, line in enumerate(itertools.islice(f, start, None), start + 1):
            if line.strip():
                yield json_value(line, path, number, ANY_NUMBER)
