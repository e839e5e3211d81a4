"""Extracts office-holders with their terms from a Wikidata JSON dump.

A statement such as (Norway, head of government, Erna Solberg) has the start and the end of the time
as qualifiers (P580, P582), and often the office (P39). The dump is read twice, for statements and
for the names of holders and offices; lines without either are not parsed.
"""

import csv
import dataclasses
import os
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from ckl_jax.data.facts.offices import Term
from ckl_jax.data.facts.wikidata_json import (
    END,
    START,
    UNKNOWN,
    day_of,
    entity_errors,
    entity_lines,
    item_of,
    label_of,
    read_names,
    stated_day,
)
from ckl_jax.data.process_pool import Progress, no_progress
from ckl_jax.errors import UserError
from ckl_jax.files import atomic_write, parse_json

# What the holder of an office is called where the statement does not say.
ROLES = {
    "P6": "head of government",
    "P35": "head of state",
    "P169": "chief executive",
    "P286": "head coach",
    "P488": "chairperson",
    "P1075": "rector",
    "P1037": "director",
}
_OFFICE, _INSTANCE = "P39", "P31"


@dataclasses.dataclass(frozen=True)
class _Statement:
    place: str
    property: str
    holder: str  # its item
    office: str  # its item; "" if it is not said
    start: str
    end: str


def read_offices(
    path: str | os.PathLike,
    properties: Collection[str] = ("P6", "P35"),
    kinds: Collection[str] = (),
    language: str = "en",
    progress: Progress = no_progress,
) -> list[Term]:
    """Returns the terms of a dump.

    Args:
      path: of the dump, plain, gzip or bzip2.
      properties: of `ROLES`.
      kinds: items that a place is an instance of, such as Q3624078 (sovereign state); (): any.

    Raises:
      UserError: the dump is damaged, there is no such property, or it has no terms.
    """
    if unknown := [p for p in properties if p not in ROLES]:
        raise UserError(f"{unknown[0]} is not an office; there are {', '.join(ROLES)}.")
    statements = list(_statements(path, properties, set(kinds), language, progress))
    wanted = {item for s in statements for item in (s.holder, s.office) if item}
    names = dict(read_names(path, wanted, language, progress))
    terms = [_term(s, names) for s in statements if s.holder in names]
    if not terms:
        raise UserError(
            f"{os.fspath(path)} has no dated statements of {', '.join(properties)}"
            f"{' of ' + ', '.join(kinds) if kinds else ''} with the holders' names; give "
            f"a dump of Wikidata{', and check --instance-of' if kinds else ''}. An excerpt may "
            "have none."
        )
    return terms


def write_terms(path: str | os.PathLike, terms: Iterable[Term]) -> None:
    """Writes a table for `data.facts.offices.read_terms`."""
    with atomic_write(path) as f:
        writer = csv.writer(f, lineterminator="\n")
        writer.writerow(("role", "place", "holder", "start", "end", "aliases"))
        for t in terms:
            writer.writerow((t.role, t.place, t.holder, t.start, t.end, ";".join(t.aliases)))


def _statements(path, properties, kinds, language, progress) -> Iterator[_Statement]:
    # A search in bytes is much cheaper than parsing; most entities have none of the properties.
    marks = [f'"{p}"'.encode() for p in properties]
    for i, line in enumerate(entity_lines(path)):
        if i % 10_000 == 0:
            progress(i, 0, "entities searched for offices")
        if any(mark in line[2] for mark in marks):
            with entity_errors(path, line):
                statements = list(_of_place(parse_json(line[2]), properties, kinds, language))
            yield from statements


def _of_place(entity, properties, kinds, language) -> Iterator[_Statement]:
    place, claims = label_of(entity, language), entity.get("claims") or {}
    instance_of = {item_of(claim.get("mainsnak") or {}) for claim in _of(claims, _INSTANCE)}
    of_kind = not kinds or kinds & instance_of
    for prop in properties if place and of_kind else ():
        for claim in _of(claims, prop):
            yield from _dated(place, prop, claim)


def _of(claims: dict[str, Any], prop: str) -> list[dict[str, Any]]:
    return [c for c in claims.get(prop) or [] if c.get("rank") != "deprecated"]


def _dated(place: str, prop: str, claim: dict[str, Any]) -> Iterator[_Statement]:
    qualifiers = claim.get("qualifiers") or {}
    start, end = day_of(qualifiers.get(START)), stated_day(qualifiers.get(END))
    # Undated statements do not say when, and one that ended on an unknown day does not hold still.
    if end == UNKNOWN:
        return
    if (holder := item_of(claim.get("mainsnak") or {})) and (start or end):
        office = item_of((qualifiers.get(_OFFICE) or [{}])[0])
        yield _Statement(place, prop, holder, office, start, end)


def _term(statement: _Statement, names: dict[str, list[str]]) -> Term:
    role = names.get(statement.office, [ROLES[statement.property]])[0]
    # "prime minister of Norway" in Norway is "prime minister".
    role = role.removesuffix(f" of {statement.place}").removesuffix(f" of the {statement.place}")
    holder, *aliases = names[statement.holder]
    known = tuple(a for a in aliases if ";" not in a)
    return Term(role, statement.place, holder, statement.start, statement.end, known)
