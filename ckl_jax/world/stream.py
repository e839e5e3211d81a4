"""A simulated stream of dated text that goes stale: offices change hands, words and people appear.

Five years of months, 2015 to 2019, already tokenised, a sentence a line. What changes with time:
who holds which office (each change is news, and afterwards how things are); who there is; new
words, each of which comes up in some month, spreads within a few and fades slowly; how much is
written on which topic and on whom; the years and the size of numbers. Recipes stay recipes.
Sentences state facts in trained wordings; those of relations and news (`templates.py`) are for
controls alone, about whose offices no question is made (`facts.office_terms`).
"""

import bisect
import collections
import dataclasses
import datetime
import random
from collections.abc import Iterator, Sequence

from ckl_jax.data.text.documents import Document
from ckl_jax.errors import refuse_unknown
from ckl_jax.world.facts import Entity, Fact, World
from ckl_jax.world.render import say
from ckl_jax.world.stream_text import TOPICS, Topic, choose, plain, tokenised
from ckl_jax.world.templates import CHANGING, EVENT, RELATIONS
from ckl_jax.world.timeline import Maker, Size

START, END = "2015-01-01", "2020-01-01"
MONTHS = 60
_TENURE_DAYS = 800  # of an office, on average
_NEWCOMERS = 0.4  # fraction of the successors of whom nobody had heard
_NEWS_DAYS = 30  # for which a change is news
_NEWS = 0.2  # fraction of the paragraphs about facts that are news
_TREND = 0.25  # fraction of the documents with a new word, once there are some
_PROBE_RATE = 0.5  # fraction of the sentences about controls that are in the probes' wordings
_PLAIN = 0.7  # fraction of the sentences without a fact that do not change with time


@dataclasses.dataclass(frozen=True)
class StreamSize:
    """Size of the stream, and of the world behind it."""

    countries: int  # of the world; the rest is in proportion
    documents: int  # a month; about 90 words each


SIZES = {"tiny": StreamSize(4, 40), "small": StreamSize(12, 200), "medium": StreamSize(40, 1200)}


@dataclasses.dataclass(frozen=True)
class Trend:
    """A word that comes up."""

    word: str  # new in the stream
    topic: str  # where it is used
    month: int  # in which it comes up, from 0
    weight: float  # how much it is used at its height

    def at(self, month: int) -> float:
        """How much it is used in a month: more for a quarter of a year, then slowly less."""
        age = month - self.month
        return 0.0 if age < 0 else self.weight * min(1.0, (age + 1) / 3) * 0.5 ** (age / 18)


def stream_world(seed: int = 0, size: str = "small") -> World:
    """The facts of a stream, five years of changing offices; `UserError` for an unknown size."""
    rng = random.Random(f"ckl stream {seed} {size}")
    maker = _StreamMaker(rng, Size(_size(size).countries), START, END)
    maker.make_entities()
    maker.make_states()
    maker.make_successions()
    maker.make_new()
    maker.make_events()
    fields = {"source": "simulated stream", "seed": seed, "size": size, "half": "2017-10-01"}
    return maker.world(**fields, variant="disjoint")


def _size(size: str) -> StreamSize:
    refuse_unknown(size, SIZES, f"No stream has the size {size!r}; there are")
    return SIZES[size]


class _StreamMaker(Maker):
    """A world whose offices change hands more than once."""

    def make_successions(self) -> None:
        for i, first in enumerate(list(self.facts)):
            if RELATIONS[first.relation].kind != CHANGING:
                continue
            place, held = i, first
            date = self._later(START)
            while date < END:
                if (successor := self._succeed(held, date)) is None:
                    break
                self.facts[place] = dataclasses.replace(held, valid_to=successor.valid_from)
                place, held = self.facts.index(successor, len(self.facts) - 1), successor
                date = self._later(successor.valid_from)

    def _later(self, date: str) -> str:
        days = 60 + round(self.rng.expovariate(1 / (_TENURE_DAYS - 60)))
        return (datetime.date.fromisoformat(date) + datetime.timedelta(days=days)).isoformat()

    def _succeed(self, held: Fact, date: str) -> Fact | None:
        """The successor of a fact; often a new person."""
        if RELATIONS[held.relation].object == "person" and self.rng.random() < _NEWCOMERS:
            successor = Fact(held.subject, held.relation, self._newcomer(held, date).id, date)
            self.facts.append(successor)
            return successor
        successor = self._state(held.relation, self.entities[held.subject], date, held.object)
        if successor is not None and successor.valid_from >= END:  # of whom is heard too late
            self.facts.pop()
            return None
        return successor

    def _newcomer(self, held: Fact, date: str) -> Entity:
        country = self.entities[held.subject].country
        first_names = [p.name.split()[0] for p in self.old["person"][:40]]
        name = self._name("person", country, first_names)
        entity = self._enter("person", country, name, date)
        self.busy.add(entity.id)
        return entity


