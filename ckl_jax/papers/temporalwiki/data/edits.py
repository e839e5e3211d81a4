"""What an editor did to the sentences that are new: added them, or edited old ones, and where.

Most new sentences of Wikipedia are old ones with some words changed. Of those, a few say something
new: those with a number or a name that the old sentence lacks.
"""

import calendar
import collections
import decimal
import difflib
import functools
import itertools
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from ckl_jax.data.text.sentences import CURRENCIES, marks_of
from ckl_jax.data.text.taggers import HeuristicFinder
from ckl_jax.papers.temporalwiki.data.measures import UNITS_BY_NAME

ADDED, REWORDED, NUMBER, NAME = "added", "reworded", "number", "name"
_SAYS_NEW = (ADDED, NUMBER, NAME)
_MIN_ALIKE = 0.5  # fraction of the words that an edited sentence shares with the old one
_CANDIDATES = 4  # old sentences with most rare words in common, which are compared word by word
_MAX_POSTINGS = 64  # a word of more old sentences is not rare
_CLAUSE = 5  # words in a row, that the old sentence lacks
_KNOWN_WORDS = 1 << 16  # whose plain forms are kept
_MAX_WORDS = 300  # compared word by word, between what is alike at both ends
_FACTORS = {"hundred": 10**2, "thousand": 10**3, "lakh": 10**5, "million": 10**6}
_FACTORS |= {"crore": 10**7, "billion": 10**9, "trillion": 10**12}
_SCALES = "|".join(_FACTORS)
_NUMBER = re.compile(rf"(?<![\w.])(0?\.\d+|[1-9]\d{{0,19}}(?:\.\d+)?)({_SCALES})?$")
_BLANKS = "\u00a0\u2009\u202f"  # between the digits of a number
_THOUSANDS = re.compile(rf"(?<=\d)[,{_BLANKS}](?=\d{{3}}(?!\d))")
_PERCENT = re.compile("per ?cent$")
_SPELT = (
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"  # "one" is often none
)
_DIGITS = {word: str(n) for n, word in enumerate(_SPELT.split(), 2)}
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_DIGITS |= {word: str(10 * n) for n, word in enumerate(_TENS, 2)}
_DIGITS |= {f"{word}%": f"{digits}%" for word, digits in (*_DIGITS.items(), ("one", "1"))}
_NUMBERS = frozenset(
    "hundred thousand million billion trillion dozen dozens hundreds thousands millions "
    "billions".split()
)
_ORDINALS = frozenset(
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth "
    "fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth thirtieth "
    "fortieth fiftieth hundredth last half quarter once twice".split()
)
_MONEY = frozenset(
    "dollar dollars euro euros pound pounds yen franc francs rupee rupees pence cents "
    "rouble roubles ruble rubles krona kronor krone kroner peso pesos lira yuan usd eur gbp chf "
    "jpy cny inr".split()
)
_TIMES = {n: unit for unit in "hour minute day week month year".split() for n in (unit, f"{unit}s")}
_NO_UNITS = frozenset(  # more often than units
    "bar bars chain chains foot grain grains hand hands in league leagues rod rods stone".split()
)
_UNITS = {name: unit for name, unit in UNITS_BY_NAME.items() if name not in _NO_UNITS} | _TIMES
_UNITS |= {"am": "am", "a.m": "am", "pm": "pm", "p.m": "pm"}
_MORE_UNITS = {  # that {{convert}} does not have
    "minute": "min mins",
    "hour": "h hr hrs",
    "second": "s sec secs seconds",
    "millisecond": "ms millisecond milliseconds",
    "microsecond": "μs microsecond microseconds",
    "microgram": "mcg",
    "microlitre": "μl",
    "litre": "litre litres liter liters",
    "gallon": "gallon gallons",
    "square kilometre": "km²",
    "square metre": "m²",
    "byte": "byte bytes",
    "kilobyte": "kb kilobyte kilobytes",
    "megabyte": "mb megabyte megabytes",
    "gigabyte": "gb gigabyte gigabytes",
    "terabyte": "tb terabyte terabytes",
}
_UNITS |= {name: unit for unit, names in _MORE_UNITS.items() for name in names.split()}
_UNITS |= {name.replace("μ", "\u00b5"): unit for name, unit in _UNITS.items()}  # of keyboards
_SHORT = 4  # letters of a unit that is one behind a number only, as "m" is
_BYTES = "pb kib mib gib tib kbps mbps gbps".split()
# Units that may be written without a blank; st and rd are ordinals'.
_ATTACHED = "|".join(
    unit
    for unit in (*_UNITS, *_BYTES)
    if unit.isalpha() and 1 < len(unit) <= _SHORT and unit not in ("st", "rd")
)
_WORDS_TOO = frozenset(("March", "May"))
_OPENERS = frozenset(  # words that begin sentences and are no names
    "a about according after again all also although among an and another any around as at "
    "because before besides between both but by despite during each either even every few for "
    "from had has have he her here his how however i if in instead into is it its later like many "
    "may more most much neither never no nor not nothing now of off often on once one only or "
    "other our over perhaps she since so some soon still such than that the their them then there "
    "these they this those though through throughout thus to today together under unlike until "
    "upon was we were what when where whether which while who why will with within without yet "
    "you your".split()
)
_NO_NAME_END = ("ed", "ing", "ly")
_PAST = frozenset(  # may follow one as well as many
    "became began came could did got had held led left made might ran said sat saw took went will "
    "won would wrote".split()
)
_DATES = frozenset((*calendar.month_name[1:], *calendar.day_name))
Span = tuple[int, int]


