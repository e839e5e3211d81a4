"""The world of the CIA World Factbook: what it said of countries in 2017, and what it says now.

One file has facts, each with the first and the last snapshot that states it; two have texts, each
with the snapshots that hold it (docs/real_facts.md). The facts are put into sentences
(`factbook_templates.py`); sentences of the Factbook's own "Background" and "Economic overview"
stand beside them.
"""

import dataclasses
import itertools
import os
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.data.facts.dated_facts import check_day
from ckl_jax.data.json_rows import numbered_rows, text_field
from ckl_jax.data.text.spans import split_sentences
from ckl_jax.errors import UserError
from ckl_jax.world.factbook_templates import RELATIONS
from ckl_jax.world.facts import Entity, Fact, Passage, World, occurs_in, without_news_of_controls
from ckl_jax.world.templates import INVARIANT
from ckl_jax.world.timeline import LEGACY_SIZES, SIZES, check_size

# No snapshot lies between 2017-12-18 and 2020-11-27.
CUT, HALF, END = "2018-01-01", "2022-10-01", "2026-02-01"
_FACTS = "factbook/factbook-facts-2003-2026.jsonl.gz"
_TEXTS = ("factbook/factbook-editions-2003-2017.jsonl.gz", "factbook/factbook-2015-2026.jsonl.gz")
_FIELDS = ("Background", "Economy - overview", "Economic overview")
_COUNTRIES = {"tiny": 30, "small": 1000, "wide": 1000, "medium": 1000, "large": 1000}
# Of D0's prose, per country.
_SENTENCES = {"tiny": 2, "small": 10, "wide": 20, "medium": 40, "large": 1000}
_NEWS = 0.1  # sentences of D1's prose for each of D0's
_MIN_WORDS, _MAX_WORDS = 6, 32  # of a sentence of prose
_SMALL = 0.3  # fraction of D1 in the SMALL corpora; a tenth holds too few questions
_ANSWER_WORDS = 6  # longer answers do not fit into a row's target


def factbook_world(
    data_dir: str | os.PathLike, seed: int = 0, size: str = "small", variant: str = "disjoint"
) -> World:
    """Reads the facts and the prose under `data_dir`.

    D0 is the Factbook up to its edition of 2017, D1 what is new in those of 2020 to 2026. Who came
    and went between two of D1's snapshots is left out, as no row of D1 says who came last.

    Args:
      data_dir: holds `factbook/`.
      size: "tiny", "small", ...: 30 or all countries, with up to 2, 10, 40 or all sentences of
        prose each in D0; D1 has a tenth as many.
      variant: see `World.variant`; the legacy one has no prose.

    Raises:
      UserError: the files are not there, not readable, or hold something else.
    """
    check_size(size)
    rng = random.Random(f"factbook {seed} {size}")
    slots = _read_slots(Path(data_dir) / _FACTS)
    names = dict(sorted((code, rows[0]["subject"]) for (code, _), rows in slots.items()))
    chosen = set(rng.sample(sorted(names), min(_COUNTRIES[size], len(names))))
    entities = {code: Entity(code, "country", names[code]) for code in names if code in chosen}
    facts = [
        fact
        for (code, relation), rows in slots.items()
        if code in chosen
        for fact in _history(code, relation, rows, _snapshots(slots), entities)
    ]
    shape = (SIZES if variant == "disjoint" else LEGACY_SIZES)[size].shape
    prose = _prose(Path(data_dir), chosen, _spellings(slots), _SENTENCES[size], rng)
    return without_news_of_controls(
        World(
            source="factbook",
            seed=seed,
            size=size,
            entities=entities,
            facts=tuple(facts),
            relations=RELATIONS,
            cut=CUT,
            half=HALF,
            end=END,
            shape=dataclasses.replace(shape, small=_SMALL),
            variant=variant,
            prose=prose if variant == "disjoint" else (),
        )
    )


def check_files(data_dir: str | os.PathLike | None) -> None:
    """Checks that the files exist; raises `UserError` if no folder is given, or it lacks some."""
    if data_dir is None:
        missing = "No --data is given"
    elif absent := [n for n in (_FACTS, *_TEXTS) if not (Path(data_dir) / n).is_file()]:
        missing = f"{data_dir} lacks {absent[0]}"
    else:
        return
    raise UserError(
        f"{missing}; the source 'factbook' needs --data=DIR, a folder that holds {_FACTS}, "
        f"{' and '.join(_TEXTS)} (docs/real_facts.md has their format)."
    )


_Slots = Mapping[tuple[str, str], Sequence[dict[str, str]]]  # by country's code and relation


