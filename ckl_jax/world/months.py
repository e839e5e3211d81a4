"""A simulated world as an encyclopaedia and a knowledge base that people edit month by month.

Besides the facts of the timeline there is what happens to pages and items: pages are moved, merged
into others, deleted, rewritten without saying anything new; things are renamed; statements are
withdrawn. A `Month` holds what is then true, so that tests can hold everything that is built from
the dumps of two months (`dump_files`) to it.

A fact that has ended may stay stated, with the day of its end or with another rank than its
successor; a statement may be recorded a month late; and a fact may end without a successor. Some
pages have a note, whose number, name or wording editors change.

A page states each fact in three of its relation's trained wordings. A probe is "subject relation
object"; that form stands only on the pages of controls, whose items have no statements, so that no
probe is about them.
"""

import dataclasses
import random
from collections.abc import Iterator
from typing import NamedTuple

from ckl_jax.errors import UserError
from ckl_jax.world.facts import Fact, World, fraction_of
from ckl_jax.world.templates import CHANGING, FILLERS

_EVENT_FRACTION = 0.02  # of the pages that each kind of event befalls in a month
_RENAMED = ("company", "club", "city")
_WORDINGS = 3  # of every fact, each a sentence of its subject's page
_CONTROLS = 0.25  # fraction of the entities that are controls
_NOTES = (  # wordings of a note
    "A survey by {name} counted {number} visitors over the year.",
    "A survey led by {name} counted {number} visitors during that year.",
)
_NOTED, _EDITED = 0.15, 0.25  # fraction of the pages with a note, and of those that change a month
_SYLLABLES = ("bar", "del", "fin", "gor", "lun", "mer", "tos")
_DATED, _DEMOTED = 0.4, 0.7  # of the facts that ended: stay stated, with their end; or with a rank
_LATE = 0.2  # fraction of the facts that are recorded a month late


class Note(NamedTuple):
    """A sentence about a page's subject that is no fact: its wording, a number and a name."""

    wording: int
    number: int
    name: str

    @property
    def text(self) -> str:
        return _NOTES[self.wording].format(name=self.name, number=self.number)


