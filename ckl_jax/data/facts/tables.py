"""The tables of LM-PUB-QUIZ, a file a relation: JSON lines, or parquet if pyarrow is there."""

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ckl_jax import checks
from ckl_jax.data.compressed import bounded, read_parquet
from ckl_jax.data.json_rows import numbered_rows
from ckl_jax.errors import if_missing
from ckl_jax.files import atomic_write

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
      UserError: the file cannot be read, expands to too much, or pyarrow is not installed.
    """
    rows = (
        numbered_rows(file)
        if file.suffix == ".jsonl"
        else ((f"{file}, row {n}", row) for n, row in enumerate(read_parquet(file), 1))
    )
    yield from bounded(file, rows)


def require_format(fmt: str) -> None:
    """Raises `UserError` for a format that there is not, or whose package is not installed."""
    checks.require_choice(("jsonl", "parquet"), fmt=fmt)
    if fmt == "parquet":
        with if_missing("Parquet needs the package 'pyarrow': pip install 'ckl-jax[parquet]'."):
            import pyarrow  # noqa: F401


def write_table(stem: Path, rows: Iterable[dict[str, Any]], fmt: str = "jsonl") -> None:
    """Writes rows to `<stem>.jsonl`, non-ASCII escaped, or to `<stem>.parquet`; atomically.

    Raises:
      UserError: see `require_format`.
    """
    require_format(fmt)
    file = stem.with_name(f"{stem.name}.{fmt}")
    if fmt == "parquet":
        import pyarrow
        from pyarrow import parquet

        with atomic_write(file, "wb") as f:
            parquet.write_table(pyarrow.Table.from_pylist(list(rows)), f)
        return
    with atomic_write(file) as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)