def _read_slots(path: Path) -> _Slots:
    """Reads the facts of each country and relation, the oldest first."""
    slots = defaultdict(list)
    for where, row in numbered_rows(path):
        fields = ("subject_code", "subject", "relation", "object")
        dates = ("valid_from_snapshot", "valid_to_snapshot")
        read: dict[str, Any] = {name: text_field(row, name, where) for name in fields}
        read |= {
            name: check_day(text_field(row, name, where), f"{where}: {name}") for name in dates
        }
        if row.get("aliases") is not None and not _is_texts(row["aliases"]):
            raise UserError(f"{where}: the field 'aliases' is not a list of texts.")
        read["aliases"] = row.get("aliases") or []
        if read["relation"] in RELATIONS:
            slots[read["subject_code"], read["relation"]].append(read)
    if not slots:
        raise UserError(f"{path} has no fact of a relation that is known here.")
    for rows in slots.values():
        rows.sort(key=lambda row: row["valid_from_snapshot"])
    return slots


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _snapshots(slots: _Slots) -> list[str]:
    """The dates of all snapshots, in order."""
    rows = [row for some in slots.values() for row in some]
    return sorted({row[f"valid_{end}_snapshot"] for row in rows for end in ("from", "to")})


def _history(
    code: str,
    relation: str,
    rows: Sequence[dict[str, Any]],
    snapshots: Sequence[str],
    entities: dict[str, Entity],
) -> Iterator[Fact]:
    """Yields the facts of a country and relation; their objects are added to `entities`.

    A fact ends with the first snapshot that does not state it. What never changes has one value
    for ever, whichever snapshots leave it out; where it has several, none is taken.
    """
    invariant = RELATIONS[relation].kind == INVARIANT
    if invariant and len(rows) > 1:
        return
    for row, following in itertools.zip_longest(rows, rows[1:]):
        later = [date for date in snapshots if date > row["valid_to_snapshot"]]
        ends = [*later[:1], *([following["valid_from_snapshot"]] if following else [])]
        end = "" if invariant else min(ends, default="")
        came_and_went = row["valid_from_snapshot"] >= CUT and end and end < END
        kind = RELATIONS[relation].object
        answer = Entity(f"{kind}:{row['object']}", kind, row["object"], tuple(row["aliases"]))
        too_long = len(answer.name.split()) > _ANSWER_WORDS
        if came_and_went or too_long or occurs_in(answer, entities[code]):
            continue
        known = entities.setdefault(answer.id, answer)
        aliases = tuple(dict.fromkeys((*known.aliases, *answer.aliases)))
        entities[answer.id] = dataclasses.replace(known, aliases=aliases)
        yield Fact(code, relation, answer.id, row["valid_from_snapshot"], end)


# --- prose


def _spellings(slots: _Slots) -> dict[str, str]:
    """How the facts write the words of people's names, which the prose writes in capitals."""
    people = {name for name, relation in RELATIONS.items() if relation.object == "person"}
    rows = [row for (_, name), some in slots.items() if name in people for row in some]
    return {word.upper(): word for row in rows for word in row["object"].split()}


def _prose(
    directory: Path, codes: set[str], spellings: Mapping[str, str], most: int, rng: random.Random
) -> tuple[Passage, ...]:
    """Reads sentences, each of the date of the first snapshot that has it, and draws among them."""
    first: dict[tuple[str, str], str] = {}
    for path in (directory / name for name in _TEXTS):
        for where, row in numbered_rows(path):
            if row.get("code") not in codes or row.get("field") not in _FIELDS:
                continue
            if not _is_texts(row.get("snapshots")) or not row["snapshots"]:
                raise UserError(f"{where}: the field 'snapshots' is not a list of dates.")
            date = check_day(min(row["snapshots"]), f"{where}: snapshots")
            for sentence in _sentences(text_field(row, "text", where)):
                key = row["code"], sentence
                first[key] = min(date, first.get(key, date))
    passages = [
        Passage(code, date, _CAPITALS.sub(lambda m: spellings.get(m[0], m[0]), sentence))
        for (code, sentence), date in sorted(first.items())
    ]
    rng.shuffle(passages)
    by_country: dict[str, list[Passage]] = defaultdict(list)
    for passage in passages:
        if passage.date < CUT and len(by_country[passage.subject]) < most:
            by_country[passage.subject].append(passage)
    old = [passage for some in by_country.values() for passage in some]
    new = [passage for passage in passages if passage.date >= CUT]
    return (*old, *new[: round(_NEWS * len(old))])


_CAPITALS = re.compile(r"\b[A-Z][A-Z'’-]+[A-Z]\b")


def _sentences(text: str) -> Iterator[str]:
    for part in text.split(" | "):
        for sentence in split_sentences(part):
            if _MIN_WORDS <= len(sentence.split()) <= _MAX_WORDS and sentence.endswith("."):
                yield sentence
