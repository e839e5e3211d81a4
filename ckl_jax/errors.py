"""The one exception that the command lines turn into a sentence and exit code 2."""

import contextlib
import difflib
import re
from collections.abc import Iterable, Iterator
from typing import TypeVar

_LINE_ENDS = re.compile(r"\s*[\r\n]\s*")
_LONG_WORD = re.compile(r"[^\s/;,]{200,}")  # no part of a path is so long
# A terminal acts on them, and XML has none of them; the last turn the direction of a text.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_LONGEST = 4000
_T = TypeVar("_T")


class UserError(Exception):
    """Bad input. The message is one sentence: what is wrong, where, and what to do about it.

    Of a word of hundreds of characters it has the beginning, of thousands of words the first and
    the last, ends of lines are blanks, and it is `printable`.
    """

    def __init__(self, message: str):
        message = printable(_LINE_ENDS.sub(" ", message))
        message = _LONG_WORD.sub(
            lambda word: f"{word[0][:40]}...[{len(word[0]):,} characters]", message
        )
        if len(message) > _LONGEST:  # what to do about it stands last
            message = f"{message[: _LONGEST // 2]} ... {message[-_LONGEST // 4 :]}"
        super().__init__(message)

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the sentence alone, without the calls that led to it."""
        return [f"{type(self).__name__}: {self}"]


@contextlib.contextmanager
def if_missing(said: str) -> Iterator[None]:
    """For the import of a package that may not be there: raises `UserError(said)` then."""
    try:
        yield
    except ImportError as e:
        raise UserError(said) from e


def not_empty(items: Iterable[_T], said: str) -> Iterator[_T]:
    """Yields the items; raises `UserError(said)` behind the last if there was none."""
    empty = True
    for item in items:
        empty = False
        yield item
    if empty:
        raise UserError(said)


def refuse_unknown(name: str, choices: Iterable[str], said: str) -> None:
    """Raises `UserError` unless `name` is one of `choices`: `said`, them all, and the nearest."""
    if name not in choices:
        raise UserError(f"{said} {', '.join(choices)}.{nearest(name, choices)}")


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error of JAX says that a device has not enough memory."""
    return "RESOURCE_EXHAUSTED" in str(error) and "emory" in str(error)


def printable(text: str) -> str:
    """A text of others for a terminal: `CONTROL` characters as escapes, such as \\x1b."""
    return CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def nearest(name: str, choices: Iterable[str]) -> str:
    """Returns " Did you mean 'x'?" for the choice nearest to `name`, or "" if none is near."""
    match = nearest_name(name, choices)
    return f" Did you mean {match!r}?" if match else ""


def nearest_name(name: str, choices: Iterable[str]) -> str | None:
    """Returns the choice nearest to `name`, None if none is near."""
    plain = {choice.lstrip("-"): choice for choice in choices}
    name = name.lstrip("-")
    match = difflib.get_close_matches(name, plain, n=1, cutoff=0.7)
    swapped = (word for word in plain if sorted(word) == sorted(name))  # two letters, as in "fh"
    closest = match[0] if match else next(swapped, None)
    return plain.get(closest)
