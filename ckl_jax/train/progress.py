"""A progress bar in a terminal; in a log file a line every few seconds.

`ProgressBar` is of a training; `counting` makes one of other long work, such as reading a file.
"""

import contextlib
import datetime
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from ckl_jax.files import os_errors

PLAIN_PERIOD_SECONDS = 10.0
EVALUATING = "evaluating "  # how lines of `evaluating` begin
_QUIET_SECONDS = 30.0  # without news, after which a count is hidden: what runs now has its own bar
_MEMORY_SECONDS, _MEMORY_STEPS = 30.0, 20  # the speed is a mean over the longer of the two


class ProgressBar:
    """Shows description, epoch, step of total, loss, seconds per step, tokens per second, time
    left.

    In a terminal it is a rich bar; otherwise one plain line about every 10 seconds and at the
    end, so that logs stay short.

    Args:
      total: the last step's number.
      description: what runs, e.g. "train lora".
      start: the step already done (of a resumed run).
      mode: "auto", "rich", "plain" or "silent".
      log: file that gets the plain lines too, with the time before each, or alone if stdout goes
        there.
      write: takes a plain line; default: print to `stream`.
      clock: seconds, for tests.
      stream: default: stdout.
    """

    def __init__(
        self,
        total: int,
        description: str,
        *,
        start: int = 0,
        mode: str = "auto",
        log: Path | None = None,
        write: Callable[[str], Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
        stream: TextIO | None = None,
    ):
        self._stream = stream or sys.stdout
        if mode == "auto":
            # A bar's control characters would fill a log file.
            mode = "rich" if self._stream.isatty() else "plain"
        self.total, self.description, self.mode = total, description, mode
        self.step = start
        self._write = write or (lambda line: print(line, file=self._stream, flush=True))
        self._log = open(log, "a", encoding="utf-8") if log is not None else None  # noqa: SIM115
        if self._log and _are_same(self._log, self._stream):
            self.mode = "silent"
        self._clock = clock
        self._last_line = self._last_update = clock()
        self._sums = (0.0, 0.0, 0.0)  # steps, seconds and tokens, the newest counting most
        self._updates = 0
        self._counted = ""  # what the last plain line of `count` was of
        self._fields: dict[str, Any] = {}
        self._bar = None

    def __enter__(self) -> "ProgressBar":
        if self.mode == "rich":
            self._start_rich()
        return self

    def stop(self) -> None:
        """Ends the bar in the terminal."""
        if self._bar is not None:
            self._bar.stop()

    def __exit__(self, kind, *exception) -> None:
        self.stop()
        # The last line, which is usually not due; not after an exception, whose message should be
        # last.
        if kind is None:
            self._tell(self._line())
        if self._log is not None:
            with os_errors(self._log.name):  # what is still buffered may not fit on the disk
                self._log.close()

    def update(
        self,
        step: int,
        *,
        seconds: float,
        epoch: int | None = None,
        loss: float | None = None,
        tokens: int = 0,
    ) -> None:
        """Reports that `step` steps are complete.

        Args:
          step: the number of the step.
          seconds: how long those since the last call took.
          epoch: of the step, from 1.
          loss: any recent number; fetch it late so that the device is not waited for.
          tokens: how many were processed since the last call.
        """
        self._measure(step - self.step, seconds, tokens)
        self.step = step
        for name, value in (("epoch", epoch), ("loss", loss)):
            if value is not None:
                self._fields[name] = value
        if self._bar is not None:
            self._bar.update(self._task, completed=step, details=self.details())
        if self._clock() - self._last_line >= PLAIN_PERIOD_SECONDS:
            self._last_line = self._clock()
            self._tell(self._line())

    def count(self, done: int, total: int, what: str) -> None:
        """Reports that `done` of `total` (0: unknown) are complete; `what` may change."""
        is_new = done < self.step or total != self.total
        self.step, self.total, self.description = done, total, what
        self._last_update = self._clock()
        if self.mode == "rich":
            if self._bar is None:
                self._start_rich(transient=True)
            elif is_new:  # other work, at a speed of its own
                self._bar.remove_task(self._task)
                self._add_task()
            self._bar.update(self._task, description=what, completed=done)
        elif (
            self._last_update - self._last_line >= PLAIN_PERIOD_SECONDS
            or done == total
            and what == self._counted
        ):
            self._last_line, self._counted = self._last_update, what
            self._tell(f"{done:,}{f' of {total:,}' * bool(total)} {what}")

    def say(self, text: str) -> None:
        """Prints a line above the bar, or between its lines."""
        if self._bar is not None:
            self._bar.console.print(text, highlight=False, markup=False)
        self._tell(text)

    def _tell(self, line: str) -> None:
        """A plain line, to stdout where there is no bar, and to the log."""
        timed = f"{datetime.datetime.now():%Y-%m-%d %H:%M:%S}  {line}"
        if self._log is not None:
            with os_errors(self._log.name):
                print(timed, file=self._log, flush=True)
        if self.mode == "plain":
            self._write(line)

    def _measure(self, steps: int, seconds: float, tokens: int) -> None:
        self._updates += 1
        # The first step warms up and counts while there is no other; a first call of many counts.
        if self._updates == 2 and self._sums[0] <= steps:
            self._sums = (0.0, 0.0, 0.0)
        # Large models take minutes for a step; a mean over 30 seconds would then be the last step
        # alone.
        memory = max(_MEMORY_SECONDS, _MEMORY_STEPS * (self.seconds_per_step or 0.0))
        # An exponential mean over time, not over calls: sums of steps and of seconds decay alike,
        # so their quotient is right however irregular the calls are.
        keep, new = math.exp(-seconds / memory), (steps, seconds, tokens)
        self._sums = tuple(keep * x + y for x, y in zip(self._sums, new, strict=True))

    @property
    def seconds_per_step(self) -> float | None:
        """Mean over the last steps; None before there is one."""
        steps, seconds, _ = self._sums
        return seconds / steps if steps else None

    @property
    def tokens_per_second(self) -> float | None:
        _, seconds, tokens = self._sums
        return tokens / seconds if seconds > 0 and tokens else None

    def details(self) -> str:
        """Returns "epoch 2  loss 1.234  0.12 s/step  5,300 tokens/s", without values that are
        unknown.
        """
        parts = []
        if "epoch" in self._fields:
            parts.append(f"epoch {self._fields['epoch']}")
        if "loss" in self._fields:
            parts.append(f"loss {float(self._fields['loss']):.4g}")
        if self.seconds_per_step is not None:
            parts.append(f"{self.seconds_per_step:.3g} s/step")
        if self.tokens_per_second is not None:
            parts.append(f"{self.tokens_per_second:,.0f} tokens/s")
        return "  ".join(parts)

    def _line(self) -> str:
        line = f"{self.description}  step {self.step}/{self.total}  {self.details()}".rstrip()
        if self.seconds_per_step is not None and self.step < self.total:
            line += f"  {_duration(self.seconds_per_step * (self.total - self.step))} left"
        return line

    def _start_rich(self, transient: bool = False) -> None:
        from rich import console, progress

        bar = self

        class Bar(progress.Progress):
            def get_renderables(self) -> Iterator[Any]:
                is_new = bar._clock() - bar._last_update < _QUIET_SECONDS
                is_done = bar.step == bar.total  # what runs next has not said so yet
                if not transient or (is_new and not is_done):
                    yield from super().get_renderables()

        self._bar = Bar(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=24),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[details]}"),
            progress.TimeRemainingColumn(),
            console=console.Console(file=self._stream),
            transient=transient,
            redirect_stdout=sys.stdout.isatty(),
        )
        self._add_task()
        self._bar.start()

    def _add_task(self) -> None:
        self._task = self._bar.add_task(
            self.description, total=self.total or None, completed=self.step, details=""
        )


