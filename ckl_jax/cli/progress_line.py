"""How far long work is: one live line in a terminal, in a log a line now and then."""

import sys
import time
from collections.abc import Callable
from typing import Any

from ckl_jax.train.progress import PLAIN_PERIOD_SECONDS

_SHOWN_SECONDS = 5.0  # without news: what runs now reports its progress in another way


class ProgressLine:
    """A `with` block that gives a function of (done, total, what); a total of 0 is not known.

    The live line is on stderr, below whatever is printed meanwhile, and goes when the work is done.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock, self._shown_at, self._text = clock, clock(), ""
        self._live: Any = None

    def __enter__(self) -> Callable[[int, int, str], None]:
        return self.show

    def show(self, done: int, total: int, what: str) -> None:
        of = f" of {total:,}" if total else ""
        self._text = f"{done:,}{of} {what}"
        if sys.stderr.isatty():
            self._shown_at = self._clock()
            self._start()
        elif self._clock() - self._shown_at >= PLAIN_PERIOD_SECONDS:
            self._shown_at = self._clock()
            print(self._text, file=sys.stderr, flush=True)

    def _start(self) -> None:
        from rich.console import Console
        from rich.live import Live

        if self._live is None:
            self._live = Live(
                console=Console(stderr=True),
                transient=True,
                get_renderable=self._line,
                redirect_stdout=sys.stdout.isatty(),
            )
            self._live.start()

    def _line(self) -> Any:
        from rich.text import Text

        is_new = self._clock() - self._shown_at < _SHOWN_SECONDS
        return Text(self._text if is_new else "", no_wrap=True)

    def __exit__(self, *unused) -> None:
        if self._live is not None:
            self._live.stop()
