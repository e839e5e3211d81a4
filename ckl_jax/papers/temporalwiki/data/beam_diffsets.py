"""`diffsets` as an Apache Beam pipeline: the same functions, shards and manifest.

Dumps are read in parts, by as many workers as there are (a multistream file with its index; else a
file each); the versions of a page come together by its id, its records by shard.
"""

import dataclasses
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ckl_jax.data import beam as beam_runs
from ckl_jax.files import parse_json
from ckl_jax.papers.temporalwiki.data import diffsets, page_diff
from ckl_jax.papers.temporalwiki.data.diffsets import Plan
from ckl_jax.papers.temporalwiki.data.dumps import Dump, Span, pieces
from ckl_jax.papers.temporalwiki.data.page_diff import Rules
from ckl_jax.papers.temporalwiki.data.wiki_xml import Page, SiteInfo, read_pages, twice

PIECE_BYTES = 16 << 20  # of a compressed dump: about 60 MB of XML, some seconds' work
Ids = Sequence[tuple[int, int | None]]


def build(todo: Plan, arguments: str = "") -> dict[str, Any]:
    """Builds a diffset, or its missing shards; returns the manifest, as `diffsets.build`.

    Args:
      todo: what `diffsets.plan` made; every worker can read its dumps and write to its folder.
      arguments: of the pipeline, see `beam_runs.new_pipeline`.

    Raises:
      UserError: bad dumps, a page id that is in a dump twice, bad arguments.
    """
    beam, pipeline = beam_runs.new_pipeline(arguments)
    if done := diffsets.open_diffset(todo):
        return done
    # Shards of an earlier run, local or Beam's, are not made again.
    missing = [i for i in range(len(todo.shards)) if not diffsets.is_done(todo, i)]
    if missing:
        _put_together(beam, pipeline, todo, missing)
        beam_runs.run_pipeline(pipeline)
    return diffsets.finish(todo)


def _put_together(beam, pipeline, todo: Plan, missing: list[int]) -> None:
    rules = todo.options.rules(todo.new)
    paths = {side: dump.path for side, dump in todo.sides.items() if dump}
    sides = {
        side: _pages(beam, pipeline, side, dump, rules, todo.shards, frozenset(missing))
        for side, dump in todo.sides.items()
    }
    # {page id: {"old": [...], "new": [...]}}: the shuffle takes the place of the merge join.
    pairs = sides | "Versions of a page" >> beam.CoGroupByKey()
    outputs = beam_runs.outputs(
        beam, pairs, "Compare", compared, rules, todo.shards, paths, to=("records", "reasons")
    )
    # ((shard, reason), count) -> (shard, (reason, count)).
    by_shard = beam.MapTuple(lambda key, count: (key[0], (key[1], count)))
    reasons = outputs.reasons | "Sum" >> beam.CombinePerKey(sum) | "By shard" >> by_shard
    files = pipeline | "Shards" >> beam.Create(
        [(i, tuple(os.fspath(todo.path(i, end)) for end in (".jsonl", ".json"))) for i in missing]
    )
    _ = (
        {"files": files, "records": outputs.records, "reasons": reasons}
        | "Of a shard" >> beam.CoGroupByKey()
        | "Write" >> beam.Map(write_group)
    )


def _pages(
    beam, pipeline, side: str, dump: Dump | None, rules: Rules, shards: Ids, missing: frozenset[int]
) -> Any:
    return (
        pipeline
        | f"Pieces of {side}" >> beam.Create(pieces(dump, PIECE_BYTES) if dump else [])
        # Breaks the fusion of Create with the reading, or one worker would read everything.
        | f"Spread {side}" >> beam.Reshuffle()
        | f"Read {side}" >> beam.FlatMap(pages, dump and dump.site, rules, shards, missing)
    )


def pages(
    piece: Span, site: SiteInfo | None, rules: Rules, shards: Ids, missing: frozenset[int]
) -> Iterator[tuple[int, bytes]]:
    """Yields (id, packed page) of a part of a dump; pages that do not count have no text."""
    for page in read_pages(piece.path, piece.start, piece.stop, site):
        if diffsets.shard_of(shards, page.id) in missing:
            counts = not page_diff.drop_reason(page, rules)
            yield page.id, pack(page if counts else dataclasses.replace(page, text=""))


def pack(page: Page) -> bytes:
    """Compresses a page for the shuffle, to two fifths of its bytes."""
    return zlib.compress(json.dumps(dataclasses.asdict(page), ensure_ascii=False).encode(), 1)


def unpack(packed: bytes) -> Page:
    return Page(**parse_json(zlib.decompress(packed)))


def compared(
    group: tuple[int, dict[str, Iterable[bytes]]], rules: Rules, shards: Ids, paths: dict[str, str]
) -> Iterator[tuple[str, Any]]:
    """Yields the records of a page as JSON, and its counts (`page_diff.compare`)."""
    number, versions = group
    pair = tuple(_one(versions[side], paths.get(side, "")) for side in ("old", "new"))
    wanted, reason = page_diff.triage(pair, rules)
    records, counts = page_diff.compare(wanted, rules) if wanted else ([], {reason: 1})
    shard = diffsets.shard_of(shards, number)
    for reason, count in counts.items():
        yield "reasons", ((shard, reason), count)
    if records:
        yield "records", (shard, (number, json.dumps(records, ensure_ascii=False)))


def _one(versions: Iterable[bytes], path: str) -> Page | None:
    # A page id occurs once in a dump; by line, so that the error names the first.
    entries = sorted(map(unpack, versions), key=lambda page: page.line)
    if len(entries) > 1:
        raise twice(path, *entries[:2])
    return entries[0] if entries else None


def write_group(group: tuple[int, dict[str, Iterable]]) -> None:
    """Writes a shard, in the order of page ids."""
    (paths,) = group[1]["files"]
    # Beam gives groups in any order; files are in the order of ids, as the local build writes them.
    pages_ = sorted(group[1]["records"])
    records = (record for _, text in pages_ for record in parse_json(text))
    diffsets.write_shard(*paths, records, dict(group[1]["reasons"]))