@functools.cache
def _word(marks: str) -> re.Pattern:
    """Words and numbers of text, in which marks are parts of words."""
    letter = rf"[\w{marks}]" if marks else r"\w"
    return re.compile(
        # A number with what changes it: "-5", "US$5 million", "< 5", "5 %"; a word, also "C++"; a
        # sign.
        rf"(?:[<>≤≥±] ?|(?<![\w)])(?<!\d )[-−–+])?(?:(?<!\w)[A-Z]{{0,3}}[{CURRENCIES}] ?)?"
        rf"(?:(?<![\w.])\.)?(?:(?<!\d)\d{{1,3}}(?:[{_BLANKS}]\d{{3}})+(?:[.,]\d+)?(?!\w)"
        rf"|\d+(?:[.,]\d+)*(?=(?i:{_ATTACHED})\b)|\d{letter}*(?:['’.,]{letter}+)*)"
        rf"(?: (?:{_SCALES})\b)?(?: ?(?:[%‰{CURRENCIES}]|°[CFK]?|per ?cent\b)|[′″])?"
        rf"|\b(?i:one|{'|'.join(filter(str.isalpha, _DIGITS))}) per ?cent\b"
        rf"|{letter}+(?:['’.,]{letter}+)*(?:\+\+|#)?|[^\w\s]"
    )


def _word_in(text: str) -> re.Pattern:
    return _word(marks_of(text))


class Edit(NamedTuple):
    """A new sentence.

    Attributes:
      kind: `NUMBER`: like an old sentence, with a number (sign and currency included) or a
        day or month that it lacks, another ordinal or unit in place of one, or its numbers in
        other places; `NAME`: with such a name but no such number; `ADDED`: like none, or with
        neither but a clause of `_CLAUSE` words that it lacks; `REWORDED`: all others.
      start, end: of the sentence, in characters of its record's text.
      spans: [start, end) of what the old sentence lacks, likewise; all if there is no old one.
    """

    kind: str
    start: int
    end: int
    spans: tuple[Span, ...]


