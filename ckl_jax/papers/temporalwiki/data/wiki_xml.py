"""Pages of a MediaWiki XML dump, as a stream (export versions 0.3 to 0.11).

Memory is bounded by the largest page. A document type declaration is refused, and with it every
entity bomb; nothing is ever fetched.
"""

import dataclasses
import os
import re
from collections.abc import Iterable, Iterator
from xml.parsers import expat

from ckl_jax.data.compressed import RECORD_BYTES, read_blocks, too_long
from ckl_jax.data.dump_writer import WIKITEXT
from ckl_jax.errors import UserError

# For dumps without <siteinfo>: the number of a namespace is its place here.
_ENGLISH = (
    ";Talk;User;User talk;Wikipedia;Wikipedia talk;File;File talk;MediaWiki;MediaWiki talk;"
    "Template;Template talk;Help;Help talk;Category;Category talk"
).split(";")
_NAMESPACES = {name: i for i, name in enumerate(_ENGLISH) if name} | {
    "Image": 6,
    "Portal": 100,
    "Portal talk": 101,
    "Book": 108,
    "Draft": 118,
    "Draft talk": 119,
    "TimedText": 710,
    "Module": 828,
    "Module talk": 829,
    "Special": -1,
    "Media": -2,
}
_REDIRECT = re.compile(r"\s*#\s*redirect\b[^\[\n]*\[\[([^\]|#\n]+)", re.IGNORECASE)
_PAGE_FIELDS = {"title", "ns", "id"}
_REVISION_FIELDS = {"id", "timestamp", "sha1", "model", "text"}
_SITE_FIELDS = {"sitename", "dbname", "base", "generator"}


@dataclasses.dataclass(frozen=True)
class Page:
    """One page with its last revision in the dump."""

    # id, title, namespace: of the page; namespace 0 are articles
    id: int
    title: str
    namespace: int = 0
    redirect: str = ""  # title of its target; "" if it is not a redirect
    revision: int = 0  # id of the revision
    timestamp: str = ""  # of the revision, ISO 8601
    sha1: str = ""  # of the text, base 36; "" if the dump has none
    model: str = WIKITEXT  # of the text: "wikitext", "text", "json", "css", ...
    text: str = ""
    line: int = 0  # of the dump's XML where the page begins


@dataclasses.dataclass(frozen=True)
class SiteInfo:
    """A dump's description of its wiki; old dumps may have none."""

    dbname: str = ""  # "enwiki"
    base: str = ""  # URL of the main page
    # sitename, generator: as given
    sitename: str = ""
    generator: str = ""
    language: str = ""  # "en"
    version: str = ""  # of the export format
    # number by name
    namespaces: dict[str, int] = dataclasses.field(default_factory=lambda: dict(_NAMESPACES))

    @property
    def url(self) -> str:
        """URL of a page without its number, as WikiExtractor writes it."""
        base = self.base.rpartition("/")[0] or f"https://{self.language or 'en'}.wikipedia.org/wiki"
        return re.sub(r"^http:", "https:", base) + "?curid="

    def namespace(self, title: str) -> int:
        """The namespace that a title names, for dumps that do not say it (before 0.6)."""
        prefix, colon, _ = title.partition(":")
        return self.namespaces.get(prefix.replace("_", " "), 0) if colon else 0

    @property
    def dropped_links(self) -> frozenset[str]:
        """Lower-case prefixes of the links that show no text: files and categories."""
        own = {name.lower() for name, number in self.namespaces.items() if number in (6, 14)}
        return frozenset(own | {"file", "image", "category"})


def read_site(path: str | os.PathLike) -> SiteInfo:
    """Reads the head of a dump; raises `UserError` if it is not an XML dump."""
    parser = _Parser(path)
    for block in read_blocks(path):
        parser.feed(block)
        if parser.site_done:
            break
    else:
        parser.close()
    return parser.site


