"""Dumps of text that is no wiki: of dated documents and dated facts, a snapshot for each date.

A document becomes a page of plain text with its title; each subject and object of a fact becomes an
item. The page of a subject is the document whose title is one of its names. Diffsets, probes and
studies then read them like any dump. Without facts there are no probes, and studies measure text.
"""

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from ckl_jax import files
from ckl_jax.data import dump_writer
from ckl_jax.data.buckets import hash64
from ckl_jax.data.dump_writer import PLAIN_TEXT, PageText
from ckl_jax.data.facts.dated_facts import UNKNOWN, DatedFact
from ckl_jax.data.facts.offices import within
from ckl_jax.data.text.documents import Document
from ckl_jax.errors import UserError

WIKI = "ownwiki"
_ALL = "mul"  # all languages, of labels
_MAX_DATES = 120  # ten years of months
# Blanks for what XML 1.0 forbids: form feeds and the like, which exports of PDFs have.
_NOT_IN_XML = dict.fromkeys((*range(9), 0xB, 0xC, *range(0xE, 0x20), 0xFFFE, 0xFFFF), " ")


def write_snapshots(
    documents: Iterable[Document],
    facts: Sequence[DatedFact],
    out: str | os.PathLike,
    dates: Sequence[str] = (),
    *,
    language: str = "en",
    complete: bool = False,
    replace: bool = False,
    progress: Callable[[int, int, str], None] = lambda *unused: None,
) -> dict[str, Any]:
    """Writes a dump of pages and one of items for each date, in memory that texts do not fill.

    Args:
      documents: in any order; of each id, the newest version up to a date counts.
      facts: with the dates between which they hold, or at which they were seen; () has none.
      dates: of the snapshots, YYYY-MM-DD; () is all dates of documents.
      language: of the texts, whose sentences are split by its rules.
      complete: whether the newest date of documents has all of them: what is missing is gone.
      replace: take the place of the snapshots in the folder; otherwise those of other dates stay.

    Returns:
      The manifest: for each date its two files, and how many pages and items they have.

    Raises:
      UserError: one date that was not asked for, a date without documents or at which facts were
        not looked up, or the folder cannot be written.
    """
    out = Path(out)
    with tempfile.TemporaryDirectory() as place, closing(Versions(Path(place) / "db")) as versions:
        versions.add(documents)
        earlier = {} if replace else _listed(out / "dumps.json")
        may_be_one = bool(dates or earlier)  # one date that is asked for may join others later
        dates = sorted(set(dates)) or versions.dates()
        _check_dates(dates, versions.dates(), may_be_one)
        _check_seen(facts, dates)
        rows, stamps = [], [date.replace("-", "") for date in dates]
        for stamp, date in zip(stamps, dates, strict=True):
            names = (
                f"{WIKI}-{stamp}-pages-articles-multistream.xml.bz2",
                f"wikidata-{stamp}-all.json.gz",
            )
            texts = versions.pages(date, complete)
            pages = dump_writer.write_pages(out / names[0], WIKI, texts, language)
            entities = list(_entities(facts, date, versions.titles(date, complete)))
            dump_writer.write_entities(out / names[1], entities)
            items = sum(entity["type"] == "item" for entity in entities)
            files_of = dict(zip(("wikipedia", "wikidata"), names, strict=True))
            rows.append({**files_of, "pages": pages, "items": items})
            progress(len(rows), len(dates), "snapshots")
    manifest = {"site": WIKI, "dates": dict(zip(stamps, rows, strict=True))}
    every = dict(sorted((earlier | manifest["dates"]).items()))
    files.write_json(out / "dumps.json", manifest | {"dates": every})
    return manifest


def _listed(record: Path) -> dict[str, Any]:
    """The snapshots that a manifest lists, if there is one, and that are still there."""
    dates = files.read_json_object(record).get("dates") if record.is_file() else {}
    return {
        stamp: row
        for stamp, row in (dates.items() if isinstance(dates, dict) else ())
        if (record.parent / f"{WIKI}-{stamp}-pages-articles-multistream.xml.bz2").is_file()
    }


def _check_dates(dates: Sequence[str], of_documents: Sequence[str], may_be_one: bool) -> None:
    if len(dates) < 2 and not may_be_one:
        raise UserError(f"The documents are of one date only, {dates[0]}; give --dates.")
    if len(dates) > _MAX_DATES:
        raise UserError(
            f"The documents have {len(dates):,} dates, each of which would be a snapshot; give "
            f"--dates, at most {_MAX_DATES}."
        )
    if dates[0] < of_documents[0]:
        raise UserError(
            f"--dates has {dates[0]}, but the first document is of {of_documents[0]}; give later "
            "dates."
        )


def _check_seen(facts: Sequence[DatedFact], dates: Sequence[str]) -> None:
    """Raises `UserError` for a date at which a file's facts were not looked up."""
    days_of: dict[str, set[str]] = {}  # of each file
    for fact in facts:
        if fact.seen:
            days_of.setdefault(fact.where.rpartition(", line ")[0], set()).update(fact.seen)
    for path, days in days_of.items():
        for date in dates:
            if not date.startswith(tuple(days)):
                raise UserError(
                    f"The facts of {path} say on which days they were seen ({min(days)} to "
                    f"{max(days)}), and the snapshot {date} is none of these; give --dates of "
                    "them, or facts with 'valid_from' and 'valid_to'."
                )


