"""The paper's three filters of probes, and the numbers of its Tables 2 and 7."""

import collections
import dataclasses
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MAX_SUBJECT_FRACTION, MAX_RELATION_FRACTION, MAX_OBJECT_FRACTION = 0.01, 0.05, 0.05
_MAX_WORDS = 5


@dataclasses.dataclass(frozen=True)
class Probe:
    """A fact in words.

    Attributes:
      kind: its class.
      subject_id, relation_id, object_id: Q5, P6, Q7.
      subject, relation, object: labels, as the snapshot has them.
      old_objects: labels of what an updated fact said before.
      page: key of the subject's page (title or id).
      subject_type, object_type: labels of what they are instances of; "" if unknown.
      aliases: other names of the object; () unless they were read.
    """

    kind: str
    subject_id: str
    relation_id: str
    object_id: str
    subject: str
    relation: str
    object: str
    old_objects: tuple[str, ...] = ()
    page: str = ""
    subject_type: str = ""
    object_type: str = ""
    aliases: tuple[str, ...] = ()

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Probe":
        """The probe of a `row`."""
        lists = {name: tuple(row.get(name, ())) for name in ("old_objects", "aliases")}
        return cls(**{**row, **lists})

    @property
    def row(self) -> dict[str, Any]:
        """As JSON has it; without aliases if there are none."""
        row = dataclasses.asdict(self)
        return row if self.aliases else {k: x for k, x in row.items() if k != "aliases"}

    @property
    def ids(self) -> tuple[int, int, int]:
        return tuple(int(i[1:]) for i in (self.subject_id, self.relation_id, self.object_id))


def without_commas(probe: Probe) -> Probe:
    """The published files have no comma in a label."""
    plain = {f: getattr(probe, f).replace(",", "") for f in ("subject", "relation", "object")}
    old = tuple(label.replace(",", "") for label in probe.old_objects)
    return dataclasses.replace(probe, **plain, old_objects=old)


def distinct(probes: Iterable[Probe]) -> list[Probe]:
    """One of each (subject, relation, object) in words, ordered by ids."""
    probes_by_key: dict[tuple[str, str, str], Probe] = {}
    for probe in sorted(probes, key=lambda p: p.ids):
        probes_by_key.setdefault((probe.subject, probe.relation, probe.object), probe)
    return list(probes_by_key.values())


def gives_itself_away(probe: Probe) -> bool:
    """Rule 1: the subject's name contains the object's or is contained in it."""
    subject, answer = probe.subject.lower(), probe.object.lower()
    # In both directions, so a model cannot answer by copying from the prompt.
    return subject in answer or answer in subject


def is_long(probe: Probe) -> bool:
    """Rule 2: the object has more than five words."""
    return len(probe.object.split()) > _MAX_WORDS


def cap(
    probes: Sequence[Probe],
    seed: int,
    fix_point: bool = False,
    subjects: float = MAX_SUBJECT_FRACTION,
    relations: float = MAX_RELATION_FRACTION,
) -> list[Probe]:
    """Rule 3: no subject has more than 1 % (`subjects`) of the probes, no relation more than 5 %
    (`relations`), and no object more than 5 %.

    The fractions are of `probes`; subjects are capped first, then relations, then objects, in an
    order drawn from `seed`. One of each is always kept. `fix_point` repeats it with the fractions
    of what is left until all three hold of it (or one of each is left).
    """
    fractions = {"subject": subjects, "relation": relations, "object": MAX_OBJECT_FRACTION}
    left = list(probes)
    # The paper's order is unknown; a seeded shuffle makes it reproducible.
    random.Random(f"probes {seed}").shuffle(left)
    while True:
        before = len(left)
        for name, fraction in fractions.items():
            # Of the size before rule 3, for all three caps.
            left = _at_most(left, name, max(1, int(before * fraction)))
        # Each cap shrinks the set, so that others may exceed their fraction again.
        if not fix_point or len(left) == before:
            return sorted(left, key=lambda p: p.ids)


def _at_most(probes: list[Probe], field: str, limit: int) -> list[Probe]:
    """The probes of which no more than `limit` have one value of a field."""
    seen: collections.Counter[str] = collections.Counter()
    kept = []
    for probe in probes:
        value = getattr(probe, field)
        seen[value] += 1
        if seen[value] <= limit:
            kept.append(probe)
    return kept


def apply(
    probes: Iterable[Probe],
    seed: int,
    fix_point: bool = False,
    subjects: float = MAX_SUBJECT_FRACTION,
    relations: float = MAX_RELATION_FRACTION,
) -> tuple[list[Probe], dict[str, int]]:
    """Filters 1 to 3 after the removal of commas and repeats.

    Returns:
      The probes that are left, and how many there were after each step.
    """
    steps: dict[str, int] = {}
    left = distinct(map(without_commas, probes))
    # Removing commas can make two facts equal, so repeats are removed after it.
    steps["distinct"] = len(left)
    left = [p for p in left if not gives_itself_away(p)]
    steps["rule 1"] = len(left)
    left = [p for p in left if not is_long(p)]
    steps["rule 2"] = len(left)
    left = cap(left, seed, fix_point, subjects, relations)
    steps["rule 3"] = len(left)
    return left, steps


def table_7(probes: Sequence[Probe]) -> dict[str, Any]:
    """Numbers of relations, subjects and objects, and the most facts of one relation.

    The counts by relation are those of Figure 7, the counts by type those of Figure 6.
    """
    relations = collections.Counter(p.relation for p in probes)
    subjects = collections.Counter(p.subject_type for p in probes if p.subject_type)
    objects = collections.Counter(p.object_type for p in probes if p.object_type)
    return {
        "facts": len(probes),
        "relations": len(relations),
        "max_repetition": max(relations.values(), default=0),
        "subjects": len({p.subject for p in probes}),
        "objects": len({p.object for p in probes}),
        "by_relation": dict(relations.most_common()),
        "subject_types": dict(subjects.most_common()),
        "object_types": dict(objects.most_common()),
    }
