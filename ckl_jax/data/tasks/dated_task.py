"""Dated documents as a cached task that records word boundaries (Mind the Gap).

A word is what lies between blanks in a tokenised text. Every word is encoded by itself, so that
the tokens of a document are as many groups as it has words, whatever the vocabulary does to odd
characters: only then is a perplexity by words that of the same words under every vocabulary.
"""

import functools
import heapq
import itertools
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ckl_jax.data.compressed import ANY_LENGTH, RECORD_BYTES
from ckl_jax.data.process_pool import batches
from ckl_jax.data.tasks.cached import CachedTask, find_task, write_cached
from ckl_jax.data.tasks.prepare import Progress, describe, make_task, vocabulary_meta
from ckl_jax.data.text.documents import (
    Document,
    canonical_key,
    encodable,
    read_documents,
    write_documents,
)
from ckl_jax.errors import UserError
from ckl_jax.files import atomic_write, read_jsonl, refuse_to_replace

FEATURES = ("targets", "tokens_per_word")
SIDE_FILE = "documents.jsonl"
MAX_TOKENS = 2**16 - 1  # of a word, so that their number takes two bytes
_BATCH = 200
_KEPT_WORDS = 1_000_000
RUN_CHARACTERS = 1 << 26


class Encoded(NamedTuple):
    """A document's tokens."""

    tokens: list[int]  # ids, without an end
    counts: list[int]  # how many tokens each word has, 1 or more


class WordEncoder:
    """Encodes texts word by word, with a cache of words."""

    def __init__(self, vocabulary: Any, kept_words: int = _KEPT_WORDS):
        """Args: vocabulary: has `encode_many` and `eos_id`. kept_words: bound on memory."""
        self._vocabulary, self._kept = vocabulary, kept_words
        # SentencePiece puts the blank before a word itself, as Llama 2's tokenizer.json does.
        one, two = vocabulary.encode_many(["a", "a a"])
        self._blank = "" if two == one * 2 else " "
        self._tokens: dict[str, list[int]] = {}

    def __call__(self, texts: Sequence[str]) -> list[Encoded]:
        """Returns the tokens of each text."""
        split = [text.split() for text in texts]
        self._learn(split)
        return [self._join(words) for words in split]

    def _learn(self, texts: Iterable[Sequence[str]]) -> None:
        if len(self._tokens) > self._kept:
            self._tokens.clear()
        unknown = {w: None for words in texts for w in words if w not in self._tokens}
        encoded = self._vocabulary.encode_many([self._blank + word for word in unknown])
        for word, tokens in zip(unknown, encoded, strict=True):
            self._tokens[word] = self._checked(word, tokens)

    def _checked(self, word: str, tokens: list[int]) -> list[int]:
        """The tokens of a word: at least one, and none that ends a text."""
        vocabulary = self._vocabulary
        if vocabulary.eos_id in tokens:  # the word is spelled as the end is
            letters = vocabulary.encode_many([*filter(None, [self._blank]), *word])
            tokens = [token for letter in letters for token in letter]
        if len(tokens) > MAX_TOKENS:
            raise UserError(
                f"A word of {len(word):,} characters, {word[:40]!r}..., has more than "
                f"{MAX_TOKENS:,} tokens; clean the text first."
            )
        return tokens or [getattr(vocabulary, "unk_id", vocabulary.pad_id)]

    def _join(self, words: Sequence[str]) -> Encoded:
        groups = [self._tokens[word] for word in words]
        encoded = Encoded(list(itertools.chain.from_iterable(groups)), list(map(len, groups)))
        assert len(encoded.counts) == len(words) and 0 not in encoded.counts
        return encoded


class DatedTask:
    """A cached task of dated documents, in the order of the stream.

    Attributes:
      folder: of both.
      task: rows with `targets` (token ids, no end) and `tokens_per_word`.
    """

    def __init__(self, folder: Path, task: CachedTask):
        self.folder, self.task = folder, task

    @classmethod
    def open(cls, folder: str | os.PathLike) -> "DatedTask":
        """Opens a folder that `prepare_dated` made.

        Raises:
          UserError: it holds no complete task, or one of another kind.
        """
        folder = Path(folder)
        task = CachedTask.open(folder)
        if set(task.features) != set(FEATURES) or not (folder / SIDE_FILE).is_file():
            raise UserError(
                f"{folder} is not a task of dated documents; make one by `ckl data dated`."
            )
        return cls(folder, task)

    @classmethod
    def find(cls, name: str, cache_dirs: Sequence[str] = ()) -> "DatedTask":
        """Opens a task by folder or by name in `cache_dirs`; `UserError` if there is none."""
        if (folder := find_task(name, cache_dirs)) is not None:
            return cls.open(folder)
        raise UserError(
            f"Task {name!r} exists neither as a folder nor in {list(cache_dirs)}; make it with "
            "'ckl data dated'."
        )

    def __len__(self) -> int:
        return len(self.task)

    @property
    def words(self) -> int:
        """Words of all documents."""
        return self.task.manifest["features"]["tokens_per_word"]["tokens"]

    @property
    def tokens(self) -> int:
        """Tokens of all documents."""
        return self.task.manifest["features"]["targets"]["tokens"]

    def documents(self, start: int = 0) -> Iterator[dict[str, str]]:
        """Yields {id, date, text} of the rows from `start` on."""
        yield from read_jsonl(self.folder / SIDE_FILE, start)


