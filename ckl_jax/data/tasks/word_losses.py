"""A model's loss on each word of dated documents: the dump from which staleness is computed.

A dump is a folder of shards, each a numpy archive of consecutive documents of one month, and
`dump.json`, which says what made it. A shard is written whole or not at all, and its name is the
number of its first document, so that a run that was stopped goes on behind the last shard.
"""

import dataclasses
import datetime
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.data.compressed import read_arrays
from ckl_jax.errors import UserError
from ckl_jax.files import as_json, atomic_write, os_errors, read_json, write_json

FORMAT = 2
ABOUT = "dump.json"
_KINDS = {"ids": "U", "dates": "U", "ends": "i", "words": "u"}  # of the arrays, as NumPy calls them
_KINDS |= {"nll": "f", "tokens": "i", "context_start": "i"}
_SHARD = re.compile(r"(\d{4}-\d{2})-(\d{9})\.npz$")


@dataclasses.dataclass(frozen=True)
class WordLosses:
    """One document.

    Attributes:
      id, date: of the document; ISO date.
      words: its W words.
      nll: [W] float32, the summed loss of a word's tokens, in nats.
      tokens: [W] int32, how many tokens a word has.
      context_start: [W] int32, the token (counted in the document) at which the chunk begins that
        scored the word's first token. What precedes it was seen through the memory alone.
    """

    id: str
    date: str
    words: Sequence[str]
    nll: np.ndarray
    tokens: np.ndarray
    context_start: np.ndarray

    @property
    def first_token(self) -> np.ndarray:
        """[W] int64, the position of each word's first token in the document."""
        return np.cumsum(self.tokens, dtype=np.int64) - self.tokens


@dataclasses.dataclass(frozen=True)
class Shard:
    """Consecutive documents of one month; flat arrays over all their words."""

    month: str  # YYYY-MM
    first: int  # number of the first document in its stream
    # ids, dates: of the D documents
    ids: list[str]
    dates: list[str]
    ends: np.ndarray  # [D] int64, where the words of each document end
    words: list[str]  # of all documents
    # nll, tokens, context_start: [words], see `WordLosses`
    nll: np.ndarray
    tokens: np.ndarray
    context_start: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    def documents(self) -> Iterator[WordLosses]:
        start = 0
        for i, end in enumerate(self.ends.tolist()):
            part = slice(start, end)
            yield WordLosses(
                self.ids[i],
                self.dates[i],
                self.words[part],
                self.nll[part],
                self.tokens[part],
                self.context_start[part],
            )
            start = end


class DumpWriter:
    """Collects documents in order and writes a shard at the end of each month or on `flush`.

    Args:
      folder: of the dump; made if it is missing.
      about: what makes it (model, vocabulary digest, chunk and memory length, ...), JSON values;
        kept in `dump.json`.
      resume_at: number of the document to go on with; later shards of an earlier run are removed.
        0 begins anew.
      most: documents of a shard.

    Raises:
      UserError: the folder has shards that were made otherwise, or a shard reaches beyond
        `resume_at`, or the folder cannot be written.
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        about: Mapping[str, Any],
        resume_at: int = 0,
        most: int = 1000,
    ):
        self.folder, self.most = Path(folder), most
        self.next = resume_at
        self._pending: list[WordLosses] = []
        about = as_json({"format": FORMAT, **about})
        if resume_at:
            about_there = read_about(self.folder)
            changed = sorted(
                k for k in {**about_there, **about} if about_there.get(k) != about.get(k)
            )
            if changed:
                raise UserError(
                    f"{folder} was begun with other settings ({', '.join(changed)}); choose "
                    "another folder, or delete it."
                )
        elif (self.folder / ABOUT).exists():
            try:
                read_about(self.folder)
            except UserError as e:
                raise UserError(f"{e} It is kept: choose another folder, or remove it.") from e
        for path, _, first in _shards(self.folder):
            if first >= resume_at:
                with os_errors(path):
                    path.unlink()
        write_json(self.folder / ABOUT, about)

    def add(self, document: WordLosses) -> None:
        """Adds the next document; if it begins a month, first writes the documents before it."""
        pending = self._pending
        if pending and (pending[0].date[:7] != document.date[:7] or len(pending) >= self.most):
            self.flush()
        self._pending.append(document)

    def flush(self) -> None:
        """Writes the pending documents as a shard; `next` is then the next document's number."""
        documents = self._pending
        if not documents:
            return
        arrays = {
            "ids": np.array([d.id for d in documents]),
            "dates": np.array([d.date for d in documents]),
            "ends": np.cumsum([len(d.words) for d in documents], dtype=np.int64),
            "words": np.frombuffer("\n".join(w for d in documents for w in d.words).encode(), "u1"),
            "nll": np.concatenate([d.nll for d in documents]).astype("<f4"),
            "tokens": np.concatenate([d.tokens for d in documents]).astype("<i4"),
            "context_start": np.concatenate([d.context_start for d in documents]).astype("<i4"),
        }
        path = self.folder / f"{documents[0].date[:7]}-{self.next:09d}.npz"
        with atomic_write(path, "wb") as f:
            np.savez_compressed(f, **arrays)
        self.next += len(documents)
        self._pending = []


