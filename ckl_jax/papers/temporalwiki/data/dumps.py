"""A dump as a list of spans that can be read independently, by ranges of page ids.

A span is one file of a dump in parts, or one run of streams of a multistream file with its index.
"""

import bisect
import dataclasses
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path

from ckl_jax.data.compressed import is_multistream, read_lines
from ckl_jax.errors import UserError
from ckl_jax.files import require_file
from ckl_jax.papers.temporalwiki.data import wiki_xml
from ckl_jax.papers.temporalwiki.data.wiki_xml import Page, SiteInfo, read_pages

_PARTS = re.compile(r"p(\d+)p(\d+)")
_WIKI = re.compile(
    r"([a-z][a-z0-9_]*(?:wiki(?:books|news|quote|source|versity|voyage)?|wiktionary))-(?:\d{8}|latest)"
)
_DATE = re.compile(r"(?<!\d)((?:19|20)\d{2})[-_]?(0[1-9]|1[0-2])[-_]?(\d{2})?(?!\d)")


@dataclasses.dataclass(frozen=True)
class Span:
    """A part of a dump.

    Attributes:
      start, stop: bytes of the compressed file; `stop` None is the end.
      first: no page of it has a smaller id.
    """

    path: str
    start: int = 0
    stop: int | None = None
    first: int = 0


@dataclasses.dataclass(frozen=True)
class Dump:
    """A pages-articles dump: its files, its site information, its spans in order of page ids.

    `threads` decode the blocks of a bzip2 file that is read whole, as one without an index is.
    """

    path: str  # file or folder, as given
    date: str  # "20150112", from the name; "" if it has none
    wiki: str  # "enwiki", as it says itself, else from the name; "" if neither does
    site: SiteInfo  # of its first file
    spans: tuple[Span, ...]  # at least one
    threads: int = 1

    @property
    def name(self) -> str:
        return Path(self.path).name

    @property
    def bytes(self) -> int:
        # A set: the spans of a multistream file have one path.
        return sum(os.path.getsize(path) for path in {span.path for span in self.spans})

    def pages(self, low: int = 0, high: int | None = None) -> Iterator[Page]:
        """Yields the pages with low <= id < high, in order.

        Raises:
          UserError: as `read_pages` and `ascending`.
        """
        for page in wiki_xml.ascending(self.unsorted_pages(low, high), self.path):
            if high is not None and page.id >= high:
                return
            if page.id >= low:
                yield page

    def unsorted_pages(self, low: int = 0, high: int | None = None) -> Iterator[Page]:
        """Yields all pages of the spans that may contain such ids, in dump order."""
        for i, span in enumerate(self.spans):
            # Spans are in order of page ids, so the next one's first id bounds this one's.
            following = self.spans[i + 1].first if i + 1 < len(self.spans) else None
            # A span whose ids are all outside of the range is not decompressed.
            after = high is not None and span.first >= high
            before = following is not None and following <= low
            if not after and not before:
                yield from read_pages(span.path, span.start, span.stop, self.site, self.threads)


def date_of(path: str | os.PathLike) -> str:
    """The date in a dump's name as YYYYMMDD (day 01 if it has none); "" if there is no date."""
    match = _DATE.search(Path(path).name)
    return f"{match[1]}{match[2]}{match[3] or '01'}" if match else ""


def wiki_of(path: str | os.PathLike) -> str:
    """The wiki in a dump's name, such as "enwiki"; "" if there is none."""
    match = _WIKI.match(Path(path).name)
    return match[1] if match else ""


def open_dump(path: str | os.PathLike, spans: bool = True) -> Dump:
    """Finds the files of a dump and reads its head.

    Args:
      path: a file, or a folder with the parts of one dump (named ...p1p41242...). The index of a
        multistream file is used if it lies beside it under its usual name.
      spans: find them; without, no index is read, and only the dump's own page is listed.

    Raises:
      UserError: there is no dump.
    """
    path = Path(path)
    files = _files(path)
    all_spans = [s for file, first in files for s in _spans(file, first)] if spans else ()
    site = wiki_xml.read_site(files[0][0])
    return Dump(
        os.fspath(path),
        date_of(path) or date_of(files[0][0]),
        # Old exports have no <dbname>.
        site.dbname or wiki_of(path) or wiki_of(files[0][0]),
        site,
        tuple(all_spans),
    )


def _files(path: Path) -> list[tuple[Path, int]]:
    """(file, first page id) of a dump, in order."""
    if not path.is_dir():
        said = f"There is no dump {path}; give a pages-articles file, or a folder of one."
        require_file(path, said)
        return [(path, 0)]
    paths = [p for p in path.iterdir() if ".xml" in p.name and "-index" not in p.name]
    if not paths:
        raise UserError(f"{path} holds no *.xml* file; give a pages-articles file or its folder.")
    numbers = {p: _PARTS.search(p.name) for p in paths}
    if len(paths) > 1 and (missing := [p for p in paths if not numbers[p]]):
        raise UserError(
            f"{missing[0]} is one of several dump files in {path} but its name does not say which "
            "pages it has (such as p1p41242); keep the parts of one dump in a folder of their own."
        )
    firsts = [(p, int(m[1]) if (m := numbers[p]) else 0) for p in paths]
    # By number: in alphabetical order p10 comes before p9.
    return sorted(firsts, key=lambda pair: (pair[1], pair[0].name))


