"""Makes a relational dataset whose answers hold at a date, out of dated facts.

An instance lists all objects that its subject ever had with their dates (`holders`), for
`analysis/by_date.py`.
"""

import collections
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax import checks
from ckl_jax.data.facts.dated_facts import DatedFact
from ckl_jax.data.facts.relational import ANSWER, METADATA, SUBJECT
from ckl_jax.data.facts.templates import EVENT, Template, built_in, property_of
from ckl_jax.errors import UserError, nearest
from ckl_jax.files import write_json, write_jsonl

Counts = collections.Counter[str]
Group = list[DatedFact]  # of a subject and relation


def write_dataset(
    facts: Iterable[DatedFact],
    as_of: str,
    folder: str | os.PathLike,
    relations: Sequence[str] = (),
    templates: Mapping[str, Template] | None = None,
    instances: int | None = None,
    skip_overlaps: bool = False,
) -> tuple[dict[str, int], Counts]:
    """Writes a relation a file, with its template and answer space.

    The options are all objects that the relation's subjects ever had. Left out are subjects without
    an object on the day, and relations with a single option.

    Args:
      facts: of relations with one object at a time.
      as_of: YYYY-MM-DD, the day of the right answers.
      relations: to take; () is all.
      wordings: templates by relation, before those of the facts, the built-in ones, and "The
        head of government of [X] is [Y]." of a relation's name.
      instances: subjects of a relation at most, spread evenly.
      skip_overlaps: leave subjects out that have two objects at a time.

    Returns:
      The number of instances by relation, and of the subjects left out by reason.

    Raises:
      UserError: a subject has two objects at a time, or nothing is left.
    """
    checks.require_int(1, instances=instances)
    counts, groups = Counts(), _groups(facts, relations)
    metadata: dict[str, Any] = {}
    rows: dict[str, list[dict[str, Any]]] = {}
    for relation, subjects in groups.items():
        held = list(_held(subjects.values(), as_of, skip_overlaps, counts))
        count = min(instances or len(held), len(held))
        held = [held[i * len(held) // count] for i in range(count)]
        space: dict[str, str] = {}  # the first name of each object counts
        for fact in (fact for group, _ in held for fact in group):
            space.setdefault(_id(fact), fact.object)
        template = _template(held[0][0][0], templates or {}) if held else None
        if template is None or len(space) < 2:
            counts["subjects of relations without a template or with one option"] += count
            continue
        code = re.sub(r"[^\w-]+", "_", relation)
        if code in rows:
            raise UserError(f"Two relations would be the file {code}.jsonl; rename {relation!r}.")
        rows[code] = [_instance(group, right, space) for group, right in held]
        metadata[code] = {
            "name": relation,
            "as_of": as_of,
            "templates": [template],
            "answer_space_ids": [*space],
            "answer_space_labels": [*space.values()],
        }
    if not rows:
        reasons = "; ".join(f"{n:,} {why}" for why, n in counts.items())
        raise UserError(f"No relation is left for {as_of} ({reasons}); choose another --as-of.")
    for code, some in rows.items():
        write_jsonl(Path(folder) / f"{code}.jsonl", some)
    write_json(Path(folder) / METADATA, metadata)
    return {code: len(some) for code, some in rows.items()}, counts


def _groups(facts: Iterable[DatedFact], wanted: Sequence[str]) -> dict[str, dict[str, Group]]:
    """{relation: {subject: its facts}}, in the order of the facts."""
    known: set[str] = set()
    groups: dict[str, dict[str, Group]] = {}
    for fact in facts:
        known.add(fact.relation)
        if not wanted or fact.relation in wanted:
            key = fact.subject_id or fact.subject
            groups.setdefault(fact.relation, {}).setdefault(key, []).append(fact)
    if unknown := next((name for name in wanted if name not in known), None):
        raise UserError(f"The facts have no relation {unknown!r}.{nearest(unknown, known)}")
    return groups


def _held(
    groups: Iterable[Group], as_of: str, skip_overlaps: bool, counts: Counts
) -> Iterator[tuple[Group, DatedFact]]:
    """The facts of each subject, and the one that holds on the day."""
    for group in groups:
        if group[0].kind == EVENT:
            counts["subjects of events, which hold at no date"] += 1
        elif both := _overlap(group):
            if not skip_overlaps:
                raise UserError(
                    f"{both}; correct the dates, choose other --relations, or leave such subjects "
                    "out by --skip-overlaps."
                )
            counts["subjects with two objects at a time"] += 1
        elif any(fact.holds(as_of) is None for fact in group):
            counts[f"subjects whose dates do not say what holds on {as_of}"] += 1
        elif right := next((fact for fact in group if fact.holds(as_of)), None):
            yield group, right
        else:
            counts[f"subjects without an object on {as_of}"] += 1


def _overlap(group: Group) -> str:
    """Two facts with different objects that hold at the same time, and since when; "" if none."""
    spans = [(*span, i) for i, fact in enumerate(group) for span in fact.spans()]
    active: list[tuple[str, DatedFact]] = []
    for begin, end, i in sorted(spans):
        new = group[i]
        active = [(last, fact) for last, fact in active if last > begin]
        if other := next((fact for _, fact in active if _id(fact) != _id(new)), None):
            return (
                f"{new.where or '--facts'}: the {new.relation} of {new.subject} is {new.object} "
                f"{'from ' + begin if begin else 'always'}, and at the same time {other.object} "
                f"({other.where})"
            )
        active.append((end, new))
    return ""


def _id(fact: DatedFact) -> str:
    return fact.object_id or fact.object


def _template(fact: DatedFact, templates: Mapping[str, Template]) -> str | None:
    if fact.relation in templates:
        return templates[fact.relation].cloze
    if SUBJECT in fact.cloze and ANSWER in fact.cloze:
        return fact.cloze
    if known := built_in().get(fact.relation):
        return known.cloze
    words = fact.relation.replace("_", " ")
    return None if property_of(fact.relation) else f"The {words} of {SUBJECT} is {ANSWER}."


def _instance(group: Group, right: DatedFact, space: Mapping[str, str]) -> dict[str, Any]:
    names = ("valid_from", "valid_to", "seen")
    return {
        "sub_id": right.subject_id or right.subject,
        "sub_label": right.subject,
        "sub_aliases": list(right.subject_aliases),
        "obj_id": _id(right),
        "obj_label": space[_id(right)],
        "holders": [
            {"obj_id": _id(f)} | {name: value for name in names if (value := getattr(f, name))}
            for f in group
        ],
    }
