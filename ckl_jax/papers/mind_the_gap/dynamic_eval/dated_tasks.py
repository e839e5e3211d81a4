"""Finds dated tasks by folder or by name."""

from collections.abc import Sequence

from ckl_jax.data.cached import find_task
from ckl_jax.data.dated_task import DatedTask
from ckl_jax.errors import UserError


def open_dated(name: str, cache_dirs: Sequence[str] = ()) -> DatedTask:
    """Opens a dated task by folder, or by name in one of `cache_dirs`.

    Raises:
      UserError: there is none of that name.
    """
    if (folder := find_task(name, cache_dirs)) is not None:
        return DatedTask.open(folder)
    raise UserError(
        f"Task {name!r} exists neither as a folder nor in {list(cache_dirs)}; make it with "
        "'ckl data dated'."
    )
