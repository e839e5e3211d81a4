"""Probes from text alone: cloze sentences about facts that other sentences state too.

A fact is an answer (a name or a date) and the name that it is about. Where two sentences state one
fact in different words, one of them is held back from training and becomes a question with a
blank for the answer; the other stays in the text. Items are tagged:

- changed: older text has another answer (which is scored too) in the same words, or in another
  wording of the relation;
- kept: older text states the fact;
- new: it does not.

The rule sees words, not meaning: that the two sentences state one fact is likely, not certain.
`docs/update.md` says how often it is so.
"""

import collections
import dataclasses
import functools
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from ckl_jax.data.buckets import hash64
from ckl_jax.data.facts.statements import Statement
from ckl_jax.data.text.documents import Document, spread
from ckl_jax.data.text.sentences import NUMBER_WORDS, normalise, without_markup
from ckl_jax.data.text.spans import split_sentences
from ckl_jax.updates.names import NameFinder
from ckl_jax.updates.sentence_index import (
    COMMON,
    YEAR,
    Index,
    Pair,
    Sentence,
    middle,
    plain_texts,
)

TAGS = ("new", "changed", "kept")
CANDIDATES = 10  # answers that a model chooses from
_DRAWN = 400  # names of a text that may be wrong answers
# Of new and of old text that is searched, spread evenly: what takes half a minute and 0.5 GB.
_DOCUMENTS, _TEXT_WORDS = 20_000, 5_000_000
# Words of their own that two wordings of a fact share, where the answer is no rare name.
_SHARED = 2
_NEWS_YEARS = 1  # a document's dates of its own and the year before or after are news
_DIGITS = {word: str(number) for number, word in enumerate(NUMBER_WORDS[:12], 1)}
_ALIKE = 0.75  # of words: sentences that are more alike are one wording
_MOSTLY_SEVERAL = 0.5  # of names with several answers: with more, one that is new replaces none
_FIRST_WORDS = 3  # by which sentences that are held back are found within others
_SAME_FRAME = 0.5  # of words around an answer


@dataclasses.dataclass(frozen=True)
class Item:
    """A sentence with a blank, and its candidate answers."""

    id: str  # unique within an update
    tag: str  # one of TAGS, for the update that evaluates it
    text: str  # the sentence with its answer in it
    # start, end: where the answer stands, in characters
    start: int
    end: int
    candidates: tuple[str, ...]  # the answer, then the old one of a changed fact, then others
    old: str  # the old answer of a changed fact, else ""
    # date: of the document, YYYY-MM-DD, or from which an answer of the user's own is right
    about: str = ""  # the name that the answer is stated about, if the item is made of text
    date: str = ""
    document: str = ""  # its id, if the item is made of text
    evidence: str = ""  # a sentence that stays in the text and states the fact, if it is

    @property
    def answer(self) -> str:
        return self.candidates[0]

    @property
    def question(self) -> str:
        return self.cloze("____")

    def cloze(self, blank: str) -> str:
        """The sentence with a blank for the answer."""
        return self.text[: self.start] + blank + self.text[self.end :]

    def statements(self) -> Iterator[Statement]:
        """The sentence with each candidate."""
        for candidate in self.candidates:
            end = self.start + len(candidate)
            text = self.text[: self.start] + candidate + self.text[self.end :]
            yield Statement(text, (), ((self.start, end),))

    @classmethod
    def of(cls, row: Mapping) -> "Item":
        names = (field.name for field in dataclasses.fields(cls))
        return cls(**{name: row[name] for name in names} | {"candidates": tuple(row["candidates"])})


