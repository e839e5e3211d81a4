"""An index of a corpus without its texts: dates, sizes and hashes of ids."""

import dataclasses
import datetime
import os
from collections.abc import Iterable

import numpy as np

from ckl_jax.data.buckets import hash64
from ckl_jax.data.compressed import RECORD_BYTES, read_lines
from ckl_jax.data.text.documents import Document, parse_document
from ckl_jax.errors import UserError

MEASURES = ("documents", "words", "bytes")
ROW = np.dtype(
    [("day", "<i4"), ("month", "<i4"), ("words", "<i4"), ("bytes", "<i8"), ("key", "<i8")]
)


@dataclasses.dataclass(frozen=True)
class Index:
    """Dates, sizes and hashes of ids of a corpus, in its order; about 30 bytes a document."""

    days: np.ndarray  # int32 [N], proleptic ordinals of the dates
    months: np.ndarray  # int32 [N], months since the year 0
    words: np.ndarray  # int32 [N], and bytes: int64 [N], of the texts
    bytes: np.ndarray
    keys: np.ndarray  # int64 [N], hashes of the ids

    def __len__(self) -> int:
        return len(self.days)

    def sizes(self, measure: str) -> np.ndarray:
        if measure == "documents":
            return np.ones(len(self), np.int64)
        return self.words if measure == "words" else self.bytes

    @classmethod
    def of(cls, documents: Iterable[Document], seed: int, name: str) -> "Index":
        """Indexes documents; raises `UserError` if there are none, or two have one id."""
        rows = rows_of(documents, seed)
        if not len(rows):
            raise UserError(f"{name} has no documents.")
        if (pair := same_id(rows)) is not None:
            raise UserError(
                f"{name}: documents {pair[0] + 1:,} and {pair[1] + 1:,} have the same id; give "
                "each its own (`ckl data clean` adds #2 to a repeated one)."
            )
        return cls.of_rows(rows)

    @classmethod
    def of_rows(cls, rows: np.ndarray) -> "Index":
        """Indexes what `rows_of` says of documents."""
        return cls(*(np.ascontiguousarray(rows[field]) for field in rows.dtype.names))


def rows_of(documents: Iterable[Document], seed: int) -> np.ndarray:
    """Returns [N] records of day, month, words, bytes and key; see `Index`."""
    return np.fromiter((_row(d, seed) for d in documents), ROW)


def same_id(rows: np.ndarray) -> tuple[int, int] | None:
    """The numbers (from 0) of two documents with the same id, or None."""
    order = np.argsort(rows["key"], kind="stable")
    same = np.flatnonzero(np.diff(rows["key"][order]) == 0)
    return (int(order[same[0]]), int(order[same[0] + 1])) if len(same) else None


def _row(document: Document, seed: int) -> tuple[int, int, int, int, int]:
    date = datetime.date.fromisoformat(document.date)
    text = document.text
    # Encoding is only needed where characters and bytes differ.
    size = len(text) if text.isascii() else len(text.encode())
    month = date.year * 12 + date.month - 1
    return date.toordinal(), month, len(text.split()), size, hash64(seed, document.id)


def read_index(
    path: str | os.PathLike, seed: int = 0, progress=None, record_limit: int = RECORD_BYTES
) -> Index:
    """Indexes a JSONL(.gz) file of documents; refuses what `read_documents` refuses."""

    def documents():
        for done, (number, _, line) in enumerate(read_lines(path, record_limit), 1):
            if line.strip():
                yield parse_document(line, path, number)
            if progress and done % 5000 == 0:
                progress(done, 0, "documents read")

    return Index.of(documents(), seed, os.fspath(path))


def month_name(month: int) -> str:
    return f"{month // 12:04d}-{month % 12 + 1:02d}"


def month_number(text: str, what: str) -> int:
    """The number of a month, "2019-12", or of "2019"'s last; raises `UserError` for others."""
    year, _, month = text.partition("-")
    if not (year.isdecimal() and len(year) == 4 and int(year) and (month or "1").isdecimal()):
        raise UserError(f"{what} is {text!r}; give a year or a month, such as 2019 or 2019-12.")
    number = int(month) if month else 12
    if not 1 <= number <= 12:
        raise UserError(f"{what} is {text!r}; months are 01 to 12.")
    return int(year) * 12 + number - 1
