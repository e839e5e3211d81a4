"""Emerging new words: frequent in the test documents, and rare or unseen in training (section 4.2).

A word is one if it occurs `least` times in the test documents or more, and never in the training
documents, or with at most a `factor`-th of its test probability. Words are compared as they are
written. Their mentions are told apart by whether the document has mentioned the word before, and
whether that mention was still within the model's reach when the second was scored.
"""

import collections
import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from ckl_jax import checks
from ckl_jax.data.word_losses import WordLosses
from ckl_jax.errors import UserError

EMERGING, FIRST, SECOND_SEEN, SECOND_UNSEEN = (
    "emerging", "emerging, 1st", "emerging, 2nd, 1st in memory", "emerging, 2nd, 1st not in memory"
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class EmergingWord:
    """A word, and how often it occurs."""

    word: str
    test: int
    train: int


def find_emerging(
    test: Iterable[Sequence[str]],
    train: Iterable[Sequence[str]],
    least: int = 50,
    factor: float = 5.0,
) -> list[EmergingWord]:
    """The emerging new words, the most frequent first.

    Of the training documents only the words that are frequent in the test documents are counted, so
    that memory does not grow with the training set.

    Args:
      test, train: the words of each document; read once each.
      least: mentions in the test documents.
      factor: how many times less probable a word is in training, at least.

    Raises:
      UserError: no words in one of the two, or numbers out of range.
    """
    checks.require_int(1, **{"--emerging-least": least})
    checks.require_number("a finite number, 1 or more", 1.0, **{"--emerging-factor": factor})
    counts: collections.Counter[str] = collections.Counter()
    for words in test:
        counts.update(words)
    test_words = counts.total()
    counts = collections.Counter({w: n for w, n in counts.items() if n >= least})
    seen: collections.Counter[str] = collections.Counter()
    train_words = 0
    for words in train:
        train_words += len(words)
        seen.update(filter(counts.__contains__, words))
    for name, total in (("test", test_words), ("training", train_words)):
        if not total:
            raise UserError(f"The {name} documents have no words.")
    return [
        EmergingWord(word, n, seen[word])
        for word, n in counts.most_common()
        # In whole numbers: n / test_words >= factor * seen / train_words.
        if n * train_words >= factor * seen[word] * test_words
    ]


class EmergingMentions:
    """The mentions of emerging words, as groups of `analysis.drift`.

    Args:
      words: the emerging new words.
      memory: how many pieces before the chunk that is scored the model sees. What survives in the
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
        starts = document.first_piece
        for first, *later in mentions.values():
            marks[0, [first, *later]] = 1
            marks[1, first] = 1
            if later:
                reach = document.context_start[later[0]] - self._memory
                marks[2 if starts[first] >= reach else 3, later[0]] = 1
        return marks
