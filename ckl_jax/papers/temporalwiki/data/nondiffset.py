"""NON-Diffset: the text of a snapshot that is not in its diffset (TemporalWiki, section 4.1).

Both are read as streams in the order of page ids, and joined. A paragraph that the diffset has is
left out, of others the sentences that it has; what is left is the text that did not change.
"""

import bisect
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.data.buckets import hash64
from ckl_jax.data.compressed import RECORD_BYTES
from ckl_jax.data.text.documents import Document, read_documents, write_documents
from ckl_jax.data.text.sentences import Split, sentence_splitter
from ckl_jax.errors import UserError
from ckl_jax.files import refuse_to_replace
from ckl_jax.papers.temporalwiki.data.algorithm1 import DELETED, DELETED_PAGE, LEGACY, NEW
from ckl_jax.papers.temporalwiki.data.diffsets import read_records

_HASHES = 2**63


def remaining(text: str, new: Iterable[dict[str, Any]], split: Split) -> str:
    """The text of a page without the new text that the diffset lists; "" if nothing is left.

    Args:
      text: of the page, a paragraph a line.
      new: the diffset's records of the page: `kind` and `text`.
      split: paragraph -> sentences.
    """
    records = [r for r in new if r["kind"] not in (DELETED, DELETED_PAGE)]
    if not records:
        return text
    # A new article has no old text.
    if any(r["kind"] == NEW for r in records):
        return ""
    known = {line for r in records for line in r["text"].split("\n")} - {""}
    lines = text.split("\n")
    # Sorted, so that `_cut` finds candidates by their first sentence.
    pieces = sorted(f"{piece} " for piece in known.difference(lines))
    kept = (_cut(line, pieces, split) for line in lines if line not in known)
    return "\n".join(filter(None, kept))


def _cut(paragraph: str, pieces: Sequence[str], split: Split) -> str:
    """The sentences of a paragraph that are not new.

    Args:
      paragraph: that is not new as a whole.
      pieces: sorted: the new sentences of paragraphs, with a blank behind each sentence. They
        are not split again, as sentences out of their paragraph may be split otherwise.
      split: paragraph -> sentences.
    """
    sentences = split(paragraph)
    # A record joins several sentences of one paragraph; they are found again in their order.
    for i, first in enumerate(sentences):
        for j in range(bisect.bisect_left(pieces, first), len(pieces)):
            if not pieces[j].startswith(first):
                break
            if new := _consumed(sentences[i:], pieces[j]):
                return " ".join(s for k, s in enumerate(sentences) if k - i not in new)
    return paragraph


def _consumed(sentences: Sequence[str], piece: str) -> set[int]:
    """The sentences that make up a piece, in order; none unless they make up all of it."""
    used, at = set(), 0
    for k, sentence in enumerate(sentences):
        if piece.startswith(f"{sentence} ", at):
            used.add(k)
            at += len(sentence) + 1
    return used if at == len(piece) else set()


def write_nondiffset(
    snapshot: str | os.PathLike,
    diffset: str | os.PathLike,
    out: str | os.PathLike,
    *,
    fraction: float = 1.0,
    seed: int = 0,
    language: str = "en",
    record_limit: int = RECORD_BYTES,
) -> dict[str, int]:
    """Writes the documents of a snapshot without its diffset.

    Args:
      snapshot: documents of all its pages: `wikipedia_DATE.jsonl` of `ckl data diffsets` without
        `--old`.
      diffset: folder of `ckl data diffsets`, of the same new dump.
      out: JSONL(.gz) file to write.
      fraction: of the pages to take, by a hash of `seed` and the page's id.
      record_limit: bytes of a line of `snapshot` at most.

    Returns:
      How many pages were read, were drawn, are whole, were cut, and had nothing left.

    Raises:
      UserError: a file is missing, or the pages are not in the order of their ids, or the diffset
        is a legacy one, whose text is not that of sentences.
    """
    if not 0 < fraction <= 1:
        raise UserError(f"The fraction is {fraction}; give a number in (0, 1].")
    refuse_to_replace(out, snapshot)
    # Records of the released function are glued pieces, which cannot be found again in the text.
    if next(read_records(diffset), {}).get("kind") == LEGACY:
        raise UserError(f"{diffset} was made with --legacy, which has no rest; make it without.")
    counts = dict.fromkeys(("pages", "drawn", "whole", "cut", "nothing left"), 0)
    split = sentence_splitter(language)

    def documents() -> Iterator[Document]:
        pages = _in_order(read_documents(snapshot, record_limit), lambda d: d.id, snapshot)
        for page, document, records in _join(pages, _new_text(diffset)):
            counts["pages"] += 1
            # By page and seed, so that a smaller draw is a part of a larger one.
            if hash64(seed, page) >= fraction * _HASHES:
                continue
            text = remaining(document.text, records, split)
            state = "nothing left" if not text else "whole" if text == document.text else "cut"
            counts["drawn"] += 1
            counts[state] += 1
            if text:
                yield Document(document.id, document.date, document.title, text, document.url)
        if not counts["pages"]:
            raise UserError(f"{os.fspath(snapshot)} has no page; give the snapshot of a dump.")
        if not counts["whole"] + counts["cut"]:
            raise UserError(
                f"Nothing is left to write: of {counts['pages']:,} pages of {os.fspath(snapshot)} "
                f"{counts['drawn']:,} were drawn (--fraction), with no text beside the diffset's."
            )

    write_documents(out, documents())
    return counts


def _new_text(folder: str | os.PathLike) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    records = read_records(folder)
    grouped = (
        (page, list(rows))
        for page, rows in itertools.groupby(records, lambda record: record["page_id"])
    )
    return _in_order(grouped, lambda pair: pair[0], folder)


def _in_order(items: Iterable[Any], key, path: str | os.PathLike) -> Iterator[tuple[int, Any]]:
    """(page id, item) of a stream that must be sorted by id."""
    before = -1
    for item in items:
        try:
            page = int(key(item))
        except ValueError as e:
            raise UserError(f"{Path(path)}: {key(item)!r} is not a page id.") from e
        if page <= before:
            raise UserError(
                f"{Path(path)}: page {page} follows page {before}; make it again by `ckl data "
                "diffsets`."
            )
        before = page
        yield page, item


def _join(pages: Iterator[tuple[int, Document]], new) -> Iterator[tuple[int, Document, list]]:
    """Each page with its records in the diffset."""
    page, pair = next(new, (None, None))
    for number, document in pages:
        # Both streams ascend: a merge join, in which every page is kept.
        while page is not None and page < number:
            page, pair = next(new, (None, None))
        yield number, document, pair[1] if page == number else []