class OldSentences:
    """The sentences of an old version that the new one lacks, to be compared with new ones."""

    def __init__(self, old: Sequence[str], new: Sequence[str], page: Sequence[str] = ()):
        """Takes sentences of both versions, and paragraphs that show how the page writes names."""
        self._sentences, self._page = (*old, *new), page
        self._words = [_lower(_word_in(sentence).findall(sentence)) for sentence in old]
        self._counts = [_count(words) for words in self._words]
        self._postings: dict[str, list[int]] = collections.defaultdict(list)
        for i, words in enumerate(self._words):
            for word in dict.fromkeys(words):
                self._postings[word].append(i)

    def edit(self, sentence: str, start: int) -> Edit:
        """Classifies a new sentence that begins at `start` of its record's text."""
        matches = list(_word_in(sentence).finditer(sentence))
        words = _lower(match[0] for match in matches)
        end, old = start + len(sentence), self._closest(words)
        if old is None:
            return Edit(ADDED, start, end, ((start, end),))
        swapped, known = _swapped(old, words), set(old)
        changed = swapped or list(_changed(old, words))
        of_words = self._kind(sentence, [match[0] for match in matches], old)
        kind = NUMBER if swapped else of_words
        clauses = ([w for w in words[a:b] if w.isalnum() and w not in known] for a, b in changed)
        if kind == REWORDED and any(len(clause) >= _CLAUSE for clause in clauses):
            kind = ADDED
        spans = [(start + matches[a].start(), start + matches[b - 1].end()) for a, b in changed]
        return Edit(kind, start, end, tuple(spans))

    @functools.cached_property
    def _names(self) -> HeuristicFinder:
        return HeuristicFinder.fit(self._sentences)

    @functools.cached_property
    def _text(self) -> str:
        return "\n".join(self._page)

    def _closest(self, words: list[str]) -> list[str] | None:
        """The words of the old sentence that shares most, None if it shares too few."""
        postings = (self._postings.get(word, ()) for word in dict.fromkeys(words))
        rare = (places for places in postings if len(places) <= _MAX_POSTINGS)
        shared = collections.Counter(itertools.chain.from_iterable(rare))
        least = min(sorted(shared.values())[-_CANDIDATES:], default=0)
        best = sorted((-count, i) for i, count in shared.items() if count >= least)[:_CANDIDATES]
        counts = _count(words)
        alike = [(_dice(counts, self._counts[i]), -i) for _, i in best]
        fraction, place = max(alike, default=(0.0, 0))
        return self._words[-place] if fraction >= _MIN_ALIKE else None

    def _kind(self, sentence: str, words: list[str], old: list[str]) -> str:
        plain, known = _lower(words), {*old, *_ones(old)}
        # {word that the old sentence lacks: its place}
        new = {w: n for n, w in enumerate(plain) if w not in known}
        # The first word of a sentence is capitalised anyway.
        dates = (words[n] for n in new.values() if not (n == 0 and words[n] in _WORDS_TOO))
        if any(map(_is_number, new)) or not _DATES.isdisjoint(dates):
            return NUMBER
        if any(_has_another(find, old, plain) for find in (_ORDINALS.intersection, _units, _ones)):
            return NUMBER
        written = [words[n] for n in new.values()]
        if not any(word[0].isupper() or _is_odd(word) for word in written):
            return REWORDED
        is_name = any(map(_is_odd, written)) or self._has_name(sentence, words, old, plain)
        return NAME if is_name or _is_first(words, new.get("i", 0)) else REWORDED

    def _has_name(self, sentence: str, words: list[str], old: list[str], plain: list[str]) -> bool:
        """Whether the old sentence lacks a word of a name."""
        opener = len(words[0]) if plain[0] in _OPENERS else 0
        found = self._names.find_proper_nouns(sentence)
        names = (sentence[a:b] for a, b in found if a >= opener)
        parts = (part for name in names for part in _lower(_word_in(name).findall(name)))
        return any(part not in old for part in parts) or self._begins_with_name(words, old, plain)

    def _begins_with_name(self, words: list[str], old: list[str], new: list[str]) -> bool:
        """Whether a sentence begins with a name that the old one lacks: as the page writes that
        word elsewhere or, if it does not, by its form and the place that it takes."""
        word = words[0]
        if not (word[0].isupper() and word.isalpha()) or new[0] in old or new[0] in _OPENERS:
            return False
        # `re` looks for a literal beginning first, which is much faster.
        forms = (rf"{new[0]}(?<!\w{new[0]})\b", rf"{word}(?<=[\w,;] {word})\b")
        small, capital = (len(re.findall(form, self._text)) for form in forms)
        if small or capital:
            return capital > small
        takes_place = old[1:2] == new[1:2] and old[0] not in (*new, *_OPENERS)
        # "Scholars say" is of many, "Jones says" of one.
        of_one = "".join(new[1:2]).endswith(("s", "ed")) or not _PAST.isdisjoint(new[1:2])
        endings = _NO_NAME_END if of_one else (*_NO_NAME_END, "s")
        return takes_place and not any(w.endswith(endings) for w in (old[0], new[0]))


