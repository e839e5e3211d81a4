"""Measures how much of a probe is recited training text: its filled statements that occur there.

Words are compared in lower case, without punctuation. A statement overlaps exactly if the text has
its words in a row; nearly, by the most of its trigrams of words that one text has (a statement of
one or two words counts as one). Statements are kept in memory, texts are streamed.
"""

import collections
import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.data.facts import ckl_files
from ckl_jax.data.facts.fact_files import read_facts
from ckl_jax.data.facts.probe import ProbeItem
from ckl_jax.data.facts.questions import read_questions
from ckl_jax.errors import UserError
from ckl_jax.files import read_json_object, sha256, write_json

FILE = "overlap.json"  # in a folder in CKL's layout
BINS = (0.2, 0.4, 0.6, 0.8)  # upper limits of the histogram's classes but the last one
_WORD = re.compile(r"\w+")
_N = 3
_PARTS = {"d0": ("d0_small",), "d1": ("d1_small", "p1", "p2"), "d1_small": ("p1", "p2")}


@dataclasses.dataclass(frozen=True)
class Overlap:
    """The overlap of a probe with one corpus."""

    items: int
    exact: int  # items of which a statement stands in the text
    # [5] items by the greatest fraction of trigrams in one text: up to 0.2, 0.4, ... 1.
    near: tuple[int, ...]
    examples: tuple[str, ...]  # up to five of the exact statements


def measure(
    probes: Mapping[str, Sequence[ProbeItem]], corpora: Mapping[str, Iterable[str]]
) -> dict[str, dict[str, Overlap]]:
    """Measures every probe against every corpus.

    Args:
      probes: items by the probe's name; each is filled with each of its answers.
      corpora: {name: texts}, such as sentences, paragraphs or articles; each is read once.

    Returns:
      {probe: {corpus: its overlap}}.
    """
    statements = _Statements(probes)
    by_corpus = {name: statements.compare(texts) for name, texts in corpora.items()}
    return {
        probe: {name: overlaps[probe] for name, overlaps in by_corpus.items()} for probe in probes
    }


class _Statements:
    """The filled statements of all probes, indexed by trigrams."""

    def __init__(self, probes: Mapping[str, Sequence[ProbeItem]]):
        self.owners: list[tuple[str, int]] = []  # of each statement: probe, and place of the item
        self.texts: list[str] = []
        self.items = {name: len(items) for name, items in probes.items()}
        self.index: dict[tuple[str, ...], list[int]] = collections.defaultdict(list)
        for name, items in probes.items():
            for place, item in enumerate(items):
                for answer in item.answers:
                    self.owners.append((name, place))
                    self.texts.append(item.input.replace(ckl_files.BLANK, answer))
        self.words = [_words(text) for text in self.texts]
        for i, words in enumerate(self.words):
            for gram in _grams(words, min(_N, len(words))):
                self.index[gram].append(i)
        # Different trigrams of each statement.
        self.sizes = [len(_grams(words, min(_N, len(words)))) for words in self.words]

    def compare(self, texts: Iterable[str]) -> dict[str, Overlap]:
        best = np.zeros(len(self.words))
        exact: set[int] = set()
        lengths = {len(gram) for gram in self.index}
        for text in texts:
            words = _words(text)
            grams = {gram for n in lengths for gram in _grams(words, n)}
            shared = collections.Counter(i for gram in grams for i in self.index.get(gram, ()))
            for i, count in shared.items():
                best[i] = max(best[i], count / self.sizes[i])
                if count == self.sizes[i] and _contains(words, self.words[i]):
                    exact.add(i)
        return {name: self._overlap(name, best, exact) for name in self.items}

    def _overlap(self, name: str, best: np.ndarray, exact: set[int]) -> Overlap:
        mine = [i for i, (probe, _) in enumerate(self.owners) if probe == name]
        nearest = np.zeros(self.items[name])
        for i in mine:
            place = self.owners[i][1]
            nearest[place] = max(nearest[place], best[i])
        stated = {self.owners[i][1]: self.texts[i] for i in mine if i in exact}
        near = np.bincount(np.digitize(nearest, BINS, right=True), minlength=len(BINS) + 1)
        examples = tuple(list(stated.values())[:5])
        return Overlap(self.items[name], len(stated), tuple(map(int, near)), examples)


