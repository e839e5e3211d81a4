"""Files that are either whole or absent: write beside the target, sync, rename."""

import contextlib
import gzip
import hashlib
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from ckl_jax.errors import UserError

_PART = ".part"  # ends the name of a file that is being written


@contextlib.contextmanager
def os_errors(path: str | os.PathLike, action: str = "write") -> Iterator[None]:
    """Turns an `OSError` (disk full, read-only folder, ...) into a `UserError` naming `path`.

    So it does with gzip files that are cut off, and with text that is not UTF-8, of which it names
    the line too.
    """
    try:
        yield
    except UnicodeDecodeError as e:
        raise UserError(
            f"{os.fspath(path)}{_line_that_is_not_utf8(path)}: not UTF-8 (the byte "
            f"0x{e.object[e.start]:02x}); save the file as UTF-8."
        ) from e
    except (EOFError, zlib.error) as e:  # of gzip
        raise UserError(
            f"Cannot {action} {os.fspath(path)}: it is cut off or damaged ({e}); fetch it again."
        ) from e
    except OSError as e:
        reason = e.strerror or str(e)
        advice = "check the path" if action == "read" else "free space or choose another folder"
        raise UserError(f"Cannot {action} {os.fspath(path)}: {reason}; {advice}.") from e


def _line_that_is_not_utf8(path: str | os.PathLike) -> str:
    """ ", line n" of the first line of a file, gzip or not, that does not decode; "" if none."""
    opener = gzip.open if os.fspath(path).endswith(".gz") else open
    with contextlib.suppress(OSError, EOFError, zlib.error), opener(path, "rb") as f:
        for number, line in enumerate(f, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return f", line {number}"
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
    with os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, temporary = tempfile.mkstemp(_PART, f".{path.name}.", path.parent)
    try:
        with os_errors(path), open(fd, mode, **text) as f:
            yield f
            f.flush()
            os.fsync(f.fileno())
        with os_errors(path):
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def write_file(path: str | os.PathLike, content: str | bytes) -> None:
    """Writes a whole file by `atomic_write`."""
    with atomic_write(path, "wb" if isinstance(content, bytes) else "w") as f:
        f.write(content)


def sha256(path: str | os.PathLike) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with os_errors(path, "read"), open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def refuse_to_replace(out: str | os.PathLike, *inputs: str | os.PathLike) -> None:
    """Refuses to write over a file that is read.

    Raises:
      UserError: `out` is one of `inputs`.
    """
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
    with os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
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


def remove_parts(folder: str | os.PathLike) -> None:
    """Removes what writers that were killed left in `folder` and in the folders right below it.

    The folder's owner calls it: a file that another process is writing goes too.

    Raises:
      UserError: a file cannot be removed.
    """
    for pattern in (f".*{_PART}", f"*/.*{_PART}"):
        for path in Path(folder).glob(pattern):
            with os_errors(path, "remove"), contextlib.suppress(FileNotFoundError):
                path.unlink()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Writes `value` as indented JSON, atomically."""
    with atomic_write(path) as f:
        json.dump(value, f, indent=2, ensure_ascii=False)
        f.write("\n")


def read_json(path: str | os.PathLike) -> Any:
    """Returns the JSON value of a file.

    Raises:
      UserError: the file cannot be read, or is not JSON.
    """
    with os_errors(path, "read"), open(path, encoding="utf-8-sig") as f:
        try:
            return json.load(f)
        except json.JSONDecodeError as e:
            raise UserError(f"{os.fspath(path)}, line {e.lineno}: not JSON ({e.msg}).") from e


def read_json_object(path: str | os.PathLike) -> dict[str, Any]:
    """Returns the JSON object of a file.

    Raises:
      UserError: see `read_json`; or it is another value.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        raise UserError(
            f"{os.fspath(path)} holds {str(value)[:40]!r}, which is no JSON object {{...}}."
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


def read_jsonl(path: str | os.PathLike) -> Iterator[dict]:
    """Yields the JSON value of each non-empty line.

    Raises:
      UserError: the file cannot be read, or a line is not JSON.
    """
    with os_errors(path, "read"), open(path, encoding="utf-8-sig") as f:
        for number, line in enumerate(f, 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except json.JSONDecodeError as e:
                    raise UserError(f"{path}, line {number}: not JSON ({e.msg}).") from e
