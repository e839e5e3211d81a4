"""Processes: joining the processes of a run, signals, and locks on folders."""

import contextlib
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.config.quiet_imports import quiet_imports
from ckl_jax.errors import UserError
from ckl_jax.files import lock, os_errors

HEARTBEAT_SECONDS = 30  # a process that is silent for so long is taken for dead
_SHUTDOWN_SECONDS = 60  # at the end the slowest is waited for this long
_LAST_SECONDS = 3.0  # the first process leaves so much later than it could
LOCK = ".lock"  # in the folders that a process has filled or is filling
TOGETHER_SECONDS = 2.0  # signals within so many seconds are one request to stop

COMPILED_FOR_THIS_CPU = "CKL_COMPILED_FOR_THIS_CPU"  # names the folder: `train.compile_cache`
_PARENT = "CKL_PARENT_PROCESS"
_PR_SET_PDEATHSIG = 1
# What the errors of JAX and of its networks say of a process that is gone.
_LOST = (
    "Gloo",
    "Connection closed by peer",
    "Connection reset",
    "NCCL",
    "heartbeat",
    "UNAVAILABLE",
    "coordination service",
    "DEADLINE_EXCEEDED",
)


def stops() -> tuple[signal.Signals, ...]:
    """The signals that ask to stop: SIGHUP too, of a terminal that closes, unless under nohup."""
    hang_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] * hang_up))


