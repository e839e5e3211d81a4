"""Classifies the facts of one item: TemporalWiki's Algorithm 2, and deleted facts."""

import dataclasses
from collections.abc import Iterator, Sequence

from ckl_jax.data.facts.fact_files import DELETED, NEW, UNCHANGED, UPDATED
from ckl_jax.data.facts.wikidata_json import Fact

CLASSES = (UNCHANGED, UPDATED, NEW, DELETED)


@dataclasses.dataclass(frozen=True)
class FactChange:
    """A fact of one item and its class.

    Attributes:
      kind: one of `CLASSES`; the paper's CHANGED is updated and new.
      relation: property.
      object: item.
      old: of an updated fact, the items that the relation named before and names no more.
    """

    kind: str
    relation: str
    object: str
    old: tuple[str, ...] = ()


def classify(old: Sequence[Fact], new: Sequence[Fact]) -> Iterator[FactChange]:
    """Applies Algorithm 2 (p. 5), with CHANGED split into updated and new, and adds deleted facts.

    A new fact is NEW if the item had no fact before, or none of this relation; UNCHANGED if it had
    this one; else UPDATED. An old fact that is not there any more is named as an updated fact's
    `old` if its relation has a new object, and is DELETED if not.
    """
    before, after = _by_relation(old), _by_relation(new)
    for relation, objects in after.items():
        known = before.get(relation, {})
        gone = tuple(o for o in known if o not in objects)
        for item in objects:
            if not known:
                yield FactChange(NEW, relation, item)
            elif item in known:
                yield FactChange(UNCHANGED, relation, item)
            else:
                yield FactChange(UPDATED, relation, item, gone)
    for relation, objects in before.items():
        left = after.get(relation, {})
        # Where the relation has a new object, the old ones are the `old` of an UPDATED fact.
        if left.keys() <= objects.keys():  # deleted facts without a replacement
            for item in objects:
                if item not in left:
                    yield FactChange(DELETED, relation, item)


def _by_relation(facts: Sequence[Fact]) -> dict[str, dict[str, None]]:
    """Relation -> its objects, both in the order of the dump."""
    objects: dict[str, dict[str, None]] = {}
    for relation, item in facts:
        objects.setdefault(relation, {})[item] = None
    return objects