class Positions:
    """What a model has positions for, with a first and a last token.

    Attributes:
      limit: its positions, None without a limit.
      too_long: the sentences of items that were too long.
    """

    def __init__(self, config: Any, vocabulary: Any):
        self.limit: int | None = getattr(config, "max_positions", None)
        self.too_long: set[str] = set()
        self._vocabulary = vocabulary

    @property
    def left_out(self) -> dict[str, int | None]:
        """What overlap.json says of items that were too long."""
        return {"too_long": len(self.too_long), "positions": self.limit}

    def hold(self, text: str) -> bool:
        if self.limit is None:
            return True
        (ids,) = self._vocabulary.encode_many([text])
        return len(ids) + 2 <= self.limit

    def hold_item(self, item: Item) -> bool:
        """Whether all of its statements have room; notes an item of which one has not."""
        fits = all(self.hold(statement.text) for statement in item.statements())
        if not fits:
            self.too_long.add(item.text)
        return fits


def make(
    new: Iterable[Document],
    old: Iterable[Document],
    limits: Mapping[str, int],
    seed: int = 0,
    earlier: Sequence[Item] = (),
    asked: Iterable[str] = (),
    held_back: tuple[Iterable[Document], Iterable[Document]] = ((), ()),
    fits: Callable[[Item], bool] = lambda item: True,
) -> tuple[list[Item], frozenset[str]]:
    """Makes items from new text, and from old text for facts that only it states.

    Items of earlier updates that are still right are asked again, if there is room for more of
    what is kept.

    Args:
      new: documents of this update; at most 20,000 of them and 5 million words are searched, evenly
        spread.
      old: documents of earlier ones; the same.
      limits: items of each tag, at most.
      seed: of the choice of items and of wrong answers.
      earlier: items of earlier updates, the oldest first.
      held_back: further new and old documents, on which no model is trained: they say what was so,
        and no item is made of them.
      asked: sentences that are held back whatever is made, such as those of the user's questions.
      fits: whether an item can be asked.

    Returns:
      The items, and the sentences that must be neither trained on nor replayed, by `normalise`.
    """
    now, before = _indices(new, old, earlier, held_back)
    chosen: dict[str, list[Item]] = {tag: [] for tag in TAGS}
    held = set(map(normalise, asked))
    stays = {normalise(item.evidence) for item in earlier}  # the evidence of items
    # A fact makes an item once, in whichever update, and one way round.
    seen = {frozenset((normalise(item.answer), item.about)) for item in earlier if item.about}
    for index in (now, before):
        for pair in sorted(index.by_pair, key=lambda pair: hash64(seed, *pair)):
            wanted = {tag for tag in TAGS if len(chosen[tag]) < limits[tag]}
            if not wanted:
                break
            sentences = frozenset(pair) not in seen and _two_wordings(pair, index, held, stays)
            if not sentences or (tag := _tag(pair, index, now, before))[0] not in wanted:
                continue
            item = _item(pair, *sentences, *tag, (now, before), seed)
            if item and fits(item):
                chosen[item.tag].append(item)
                seen.add(frozenset(pair))
                stays.add(normalise(item.evidence))
                held |= _same_wording(pair, sentences[0], index)
    no_text = frozenset(held)
    # Another item's question may stand in the evidence.
    stated = {
        tag: [i for i in mine if not _is_held_back(i.evidence, no_text)]
        for tag, mine in chosen.items()
    }
    made = [item for tag in TAGS for item in stated[tag]]
    again = list(filter(fits, _still_right(earlier, made, now, before)))
    again.sort(key=lambda item: hash64(seed, item.id))
    room = max(0, limits["kept"] - len(stated["kept"]))
    return made + again[:room], no_text


def _indices(
    new: Iterable[Document],
    old: Iterable[Document],
    earlier: Sequence[Item],
    held_back: tuple[Iterable[Document], Iterable[Document]],
) -> tuple[Index, Index]:
    """What new and what old text says."""
    # What was asked is in no text any more, and still says what was so.
    asked = [Document(e.document, e.date, "", e.text) for e in earlier if e.document]
    parts = _some(new), _some(old), _some(held_back[0]), _some(held_back[1]) + asked
    every = plain_texts([document for part in parts for document in part])
    names, texts = NameFinder([document.text for document in every]), iter(every)
    read, older, *unread = ([*itertools.islice(texts, len(part))] for part in parts)
    now, before = Index(read, names, unread[0]), Index(older, names, unread[1])
    now.share_relations(before)
    return now, before


