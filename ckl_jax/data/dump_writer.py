"""Writes dumps in Wikimedia's formats: multistream XML with its index, JSON of entities."""

import bz2
import gzip
import hashlib
import itertools
import json
import os
from collections.abc import Iterable
from typing import Any, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from ckl_jax.files import atomic_write, write_file

WIKITEXT, PLAIN_TEXT = "wikitext", "text"  # content models of pages
_FORMATS = {WIKITEXT: "text/x-wiki", PLAIN_TEXT: "text/plain"}
PAGES_PER_STREAM = 100
_NAMESPACES = {0: "", 1: "Talk", 6: "File", 10: "Template", 14: "Category"}
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class PageText(NamedTuple):
    """One page and its only revision."""

    id: int
    title: str
    revision: int
    edited: str  # day of the revision, YYYY-MM-DD
    text: str  # in the content model `model`
    redirect: str = ""  # title of the target of a redirect
    model: str = WIKITEXT

    def xml(self) -> str:
        """The <page> element."""
        redirect = f"    <redirect title={quoteattr(self.redirect)} />\n" if self.redirect else ""
        digest = _base36(hashlib.sha1(self.text.encode()).digest())
        return (
            f"  <page>\n    <title>{escape(self.title)}</title>\n    <ns>0</ns>\n"
            f"    <id>{self.id}</id>\n{redirect}    <revision>\n      <id>{self.revision}</id>\n"
            f"      <timestamp>{self.edited}T00:00:00Z</timestamp>\n"
            f"      <contributor>\n        <username>Someone</username>\n        <id>7</id>\n"
            f"      </contributor>\n      <model>{self.model}</model>\n"
            f"      <format>{_FORMATS[self.model]}</format>\n"
            f'      <text bytes="{len(self.text.encode())}" sha1="{digest}" xml:space="preserve">'
            f"{escape(self.text)}</text>\n      <sha1>{digest}</sha1>\n"
            "    </revision>\n  </page>\n"
        )


def write_pages(
    path: str | os.PathLike, wiki: str, pages: Iterable[PageText], language: str = "en"
) -> int:
    """Writes a multistream file and, beside it, its index; returns their number.

    Args:
      path: ends in ".xml.bz2".
      wiki: such as "simwiki".
      pages: in the order of their ids.
      language: of the wiki, by whose rules its sentences are split.
    """
    lines: list[str] = []
    pages = iter(pages)
    with atomic_write(path, "wb") as f:
        f.write(bz2.compress(_head(wiki, language).encode()))
        while part := list(itertools.islice(pages, PAGES_PER_STREAM)):
            lines += [f"{f.tell()}:{page.id}:{page.title}\n" for page in part]
            f.write(bz2.compress("".join(page.xml() for page in part).encode()))
        f.write(bz2.compress(b"</mediawiki>\n"))
    index = str(path).replace(".xml.bz2", "-index.txt.bz2")
    write_file(index, bz2.compress("".join(lines).encode()))
    return len(lines)


def _head(wiki: str, language: str) -> str:
    name = "http://www.mediawiki.org/xml/export-0.11/"
    spaces = "".join(
        f'      <namespace key="{key}" case="first-letter">{text}</namespace>\n'
        for key, text in _NAMESPACES.items()
    )
    host = wiki.removesuffix("wiki")
    return (
        f'<mediawiki xmlns="{name}" version="0.11" xml:lang={quoteattr(language)}>\n  <siteinfo>\n'
        f"    <sitename>Wikipedia</sitename>\n    <dbname>{wiki}</dbname>\n"
        f"    <base>https://{host}.wikipedia.org/wiki/Main_Page</base>\n"
        f"    <namespaces>\n{spaces}    </namespaces>\n  </siteinfo>\n"
    )


def _base36(digest: bytes) -> str:
    number, out = int.from_bytes(digest, "big"), ""
    while number:
        number, rest = divmod(number, 36)
        out = _DIGITS[rest] + out
    return out.rjust(31, "0")


def write_entities(path: str | os.PathLike, entities: Iterable[dict[str, Any]]) -> None:
    """Writes entities as JSON lines in a list, compressed by gzip."""
    lines = ",\n".join(json.dumps(e, ensure_ascii=False) for e in entities)
    write_file(path, gzip.compress(f"[\n{lines}\n]\n".encode(), mtime=0))


def property_of(key: str, label: str, language: str = "en") -> dict[str, Any]:
    """A property without claims, as dumps of 2014 have it."""
    return {"type": "property", "id": key, "labels": label_of(label, language)}


def label_of(text: str, language: str = "en") -> dict[str, Any]:
    """The labels of an entity with one; of the language "mul" it is one in all languages."""
    return {language: {"language": language, "value": text}}


def item_snak(prop: str, number: int, with_id: bool = True) -> dict[str, Any]:
    """The value of a statement: the item Q`number`."""
    value: dict[str, Any] = {"entity-type": "item", "numeric-id": number}
    if with_id:
        value["id"] = f"Q{number}"
    datavalue = {"value": value, "type": "wikibase-entityid"}
    return {"snaktype": "value", "property": prop, "datavalue": datavalue}


def time_snak(prop: str, day: str) -> dict[str, Any]:
    """A date.

    Args:
      prop: such as "P580".
      day: YYYY-MM-DD, or cut or with 00 where no more is known.
    """
    parts = [part for part in day.split("-") if part != "00"]
    whole = "-".join((parts + ["00", "00"])[:3])
    value = {"time": f"+{whole}T00:00:00Z", "precision": 8 + len(parts)}  # 9 is a year, 11 a day
    return {"snaktype": "value", "property": prop, "datavalue": {"value": value, "type": "time"}}