def read_pages(
    path: str | os.PathLike,
    start: int = 0,
    stop: int | None = None,
    site: SiteInfo | None = None,
    threads: int = 1,
) -> Iterator[Page]:
    """Yields the pages of a dump in dump order.

    Args:
      path: XML, plain or compressed by gzip or bzip2.
      start, stop: the part of a multistream file to read; `start` > 0 needs `site`.
      site: what `read_site` said.
      threads: that decode a whole bzip2 file, see `read_blocks`.

    Raises:
      UserError: the file is truncated or damaged, its XML is cut or not well-formed, or it declares
        a document type; the message names file, line and byte.
    """
    parser = _Parser(path, start, site)
    for block in read_blocks(path, start, stop, threads):
        parser.feed(block)
        yield from parser.take()
    # A part from the middle ends inside of the root element.
    parser.close(whole=stop is None)
    yield from parser.take()


def ascending(pages: Iterable[Page], path: str | os.PathLike) -> Iterator[Page]:
    """Passes pages on and checks that their ids ascend.

    Raises:
      UserError: an id appears twice or pages are not in order.
    """
    last = None
    for page in pages:
        if last and page.id == last.id:
            raise twice(path, last, page)
        if last and page.id < last.id:
            raise UserError(
                f"{path}, line {page.line}: page {page.id} ({page.title!r}) comes after page "
                f"{last.id}, so the dump is not in the order of page ids; add --unsorted."
            )
        last = page
        yield page


def twice(path: str | os.PathLike, first: Page, second: Page) -> UserError:
    """The error for a page id that occurs twice in a dump."""
    return UserError(
        f"{path}, line {second.line}: page id {second.id} ({second.title!r}) was there before, in "
        f"line {first.line} ({first.title!r}); a dump has every page once."
    )


