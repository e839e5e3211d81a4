"""How a command of `ckl` or `t5x` ends, whatever its outputs are connected to."""

import contextlib
import errno
import os
import signal
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterator

from ckl_jax.config import user_tracebacks
from ckl_jax.errors import UserError, is_out_of_memory
from ckl_jax.parallel import processes

# What Python, or JAX at every garbage collection, calls where an exception would only be printed,
# and what gives standard error back, without which nothing would be.
_FINALIZERS = ("__del__", "_xla_gc_callback", "quiet_imports")
_FILES = ("<frozen importlib._bootstrap>", weakref.__file__)  # what weak references call, too
_COMPILER = os.path.join("jax", "_src", "compiler.py")
_RETRY_SECONDS = 0.01
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG}


def run_command(name: str, job: Callable[[], int]) -> int:
    """Calls `job` and returns its exit code, or 2 after a sentence on standard error.

    Standard output may be closed, which means that nobody reads it, or end early, as `head` does.

    Args:
      name: of the command, before its sentences.
      job: the command.
    """
    _open_what_is_closed()
    try:
        code = job()
        sys.stdout.flush()
        return code
    except UserError as e:
        complain(f"{name}: {e}")
        return 2
    except MemoryError as e:
        reason = str(e).split("\n")[0] or "no more is known"  # without what gin appends
        complain(f"{name}: There is not enough memory ({reason}); use less of it.")
        return 2
    except BrokenPipeError:  # whoever read the output has seen enough
        _silence(sys.stdout)
        return 0
    except OSError as e:
        if e.filename is not None:  # of a path that was only looked at
            complain(f"{name}: {UserError(f'Cannot use {e.filename}: {e.strerror}.')}")
            return 2
        if e.errno not in _FULL:
            raise
        _silence(sys.stdout)  # Python would try again when it ends
        complain(f"{name}: Cannot write to standard output: {e.strerror}.")
        return 2
    except Exception as e:
        if str(e).startswith("Symlink loop"):  # of Path.resolve, until Python 3.13
            complain(f"{name}: Cannot use {str(e).rpartition(' ')[2]}: its links lead in a circle.")
            return 2
        if is_out_of_memory(e):
            complain(f"{name}: A device has too little memory; use shorter texts, or fewer.")
            return 2
        if (report := user_tracebacks.report(e)) is None:
            raise
        *trace, sentence = report.split("\n")
        complain("\n".join([*trace, f"{name}: {sentence}"]))
        return 1


class Terminated(KeyboardInterrupt):
    """SIGTERM was received, or the terminal was closed."""


def interrupted(name: str, error: KeyboardInterrupt) -> int:
    """Says that the command `name` was stopped; returns its exit code, 130 by Ctrl-C, else 143."""
    complain(f"{name}: interrupted; the same command again goes on from what is saved, if any is")
    return 128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)


@contextlib.contextmanager
def interruptible(*numbers: signal.Signals) -> Iterator[None]:
    """Raises `KeyboardInterrupt` for SIGINT and `Terminated` for others of `numbers`.

    Processes that the command started get time to save: a second signal ends the command at once,
    unless it comes with the first, as a terminal and a parent may both send one: what is said of
    the first belongs in the block. Within an import, a finalizer or a compilation the signal waits
    until that has ended: C++ extensions turn the exception into another one, finalizers swallow it,
    and XLA's threads, which go on compiling, would crash.
    """
    received: list[float] = []
    waiting: list[threading.Timer] = []  # sends a signal that waited again
    repeated: list[int] = []  # by it
    has_ended = False

    def again(number: int) -> None:
        repeated.append(number)
        os.kill(os.getpid(), number)

    def stop(number: int, frame: types.FrameType | None) -> None:
        if waited := number in repeated:
            repeated.remove(number)
            waiting.clear()
        else:
            received.append(time.monotonic())
            if number == signal.SIGHUP:
                processes.drop_terminal()
            if received[0] < received[-1] <= received[0] + processes.TOGETHER_SECONDS:
                return
        if has_ended:
            return
        if not _must_go_on(frame):
            raise KeyboardInterrupt if number == signal.SIGINT else Terminated
        if len(received) > 1 and not waited:
            os.write(2, b"stopped at once\n")  # `print` may be what was interrupted
            os._exit(128 + number)
        waiting[:] = [threading.Timer(_RETRY_SECONDS, again, (number,))]
        waiting[0].start()

    try:
        before = {number: signal.signal(number, stop) for number in numbers}
    except ValueError:  # not the main thread: the host program handles signals
        yield
        return
    try:
        yield
    finally:
        has_ended = True
        for timer in waiting:
            timer.cancel()
            timer.join()
        for number, handler in before.items():
            signal.signal(number, handler)


def _must_go_on(frame: types.FrameType | None) -> bool:
    while frame is not None:
        name, file = frame.f_code.co_name, frame.f_code.co_filename
        if name in _FINALIZERS or file in _FILES or file.endswith(_COMPILER):
            return True
        frame = frame.f_back
    return False


def complain(sentence: str) -> None:
    """Writes a sentence to standard error, if that can be written."""
    try:
        print(sentence, file=sys.stderr, flush=True)
    except OSError:
        _silence(sys.stderr)


def _open_what_is_closed() -> None:
    """Gives closed standard streams, which Python has as None, the null device.

    The next file that is opened would take their number, and what C++ prints would go into it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _silence(stream) -> None:
    processes.give_null_device(stream.fileno())