def _may_have_changed(pair: Pair, before: Index, now: Index) -> bool:
    """Whether new text speaks of a name of an old fact in words that state the fact."""
    if _is_month(pair[0], before) and _past(pair[1], now):
        return True
    words = frozenset[str]().union(*(s.frame(*pair) for s in before.by_pair[pair]))
    named = [s for name in pair for s in now.by_name.get(name, ())]
    sentences = [s for s in named if s.denies or not s.names(pair)]  # which do not say it again
    return len(sentences) > COMMON or any(words & s.frame(*pair) for s in sentences)


def _is_denied(pair: Pair, *read: Index) -> bool:
    """Whether texts say of a fact later that it is not so, or no longer."""
    stated = [s.date for text in read for s in text.by_pair.get(pair, ())]
    named = (s for text in read for s in text.by_name.get(pair[1], ()) if s.denies)
    return any(s.date >= middle(stated) for s in named if s.names(pair))


def _tag(pair: Pair, index: Index, now: Index, before: Index) -> tuple[str, str]:
    """What a fact of new or of old text is an item of ("" of none), and a change's old answer."""
    if index is before and _may_have_changed(pair, before, now):
        return "", ""
    if _is_denied(pair, now, before) or _is_outdated(pair, index, now, before):
        return "", ""
    if _may_be_replaced(pair, now, before):
        return "", ""
    if pair in before.by_pair:  # it may have been replaced and come back
        return ("" if _is_outdated(pair, before, before) else "kept"), ""
    old = _old_answer(pair, index, before)
    if old is None or (old and _is_the_same(old, pair[0])):
        return "", ""
    if old:
        return "changed", before.labels[old]
    # Another date of the name may be the one before a change.
    if _is_month(pair[0], index) and _past(pair[1], before):
        return "", ""
    if _may_have_another(pair, index, before):
        return "", ""
    # If the other way round it is a change, the item is made that way.
    return ("new" if _old_answer(pair[::-1], index, before) == "" else ""), ""