def prepare_dated(
    documents: str | os.PathLike | Iterable[Document],
    folder: str | os.PathLike,
    vocabulary: Any,
    *,
    replace: bool = False,
    progress: Progress | None = None,
    record_limit: int = RECORD_BYTES,
) -> DatedTask:
    """Makes a cached task of dated documents, in constant memory.

    Args:
      documents: a JSONL(.gz) file of them, tokenised, whose task is left as it is if it is there;
        or the documents. In any order; those without a word are left out.
      folder: to write to: the task, and beside it `documents.jsonl` with {id, date, text}.
      vocabulary: has `encode_many`, `vocab_size`, `eos_id` and `digest`.
      replace: make anew what the folder holds of other settings.
      progress: called with (name of the folder, documents done) now and then.
      record_limit: bytes of a line of a file of documents at most.

    Raises:
      UserError: the file is missing or malformed or has no text, two documents have one id and
        date, or the folder holds other settings.
    """
    folder = Path(folder)
    rows = functools.partial(_rows, folder=folder, vocabulary=vocabulary, progress=progress)
    if isinstance(documents, (str, os.PathLike)):
        refuse_to_replace(folder / SIDE_FILE, documents)
        meta = describe(folder.name, Path(documents), vocabulary, None) | {"rows": "dated"}
        make_task(
            folder,
            meta,
            lambda work: rows(
                work, read_documents(documents, record_limit), source=os.fspath(documents)
            ),
            vocabulary,
            features=FEATURES,
            replace=replace,
        )
    else:
        meta = vocabulary_meta(vocabulary) | {"task": folder.name, "rows": "dated"}
        write_cached(
            folder,
            lambda work: rows(work, documents),
            meta=meta,
            features=FEATURES,
            vocab_size=vocabulary.vocab_size,
            eos_id=vocabulary.eos_id,
        )
    return DatedTask.open(folder)


def _rows(
    work: Path,
    documents: Iterable[Document],
    folder: Path,
    vocabulary: Any,
    progress: Progress | None,
    source: str = "its corpus",
) -> Iterator[dict[str, list[int]]]:
    """Yields the rows, and writes the side file into `work`; `source` is named in errors."""
    encode = WordEncoder(vocabulary)
    stream = in_canonical_order(d for d in documents if d.text.split())
    done = 0
    with atomic_write(work / SIDE_FILE) as side:
        for batch in batches(_distinct(stream), lambda _: 1, _BATCH):
            texts = [encodable(document.text) for document in batch]
            for document, text, encoded in zip(batch, texts, encode(texts), strict=True):
                row = {"id": document.id, "date": document.date, "text": text}
                side.write(json.dumps(row, ensure_ascii=False) + "\n")
                yield dict(zip(FEATURES, encoded, strict=True))
            done += len(batch)
            if progress:
                progress(folder.name, done)
        if not done:
            raise UserError(f"No rows to write to {folder}: no document of {source} has a word.")


def _distinct(documents: Iterable[Document]) -> Iterator[Document]:
    last = None
    for document in documents:
        if (key := canonical_key(document)) == last:
            raise UserError(
                f"Two documents of {document.date} have the id {document.id!r}; give each its own."
            )
        last = key
        yield document


def in_canonical_order(
    documents: Iterable[Document], run_characters: int = RUN_CHARACTERS
) -> Iterator[Document]:
    """Yields documents by `documents.canonical_key`: sorted runs, then a merge.

    Args:
      documents: in any order.
      run_characters: of text that are sorted in memory at once; more goes through files in the
        folder for temporary files.
    """
    runs = (
        sorted(run, key=canonical_key)
        for run in batches(documents, lambda d: len(d.text) + 200, run_characters)
    )
    first = next(runs, [])
    second = next(runs, None)
    if second is None:
        yield from first
        return
    with tempfile.TemporaryDirectory(prefix="ckl-sort-") as folder:
        paths = [Path(folder) / f"{i:05d}.jsonl.gz" for i in range(2)]
        write_documents(paths[0], first, level=1)
        write_documents(paths[1], second, level=1)
        del first, second
        for run in runs:
            paths.append(Path(folder) / f"{len(paths):05d}.jsonl.gz")
            write_documents(paths[-1], run, level=1)
        yield from heapq.merge(
            *(read_documents(path, ANY_LENGTH) for path in paths), key=canonical_key
        )
