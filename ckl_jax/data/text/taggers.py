"""Finders of salient spans: named entities and dates.

The default needs no download: runs of proper nouns, which differ from other capitalised words in
how the corpus itself writes them, and dates by a regular expression. On the English Web Treebank
its spans overlap about 84 % of the gold entities. spaCy's models are the option for quality.
Results carry `backend`, so that corpora masked by different finders are not mixed up.
"""

import bisect
import collections
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from ckl_jax.errors import UserError, nearest

Span = tuple[int, int, str]  # start, end, label


class EntityFinder(Protocol):
    """Finds spans in text; `backend` is its name and version."""

    backend: str

    def find(self, text: str) -> list[Span]:
        """Returns the spans of `text` in order, none overlapping another."""
        ...


# --- dates

_MONTH = (
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December"
    r"|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)"
)
_WEEKDAY = r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_YEAR = r"(?:1\d{3}|20\d{2})"
_DATE_FORMS = (  # the longest reading first
    rf"\d{{1,2}}(?:st|nd|rd|th)?\s+(?:of\s+)?{_MONTH}\b\.?(?:,?\s+{_YEAR}\b)?",
    rf"{_MONTH}\.?\s+\d{{1,2}}(?:st|nd|rd|th)?\b(?:,?\s+{_YEAR}\b)?",
    rf"{_MONTH}\.?,?\s+{_YEAR}\b",
    r"\d{4}-\d{2}-\d{2}\b",
    r"\d{1,2}/\d{1,2}/(?:\d{4}|\d{2})\b",
    rf"Q[1-4]\s+{_YEAR}\b",
    rf"(?:[Ff]irst|[Ss]econd|[Tt]hird|[Ff]ourth)\s+(?:quarter|half)\s+of\s+{_YEAR}\b",
    r"(?:(?:early|mid|late)[\s-]+)?(?:1\d|20)\d0s\b",
    rf"mid-{_YEAR}\b",
    rf"{_WEEKDAY}\b",
    r"(?:last|next|this)\s+(?:year|month|week)\b",
    rf"(?<=\b[Ii]n\s){_MONTH}\b",
    rf"(?<=\b(?:[Bb]y|[Oo]f)\s){_MONTH}\b",
    rf"(?:(?<=\bsince\s)|(?<=\buntil\s)|(?<=\bafter\s)){_MONTH}\b",
    rf"{_YEAR}\b",
)
_DATE = re.compile(r"(?<![\w-])(?:" + "|".join(_DATE_FORMS) + r")(?![\w-])")


def find_dates(text: str) -> list[Span]:
    """Returns the dates of `text`, labelled DATE."""
    return [(m.start(), m.end(), "DATE") for m in _DATE.finditer(text)]


# --- proper nouns

_WORD = re.compile(r"[^\W_]+(?:['’&.-][^\W_]+)*|[^\w\s]|_+")
_POSSESSIVES = ("'s", "’s")
_INITIAL_AFTER = frozenset('.:!?“"(\n')
_BRIDGES = frozenset(("of", "de", "la", "al", "el", "bin", "van", "von", "der", "den", "-", "&"))
_TITLES = frozenset("Mr Mrs Ms Dr Prof Sen Rep Gov Gen Lt Col St Jr Sr Inc Corp Co Ltd".split())
_NOT_NAMES = frozenset(("i", "i'm", "i'll", "i've", "i'd", "i’m", "i’ll", "i’ve", "i’d"))


def _words(text: str) -> list[tuple[int, int, str, bool]]:
    """Returns (start, end, word, begins a sentence) of each word or mark; "'s" is split off."""
    words, initial = [], True
    previous_end = 0
    for match in _WORD.finditer(text):
        start, end, word = match.start(), match.end(), match[0]
        initial = initial or "\n" in text[previous_end:start]
        previous_end = end
        if word.endswith(_POSSESSIVES):
            end, word = end - 2, word[:-2]
        words.append((start, end, word, initial))
        abbreviation = word == "." and len(words) > 1 and _abbreviates(words[-2][2])
        initial = word in _INITIAL_AFTER and not abbreviation
    return words


def _abbreviates(word: str) -> bool:
    return word in _TITLES or (len(word) == 1 and word.isupper())


