"""Sentences of text by the names in them, and the wordings in which they state a fact."""

import collections
import dataclasses
import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence, Set

from ckl_jax.data.text.documents import Document
from ckl_jax.data.text.sentences import normalise, without_markdown
from ckl_jax.data.text.spans import CAPITALS, has_sentinel, split_sentences
from ckl_jax.updates.names import NameFinder

_WORDS = (5, 60)  # of a sentence
_NAMES = 8  # in a sentence: one with more is a list
_SEVERAL = 0.05  # of names with several answers at a time: less is taken for chance
_READ = 1000  # sentences of a wording that say what it states
_AGREE = 3  # names of which two wordings of a relation state the same
COMMON = 100  # sentences: a name in more of them says little
_WORD = re.compile(r"\w+")
YEAR = re.compile(r"\d{4}")
_WHOLE = re.compile(rf"^[\"'(\u201c]?[{CAPITALS}0-9].*[.!?][\"')\u201d]*$", re.DOTALL)
# A sentence that sends its reader elsewhere states no fact.
_REFERS = re.compile(
    r"(?:^|[,(;:\u2013\u2014] ?| - )(?:please )?(?:also )?(?:see(?!['\u2019]| of\b)|refer to)\b"
    r"|\b(?:the|these)(?: following)? (?:instructions|steps) (?:in|at)\b",
    re.IGNORECASE,
)
# Of what is not so, or is so no longer.
_DENIES = re.compile(
    r"\b(?:not|never|no (?:longer|more|one)|nobody|none|neither|nor|cannot|\w+n['\u2019]t|without"
    r"|former|formerly|previous|previously|used to|ex-\w+|outgoing|until|left|quits?|gave up"
    r"|stopped|ceased|discontinued|resigned|retired|dismissed|withdrawn|shut|for good|any ?more"
    r"|(?:stepped|closed) down|closed (?:its|their))\b",
    re.IGNORECASE,
)
# Of an answer that gives way to another, where both and what they are of are named.
_REPLACES = re.compile(
    r"\b(?:replac(?:e[sd]?|ing|ement)|succe(?:eds?|eded|eding|ssor)|predecessor|instead of"
    r"|in place of|t(?:akes?|ook|aken|aking) over|hand(?:s|ed|ing)?\b.* over"
    r"|(?:went|goes|pass(?:es|ed)|mov(?:es|ed)|switch(?:es|ed)|chang(?:es|ed)) (?:\w+ )*from)\b",
    re.IGNORECASE,
)
# "News:", "[Update]", "Anna Brel [9:32 AM]" or a sign before a sentence.
_LABEL = re.compile(
    r"(?P<label>[^\w\s\"'(\u201c|]{1,3}|(?=.{1,60}\s)(?:[^\s|]+\s+){0,7}?(?:[^\s|]*[\]:]|[-\u2013\u2014]))"
    rf"\s+(?=[\"'(\u201c]?[{CAPITALS}0-9])"
)
_LABELS = 200  # looked for, the most frequent ones
_LABELLED = 3  # sentences that make words a label
_NUMBER = re.compile(r"\d+")
_EMPTY_WORDS = frozenset(
    "a an the of in on at by to for from with and or as is was are were be been has have had it "
    "its his her their this that which who whom also new".split()
)


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A sentence with two names or more.

    Attributes:
      words: in lower case.
      spans: (start, end, key) of its names and dates, in characters; a key is `normalise`d.
      is_date: the keys that are dates.
      document, date: of the document, its id and YYYY-MM-DD.
      is_read: whether models train on the document; they do not on what is held back.
      denies: whether it may say that something is not so, or no longer, or of what came in its
        place: then it states no fact.
    """

    text: str
    words: frozenset[str]
    spans: tuple[tuple[int, int, str], ...]
    is_date: frozenset[str]
    document: str
    date: str
    is_read: bool = True
    denies: bool = False

    def names(self, pair: "Pair") -> bool:
        """Whether both names of a pair stand in it."""
        return {*pair} <= {*self.keys}

    def span(self, key: str) -> tuple[int, int]:
        return next((start, end) for start, end, k in self.spans if k == key)

    def beside(self, key: str) -> tuple[list[str], list[str]]:
        """The word before a span and the one after it."""
        start, end = self.span(key)
        before, after = self.text[:start].lower(), self.text[end:].lower()
        return _WORD.findall(before)[-1:], _WORD.findall(after)[:1]

    @property
    def keys(self) -> list[str]:
        return [key for _, _, key in self.spans]

    @functools.cached_property
    def plain(self) -> str:
        """Its text by `normalise`."""
        return normalise(self.text)

    @functools.cached_property
    def relation(self) -> "Relation":
        """What it says of its names: its words without them, and how many come before each.

        So "the head of A is B" and "B is the head of A" say different things of their first name.
        """
        frame = self.frame(*self.keys)
        before = (_WORD.findall(self.text[:start].lower()) for start, _, _ in self.spans)
        return frame, tuple(sum(word in frame for word in words) for words in before)

    def frame(self, *keys: str) -> frozenset[str]:
        """Its words without those of some spans."""
        return self.words - {word for key in keys for word in key.split()} - _EMPTY_WORDS


Pair = tuple[str, str]  # answer, about
Relation = tuple[frozenset[str], tuple[int, ...]]
Wording = tuple[Relation, int, int]  # which of its names are the answer and what it is about


def plain_texts(documents: Sequence[Document]) -> list[Document]:
    """Documents as their sentences, a line each, without markup and labels.

    A label is what stands before sentences and hardly elsewhere, has a time of day in it, or stands
    in its sentence once more.
    """
    texts = [list(map(without_markdown, _sentences(d.text))) for d in documents]
    found = collections.Counter(_label(s)[0] for sentences in texts for s in sentences)
    frequent = [(label, n) for label, n in found.most_common(_LABELS) if label and n >= _LABELLED]
    whole = ["\n".join(sentences) for sentences in texts]
    if any("0" in label for label, _ in frequent):
        whole = [_NUMBER.sub("0", text) for text in whole]
    labels = {
        label for label, n in frequent if 2 * n > sum(text.count(_words(label)) for text in whole)
    }

    def plain(sentence: str) -> str:
        label, rest = _label(sentence)
        while label in labels or "0:0" in label or (label and _words(label) in rest):
            sentence = rest
            label, rest = _label(sentence)
        return sentence

    return [
        dataclasses.replace(document, text="\n".join(map(plain, sentences)))
        for document, sentences in zip(documents, texts, strict=True)
    ]


def _sentences(text: str) -> Iterator[str]:
    for sentence in split_sentences(text):
        is_row = sentence.startswith("|")  # of a table
        yield from sentence.strip(" |").split(" | ") if is_row else [sentence]


def _label(sentence: str) -> tuple[str, str]:
    """A sentence's label, with every number as 0, and the rest; "" without one."""
    match = _LABEL.match(sentence)
    label = _NUMBER.sub("0", match["label"]) if match else ""
    return label, sentence[match.end() :] if match else sentence