def _some(documents: Iterable[Document]) -> list[Document]:
    sample = spread(documents, _DOCUMENTS)
    words = sum(len(document.text.split()) for document in sample)
    return sample[:: max(1, -(-words // _TEXT_WORDS))]


def _two_wordings(
    pair: Pair, index: Index, held: Set[str], stays: Set[str]
) -> tuple[Sentence, Sentence] | None:
    """(sentence to probe, another that states the same fact in other words), or None.

    Args:
      held: sentences that are held back already, and so are no evidence, by `normalise`.
      stays: sentences that must not be held back, for they are the evidence of other items.
    """
    answer, about = pair
    sentences = index.by_pair[pair]
    if len(sentences) < 2 or any(len(index.by_name[name]) > COMMON for name in pair):
        return None
    if _is_the_same(answer, about):  # "Feature Store" of "SageMaker Feature Store"
        return None
    # An answer that is stated of little else, as a person of an office; else words must be shared.
    is_specific = 2 * len(sentences) >= len(index.by_name[answer])
    is_date = _is_date(answer, index)
    if is_date:  # of the past of a name that has no other more often
        past = _past(about, index)
        is_specific &= 2 * past.count(answer) >= len(past) > 0
    free = [s for s in sentences if s.is_read and s.plain not in held]
    for evidence in free:
        for probe in free:
            if _is_one_wording(probe, evidence):
                continue
            shared = probe.frame(*pair) & evidence.frame(*pair)
            keys = set(probe.keys), set(evidence.keys)
            # A date may be another name's in a sentence that names others.
            is_one = not is_date or keys[0] <= keys[1] or keys[0] >= keys[1]
            if len(shared) >= _SHARED or (is_specific and is_one):
                if stays.isdisjoint(_same_wording(pair, probe, index)):
                    return probe, evidence
    return None


def _is_one_wording(a: Sentence, b: Sentence) -> bool:
    """Whether sentences are much alike, or one is the other with "..., the paper wrote"."""
    if a.text == b.text or _alike(a.words, b.words) > _ALIKE:
        return True
    return _holds(a.plain, b.plain) or _holds(b.plain, a.plain)


def _is_date(key: str, index: Index) -> bool:
    return any(key in s.is_date for s in index.by_name[key])


def _is_month(key: str, index: Index) -> bool:
    return " " in key and _is_date(key, index)


def _past(about: str, index: Index) -> list[str]:
    """The dates of a month or day that are not of a name's news, as often as they are stated."""
    return [
        key
        for s in index.by_name.get(about, ())
        for key in s.is_date
        if " " in key and abs(int(YEAR.search(key)[0]) - int(s.date[:4])) > _NEWS_YEARS
    ]


def _alike(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / max(1, len(a | b))


def _same_wording(pair: Pair, probe: Sentence, index: Index) -> set[str]:
    """The sentences that state a fact in the probe's wording, and are held back with it."""
    stating = index.by_pair[pair]
    alike = {s.plain for s in stating if _alike(s.words, probe.words) > _ALIKE}
    return {probe.plain} | alike | {s.plain for s in stating if _holds(s.plain, probe.plain)}


def _is_the_same(a: str, b: str) -> bool:
    """Whether two keys are one name or date: "2013" and "April 2013", "Boto3" and "Boto 3"."""
    first, second = ([_one_form(word) for word in key.split()] for key in (a, b))
    same = set(first) <= set(second) or set(first) >= set(second)
    return same or "".join(first) == "".join(second)


def _one_form(word: str) -> str:
    """A word without its plural, and a number in digits."""
    return _DIGITS.get(word) or word.removesuffix("s")


def _old_answer(pair: Pair, now: Index, before: Index) -> str | None:
    """The key of the answer that old text gives in the words of the new sentence.

    "" if there is none, None if it cannot be told whether the new answer replaced one.
    """
    middles = _middles(pair, now, before)
    several = _has_several(pair, now) if middles else True
    if several is None:
        return None
    return "" if several else max(middles, key=middles.__getitem__)


def _is_outdated(pair: Pair, index: Index, *read: Index) -> bool:
    """Whether a text states another fact in the place of one later, either way round."""
    mine = middle(s.date for text in read for s in text.by_pair.get(pair, ()))
    for one in (pair, pair[::-1]):
        middles = _middles(one, index, *read)
        days = [day for key, day in middles.items() if not _is_the_same(key, one[0])]
        several = _has_several(one, index) if days else True
        if several is None or (not several and max(days) > mine):
            return True
    return False


def _may_be_replaced(pair: Pair, now: Index, before: Index) -> bool:
    """Whether texts have another answer in the place of an old fact later, either way round.

    Where some names have several answers, it may be a further one.
    """
    if pair not in before.by_pair:
        return False
    mine = middle(s.date for text in (now, before) for s in text.by_pair.get(pair, ()))
    return any(
        day > mine and not _is_the_same(key, one[0])
        for one in (pair, pair[::-1])
        if before.fraction_of_several(before.wordings(one)) < _MOSTLY_SEVERAL
        for key, day in _middles(one, before, now, before).items()
    )


def _middles(pair: Pair, index: Index, *read: Index) -> dict[str, str]:
    """{key: median day} of the other answers that texts give in the words of a fact."""
    days: dict[str, list[str]] = collections.defaultdict(list)
    for day, key in (other for text in read for other in _other_answers(pair, index, text)):
        days[key].append(day)
    return {key: middle(stated) for key, stated in days.items()}


def _may_have_another(pair: Pair, index: Index, read: Index) -> bool:
    """Whether a text has another answer, either way round, in words that state a fact of `index`.

    Sentences that say the same in words of their own besides are of no relation that is known.
    """
    return any(
        not _has_several(one, index)
        and any((key, one[1]) not in index.by_pair for key in _alike_answers(one, index, read))
        for one in (pair, pair[::-1])
    )


def _has_another(pair: Pair, index: Index, read: Index) -> bool:
    """Whether a text has, or may have, another answer in the place of a fact that it lacks."""
    others = (
        _middles(one, index, read) for one in (pair, pair[::-1]) if not _has_several(one, index)
    )
    return any(others) or _may_have_another(pair, index, read)


def _alike_answers(pair: Pair, index: Index, read: Index) -> set[str]:
    """Other answers of a text in sentences that share two words with those that state a fact."""
    answer, about = pair
    stating, there = index.by_pair.get(pair, ()), read.by_name.get(about, ())
    words = frozenset[str]().union(*(s.frame(*pair) for s in stating))
    is_date = any(answer in s.is_date for s in stating)
    return {
        key
        for s in (there if len(there) <= COMMON else ())
        for key in s.keys
        if key not in pair and (key in s.is_date) == is_date and not _is_the_same(key, answer)
        if len(words & s.frame(key, about)) >= _SHARED
    }


def _has_several(pair: Pair, index: Index) -> bool | None:
    """Whether a name may have several answers at a time, in the relations that state a fact.

    None where names had one answer each in older text and have several in both texts together: then
    the new answers are further ones, or replaced the old, which are still named as often.
    """
    wordings = index.wordings(pair)
    if not index.has_several(wordings):
        return False
    return index.has_several(wordings, in_older=True) or None


def _other_answers(pair: Pair, index: Index, read: Index) -> list[tuple[str, str]]:
    """(day, key) of each other answer that `read` gives in the words of a fact of `index`."""
    answer, about = pair
    answers: list[tuple[str, str]] = []
    there = read.by_name.get(about, ())
    stating = index.by_pair.get(pair, ())
    for sentence in stating if len(there) <= COMMON else ():
        frame, is_date = sentence.frame(*pair), answer in sentence.is_date
        for other in (s for s in there if not s.denies):
            for _, _, key in other.spans:
                if (key in other.is_date) != is_date or key == about:
                    continue
                around = other.frame(key, about)
                same = frame == around or (
                    len(frame & around) >= 2 and _alike(frame, around) > _SAME_FRAME
                )
                same = same and sentence.beside(answer) == other.beside(key)
                # What both name beside the two is no other answer.
                if same and key not in {k for _, _, k in sentence.spans}:
                    answers.append((other.date, key))
    named = {key for s in stating for key in s.keys}
    wordings = index.wordings(pair)
    answers += (
        (day, key)
        for wording, key, day in read.stated_of(about)
        if wording in wordings and key not in named
    )
    return answers


def _item(
    pair: Pair,
    probe: Sentence,
    evidence: Sentence,
    tag: str,
    old: str,
    indices: tuple[Index, Index],
    seed: int,
) -> Item | None:
    answer, about = pair
    start, end = probe.span(answer)
    text = probe.text[start:end]
    others = _wrong_answers(pair, probe, indices, random.Random(hash64(seed, *pair)))
    wrong = [label for key, label in others.items() if key != normalise(old)]
    wrong = wrong[: CANDIDATES - 1 - bool(old)]
    if len(wrong) < 3:  # too easy a choice
        return None
    return Item(
        id=f"{hash64(*pair, probe.text) % 16**10:010x}",
        tag=tag,
        text=probe.text,
        start=start,
        end=end,
        candidates=(text, *((old,) if old else ()), *wrong),
        old=old,
        about=about,
        date=probe.date,
        document=probe.document,
        evidence=evidence.text,
    )


def _wrong_answers(
    pair: Pair, probe: Sentence, indices: tuple[Index, Index], generator: random.Random
) -> dict[str, str]:
    """{key: label} of names that no text states of those in the sentence, the likeliest first.

    What the same wordings state of other names is likelier than what stands in like sentences.
    """
    answer = pair[0]
    is_date, frame = answer in probe.is_date, probe.frame(*pair)
    names = {key for _, _, key in probe.spans}
    alike = indices[0].answers(indices[0].wordings(pair))
    pool = []
    for index in indices:
        there = sorted(alike & index.labels.keys())
        drawn = (generator.sample(k, min(_DRAWN, len(k))) for k in (there, list(index.labels)))
        for key in dict.fromkeys(itertools.chain(*drawn)):
            sentence = index.by_name[key][0] if index.by_name[key] else None
            if sentence is None or (key in sentence.is_date) != is_date or key in names:
                continue
            if _is_the_same(key, answer):  # "SNS" of "Amazon SNS"
                continue
            if any((key, name) in i.by_pair for i in indices for name in names - {answer}):
                continue  # it may be right as well
            near = len(frame & sentence.frame(key))
            length = abs(len(key.split()) - len(answer.split()))
            rank = key not in alike, length > 1, -near, length
            pool.append((rank, len(pool), key, index.labels[key]))
    return {key: label for _, _, key, label in sorted(pool)}


def _still_right(
    earlier: Sequence[Item], made: Sequence[Item], now: Index, before: Index
) -> list[Item]:
    """Items of earlier updates as "kept" ones, except facts that have changed since."""

    def fact(item: Item, answer: str) -> frozenset[str]:  # whichever of its names is asked for
        return frozenset((item.about or item.question, normalise(answer)))

    def still_wrong(item: Item) -> tuple[str, ...]:  # after the answer
        right = {c for c in item.candidates[1:] if (normalise(c), item.about) in now.by_pair}
        return tuple(c for c in item.candidates if c == item.old or c not in right)

    def has_changed(item: Item) -> bool:
        pair = normalise(item.answer), item.about
        # No item may have been made of a change.
        return fact(item, item.answer) in changed or (
            pair in before.by_pair
            and (
                _is_denied(pair, before, now)
                or _is_outdated(pair, before, before, now)
                or _may_be_replaced(pair, now, before)
                or (pair not in now.by_pair and _has_another(pair, before, now))
            )
        )

    changed = {fact(item, item.old) for item in (*earlier, *made) if item.old}
    again: dict[frozenset[str], Item] = {}
    for item in earlier:
        if not has_changed(item):
            again.setdefault(fact(item, item.answer), item)
    for item in made:
        again.pop(fact(item, item.answer), None)
    kept = (dataclasses.replace(i, tag="kept", candidates=still_wrong(i)) for i in again.values())
    return [dataclasses.replace(i, old="") for i in kept if len(i.candidates) > 1]


def without(text: str, held: frozenset[str]) -> str:
    """A text without the held-back sentences, which are given as `normalise` returns them.

    Sentences that hold one are left out too: "Update 2: The shop is open, sources said."
    """
    if not held:
        return text
    kept = (
        " ".join(s for s in split_sentences(paragraph) if not _is_held_back(s, held))
        for paragraph in text.split("\n")
    )
    return "\n".join(paragraph for paragraph in kept if paragraph)


def _is_held_back(sentence: str, held: frozenset[str]) -> bool:
    key = normalise(without_markup(sentence))
    if key in held:
        return True
    words, known = key.split(), _by_first_words(held)
    starts = zip(*(words[i:] for i in range(_FIRST_WORDS)), strict=False)
    return any(_holds(key, other) for start in starts for other in known.get(start, ()))


def _holds(key: str, other: str) -> bool:
    """Whether a sentence holds another one in the same words, both by `normalise`."""
    return f" {other} " in f" {key} "


@functools.lru_cache(maxsize=1)  # of one update
def _by_first_words(held: frozenset[str]) -> Mapping[tuple[str, ...], list[str]]:
    sentences = collections.defaultdict(list)
    for key in held:
        sentences[tuple(key.split()[:_FIRST_WORDS])].append(key)
    return sentences
