"""Writes months of a simulated world as the dumps that Wikimedia publishes.

Wikipedia: multistream XML of export format 0.11 with its index. Wikidata: JSON, one entity a line,
in no order, with what a reader can trip over: properties, deprecated statements, statements that
have ended, by their dates or by their rank, values that are none or unknown, qualifiers and
references with items in them, labels for all languages.
"""

import bz2
import gzip
import hashlib
import json
import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from ckl_jax.files import atomic_write, write_file, write_json
from ckl_jax.world.facts import Fact, World
from ckl_jax.world.months import (
    ItemState,
    Month,
    PageState,
    Sentence,
    months,
    property_labels,
)

SITE = "simwiki"
_PER_STREAM = 100
_NAMESPACES = {0: "", 1: "Talk", 6: "File", 10: "Template", 14: "Category"}
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def write_dumps(
    world: World,
    directory: str | os.PathLike,
    count: int,
    progress: Callable[[int, int, str], None] = lambda *unused: None,
) -> dict[str, Any]:
    """Writes the dumps of `count` months under `directory`; the bytes depend on the world alone.

    Returns:
      The manifest: for each date its two files, and how many pages and items they have.

    Raises:
      UserError: the world has not so many months, or the folder cannot be written.
    """
    directory, dates = Path(directory), {}
    for done, month in enumerate(months(world, count), 1):
        stamp = month.date.replace("-", "")
        wikipedia = f"{SITE}-{stamp}-pages-articles-multistream.xml.bz2"
        wikidata = f"wikidata-{stamp}-all.json.gz"
        write_wikipedia(directory / wikipedia, month)
        write_wikidata(directory / wikidata, month)
        dates[stamp] = {
            "wikipedia": wikipedia,
            "wikidata": wikidata,
            "pages": len(month.pages),
            "items": len(month.items),
        }
        progress(done, count, "months")
    manifest = {"seed": world.seed, "size": world.size, "site": SITE, "dates": dates}
    write_json(directory / "dumps.json", manifest)
    return manifest


# --- Wikipedia


def write_wikipedia(path: Path, month: Month) -> None:
    """Writes a multistream file and, beside it, its index."""
    pages = list(month.pages.values())
    lines: list[str] = []
    with atomic_write(path, "wb") as f:
        f.write(bz2.compress(_head().encode()))
        for i in range(0, len(pages), _PER_STREAM):
            part = pages[i : i + _PER_STREAM]
            lines += [f"{f.tell()}:{page.id}:{page.title}\n" for page in part]
            f.write(bz2.compress("".join(page_xml(p, month) for p in part).encode()))
        f.write(bz2.compress(b"</mediawiki>\n"))
    write_file(
        str(path).replace(".xml.bz2", "-index.txt.bz2"), bz2.compress("".join(lines).encode())
    )


def _head() -> str:
    name = "http://www.mediawiki.org/xml/export-0.11/"
    spaces = "".join(
        f'      <namespace key="{key}" case="first-letter">{text}</namespace>\n'
        for key, text in _NAMESPACES.items()
    )
    return (
        f'<mediawiki xmlns="{name}" version="0.11" xml:lang="en">\n  <siteinfo>\n'
        f"    <sitename>Wikipedia</sitename>\n    <dbname>{SITE}</dbname>\n"
        "    <base>https://sim.wikipedia.org/wiki/Main_Page</base>\n"
        f"    <namespaces>\n{spaces}    </namespaces>\n  </siteinfo>\n"
    )


def page_xml(page: PageState, month: Month) -> str:
    """The <page> element."""
    text = f"#REDIRECT [[{page.redirect}]]" if page.redirect else wikitext(page, month)
    redirect = f"    <redirect title={quoteattr(page.redirect)} />\n" if page.redirect else ""
    digest = _base36(hashlib.sha1(text.encode()).digest())
    return (
        f"  <page>\n    <title>{escape(page.title)}</title>\n    <ns>0</ns>\n"
        f"    <id>{page.id}</id>\n{redirect}    <revision>\n      <id>{page.revision}</id>\n"
        f"      <timestamp>{page.edited}T00:00:00Z</timestamp>\n"
        f"      <contributor>\n        <username>Someone</username>\n        <id>7</id>\n"
        f"      </contributor>\n      <model>wikitext</model>\n      <format>text/x-wiki</format>\n"
        f'      <text bytes="{len(text.encode())}" sha1="{digest}" xml:space="preserve">'
        f"{escape(text)}</text>\n      <sha1>{digest}</sha1>\n    </revision>\n  </page>\n"
    )


def _base36(digest: bytes) -> str:
    number, out = int.from_bytes(digest, "big"), ""
    while number:
        number, rest = divmod(number, 36)
        out = _DIGITS[rest] + out
    return out.rjust(31, "0")