class _Parser:
    """Expat handlers that keep the fields of `Page` and `SiteInfo` and skip the rest."""

    def __init__(self, path, start: int = 0, site: SiteInfo | None = None):
        self.path, self.start = path, start
        self.site, self.site_done = site or SiteInfo(), site is not None
        self.pages: list[Page] = []
        self.depth, self.section, self.line = 0, "", 0
        self.bytes = self.begun = 0  # what was read, and where in it the last record begins
        self.found: dict[str, str] = {}  # fields of <siteinfo>
        self.names: dict[str, int] = {}
        self.page: dict[str, str] = {}
        self.revision: dict[str, str] = {}
        self.in_revision = False
        self.buffer: list[str] | None = None
        self.expat = expat.ParserCreate()
        # Whole texts in few calls; expat otherwise calls back for every line.
        self.expat.buffer_text = True
        self.expat.buffer_size = 1 << 20
        self.expat.StartElementHandler = self._start
        self.expat.EndElementHandler = self._end
        # Refuses entity bombs: without a document type no entity can be declared.
        self.expat.StartDoctypeDeclHandler = self._doctype
        if start:  # a part from the middle has no root element
            self.feed(b"<mediawiki>")

    def feed(self, block: bytes) -> None:
        self.bytes += len(block)
        try:
            self.expat.Parse(block)
        except expat.ExpatError as e:
            raise self._error(f"the XML is not well-formed ({expat.ErrorString(e.code)})") from e
        if self.bytes - self.begun > RECORD_BYTES:
            raise too_long(
                self.path, f"the page at line {self.expat.CurrentLineNumber}", RECORD_BYTES
            )

    def close(self, whole: bool = True) -> None:
        """Checks that the input ended at a valid place."""
        if self.depth > 1 or (whole and self.depth):
            inside = f" inside page {self.page['title']!r}" if "title" in self.page else ""
            raise self._error(f"the XML stops{inside}, before its end: the file was cut")
        if whole and "version" not in self.found:  # no root element
            raise UserError(
                f"{self.path} is empty: there is no XML in it; give a whole pages-articles dump."
            )

    def take(self) -> list[Page]:
        pages, self.pages = self.pages, []
        return pages

    def _error(self, what: str) -> UserError:
        where = f" after byte {self.start:,} of the file" if self.start else ""
        return UserError(
            f"{self.path}, line {self.expat.CurrentLineNumber} (byte "
            f"{self.expat.CurrentByteIndex:,} of the XML{where}): {what}; give a whole "
            "pages-articles dump."
        )

    def _doctype(self, *unused) -> None:
        raise self._error("it declares a document type, which no dump does and which is not read")

    def _keep(self) -> None:
        self.buffer = []
        # Only while a wanted field is open, so that the rest costs no Python call.
        self.expat.CharacterDataHandler = self.buffer.append

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        depth = self.depth
        if depth <= 3:  # a page, its revisions one after another, and their neighbours
            self.begun = self.expat.CurrentByteIndex
        if depth == 1:
            if name != "mediawiki":
                raise self._error(f"the root element is <{name}> and not <mediawiki>")
            self.found.setdefault("language", attributes.get("xml:lang", ""))
            self.found.setdefault("version", attributes.get("version", ""))
        elif depth == 2:
            self.section = name
            if name == "page":
                self._finish_site()
                self.page, self.revision, self.line = {}, {}, self.expat.CurrentLineNumber
        elif self.section == "page":
            self._start_in_page(name, depth, attributes)
        elif self.section == "siteinfo":
            if name in _SITE_FIELDS or name == "namespace":
                self.key = int(attributes.get("key", 0)) if name == "namespace" else 0
                self._keep()

    def _start_in_page(self, name: str, depth: int, attributes: dict[str, str]) -> None:
        if depth == 3:
            self.in_revision = name == "revision"
            if self.in_revision:
                self.revision = {}
            elif name == "redirect":
                self.page["redirect"] = attributes.get("title", "")
            elif name in _PAGE_FIELDS:
                self._keep()
        elif depth == 4 and self.in_revision and name in _REVISION_FIELDS:
            if name == "text" and "sha1" in attributes:
                self.revision["sha1"] = attributes["sha1"]
            self._keep()

    def _end(self, name: str) -> None:
        self.depth -= 1
        if self.buffer is not None:
            self._store(name, "".join(self.buffer))
            self.buffer = self.expat.CharacterDataHandler = None
        elif self.depth == 1 and name == "page":
            self.pages.append(self._page())
            self.page = {}
        elif self.depth == 1 and name == "siteinfo":
            self._finish_site()

    def _store(self, name: str, text: str) -> None:
        if self.section == "siteinfo":
            if name == "namespace":
                self.names[text] = self.key
            else:
                self.found[name] = text
        elif self.depth == 3:
            self.revision[name] = text
        else:
            self.page[name] = text

    def _finish_site(self) -> None:
        if not self.site_done:
            names = {"namespaces": self.names} if self.names else {}
            self.site, self.site_done = SiteInfo(**self.found, **names), True

    def _page(self) -> Page:
        page, revision = self.page, self.revision
        try:
            title, text = page["title"], revision.get("text", "")
            redirect = page.get("redirect", "")
            model = revision.get("model", WIKITEXT)
            # Older exports have no <redirect> with a title.
            if not redirect and model == WIKITEXT and text[:12].lstrip().startswith("#"):
                redirect = match[1].strip() if (match := _REDIRECT.match(text)) else ""
            return Page(
                id=int(page["id"]),
                title=title,
                namespace=int(page["ns"]) if "ns" in page else self.site.namespace(title),
                redirect=redirect,
                revision=int(revision.get("id", 0)),
                timestamp=revision.get("timestamp", ""),
                sha1=revision.get("sha1", ""),
                model=model,
                text=text,
                line=self.line,
            )
        except (KeyError, ValueError) as e:
            what = f"lacks <{e.args[0]}>" if isinstance(e, KeyError) else f"has a bad number ({e})"
            raise self._error(f"the page of line {self.line} {what}") from e