def _spans(path: Path, first: int) -> list[Span]:
    # "...-multistream.xml.bz2" -> "...-multistream-index.txt.bz2".
    index = Path(re.sub(r"\.xml(\.bz2)?$", r"-index.txt\1", os.fspath(path)))
    if index == path or not index.is_file() or not is_multistream(path):
        return [Span(os.fspath(path), 0, None, first)]
    starts = list(read_index(index))
    # An index of another month or of another file.
    if not starts or starts[-1][0] >= path.stat().st_size:
        raise UserError(f"{index} is not the index of {path}; fetch both again.")
    # A stream ends where the next begins; the last one at the end of the file.
    bounds = itertools.pairwise([*starts, (None, 0)])
    return [Span(os.fspath(path), start, stop, i) for (start, i), (stop, _) in bounds]


def read_index(path: str | os.PathLike) -> Iterator[tuple[int, int]]:
    """Yields (byte offset, first page id) of each stream listed in a multistream index.

    Raises:
      UserError: a line is not `offset:page id:title`, or offsets or ids do not grow.
    """
    last = (-1, -1)
    for number, _, line in read_lines(path):
        offset, _, rest = line.partition(b":")
        identifier = rest.partition(b":")[0]
        if not line:
            continue
        if not (offset.isdigit() and identifier.isdigit()) or int(offset) < last[0]:
            raise UserError(
                f"{path}, line {number}: not 'offset:page id:title' in the order of offsets; "
                "fetch the index again."
            )
        # The index has a line for each page; a hundred pages share a stream.
        if int(offset) > last[0]:
            if int(identifier) < last[1]:
                raise UserError(
                    f"{path}, line {number}: the dump is not in the order of page ids; move the "
                    "index away and add --unsorted."
                )
            last = (int(offset), int(identifier))
            yield last


def id_ranges(dump: Dump, shards: int) -> list[tuple[int, int | None]]:
    """At most `shards` ranges [low, high) of page ids that cut `dump` into parts of equal bytes.

    A dump of one span gives one range.
    """
    # By compressed bytes, which the work is proportional to, not by ids.
    stops = [os.path.getsize(s.path) if s.stop is None else s.stop for s in dump.spans]
    sizes = (max(1, stop - s.start) for stop, s in zip(stops, dump.spans, strict=True))
    ends = list(itertools.accumulate(sizes))
    wanted = [ends[-1] * i / shards for i in range(1, shards)]
    # The span in which each wanted byte lies; a range begins with the first page of a span.
    cuts = [bisect.bisect_right(ends, byte) for byte in wanted]
    firsts = sorted({dump.spans[i].first for i in cuts if 0 < i < len(dump.spans)} - {0})
    return list(zip([0, *firsts], [*firsts, None], strict=True))


def pieces(dump: Dump, size: int) -> list[Span]:
    """The spans of a dump, with those of one file joined up to about `size` compressed bytes."""
    spans: list[Span] = []
    for span in dump.spans:
        last = spans[-1] if spans else None
        if last and last.path == span.path and span.start - last.start < size:
            # Only neighbours of one file: their bytes are contiguous.
            spans[-1] = dataclasses.replace(last, stop=span.stop)
        else:
            spans.append(span)
    return spans


def check_pair(old: Dump, new: Dump) -> None:
    """Raises `UserError` unless two dumps are of the same wiki and in chronological order."""
    check_wikis(old, new)
    if old.date and new.date and old.date >= new.date:
        relation = "of the same date as" if old.date == new.date else "newer than"
        raise UserError(
            f"The old dump {old.path} ({old.date}) is {relation} the new one, {new.path} "
            f"({new.date}); give the older one as --old."
        )
    if not (old.date and new.date):
        # Names without dates: the newest edit among the first pages decides the order.
        newest = [_newest(dump) for dump in (old, new)]
        if newest[0] > newest[1]:
            raise UserError(
                f"The first pages of {old.path} were edited after those of {new.path} "
                f"({newest[0]} and {newest[1]}); give the older dump as --old."
            )


def check_wikis(old: Dump, new: Dump) -> None:
    """Raises `UserError` if two dumps are of different wikis, by their names or their hosts."""
    # By name if both have one, else by host.
    hosts = tuple(d.site.base.partition("//")[2].partition("/")[0] for d in (old, new))
    for wikis in ((old.wiki, new.wiki), hosts):
        if all(wikis):
            if wikis[0] != wikis[1]:
                raise UserError(
                    f"{old.path} is a dump of {wikis[0]} and {new.path} of {wikis[1]}; give two "
                    "of one wiki."
                )
            return


def _newest(dump: Dump, pages: int = 200) -> str:
    return max((p.timestamp for p in itertools.islice(dump.unsorted_pages(), pages)), default="")
