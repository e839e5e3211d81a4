"""Reads JSON lines with the file and line of each, for error messages."""

import os
from collections.abc import Iterator
from typing import Any

from ckl_jax.data.compressed import read_lines
from ckl_jax.errors import UserError
from ckl_jax.files import json_value


def numbered_values(path: str | os.PathLike) -> Iterator[tuple[str, Any]]:
    """Yields ("file, line n", value) of each non-blank line, plain or compressed.

    Raises:
      UserError: the file cannot be read, or a line is not JSON or too long.
    """
    for number, _, line in read_lines(path):
        if line.strip():
            yield f"{os.fspath(path)}, line {number}", json_value(line, path, number)


def numbered_rows(path: str | os.PathLike) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields ("file, line n", object) of each line, as `numbered_values`.

    Raises:
      UserError: as `numbered_values`; or a line is not a JSON object.
    """
    for where, row in numbered_values(path):
        if not isinstance(row, dict):
            raise UserError(f"{where}: give an object, not a {type(row).__name__}.")
        yield where, row


def text_field(row: dict[str, Any], field: str, where: str) -> str:
    """A field of a row as text, with whitespace collapsed.

    Raises:
      UserError: it is missing, blank or no text; the sentence begins with `where`.
    """
    value = row.get(field)
    if not isinstance(value, str) or not value.strip():
        what = "missing" if field not in row else repr(value)[:40]
        raise UserError(f"{where}: the field {field!r} is {what}; give a text.")
    return " ".join(value.split())