@contextlib.contextmanager
def counting(
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Callable[[int, int, str], None]]:
    """Gives a function of (done, total, what), see `ProgressBar.count`.

    The bar is on stderr, below whatever is printed meanwhile, and goes when the work is done.
    """
    bar = ProgressBar(0, "", clock=clock, stream=sys.stderr)
    try:
        yield bar.count
    finally:
        bar.stop()


def evaluating(
    what: str, clock: Callable[[], float] = time.monotonic
) -> Callable[[int, int, str], None]:
    """Gives a function of (done, total, of what), which prints a line every 10 seconds at most.

    It is for long evaluations within a training, whose bar stays the only one.
    """
    last = clock()

    def tell(done: int, total: int, parts: str) -> None:
        nonlocal last
        if clock() - last >= PLAIN_PERIOD_SECONDS:
            last = clock()
            print(f"{EVALUATING}{what}: {done:,} of {total:,} {parts}", flush=True)

    return tell


def _are_same(a: TextIO, b: TextIO) -> bool:
    with contextlib.suppress(OSError, ValueError):  # of a stream that is no file
        return os.path.sameopenfile(a.fileno(), b.fileno())
    return False


def _duration(seconds: float) -> str:
    seconds = round(seconds)
    hours, minutes = seconds // 3600, seconds % 3600 // 60
    return f"{hours}:{minutes:02}:{seconds % 60:02}" if hours else f"{minutes}:{seconds % 60:02}"
