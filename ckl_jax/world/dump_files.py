"""Writes months of a simulated world as the dumps that Wikimedia publishes.

Wikipedia: multistream XML of export format 0.11 with its index. Wikidata: JSON, one entity a line,
in no order, with what a reader can trip over: properties, deprecated statements, statements that
have ended, by their dates or by their rank, values that are none or unknown, qualifiers and
references with items in them, labels for all languages.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ckl_jax.data import dump_writer
from ckl_jax.files import write_json
from ckl_jax.world.facts import Fact, World
from ckl_jax.world.months import ItemState, Month, PageState, Sentence, months, property_labels

SITE = "simwiki"


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
        texts = (_page_text(page, month) for page in month.pages.values())
        dump_writer.write_pages(directory / wikipedia, SITE, texts)
        dump_writer.write_entities(directory / wikidata, _entities(month))
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


def _page_text(page: PageState, month: Month) -> dump_writer.PageText:
    """The page as a dump has it."""
    text = f"#REDIRECT [[{page.redirect}]]" if page.redirect else wikitext(page, month)
    about = page.id, page.title, page.revision, page.edited
    return dump_writer.PageText(*about, text, page.redirect)


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


def _entities(month: Month) -> list[dict[str, Any]]:
    """The properties and items, in no order."""
    numbers = item_numbers(month.world)
    entities = [dump_writer.property_of(*pair) for pair in property_labels(month.world).items()]
    entities += [_item(i, month, numbers) for i in month.items.values()]
    random.Random(f"dump {month.date}").shuffle(entities)
    return entities


def item_numbers(world: World) -> dict[str, int]:
    """Numbers of the items, by entity: Q1000 and so on."""
    return {key: 1000 + i for i, key in enumerate(world.entities)}


def _item(item: ItemState, month: Month, numbers: dict[str, int]) -> dict[str, Any]:
    number, stamp = numbers[item.entity], int(month.date.replace("-", ""))
    language = "mul" if number % 7 == 0 else "en"
    no_value = {"mainsnak": {"snaktype": "novalue", "property": "P1"}, "rank": "normal"}
    claims: dict[str, list[Any]] = {"P1": [no_value]}
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
    known = 7 if decoy % 2 else 10  # characters: to the month, or to the day
    qualifiers = {
        name: [dump_writer.time_snak(name, day[:known])] for name, day in dates.items() if day
    }
    return {
        "mainsnak": dump_writer.item_snak(prop, value, with_id=decoy % 2 == 0),
        "rank": "preferred" if decoy % 3 == 0 else "normal",
        "qualifiers": {"P642": [dump_writer.item_snak("P642", decoy)], **qualifiers},
        "references": [{"snaks": {"P248": [dump_writer.item_snak("P248", decoy)]}}],
    }
