"""Entities, dated facts and the questions that turn them into corpora and probes.

A fact is (subject, relation, object, valid from, valid to); splits, diffs, probes and phases are
questions about dates. Where the facts come from (`timeline` invents them, `wikidata` and `factbook`
read them) makes no difference to what is rendered from them.
"""

import dataclasses
import datetime
import hashlib
from collections.abc import Iterator, Mapping

from ckl_jax.data.facts.offices import Term
from ckl_jax.world.templates import CHANGING, EVENT, INVARIANT, Relation

SOURCES = ("simulated", "wikidata", "factbook")


@dataclasses.dataclass(frozen=True)
class Shape:
    """The shape of the corpora.

    In the disjoint world a row's text is a paragraph, and `chunk_words` is the longest one.
    """

    chunk_words: int = 0  # length of a training row's text; 0 is one sentence
    # spans masked in one row; a text gets as many rows as mask each of its spans once
    max_spans: int = 1
    per_document: int = 1  # subjects of a page of D0, and facts of an article of D1
    small: float = 0.5  # fraction of D1's articles (and D0's) in the SMALL corpora
    joined: float = 0.1  # fraction of the disjoint world's paragraphs that go on with another fact
    # d0_statements, d1_statements: how often a fact is stated, (fewest, mean, most): Zipf's law
    # with exponent 1/2 over subjects
    d0_statements: tuple[int, int, int] = (3, 5, 12)
    d1_statements: tuple[int, int, int] = (2, 3, 8)


@dataclasses.dataclass(frozen=True)
class Entity:
    """A thing with a name."""

    id: str  # "person_12"
    kind: str  # person, city, country, ...
    name: str  # as texts write it
    aliases: tuple[str, ...] = ()  # other answers that are right
    country: int = 0  # index of its country, which decides how it sounds
    since: str = ""  # ISO date of its first mention; "" if it was known before the cut


@dataclasses.dataclass(frozen=True)
class Fact:
    """`subject` has `relation` to `object` from `valid_from` until before `valid_to` ("": open)."""

    subject: str
    relation: str
    object: str
    valid_from: str
    valid_to: str = ""

    def holds(self, date: str) -> bool:
        return self.valid_from <= date and (not self.valid_to or date < self.valid_to)


@dataclasses.dataclass(frozen=True)
class Passage:
    """A text about a subject that a source brings along, first written on `date`."""

    subject: str
    date: str
    text: str