def _words(label: str) -> str:
    return label.rstrip(" :-\u2013\u2014")


class Index:
    """Sentences of documents, indexed by the names in them and by pairs of names.

    Args:
      documents: that models train on, of `plain_texts`.
      names: finds names in all of them.
      held_back: further documents, on which no model trains.
    """

    def __init__(
        self, documents: Iterable[Document], names: NameFinder, held_back: Iterable[Document] = ()
    ):
        self._several: dict[tuple[frozenset[Wording], bool], float] = {}
        self._wordings: dict[Wording, frozenset[Wording]] = {}
        self._indices: tuple[Index, ...] = (self,)
        self.by_name: dict[str, list[Sentence]] = collections.defaultdict(list)
        self.by_pair: dict[Pair, list[Sentence]] = collections.defaultdict(list)
        self.by_relation: dict[Relation, list[Sentence]] = collections.defaultdict(list)
        self.labels: dict[str, str] = {}  # key -> as it was written first
        every = *((d, True) for d in documents), *((d, False) for d in held_back)
        for document, is_read in every:
            for text in split_sentences(document.text):
                if (sentence := self._read(text, names, document, is_read)) is None:
                    continue
                for _, _, key in sentence.spans:
                    self.by_name[key].append(sentence)
                if sentence.denies:
                    continue
                self.by_relation[sentence.relation].append(sentence)
                for _, _, key in sentence.spans:
                    for _, _, other in sentence.spans:
                        if key != other and other not in sentence.is_date:
                            self.by_pair[key, other].append(sentence)

    def share_relations(self, before: "Index") -> None:
        """Lets both indices look at both texts for what the wordings of a relation are."""
        self._indices = before._indices = self, before
        before._several, before._wordings = self._several, self._wordings

    def _read(
        self, text: str, names: NameFinder, document: Document, is_read: bool
    ) -> Sentence | None:
        words = _WORD.findall(text.lower())
        if not _WORDS[0] <= len(words) <= _WORDS[1] or has_sentinel(text):
            return None
        if not _WHOLE.match(text) or _REFERS.search(text):
            return None
        spans, dates = [], set()
        for start, end, is_date in names.find(text):
            key = normalise(text[start:end].removesuffix("'s").removesuffix("’s"))
            if len(key) < 3 or (is_date and not YEAR.search(key)):
                continue
            spans.append((start, end, key))
            self.labels.setdefault(key, text[start:end])
            if is_date:
                dates.add(key)
        keys = [key for _, _, key in spans]
        # A name that stands twice would answer its own blank.
        spans = [span for span in spans if keys.count(span[2]) == 1]
        if not 2 <= len(spans) <= _NAMES:
            return None
        denies = _DENIES.search(text) or (len(spans) > 2 and _REPLACES.search(text))
        told = document.id, document.date, is_read, bool(denies)
        return Sentence(text, frozenset(words), tuple(spans), frozenset(dates), *told)

    def wordings(self, pair: Pair) -> frozenset[Wording]:
        """The wordings in which texts state a fact, and those in which they state its relation.

        Two wordings are of one relation if they give the same answer for `_AGREE` names and for
        half of the names of which both say something.
        """
        answer, about = pair
        own = frozenset(
            (s.relation, s.keys.index(answer), s.keys.index(about))
            for index in self._indices
            for s in index.by_pair.get(pair, ())
        )
        return own.union(*map(self._related, own))

    def _related(self, wording: Wording) -> frozenset[Wording]:
        if wording not in self._wordings:
            both: collections.Counter[Wording] = collections.Counter()
            agree: collections.Counter[Wording] = collections.Counter()
            facts = _facts({wording}, self._indices)
            for name, answers in facts.items() if len(facts) >= _AGREE else ():
                stated: dict[Wording, set[str]] = collections.defaultdict(set)
                for index in self._indices:
                    for other, key, _ in index.stated_of(name):
                        stated[other].add(key)
                both.update(stated.keys())
                agree.update(other for other, keys in stated.items() if keys & answers)
            self._wordings[wording] = frozenset(
                other for other, n in agree.items() if n >= _AGREE and 2 * n >= both[other]
            )
        return self._wordings[wording]

    def stated_of(self, name: str) -> Iterator[tuple[Wording, str, str]]:
        """(wording, answer, day) of all that is stated of a name that is not in many sentences."""
        sentences = self.by_name.get(name, ())
        for s in sentences if len(sentences) <= COMMON else ():
            if s.denies:
                continue
            about = s.keys.index(name)
            for i, key in enumerate(s.keys):
                if i != about:
                    yield (s.relation, i, about), key, s.date

    def answers(self, wordings: frozenset[Wording]) -> set[str]:
        """What some wordings state of any name."""
        return set().union(*_facts(wordings, self._indices).values())

    def has_several(self, wordings: frozenset[Wording], *, in_older: bool = False) -> bool:
        """Whether a name has several answers at a time, as a manager of two firms.

        Args:
          wordings: that state a fact.
          in_older: whether older text alone says so, or has none of them.
        """
        return self.fraction_of_several(wordings, in_older=in_older) > _SEVERAL

    def fraction_of_several(self, wordings: frozenset[Wording], *, in_older: bool = False) -> float:
        """Of the names in some wordings, the fraction with several answers at a time."""
        asked = wordings, in_older
        if asked not in self._several:
            indices = self._indices[-1:] if in_older else self._indices
            answers = _facts(wordings, indices)
            times = (
                sorted(filter(None, (_time_of((key, name), keys, indices) for key in keys)))
                for name, keys in answers.items()
            )
            several = sum(any(b[0] <= a[1] for a, b in itertools.pairwise(t)) for t in times)
            unknown = in_older and not answers
            self._several[asked] = 1.0 if unknown else several / max(1, len(answers))
        return self._several[asked]


def _facts(wordings: Set[Wording], indices: Sequence[Index]) -> dict[str, set[str]]:
    """{name: its answers} as some wordings state them."""
    answers: dict[str, set[str]] = collections.defaultdict(set)
    for (relation, answer, about), index in itertools.product(wordings, indices):
        for sentence in index.by_relation.get(relation, ())[:_READ]:
            answers[sentence.keys[about]].add(sentence.keys[answer])
    return answers


def _time_of(pair: Pair, answers: Set[str], indices: Sequence[Index]) -> tuple[str, str] | None:
    """The first and the median day of a pair in wordings that its text uses again.

    After a change the old answer may be named now and then, and so the last day says little.
    Sentences with another of the `answers` do not count: they may tell of a change.
    """
    days = sorted(
        s.date
        for index in indices
        for s in index.by_pair.get(pair, ())
        if len(answers.intersection(s.keys)) == 1 and len(index.by_relation[s.relation]) > 1
    )
    return (days[0], middle(days)) if days else None


def middle(days: Iterable[str]) -> str:
    """The median day: after a change the old answer may be named now and then."""
    ordered = sorted(days)
    return ordered[len(ordered) // 2]