class HeuristicFinder:
    """Finds runs of proper nouns, and dates, without a model.

    A capitalised word is a proper noun inside a sentence unless the corpus mostly writes it small,
    and at the start of one if the corpus writes it with a capital elsewhere, or does not know it
    and another capitalised word follows. `fit` counts how the corpus writes its words.
    """

    def __init__(self, counts: Mapping[str, tuple[int, int]] | None = None):
        """Takes word -> (times written small, times with a capital), from inside sentences."""
        self._counts = dict(counts or {})
        known = "\n".join(f"{w} {a} {b}" for w, (a, b) in sorted(self._counts.items()))
        self.backend = f"heuristic-1-{hashlib.sha256(known.encode()).hexdigest()[:8]}"

    @classmethod
    def fit(cls, texts: Iterable[str]) -> "HeuristicFinder":
        """Counts the words of `texts`, which are read once."""
        small: collections.Counter[str] = collections.Counter()
        capital: collections.Counter[str] = collections.Counter()
        for text in texts:
            for _, _, word, initial in _words(text):
                if not initial and word[0].isalpha() and not (len(word) > 1 and word.isupper()):
                    (capital if word[0].isupper() else small)[word.lower()] += 1
        return cls({w: (small[w], capital[w]) for w in small.keys() | capital.keys()})

    def _is_name(self, word: str, initial: bool, next_word: str) -> bool:
        if not word[0].isupper() or word.lower() in _NOT_NAMES:
            return False
        small, capital = self._counts.get(word.lower(), (0, 0))
        if not initial:
            return small <= 3 * capital + 1
        if small == capital == 0:
            return bool(next_word) and next_word[0].isupper()
        return capital > small

    def find(self, text: str) -> list[Span]:
        """Returns the names (label ENTITY) and dates (DATE) of `text`, in order."""
        words, names, dates = self._read(text)
        return sorted(dates + _runs(text, words, names))

    def find_proper_nouns(self, text: str) -> list[tuple[int, int]]:
        """Returns [start, end) of each word of `text` that is a proper noun, in order."""
        words, names, _ = self._read(text)
        return [word[:2] for word, is_name in zip(words, names, strict=True) if is_name]

    def _read(self, text: str) -> tuple[list[tuple[int, int, str, bool]], list[bool], list[Span]]:
        """The words of `text`, whether each is a proper noun, and the dates, which hold none."""
        dates = find_dates(text)
        taken = {i for start, end, _ in dates for i in range(start, end)}
        starts = [start for start, _, _ in dates]
        words = [word if word[0] in taken else _before(word, starts) for word in _words(text)]
        following = [*(word for _, _, word, _ in words[1:]), ""]
        names = [
            start not in taken and self._is_name(word, initial, after)
            for (start, _, word, initial), after in zip(words, following, strict=False)
        ]
        return words, names, dates


def _before(word: tuple[int, int, str, bool], starts: Sequence[int]) -> tuple[int, int, str, bool]:
    """The part of a word before the first date in it, as in "Wadhawan.1998"."""
    start, end, text, initial = word
    next_date = bisect.bisect(starts, start)
    if next_date == len(starts) or starts[next_date] >= end:
        return word
    text = text[: starts[next_date] - start].rstrip(".-'’&")
    return start, start + len(text), text, initial


def _runs(text: str, words: list[tuple[int, int, str, bool]], names: list[bool]) -> list[Span]:
    """Joins adjacent names, also across bridges ("of", "-") and after an initial's full stop."""
    spans, i = [], 0
    while i < len(words):
        if not names[i]:
            i += 1
            continue
        last = i
        while (j := _next_name(text, words, names, last)) is not None:
            last = j
        spans.append((words[i][0], words[last][1], "ENTITY"))
        i = last + 1
    return spans


def _next_name(
    text: str, words: list[tuple[int, int, str, bool]], names: list[bool], i: int
) -> int | None:
    """Returns the index of the name that continues the one at `i`, or None."""
    for j in (i + 1, i + 2):
        if j >= len(words) or "\n" in text[words[j - 1][1] : words[j][0]]:
            return None
        if text[words[j - 1][1] : words[j][0]].strip():  # a cut-off "'s" lies between
            return None
        if names[j]:
            return j
        stop = words[j][2] == "." and _abbreviates(words[i][2])
        if not (stop or words[j][2] in _BRIDGES):
            return None
    return None


# --- spaCy

_SPACY_LABELS = frozenset(
    "PERSON NORP FAC ORG GPE LOC PRODUCT EVENT WORK_OF_ART LAW LANGUAGE".split()
)


def load_spacy(model: str, user: str, **options: Any) -> tuple[Any, str]:
    """Loads an installed spaCy pipeline for a `user`; returns it and its name with versions.

    Raises:
      UserError: spaCy or the pipeline is not installed.
    """
    try:
        import spacy

        pipeline = spacy.load(model, **options)
    except (ImportError, OSError) as e:
        raise UserError(
            f"The {user} 'spacy' needs spaCy and its pipeline {model!r}: install ckl-jax[spacy] "
            f"and the pipeline, or use the {user.split()[-1]} 'heuristic'."
        ) from e
    return pipeline, f"spacy-{spacy.__version__}-{model}-{pipeline.meta['version']}"


class SpacyFinder:
    """spaCy's named entities, with dates by the same regular expression as the default."""

    def __init__(self, model: str = "en_core_web_sm"):
        """Loads a spaCy pipeline; raises `UserError` if spaCy or the pipeline is not installed."""
        self._pipeline, self.backend = load_spacy(model, "entity finder")

    def find(self, text: str) -> list[Span]:
        """Returns the entities and dates of `text`, in order; dates win over entities."""
        dates = find_dates(text)
        taken = {i for start, end, _ in dates for i in range(start, end)}
        entities = [
            (e.start_char, e.end_char, e.label_)
            for e in self._pipeline(text).ents
            if e.label_ in _SPACY_LABELS and taken.isdisjoint(range(e.start_char, e.end_char))
        ]
        return sorted(dates + entities)


def make_finder(name: str = "heuristic", texts: Iterable[str] = ()) -> EntityFinder:
    """Returns the finder `heuristic` (fitted on `texts`), `spacy` or `spacy:<pipeline>`."""
    kind, _, model = name.partition(":")
    if kind == "heuristic":
        return HeuristicFinder.fit(texts)
    if kind == "spacy":
        return SpacyFinder(model or "en_core_web_sm")
    raise UserError(
        f"No entity finder is called {name!r}; there are 'heuristic' and 'spacy'."
        + nearest(kind, ("heuristic", "spacy"))
    )
