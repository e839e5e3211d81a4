"""What an editor did to the sentences that are new: added them, or edited old ones, and where.

Most new sentences of Wikipedia are old ones with some words changed. Of those, a few say something
new: those with a number or a name that the old sentence lacks.
"""

import calendar
import collections
import difflib
import heapq
import os
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from ckl_jax.data.text.sentences import CURRENCIES, NUMBER_WORDS
from ckl_jax.data.text.taggers import HeuristicFinder
from ckl_jax.papers.temporalwiki.data.measures import UNITS_BY_NAME

ADDED, REWORDED, NUMBER, NAME = "added", "reworded", "number", "name"
_SAYS_NEW = (ADDED, NUMBER, NAME)
_MIN_ALIKE = 0.5  # fraction of the words that an edited sentence shares with the old one
_CANDIDATES = 4  # old sentences with most rare words in common, which are compared word by word
_MAX_POSTINGS = 64  # a word of more old sentences is not rare
_CLAUSE = 5  # words in a row, that the old sentence lacks
_MAX_WORDS = 300  # compared word by word, between what is alike at both ends
_WORD = re.compile(
    # A number with what changes it: "-5", "US$5", "< 5", "5 %"; a word, also "C++"; a sign.
    rf"(?:[<>≤≥±] ?|(?<![\w)])(?<!\d )[-−–+])?(?:(?<!\w)[A-Z]{{0,3}}[{CURRENCIES}] ?)?"
    rf"(?:(?<![\w.])\.)?\d\w*(?:['’.,]\w+)*(?: ?(?:[%‰{CURRENCIES}]|°[CFK]?|per ?cent\b)|[′″])?"
    r"|\w+(?:['’.,]\w+)*(?:\+\+|#)?|[^\w\s]"
)
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_PERCENT = re.compile("per ?cent$")
_NUMBERS = frozenset(NUMBER_WORDS).union(
    "thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty "
    "sixty seventy eighty ninety dozen trillion dozens hundreds thousands millions billions".split()
)
_ORDINALS = frozenset(
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth "
    "fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth thirtieth "
    "fortieth fiftieth hundredth last half quarter".split()
)
_MONEY = frozenset(
    "dollar dollars euro euros pound pounds yen franc francs rupee rupees pence cents "
    "rouble roubles ruble rubles krona kronor krone kroner peso pesos lira yuan usd eur gbp chf "
    "jpy cny inr".split()
)
_UNITS = UNITS_BY_NAME | {
    name: unit for unit in "hour minute day week month year".split() for name in (unit, f"{unit}s")
}
_WORDS_TOO = frozenset(("March", "May"))
_DATES = frozenset((*calendar.month_name[1:], *calendar.day_name))
Span = tuple[int, int]


class Edit(NamedTuple):
    """A new sentence.

    Attributes:
      kind: `NUMBER`: like an old sentence, with a number (sign and currency included) or a
        day or month that it lacks, another ordinal or unit in place of one, or its numbers in
        other places; `NAME`:
        with such a name but no such number; `ADDED`: like none, or with neither but a clause of
        `_CLAUSE` words that it lacks; `REWORDED`: all others.
      start, end: of the sentence, in characters of its record's text.
      spans: [start, end) of what the old sentence lacks, likewise; all if there is no old one.
    """

    kind: str
    start: int
    end: int
    spans: tuple[Span, ...]


