"""The changes between two months of a simulated world, from its timeline, not its texts."""

import dataclasses

from ckl_jax.world.dump_files import item_numbers
from ckl_jax.world.facts import Fact
from ckl_jax.world.months import Month, PageState, Sentence


@dataclasses.dataclass(frozen=True)
class TextChange:
    """The expected diffset of a page: kind as in `algorithm1`, and the sentences."""

    page: int
    title: str
    kind: str
    sentences: tuple[str, ...]


def text_changes(old: Month, new: Month) -> list[TextChange]:
    """Every sentence that the pages of `new` have and those of `old` had not, in order."""
    changes = []
    for number, page in new.pages.items():
        before = old.pages.get(number)
        if page.redirect:
            continue
        if before is None or before.redirect:
            whole = tuple(s.text for p in page.paragraphs for s in p)
            changes.append(TextChange(number, page.title, "new", whole))
        else:
            changes += _new_sentences(before, page)
    return changes


def _new_sentences(before: PageState, page: PageState) -> list[TextChange]:
    known: set[Sentence] = {s for p in before.paragraphs for s in p}
    changes = []
    for paragraph in page.paragraphs:
        fresh = tuple(s.text for s in paragraph if s not in known)
        kind = "paragraph" if len(fresh) == len(paragraph) else "sentences"
        if fresh:
            changes.append(TextChange(page.id, page.title, kind, fresh))
    return changes


Key = tuple[str, str, str]  # subject, property, object
Changes = dict[Key, tuple[str, tuple[str, ...]]]  # class, former objects


def stated_changes(old: Month, new: Month) -> Changes:
    """The classes of all facts that the dumps state, whether or not they hold (the paper's)."""
    before, after = (
        {_name(f, m): None for i in m.items.values() for f in (*(f for f, _ in i.ended), *i.facts)}
        for m in (old, new)
    )
    changes = {}
    for subject, relation, item in after:
        known = [o for s, r, o in before if (s, r) == (subject, relation)]
        gone = tuple(o for o in known if (subject, relation, o) not in after)
        key = subject, relation, item
        kind = "new" if not known else "unchanged" if item in known else "updated"
        changes[key] = kind, gone if kind == "updated" else ()
    replaced = {(s, r, o) for (s, r, _), (_, gone) in changes.items() for o in gone}
    return changes | {key: ("deleted", ()) for key in before.keys() - after.keys() - replaced}


def fact_changes(old: Month, new: Month) -> Changes:
    """(subject, property, object) by number -> (class, former objects) for what holds and ended.

    A subject has one object of a relation at a time, so a fact that begins where another was is an
    update; one that ends without a successor has ended if it is still stated, and is deleted if it
    is not. What was true before the old month and is recorded after it is no change.
    """

    def held(month: Month) -> dict[tuple[str, str], Fact]:
        return {(f.subject, f.relation): f for i in month.items.values() for f in i.facts}

    before, after = held(old), held(new)
    ended = {f for i in new.items.values() for f, _ in i.ended}
    changes = {}
    for key, fact in after.items():
        former, name = before.get(key), _name(fact, new)
        if former and former.object == fact.object:
            changes[name] = ("unchanged", ())
        elif _starts_before(fact, old):
            changes[name] = ("recorded late", ())
        else:
            kind = "updated" if former else "new"
            changes[name] = (kind, (_name(former, new)[2],) if former else ())
    for key in before.keys() - after.keys():
        kind = "ended" if before[key] in ended else "deleted"
        changes[_name(before[key], new)] = (kind, ())
    return changes


def _name(fact: Fact, month: Month) -> Key:
    numbers = item_numbers(month.world)
    prop = month.world.relations[fact.relation].property
    return f"Q{numbers[fact.subject]}", prop, f"Q{numbers[fact.object]}"


def _starts_before(fact: Fact, old: Month) -> bool:
    """Whether the dumps say that a fact began before the old month; two of three have a start."""
    return bool(item_numbers(old.world)[fact.subject] % 3) and fact.valid_from <= old.date


def note_edits(old: Month, new: Month) -> dict[str, tuple[str, str]]:
    """Text of each new note of an old page -> (kind of edit, what changed in it)."""
    found = {}
    for number, page in new.pages.items():
        before = old.pages.get(number)
        if page.redirect or before is None or before.redirect:
            continue
        notes = [
            next((s.note for p in side.paragraphs for s in p if s.note), None)
            for side in (before, page)
        ]
        was, now = notes
        if now and not was:
            found[now.text] = "added", now.text
        elif now and now != was:
            number_changed, name_changed = now.number != was.number, now.name != was.name
            kind = "number" if number_changed else "name" if name_changed else "reworded"
            found[now.text] = kind, {"number": str(now.number), "name": now.name}.get(kind, "")
    return found
