"""Finds dated tasks by folder or by name."""

from collections.abc import Sequence
from pathlib import Path

from ckl_jax.data.dated_task import DatedTask
from ckl_jax.errors import UserError


def open_dated(name: str, cache_dirs: Sequence[str] = ()) -> DatedTask:
    """Opens a dated task by folder, or by name in one of `cache_dirs`.

    Raises:
      UserError: there is none of that name.
    """
    for folder in (Path(name), *(Path(root) / name for root in cache_dirs)):
        if (folder / "manifest.json").exists():
            return DatedTask.open(folder)
    raise UserError(
        f"Task {name!r} exists neither as a folder nor in {list(cache_dirs)}; make it with "
        "'ckl data dated'."
    )
