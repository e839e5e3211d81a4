"""Splits published as lists of ids, joined to a corpus (Mind the Gap's release).

Every file is text, gzip or not, a document a line: its date (YYYYMMDD) and its id, in either order,
with blanks or a comma between them.
"""

import contextlib
import dataclasses
import datetime
import json
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.data.buckets import hash64
from ckl_jax.data.compressed import RECORD_BYTES, read_lines
from ckl_jax.data.process_pool import Progress, no_progress
from ckl_jax.data.text.documents import parse_document
from ckl_jax.errors import UserError
from ckl_jax.files import parse_json, write_json
from ckl_jax.papers.mind_the_gap.data.split_files import gzip_lines
from ckl_jax.papers.mind_the_gap.data.time_splits import NAMES

FILES = (*NAMES, "train")  # the last: of the training sets at increasing distance
_BETWEEN = re.compile(r"[\s,]+")
_DATE = re.compile(r"\d{8}")


def read_ids(path: str | os.PathLike) -> Iterator[tuple[int, str]]:
    """Yields (date as an ordinal, id) of a published list.

    Raises:
      UserError: the file cannot be read, or a line is not a date and an id.
    """
    for number, _, line in read_lines(path):
        text = line.decode("utf-8", "replace").strip()
        if not text:
            continue
        cells = _BETWEEN.split(text)
        if len(cells) == 2 and not _DATE.fullmatch(cells[0]):
            # The release does not document the order of the columns.
            cells.reverse()
        try:
            date, id = cells
            yield datetime.date(int(date[:4]), int(date[4:6]), int(date[6:])).toordinal(), id
        except ValueError:
            raise UserError(
                f"{path}, line {number}: {text[:60]!r} is not a date (YYYYMMDD) and an id."
            ) from None


def find_lists(folder: str | os.PathLike) -> dict[str, Path]:
    """{name of the split: its list of ids} of a folder; raises `UserError` if it has none."""
    files = sorted(Path(folder).iterdir()) if Path(folder).is_dir() else []
    lists = {f.name.split(".")[0]: f for f in files if f.name.split(".")[0] in FILES}
    if not lists:
        raise UserError(f"{folder} has none of the lists {', '.join(FILES)} (such as test.gz).")
    return lists


@dataclasses.dataclass
class _Lists:
    """The lists in memory, 21 bytes an entry."""

    names: tuple[str, ...]
    keys: np.ndarray  # int64 [N], sorted hashes of ids
    bits: np.ndarray  # uint8 [N], bit i for the i-th of `names`
    days: np.ndarray  # int32 [N]
    found: np.ndarray  # bool [N]

    @classmethod
    def read(cls, paths: dict[str, Path]) -> "_Lists":
        kind = [("key", "<i8"), ("day", "<i4"), ("bit", "u1")]
        parts = [
            np.fromiter(((hash64(id), day, 1 << i) for day, id in read_ids(path)), kind)
            for i, path in enumerate(paths.values())
        ]
        rows = np.concatenate(parts)
        rows.sort(order=["key", "day"])  # of several dates the earliest counts
        keys, first = np.unique(rows["key"], return_index=True)
        # A document may be on several lists: CONTROL and TIME-STRATIFIED share old ones.
        bits = np.bitwise_or.reduceat(rows["bit"], first) if len(first) else rows["bit"]
        return cls(tuple(paths), keys, bits, rows["day"][first], np.zeros(len(keys), bool))

    def on(self, name: str) -> np.ndarray:
        """bool [N], which ids are on a list; on none if there is no such list."""
        bit = 1 << self.names.index(name) if name in self.names else 0
        return self.bits & bit > 0

    def look_up(self, id: str) -> int | None:
        key = hash64(id)
        i = int(np.searchsorted(self.keys, key))
        return i if i < len(self.keys) and self.keys[i] == key else None


def join(
    corpus: str | os.PathLike,
    lists: str | os.PathLike,
    out: str | os.PathLike,
    progress: Progress = no_progress,
    record_limit: int = RECORD_BYTES,
) -> dict[str, Any]:
    """Writes the documents of published splits, with the dates that these have.

    Args:
      corpus: JSONL(.gz) file of documents.
      out: the folder to write `NAME.jsonl.gz` and `split.json` to.
      record_limit: bytes of a line of `corpus` at most.

    Returns:
      What `split.json` says: for each list how many ids it has and how many of them were found, how
      many documents of the corpus are on none, and of how many another date was listed.

    Raises:
      UserError: a file is missing or malformed, or no document has a listed id.
    """
    listed = _Lists.read(find_lists(lists))
    _warn_of_leaks(lists, listed)
    report = {"corpus_documents": 0, "unlisted": 0, "repeated": 0, "other_date": 0}
    with contextlib.ExitStack() as stack:
        files = [
            stack.enter_context(gzip_lines(Path(out) / f"{name}.jsonl.gz")) for name in listed.names
        ]
        for number, _, line in read_lines(corpus, record_limit):
            if line.strip():
                _place(line, corpus, number, listed, files, report)
            if number % 5000 == 0:
                progress(number, 0, "documents looked up")
        if not listed.found.any():
            raise UserError(
                f"None of the {len(listed.keys):,} ids in {lists} is in {corpus}; WMT's ids are "
                "SHA-256 of the third column as it is in the file (`ckl data clean --source wmt`)."
            )
    report["lists"] = {
        name: {"listed": int(on.sum()), "found": int((on & listed.found).sum())}
        for name in listed.names
        if len(on := listed.on(name))
    }
    write_json(Path(out) / "split.json", report)
    return report


def _warn_of_leaks(folder: str | os.PathLike, listed: _Lists) -> None:
    """Warns of test lists that share documents with training lists."""
    trained = [name for name in listed.names if name.endswith("train")]
    pairs = [("test", name) for name in trained]
    pairs += [(f"{name[:-6]}_validation", name) for name in trained if name.endswith("_train")]
    for tested, name in pairs:
        if both := int((listed.on(tested) & listed.on(name)).sum()):
            warnings.warn(
                f"{folder}: {both:,} ids of {tested} are on {name} too: a model would be tested on "
                "what it was trained on.",
                stacklevel=3,
            )


def _place(line: bytes, corpus, number: int, listed: _Lists, files, report) -> None:
    document = parse_document(line, corpus, number)
    report["corpus_documents"] += 1
    at = listed.look_up(document.id)
    if at is None or listed.found[at]:
        report["unlisted" if at is None else "repeated"] += 1
        return
    listed.found[at] = True
    # The listed date counts: of a repeated text it is the earliest.
    date = datetime.date.fromordinal(int(listed.days[at])).isoformat()
    if date != document.date:
        report["other_date"] += 1
        line = json.dumps(parse_json(line) | {"date": date}, ensure_ascii=False).encode()
    for i, f in enumerate(files):
        if listed.bits[at] >> i & 1:
            f.write(line + b"\n")