def _has_another(
    find: Callable[[Sequence[str]], Collection[str]], old: Sequence[str], new: Sequence[str]
) -> bool:
    """Whether what `find` finds (ordinals, units, numbers) is in place of another."""
    before, after = set(find(old)), set(find(new))
    return bool(before - after) and bool(after - before)


def _units(words: Sequence[str]) -> set[str]:
    """The units; km and kilometres are one."""
    return {
        _UNITS[word]
        for before, word in itertools.pairwise(("", *words))
        if word in _UNITS and (len(word) > _SHORT or word in _TIMES or _is_number(before))
    }


def _ones(words: Sequence[str]) -> list[str]:
    """The numbers; "one" is no number but in place of another, and is 1."""
    return ["1" if word == "one" else word for word in words if word == "one" or _is_number(word)]


def _is_first(words: Sequence[str], place: int) -> bool:
    """Whether a word is the numeral of a name, as of World War I, and no pronoun."""
    if not place or words[place] != "I" or not words[place - 1][0].isupper():
        return False
    return words[place - 1].lower() not in _OPENERS


def _is_odd(word: str) -> bool:
    """Whether a word looks like a name: C++, F#, iPhone."""
    return word[0].isalpha() and (word[-1] in "+#" or word[0].islower() != word.islower())


def says_something_new(edit: Edit) -> bool:
    """Whether a sentence was added or has a new number or name."""
    return edit.kind in _SAYS_NEW


def _lower(words: Iterable[str]) -> list[str]:
    return [_plain(word) for word in words]


@functools.lru_cache(maxsize=_KNOWN_WORDS)
def _plain(word: str) -> str:
    word = _THOUSANDS.sub("", word).lower().replace("’", "'")
    word = word.replace("−", "-").replace("–", "-").replace(" ", "")
    word = _PERCENT.sub("%", word).replace("us$", "$").removesuffix("'s")
    word = _DIGITS.get(word, word)
    return _NUMBER.sub(_value, word) if word[-1:].isalnum() and not word.isalpha() else word


def _value(number: re.Match) -> str:
    """5, 0.5, 2 million: the same digits, however they are written."""
    return f"{(decimal.Decimal(number[1]) * _FACTORS.get(number[2], 1)).normalize():f}"


@functools.lru_cache(maxsize=_KNOWN_WORDS)
def _is_number(word: str) -> bool:
    return any(c.isnumeric() for c in word) or word in _NUMBERS or word in _MONEY


def _count(words: Sequence[str]) -> tuple[collections.Counter[str], int]:
    """The words without punctuation, and how many they are."""
    counts = collections.Counter(
        [word for word in words if word[0].isalnum() or any(map(str.isalnum, word))]
    )
    return counts, counts.total()


def _dice(new: tuple, old: tuple) -> float:
    (counts, size), (old_counts, old_size) = new, old
    shared = sum(min(counts[word], old_counts[word]) for word in counts.keys() & old_counts.keys())
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