def read_about(folder: str | os.PathLike) -> dict[str, Any]:
    """The contents of `dump.json`; raises `UserError` if there is no dump."""
    path = Path(folder) / ABOUT
    if not path.is_file():
        raise UserError(f"{folder} holds no dump of word losses (no {ABOUT}).")
    about = read_json(path)
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise UserError(f"{path} is not of a dump of format {FORMAT}; make the dump again.")
    return about


def read_dump(folder: str | os.PathLike) -> Iterator[Shard]:
    """Yields the shards of a dump in document order, one at a time.

    Raises:
      UserError: there is no dump, it has no shards, documents are missing between two shards, or a
        shard is damaged.
    """
    read_about(folder)
    paths = _shards(Path(folder))
    if not paths:
        raise UserError(f"{folder} has no scored documents yet.")
    expected = 0
    for path, month, first in paths:
        if first != expected:
            raise UserError(
                f"{folder} lacks the documents {expected} to {first - 1}; make the dump again."
            )
        shard = _read(path, month, first)
        expected += len(shard)
        yield shard


def _shards(folder: Path) -> list[tuple[Path, str, int]]:
    """(path, month, number of the first document), by number."""
    named = [(path, _SHARD.search(path.name)) for path in folder.glob("*.npz")]
    shards = [(path, m[1], int(m[2])) for path, m in named if m]
    return sorted(shards, key=lambda shard: shard[2])


def _read(path: Path, month: str, first: int) -> Shard:
    try:
        columns = read_arrays(path)
        for name, kind in _KINDS.items():
            if columns[name].ndim != 1 or columns[name].dtype.kind != kind:
                raise ValueError(f"{name} is an array of {columns[name].dtype}")
        words = columns["words"].tobytes().decode()
        shard = Shard(
            month=month,
            first=first,
            ids=columns["ids"].tolist(),
            dates=columns["dates"].tolist(),
            words=words.split("\n") if words else [],
            **{name: columns[name] for name in ("ends", "nll", "tokens", "context_start")},
        )
        for date in shard.dates:
            if date[:7] != month or datetime.date.fromisoformat(date).isoformat() != date:
                raise ValueError(f"a date is {date!r}")
        if (np.diff(shard.ends, prepend=0) < 0).any() or (shard.tokens < 0).any():
            raise ValueError("ends that fall, or tokens below 0")
    except (KeyError, ValueError) as e:
        raise UserError(f"{path} is damaged ({e}); delete it and make the dump again.") from e
    words_of = {len(x) for x in (shard.words, shard.nll, shard.tokens, shard.context_start)}
    if words_of != {shard.ends[-1] if len(shard.ends) else 0} or not (
        len(shard.ids) == len(shard.dates) == len(shard.ends)
    ):
        raise UserError(f"{path} is damaged (its lengths differ); make the dump again.")
    return shard
