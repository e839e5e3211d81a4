"""Reads users' documents: JSON lines, CSV, Parquet, text and Markdown files, or folders of them."""

import collections
import dataclasses
import datetime
import io
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ckl_jax.data.compressed import (
    RECORD_BYTES,
    csv_table,
    read_lines,
    read_parquet,
    text_lines,
    too_long,
)
from ckl_jax.data.text.documents import Document, encodable
from ckl_jax.errors import UserError
from ckl_jax.files import json_value, os_errors, require_file

_PACKED = (".gz", ".bz2")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_HEADING = re.compile(r"^#\s+(.+)$", re.MULTILINE)
# Two rules (---, at the end also ...) with a field after the first; text there is a paragraph.
_FRONT_MATTER = re.compile(
    r"\A---[ \t]*\r?\n(?=[\w-]+[ \t]*:|#|---)(.*?\n)?(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)",
    re.DOTALL,
)
_SHOWN = 8
_BLANK = " \t>"
_QUOTE = re.compile(r"[ \t]*>[> \t]*")  # Markdown's marks of quotations
# Of items of lists, and headings.
_BEGINS = re.compile(r"[ \t>]*(?:[-*+\u2022\u2023]|\d{1,3}[.)]|#{1,6})[ \t]")
_NARROW, _FULL = (40, 100), 0.9  # characters of wrapped lines; fraction that could not be longer
Record = tuple[str, int, Mapping[str, Any]]  # where it stands, its number, its fields


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fields:
    """The names of the fields of a record."""

    text: str = "text"  # of the text, which a record must have
    # of the day, as YYYY-MM-DD or longer; a record without it has the day of its file
    date: str = "date"
    title: str = "title"  # of the headline, which may be missing
    id: str = "id"  # of what distinguishes documents, which may be missing


def read_place(
    place: str | os.PathLike,
    fields: Fields = Fields(),  # noqa: B008
    *,
    versions: bool = False,
    latest: str = "",
    undated: collections.Counter[str] | None = None,
) -> Iterator[Document]:
    """Yields the documents of a file or of all files in a folder, by path, in constant memory.

    A text or Markdown file is one document: its title is the first heading or the file's name, its
    date the one in its name, or the day when it was last written. Those of a Markdown file's front
    matter (lines such as `date: ...` and `title: ...`, by the names of `fields`, between two `---`
    at its beginning) come before them.

    Args:
      place: .jsonl, .json (of lines, too), .csv (each also .gz or .bz2), .parquet, .txt, .md, or a
        folder.
      versions: whether records are versions of documents, and so must have an id and a date.
      latest: YYYY-MM-DD; no document may be of a later day.
      undated: counts, by file, the documents that have the day of their file.

    Raises:
      UserError: nothing there can be read; or a record is damaged, has no text field, or has a date
        that is none: the message names file, line and field. Or no record of a file has a field
        whose name was given.
    """
    place = Path(place)
    if not place.is_dir():
        require_file(place, f"There is no file or folder {place} with documents.")
        yield from _checked(place, fields, versions, latest, undated)
        return
    kinds = (*_RECORDS, *_TEXTS)
    files = sorted(p for p in _below(place) if p.is_file() and _kind(p) in kinds)
    if not files:
        raise UserError(f"{place} holds no documents: no file ends in {', '.join(kinds)}.")
    for path in files:
        for document in _checked(path, fields, versions, latest, undated):
            yield dataclasses.replace(document, id=f"{path.relative_to(place)}:{document.id}")


def _below(folder: Path) -> Iterator[Path]:
    """What is below a folder and not hidden; `rglob` would skip folders that cannot be read."""
    with os_errors(folder, "read"):
        entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    for entry in entries:
        yield from _below(entry) if entry.is_dir() and not entry.is_symlink() else (entry,)


def read_records(path: str | os.PathLike, columns: Iterable[str] = ()) -> Iterator[Record]:
    """Yields the records of a .jsonl, .csv or .parquet file, each with its file and line.

    Args:
      columns: those of Parquet that are read; () is all.

    Raises:
      UserError: there is no such file, it is of another kind, or a record is damaged.
    """
    path = Path(path)
    if _kind(path) not in _RECORDS:
        raise UserError(f"{path} is of no known kind; give {', '.join(_RECORDS)}.")
    require_file(path, f"There is no file {path}.")
    for where, number, record in _RECORDS[_kind(path)](path, frozenset(columns)):
        if not isinstance(record, Mapping):
            raise UserError(f"{path}, {where}: not an object with fields.")
        yield where, number, record


def _kind(path: Path) -> str:
    ends = [s.lower() for s in path.suffixes if s.lower() not in _PACKED]
    return ends[-1] if ends else ""


def _checked(
    path: Path,
    fields: Fields,
    versions: bool,
    latest: str,
    undated: collections.Counter[str] | None,
) -> Iterator[Document]:
    """The documents of a file, those without a date with its own."""
    for where, document in _documents(path, fields, versions):
        date = document.date or _written(path)
        if undated is not None and not document.date:
            undated[str(path)] += 1
        if latest and date > latest:
            raise UserError(
                f"{path}, {where}: {date} is after today ({latest}); mend the date of the document."
            )
        yield dataclasses.replace(document, date=date, text=_unwrapped(document.text))


