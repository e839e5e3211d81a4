"""Rows of running text for decoder-only models: documents cut to a length, packed or not.

A row is one feature, `targets`: the tokens of a part of one document, between those that begin and
end a text, where the vocabulary has any. A packed row holds several parts; a second feature,
`segments`, numbers them from 1. Of marked documents (`Document.marks`) a second feature, `marks`,
is 1 on marked tokens and 0 on others.
"""

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax import checks
from ckl_jax.data.compressed import RECORD_BYTES
from ckl_jax.data.facts.ckl_files import prompt_of, read_originals, read_probe
from ckl_jax.data.facts.fact_files import read_probe_csv
from ckl_jax.data.facts.probe import Probe
from ckl_jax.data.tasks.packing import pack, row_features
from ckl_jax.data.tasks.prepare import Progress, describe, make_task
from ckl_jax.data.text.byte_level import begins_with
from ckl_jax.data.text.documents import Document, read_documents
from ckl_jax.errors import UserError

Row = dict[str, list[int]]
_BATCH = 1000


def document_text(document: Document, legacy: bool = False) -> str:
    """The text of a document for a language model: "title. text".

    Args:
      document: of which the title may be empty.
      legacy: delete the line breaks, which glues the paragraphs, as TemporalWiki's code did.
    """
    text = f"{document.title}. {document.text}" if document.title else document.text
    return text.replace("\n", "") if legacy else text


def cut(tokens: Sequence[int], length: int, legacy: bool = False) -> Iterator[list[int]]:
    """Yields the rows of one document.

    Args:
      tokens: of the document; none give no row.
      length: of a row; the last one is shorter.
      legacy: leave out the last row of a document that fills more than one, as TemporalWiki's code
        did: 1301 tokens give two rows of 512.
    """
    whole = len(tokens) - len(tokens) % length if legacy and len(tokens) > length else len(tokens)
    for start in range(0, whole, length):
        yield list(tokens[start : min(start + length, whole)])


def causal_rows(
    documents: Iterable[Document],
    vocabulary: Any,
    length: int = 512,
    *,
    packed: bool = False,
    legacy: bool = False,
    marks: bool = False,
) -> Iterator[Row]:
    """Yields the rows of a corpus, in constant memory.

    Args:
      documents: in the order of the rows.
      vocabulary: has `encode_many`; where texts begin with a token of their own, so does every
        part; where they end with one, so does the last part, of a masked model every part.
      length: tokens of a row at most.
      packed: put short parts together; see `packing.pack`.
      legacy: see `document_text` and `cut`.
      marks: also yield the marks of each row; not of packed or legacy ones.
    """
    before, after = getattr(vocabulary, "around", ((), ()))

    def parts(tokens: Sequence[int], before: Sequence[int], after: Sequence[int]) -> list[list]:
        cuts = list(cut(tokens, length - len(before) - len(after), legacy))
        # A decoder would learn that a text may end anywhere.
        inner = after if hasattr(vocabulary, "mask_id") else ()
        return [[*before, *c, *(inner if c is not cuts[-1] else after)] for c in cuts]

    if marks:
        unmarked = [0] * len(before), [0] * len(after)
        for document in documents:
            tokens, marked = _marked_tokens(document, vocabulary)
            for row in zip(parts(tokens, before, after), parts(marked, *unmarked), strict=True):
                yield dict(zip(("targets", "marks"), row, strict=True))
        return
    texts = (document_text(document, legacy) for document in documents)
    pieces = (
        {"targets": part}
        for tokens in _encoded(texts, vocabulary)
        for part in parts(tokens, before, after)
    )
    yield from pack(pieces, {"targets": length}) if packed else pieces


def _marked_tokens(document: Document, vocabulary: Any) -> tuple[list[int], list[int]]:
    """The tokens of a document, and 1 for each with a character of a mark, else 0."""
    text = document_text(document)
    covered = np.zeros(len(text) + 2, np.int64)
    shift = len(text) - len(document.text)
    for start, end in document.marks or ():
        covered[shift + start + 1 : shift + end + 1] = 1
    counts = np.cumsum(covered)
    starts, ends = np.array(vocabulary.offsets(text), np.int64).reshape(-1, 2).T
    return vocabulary.encode(text), (counts[ends] > counts[starts]).astype(int).tolist()


def _encoded(texts: Iterable[str], vocabulary: Any) -> Iterator[Sequence[int]]:
    texts = iter(texts)
    while batch := list(itertools.islice(texts, _BATCH)):
        yield from vocabulary.encode_many(batch)


