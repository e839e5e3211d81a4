"""The one exception that the command lines turn into a sentence and exit code 2."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Bad input. The message is one sentence: what is wrong, where, and what to do about it."""


def nearest(name: str, choices: Iterable[str]) -> str:
    """Returns " Did you mean 'x'?" for the choice nearest to `name`, or "" if none is near."""
    match = nearest_name(name, choices)
    return f" Did you mean {match!r}?" if match else ""


def nearest_name(name: str, choices: Iterable[str]) -> str | None:
    """Returns the choice nearest to `name`, None if none is near."""
    match = difflib.get_close_matches(name, list(choices), n=1, cutoff=0.5)
    return match[0] if match else None
