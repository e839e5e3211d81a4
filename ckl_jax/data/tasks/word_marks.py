"""Marks the tokens of a cached task's rows that belong to proper nouns and other classes; stored
beside the task. A task with marks of its own (`data.tasks.causal`) has one more class of them.

Marks depend on the text alone, so that a task is tagged once and not for every model and batch.
"""

import hashlib
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.data.compressed import read_arrays
from ckl_jax.data.tasks.cached import CachedTask
from ckl_jax.data.text.word_classes import CLASSES, Word, make_tagger
from ckl_jax.errors import UserError
from ckl_jax.files import atomic_write

CHANGED_SPANS = "changed_spans"  # the marked tokens of a task of new text
GROUPS = ("all", *CLASSES, CHANGED_SPANS)  # bit g of a token's marks is GROUPS[g]
FORMAT = 1


class Marks:
    """The tokens of some rows, and the groups of each.

    Attributes:
      index: [N] numbers of the rows.
      backend: of the tagger.
      groups: those that the tagger distinguishes, and the changed spans of a task that has them.
      rows: [N] token ids.
      bits: [N] of each token the groups; bit g for `GROUPS[g]`.
    """

    def __init__(self, index: np.ndarray, backend: str, rows: list, bits: list, groups: tuple):
        self.index, self.backend, self.rows, self.bits = index, backend, rows, bits
        self.groups = groups


def mark_rows(task: CachedTask, vocabulary: Any, tagger: str, most: int, length: int) -> Marks:
    """Tags the rows of a task, or reads the stored tags.

    Args:
      task: of running text, not packed.
      vocabulary: of the task; has `locate` and `digest`.
      tagger: a name, see `word_classes.make_tagger`.
      most: rows at most, spread over the task evenly.
      length: tokens of a row at most.

    Raises:
      UserError: packed rows, or the tagger is not there.
    """
    if "segments" in task.features:
        raise UserError(
            f"{task.directory} has packed rows, of which words are not marked; make the task "
            "without packing."
        )
    index = np.unique(np.linspace(0, len(task) - 1, most).astype(np.int64))
    features = [task.row(i) for i in index.tolist()]
    rows = [row["targets"][:length] for row in features]
    path = task.directory / f"words-{tagger.replace(':', '-')}-{_key(rows, vocabulary)}.npz"
    tags = _read(path)
    if tags is None:
        tags = _tag(rows, vocabulary, tagger)
        _write(path, *tags)
    flat, backend, groups = tags
    ends = list(itertools.accumulate(map(len, rows)))
    bits = [flat[b - len(row) : b] for row, b in zip(rows, ends, strict=True)]
    if "marks" in task.features:
        groups = (*groups, CHANGED_SPANS)
        shift = GROUPS.index(CHANGED_SPANS)
        marks = [np.array(row["marks"][:length], np.uint8) << shift for row in features]
        bits = [a | b for a, b in zip(bits, marks, strict=True)]
    return Marks(index, backend, rows, bits, groups)


def _key(rows: Sequence[Sequence[int]], vocabulary: Any) -> str:
    content = json.dumps([FORMAT, vocabulary.digest, rows])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _tag(rows, vocabulary, tagger: str) -> tuple[np.ndarray, str, tuple[str, ...]]:
    located = [vocabulary.locate(row) for row in rows]
    texts = [text for text, _ in located]
    words = make_tagger(tagger, texts)
    bits = [
        mark_tokens(tags, spans, len(text))
        for tags, (text, spans) in zip(words.tag(texts), located, strict=True)
    ]
    return np.concatenate(bits), words.backend, ("all", *words.classes)


def mark_tokens(words: Sequence[Word], spans: Sequence[tuple[int, int]], length: int) -> np.ndarray:
    """The groups of each token: a token that overlaps a word has the word's class.

    Args:
      words: (start, end, class) in characters of a text.
      spans: [start, end) of each token.
      length: characters of the text.

    Returns:
      uint8 [tokens], bits as in `Marks`.
    """
    starts, ends = np.array(spans, np.int64).reshape(-1, 2).T
    bits = np.ones(len(spans), np.uint8)
    for name, mine in itertools.groupby(sorted(words, key=lambda w: w[2]), key=lambda w: w[2]):
        covered = np.zeros(length + 1, np.int64)
        for start, end, _ in mine:
            covered[start + 1 : end + 1] = 1
        counts = np.cumsum(covered)
        bits |= ((counts[ends] > counts[starts]) << GROUPS.index(name)).astype(np.uint8)
    return bits


def _read(path: Path) -> tuple[np.ndarray, str, tuple[str, ...]] | None:
    try:
        kept = read_arrays(path)
        return kept["bits"], str(kept["backend"]), tuple(map(str, kept["groups"]))
    except (UserError, ValueError, KeyError, TypeError):  # not there, or not whole
        return None


def _write(path: Path, bits: np.ndarray, backend: str, groups: Sequence[str]) -> None:
    """Stores the marks; if the task's folder is read-only, they are recomputed next time."""
    try:
        with atomic_write(path, "wb") as f:
            np.savez_compressed(f, bits=bits, backend=np.array(backend), groups=np.array(groups))
    except UserError as e:
        print(f"The marks of words are not kept: {e}", flush=True)
