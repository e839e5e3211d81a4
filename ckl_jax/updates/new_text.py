"""Selects the new text of documents: sentences that the current model has not learned.

A document of which nothing is new is left out; of one that was edited, the paragraphs with a new
sentence stay. What is held out is on one side only: such a document keeps its new sentences alone,
and no other keeps a sentence of one, in any update.

Sentences are compared without case, punctuation and blanks, but with signs and currencies, by
64-bit hashes: eight bytes of memory for each sentence ever read. One that is known but for a few
words that lead to it ("Update: ...") is not new.
"""

import collections
import dataclasses
import itertools
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from ckl_jax.data.buckets import bucket_path, hash64, write_rows
from ckl_jax.data.compressed import read_lines
from ckl_jax.data.text.documents import Document, json_line, parse_document
from ckl_jax.data.text.sentences import comparison_key, without_lead_in, without_markdown
from ckl_jax.data.text.spans import split_sentences
from ckl_jax.errors import UserError
from ckl_jax.files import atomic_write, os_errors, read_jsonl

_BATCH = 256  # documents
_BUFFER = 1 << 20  # hashes that are sorted in at once
_PART, _PARTS = 1 << 26, 200  # characters of a part of the text, and parts, about
# Thai and Lao, Burmese, Khmer, kana, and Chinese characters.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")

# The text of a sentence, and the hashes of all of it and of what comes after its lead-in.
_Sentence = tuple[str, int, int]


@dataclasses.dataclass
class Counts:
    """Numbers of documents and sentences, by what happened to them."""

    documents: int = 0
    empty: int = 0
    known: int = 0
    older: int = 0
    kept: int = 0
    words: int = 0
    sentences: int = 0
    new_sentences: int = 0
    first_date: str = ""
    last_date: str = ""

    def add(self, date: str, sentences: int, words: int) -> None:
        """Counts a document of the update, with its new sentences and their words."""
        self.kept += 1
        self.new_sentences += sentences
        self.words += words
        self.first_date = min(self.first_date or date, date)
        self.last_date = max(self.last_date, date)


class Sentences:
    """The hashes of the sentences read so far, sorted: those of a while ago and recent ones."""

    def __init__(self, path: Path | None = None):
        self._recent = np.empty(0, np.int64)
        self._sorted = np.empty(0, np.int64) if path is None else _saved(path)

    def add(self, hashes: np.ndarray) -> np.ndarray:
        """Adds hashes; returns which were new, counting the first of equal ones only."""
        _, first = np.unique(hashes, return_index=True)
        new = np.zeros(len(hashes), bool)
        new[first] = True
        new &= ~self.contain(hashes)
        if new.any():
            _sort_in(self._recent, np.sort(hashes[new]))
        if len(self._recent) > _BUFFER:
            self._merge()
        return new

    def contain(self, hashes: np.ndarray) -> np.ndarray:
        """Which hashes have been added."""
        found = np.zeros(len(hashes), bool)
        for known in filter(len, (self._sorted, self._recent)):
            at = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            found |= known[at] == hashes
        return found

    def _merge(self) -> None:
        _sort_in(self._sorted, self._recent)
        self._recent = np.empty(0, np.int64)

    def equals(self, path: Path) -> bool:
        """Whether a saved file has the same sentences; False if there is none."""
        self._merge()
        return path.exists() and np.array_equal(self._sorted, Sentences(path)._sorted)

    def save(self, path: Path) -> None:
        self._merge()
        with atomic_write(path, "wb") as f:
            np.save(f, self._sorted, allow_pickle=False)


def _sort_in(known: np.ndarray, added: np.ndarray) -> None:
    """Merges sorted hashes into others, which grow where they are."""
    count = len(known)
    known.resize(count + len(added), refcheck=False)
    known[count:] = added
    known.sort(kind="stable")  # in linear time: these are two sorted runs


def _saved(path: Path) -> np.ndarray:
    if not path.exists():
        raise UserError(f"There is no {path}, which says what was learned; restore it.")
    try:
        with os_errors(path, "read"):
            hashes = np.load(path, mmap_mode="r", allow_pickle=False)  # no larger than the file
    except (ValueError, EOFError, OverflowError, zipfile.BadZipFile) as e:
        raise UserError(f"{path} is damaged: not an array of numbers; restore it.") from e
    is_array = isinstance(hashes, np.ndarray) and hashes.dtype == np.int64 and hashes.ndim == 1
    if not is_array or (hashes[1:] <= hashes[:-1]).any():
        raise UserError(f"{path} does not hold the sentences of an update; restore it.")
    return np.array(hashes)  # which can grow


