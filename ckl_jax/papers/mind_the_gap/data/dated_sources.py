"""Reads dated documents from their publishers' files, one record at a time.

A source cuts a file into records, as bytes, and makes a `Document` of each; cutting is cheap and
done by one process, making is done by many.
"""

import base64
import binascii
import dataclasses
import datetime
import email.utils
import hashlib
import os
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator

from ckl_jax.data.compressed import RECORD_BYTES, read_blocks, read_lines, too_long
from ckl_jax.data.text.documents import Document
from ckl_jax.errors import UserError
from ckl_jax.files import NAMES_ONCE, BadJson, parse_json

Record = tuple[int, bytes]  # its number in the file from 1 (of a line, the line's), what it is


class BadRecord(Exception):
    """A record that cannot become a document; the message says why in a few words."""


@dataclasses.dataclass(frozen=True)
class Source:
    """A kind of file.

    Attributes:
      records: cuts a file, of whose records none may have more bytes than a limit.
      document: makes a document and its language ("" if that is not said) of a record; None if
        there is no text in it; raises `BadRecord`.
      unit: what a record is called.
    """

    records: Callable[[str | os.PathLike, int], Iterator[Record]]
    document: Callable[[Record], tuple[Document, str] | None]
    unit: str = "line"


def iso_date(text: object, what: str = "date") -> str:
    """Returns the ISO date of YYYY-MM-DD, YYYYMMDD, or a timestamp that begins so.

    Raises:
      BadRecord: it is not a date.
    """
    if text is not None and not isinstance(text, str):
        raise BadRecord(f'its {what} {str(text)[:40]} is not a string, such as "2013-02-03"')
    if text is None or not text.strip():
        raise BadRecord(f"it has no {what}")
    try:
        digits = text.strip()
        # YYYY-MM-DD or YYYYMMDD, with or without a time behind it.
        digits = digits[:10] if digits[4:5] == "-" else digits[:8]
        return datetime.date.fromisoformat(digits).isoformat()
    except ValueError:
        raise BadRecord(f"its {what} {text[:40]!r} is not a day of the form YYYY-MM-DD") from None


def lines(path: str | os.PathLike, limit: int = RECORD_BYTES) -> Iterator[Record]:
    """Yields the lines of a file, plain or compressed, that are not blank."""
    for number, _, line in read_lines(path, limit):
        if line.strip():
            yield number, line


def _json(record: Record) -> dict:
    try:
        value = parse_json(record[1], NAMES_ONCE, lone_surrogates=True)  # `clean` replaces them
    except BadJson as e:
        raise BadRecord(f"it is {e}") from None
    if not isinstance(value, dict):
        raise BadRecord("it is not a JSON object")
    return value


def dated_json(record: Record) -> tuple[Document, str] | None:
    """{"id", "date", "text", "lang"?}; without an id the line's number is one."""
    row = _json(record)
    if not isinstance(row.get("text"), str):
        raise BadRecord("it has no 'text', or one that is not a string")
    if not row["text"].strip():
        return None
    id = str(row.get("id") or f"line-{record[0]}")
    return Document(id, iso_date(row.get("date"), "'date'"), "", row["text"]), row.get("lang") or ""


def wmt_news(record: Record) -> tuple[Document, str] | None:
    """WMT's News Crawl by documents: the day, the text split by sentence, and unsplit, in base64.

    The id is SHA-256 of the last column as it is in the file, as in the published lists of ids.
    """
    cells = record[1].rstrip(b"\r").split(b"\t")
    if len(cells) != 3:
        raise BadRecord(f"it has {len(cells)} columns in place of 3 between tabs")
    date = iso_date(cells[0].decode("ascii", "replace"))
    try:
        text = base64.b64decode(cells[1], validate=True).decode("utf-8", "replace")
    except binascii.Error as e:
        raise BadRecord(f"its second column is not base64 ({e})") from None
    if not text.strip():
        return None
    # Of the base64 bytes as they stand: decoding first would give other ids than the release.
    return Document(hashlib.sha256(cells[2]).hexdigest(), date, "", text.strip()), ""


# --- arXiv


_RECORD = re.compile(rb"<record[\s>].*?</record\s*>", re.DOTALL)
_BEGIN = re.compile(rb"<record[\s>]")
_DOCTYPE = re.compile(rb"<!DOCTYPE", re.IGNORECASE)


def arxiv_records(path: str | os.PathLike, limit: int = RECORD_BYTES) -> Iterator[Record]:
    """The records of Kaggle's JSON lines, or of harvested OAI-PMH pages, one after another."""
    # Kaggle's file is JSON lines, OAI-PMH is XML: distinguished by the first byte.
    head = next(read_blocks(path), b"").lstrip(b"\xef\xbb\xbf \t\r\n")
    yield from (_oai_records if head.startswith(b"<") else lines)(path, limit)


def _oai_records(path: str | os.PathLike, limit: int) -> Iterator[Record]:
    number, rest = 0, b""
    for block in read_blocks(path):
        rest += block
        # Refuses entity bombs.
        if _DOCTYPE.search(rest):
            raise UserError(f"{path} has a document type declaration, which OAI-PMH has not.")
        end = 0
        for match in _RECORD.finditer(rest):
            number, end = number + 1, match.end()
            yield number, match[0]
        if len(rest) - end > limit:
            raise too_long(path, f"record {number + 1}", limit)
        rest = rest[end:]
    if _BEGIN.search(rest):
        raise UserError(f"{path} ends within record {number + 1}; the file is truncated.")


def arxiv(record: Record) -> tuple[Document, str] | None:
    """An abstract, with the day of its first version."""
    return _oai(record) if record[1].lstrip().startswith(b"<") else _kaggle(record)


def _kaggle(record: Record) -> tuple[Document, str] | None:
    row = _json(record)
    if not isinstance(row.get("id"), str) or not isinstance(row.get("abstract"), str):
        raise BadRecord("it has no 'id' or no 'abstract'")
    versions = row.get("versions")
    # The date of a paper is that of its first version.
    created = versions[0].get("created") if isinstance(versions, list) and versions else None
    if not isinstance(created, str):
        raise BadRecord("its 'versions' do not say when the first was created")
    try:
        date = email.utils.parsedate_to_datetime(created).date().isoformat()
    except (ValueError, TypeError):
        date = iso_date(created, "date of creation")
    return _abstract(row["id"], date, row["abstract"])


def _oai(record: Record) -> tuple[Document, str] | None:
    try:
        root = ElementTree.fromstring(record[1])
    except ElementTree.ParseError as e:
        raise BadRecord(f"it is not XML ({e})") from None
    fields = {}
    # Without namespaces, whose addresses differ between harvests; the first of a name counts.
    for element in root.iter():
        fields.setdefault(element.tag.rpartition("}")[2], element)
    if fields.get("header") is not None and fields["header"].get("status") == "deleted":
        return None
    text = {name: (e.text or "").strip() for name, e in fields.items()}
    if "id" not in text or "abstract" not in text:
        raise BadRecord("it has no <id> or no <abstract>; harvest with metadataPrefix=arXiv")
    return _abstract(text["id"], iso_date(text.get("created"), "<created>"), text["abstract"])


def _abstract(id: str, date: str, abstract: str) -> tuple[Document, str] | None:
    text = " ".join(abstract.split())  # its line breaks are those of an e-mail
    return (Document(id, date, "", text), "") if text else None


SOURCES = {
    "jsonl": Source(lines, dated_json),
    "wmt": Source(lines, wmt_news),
    "arxiv": Source(arxiv_records, arxiv, "record"),
}
