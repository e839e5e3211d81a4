"""Runs tasks in processes, and folders in which completed tasks are not repeated."""

import collections
import contextlib
import itertools
import multiprocessing
import os
import signal
import sys
import threading
import time
import types
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from ckl_jax.errors import UserError
from ckl_jax.files import (
    as_json,
    os_errors,
    read_json_object,
    refuse_address,
    remove_parts,
    write_json,
)

_WATCH_SECONDS = 1.0
Progress = Callable[[int, int, str], None]  # done, in all, of what


def no_progress(done: int, total: int, what: str) -> None:
    """Context manager that shows no progress."""


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Context manager that blocks what a terminal sends, also in the processes that it starts."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Worker(multiprocessing.context.SpawnProcess):
    """A process that ignores Ctrl-C; the parent stops the pool."""

    def start(self) -> None:
        # A worker would run a user's script again that has no `if __name__ == "__main__"`; tasks
        # are functions of this package.
        main, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
        try:
            # Inherited, so that no traceback of an interrupt is shown while Python starts in it.
            with _deaf():
                super().start()
        finally:
            sys.modules["__main__"] = main


class _Context(multiprocessing.context.SpawnContext):
    """Spawns processes, since a fork would copy the locks of threads."""

    Process = _Worker


def _end_with(parent: int) -> None:
    """Ends this worker soon after its parent: of one that was killed it would wait for ever."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def processes(workers: int) -> Iterator[ProcessPoolExecutor | None]:
    """A pool of processes; None for one worker, which means this process."""
    if workers <= 1:
        yield None
        return
    with _deaf():  # multiprocessing starts a process of its own
        pool = ProcessPoolExecutor(workers, _Context(), _end_with, (os.getpid(),))
    try:
        yield pool
    except BrokenProcessPool as e:
        raise UserError(
            "A worker process was killed, perhaps for want of memory; use fewer --workers and "
            "start the command again: what was finished is kept."
        ) from e
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def run_tasks(
    function: Callable, tasks: Sequence[Any], pool, progress: Progress, what: str, done: int = 0
) -> None:
    """Calls `function` for each task, in any order.

    An error stops the tasks that have not begun; those that run are waited for.

    Args:
      pool: of processes; None is this process.
      what: the tasks are, such as "shards".
      done: tasks that were finished before.
    """
    if pool is None:
        results = map(function, tasks)
    else:
        under_way = as_completed(pool.submit(function, task) for task in tasks)
        results = (future.result() for future in under_way)
    progress(done, done + len(tasks), what)
    for finished, _ in enumerate(results, done + 1):
        progress(finished, done + len(tasks), what)


def ordered_map(function: Callable, items: Iterable[Any], pool, ahead: int) -> Iterator[Any]:
    """`map` over the pool: results in order, at most `ahead` items in flight."""
    if pool is None:
        yield from map(function, items)
        return
    items, under_way = iter(items), collections.deque()
    for item in itertools.islice(items, ahead):
        under_way.append(pool.submit(function, item))
    while under_way:
        result = under_way.popleft().result()
        for item in itertools.islice(items, 1):
            under_way.append(pool.submit(function, item))
        yield result


def batches(items: Iterable[Any], size: Callable[[Any], int], limit: int) -> Iterator[list[Any]]:
    """Lists of consecutive items whose sizes sum to about `limit`."""
    batch, total = [], 0
    for item in items:
        batch.append(item)
        total += size(item)
        if total >= limit:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


# --- folders

_CHECKED_BYTES = 1 << 20
_OF_CONTENT = ("bytes", "crc32")
_BY_SIZE = {"shards", "buckets"}  # settings that follow from the size of a file


class ChangedFile(UserError):
    """An input file differs from the one with which a folder was begun."""


def open_folder(
    folder: str | os.PathLike,
    settings: dict[str, Any],
    *,
    dry_run: bool = False,
    shared: bool = False,
) -> Path:
    """Creates a folder that records the settings of its contents, or reopens it.

    Args:
      folder: to make, or to go on with; what a killed process was writing in it is removed.
      settings: with {"name", "bytes", ...} of each file that is read.
      dry_run: check only, write nothing.
      shared: other processes may be writing in it, so nothing is removed.

    Raises:
      UserError: it holds what was made with others, or cannot be a folder; `ChangedFile` if all
        that differs is the content of files, as of a damaged one that was fetched again.
    """
    folder = Path(folder)
    refuse_address(folder)
    there = next((p for p in (folder, *folder.parents) if p.exists()), folder.anchor)
    if not os.path.isdir(there):
        raise UserError(f"{there} is a file; give a folder as --out.")
    path = folder / "settings.json"
    settings = as_json(settings)
    if path.is_file():
        settings_there = read_json_object(path)
        changed = [
            k for k in {**settings_there, **settings} if settings_there.get(k) != settings.get(k)
        ]
        resized = [k for k in changed if _is_resized(settings_there.get(k), settings.get(k))]
        if resized and set(changed) - set(resized) <= _BY_SIZE:
            names = ", ".join(settings[k]["name"] for k in resized)
            raise ChangedFile(
                f"{folder} was begun when {names} had another size or content; delete that folder "
                "to begin it anew."
            )
        if changed:
            raise UserError(
                f"{folder} was begun with other settings ({', '.join(sorted(changed))}); choose "
                "another --out, or delete it."
            )
        if not (shared or dry_run):
            remove_parts(folder, depth=2)
    elif folder.is_dir() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty and was not made by this command; choose another.")
    elif not dry_run:
        write_json(path, settings)
    return folder


def file_identity(path: str | os.PathLike) -> dict[str, Any]:
    """What `open_folder` records of an input file: name, size, and a CRC-32 of its content.

    Of a file of more than 1 GiB 1,024 parts of 1 MiB count, evenly spread.
    """
    with os_errors(path, "read"), open(path, "rb") as f:
        size, checksum = os.path.getsize(path), 0
        for start in range(0, size, max(_CHECKED_BYTES, size >> 10)):
            f.seek(start)
            checksum = zlib.crc32(f.read(_CHECKED_BYTES), checksum)
    return {"name": Path(path).name, "bytes": size, "crc32": f"{checksum:08x}"}


def _is_resized(before: Any, now: Any) -> bool:
    """Whether two file records differ in content only."""
    return (
        isinstance(before, dict)
        and isinstance(now, dict)
        and "bytes" in now
        and {**before, **{k: now[k] for k in _OF_CONTENT if k in now}} == now
    )