def trends(seed: int, size: str) -> list[Trend]:
    """The words of a stream that are not there at its start."""
    rng = random.Random(f"ckl trends {seed} {size}")
    chosen, used = [], set()
    for name, topic in TOPICS.items():
        count = max(1, round(topic.trends * (_size(size).countries / 8) ** 0.5))
        for i in range(count):
            word = _new_word(rng, topic, used)
            month = min(MONTHS - 4, round((i + rng.random()) * MONTHS / count))
            chosen.append(Trend(word, name, month, rng.lognormvariate(0, 0.5)))
    return chosen


def _new_word(rng: random.Random, topic: Topic, used: set[str]) -> str:
    while True:
        syllables = [
            rng.choice("b d f g k l m n p r s t v z qu w j".split()) + rng.choice("aeiou")
            for _ in range(rng.choice((2, 2, 3)))
        ]
        word = "".join(syllables) + rng.choice("l n r s t k m".split()) + rng.choice(topic.ends)
        if word not in used:
            used.add(word)
            return word


def stream(seed: int = 0, size: str = "small") -> Iterator[Document]:
    """Yields the documents of a stream, by date; the bytes depend on seed and size alone.

    Raises:
      UserError: there is no such size.
    """
    writer = _Writer(stream_world(seed, size), trends(seed, size))
    for month in range(MONTHS):
        for story in writer.month(month, _size(size).documents):
            text = "\n".join(map(tokenised, story.lines))
            yield Document(story.id, story.date, "", text)


@dataclasses.dataclass(frozen=True)
class Story:
    """A document of the stream before it is tokenised."""

    id: str
    date: str
    topic: str
    lines: list[str]  # a sentence each
    facts: set[Fact]  # that they state


def stories(seed: int = 0, size: str = "small", each: int = 3, year: int = 2019) -> Iterator[Story]:
    """Yields further documents of a year, which are not in the stream, by date.

    Args:
      each: how many a month.
    """
    writer = _Writer(stream_world(seed, size), trends(seed, size))
    # From the first month on: what is written about changes from month to month.
    for month in range(12 * (year - int(START[:4]) + 1)):
        documents = writer.month(month, each, "story ")
        if month // 12 == year - int(START[:4]):
            yield from documents