class OldSentences:
    """The sentences of an old version that the new one lacks, to be compared with new ones."""

    def __init__(self, old: Sequence[str], new: Sequence[str]):
        self._names = HeuristicFinder.fit((*old, *new))
        self._words = [_lower(_WORD.findall(sentence)) for sentence in old]
        self._counts = [_count(words) for words in self._words]
        self._postings: dict[str, list[int]] = collections.defaultdict(list)
        for i, words in enumerate(self._words):
            for word in dict.fromkeys(words):
                self._postings[word].append(i)

    def edit(self, sentence: str, start: int) -> Edit:
        """Classifies a new sentence that begins at `start` of its record's text."""
        matches = list(_WORD.finditer(sentence))
        words = _lower(match[0] for match in matches)
        end, old = start + len(sentence), self._closest(words)
        if old is None:
            return Edit(ADDED, start, end, ((start, end),))
        swapped, known = _swapped(old, words), set(old)
        changed = swapped or list(_changed(old, words))
        of_words = self._kind(sentence, [match[0] for match in matches], known)
        kind = NUMBER if swapped else of_words
        clauses = ([w for w in words[a:b] if w.isalnum() and w not in known] for a, b in changed)
        if kind == REWORDED and any(len(clause) >= _CLAUSE for clause in clauses):
            kind = ADDED
        spans = [(start + matches[a].start(), start + matches[b - 1].end()) for a, b in changed]
        return Edit(kind, start, end, tuple(spans))

    def _closest(self, words: list[str]) -> list[str] | None:
        """The words of the old sentence that shares most, None if it shares too few."""
        shared: collections.Counter[int] = collections.Counter()
        for word in dict.fromkeys(words):
            postings = self._postings.get(word, ())
            if len(postings) <= _MAX_POSTINGS:
                shared.update(postings)
        best = heapq.nlargest(_CANDIDATES, shared, key=lambda i: (shared[i], -i))
        counts = _count(words)
        alike = [(_dice(counts, self._counts[i]), -i) for i in best]
        fraction, place = max(alike, default=(0.0, 0))
        return self._words[-place] if fraction >= _MIN_ALIKE else None

    def _kind(self, sentence: str, words: list[str], known: set[str]) -> str:
        # {word that the old sentence lacks: as it is written, and whether it begins the sentence}
        new = {w: (words[n], n == 0) for n, w in enumerate(_lower(words)) if w not in known}
        # The first word of a sentence is capitalised anyway.
        dates = (word for word, first in new.values() if not (first and word in _WORDS_TOO))
        if any(map(_is_number, new)) or not _DATES.isdisjoint(dates):
            return NUMBER
        if _has_another(new, known.difference(_lower(words))):
            return NUMBER
        names = (sentence[a:b] for a, b in self._names.find_proper_nouns(sentence))
        parts = (part for name in names for part in _lower(_WORD.findall(name)))
        is_name = any(part in new for part in parts)
        return NAME if is_name or any(w[0].isalpha() and w[-1] in "+#" for w in new) else REWORDED


def _has_another(new: Collection[str], lost: Collection[str]) -> bool:
    """Whether an ordinal or a unit is in place of another; km and kilometres are one."""
    ordinals = [_ORDINALS.intersection(words) for words in (new, lost)]
    units = [{_UNITS[word] for word in words if word in _UNITS} for words in (new, lost)]
    return all(ordinals) or (all(units) and units[0] != units[1])


def says_something_new(edit: Edit) -> bool:
    """Whether a sentence was added or has a new number or name."""
    return edit.kind in _SAYS_NEW


def _lower(words) -> list[str]:
    words = (_THOUSANDS.sub("", word).lower().replace("’", "'") for word in words)
    plain = (word.replace("−", "-").replace("–", "-").replace(" ", "") for word in words)
    return [_PERCENT.sub("%", word).replace("us$", "$").removesuffix("'s") for word in plain]


def _is_number(word: str) -> bool:
    return any(c.isnumeric() for c in word) or word in _NUMBERS or word in _MONEY


def _count(words: Sequence[str]) -> tuple[collections.Counter[str], int]:
    """The words without punctuation, and how many they are."""
    counts = collections.Counter(word for word in words if any(map(str.isalnum, word)))
    return counts, counts.total()


def _dice(new: tuple, old: tuple) -> float:
    (counts, size), (old_counts, old_size) = new, old
    # Over the new sentence's words alone: an old one may be as long as a list.
    shared = sum(min(count, old_counts[word]) for word, count in counts.items())
    return 2 * shared / max(1, size + old_size)


def _swapped(old: Sequence[str], new: Sequence[str]) -> list[Span]:
    """What differs, where numbers took each other's places ("52-48", "48-52") and no word moved."""
    numbers = [[word for word in words if _is_number(word)] for words in (old, new)]
    if numbers[0] == numbers[1] or sorted(numbers[0]) != sorted(numbers[1]):
        return []
    if max(len(old), len(new)) > _MAX_WORDS:
        return []
    masked = [["0" if _is_number(word) else word for word in words] for words in (old, new)]
    spans: list[Span] = []
    gone, come = set(), set()
    for tag, a, b, c, d in difflib.SequenceMatcher(None, *masked, autojunk=False).get_opcodes():
        if tag == "equal":
            pairs = zip(old[a:b], range(c, d), strict=True)
            spans += [(n, n + 1) for word, n in pairs if word != new[n]]
        else:
            gone.update(masked[0][a:b])
            come.update(masked[1][c:d])
            spans += [(c, d)] * (d > c)
    return spans if gone.isdisjoint(come) else []


def _changed(old: Sequence[str], new: Sequence[str]) -> Iterator[Span]:
    """Yields [start, end) of the words of `new` that `old` lacks, in order."""
    first = len(os.path.commonprefix([old, new]))
    last = len(os.path.commonprefix([old[first:][::-1], new[first:][::-1]]))
    old, end = old[first : len(old) - last], len(new) - last
    if max(len(old), end - first) > _MAX_WORDS:
        yield first, end
        return
    matcher = difflib.SequenceMatcher(None, old, new[first:end], autojunk=False)
    for tag, _, _, a, b in matcher.get_opcodes():
        if tag in ("insert", "replace"):
            yield first + a, first + b
