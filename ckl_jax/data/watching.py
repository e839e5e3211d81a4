"""Watches files: does something whenever they have changed and are no longer being written."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ckl_jax import checks
from ckl_jax.errors import UserError


def watch(
    place: Path,
    seconds: float,
    act: Callable[[], Any],
    say: Callable[[str], None] = print,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Calls `act` whenever files at a path have changed, until it is stopped.

    Args:
      place: file or folder.
      seconds: between two looks; files that changed in between are taken for unfinished.
      act: what to do; of a `UserError` it is said, and the next change waited for.

    Raises:
      UserError: `seconds` is not positive.
    """
    checks.require_positive(**{"--watch": seconds})
    known, last = None, None
    say(f"Watching {place}; Ctrl-C ends it.")
    while True:
        state = _state(place)
        if state and state == last and state != known:
            known = state
            try:
                act()
            except UserError as e:
                say(str(e))
        last = state
        sleep(seconds)


def _state(place: Path) -> dict[str, tuple[int, float]]:
    """{path: (bytes, modification time)} of the files at a path."""
    state = {}
    for path in place.rglob("*") if place.is_dir() else [place]:
        with contextlib.suppress(FileNotFoundError):  # it was moved just now
            status = path.stat()
            state[str(path)] = status.st_size, status.st_mtime
    return state