def drop_terminal() -> None:
    """Gives outputs to a terminal that was closed the null device; writing would fail."""
    for number in (1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISCHR(os.fstat(number).st_mode):
                give_null_device(number)


def give_null_device(number: int) -> None:
    """Redirects the file descriptor `number` to the null device."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)


def child_environment() -> dict[str, str]:
    """Environment for a `python -m ckl_jax` subprocess that ends when this process ends."""
    return {**os.environ, _PARENT: str(os.getpid())}


def die_with_parent() -> None:
    """Asks Linux to kill this process when its parent ends, for whatever reason.

    Killed, not terminated: whoever starts the work again must not meet a process that still saves.
    """
    parent = os.environ.pop(_PARENT, None)
    if parent is None:
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError, TypeError):  # not Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent != str(os.getppid()):  # it ended before it was awaited
        raise SystemExit(128 + signal.SIGKILL)


def run_child(command: Sequence[str]) -> int:
    """Runs a `python -m ckl_jax` subprocess to its end; returns its exit code.

    What asks to stop is passed on to it, and acts on this process once it has saved and ended: if
    this process ended first, the child would be killed.
    """
    received: list[int] = []

    def pass_on(number: int, frame: types.FrameType | None) -> None:
        received.append(number)
        if number == signal.SIGHUP:
            drop_terminal()
        child.send_signal(number)

    # A terminal sends Ctrl-C to its whole process group: only this process is to get it.
    child = subprocess.Popen(command, env=child_environment(), start_new_session=True)
    before = {}
    with contextlib.suppress(ValueError):  # not the main thread: the host program handles signals
        before = {number: signal.signal(number, pass_on) for number in stops()}
    try:
        code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        os.kill(os.getpid(), received[0])
        time.sleep(1)  # the signal acts within it
    return code


class FolderLock(contextlib.ExitStack):
    """Context manager that holds an exclusive lock on a folder among this machine's processes.

    The kernel lets go of the lock when the process ends, so none is ever left behind.
    """

    def acquire(self, folder: str | os.PathLike, doing: str, name: str) -> None:
        """Locks `folder`, which exists.

        Args:
          folder: a local one; where the file system has no locks, nothing happens.
          doing: what is done to it, for the message: "trained".
          name: of the setting that chooses the folder, for the message: "MODEL_DIR".

        Raises:
          UserError: another process holds it, or the lock's name is that of a file of others.
        """
        path = Path(folder) / LOCK
        if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
            raise UserError(f"{path} is no plain file; move it elsewhere.")
        with os_errors(path):
            # Open means locked.
            file = self.enter_context(open(path, "a+", encoding="utf-8", errors="replace"))
            locked = lock(file)
            file.seek(0)
            owner = file.read(99).strip()
        if not locked:
            raise UserError(
                f"{folder} is being {doing} by process {owner or 'unknown'}; wait for it or choose "
                f"another {name}."
            )
        if owner and not owner.isdecimal():
            raise UserError(f"{path} does not hold the number of a process; move it elsewhere.")
        with os_errors(path):
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()


def initialize(
    coordinator_address: str | None = None,
    process_count: int | None = None,
    process_index: int | None = None,
    initialization_timeout: int | None = None,
    *,
    multiprocess: bool = False,
    stop_together: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Joins the other processes of the run, if there are any.

    With an address the three first arguments say everything; `multiprocess` alone, the variable
    CKL_MULTIPROCESS=1, or a TPU pod (several names in TPU_WORKER_HOSTNAMES) leaves them to what
    JAX finds in the environment.

    With `stop_together`, SIGTERM to one of them no longer ends it: `StopSignal.requested`
    informs all.

    Raises:
      UserError: the others do not answer.
    """
    pod = len(environment.get("TPU_WORKER_HOSTNAMES", "").split(",")) > 1
    several = multiprocess or pod or environment.get("CKL_MULTIPROCESS") == "1"
    if coordinator_address is None and not several:
        return
    import jax

    arguments = {
        "coordinator_address": coordinator_address,
        "num_processes": process_count,
        "process_id": process_index,
        "initialization_timeout": initialization_timeout,
        "heartbeat_timeout_seconds": HEARTBEAT_SECONDS,
        "shutdown_timeout_seconds": _SHUTDOWN_SECONDS,
    }
    jax.config.update("jax_enable_preemption_service", stop_together)
    try:
        jax.distributed.initialize(**{k: v for k, v in arguments.items() if v is not None})
    except (RuntimeError, ValueError) as e:
        reason = str(e).strip().split("\n")[0]
        raise UserError(
            f"The processes of the run did not find each other ({reason}); start the same command "
            "on every host, with the same --coordinator_address and its own --process_index."
        ) from e


def are_several() -> bool:
    """Whether this process is one of several of a run."""
    jax = sys.modules.get("jax")
    return jax is not None and jax.distributed.is_initialized() and jax.process_count() > 1


def explain_loss(error: BaseException) -> str | None:
    """A sentence for an error that means that another process is gone; None if it does not."""
    text = str(error)
    if not any(sign in text for sign in _LOST):
        return None
    reason = text.strip().split("\n")[0][:200]
    return (
        f"another process of the run has ended or cannot be reached ({reason}); start the same "
        "command again on all hosts: it goes on from the newest checkpoint."
    )


def leave(code: int) -> None:
    """Ends this process of several at once, since others may be blocked in a collective.

    The usual way out waits for all of them. The first process keeps the service that watches over
    the run: it ends a moment later, so that the others, refused for the same reason, can say so and
    are not aborted for its loss.
    """
    import jax

    sys.stdout.flush()
    sys.stderr.flush()
    if jax.process_index() == 0:
        time.sleep(_LAST_SECONDS)
    os._exit(code)


def set_data_folders(tfds_data_dir: str | None, cache_dirs: Sequence[str]) -> None:
    """Tells seqio the data and cache folders; imports seqio only if any are given."""
    if not tfds_data_dir and not cache_dirs:
        return
    try:
        with quiet_imports():
            import seqio
    except ImportError as e:
        raise UserError(
            f"--tfds_data_dir and --seqio_additional_cache_dirs need seqio ({e}); "
            "install `ckl-jax[seqio]`."
        ) from e
    if tfds_data_dir:
        seqio.set_tfds_data_dir_override(tfds_data_dir)
    if cache_dirs:
        seqio.add_global_cache_dirs(list(cache_dirs))


class Stopped(Exception):
    """Raised between two batches of an evaluation after a stop signal."""


class StopSignal:
    """Context manager that records what asks to stop (`stops`) instead of ending the process.

    A preempted machine gets some seconds: the train loop asks after each step and before each batch
    of an evaluation, saves a checkpoint and returns. A second signal to a process that is alone
    ends it at once, unless it comes with the first: a terminal and the parent may both send one. Of
    several processes one may get the signal, or each at another moment: JAX's preemption service
    lets all of them agree on the next question that none has asked yet.

    Attributes:
      reply: what to print, behind the signal's name, as soon as it is there; called from another
        thread, because the main one may be in a long computation. Several processes only print
        JAX's own line.
      received: whether `requested` was true.
      exit_code: of a process that was stopped: 130 by Ctrl-C, 129 by a terminal, else 143.
    """

    def __init__(self, reply: Callable[[], str] = lambda: "stopping."):
        self.reply = reply
        self.received = False
        self.exit_code = 128 + signal.SIGTERM
        self._before: dict[int, Any] = {}
        self._since: float | None = None
        self._several = are_several()
        self._questions = 0

    def __enter__(self) -> "StopSignal":
        receive = {number: self._receive for number in stops()}
        if self._several:  # SIGTERM is the preemption service's
            receive = {signal.SIGINT: self._pass_on}
        try:
            self._before = {n: signal.signal(n, handler) for n, handler in receive.items()}
        except ValueError:  # not the main thread: the host program handles signals
            return self
        if not self._several:
            pipe, self._wake = os.pipe()
            os.set_blocking(self._wake, False)
            self._wake_before = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
            threading.Thread(target=self._answer, args=(pipe,), daemon=True).start()
        return self

    def __exit__(self, *exception) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._before and not self._several:
            signal.set_wakeup_fd(self._wake_before)
            os.close(self._wake)  # ends the thread

    def requested(self) -> bool:
        """Whether a stop signal has been received, the same in all processes; a collective call."""
        if self._several and not self.received:
            from jax.experimental import multihost_utils

            self._questions += 1
            self.received = multihost_utils.reached_preemption_sync_point(self._questions)
        return self.received

    def check(self) -> None:
        """Raises `Stopped` if a stop signal has been received."""
        if self.requested():
            raise Stopped

    def _receive(self, number: int, frame: types.FrameType | None) -> None:
        now = time.monotonic()
        if number == signal.SIGHUP:
            drop_terminal()
        if not self.received:
            self.received, self._since, self.exit_code = True, now, 128 + number
        elif now - self._since > TOGETHER_SECONDS:
            signal.signal(number, self._before[number])
            os.kill(os.getpid(), number)

    def _pass_on(self, number: int, frame: types.FrameType | None) -> None:
        signal.signal(number, self._before[number])  # the second ends the process
        os.kill(os.getpid(), signal.SIGTERM)

    def _answer(self, pipe: int) -> None:
        forwarded = False
        with open(pipe, "rb", buffering=0) as numbers:
            while number := numbers.read(1):
                if number[0] in self._before and not forwarded:
                    forwarded = True
                    print(f"{signal.Signals(number[0]).name}: {self.reply()}", flush=True)
