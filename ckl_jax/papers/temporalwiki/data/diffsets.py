"""TWiki-Diffsets: from two dumps of one Wikipedia to the text that is new in the later one.

Compared with nothing, all text of a dump is new: so whole snapshots are made too. A streaming merge
join by page id. The dumps are cut into ranges of page ids (shards); a finished
shard has a marker and is not made again. Pages with an unchanged revision are skipped before any
wikitext is parsed.
"""

import bisect
import collections
import contextlib
import csv
import dataclasses
import heapq
import importlib.metadata
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax import checks, files
from ckl_jax.data import process_pool
from ckl_jax.data.buckets import bucket_path, write_rows
from ckl_jax.data.process_pool import Progress, no_progress
from ckl_jax.errors import UserError
from ckl_jax.options import Ints
from ckl_jax.papers.temporalwiki.data import page_diff
from ckl_jax.papers.temporalwiki.data.algorithm1 import DELETED, DELETED_PAGE, NEW
from ckl_jax.papers.temporalwiki.data.dumps import Dump, check_pair, id_ranges, open_dump
from ckl_jax.papers.temporalwiki.data.edits import Edit, says_something_new
from ckl_jax.papers.temporalwiki.data.inline_templates import read_table
from ckl_jax.papers.temporalwiki.data.page_diff import OF_TEXT, Pair, Rules
from ckl_jax.papers.temporalwiki.data.wiki_xml import Page, ascending

