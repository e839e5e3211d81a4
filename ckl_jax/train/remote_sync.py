"""Copies the small files of a run to its MODEL_DIR where that is a remote address (gs://...).

Orbax writes checkpoints to a bucket by itself. Metrics, rows, summaries and event files are
appended to or renamed, which a bucket cannot do: a run writes them to a folder on the disk of
process 0 and copies them, whole, before each checkpoint. A run that starts on another machine
fetches them first.
"""

import sys
from pathlib import Path
from typing import Any

import jax
from etils import epath

from ckl_jax.checkpoints.restore import PREFIX, is_remote
from ckl_jax.errors import UserError


class Mirror:
    """A local folder and its remote copy.

    Args:
      local: the folder that is written to.
      remote: the address of its copy, or None: nothing is copied.
    """

    def __init__(self, local: Any, remote: Any | None):
        self.local = Path(local)
        self.remote = epath.Path(remote) if remote is not None else None
        self._copied: dict[Path, tuple[int, int]] = {}  # by relative path: time of change, bytes

    @classmethod
    def of(cls, folder: Any) -> "Mirror":
        """The mirror of MODEL_DIR or EVAL_OUTPUT_DIR; it copies only for a remote address."""
        # The first process alone writes files, so the others have nothing to copy.
        own = is_remote(folder) and jax.process_index() == 0
        return cls(folder, folder if own else None)

    def pull(self) -> None:
        """Fetches the remote copy; it replaces local files of the same name.

        Raises:
          UserError: the address cannot be read.
        """
        if self.remote is None:
            return
        try:
            for name, file in _files(self.remote).items():
                target = self.local / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read_bytes())
                # Of the local file: what was fetched need not be copied back.
                self._copied[name] = _state(target)
        except Exception as e:  # each cloud's client has errors of its own
            raise UserError(f"Cannot read {self.remote}: {type(e).__name__}: {e}") from e

    def push(self) -> None:
        """Uploads changes and deletions; a failure is printed, and retried at the next push."""
        if self.remote is None:
            return
        try:
            here = _files(self.local)
            for name, file in here.items():
                state = _state(file)
                if self._copied.get(name) != state:
                    target = self.remote / name.as_posix()
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(file.read_bytes())
                    self._copied[name] = state
            # Only files that this run put there or fetched; a stranger's file at the address stays.
            for name in self._copied.keys() - here.keys():
                (self.remote / name.as_posix()).unlink(missing_ok=True)
                del self._copied[name]
        except Exception as e:
            print(
                f"Cannot copy {self.local} to {self.remote} ({type(e).__name__}: {e}); "
                "the next checkpoint tries again.",
                file=sys.stderr,
            )


def _files(folder: Any, below: Path = Path()) -> dict[Path, Any]:
    """The files of a folder by relative path, without checkpoints and unfinished files."""
    files: dict[Path, Any] = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        # Dot files are those that `atomic_write` has not renamed yet; checkpoints are copied by
        # orbax itself.
        if path.name.startswith((".", PREFIX)):
            continue
        if path.is_dir():
            files |= _files(path, below / path.name)
        else:
            files[below / path.name] = path
    return files


def _state(file: Path) -> tuple[int, int]:
    stat = file.stat()
    return stat.st_mtime_ns, stat.st_size