@dataclasses.dataclass(frozen=True)
class World:
    """All entities and facts, and when the corpora were written."""

    source: str  # one of `SOURCES`
    # seed, size: what it was made from
    seed: int
    size: str
    entities: Mapping[str, Entity]  # by id
    facts: tuple[Fact, ...]  # all, in a fixed order
    relations: Mapping[str, Relation]
    cut: str  # D0 was written before this ISO date, D1 on or after it
    half: str  # D1's phases: P1 before it, P2 on or after it
    end: str  # D1 was written before it
    shape: Shape = Shape()
    # "disjoint", whose probed facts are never stated in a probe's wording, or "legacy", whose pages
    # and articles (`render`) state every fact in it
    variant: str = "legacy"
    # stands in the disjoint world's corpora beside the sentences made of facts
    prose: tuple[Passage, ...] = ()

    @property
    def before(self) -> str:
        """The last day of D0."""
        return _day_before(self.cut)

    @property
    def after(self) -> str:
        """The last day of D1."""
        return _day_before(self.end)

    def kind(self, fact: Fact) -> str:
        return self.relations[fact.relation].kind

    def name(self, entity: str) -> str:
        return self.entities[entity].name

    def answers(self, entity: str) -> tuple[str, ...]:
        """Returns the name and the aliases of an entity."""
        return (self.entities[entity].name, *self.entities[entity].aliases)

    def at(self, date: str) -> dict[tuple[str, str], Fact]:
        """Returns the states (not the events) that hold at `date`, by subject and relation."""
        return {
            (f.subject, f.relation): f
            for f in self.facts
            if f.holds(date) and self.kind(f) != EVENT
        }

    def is_control(self, subject: str) -> bool:
        """Whether no probe is about a subject; half of the disjoint world's known before D1."""
        if self.variant == "legacy" or self.entities[subject].since:
            return False
        return fraction_of(f"control {self.seed} {subject}") < 0.5

    def is_reviewed(self, subject: str) -> bool:
        """Whether methods that review D0 may see its rows on a probed subject: on half of them."""
        return self.variant == "legacy" or fraction_of(f"reviewed {self.seed} {subject}") < 0.5

    def statements(self, fact: Fact) -> int:
        """How often the disjoint world states a fact: seldom for most subjects, often for a few."""
        shape = self.shape
        least, mean, most = (
            shape.d1_statements if fact.valid_from >= self.cut else shape.d0_statements
        )
        # u ** -0.5 has the mean 2 for u in (0, 1).
        rank = fraction_of(f"frequency {self.seed} {fact.subject}")
        return min(most, max(least, round(mean / 2 * (rank + 1e-6) ** -0.5)))

    def known(self) -> list[Fact]:
        """Returns what D0 states: the facts that hold at its end, and what happened before."""
        past = [f for f in self.facts if self.kind(f) == EVENT and f.valid_from < self.cut]
        return [*self.at(self.before).values(), *past]

    def invariant(self) -> list[Fact]:
        """Returns the time-invariant facts known at D0, of probed subjects."""
        facts = self.at(self.before).values()
        return [f for f in facts if self.kind(f) == INVARIANT and not self.is_control(f.subject)]

    def updated(self) -> list[tuple[Fact, Fact]]:
        """Returns (old, new) of each probed subject and relation whose object changed in D1."""
        old, new = self.at(self.before), self.at(self.after)
        both = [(old[k], new[k]) for k in old if k in new and not self.is_control(k[0])]
        return [(a, b) for a, b in both if a.object != b.object]

    def new(self) -> list[Fact]:
        """Returns the facts at the end of D1 whose probed subject had no such relation at D0."""
        old, new = self.at(self.before), self.at(self.after)
        return [fact for k, fact in new.items() if k not in old and not self.is_control(k[0])]

    def begun(self) -> list[Fact]:
        """Returns what D1 reports: the facts that begin on or after the cut, in no order."""
        return [f for f in self.facts if self.cut <= f.valid_from < self.end]

    def events(self) -> list[Fact]:
        """Returns the single happenings of D1, of probed subjects."""
        begun = self.begun()
        return [f for f in begun if self.kind(f) == EVENT and not self.is_control(f.subject)]


def without_news_of_controls(world: World) -> World:
    """Leaves out what became of controls, which are in no probe, and whom no fact names."""
    facts = [f for f in world.facts if f.valid_from < world.cut or not world.is_control(f.subject)]
    prose = [p for p in world.prose if p.date < world.cut or not world.is_control(p.subject)]
    used = {e for fact in facts for e in (fact.subject, fact.object)}
    entities = {key: entity for key, entity in world.entities.items() if key in used}
    return dataclasses.replace(world, entities=entities, facts=tuple(facts), prose=tuple(prose))


def fraction_of(key: str) -> float:
    """Returns a number in [0, 1) that depends on `key` alone."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:6]) / 2**48


def _day_before(date: str) -> str:
    return (datetime.date.fromisoformat(date) - datetime.timedelta(days=1)).isoformat()


def occurs_in(answer: Entity, subject: Entity) -> bool:
    """Whether an accepted answer occurs in the subject's name, and so gives itself away."""
    return any(a.lower() in subject.name.lower() for a in (answer.name, *answer.aliases))


def office_terms(world: World) -> Iterator[Term]:
    """Yields who held which office of a country, a city, a company... that is not a control."""
    for fact in world.facts:
        if world.is_control(fact.subject):
            continue
        relation = world.relations[fact.relation]
        office = (relation.kind, relation.object) == (CHANGING, "person")
        if office and relation.subject != "person":
            role = relation.name.replace("_", " ")
            holder, *aliases = world.answers(fact.object)
            place = world.name(fact.subject)
            yield Term(role, place, holder, fact.valid_from, fact.valid_to, tuple(aliases))
