"""The simulated world: invented entities and facts that change, from one seed.

People, cities, companies and offices are known at the cut; after it some facts get another
object, some entities appear for the first time, and some things happen once. The same seed and size
give the same world.
"""

import collections
import dataclasses
import datetime
import random
from collections.abc import Iterable
from typing import Any

from ckl_jax.errors import UserError, nearest
from ckl_jax.world.facts import Entity, Fact, Shape, World, occurs_in
from ckl_jax.world.names import NameMaker
from ckl_jax.world.templates import CHANGING, EVENT, RELATIONS, Relation

CUT = "2020-05-01"  # D0 was written before, D1 on or after it
HALF = "2020-11-01"  # D1's phases: P1 before, P2 on or after it
END = "2021-05-01"  # D1 was written before it
_START = "2000-01-01"


@dataclasses.dataclass(frozen=True)
class Size:
    """Size of a world.

    Attributes:
      countries: number of countries; the other entities of D0 are multiples of it.
      people, cities, companies, clubs, universities, rivers, awards: per country.
      new: fraction of entities that appear only after the cut, of people, companies and clubs.
      events: single happenings reported in D1, per country.
      shape: of the corpora.
    """

    countries: int
    people: float = 11.5
    cities: float = 4.6
    companies: float = 2.9
    clubs: float = 1.5
    universities: float = 1.7
    rivers: float = 2.0
    awards: float = 1.25
    new: float = 0.25
    events: float = 14.5
    shape: Shape = Shape()


SIZES = {
    "tiny": Size(4),
    "small": Size(24),
    "medium": Size(120, shape=Shape(chunk_words=60, max_spans=4, per_document=3, small=0.25)),
    "large": Size(
        420, events=26.0, shape=Shape(chunk_words=200, max_spans=12, per_document=16, small=0.1)
    ),
}

# Share of the subjects that have a relation: at the cut; of new subjects; of old ones without it.
_AT_CUT = {
    "birthplace": 1.0,
    "native_language": 0.6,
    "alma_mater": 0.5,
    "award": 0.3,
    "country": 1.0,
    "capital": 1.0,
    "official_language": 1.0,
    "headquarters": 1.0,
    "river_country": 1.0,
    "league": 1.0,
    "prime_minister": 1.0,
    "mayor": 0.8,
    "chief_executive": 1.0,
    "head_coach": 1.0,
    "rector": 0.6,
    "club": 0.2,
    "employer": 0.13,
    "residence": 0.13,
}
_NEW_SUBJECT = {
    "birthplace": 0.7,
    "employer": 0.4,
    "residence": 0.4,
    "club": 0.2,
    "headquarters": 1.0,
    "chief_executive": 1.0,
    "league": 1.0,
    "head_coach": 1.0,
}
_LATE = {"residence": 0.1, "employer": 0.08, "club": 0.04, "mayor": 0.5, "rector": 0.5}
_CHANGES = 0.62  # fraction of the changing facts that do change in D1


def make_world(seed: int = 0, size: str = "small") -> World:
    """Makes the world of `seed` at one of `SIZES`.

    Raises:
      UserError: there is no such size.
    """
    check_size(size)
    maker = Maker(random.Random(f"ckl world {seed} {size}"), SIZES[size])
    maker.make_entities()
    maker.make_states()
    maker.make_changes()
    maker.make_new()
    maker.make_events()
    shape = SIZES[size].shape
    return maker.world(source="simulated", seed=seed, size=size, half=HALF, shape=shape)


def check_size(size: str) -> None:
    """Raises `UserError` if no world has that size."""
    if not isinstance(size, str) or size not in SIZES:
        raise UserError(
            f"No world has the size {size!r}; there are {', '.join(SIZES)}."
            + nearest(str(size), SIZES)
        )