FORMAT = 1
SHARD_BYTES = 64 << 20  # of the compressed new dump
_BATCH_BYTES = 1 << 20  # of wikitext that a worker gets at once
_COLUMNS = ("id", "url", "title", "text")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of a diffset.

    Attributes:
      namespaces: Numbers of the namespaces that count.
      disambiguation: Keep disambiguation pages.
      legacy: Compare as the paper's released function does.
      deletions: Also list the text that is gone.
      unsorted: The dumps are not in the order of page ids; sort them through files.
      shards: Shards of the work, at most; 0 is one for 64 MiB of the new dump.
      templates: File of templates within sentences, NAME = PATTERN on each line, beside the known
        ones.
    """

    namespaces: Ints = (0,)
    disambiguation: bool = False
    legacy: bool = False
    deletions: bool = False
    unsorted: bool = False
    shards: int = 0
    templates: str = ""

    def rules(self, dump: Dump) -> Rules:
        return Rules(
            dump.site.language or "en",
            dump.site.dropped_links,
            self.namespaces,
            self.disambiguation,
            self.legacy,
            self.deletions,
            tuple(read_table(self.templates).items()) if self.templates else (),
        )


@dataclasses.dataclass(frozen=True)
class Plan:
    """What `build` will do.

    Attributes:
      old, new: the dumps; `old` None is nothing.
      shards: ranges of page ids, or (unsorted) numbers of buckets with None.
    """

    old: Dump | None
    new: Dump
    options: Options
    out: Path
    shards: tuple[tuple[int, int | None], ...]

    def name(self, shard: int) -> str:
        return f"diffset-{shard:05d}-of-{len(self.shards):05d}"

    def path(self, shard: int, suffix: str) -> Path:
        return self.out / "shards" / f"{self.name(shard)}{suffix}"

    @property
    def csv_name(self) -> str:
        return f"wikipedia_{self._dates}_subset.csv" if self.old else f"wikipedia_{self._dates}.csv"

    @property
    def documents_name(self) -> str:
        return f"{'diffset' if self.old else 'wikipedia'}_{self._dates}.jsonl"

    @property
    def _dates(self) -> str:
        new = self.new.date or "new"
        return f"{self.old.date or 'old'}_{new}" if self.old else new

    @property
    def sides(self) -> dict[str, Dump | None]:
        return {"old": self.old, "new": self.new}

    def settings(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "old": _describe(self.old) if self.old else None,
            "new": _describe(self.new),
            # By content: the file may move, and probes read their pages alike.
            "options": dataclasses.asdict(self.options)
            | {"templates": self.options.rules(self.new).templates},
            "shards": self.shards,
        }


def shard_of(shards: Sequence[tuple[int, int | None]], page: int) -> int:
    """The shard number of a page id; `shards` as in `Plan`."""
    if len(shards) > 1 and shards[0][1] is None:  # buckets
        return page % len(shards)
    return bisect.bisect_right(shards, page, key=lambda ids: ids[0]) - 1


def _describe(dump: Dump) -> dict[str, Any]:
    about = {name: getattr(dump, name) for name in ("name", "date", "bytes", "wiki")}
    return about | {"generator": dump.site.generator}


def plan(
    old: str | os.PathLike | None, new: str | os.PathLike, out: str | os.PathLike, options: Options
) -> Plan:
    """Opens two dumps and cuts them into shards; writes nothing.

    Args:
      old: None compares with nothing: all articles of `new` are taken whole.
      new: the later dump.
      out: folder.
      options: of the comparison.

    Raises:
      UserError: a dump is missing, or they are not two of one wiki in order.
    """
    dumps = open_dump(old) if old else None, open_dump(new)
    if dumps[0]:
        check_pair(*dumps)
    wanted = options.shards or -(-dumps[1].bytes // SHARD_BYTES)
    # Unsorted dumps are hashed into buckets of page ids, which are sorted in memory one by one.
    if options.unsorted:
        shards = [(i, None) for i in range(wanted)]
    else:
        shards = id_ranges(dumps[1], wanted)
    return Plan(*dumps, options, Path(out), tuple(shards))


def build(
    todo: Plan, workers: int = 1, part: tuple[int, int] = (0, 1), progress: Progress = no_progress
) -> dict[str, Any] | None:
    """Builds a diffset, or continues an unfinished one.

    Args:
      todo: what `plan` made.
      part: (i, N): only the shards whose number modulo N is i; machines that share the folder can
        so divide the work.

    Returns:
      The manifest; None if shards of other parts are not finished.

    Raises:
      UserError: bad dumps; finished shards are kept.
    """
    if done := open_diffset(todo, shared=part != (0, 1)):
        return done
    with files.locked(todo.out) if part == (0, 1) else contextlib.nullcontext():
        every = range(len(todo.shards))
        mine = [i for i in every if i % part[1] == part[0] and not is_done(todo, i)]
        progress(len(every) - len(mine), len(every), "shards")
        if mine:
            _make_shards(todo, mine, workers, progress)
        return finish(todo) if all(is_done(todo, i) for i in every) else None


def open_diffset(todo: Plan, shared: bool = False) -> dict[str, Any] | None:
    """Creates or reopens the folder; returns the manifest if all that differs is `unsorted`.

    An unfinished folder that was begun in the order of ids is begun anew with --unsorted.

    Raises:
      UserError: the folder was begun with other dumps or settings.
    """
    settings, path = files.as_json(todo.settings()), todo.out / "settings.json"
    is_begun = todo.options.unsorted and path.is_file()
    if is_begun and (before := files.read_json_object(path)) != settings:
        before["options"]["unsorted"] = True
        if before | {"shards": settings["shards"]} == settings:
            if (todo.out / "manifest.json").is_file():
                return read_manifest(todo.out)
            if not shared:
                shutil.rmtree(todo.out)
    # Another machine may be writing another part.
    process_pool.open_folder(todo.out, settings, shared=shared)
    return None


def is_done(todo: Plan, shard: int) -> bool:
    """Whether the shard is finished."""
    return todo.path(shard, ".json").is_file()


def _make_shards(todo: Plan, mine: list[int], workers: int, progress: Progress) -> None:
    if todo.options.unsorted:
        _sort_pages(_by_threads(todo, workers), progress)
    total = len(todo.shards)
    with process_pool.processes(workers) as pool:
        # Whole shards for each process while there are enough of them: nothing is sent between
        # processes.
        if len(mine) >= workers or pool is None:
            tasks = [(todo, i) for i in mine]
            process_pool.run_tasks(_shard, tasks, pool, progress, "shards", total - len(mine))
            return
        for done, i in enumerate(mine, total - len(mine) + 1):
            # Too few shards to go round: this process reads, by threads, the others parse.
            make_shard(
                _by_threads(todo, workers), i, pool, workers, lambda n: progress(n, 0, "pages")
            )
            progress(done, total, "shards")


def _by_threads(todo: Plan, threads: int) -> Plan:
    """The same work, with threads that decode bzip2 files without an index."""
    old = todo.old and dataclasses.replace(todo.old, threads=threads)
    return dataclasses.replace(todo, old=old, new=dataclasses.replace(todo.new, threads=threads))


def _sort_pages(todo: Plan, progress: Progress) -> None:
    marker = todo.out / "sorted.json"
    if marker.is_file():
        return
    for side, dump in todo.sides.items():
        if dump:
            progress(0, 0, f"pages of {dump.name} sorted")
            folder = todo.out / "sorted" / side
            rows = ((page.id, dataclasses.asdict(page)) for page in dump.unsorted_pages())
            write_rows(rows, folder, len(todo.shards))
    files.write_json(marker, {"buckets": len(todo.shards)})


def _shard(task: tuple[Plan, int]) -> None:
    make_shard(*task)


def make_shard(todo: Plan, shard: int, pool=None, workers: int = 1, pages=lambda n: None) -> None:
    """Writes the records of one range of page ids, then its marker with the counts."""
    rules = todo.options.rules(todo.new)
    counts: collections.Counter[str] = collections.Counter()
    # Triage before parsing: a month changes about 5 % of English Wikipedia's pages.
    sides = (_pages(todo, side, dump, shard) for side, dump in todo.sides.items())
    pairs = _wanted(join(*sides), rules, counts, pages)
    # Batches by bytes of text, not by pages, whose lengths differ by a thousand.
    work = ((batch, rules) for batch in process_pool.batches(pairs, _text_bytes, _BATCH_BYTES))
    records = _records(process_pool.ordered_map(compare_batch, work, pool, 2 * workers), counts)
    write_shard(todo.path(shard, ".jsonl"), todo.path(shard, ".json"), records, counts)


def _records(compared: Iterable[tuple[list, Mapping]], counts) -> Iterator[dict[str, Any]]:
    for records, of_pages in compared:
        counts.update(of_pages)
        yield from records


def write_shard(
    path: str | os.PathLike,
    marker: str | os.PathLike,
    records: Iterable[dict[str, Any]],
    counts: Mapping[str, int],
) -> None:
    """Writes records, then the marker with the page `counts`, which may grow during writing."""
    files.write_jsonl(path, records)
    # Last: the marker says that the records are whole.
    files.write_json(marker, {"pages": dict(sorted(counts.items()))})


def _pages(todo: Plan, side: str, dump: Dump | None, shard: int) -> Iterator[Page]:
    """The pages of one dump, by id."""
    if dump is None:
        return iter(())
    if todo.options.unsorted:
        rows = files.read_jsonl(bucket_path(todo.out / "sorted" / side, shard))
        return ascending(sorted((Page(**row) for row in rows), key=lambda p: p.id), dump.path)
    return dump.pages(*todo.shards[shard])


def join(old: Iterable[Page], new: Iterable[Page]) -> Iterator[Pair]:
    """Merge join of two streams sorted by id; None where one lacks the page."""
    old, new = iter(old), iter(new)
    a, b = next(old, None), next(new, None)
    # The merge step of a merge join: the smaller id goes first, alone.
    while a or b:
        if b is None or (a and a.id < b.id):
            yield a, None
            a = next(old, None)
        elif a is None or b.id < a.id:
            yield None, b
            b = next(new, None)
        else:
            yield a, b
            a, b = next(old, None), next(new, None)


def _wanted(pairs: Iterable[Pair], rules: Rules, counts, pages) -> Iterator[Pair]:
    for number, pair in enumerate(pairs, 1):
        if number % 10_000 == 0:
            pages(number)
        wanted, reason = page_diff.triage(pair, rules)
        if wanted:
            yield wanted
        else:
            counts[reason] += 1


def _text_bytes(pair: Pair) -> int:
    return sum(len(page.text) for page in pair if page)


def compare_batch(work: tuple[list[Pair], Rules]) -> tuple[list[dict[str, Any]], Mapping[str, int]]:
    """Returns the records of some pairs of pages, and the counts of `page_diff.compare`."""
    pairs, rules = work
    records, counts = [], collections.Counter()
    for pair in pairs:
        page_records, of_page = page_diff.compare(pair, rules)
        records += page_records
        counts.update(of_page)
    return records, counts


# --- the whole


def finish(todo: Plan) -> dict[str, Any]:
    """Combines finished shards into tables; returns the manifest."""
    path = todo.out / "manifest.json"
    if path.is_file():
        return files.read_json_object(path)
    pages: collections.Counter[str] = collections.Counter()
    for i in range(len(todo.shards)):
        pages.update(files.read_json(todo.path(i, ".json"))["pages"])
    manifest = {
        **todo.settings(),
        "shards": len(todo.shards),
        "files": [f"shards/{todo.name(i)}.jsonl" for i in range(len(todo.shards))],
        "csv": todo.csv_name,
        "documents": todo.documents_name,
        "pages": {k: n for k, n in pages.most_common() if not k.startswith(OF_TEXT)},
        "templates": {k[len(OF_TEXT) :]: n for k, n in pages.items() if k.startswith(OF_TEXT)},
        **_write_articles(todo),
        "versions": {p: importlib.metadata.version(p) for p in ("mwparserfromhell", "sentencex")},
    }
    shutil.rmtree(todo.out / "sorted", ignore_errors=True)
    files.write_json(path, manifest)
    return manifest


_DUMP = {"name": str, "date": str, "wiki": str}
_MANIFEST = {
    "format": int,
    "files": [str],
    "records": {"*": int},
    "new": _DUMP,
    "old": (_DUMP, type(None)),  # of none, all pages are new
    "options": {
        "deletions": bool,
        "templates": ([[str]], type(None)),
    },  # an earlier version's: none
}
_RECORD = {"page_id": int, "title": str, "kind": str, "text": str}
_DO = "make the diffset again with `ckl data diffsets`"


def read_records(folder: str | os.PathLike) -> Iterator[dict[str, Any]]:
    """Yields the records of a finished diffset: page_id, title, kind, text and, of new sentences in
    old articles, edits (`edits.Edit`); in the order of page ids.

    Raises:
      UserError: the folder holds no finished diffset, or it is damaged.
    """
    manifest, there = read_manifest(folder), 0
    shards = (_checked(Path(folder) / name) for name in manifest["files"])
    for record in _by_page(shards, manifest["options"].get("unsorted", False)):
        there += 1
        yield record
    if there != (known := sum(manifest["records"].values())):
        what = f"the files of {folder} hold {there:,} records, manifest.json counts {known:,}"
        raise UserError(f"{what}; {_DO}.")


def _checked(path: Path) -> Iterator[dict[str, Any]]:
    for number, record in enumerate(files.read_jsonl(path), 1):
        checks.require_fields(f"{path}, record {number}", record, _RECORD, _DO)
        yield record


def _by_page(shards: Iterable[Iterator], unsorted: bool) -> Iterator[dict[str, Any]]:
    """The records of shards in the order of page ids."""
    # Shards of unsorted dumps have ids of all sizes; the others are ranges of ids.
    if unsorted:
        return heapq.merge(*shards, key=lambda record: record["page_id"])
    return itertools.chain.from_iterable(shards)


def record_files(folder: str | os.PathLike) -> list[Path]:
    """The files of the records of a finished diffset."""
    return [Path(folder) / name for name in read_manifest(folder)["files"]]


def read_manifest(folder: str | os.PathLike) -> dict[str, Any]:
    """The result of `finish` for a diffset that is already finished."""
    manifest = Path(folder) / "manifest.json"
    if not manifest.is_file():
        raise UserError(f"{folder} holds no finished diffset; make it with `ckl data diffsets`.")
    result = files.read_json(manifest)
    checks.require_fields(str(manifest), result, _MANIFEST, _DO)
    if result["format"] != FORMAT:
        raise UserError(f"{manifest} is of another version (format {result['format']}); {_DO}.")
    parts = {name: Path(name).parts for name in result["files"]}
    if strange := [n for n, of in parts.items() if "\0" in n or {"..", "/"} & {*of}]:
        raise UserError(f"{manifest}: {strange[0]!r} in 'files' is no name of a file; {_DO}.")
    return result


def _write_articles(todo: Plan) -> dict[str, Any]:
    """Writes each article once, in the published columns and as dated documents, and counts.

    The counts are those of Table 1, in words.
    """
    kinds: collections.Counter[str] = collections.Counter()
    sentences: collections.Counter[str] = collections.Counter()
    articles = words = 0
    url, date = todo.new.site.url, todo.new.date
    # Documents need a date; a dump without one in its name gets the epoch.
    iso = f"{date[:4]}-{date[4:6]}-{date[6:]}" if date else "1970-01-01"
    with (
        files.atomic_write(todo.out / todo.csv_name) as table,
        files.atomic_write(todo.out / todo.documents_name) as documents,
    ):
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for page, title, text, marks in _articles(todo, kinds, sentences):
            writer.writerow((page, f"{url}{page}", title, text))
            document = {"id": str(page), "date": iso, "title": title, "text": text}
            if todo.old and not todo.options.legacy:
                document["marks"] = marks
            documents.write(json.dumps(document, ensure_ascii=False) + "\n")
            articles, words = articles + 1, words + len(text.split())
    counts = {"articles": articles, "words": words, "records": dict(kinds.most_common())}
    return counts | ({"edits": dict(sentences.most_common())} if sentences else {})


def _articles(todo: Plan, kinds, sentences) -> Iterator[tuple[int, str, str, list[list[int]]]]:
    """(page id, title, its whole new text, what is marked) of each article with any new text.

    Counts the records by kind, and the new sentences of old articles by edit.
    """
    shards = (files.read_jsonl(todo.path(i, ".jsonl")) for i in range(len(todo.shards)))
    rows = _by_page(shards, todo.options.unsorted)
    # Records of a page follow each other.
    for (page, title), records in itertools.groupby(rows, lambda r: (r["page_id"], r["title"])):
        texts, marks, length = [], [], 0
        for record in records:
            kinds[record["kind"]] += 1
            if record["kind"] not in (DELETED, DELETED_PAGE):
                texts.append(record["text"])
                edits = [Edit(*edit) for edit in record.get("edits", ())]
                sentences.update(edit.kind for edit in edits)
                marks += [[length + a, length + b] for a, b in _marks(record, edits)]
                length += len(record["text"]) + 1
        if texts:
            yield page, title, "\n".join(texts), marks


def _marks(record: Mapping[str, Any], edits: Sequence[Edit]) -> Iterator[tuple[int, int]]:
    """Yields what says something new: all of a new article, the changed spans of an old one."""
    if record["kind"] == NEW and record["text"]:
        yield 0, len(record["text"])
    for edit in edits:
        if says_something_new(edit):
            yield from edit.spans
