"""JSON lines with the place of each, for complaints that name file and line."""

import json
import os
from collections.abc import Iterator
from typing import Any

from ckl_jax.data.text.documents import open_text
from ckl_jax.errors import UserError
from ckl_jax.files import os_errors


def parse(text: str | bytes) -> Any:
    """The value of a JSON text; `ValueError` too where it nests deeper than the parser can go."""
    try:
        return json.loads(text)
    except RecursionError as e:
        raise ValueError("too deep") from e


def numbered_rows(path: str | os.PathLike) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields ("file, line n", object) of each line, plain or gzip, that is not blank.

    Raises:
      UserError: the file cannot be read, or a line is no JSON object.
    """
    with open_text(path) as f, os_errors(path, "read"):
        for number, line in enumerate(f, 1):
            if not line.strip():
                continue
            where = f"{os.fspath(path)}, line {number}"
            try:
                row = parse(line)
            except ValueError as e:
                raise UserError(f"{where}: not JSON ({getattr(e, 'msg', e)}).") from e
            if not isinstance(row, dict):
                raise UserError(f"{where}: give an object, not a {type(row).__name__}.")
            yield where, row
