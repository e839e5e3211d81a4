"""NON-Diffset text: what a snapshot has besides its diffset (TemporalWiki, section 4.1, Figure 2).

Both are read as streams in the order of page ids, and joined. A paragraph that the diffset has is
left out, of others the sentences that it has; what is left is the text that did not change.
"""

import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ckl_jax.data.builders.buckets import hash64
from ckl_jax.data.builders.diff import DELETED, DELETED_PAGE, NEW
from ckl_jax.data.builders.diffsets import read_records
from ckl_jax.data.builders.sentences import Split, sentence_splitter
from ckl_jax.data.documents import Document, read_documents, write_documents
from ckl_jax.errors import UserError

_HASHES = 2**63


def remaining(text: str, new: Iterable[dict[str, Any]], split: Split) -> str:
    """The text of a page without what a diffset says is new.

    Args:
      text: of the page, a paragraph a line.
      new: the diffset's records of the page: `kind` and `text`.
      split: paragraph -> sentences.

    Returns:
      "" if nothing is left.
    """
    records = [r for r in new if r["kind"] not in (DELETED, DELETED_PAGE)]
    if not records:
        return text
    if any(r["kind"] == NEW for r in records):
        return ""
    known = {line for r in records for line in r["text"].split("\n")} - {""}
    lines = (_cut(line, known, split) for line in text.split("\n") if line not in known)
    return "\n".join(filter(None, lines))


def _cut(paragraph: str, known: Iterable[str], split: Split) -> str:
    """The sentences of a paragraph that stand in none of the new pieces."""
    sentences = split(paragraph)
    padded = [f" {piece} " for piece in known]
    kept = [s for s in sentences if not any(f" {s} " in piece for piece in padded)]
    return paragraph if len(kept) == len(sentences) else " ".join(kept)


def write_rest(
    snapshot: str | os.PathLike,
    diffset: str | os.PathLike,
    out: str | os.PathLike,
    *,
    share: float = 1.0,
    seed: int = 0,
    language: str = "en",
) -> dict[str, int]:
    """Writes the documents of a snapshot without its diffset.

    Args:
      snapshot: documents of all its pages: `wikipedia_DATE.jsonl` of `ckl data diffsets` without
        `--old`.
      diffset: folder of `ckl data diffsets`, of the same new dump.
      out: JSONL(.gz) file to write.
      share: of the pages to take, by a hash of `seed` and the page's id.
      seed: of that.
      language: of the sentences.

    Returns:
      How many pages were read, were drawn, are whole, were cut, and had nothing left.

    Raises:
      UserError: a file is missing, or the pages are not in the order of their ids.
    """
    if not 0 < share <= 1:
        raise UserError(f"The share is {share}; give a number in (0, 1].")
    counts = dict.fromkeys(("pages", "drawn", "whole", "cut", "nothing left"), 0)
    split = sentence_splitter(language)

    def documents() -> Iterator[Document]:
        pages = _in_order(read_documents(snapshot), lambda d: d.id, snapshot)
        for page, document, records in _join(pages, _new_text(diffset)):
            counts["pages"] += 1
            if hash64(seed, page) >= share * _HASHES:
                continue
            text = remaining(document.text, records, split)
            state = "nothing left" if not text else "whole" if text == document.text else "cut"
            counts["drawn"] += 1
            counts[state] += 1
            if text:
                yield Document(document.id, document.date, document.title, text, document.url)

    write_documents(out, documents())
    return counts


def _new_text(folder: str | os.PathLike) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    records = read_records(folder)
    grouped = ((page, list(rows)) for page, rows in itertools.groupby(
        records, lambda record: record["page_id"]
    ))  # fmt: skip
    return _in_order(grouped, lambda pair: pair[0], folder)


def _in_order(items: Iterable[Any], key, path: str | os.PathLike) -> Iterator[tuple[int, Any]]:
    """(page id, item) of a stream that has to be in the order of ids."""
    before = -1
    for item in items:
        try:
            page = int(key(item))
        except ValueError as e:
            raise UserError(f"{Path(path)}: {key(item)!r} is no page id.") from e
        if page <= before:
            raise UserError(
                f"{Path(path)}: page {page} follows page {before}; make both without --unsorted "
                "from dumps in the order of page ids."
            )
        before = page
        yield page, item


def _join(pages: Iterator[tuple[int, Document]], new) -> Iterator[tuple[int, Document, list]]:
    """Each page with the diffset's records of it."""
    page, pair = next(new, (None, None))
    for number, document in pages:
        while page is not None and page < number:
            page, pair = next(new, (None, None))
        yield number, document, pair[1] if page == number else []