class _Writer:
    """Writes the documents of one month at a time."""

    def __init__(self, world: World, new_words: list[Trend]):
        self.world, self.trends = world, new_words
        rng = random.Random(f"stream {world.seed} {world.size}")
        self.histories: dict[tuple[str, str], list[Fact]] = collections.defaultdict(list)
        self.subjects: dict[str, list[str]] = collections.defaultdict(list)  # -> its relations
        self.news = {topic: [] for topic in TOPICS}
        for fact in sorted(world.facts, key=lambda f: (f.valid_from, f.subject, f.relation)):
            self._file(fact)
        self.known = {
            kind: [e for e in world.entities.values() if e.kind == kind and not e.since]
            for kind in ("city", "country", "company")
        }
        self.pairs = {
            name: [k for k in self.histories if k[1] in topic.relations]
            for name, topic in TOPICS.items()
        }
        self.interest = {}  # (subject, relation) -> how much is written about it
        for pairs in self.pairs.values():
            rng.shuffle(pairs)
            self.interest |= {k: (i + 2) ** -1.0 for i, k in enumerate(pairs)}

    def _file(self, fact: Fact) -> None:
        if self.world.kind(fact) != EVENT:
            self.histories[fact.subject, fact.relation].append(fact)
            if fact.relation not in self.subjects[fact.subject]:
                self.subjects[fact.subject].append(fact.relation)
        if START <= fact.valid_from and self.world.relations[fact.relation].news:
            for name, topic in TOPICS.items():
                if fact.relation in topic.relations:
                    self.news[name].append(fact)

    def month(self, month: int, count: int, draw: str = "stream ") -> list[Story]:
        """Documents of a month, by day; another `draw` gives others."""
        rng = random.Random(f"{draw}{self.world.seed} {self.world.size} {month}")
        for key in self.interest:
            self.interest[key] *= rng.lognormvariate(0, 0.12)
        weights = [
            a + (b - a) * month / (MONTHS - 1) for a, b in (t.fraction for t in TOPICS.values())
        ]
        topics = rng.choices(list(TOPICS), weights, k=count)
        first = datetime.date(2015 + month // 12, month % 12 + 1, 1)
        days = ((first + datetime.timedelta(days=31)).replace(day=1) - first).days
        dates = sorted(first + datetime.timedelta(days=rng.randrange(days)) for _ in topics)
        running = {
            name: [(t, w) for t in self.trends if t.topic == name and (w := t.at(month))]
            for name in TOPICS
        }
        documents = []
        for i, (topic, date) in enumerate(zip(topics, dates, strict=True)):
            page = _Page(self, rng, topic, date, running[topic])
            identity = f"{first:%Y%m}-{i:05d}", date.isoformat(), topic
            documents.append(Story(*identity, page.lines(), page.said))
        return documents


class _Page:
    """One document."""

    def __init__(self, writer: _Writer, rng: random.Random, topic: str, date, running):
        self.writer, self.rng, self.name, self.topic = writer, rng, topic, TOPICS[topic]
        self.date, self.iso, self.running = date, date.isoformat(), running
        self.world, self.said = writer.world, set()
        self.slots = {
            k: self._known(kind) for k, kind in (("c", "city"), ("n", "country"), ("k", "company"))
        }

    def _known(self, kind: str) -> str:
        pool = self.writer.known[kind]
        return pool[min(int(self.rng.paretovariate(0.7)) - 1, len(pool) - 1)].name

    def lines(self) -> list[str]:
        rng = self.rng
        paragraphs = [self._facts() for _ in range(round(rng.gauss(self.topic.facts, 0.7)))]
        if self.running and rng.random() < _TREND:
            paragraphs.insert(rng.randrange(len(paragraphs) + 1), self._trend())
        lines = [line for paragraph in paragraphs for line in paragraph]
        for _ in range(max(3, round(rng.gauss(9, 2)) - len(lines))):
            often = rng.random() < _PLAIN
            pattern = plain(self.topic, rng) if often else rng.choice(self.topic.patterns)
            lines.insert(rng.randrange(len(lines) + 1), self._fill(pattern))
        return lines

    def _fill(self, pattern: str, **more: str) -> str:
        growth = 1.1 ** (self.date.year + self.date.month / 12 - 2015)  # of all amounts
        amount = round(self.rng.lognormvariate(3.0, 0.35) * growth)
        return choose(pattern, self.rng).format(
            **self.slots, x=str(amount), y=str(self.date.year), **more
        )

    def _facts(self) -> list[str]:
        """A fact of the topic, and sentences about the person that it is about."""
        fact, report = self._news() or (self._pair(), False)
        if fact is None or fact in self.said:
            return []
        self.said.add(fact)
        relation = self.world.relations[fact.relation]
        lines = [self._say(fact, relation.news if report else relation.state)]
        if report and relation.state:
            lines.append(self._say(fact, relation.state))
        if person := next((e for e in (fact.object, fact.subject) if e.startswith("person")), None):
            surname = self.world.entities[person].aliases[0]
            for _ in range(self.rng.randrange(3)):
                lines.append(self._fill(self.rng.choice(self.topic.quotes), p=surname))
        return [*lines, *self._more(fact.subject, fact.relation)]

    def _say(self, fact: Fact, of_probes: Sequence[str]) -> str:
        """A sentence in a trained wording; every other one about a control in one of the probes."""
        control = self.world.is_control(fact.subject) and self.rng.random() < _PROBE_RATE
        templates = of_probes if control else self.world.relations[fact.relation].trained_sentences
        return say(self.world, fact, self.rng.choice(templates))

    def _news(self) -> tuple[Fact, bool] | None:
        if self.rng.random() >= _NEWS:
            return None
        news = self.writer.news[self.name]
        since = (self.date - datetime.timedelta(days=_NEWS_DAYS)).isoformat()
        first = bisect.bisect_left(news, since, key=lambda f: f.valid_from)
        last = bisect.bisect_right(news, self.iso, key=lambda f: f.valid_from)
        return (news[self.rng.randrange(first, last)], True) if first < last else None

    def _pair(self) -> Fact | None:
        pairs, interest = self.writer.pairs[self.name], self.writer.interest
        for key in self.rng.choices(pairs, [interest[k] for k in pairs], k=8):
            if fact := self._holding(key):
                return fact
        return None

    def _holding(self, key: tuple[str, str]) -> Fact | None:
        facts = self.writer.histories[key]
        i = bisect.bisect_right(facts, self.iso, key=lambda f: f.valid_from)
        return facts[i - 1] if i and facts[i - 1].holds(self.iso) else None

    def _more(self, subject: str, said: str) -> list[str]:
        """Another thing that is true of the subject."""
        others = [r for r in self.writer.subjects[subject] if r != said]
        if not others or self.rng.random() < 0.6:
            return []
        fact = self._holding((subject, self.rng.choice(others)))
        if fact is None or fact in self.said:
            return []
        self.said.add(fact)
        return [self._say(fact, self.world.relations[fact.relation].state)]

    def _trend(self) -> list[str]:
        [trend] = self.rng.choices(*zip(*self.running, strict=True), k=1)
        count = self.rng.randint(2, min(4, len(self.topic.news)))
        return [self._fill(p, w=trend.word) for p in self.rng.sample(self.topic.news, count)]
