"""Writes a benchmark's documents as corpora in CKL's format: rows with masked salient spans.

SMALL is a fraction of the documents of D0 and of D1, drawn by their ids; P1 and P2 are D1's of
these before a day and from it on (CKL, Table 3).
"""

import collections
import contextlib
import csv
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ckl_jax.data.buckets import hash64
from ckl_jax.data.facts.ckl_files import CORPORA
from ckl_jax.data.facts.ckl_writer import csv_writer
from ckl_jax.data.text.documents import Document
from ckl_jax.data.text.spans import has_sentinel, masked_rows
from ckl_jax.data.text.taggers import EntityFinder
from ckl_jax.errors import UserError

_COLUMNS = ("input", "output", "original")


@dataclasses.dataclass(frozen=True)
class Parts:
    """Chooses SMALL's documents, and which of these are P1's and P2's."""

    fraction: float = 0.0  # of the documents; 0: there is no SMALL
    half: str = ""  # the first day of P2; "" if there are no halves
    seed: int = 0  # of the draw

    def is_small(self, document_id: str) -> bool:
        # hash64 is below 2^63.
        return hash64("small", self.seed, document_id) < self.fraction * 2**63

    def names(self, document_id: str, date: str) -> tuple[str, ...]:
        """Of "small", "p1" and "p2" those that hold a document of D1."""
        if not self.is_small(document_id):
            return ()
        return ("small", "p1" if date < self.half else "p2") if self.half else ("small",)

    def halved(self, days: Mapping[str, int]) -> "Parts":
        """These parts, with the day that best halves SMALL's documents of D1 if none was given.

        Args:
          days: date -> how many there are. All of one day have no halves.

        Raises:
          UserError: the day that was given leaves nothing before it, or nothing from it on.
        """
        known = sorted(days)
        if self.half and known and not known[0] < self.half <= known[-1]:
            raise UserError(
                f"--half {self.half} does not part SMALL's documents of D1, which are of "
                f"{known[0]} to {known[-1]}; give a day after the first of these, or none."
            )
        if self.half or len(known) < 2:
            return self
        # {first day of P2: difference of the halves}.
        total, before, unequal = sum(days.values()), 0, {}
        for day, next_day in zip(known, known[1:], strict=False):
            before += days[day]
            unequal[next_day] = abs(total - 2 * before)
        return dataclasses.replace(self, half=min(unequal, key=unequal.__getitem__))


def write_corpora(
    documents: Iterable[tuple[str, Document]],
    folder: Path,
    parts: Parts,
    finder: EntityFinder,
    words: int,
    spans: int,
    counts: collections.Counter[str],
) -> dict[str, int]:
    """Writes the corpora of `documents` into a folder in CKL's layout, in one reading.

    Args:
      documents: ("D0" or "D1", document), in the order to write.
      folder: gets the files of `ckl_files.CORPORA` that have rows.
      words: of a row's text at most; 0: a sentence a row.
      spans: masked in a row at most; a text gets as many rows as mask each once. 0: all at once.
      counts: gets what is left out: the texts without anything to mask, and documents.

    Returns:
      Corpus -> rows.
    """
    rows: collections.Counter[str] = collections.Counter()
    with contextlib.ExitStack() as stack:
        writers: dict[str, csv.DictWriter] = {}
        for side, document in documents:
            # A text that holds "<extra_id_0>" would look masked already.
            if has_sentinel(document.text):
                counts["documents with sentinels of their own, not trained on"] += 1
                continue
            # keep_spanless, so that they can be counted here.
            masked = list(masked_rows([document], finder, words, spans or None, keep_spanless=True))
            made = [row for row in masked if row["output"]]
            counts["rows without an entity to mask, not trained on"] += len(masked) - len(made)
            for name in _corpora(side, document, parts) if made else ():
                # Opened by the first row: a corpus without rows leaves no file.
                if name not in writers:
                    path = folder / CORPORA[name]
                    path.parent.mkdir(parents=True, exist_ok=True)
                    file = stack.enter_context(open(path, "w", encoding="utf-8", newline=""))
                    writers[name] = csv_writer(file, _COLUMNS)
                writers[name].writerows(made)
                rows[name] += len(made)
    return {name: rows[name] for name in CORPORA if rows[name]}


def _corpora(side: str, document: Document, parts: Parts) -> Iterator[str]:
    """Names in `ckl_files.CORPORA`."""
    yield side.lower()
    if side == "D0":
        yield from ["d0_small"] * parts.is_small(document.id)
    else:
        for name in parts.names(document.id, document.date):
            yield "d1_small" if name == "small" else name