def by_date(read: Callable[[], Iterable[Document]], folder: Path) -> Iterator[Document]:
    """Yields documents by date, those of a day as they come, in bounded memory.

    Args:
      read: gives the documents, anew each time it is called.
      folder: an empty one for parts of the text, where they are in another order.
    """
    sizes: collections.Counter[str] = collections.Counter()
    last, in_order = "", True
    for document in read():
        sizes[document.date] += len(document.text)
        in_order &= document.date >= last
        last = document.date
    if in_order:
        yield from read()
        return
    # Each part has the text of some days, or of a single one.
    most = max(_PART, sizes.total() // _PARTS)
    part_of, size, part = {}, 0, 0
    for date in sorted(sizes):
        if size and size + sizes[date] > most:
            size, part = 0, part + 1
        part_of[date] = part
        size += sizes[date]
    # A day that came since the first reading is for the next update.
    rows = ((part_of[d.date], dataclasses.astuple(d)) for d in read() if d.date in part_of)
    write_rows(rows, folder, part + 1)
    days = collections.Counter(part_of.values())
    for i in range(part + 1):
        documents = (Document(*row) for row in read_jsonl(bucket_path(folder, i)))
        yield from documents if days[i] == 1 else sorted(documents, key=lambda d: d.date)


def select(
    documents: Iterable[Document],
    known: Sentences,
    since: str,
    counts: Counts,
    held_out: Sentences,
    holds_out: Callable[[Document, bool], bool],
) -> Iterator[tuple[Document, bool]]:
    """Yields (the new text of a document, whether it is older than `since`).

    Args:
      documents: by date: what is stated twice counts for the first.
      known: sentences of earlier updates; gets those of the documents.
      since: YYYY-MM-DD; "" takes all documents as new.
      counts: counted up.
      held_out: sentences of held-out documents of earlier updates; gets those of the documents.
      holds_out: whether a document is held out, of itself and whether it is older than `since`.
    """
    documents = iter(documents)
    while batch := list(itertools.islice(documents, _BATCH)):
        counts.documents += len(batch)
        split = [_paragraphs(document) for document in batch]
        flat = [s[1:] for paragraphs in split for _, sentences in paragraphs for s in sentences]
        hashes, after_lead_in = np.array(flat, np.int64).reshape(-1, 2).T
        is_new = known.add(hashes)
        led = is_new & (hashes != after_lead_in)
        is_new[led] = ~known.contain(after_lead_in[led])
        ages = [document.date < since for document in batch]
        apart = list(map(holds_out, batch, ages))
        sizes = [sum(len(sentences) for _, sentences in paragraphs) for paragraphs in split]
        is_apart = np.repeat(apart, sizes)
        held_out.add(hashes[is_new & is_apart])
        # Of a document that is held out what is not new may be trained on, and the other way round.
        is_other = is_apart & ~is_new
        is_other |= ~is_apart & (held_out.contain(hashes) | held_out.contain(after_lead_in))
        flags = iter(zip((is_new & ~is_other).tolist(), is_other.tolist(), strict=True))
        for document, is_old, paragraphs in zip(batch, ages, split, strict=True):
            fresh = [_fresh(*paragraph, flags) for paragraph in paragraphs]
            kept = [p for p, new in fresh if new]
            counts.sentences += sum(len(sentences) for _, sentences in paragraphs)
            if not any(sentences for _, sentences in paragraphs):
                counts.empty += 1
            elif not kept:
                counts.known += 1
            else:
                if is_old:
                    counts.older += 1
                else:
                    words = sum(len(p.split()) for p in kept)
                    counts.add(document.date, sum(new for _, new in fresh), words)
                yield dataclasses.replace(document, text="\n".join(kept)), is_old


def _fresh(
    paragraph: str, sentences: Sequence[_Sentence], flags: Iterator[tuple[bool, bool]]
) -> tuple[str, int]:
    """A paragraph without the sentences of the other side, and how many of it are new."""
    marked = [(sentence, *next(flags)) for sentence, _, _ in sentences]
    if any(is_other for _, _, is_other in marked):
        paragraph = " ".join(sentence for sentence, _, is_other in marked if not is_other)
    return paragraph, sum(is_new for _, is_new, _ in marked)


def _paragraphs(document: Document) -> list[tuple[str, list[_Sentence]]]:
    """The paragraphs of a document, and their sentences that have words."""
    return [
        (p, [(s, *hashes) for s in split_sentences(p) if (hashes := _hashes(s))])
        for p in document.text.split("\n")
        if p.strip() and _has_blanks(p)
    ]


def _has_blanks(paragraph: str) -> bool:
    """Whether most of it is in scripts that write blanks: sentences and questions need words."""
    return paragraph.isascii() or 2 * len(_UNSPACED.findall(paragraph)) <= len(paragraph)


def _hashes(sentence: str) -> tuple[int, int] | None:
    """None for a sentence without words."""
    sentence = without_markdown(sentence)
    if not (key := comparison_key(sentence)):
        return None
    rest = without_lead_in(sentence)
    first = hash64(key)
    return first, first if rest == sentence else hash64(comparison_key(rest))


def write_documents(documents: Iterable[tuple[Document, bool]], new: Path, old: Path) -> None:
    """Writes documents as JSON lines: those from `since` on into `new`, others into `old`."""
    with atomic_write(new) as f, atomic_write(old) as g:
        for document, is_old in documents:
            (g if is_old else f).write(json_line(document) + "\n")


def read(path: Path) -> Iterator[Document]:
    """Reads the documents of a file of `write`."""
    for number, _, line in read_lines(path):
        yield parse_document(line, path, number)
