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


def fact_changes(old: Month, new: Month) -> dict[tuple[str, str, str], tuple[str, tuple[str, ...]]]:
    """(subject, property, object) by number -> (class, former objects) for all facts.

    A subject has one object of a relation at a time, so a fact that begins where another was is an
    update, and one that ends without a successor is deleted.
    """
    numbers = item_numbers(new.world)

    def held(month: Month) -> dict[tuple[str, str], Fact]:
        return {(f.subject, f.relation): f for i in month.items.values() for f in i.facts}

    def name(fact: Fact) -> tuple[str, str, str]:
        prop = new.world.relations[fact.relation].property
        return f"Q{numbers[fact.subject]}", prop, f"Q{numbers[fact.object]}"

    before, after = held(old), held(new)
    changes = {}
    for key, fact in after.items():
        if key not in before:
            changes[name(fact)] = ("new", ())
        elif before[key].object == fact.object:
            changes[name(fact)] = ("unchanged", ())
        else:
            changes[name(fact)] = ("updated", (f"Q{numbers[before[key].object]}",))
    for key in before.keys() - after.keys():
        changes[name(before[key])] = ("deleted", ())
    return changes