def prepare_rows(
    sources: Mapping[str, str | os.PathLike],
    out: str | os.PathLike,
    vocabulary: Any,
    length: int = 512,
    *,
    packed: bool = False,
    legacy: bool = False,
    marks: bool = False,
    replace: bool = False,
    progress: Progress | None = None,
    record_limit: int = RECORD_BYTES,
) -> dict[str, Path]:
    """Makes cached tasks of running text; existing ones with the same settings are kept.

    Args:
      sources: name of the task -> JSONL(.gz) file of documents; see `documents.read_documents`.
      out: the folder to fill, one folder a task.
      vocabulary: has `encode_many`, `vocab_size`, `eos_id` and `digest`.
      length, packed, legacy, marks: see `causal_rows`.
      replace: make anew what `out` holds of other settings.
      progress: called with (task, rows done) now and then.
      record_limit: bytes of a line of a file at most.

    Returns:
      name -> folder.

    Raises:
      UserError: a file is missing or malformed or has no text; packed rows in the legacy cutting,
        which the released code did not know, or marks of either; a folder that holds other
        settings.
    """
    checks.require_int(2, length=length)
    checks.require_bool(packed=packed, legacy=legacy, marks=marks)
    if packed + legacy + marks > 1:
        raise UserError("packed rows, the legacy cutting and marks exclude each other; choose one.")
    folders = {}
    for name, path in sources.items():
        meta = describe(name, Path(path), vocabulary, {"targets": length}, packed)
        meta |= {"rows": "causal", "legacy_cut": legacy}
        meta |= {"marks": True} if marks else {}
        documents = read_documents(path, record_limit)
        rows = causal_rows(documents, vocabulary, length, packed=packed, legacy=legacy, marks=marks)
        rows = _with_progress(rows, name, progress)
        features = (*row_features(("targets",), packed), *(["marks"] if marks else []))
        folders[name] = Path(out) / name
        make_task(folders[name], meta, rows, vocabulary, features=features, replace=replace)
    return folders


def prepare_originals(
    path: str | os.PathLike, folder: str | os.PathLike, vocabulary: Any, length: int = 350
) -> Path:
    """Makes a cached task of the unmasked texts of one of CKL's corpora, cut to a length.

    Args:
      path: CSV file with the column `original`; see `ckl_files.read_originals`.
      vocabulary: has `encode_many`, `vocab_size`, `eos_id` and `digest`.
      length: tokens of a row at most.

    Raises:
      UserError: the file is missing or malformed or has no text, or the folder has another task.
    """
    first = begins_with(vocabulary)
    texts = _encoded(read_originals(path), vocabulary)
    rows = ([*first, *part] for tokens in texts for part in cut(tokens, length - len(first)))
    return _make(path, folder, vocabulary, length, "originals", rows)


def prepare_facts(
    path: str | os.PathLike, folder: str | os.PathLike, vocabulary: Any, length: int = 25
) -> Path:
    """Makes a cached task of facts, "subject relation object" each, cut to a length.

    Args:
      path: CSV file with these columns; see `data.facts.fact_files.read_probe_csv`.
      vocabulary: has `encode`, `vocab_size`, `eos_id` and `digest`.
      length: tokens of a fact at most.

    Raises:
      UserError: the file is missing or malformed or has no facts, or the folder has another task.
    """
    texts = (" ".join(fact.values()) for fact in read_probe_csv(path))
    first = begins_with(vocabulary)
    rows = ([*first, *vocabulary.encode(text)][:length] for text in texts)
    return _make(path, folder, vocabulary, length, "facts", rows)


def prepare_prompts(
    path: str | os.PathLike,
    probe: str | Probe,
    folder: str | os.PathLike,
    vocabulary: Any,
    length: int = 50,
    questions: bool = False,
) -> Path:
    """Makes a cached task of items with their answers, for light-tuning (CKL, appendix G).

    A row is the text before the blank, or the question, the first answer and a full stop.

    Args:
      path: CSV file in the format of `probe`.
      probe: a record, or one of `ckl_files.PROBES`: "trex_5000" for any file in LAMA's format.
      vocabulary: has `encode`, `vocab_size`, `eos_id` and `digest`.
      length: tokens of a row at most.
      questions: put questions before the answers.

    Raises:
      UserError: the file is missing or malformed, an item has no question, a row does not fit (an
        answer would be cut), or the folder has another task.
    """

    def rows() -> Iterator[list[int]]:
        for item in read_probe(probe, path=path):
            prompt = prompt_of(item, questions)
            if questions and not prompt:
                raise UserError(f"{path}: the item {item.id!r} has no question.")
            text = f"{prompt} {item.answers[0]}.".strip()
            row = [*begins_with(vocabulary), *vocabulary.encode(text)]
            if len(row) > length:
                raise UserError(
                    f"{path}: the item {item.id!r} has {len(row)} tokens with its answer, and rows "
                    f"{length}; give longer rows (LIGHT_TUNE_LENGTH)."
                )
            yield row

    kind = "questions" if questions else "prompts"
    return _make(path, folder, vocabulary, length, kind, rows())


def _make(
    path: str | os.PathLike,
    folder: str | os.PathLike,
    vocabulary: Any,
    length: int,
    kind: str,
    rows: Iterable[list[int]],
) -> Path:
    """Makes a cached task of the tokens of `rows`, which are made of the file at `path`."""
    checks.require_int(2, length=length)
    meta = describe(Path(path).stem, Path(path), vocabulary, {"targets": length}) | {"rows": kind}
    targets = ({"targets": row} for row in rows)
    make_task(Path(folder), meta, targets, vocabulary, features=("targets",))
    return Path(folder)


def _with_progress(rows: Iterable[Row], name: str, progress: Progress | None) -> Iterator[Row]:
    for done, row in enumerate(rows, 1):
        yield row
        if progress and done % _BATCH == 0:
            progress(name, done)