def _unwrapped(text: str) -> str:
    """A text that was wrapped at a width, with each paragraph in one line; others as they are."""
    text = text.replace("\r\n", "\n")
    blocks = list(_blocks(text.split("\n")))
    within = [pair for block in blocks for pair in itertools.pairwise(block)]
    width = max((len(a) for a, _ in within), default=0)
    if len(within) < 2 or not _NARROW[0] <= width <= _NARROW[1]:
        return text
    # Each line is as long as the next one's first word allows, but for a few.
    words = (re.split(r"[\s-]", _QUOTE.sub("", b.lstrip()), maxsplit=1)[0] for _, b in within)
    full = sum(len(a) + 1 + len(word) > width for (a, _), word in zip(within, words, strict=True))
    if full < _FULL * len(within):
        return text
    joined = ((first, *(_QUOTE.sub("", line) for line in rest)) for first, *rest in blocks)
    return "\n".join(" ".join(" ".join(lines).split()) for lines in joined)


def _blocks(lines: Iterable[str]) -> Iterator[list[str]]:
    """The lines of each paragraph, heading, item of a list and quotation; blank lines alone."""
    block: list[str] = []
    for line in lines:
        goes_on = (
            block
            and line.strip(_BLANK)
            and block[-1].strip(_BLANK)
            and not _BEGINS.match(line)
            and not block[0].startswith("#")
            and bool(_QUOTE.match(line)) == bool(_QUOTE.match(block[0]))
        )
        if block and not goes_on:
            yield block
            block = []
        block.append(line)
    yield block


def _documents(path: Path, fields: Fields, versions: bool) -> Iterator[tuple[str, Document]]:
    """Where each document stands, and the document, whose date is "" where none is given."""
    if _kind(path) in _TEXTS:
        yield "its date", _text(path, fields)
        return
    if _kind(path) not in _RECORDS:
        known = ", ".join((*_RECORDS, *_TEXTS))
        raise UserError(f"{path} is of no known kind; give {known}, or a folder.")
    # Fields of names that were given, where only some records may lack them.
    missing = {f for f in (fields.date, fields.title) if f not in vars(Fields()).values()}
    record: Mapping[str, Any] = {}
    for where, number, record in read_records(path, vars(fields).values()):
        missing -= record.keys()
        for name, flag in ((fields.id, "id"), (fields.date, "date")) if versions else ():
            if record.get(name) in (None, ""):
                raise UserError(
                    f"{path}, {where}: the field {name!r} is missing or empty; a version of a "
                    f"document needs it (--{flag}-field names another)."
                )
        yield f"{where}, {fields.date!r}", _document(record, fields, path, where, number)
    if missing and record:
        there = ", ".join(map(repr, list(record)[:_SHOWN]))
        raise UserError(f"{path}: no record has the field {min(missing)!r}; there are {there}.")


def _json_lines(path: Path, columns: frozenset[str]) -> Iterator[Record]:
    del columns
    for number, _, line in read_lines(path):
        if line.strip():
            yield f"line {number}", number, json_value(line, path, number)


def _csv(path: Path, columns: frozenset[str]) -> Iterator[Record]:
    del columns
    for number, row in csv_table(path):
        yield f"line {number}", number, row


def _parquet(path: Path, columns: frozenset[str]) -> Iterator[Record]:
    for number, row in enumerate(read_parquet(path, columns), 1):
        yield f"row {number}", number, row


def _text(path: Path, fields: Fields) -> Document:
    whole = io.StringIO()
    for line in text_lines(path):
        if whole.write(line) and whole.tell() > RECORD_BYTES:  # the file is one document
            raise too_long(path, "the whole text", RECORD_BYTES)
    text, front = whole.getvalue(), ""
    is_markdown = _kind(path) == ".md"
    if is_markdown and (matter := _FRONT_MATTER.match(text)):
        text, front = text[matter.end() :], matter[1] or ""
    heading = _HEADING.search(text) if is_markdown else None
    title = _front(front, fields.title) or (heading[1].strip() if heading else path.stem)
    if day := _front(front, fields.date):
        date = _day(day, path, f"{fields.date!r} of its front matter")
    else:
        named = _DATE.search(path.name)
        date = _day(named[0], path, "its name") if named else ""
    return Document(path.name, date, title, text.strip())


def _front(lines: str, name: str) -> str:
    """What a line of front matter says of a field, without quotation marks; "" if none does."""
    pattern = rf"^{re.escape(name)}[ \t]*:[ \t]*([\"']?)(.*?)\1[ \t]*\r?$"
    said = re.search(pattern, lines, re.MULTILINE | re.IGNORECASE)
    return said[2] if said else ""


def _document(record: Mapping, fields: Fields, path: Path, where: str, number: int) -> Document:
    text = record.get(fields.text)
    if text is None and fields.text in record:  # null: a document without text
        text = ""
    if not isinstance(text, str):
        there = ", ".join(map(repr, list(record)[:_SHOWN])) or "none"
        raise UserError(
            f"{path}, {where}: the field {fields.text!r} is missing or not text; there are {there} "
            "(--text-field names another)."
        )
    given = record.get(fields.date)
    date = "" if given in (None, "") else _day(given, path, f"{where}, {fields.date!r}")
    title, key = record.get(fields.title), record.get(fields.id)
    return Document(
        str(number if key in (None, "") else key),
        date,
        encodable(str(title or "")),
        encodable(text),
    )


def _day(given: Any, path: Path, where: str) -> str:
    if isinstance(given, datetime.date):  # and its subclass datetime
        return given.isoformat()[:10]
    try:
        return datetime.date.fromisoformat(str(given)[:10]).isoformat()
    except ValueError as e:
        raise UserError(
            f"{path}, {where}: {str(given)[:40]!r} is not a day of the form YYYY-MM-DD."
        ) from e


def _written(path: Path) -> str:
    with os_errors(path, "read"):
        return datetime.date.fromtimestamp(path.stat().st_mtime).isoformat()


_RECORDS = {".jsonl": _json_lines, ".json": _json_lines, ".csv": _csv, ".parquet": _parquet}
_TEXTS = (".txt", ".md")
