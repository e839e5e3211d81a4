"""The simulated world: invented entities and facts that change, from one seed.

People, cities, companies and offices are known at the cut; after it some facts get another
object, some entities appear for the first time, and some things happen once. The same seed and size
give the same world.
"""

import collections
import dataclasses
import datetime
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ckl_jax import checks
from ckl_jax.errors import refuse_unknown
from ckl_jax.world.facts import Entity, Fact, Shape, World, occurs_in
from ckl_jax.world.names import SECOND_WORDS, NameMaker
from ckl_jax.world.templates import CHANGING, EVENT, RELATIONS, Relation

CUT = "2020-05-01"  # D0 was written before, D1 on or after it
HALF = "2020-11-01"  # D1's phases: P1 before, P2 on or after it
END = "2021-05-01"  # D1 was written before it
_START = "2000-01-01"


@dataclasses.dataclass(frozen=True)
class Size:
    """Size of a world."""

    countries: int  # number of countries; the other entities of D0 are multiples of it
    # people, cities, companies, clubs, universities, rivers, awards: per country
    people: float = 11.5
    cities: float = 4.6
    companies: float = 2.9
    clubs: float = 1.5
    universities: float = 1.7
    rivers: float = 2.0
    awards: float = 1.25
    # fraction of entities that appear only after the cut, of people, companies and clubs
    new: float = 0.25
    events: float = 14.5  # single happenings reported in D1, per country
    past_events: float = 0.0  # those of before the cut
    changes: float = 0.62  # fraction of the changing facts that do change in D1
    late: float = 1.0  # factor of the fractions of old subjects that get a relation in D1
    namesakes: float = 0.0  # fraction of the names of two words that have one of another entity's
    shape: Shape = Shape()


LEGACY_SIZES = {
    "tiny": Size(4),
    "small": Size(24),
    "wide": Size(60),
    "medium": Size(120, shape=Shape(chunk_words=60, max_spans=4, per_document=3, small=0.25)),
    "large": Size(
        420, events=26.0, shape=Shape(chunk_words=200, max_spans=12, per_document=16, small=0.1)
    ),
}


def _disjoint(countries: int, **fields: Any) -> Size:
    """A size at which D0 has ten times as many rows as D1, or more."""
    return Size(
        countries,
        **{"new": 0.1, "events": 3.2, "past_events": 14.5, "changes": 0.45, "late": 0.3}
        | {"namesakes": 0.67, "shape": _rows(small=0.1)}
        | fields,
    )


def _rows(small: float) -> Shape:
    return Shape(chunk_words=40, max_spans=3, small=small)


# So little that D0 has twenty times as many rows as D1.
_NEWS_OF_20 = {"new": 0.04, "events": 2.0, "changes": 0.2, "late": 0.1}