def wikitext(page: PageState, month: Month) -> str:
    """The page as its authors would write it: its prose is `page.paragraphs`, no more, no less."""
    facts = dict.fromkeys(s.fact for p in page.paragraphs for s in p if s.fact)
    rows = [f"| {f.relation} = {month.world.name(f.object)}" for f in facts]
    parts = ["\n".join(["{{Infobox", *rows, f"| edits = {page.decoration}", "}}"])]
    for i, paragraph in enumerate(page.paragraphs):
        if i == 1:
            parts.append("== Today ==")
        parts.append(" ".join(_marked_up(s, page) for s in paragraph))
    parts += ["== See also ==", "* [[Some list]]", "{| class=wikitable\n| a || b\n|}"]
    parts += [f"<!-- edit {n} -->" for n in range(page.decoration)] + ["[[Category:Things]]"]
    return "\n\n".join(parts) + "\n"


def _marked_up(sentence: Sentence, page: PageState) -> str:
    text = sentence.text
    if sentence.link:
        text = text.replace(sentence.link, f"[[{sentence.link}]]", 1)
    elif text.startswith(page.title):
        text = text.replace(page.title, f"'''{page.title}'''", 1)
    return text + "".join(f"<ref name=r{n}>Source {n}. No.</ref>" for n in range(page.decoration))


# --- Wikidata


def write_wikidata(path: Path, month: Month) -> None:
    """Writes the items and properties as JSON lines in a list."""
    numbers = item_numbers(month.world)
    entities = [
        *_properties(month.world),
        *(_item(i, month, numbers) for i in month.items.values()),
    ]
    random.Random(f"dump {month.date}").shuffle(entities)
    lines = ",\n".join(json.dumps(e, ensure_ascii=False) for e in entities)
    write_file(path, gzip.compress(f"[\n{lines}\n]\n".encode(), mtime=0))


def item_numbers(world: World) -> dict[str, int]:
    """Numbers of the items, by entity: Q1000 and so on."""
    return {key: 1000 + i for i, key in enumerate(world.entities)}


def _properties(world: World) -> Iterable[dict[str, Any]]:
    for key, label in property_labels(world).items():  # as of 2014, without claims
        yield {"type": "property", "id": key, "labels": {"en": {"language": "en", "value": label}}}


def _item(item: ItemState, month: Month, numbers: dict[str, int]) -> dict[str, Any]:
    number, stamp = numbers[item.entity], int(month.date.replace("-", ""))
    language = "mul" if number % 7 == 0 else "en"
    claims: dict[str, list[Any]] = {"P1": [_no_value()]}
    for fact, end in (*item.ended, *((f, None) for f in item.facts)):
        prop = month.world.relations[fact.relation].property
        followed = {month.world.relations[f.relation].property for f, day in item.ended if not day}
        statement = _statement(prop, numbers[fact.object], numbers, fact, end)
        # Of two ranks the better one decides what holds.
        if prop in followed:
            statement["rank"] = "normal" if end == "" else "preferred"
        claims.setdefault(prop, []).append(statement)
    links = {SITE: {"site": SITE, "title": item.title, "badges": []}} if item.title else {}
    return {
        "type": "item",
        "id": f"Q{number}",
        "labels": {language: {"language": language, "value": item.label}},
        "sitelinks": links,
        "claims": claims if item.facts or item.ended else [],  # PHP writes an empty map as a list
        "lastrevid": stamp * 10 + number % 10,
    }


def _statement(
    prop: str, value: int, numbers: dict[str, int], fact: Fact, end: str | None
) -> dict[str, Any]:
    """A statement; its qualifiers and references name items that are not facts of the subject.

    Two of three have their start, to the day or the month.
    """
    decoy = numbers[fact.subject]
    dates = {"P580": fact.valid_from if decoy % 3 else "", "P582": end}
    precision = 10 if decoy % 2 else 11
    qualifiers = {name: [_time(name, day, precision)] for name, day in dates.items() if day}
    return {
        "mainsnak": _snak(prop, value, with_id=decoy % 2 == 0),
        "rank": "preferred" if decoy % 3 == 0 else "normal",
        "qualifiers": {"P642": [_snak("P642", decoy)], **qualifiers},
        "references": [{"snaks": {"P248": [_snak("P248", decoy)]}}],
    }


def _time(prop: str, day: str, precision: int) -> dict[str, Any]:
    """A date; of precision 10 it is a month, of 11 a day."""
    day = f"{day[:7]}-00" if precision == 10 else day
    value = {"time": f"+{day}T00:00:00Z", "precision": precision}
    datavalue = {"value": value, "type": "time"}
    return {"snaktype": "value", "property": prop, "datavalue": datavalue}


def _no_value() -> dict[str, Any]:
    return {"mainsnak": {"snaktype": "novalue", "property": "P1"}, "rank": "normal"}


def _snak(prop: str, number: int, with_id: bool = True) -> dict[str, Any]:
    value: dict[str, Any] = {"entity-type": "item", "numeric-id": number}
    if with_id:
        value["id"] = f"Q{number}"
    return {
        "snaktype": "value",
        "property": prop,
        "datavalue": {"value": value, "type": "wikibase-entityid"},
    }