class Maker:
    """Builds a world step by step; every step draws from the one generator."""

    def __init__(self, rng: random.Random, size: Size, cut: str = CUT, end: str = END):
        self.rng, self.size, self.cut, self.end = rng, size, cut, end
        self.names = NameMaker(rng, size.countries)
        self.entities: dict[str, Entity] = {}
        self.old: dict[str, list[Entity]] = collections.defaultdict(list)
        self.new: dict[str, list[Entity]] = collections.defaultdict(list)
        self.facts: list[Fact] = []
        self.held: set[tuple[str, str]] = set()  # (subject, relation) with a value
        self.busy: set[str] = set()  # people in an office

    def world(self, **fields: Any) -> World:
        """The world of what was made so far; `fields` are the others of `World`."""
        return World(
            entities=self.entities,
            facts=tuple(self.facts),
            relations=RELATIONS,
            cut=self.cut,
            end=self.end,
            **fields,
        )

    # --- entities

    def make_entities(self) -> None:
        size, n = self.size, self.size.countries
        first_names = [self.names.first_name(i) for i in range(max(20, round(n * 2.5)))]
        self._add("country", n)
        self._add("language", max(4, round(n * 0.8)))
        self._add("city", round(n * size.cities))
        self._add("person", round(n * size.people), first_names)
        for kind, per in (
            ("company", size.companies),
            ("club", size.clubs),
            ("university", size.universities),
            ("river", size.rivers),
            ("award", size.awards),
            ("league", 0.5),
        ):
            self._add(kind, max(3, round(n * per)))
        self._add("person", round(n * size.people * size.new), first_names, new=True)
        self._add("company", round(n * size.companies * size.new * 2), new=True)
        self._add("club", round(n * size.clubs * size.new), new=True)
        self._add("event", max(3, round(n * 1.5)), new=True)

    def _add(self, kind: str, count: int, first_names: Iterable[str] = (), new: bool = False):
        first_names = list(first_names)
        for _ in range(count):
            i = len(self.old[kind]) + len(self.new[kind])
            country = i % self.size.countries
            name, aliases = self._name(kind, country, first_names)
            since = self._date(self.cut, self.end) if new else ""
            entity = Entity(f"{kind}_{i}", kind, name, aliases, country, since)
            self.entities[entity.id] = entity
            (self.new if new else self.old)[kind].append(entity)

    def _name(self, kind: str, country: int, first_names: list[str]) -> tuple[str, tuple[str, ...]]:
        if kind == "person":
            surname = self.names.surname(country)
            return f"{self.rng.choice(first_names)} {surname}", (surname,)
        if kind in ("country", "city", "language", "river"):
            name = getattr(self.names, kind)(country)
            return name, (f"Republic of {name}",) if kind == "country" else ()
        name = self.names.two_words(country, kind)
        return name, (name.split()[0],) if kind in ("company", "club") else ()

    def _date(self, first: str, stop: str) -> str:
        """Returns a random ISO date from `first` to before `stop`."""
        day, end = (datetime.date.fromisoformat(d).toordinal() for d in (first, stop))
        return datetime.date.fromordinal(self.rng.randrange(day, end)).isoformat()

    # --- facts

    def _object(self, relation: Relation, subject: Entity, avoid: str = "") -> Entity | None:
        """Draws an object whose name does not occur in the subject's; at home, mostly."""
        if relation.name == "country" or relation.name == "river_country":
            return self.old["country"][subject.country]
        pool = self.old[relation.object]
        if relation.object == "person":
            everyone = pool + self.new["person"] if avoid or subject.since else pool
            pool = [p for p in everyone if p.id not in self.busy] or everyone
        home = [e for e in pool if e.country == subject.country]
        if relation.name == "capital" or (home and self.rng.random() < 0.5):
            pool = home
        for _ in range(20):
            chosen = self.rng.choice(pool)
            if chosen.id not in (avoid, subject.id) and not occurs_in(chosen, subject):
                return chosen
        return None

    def _state(self, name: str, subject: Entity, begin: str, avoid: str = "") -> Fact | None:
        relation = RELATIONS[name]
        chosen = self._object(relation, subject, avoid)
        if chosen is None:
            return None
        if relation.object == "person":
            self.busy.add(chosen.id)
        fact = Fact(subject.id, name, chosen.id, max(begin, chosen.since))
        self.facts.append(fact)
        self.held.add((subject.id, name))
        return fact

    def make_states(self) -> None:
        """Makes what is true at the cut."""
        for name, fraction in _AT_CUT.items():
            for subject in self.old[RELATIONS[name].subject]:
                if self.rng.random() < fraction:
                    self._state(name, subject, self._date(_START, self.cut))

    def make_changes(self) -> None:
        """Ends a fraction of the changing facts in D1 and gives each a successor."""
        for i, fact in enumerate(list(self.facts)):
            changes = RELATIONS[fact.relation].kind == CHANGING and self.rng.random() < _CHANGES
            subject = self.entities[fact.subject]
            date = self._date(self.cut, self.end)
            if changes and (new := self._state(fact.relation, subject, date, fact.object)):
                self.facts[i] = dataclasses.replace(fact, valid_to=new.valid_from)

    def make_new(self) -> None:
        """Makes the facts of new entities, and new kinds of facts of old ones."""
        for name, fraction in _NEW_SUBJECT.items():
            for subject in self.new[RELATIONS[name].subject]:
                if self.rng.random() < fraction:
                    self._state(name, subject, subject.since)
        for name, fraction in _LATE.items():
            for subject in self.old[RELATIONS[name].subject]:
                if (subject.id, name) not in self.held and self.rng.random() < fraction:
                    self._state(name, subject, self._date(self.cut, self.end))

    def make_events(self) -> None:
        """Makes the single happenings; no two have the same subject and relation."""
        kinds = [r for r in RELATIONS.values() if r.kind == EVENT]
        wanted = round(self.size.events * self.size.countries)
        for _ in range(wanted * 3):
            if wanted == 0:
                return
            relation = self.rng.choice(kinds)
            subject = self.rng.choice(self.old[relation.subject])
            pool = self.new["event"] if relation.object == "event" else self.old[relation.object]
            chosen = self.rng.choice(pool)
            key = (subject.id, relation.name)
            if key in self.held or chosen.id == subject.id or occurs_in(chosen, subject):
                continue
            self.held.add(key)
            date = self._date(self.cut, self.end)
            self.facts.append(Fact(subject.id, relation.name, chosen.id, date))
            wanted -= 1