SIZES = {
    "tiny": _disjoint(4, new=0.25, events=8.0, changes=0.8, late=1.0, shape=_rows(small=0.5)),
    "small": _disjoint(28),
    # A tenth of a D1 so small would hold too few questions on SMALL's halves.
    "wide": _disjoint(60, **_NEWS_OF_20 | {"events": 2.6}, shape=_rows(small=0.5)),
    "medium": _disjoint(120, **_NEWS_OF_20, shape=_rows(small=0.5)),
    "large": _disjoint(420, **_NEWS_OF_20, shape=_rows(small=0.2)),
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
_CONTROLS = 0.1  # weight of control subjects, which are in no probe, among what is new in D1
VARIANTS = ("disjoint", "legacy")


def make_world(seed: int = 0, size: str = "small", variant: str = "disjoint") -> World:
    """Makes the world of a seed; raises `UserError` for an unknown size or `World.variant`."""
    check_size(size)
    checks.require_choice(VARIANTS, **{"--world": variant})
    given = (SIZES if variant == "disjoint" else LEGACY_SIZES)[size]
    fields = {"source": "simulated", "seed": seed, "size": size, "half": HALF}
    fields |= {"shape": given.shape, "variant": variant}
    maker = Maker(random.Random(f"ckl world {seed} {size}"), given)
    maker.make_entities()
    maker.make_states()
    # Which subjects are controls depends on the entities, which are all there.
    maker.is_control = maker.world(**fields).is_control
    maker.make_changes()
    maker.make_new()
    maker.make_events()
    return maker.world(**fields)


def check_size(size: str) -> None:
    """Raises `UserError` if no world has that size."""
    refuse_unknown(str(size), SIZES, f"No world has the size {size!r}; there are")


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
        self.is_control: Callable[[str], bool] = lambda subject: False

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
        if size.past_events:
            self._add("event", max(3, round(n * 1.5)))
        self._add("event", max(3, round(n * 1.5)), new=True)

    def _add(self, kind: str, count: int, first_names: Sequence[str] = (), new: bool = False):
        for _ in range(count):
            country = (len(self.old[kind]) + len(self.new[kind])) % self.size.countries
            name = self._name(kind, country, first_names, new)
            self._enter(kind, country, name, self._date(self.cut, self.end) if new else "")

    def _enter(self, kind: str, country: int, name: tuple, since: str) -> Entity:
        """Adds an entity with a name and aliases; `since` is "" if it was known before the cut."""
        number = len(self.old[kind]) + len(self.new[kind])
        entity = Entity(f"{kind}_{number}", kind, *name, country, since)
        self.entities[entity.id] = entity
        (self.new if since else self.old)[kind].append(entity)
        return entity

    def _name(
        self, kind: str, country: int, first_names: Sequence[str], new: bool = False
    ) -> tuple[str, tuple[str, ...]]:
        if self.size.namesakes and (kind == "person" or kind in SECOND_WORDS):
            return self._shared_name(kind, country, first_names, new), ()
        if kind == "person":
            surname = self.names.surname(country)
            return f"{self.rng.choice(first_names)} {surname}", (surname,)
        if kind in ("country", "city", "language", "river"):
            name = getattr(self.names, kind)(country)
            return name, (f"Republic of {name}",) if kind == "country" else ()
        name = self.names.two_words(country, kind)
        return name, (name.split()[0],) if kind in ("company", "club") else ()

    def _shared_name(self, kind: str, country: int, first_names: Sequence[str], new: bool) -> str:
        """Returns a new name of two words, of which others of the kind have one or both.

        New entities are named by known words alone: what a model must learn is who they are, not
        how to write them. Where few are left, a word may be new.
        """
        others = [*self.old[kind], *self.new[kind]]
        taken = {e.name for e in others}
        for attempt in itertools.count():
            few = not others or attempt > 20
            shared = not few and (new or self.rng.random() < self.size.namesakes)
            if kind == "person":
                surname = self.rng.choice(others).name.split()[1] if shared else None
                surname = surname or self.names.surname(country)
                name = f"{self.rng.choice(first_names)} {surname}"
            else:
                word = self.rng.choice(others).name.split()[0] if shared else None
                word = word or self.names.word(country, syllables=(1, 2))
                name = f"{word} {self.rng.choice(SECOND_WORDS[kind])}"
            if name not in taken:
                return name

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
            fraction = self.size.changes * self._weight(fact.subject)
            changes = RELATIONS[fact.relation].kind == CHANGING and self.rng.random() < fraction
            subject = self.entities[fact.subject]
            date = self._date(self.cut, self.end)
            if changes and (new := self._state(fact.relation, subject, date, fact.object)):
                self.facts[i] = dataclasses.replace(fact, valid_to=new.valid_from)

    def _weight(self, subject: str) -> float:
        return _CONTROLS if self.is_control(subject) else 1.0

    def make_new(self) -> None:
        """Makes the facts of new entities, and new kinds of facts of old ones."""
        for name, fraction in _NEW_SUBJECT.items():
            for subject in self.new[RELATIONS[name].subject]:
                if self.rng.random() < fraction:
                    self._state(name, subject, subject.since)
        for name, fraction in _LATE.items():
            for subject in self.old[RELATIONS[name].subject]:
                least = fraction * self.size.late * self._weight(subject.id)
                if (subject.id, name) not in self.held and self.rng.random() < least:
                    self._state(name, subject, self._date(self.cut, self.end))

    def make_events(self) -> None:
        """Makes the single happenings; no two have the same subject and relation."""
        countries = self.size.countries
        self._happen(round(self.size.past_events * countries), _START, self.cut, self.old)
        self._happen(round(self.size.events * countries), self.cut, self.end, self.new)

    def _happen(
        self, wanted: int, begin: str, end: str, hosted: Mapping[str, Sequence[Entity]]
    ) -> None:
        kinds = [r for r in RELATIONS.values() if r.kind == EVENT]
        for _ in range(wanted * 6):
            if wanted == 0:
                return
            relation = self.rng.choice(kinds)
            subject = self.rng.choice(self.old[relation.subject])
            pool = (hosted if relation.object == "event" else self.old)[relation.object]
            chosen = self.rng.choice(pool)
            key = (subject.id, relation.name)
            if key in self.held or chosen.id == subject.id or occurs_in(chosen, subject):
                continue
            if begin == self.cut and self.is_control(subject.id) and self.rng.random() > _CONTROLS:
                continue
            self.held.add(key)
            self.facts.append(Fact(subject.id, relation.name, chosen.id, self._date(begin, end)))
            wanted -= 1
