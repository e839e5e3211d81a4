"""Files that are either whole or absent: write beside the target, sync, rename."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from ckl_jax.errors import UserError


@contextlib.contextmanager
def os_errors(path: str | os.PathLike, action: str = "write") -> Iterator[None]:
    """Turns an `OSError` (disk full, read-only folder, ...) into a `UserError` naming `path`."""
    try:
        yield
    except OSError as e:
        reason = e.strerror or str(e)
        advice = "check the path" if action == "read" else "free space or choose another folder"
        raise UserError(f"Cannot {action} {os.fspath(path)}: {reason}; {advice}.") from e


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
        fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Writes `value` as indented JSON, atomically."""
    with atomic_write(path) as f:
        json.dump(value, f, indent=2, ensure_ascii=False)
        f.write("\n")


def write_jsonl(path: str | os.PathLike, rows: Any) -> None:
    """Writes each of `rows` as one JSON line, atomically."""
    with atomic_write(path) as f:
        for row in rows:
            f.write(json.dumps(row, ensure_ascii=False) + "\n")


def read_jsonl(path: str | os.PathLike) -> Iterator[dict]:
    """Yields the JSON value of each non-empty line.

    Raises:
      UserError: the file cannot be read, or a line is not JSON.
    """
    with os_errors(path, "read"), open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except json.JSONDecodeError as e:
                    raise UserError(f"{path}, line {number}: not JSON ({e.msg}).") from e
