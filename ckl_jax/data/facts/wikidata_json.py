"""Reads a Wikidata JSON dump, one entity per line: names, page and facts of each.

A fact is (property, item). Facts are the main values of statements whose rank is not deprecated;
qualifiers and references count only if asked for, as they do in the paper's released code. A
statement also has a rank and dates, which decide whether its fact holds on a day.
"""

import contextlib
import dataclasses
import os
import re
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from tyro.conf import Fixed, Suppress

from ckl_jax.data.compressed import read_lines
from ckl_jax.data.facts.offices import within
from ckl_jax.data.process_pool import Progress, no_progress
from ckl_jax.errors import UserError
from ckl_jax.files import BadJson, parse_json

Fact = tuple[str, str]  # "P31", "Q5"
Line = tuple[int, int, bytes]  # number, byte of the decompressed file, content
START, END, INSTANCE_OF = "P580", "P582", "P31"
UNKNOWN = "?"  # a date that is stated but not as a day, month or year of our era
_ID = re.compile(rb'"id"\s*:\s*"(Q\d+)"')
_TIME = re.compile(r"\+0*(\d{4,})-(0\d|1[0-2])-(\d\d)T")


class Statement(NamedTuple):
    """A fact with what decides when it holds.

    Attributes:
      property, item: the fact.
      best: whether it has the best rank of its property: preferred, or normal if none is preferred.
      start, end: YYYY-MM-DD, with 00 for unknown parts; "" if not stated, `UNKNOWN`.
    """

    property: str
    item: str
    best: bool = True
    start: str = ""
    end: str = ""

    @property
    def fact(self) -> Fact:
        return self.property, self.item

    def holds(self, day: str) -> bool:
        """Whether it has the best rank, has begun and has not ended.

        Args:
          day: YYYY-MM-DD; "" counts every stated date as past.
        """
        if not self.best or self.end == UNKNOWN:
            return False
        # A year or month that has begun counts as past: editors state it when it is over.
        return not (self.end and is_past(self.end, day)) and is_past(self.start, day)


def is_past(date: str, day: str, whole: bool = False) -> bool:
    """Whether a date is on or before a day.

    Args:
      date: as in `Statement`; "" and `UNKNOWN` are before every day.
      day: YYYY-MM-DD; "" is after every date.
      whole: of a month or year, require the last day rather than the first.
    """
    return not day or within(date)[whole] <= day


@dataclasses.dataclass(frozen=True, kw_only=True)
class FactRules:
    """The fields of an entity to read.

    Attributes:
      language: Language of labels; where there is none, the label for all languages (`mul`) counts.
      site: The wiki whose page belongs to an item, such as enwiki.
      deprecated: Also read statements of deprecated rank.
      qualifiers: Also read the items in qualifiers.
      references: Also read the items in references.
      aliases: Also read the other names of items: a text that has one of them names the object.
    """

    language: str = "en"
    site: Suppress[Fixed[str]] = "enwiki"
    deprecated: bool = False
    qualifiers: bool = False
    references: bool = False
    aliases: bool = False


@dataclasses.dataclass(frozen=True)
class Entity:
    """The fields of an entity that are kept."""

    id: str  # "Q42" or "P31"
    label: str = ""  # "" if there is none
    title: str = ""  # of its page on the site; "" if there is none
    revision: int = 0  # 0 if not given
    statements: tuple[Statement, ...] = ()  # each once, in the order of the dump
    # of the dump; no part of what the entity is
    line: int = dataclasses.field(default=0, compare=False)
    aliases: tuple[str, ...] = ()  # in the language of the label; () unless they are read

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The facts of all statements, whether or not they hold; each once."""
        return tuple(dict.fromkeys(s.fact for s in self.statements))

    @property
    def kind(self) -> str:
        """The first class of which it is an instance; "" if the dump has none."""
        return next((s.item for s in self.statements if s.property == INSTANCE_OF), "")


def entity_lines(path: str | os.PathLike, threads: int = 1) -> Iterator[Line]:
    """Yields the lines with an entity, without their trailing comma; see `read_blocks`.

    Raises:
      UserError: the file is truncated or damaged, or its list is not closed.
    """
    opened, closed, number, offset = False, False, 0, 0
    for number, offset, line in read_lines(path, threads=threads):
        line = line.strip().rstrip(b",")
        if line == b"[":
            opened = True
        elif line == b"]":
            closed = True
        elif line:
            yield number, offset, line
    if opened and not closed:
        raise UserError(
            f"{path}, line {number} (byte {offset:,} of the JSON): the list of entities stops "
            "without its ']': the file was cut, fetch it again."
        )


def read_entities(path: str | os.PathLike, rules: FactRules = FactRules()) -> Iterator[Entity]:  # noqa: B008
    """The items and properties of a dump; raises as `entity_lines` and `parse_entity`."""
    for line in entity_lines(path):
        if entity := parse_entity(path, line, rules):
            yield entity


def parse_entity(path: str | os.PathLike, line: Line, rules: FactRules) -> Entity | None:
    """Reads one line; None for anything but items and properties (lexemes, ...).

    Raises:
      UserError: the line is not JSON or no entity; the message names file, line and byte.
    """
    with entity_errors(path, line):
        entity = parse_json(line[2])
        if (letter := entity["id"][0]) not in "QP":
            return None
        return Entity(
            _key(letter, entity["id"]),
            label_of(entity, rules.language),
            _title(entity.get("sitelinks") or {}, rules.site),
            int(entity.get("lastrevid") or 0),
            tuple(dict.fromkeys(_statements(entity.get("claims") or {}, rules))),
            line[0],
            tuple(aliases_of(entity, rules.language)) if rules.aliases else (),
        )


@contextlib.contextmanager
def entity_errors(path: str | os.PathLike, line: Line) -> Iterator[None]:
    """Turns what a malformed entity leads to into a `UserError` that names file, line and byte."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as e:
        no_entity = f"no entity as Wikidata's dumps have them ({type(e).__name__}: {e})"
        what = e if isinstance(e, BadJson) else no_entity
        raise UserError(
            f"{path}, line {line[0]} (byte {line[1]:,} of the JSON): {what}; fetch the dump again."
        ) from e


