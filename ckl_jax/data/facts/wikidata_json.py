"""Reads a Wikidata JSON dump, one entity per line: names, page and facts of each.

A fact is (property, item). Facts are the main values of statements whose rank is not deprecated;
qualifiers and references count only if asked for, as they do in the paper's released code.
"""

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

from tyro.conf import Suppress

from ckl_jax.data.compressed import read_lines
from ckl_jax.errors import UserError
from ckl_jax.files import BadJson, parse_json

Fact = tuple[str, str]  # "P31", "Q5"
Line = tuple[int, int, bytes]  # number, byte of the decompressed file, content


@dataclasses.dataclass(frozen=True, kw_only=True)
class FactRules:
    """The fields of an entity to read.

    Attributes:
      language: Language of labels; where there is none, the label for all languages (`mul`) counts.
      site: The wiki whose page belongs to an item, such as enwiki.
      deprecated: Also read statements of deprecated rank.
      qualifiers: Also read the items in qualifiers.
      references: Also read the items in references.
    """

    language: str = "en"
    site: Suppress[str] = "enwiki"
    deprecated: bool = False
    qualifiers: bool = False
    references: bool = False


@dataclasses.dataclass(frozen=True)
class Entity:
    """The fields of an entity that are kept.

    Attributes:
      id: "Q42" or "P31".
      label: "" if there is none.
      title: of its page on the site; "" if there is none.
      revision: 0 if not given.
      facts: each once, in the order of the dump.
      line: of the dump; no part of what the entity is.
    """

    id: str
    label: str = ""
    title: str = ""
    revision: int = 0
    facts: tuple[Fact, ...] = ()
    line: int = dataclasses.field(default=0, compare=False)


def entity_lines(path: str | os.PathLike) -> Iterator[Line]:
    """Yields the lines with an entity, without their trailing comma.

    Raises:
      UserError: the file is truncated or damaged, or its list is not closed.
    """
    opened, closed, number, offset = False, False, 0, 0
    for number, offset, line in read_lines(path):
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
    """Yields the items and properties of a dump.

    Raises:
      UserError: as `entity_lines` and `parse_entity`.
    """
    for line in entity_lines(path):
        if entity := parse_entity(path, line, rules):
            yield entity


def parse_entity(path: str | os.PathLike, line: Line, rules: FactRules) -> Entity | None:
    """Reads one line; None for anything but items and properties (lexemes, ...).

    Raises:
      UserError: the line is not JSON or no entity; the message names file, line and byte.
    """
    try:
        entity = parse_json(line[2])
        if entity["id"][0] not in "QP":
            return None
        return Entity(
            entity["id"],
            label_of(entity, rules.language),
            _title(entity.get("sitelinks") or {}, rules.site),
            int(entity.get("lastrevid") or 0),
            tuple(dict.fromkeys(_facts(entity.get("claims") or {}, rules))),
            line[0],
        )
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


def _title(sitelinks: dict[str, Any], site: str) -> str:
    link = sitelinks.get(site) or ""
    return (link if isinstance(link, str) else link["title"]).replace("_", " ")


def _facts(claims: dict[str, Any], rules: FactRules) -> Iterator[Fact]:
    for statements in claims.values():
        for statement in statements:
            if statement.get("rank") != "deprecated" or rules.deprecated:
                for snak in _snaks(statement, rules):
                    if item := item_of(snak):
                        yield snak["property"], item


def _snaks(statement: dict[str, Any], rules: FactRules) -> Iterator[dict[str, Any]]:
    yield statement["mainsnak"]
    groups = []
    if rules.qualifiers:
        groups.append(statement.get("qualifiers") or {})
    if rules.references:
        groups += [r.get("snaks") or {} for r in statement.get("references") or []]
    for group in groups:
        for snaks in group.values():
            yield from snaks


def item_of(snak: dict[str, Any]) -> str:
    """The item of a snak; "" for other values and for "none" and "unknown"."""
    if snak.get("snaktype") != "value":
        return ""
    value = snak["datavalue"]["value"]
    if snak["datavalue"]["type"] != "wikibase-entityid" or value.get("entity-type") != "item":
        return ""
    return value.get("id") or f"Q{value['numeric-id']}"  # dumps before 2016 have no id
