"""Documents of users: JSON lines, CSV, Parquet, text and Markdown files, or a folder of these."""

import csv
import dataclasses
import datetime
import io
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ckl_jax.data.compressed import read_lines
from ckl_jax.data.text.documents import Document, encodable
from ckl_jax.errors import UserError
from ckl_jax.files import json_value, os_errors

_PACKED = (".gz", ".bz2")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_HEADING = re.compile(r"^#\s+(.+)$", re.MULTILINE)
_SHOWN = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fields:
    """The names of the fields of a record.

    Attributes:
      text: of the text, which a record must have.
      date: of the day, as YYYY-MM-DD or longer; a record without it has the day of its file.
      title: of the headline, which may be missing.
      id: of what tells documents apart, which may be missing.
    """

    text: str = "text"
    date: str = "date"
    title: str = "title"
    id: str = "id"


def read_place(place: str | os.PathLike, fields: Fields = Fields()) -> Iterator[Document]:  # noqa: B008
    """Yields the documents of a file, or of all files of a folder, by path; memory does not grow.

    A text or Markdown file is one document: its title is the first heading or the file's name, its
    date the one in its name, or the day when it was last written.

    Args:
      place: .jsonl, .csv (each also .gz or .bz2), .parquet, .txt, .md, or a folder.
      fields: of records.

    Raises:
      UserError: nothing there can be read; or a record is damaged, has no text field, or has a date
        that is none: the message names file, line and field.
    """
    place = Path(place)
    if not place.is_dir():
        if not place.is_file():
            raise UserError(f"There is no file or folder {place} with documents.")
        yield from _reader(place)(place, fields)
        return
    files = sorted(p for p in place.rglob("*") if p.is_file() and _kind(p) in _READERS)
    files = [p for p in files if not any(x.startswith(".") for x in p.relative_to(place).parts)]
    if not files:
        raise UserError(f"{place} holds no documents: no file ends in {', '.join(_READERS)}.")
    for path in files:
        for document in _READERS[_kind(path)](path, fields):
            yield dataclasses.replace(document, id=f"{path.relative_to(place)}:{document.id}")


def _kind(path: Path) -> str:
    ends = [s.lower() for s in path.suffixes if s.lower() not in _PACKED]
    return ends[-1] if ends else ""


def _reader(path: Path) -> Callable[[Path, Fields], Iterator[Document]]:
    if _kind(path) not in _READERS:
        raise UserError(f"{path} is of no known kind; give {', '.join(_READERS)}, or a folder.")
    return _READERS[_kind(path)]


def _json_lines(path: Path, fields: Fields) -> Iterator[Document]:
    for number, _, line in read_lines(path):
        if line.strip():
            yield _document(json_value(line, path, number), fields, path, f"line {number}", number)


def _csv(path: Path, fields: Fields) -> Iterator[Document]:
    # Lines as they come, decompressed; a quoted field may hold ends of lines.
    def lines() -> Iterator[str]:
        for number, _, line in read_lines(path):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8") + "\n"
            except UnicodeDecodeError as e:
                raise UserError(f"{path}, line {number}, is not UTF-8.") from e

    csv.field_size_limit(1 << 24)
    reader = csv.DictReader(lines())
    try:
        for row in reader:
            number = reader.line_num
            yield _document(row, fields, path, f"line {number}", number)
    except csv.Error as e:
        raise UserError(f"{path}, line {reader.line_num}: not CSV ({e}).") from e


def _parquet(path: Path, fields: Fields) -> Iterator[Document]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as e:
        raise UserError(
            f"{path}: Parquet needs the package 'pyarrow': pip install 'ckl-jax[parquet]'."
        ) from e
    try:
        with os_errors(path, "read"):
            table = pyarrow.parquet.ParquetFile(path)
            wanted = [n for n in vars(fields).values() if n in table.schema_arrow.names]
            number = 0
            for batch in table.iter_batches(batch_size=256, columns=wanted):
                for row in batch.to_pylist():
                    number += 1
                    yield _document(row, fields, path, f"row {number}", number)
    except pyarrow.ArrowException as e:
        raise UserError(f"{path} is not a Parquet file ({str(e).splitlines()[0][:100]}).") from e


def _text(path: Path, fields: Fields) -> Iterator[Document]:
    del fields
    whole = io.StringIO()
    for number, _, line in read_lines(path):
        try:
            whole.write(line.decode() + "\n")
        except UnicodeDecodeError as e:
            raise UserError(f"{path}, line {number}, is not UTF-8.") from e
    text = whole.getvalue()
    heading = _HEADING.search(text) if _kind(path) == ".md" else None
    named = _DATE.search(path.name)
    date = _day(named[0], path, "its name") if named else _written(path)
    yield Document(path.name, date, heading[1].strip() if heading else path.stem, text.strip())


def _document(record: Any, fields: Fields, path: Path, where: str, number: int) -> Document:
    if not isinstance(record, Mapping):
        raise UserError(f"{path}, {where}: not an object with fields.")
    text = record.get(fields.text)
    if not isinstance(text, str):
        there = ", ".join(map(repr, list(record)[:_SHOWN])) or "none"
        raise UserError(
            f"{path}, {where}: the field {fields.text!r} is missing or not text; there are {there} "
            "(--text-field names another)."
        )
    given = record.get(fields.date)
    date = _written(path) if given in (None, "") else _day(given, path, f"{where}, {fields.date!r}")
    title, key = record.get(fields.title), record.get(fields.id)
    return Document(
        str(number if key is None else key), date, encodable(str(title or "")), encodable(text)
    )


def _day(given: Any, path: Path, where: str) -> str:
    if isinstance(given, datetime.date):  # and its subclass datetime
        return given.strftime("%Y-%m-%d")
    try:
        return datetime.date.fromisoformat(str(given)[:10]).isoformat()
    except ValueError as e:
        raise UserError(
            f"{path}, {where}: {str(given)[:40]!r} is not a day of the form YYYY-MM-DD."
        ) from e


def _written(path: Path) -> str:
    with os_errors(path, "read"):
        return datetime.date.fromtimestamp(path.stat().st_mtime).isoformat()


_READERS = {
    ".jsonl": _json_lines,
    ".json": _json_lines,
    ".csv": _csv,
    ".parquet": _parquet,
    ".txt": _text,
    ".md": _text,
}