def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text.lower()))


def _grams(words: Sequence[str], n: int) -> set[tuple[str, ...]]:
    """The sequences of n words."""
    return {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}


def _contains(words: Sequence[str], wanted: Sequence[str]) -> bool:
    length = len(wanted)
    return any(words[i : i + length] == wanted for i in range(len(words) - length + 1))


def as_json(overlaps: Mapping[str, Mapping[str, Overlap]]) -> dict[str, dict[str, Any]]:
    """The results of `measure`, as JSON values."""
    return {
        probe: {name: dataclasses.asdict(overlap) for name, overlap in mine.items()}
        for probe, mine in overlaps.items()
    }


def measure_folder(folder: str | Path) -> dict[str, dict[str, Overlap]]:
    """Measures all probes of a folder in CKL's layout against the corpora in it.

    Raises:
      UserError: there is none of either, or a file is malformed.
    """
    return measure(*read_folder(folder))


def read_folder(folder: str | Path) -> tuple[dict[str, list[ProbeItem]], dict[str, Iterator[str]]]:
    """The items of the probes in a folder in CKL's layout, and the texts of its corpora.

    A corpus that is a part of another one there is left out.

    Raises:
      UserError: there is none of either, or a probe is malformed.
    """
    folder = Path(folder)
    corpora = ckl_files.CORPORA.items()
    there = {name: folder / f for name, f in corpora if os.path.lexists(folder / f)}
    inside = {part for whole, parts in _PARTS.items() if whole in there for part in parts}
    wanted = {name: path for name, path in there.items() if name not in inside}
    texts = {name: ckl_files.corpus_texts(path) for name, path in wanted.items()}
    names = ckl_files.available_probes(folder)
    probes = {name: ckl_files.read_probe(name, folder) for name in names}
    if not texts or not probes:
        what = "corpora" if probes else "probes"
        raise UserError(f"{folder} has none of CKL's {what}; give a folder in CKL's layout.")
    return probes, texts


def read_items(path: str | Path) -> list[ProbeItem]:
    """The items of a file of facts (`fact_files`, CSV) or of dated questions (JSON lines).

    A fact is stated as its triple, a question as itself with an answer behind it.

    Raises:
      UserError: it cannot be read, or is neither.
    """
    if Path(path).suffix == ".csv":
        stated = [(f.id, f.prompt, (f.object,)) for f in read_facts(path).facts]
    else:
        stated = [(q.id, q.question, q.answers) for q in read_questions(path)]
    return [
        ProbeItem(id=key, input=f"{prompt} {ckl_files.BLANK}", answers=answers)
        for key, prompt, answers in stated
    ]


def write_overlaps(folder: str | Path, overlaps: Mapping[str, Mapping[str, Overlap]]) -> None:
    """Writes a CKL folder's overlaps into it; raises `UserError` if another file is there."""
    folder = Path(folder)
    held = read_json_object(folder / FILE) if os.path.lexists(folder / FILE) else {}
    if not all(isinstance(x, dict) and "sha256" in x for x in held.values()):
        raise UserError(f"{folder / FILE} was not made by `ckl data overlap`; move it.")
    record = {
        # Which file it was, so that another one put in its place is not taken for it.
        probe: {"sha256": sha256(ckl_files.PROBES[probe].path(folder)), "corpora": corpora}
        for probe, corpora in as_json(overlaps).items()
    }
    write_json(folder / FILE, record)


def read(folder: str | Path, probe: str, path: str | Path) -> dict[str, Any] | None:
    """The measured overlap of a probe: {corpus: {"items", "exact", "near", "examples"}}.

    Returns:
      None if it was not measured, or of another file.
    """
    record = Path(folder) / FILE
    if not record.is_file():
        return None
    mine = read_json_object(record).get(probe)
    known = isinstance(mine, dict) and mine.get("sha256") == sha256(path)
    return mine["corpora"] if known else None
