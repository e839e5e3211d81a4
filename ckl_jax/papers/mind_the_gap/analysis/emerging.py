"""Emerging new words: frequent in the test documents, and rare or unseen in training (section 4.2).

A word is one if it occurs `least` times in the test documents or more, and never in the training
documents, or with at most a `factor`-th of its test probability. Words are compared as they are
written. Their mentions are distinguished by whether the document has mentioned the word before, and
whether that mention was still within the model's reach when the second was scored.
"""

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ckl_jax import checks
from ckl_jax.data.tasks.word_losses import WordLosses
from ckl_jax.errors import UserError

EMERGING, FIRST, SECOND_SEEN, SECOND_UNSEEN = (
    "emerging",
    "emerging, 1st",
    "emerging, 2nd, 1st in memory",
    "emerging, 2nd, 1st not in memory",
)


@dataclasses.dataclass(frozen=True)
class EmergingWord:
    """A word, and how often it occurs."""

    word: str
    test: int
    train: int


@dataclasses.dataclass(frozen=True)
class WordCounts:
    """Counts of the test documents' words, there and in training.

    Attributes:
      test: {word: mentions in the test documents}.
      train: {word: mentions in the training documents}, of the words of `test` alone, so that
        memory does not grow with the training set.
      test_words, train_words: all mentions of any word.
    """

    test: Mapping[str, int]
    train: Mapping[str, int]
    test_words: int
    train_words: int

    @classmethod
    def of(cls, test: Iterable[Sequence[str]], train: Iterable[Sequence[str]]) -> "WordCounts":
        """Counts the words of documents; raises `UserError` if one of the two has no words."""
        # Test documents first: training words are then counted only if they occur there.
        test_counts: collections.Counter[str] = collections.Counter()
        for words in test:
            test_counts.update(words)
        seen: collections.Counter[str] = collections.Counter()
        train_words = 0
        for words in train:
            train_words += len(words)
            seen.update(filter(test_counts.__contains__, words))
        for name, total in (("test", test_counts.total()), ("training", train_words)):
            if not total:
                raise UserError(f"The {name} documents have no words.")
        return cls(test_counts, seen, test_counts.total(), train_words)

    def emerging(self, min_count: int = 50, factor: float = 5.0) -> list[EmergingWord]:
        """The emerging new words, the most frequent first.

        Args:
          min_count: mentions in the test documents.
          factor: how many times less probable a word is in training, at least.

        Raises:
          UserError: numbers out of range.
        """
        checks.require_int(1, **{"--emerging-min-count": min_count})
        checks.require_number("a finite number, 1 or more", 1.0, **{"--emerging-factor": factor})
        new_words = [
            EmergingWord(word, n, seen)
            for word, n in self.test.items()
            # In whole numbers: n / test_words >= factor * seen / train_words.
            if n >= min_count
            and n * self.train_words >= factor * (seen := self.train.get(word, 0)) * self.test_words
        ]
        return sorted(new_words, key=lambda w: (-w.test, w.word))

    def unseen_fraction(self, words: Iterable[str]) -> float:
        """The fraction of different words that never occur in training."""
        types = set(words)
        return sum(word not in self.train for word in types) / max(len(types), 1)


class EmergingMentions:
    """The mentions of emerging words, as groups of words for `staleness`.

    Args:
      words: the emerging new words.
      memory: how many tokens before the chunk that is scored the model sees. What survives in the
        states of deeper layers from before that is not counted as seen.
    """

    names = (EMERGING, FIRST, SECOND_SEEN, SECOND_UNSEEN)

    def __init__(self, words: Iterable[str], memory: int):
        self._words, self._memory = frozenset(words), memory

    def weights(self, document: WordLosses) -> np.ndarray:
        """[4, W]; third and later mentions count among all of them alone."""
        marks = np.zeros((4, len(document.words)))
        mentions: dict[str, list[int]] = {}
        for i, word in enumerate(document.words):
            if word in self._words:
                mentions.setdefault(word, []).append(i)
        if not mentions:
            return marks
        starts = document.first_token
        for first, *later in mentions.values():
            marks[0, [first, *later]] = 1
            marks[1, first] = 1
            if later:
                # The first token that attention can see while the chunk of the second mention is
                # scored.
                reach = document.context_start[later[0]] - self._memory
                marks[2 if starts[first] >= reach else 3, later[0]] = 1
        return marks