def label_of(entity: dict[str, Any], language: str) -> str:
    """The label in a language or in any language; "" if there is none."""
    labels = entity.get("labels") or {}
    label = labels.get(language) or labels.get("mul") or {}
    return " ".join(label.get("value", "").split())


def aliases_of(entity: dict[str, Any], language: str) -> Iterator[str]:
    """Yields the other names in a language and in any language, each once."""
    aliases = entity.get("aliases") or {}
    # An empty PHP array is a list in old dumps.
    groups = [aliases.get(name) or [] for name in (language, "mul")] if aliases else []
    names = (" ".join(alias["value"].split()) for group in groups for alias in group)
    yield from filter(None, dict.fromkeys(names))


def read_names(
    path: str | os.PathLike,
    wanted: Collection[str],
    language: str = "en",
    progress: Progress = no_progress,
) -> Iterator[tuple[str, list[str]]]:
    """Yields (item, its label and its aliases) of those items wanted that have a label.

    Lines of other items are not parsed.
    """
    for i, line in enumerate(entity_lines(path)):
        if i % 10_000 == 0:
            progress(i, 0, "entities searched for names")
        match = _ID.search(line[2])
        if match and match[1].decode() in wanted:
            with entity_errors(path, line):
                entity = parse_json(line[2])
                names = [label_of(entity, language), *aliases_of(entity, language)]
                key = str(entity["id"])
            if names[0]:
                yield key, names


def _title(sitelinks: dict[str, Any], site: str) -> str:
    link = sitelinks.get(site) or ""
    return (link if isinstance(link, str) else link["title"]).replace("_", " ")


def _statements(claims: dict[str, Any], rules: FactRules) -> Iterator[Statement]:
    for statements in claims.values():
        # The best rank is that of all values, "none" and "unknown" included.
        ranks = {statement.get("rank") for statement in statements}
        best = "preferred" if "preferred" in ranks else "normal"
        for statement in statements:
            rank = statement.get("rank", "normal")
            if rank != "deprecated" or rules.deprecated:
                terms = _terms(statement.get("qualifiers") or {})
                for snak in (statement["mainsnak"], *_further_snaks(statement, rules)):
                    if item := item_of(snak):
                        for term in terms:
                            yield Statement(_key("P", snak["property"]), item, rank == best, *term)


def _terms(qualifiers: dict[str, Any]) -> list[tuple[str, str]]:
    """(start, end) of the times of a statement, of which each may begin and end anew."""
    starts, ends = (
        sorted(stated_day([snak]) for snak in qualifiers.get(name) or ()) for name in (START, END)
    )
    if len(starts) < 2 and len(ends) < 2:
        return [("".join(starts), "".join(ends))]
    if UNKNOWN in (*starts, *ends):  # which ends with which is not known
        return [(starts[0] if starts else "", UNKNOWN)]
    is_open = ends and (not starts or ends[0] < starts[0])
    begins = ["", *starts] if is_open else starts
    afters = [*begins[1:], "9999-99-99"]
    terms = []
    for begin, after in zip(begins, afters, strict=True):
        end = next((end for end in ends if begin <= end <= after), "")
        ends = ends[ends.index(end) + 1 :] if end else ends  # an end is of one time
        terms.append((begin, end))
    return terms


def stated_day(snaks: list[dict[str, Any]] | None) -> str:
    """As `day_of`, but `UNKNOWN` where a date is stated that is no day, month or year."""
    if not snaks or snaks[0].get("snaktype") == "novalue":
        return ""
    return day_of(snaks) or UNKNOWN


def day_of(snaks: list[dict[str, Any]] | None) -> str:
    """The date of the first snak, YYYY-MM-DD with 00 for unknown parts.

    It is "" if there is none, or none that names a year of our era.
    """
    value = ((snaks or [{}])[0].get("datavalue") or {}).get("value") or {}
    match = _TIME.match(value.get("time", ""))
    precision = value.get("precision", 0)  # 9 is a year, 10 a month, 11 a day
    if not match or precision < 9:
        return ""
    year, month, day = match.groups()
    if len(year) > 4:  # after all days that ISO 8601 writes
        return "9999-12-31"
    return f"{year}-{month if precision > 9 else '00'}-{day if precision > 10 else '00'}"


def _further_snaks(statement: dict[str, Any], rules: FactRules) -> Iterator[dict[str, Any]]:
    groups = [statement.get("qualifiers")] if rules.qualifiers else []
    if rules.references:
        groups += [r.get("snaks") for r in statement.get("references") or []]
    for group in groups:
        for snaks in (group or {}).values():
            yield from snaks


def item_of(snak: dict[str, Any]) -> str:
    """The item of a snak; "" for other values and for "none" and "unknown"."""
    if snak.get("snaktype") != "value":
        return ""
    value = snak["datavalue"]["value"]
    if snak["datavalue"]["type"] != "wikibase-entityid" or value.get("entity-type") != "item":
        return ""
    # Dumps before 2016 have no id.
    return _key("Q", value.get("id") or f"Q{value['numeric-id']}")


def _key(letter: str, key: Any) -> str:
    """The id of an item (Q) or property (P); raises `ValueError` if it is none."""
    if type(key) is not str or key[:1] != letter or not key[1:].isdecimal():
        raise ValueError(f"{key!r} is no {letter}-number")
    return key
