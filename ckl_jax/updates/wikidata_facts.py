"""Dated questions out of a Wikidata JSON dump, whose statements say from when to when they hold.

The dump is read twice, for statements and for the names of their objects. A relation is asked of
a subject only if one object holds at a time, by start (P580), end (P582) and rank.
"""

import collections
import heapq
import itertools
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ckl_jax.data.buckets import hash64
from ckl_jax.data.facts.ckl_files import BLANK
from ckl_jax.data.facts.relational import ANSWER, SUBJECT
from ckl_jax.data.facts.templates import PREVIOUS, built_in
from ckl_jax.data.facts.wikidata_json import UNKNOWN, Entity, Statement, read_entities, read_names
from ckl_jax.errors import UserError

ENDINGS = (".json", ".json.gz", ".json.bz2")
_MOST = 100_000  # questions, which bounds the memory; the same ones in each run


class History(NamedTuple):
    """A sentence with a blank, and who stood there from when on.

    Attributes:
      answers: (first day, YYYY-MM-DD or "" for always; name; other names), in order.
    """

    cloze: str
    relation: str
    answers: list[tuple[str, str, tuple[str, ...]]]


def read(path: Path) -> list[History]:
    """The questions of a dump.

    Args:
      path: of the dump, plain, gzip or bzip2, whole or an excerpt.

    Raises:
      UserError: it is damaged, or has no such statements.
    """
    clozes = {n: t.cloze for n, t in built_in().items() if not n.endswith(PREVIOUS)}
    found = heapq.nsmallest(_MOST, _asked(path, clozes), key=lambda f: hash64(*f[:2]))
    names = dict(read_names(path, {s.item for _, _, line in found for s in line}))
    times = collections.Counter((subject, relation) for subject, relation, _ in found)
    histories = []
    for subject, relation, statements in found:
        objects = [names.get(s.item, ("",))[0] for s in statements]
        # Of namesakes it cannot be told who is meant.
        if all(objects) and subject not in objects and times[subject, relation] == 1:
            cloze = clozes[relation].replace(SUBJECT, subject).replace(ANSWER, BLANK)
            named = [(s.start, *names[s.item]) for s in statements]
            answers = [(_day(start), name, tuple(others)) for start, name, *others in named]
            histories.append(History(cloze.removesuffix(" .").rstrip(".") + ".", relation, answers))
    if not histories:
        raise UserError(
            f"{path} has no facts of {', '.join(list(clozes)[:3])} and {len(clozes) - 3} other "
            "relations with one object at a time and the names of both sides; give another dump "
            "of Wikidata."
        )
    return histories


def _asked(
    path: Path, relations: Collection[str]
) -> Iterator[tuple[str, str, Sequence[Statement]]]:
    for entity in read_entities(path):
        for relation in relations if entity.label else ():
            if line := _line(entity, relation):
                yield entity.label, relation, line


def _line(entity: Entity, relation: str) -> Sequence[Statement]:
    """The objects of a relation one after the other; () if two may hold at a time, or none now."""
    line = [s for s in entity.statements if s.property == relation]
    line.sort(key=lambda s: s.start)
    if any(UNKNOWN in (s.start, s.end) for s in line) or (line and line[-1].end):
        return ()
    for before, after in itertools.pairwise(line):
        is_over = before.end <= after.start if before.end else not before.best
        if not after.start or not is_over:
            return ()
    return line


def _day(date: str) -> str:
    """The first day of a date with 00 for unknown parts."""
    return date.replace("-00", "-01")
