"""Dated documents and their files: JSON lines, plain or gzip, read as a stream."""

import contextlib
import dataclasses
import datetime
import gzip
import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

from ckl_jax.data.compressed import RECORD_BYTES, read_lines
from ckl_jax.errors import UserError
from ckl_jax.files import atomic_write, json_value


@dataclasses.dataclass(frozen=True)
class Document:
    """A text with its date.

    Attributes:
      id: unique within its corpus.
      date: ISO date, YYYY-MM-DD.
      title: headline, may be empty.
      text: the body.
      url: where it came from, may be empty.
      marks: [start, end) in characters of `text` that a training may weigh; None: not marked.
    """

    id: str
    date: str
    title: str
    text: str
    url: str = ""
    marks: tuple[tuple[int, int], ...] | None = None


_FIELDS = tuple(field.name for field in dataclasses.fields(Document))


def canonical_key(document: Document) -> str:
    """The sort key of a document stream: date, then id.

    The sorting keys that were published with StreamingQA for WMT's documents are these.
    """
    return f"{document.date.replace('-', '')}{'0' * 12}\0\1{document.id}\0\1"


def encodable(text: str) -> str:
    """The text with lone surrogates (possible in JSON, not in UTF-8) replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def read_documents(path: str | os.PathLike, limit: int = RECORD_BYTES) -> Iterator[Document]:
    """Yields the documents of a JSONL file, plain or compressed; other fields are ignored.

    Raises:
      UserError: the file cannot be read, or a line is longer than `limit` bytes, is not JSON, lacks
        `text` or `date`, or has a date that is not ISO or marks outside its text; the message
        names file, line and field.
    """
    for number, _, line in read_lines(path, limit):
        if line.strip():
            yield parse_document(line, path, number)


def parse_document(line: str | bytes, path: str | os.PathLike, number: int) -> Document:
    """Returns the document of one line, the `number`-th of the file at `path`.

    Raises:
      UserError: see `read_documents`.
    """
    record = json_value(line, path, number)
    where = f"{os.fspath(path)}, line {number}"
    if not isinstance(record, dict):
        raise UserError(f'{where}: not a JSON object; give {{"date": ..., "text": ...}}.')
    for field in ("date", "text"):
        if not isinstance(record.get(field), str):
            raise UserError(f"{where}: the field {field!r} is missing or not a string.")
    try:
        date = datetime.date.fromisoformat(record["date"]).isoformat()
    except ValueError as e:
        raise UserError(
            f"{where}: the date {record['date'][:40]!r} is not a day of the form YYYY-MM-DD."
        ) from e
    optional = {k: str(record.get(k) or "") for k in ("title", "url")}
    marks = _marks(record, where)
    text = record["text"]
    return Document(str(record.get("id", number)), date, text=text, marks=marks, **optional)


def _marks(record: dict[str, Any], where: str) -> tuple[tuple[int, int], ...] | None:
    marks = record.get("marks")
    if marks is None:
        return None
    with contextlib.suppress(TypeError, ValueError):
        marks = tuple((int(start), int(end)) for start, end in marks)
        if all(0 <= start < end <= len(record["text"]) for start, end in marks):
            return marks
    raise UserError(f"{where}: `marks` are not pairs [start, end) of characters of the text.")


def json_line(document: Document) -> str:
    """The document as a JSON line, without its newline."""
    fields = {name: getattr(document, name) for name in _FIELDS}
    if document.marks is None:
        del fields["marks"]
    return json.dumps(fields, ensure_ascii=False)


def write_documents(path: str | os.PathLike, documents: Iterable[Document], level: int = 9) -> int:
    """Writes documents as JSON lines, atomically and deterministically.

    Args:
      path: plain, or gzip if its name ends in .gz.
      documents: in the order to write.
      level: of gzip; 3 takes a third of the time of 9.

    Returns:
      How many there were.
    """
    count = 0
    compress = os.fspath(path).endswith(".gz")
    with atomic_write(path, "wb") as raw:
        f = gzip.GzipFile("", "wb", level, raw, mtime=0) if compress else raw
        for document in documents:
            f.write(json_line(document).encode() + b"\n")
            count += 1
        if compress:
            f.close()
    return count


def spread(items: Iterable[Any], max_items: int) -> list[Any]:
    """Returns up to `max_items` items, evenly spread, without knowing their number."""
    kept: list[Any] = []
    step = 1
    for i, item in enumerate(items):
        if i % step == 0:
            kept.append(item)
            if len(kept) >= 2 * max_items:
                kept, step = kept[::2], 2 * step
    if len(kept) <= max_items:
        return kept
    return [kept[i * len(kept) // max_items] for i in range(max_items)]