def _surveyor(number: int) -> str:
    """A made-up name that no entity of the world has."""
    return f"Mc{_SYLLABLES[number % 7].title()}{_SYLLABLES[number // 7 % 7]}"


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A sentence and what it says: two are the same thing said if they are equal."""

    text: str  # plain
    fact: Fact | None = None  # that it states; None for others
    link: str = ""  # the part of the text that is a link
    note: Note | None = None  # that it is


@dataclasses.dataclass(frozen=True)
class PageState:
    """A page in one month."""

    id: int
    entity: str  # that it is about; "" for the redirect that a move left
    title: str  # in this month
    redirect: str = ""  # title of its target; "" if it is none
    paragraphs: tuple[tuple[Sentence, ...], ...] = ()  # what it says
    decoration: int = 0  # number of edits that changed nothing but markup
    revision: int = 0  # changes when anything does, and when it is saved without a change
    edited: str = ""  # ISO date of the revision


@dataclasses.dataclass(frozen=True)
class ItemState:
    """An item in one month."""

    entity: str  # that it is about
    label: str  # its name
    title: str  # of its page; "" for none
    facts: tuple[Fact, ...]  # its statements that hold
    # its statements that hold no longer, each with the day of its end; "" if its rank alone tells
    # that
    ended: tuple[tuple[Fact, str], ...] = ()


@dataclasses.dataclass(frozen=True)
class Month:
    """Everything that holds on `date`: pages by id, items by entity."""

    date: str
    world: World
    pages: dict[int, PageState]
    items: dict[str, ItemState]


def months(world: World, count: int) -> Iterator[Month]:
    """Yields the state at the first of `count` successive months, from the cut on.

    Raises:
      UserError: the world ends before.
    """
    dates = month_starts(world, count)
    wiki = _Wiki(world, dates[0])
    yield wiki.month(dates[0])
    for date in dates[1:]:
        wiki.live(date)
        yield wiki.month(date)


def property_labels(world: World) -> dict[str, str]:
    """The labels of the properties, by their ids: the name of the first relation that has it."""
    labels: dict[str, str] = {}
    for relation in world.relations.values():
        if relation.property:
            labels.setdefault(relation.property, relation.name.replace("_", " "))
    return labels


def is_control(world: World, entity: str) -> bool:
    """Whether the item of an entity has no statements."""
    return fraction_of(f"control of dumps {world.seed} {entity}") < _CONTROLS


def month_starts(world: World, count: int) -> list[str]:
    """The first days of months (ISO) from the cut on."""
    year, month = (int(part) for part in world.cut.split("-")[:2])
    first = year * 12 + month - 1
    end_year, end_month = (int(part) for part in world.end.split("-")[:2])
    max_months = end_year * 12 + end_month - first
    if not 2 <= count <= max_months:
        raise UserError(f"{count} months are wanted; this world has 2 to {max_months}.")
    return [f"{n // 12}-{n % 12 + 1:02d}-01" for n in range(first, first + count)]


class _Wiki:
    """The pages and items, changed by one month at a time."""

    def __init__(self, world: World, date: str):
        self.world = world
        self.rng = random.Random(f"months {world.seed} {world.size}")
        self.labels = property_labels(world)
        self.date = date
        self.by_subject: dict[str, list[Fact]] = {}
        for fact in world.facts:
            self.by_subject.setdefault(fact.subject, []).append(fact)
        self.names = {e: entity.name for e, entity in world.entities.items()}
        self.titles: dict[str, str] = {}  # of the articles
        self.redirects: dict[int, tuple[str, str]] = {}  # page -> title, target
        self.numbers: dict[str, int] = {}  # entity -> page
        self.next_page, self.next_revision = 10, 1000
        self.orders: dict[str, int] = {}  # entity -> how often its text was shuffled
        self.decorations: dict[str, int] = {}
        self.fillers: dict[str, list[str]] = {}
        self.notes: dict[str, Note] = {}
        self.withdrawn: set[Fact] = set()
        self.ended: dict[Fact, str] = {}  # without a successor -> the day
        self.started = date  # of the month before
        self.gone: set[str] = set()  # entities whose item was deleted
        self.touched: set[int] = set()  # pages saved without a change
        self.pages: dict[int, PageState] = {}
        self.first = date
        self._create(date)
        self._edit_notes(date)

    def _create(self, date: str) -> None:
        """Gives a page to everything that is known at `date` and had none yet."""
        for key, entity in self.world.entities.items():
            if entity.since <= date and key not in self.numbers:
                self.numbers[key] = self._number()
                self.titles[key] = self.names[key]
                self.fillers[key] = self.rng.sample(FILLERS, self.rng.randrange(3))

    def _number(self) -> int:
        self.next_page += self.rng.randint(1, 4)
        return self.next_page

    # --- what happens

    def live(self, date: str) -> None:
        """Lets one month pass, up to `date`."""
        self.touched, self.started = set(), self.date
        self.date = date
        for happen in (
            self._rename,
            self._move,
            self._merge,
            self._delete,
            self._withdraw,
            self._shuffle,
            self._decorate,
            self._add_filler,
            self._touch,
        ):
            articles = sorted(self.titles)
            for key in self.rng.sample(articles, max(1, round(_EVENT_FRACTION * len(articles)))):
                if key in self.titles:
                    happen(key)
        self._end(date)
        self._edit_notes(date)
        self._create(date)

    def _end(self, date: str) -> None:
        """Some facts that could change end, and nothing follows them."""
        for fact in self.world.at(date).values():
            if self.world.kind(fact) == CHANGING and fact.valid_from < self.started:
                # By lot and not by the generator, whose other events are to stay as they were.
                if fraction_of(f"end {self.world.seed} {date} {fact}") < _EVENT_FRACTION:
                    self.ended.setdefault(fact, date)

    def _edit_notes(self, date: str) -> None:
        """Some pages get a note; of those with one, some have a number, name or wording changed."""
        for key in self.numbers:
            lot = fraction_of(f"note {self.world.seed} {date} {key}")
            number = 100 + int(lot * 1e9) % 900
            if key not in self.notes:
                if lot < (_NOTED if date == self.first else _EVENT_FRACTION):
                    self.notes[key] = Note(number % 2, number, _surveyor(number))
            elif lot < _EDITED:
                note = self.notes[key]
                self.notes[key] = (
                    note._replace(wording=1 - note.wording),
                    note._replace(number=number),
                    note._replace(name=_surveyor(number)),
                )[number % 3]

    def _rename(self, key: str) -> None:
        """The thing has another name from now on, and its page another title."""
        if self.world.entities[key].kind in _RENAMED and not self.names[key].startswith("New "):
            self.names[key] = f"New {self.names[key]}"
            self._retitle(key, self.names[key])

    def _move(self, key: str) -> None:
        """The page gets another title, its text does not change."""
        if "(" not in self.titles[key]:
            self._retitle(key, f"{self.titles[key]} ({self.world.entities[key].kind})")

    def _retitle(self, key: str, title: str) -> None:
        self.redirects[self._number()] = (self.titles[key], title)
        self.titles[key] = title

    def _merge(self, key: str) -> None:
        """The page becomes a redirect to another one; the item stays, without a page."""
        other = self.rng.choice(sorted(self.titles))
        if other != key:
            number = self.numbers[key]
            self.redirects[number] = (self.titles.pop(key), self.titles[other])

    def _delete(self, key: str) -> None:
        """The page is deleted; half of the times the item too."""
        del self.titles[key]
        if self.rng.random() < 0.5:
            self.gone.add(key)

    def _withdraw(self, key: str) -> None:
        """A statement that could change is taken back, and the sentence that said so."""
        changing = [
            f for f in self.world.facts if f.subject == key and self.world.kind(f) == CHANGING
        ]
        if changing:
            self.withdrawn.add(changing[-1])

    def _shuffle(self, key: str) -> None:
        self.orders[key] = self.orders.get(key, 0) + 1

    def _decorate(self, key: str) -> None:
        self.decorations[key] = self.decorations.get(key, 0) + 1

    def _add_filler(self, key: str) -> None:
        new = [f for f in FILLERS if f not in self.fillers[key]]
        if new:
            self.fillers[key].append(self.rng.choice(new))

    def _touch(self, key: str) -> None:
        self.touched.add(self.numbers[key])

    # --- what is then there

    def month(self, date: str) -> Month:
        """The state at `date`."""
        facts: dict[str, list[Fact]] = {}
        for fact in self.world.at(date).values():
            if fact not in self.withdrawn and fact not in self.ended:
                facts.setdefault(fact.subject, []).append(fact)
        pages = [self._article(key, facts.get(key, [])) for key in self.titles]
        pages += [PageState(n, "", title, target) for n, (title, target) in self.redirects.items()]
        self.pages = {p.id: self._saved(p, date) for p in sorted(pages, key=lambda p: p.id)}
        items = {}
        for key in self.numbers:
            if key in self.gone:
                continue
            stated, ended = (), ()
            if not is_control(self.world, key):
                held = facts.get(key, [])
                stated = tuple(f for f in held if not self._is_late(f))
                ended = tuple(self._still_stated(key, {f.relation for f in stated}, date))
            title = self.titles.get(key, "")
            items[key] = ItemState(key, self.names[key], title, stated, ended)
        return Month(date, self.world, self.pages, items)

    def _is_late(self, fact: Fact) -> bool:
        lot = fraction_of(f"late {self.world.seed} {fact}")
        return self.started < fact.valid_from and lot < _LATE

    def _still_stated(self, key: str, followed: set[str], date: str) -> Iterator[tuple[Fact, str]]:
        """Yields what has ended and is stated all the same, with the day or "".

        A rank matters only if a better one stands beside it.
        """
        for fact in self.by_subject.get(key, ()):
            end = self.ended.get(fact) or fact.valid_to
            if fact in self.withdrawn or not end or end > date:
                continue
            lot = fraction_of(f"stays {self.world.seed} {fact}")
            if lot < _DATED or fact in self.ended:
                yield fact, end
            elif lot < _DEMOTED and fact.relation in followed:
                yield fact, ""

    def _saved(self, page: PageState, date: str) -> PageState:
        """The page with the revision it had, or a new one if it differs from last month's."""
        last = self.pages.get(page.id)
        if last and page.id not in self.touched:
            same = dataclasses.replace(page, revision=last.revision, edited=last.edited)
            if same == last:
                return last
        self.next_revision += self.rng.randint(1, 9)
        return dataclasses.replace(page, revision=self.next_revision, edited=date)

    def _article(self, key: str, facts: list[Fact]) -> PageState:
        kind = self.world.entities[key].kind
        article = "an" if kind[0] in "aeiou" else "a"
        lead = [Sentence(f"{self.names[key]} is {article} {kind}.")]
        body = [s for f in facts if self.world.kind(f) == CHANGING for s in self._said(f)]
        lead += [s for f in facts if self.world.kind(f) != CHANGING for s in self._said(f)]
        notes = [Sentence(n.text, note=n) for n in [self.notes.get(key)] if n]
        paragraphs = [lead, body, [*(Sentence(text) for text in self.fillers[key]), *notes]]
        order = random.Random(f"{key} {self.orders.get(key, 0)}")
        if self.orders.get(key):
            order.shuffle(lead)
            order.shuffle(paragraphs)
        return PageState(
            self.numbers[key],
            key,
            self.titles[key],
            paragraphs=tuple(tuple(p) for p in paragraphs if p),
            decoration=self.decorations.get(key, 0),
        )

    def _said(self, fact: Fact) -> list[Sentence]:
        relation = self.world.relations[fact.relation]
        subject, answer = self.names[fact.subject], self.names[fact.object]
        rng = random.Random(f"wordings {self.world.seed} {fact}")
        wordings = rng.sample(relation.trained_sentences, _WORDINGS)
        if is_control(self.world, fact.subject):
            wordings.append(f"{{s}} {self.labels[relation.property]} {{o}}.")
        return [Sentence(w.format(s=subject, o=answer), fact, answer) for w in wordings]