class Versions:
    """Versions of documents in a temporary file, ordered by page."""

    def __init__(self, path: Path):
        self.db = sqlite3.connect(path)
        self.db.execute(
            "CREATE TABLE versions (page INTEGER, date TEXT, id TEXT, title TEXT, text TEXT, "
            "PRIMARY KEY (page, date)) WITHOUT ROWID"
        )

    def close(self) -> None:
        self.db.close()

    def add(self, documents: Iterable[Document]) -> None:
        # A page has one number in every snapshot, also in later ones, and so has an item.
        def row(d: Document) -> tuple[int | str, ...]:
            key, title, text = (t.translate(_NOT_IN_XML) for t in (d.id, d.title, d.text))
            key, title = (" ".join(t.split()) for t in (key, title))  # an index has a line for each
            return hash64(d.id), d.date, key, title or key, text

        # The last of two versions of one day counts.
        insert = "INSERT OR REPLACE INTO versions VALUES (?, ?, ?, ?, ?)"
        self.db.executemany(insert, map(row, documents))
        self.db.commit()
        if not self.dates():
            raise UserError("There are no documents; check --documents.")

    def dates(self) -> list[str]:
        return [
            date for (date,) in self.db.execute("SELECT DISTINCT date FROM versions ORDER BY 1")
        ]

    def _newest(self, date: str, complete: bool, columns: str) -> Iterator[tuple]:
        """The columns of the newest version of each document, in the order of pages."""
        # SQLite takes the other columns from the row with the maximum.
        only = (
            "date = (SELECT max(date) FROM versions WHERE date <= ?)" if complete else "date <= ?"
        )
        yield from self.db.execute(
            f"SELECT {columns}, max(date) FROM versions WHERE {only} GROUP BY page ORDER BY page",
            (date,),
        )

    def titles(self, date: str, complete: bool) -> dict[int, str]:
        """{page: title}; equal titles of several documents get their ids in brackets."""
        rows = list(self._newest(date, complete, "page, id, title, text != ''"))
        count: dict[str, int] = {}
        for _, _, title, alive, _ in rows:
            count[title] = count.get(title, 0) + alive
        return {
            page: title if count[title] == 1 else f"{title} ({identifier})"
            for page, identifier, title, alive, _ in rows
            if alive
        }

    def pages(self, date: str, complete: bool) -> Iterator[PageText]:
        titles = self.titles(date, complete)
        for page, text, edited in self._newest(date, complete, "page, text"):
            if page in titles:  # an empty text says that the document is gone
                yield PageText(
                    page, titles[page], hash64(page, edited), edited, text, model=PLAIN_TEXT
                )


def _entities(
    facts: Sequence[DatedFact], date: str, titles: dict[int, str]
) -> Iterator[dict[str, Any]]:
    """Yields the properties, then an item of each subject with the facts that began by a date.

    Without facts, an item of each page: a dump has entities, and its reader asks for their pages.
    """
    for relation in sorted({fact.relation for fact in facts}):
        yield dump_writer.property_of(_property(relation), relation.replace("_", " "), _ALL)
    pages = {title: title for title in titles.values()}
    names, page_of = ({}, {}) if facts else (pages, pages)
    aliases: dict[str, dict[str, None]] = {}
    by_subject: dict[str, list[DatedFact]] = {}
    for fact in facts:
        if not _has_begun(fact, date):
            continue
        subject, answer = _keys(fact)
        by_subject.setdefault(subject, []).append(fact)
        names.setdefault(subject, fact.subject)
        names.setdefault(answer, fact.object)
        aliases.setdefault(subject, {}).update(dict.fromkeys(fact.subject_aliases))
        aliases.setdefault(answer, {}).update(dict.fromkeys(fact.object_aliases))
        if page := next((pages[name] for name in fact.subjects if name in pages), ""):
            page_of[subject] = page
    for key, name in names.items():
        claims: dict[str, list[Any]] = {}
        for fact in by_subject.get(key, ()):
            prop = _property(fact.relation)
            claims.setdefault(prop, []).append(_statement(prop, fact, date))
        title = page_of.get(key)
        yield {
            "type": "item",
            "id": f"Q{hash64(key)}",
            "labels": dump_writer.label_of(name, _ALL),
            "aliases": {_ALL: [{"language": _ALL, "value": a} for a in aliases.get(key, ())]},
            "sitelinks": {WIKI: {"site": WIKI, "title": title, "badges": []}} if title else {},
            "claims": claims,
            "lastrevid": int(date.replace("-", "")),
        }


def _keys(fact: DatedFact) -> tuple[str, str]:
    return fact.subject_id or fact.subject, fact.object_id or fact.object


def _property(relation: str) -> str:
    is_property = relation[:1] == "P" and relation[1:].isdigit()
    return relation if is_property else f"P{10**6 + hash64(relation) % 10**9}"


def _has_begun(fact: DatedFact, date: str) -> bool:
    """Whether a fact is stated at a date; not where "?" leaves open whether it holds."""
    if fact.seen:
        return bool(fact.holds(date))
    if UNKNOWN in (fact.valid_from, fact.valid_to) and fact.holds(date) is None:
        return False
    return fact.valid_from in ("", UNKNOWN) or within(fact.valid_from)[0] <= date


def _statement(prop: str, fact: DatedFact, date: str) -> dict[str, Any]:
    """A statement with its start and, once it is over, its end."""
    days = {"P580": fact.valid_from, "P582": fact.valid_to}
    known = {
        name: [dump_writer.time_snak(name, day)]
        for name, day in days.items()
        if day not in ("", UNKNOWN) and within(day)[0] <= date
    }
    return {
        "mainsnak": dump_writer.item_snak(prop, hash64(_keys(fact)[1])),
        "rank": "normal",
        "qualifiers": known,
    }
