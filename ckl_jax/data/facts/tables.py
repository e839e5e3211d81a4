"""The tables of LM-PUB-QUIZ, a file a relation: JSON lines, or parquet if pyarrow is there."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ckl_jax.data.json_rows import numbered_rows
from ckl_jax.errors import UserError
from ckl_jax.files import os_errors

_KINDS = re.compile(r"\.(jsonl|parquet(\.\w+)?)$")  # P36.jsonl, P36.parquet, P36.parquet.gzip


def table_files(folder: str | os.PathLike, suffix: str = "") -> dict[str, Path]:
    """{relation: file} of the files `<relation><suffix>.jsonl` or `.parquet` of a folder.

    Of a relation that has both, the JSON lines count.
    """
    files: dict[str, Path] = {}
    for file in sorted(Path(folder).glob(f"*{suffix}.*"), reverse=True):
        name = _KINDS.sub("", file.name)
        if name != file.name and name.endswith(suffix):
            files[name.removesuffix(suffix)] = file  # .jsonl comes last, sorted backwards
    return files


def table_rows(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields ("file, line n", object) of each row.

    Raises:
      UserError: the file cannot be read, or pyarrow is not installed.
    """
    if file.suffix == ".jsonl":
        yield from numbered_rows(file)
        return
    for number, row in enumerate(_parquet(file), 1):
        yield f"{file}, row {number}", row


def _parquet(file: Path) -> list[dict[str, Any]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as e:
        raise UserError(
            f"{file}: parquet is read by pyarrow, which is not installed; pip install "
            "'ckl-jax[parquet]', or save the table as JSON lines."
        ) from e
    try:
        with os_errors(file, "read"):
            return parquet.read_table(file).to_pylist()
    except pyarrow.ArrowException as e:
        raise UserError(f"{file} is not a parquet file ({e}).") from e
