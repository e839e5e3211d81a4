"""Finds sentences that mention a subject and an answer in a stream of documents.

What is looked for is held in memory, the documents are not: of each pair the newest sentences are
kept, and how many there were. Names are compared word by word and in upper and lower case.
"""

import bisect
import collections
import dataclasses
import re
from collections.abc import Iterable, Sequence

from ckl_jax.data.text.documents import Document

_WORD = re.compile(r"\w+")


@dataclasses.dataclass(frozen=True, order=True)
class Sentence:
    """A sentence and where it is; the order is that of dates."""

    date: str
    document: str
    title: str
    text: str


@dataclasses.dataclass
class Found:
    """The evidence for a pair: the number of sentences, and the newest of them, newest last."""

    count: int = 0
    newest: list[Sentence] = dataclasses.field(default_factory=list)


class Watch:
    """Pairs of names to find together in one sentence.

    A sentence is one of a pair if it names an answer and either it or the title of its document
    names the subject.
    """

    def __init__(self, max_sentences: int = 2):
        """Keeps up to `max_sentences` sentences per pair and side."""
        self.max_sentences = max_sentences
        self.found: dict[tuple[int, str], Found] = {}  # by pair and side
        self._names: dict[tuple[str, ...], int] = {}
        self._lengths: dict[str, tuple[int, ...]] = {}  # first word -> numbers of words of names
        self._pairs_of: dict[int, list[int]] = collections.defaultdict(list)  # subject -> pairs
        self._answers: list[tuple[frozenset[int], frozenset[int]]] = []  # one of, and all of

    def add(
        self, subjects: Iterable[str], answers: Iterable[str], required: Iterable[str] = ()
    ) -> int:
        """Adds a pair, any of the names of each, with all names of `required`.

        Returns:
          The number of the pair, for `of`.
        """
        pair = len(self._answers)
        numbers = (frozenset(map(self._number, names)) for names in (answers, required))
        self._answers.append(tuple(numbers))
        for number in {self._number(s) for s in subjects}:
            self._pairs_of[number].append(pair)
        return pair

    def _number(self, name: str) -> int:
        # Only words count: punctuation in a name may be written in several ways.
        words = tuple(_WORD.findall(name)) or (name,)  # of marks alone: is never found
        number = self._names.setdefault(words, len(self._names))
        lengths = self._lengths.get(words[0], ())
        if len(words) not in lengths:
            self._lengths[words[0]] = (*lengths, len(words))
        return number

    def read(self, document: Document, sentences: Sequence[str], side: str) -> None:
        """Searches the sentences of a document."""
        # The title names the subject of sentences such as "He was born in ...".
        about = self._named(document.title)
        for text in sentences:
            named = self._named(text)
            # From the subjects that are named to their pairs: most sentences name none and cost one
            # scan.
            for pair in {p for n in named | about for p in self._pairs_of.get(n, ())}:
                answers, required = self._answers[pair]
                if not named.isdisjoint(answers) and required <= named:
                    sentence = Sentence(document.date, document.id, document.title, text)
                    self._keep((pair, side), sentence)

    def _named(self, text: str) -> set[int]:
        words = _WORD.findall(text)
        names = set()
        for i, word in enumerate(words):
            for length in self._lengths.get(word, ()):
                number = self._names.get(tuple(words[i : i + length]))
                if number is not None:
                    names.add(number)
        return names

    def _keep(self, key: tuple[int, str], sentence: Sentence) -> None:
        entry = self.found.setdefault(key, Found())
        entry.count += 1
        if sentence not in entry.newest:
            # Sentences sort by date, so that the newest are last.
            bisect.insort(entry.newest, sentence)
            del entry.newest[: -self.max_sentences]

    def of(self, pair: int, side: str) -> Found:
        """The evidence for a pair on a side."""
        return self.found.get((pair, side), Found())
