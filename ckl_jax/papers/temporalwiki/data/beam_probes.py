"""`probes` as two Apache Beam pipelines, one to the facts in words and one to those in the texts.

The functions for an item and for a page are those of `probe_rows`, and so are the counts. The
filters of all probes together are applied afterwards to what is left, as in `probes`.

A row is known by its JSON while labels are joined to it: it is the only one of its fact.
"""

import dataclasses
import functools
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ckl_jax.data import beam as beam_runs
from ckl_jax.data.beam import COUNTS, counted
from ckl_jax.data.buckets import bucket_path, hash64
from ckl_jax.data.facts.wikidata_json import Entity, FactRules, entity_lines
from ckl_jax.files import parse_json, read_json, read_jsonl
from ckl_jax.papers.temporalwiki.data import fact_store, probe_rows, probe_stages, probes
from ckl_jax.papers.temporalwiki.data.beam_diffsets import PIECE_BYTES
from ckl_jax.papers.temporalwiki.data.diffsets import record_files
from ckl_jax.papers.temporalwiki.data.dumps import Span, open_dump, pieces
from ckl_jax.papers.temporalwiki.data.probe_rows import Job
from ckl_jax.papers.temporalwiki.data.probe_stages import Stages
from ckl_jax.papers.temporalwiki.data.wiki_xml import SiteInfo, read_pages

READER_BYTES = 1 << 30  # of a compressed Wikidata dump: one reader more for each
_MAX_READERS = 16
Label = tuple[str, int]  # whose dump, number of the item
Group = tuple[Any, dict[str, Iterable]]


@dataclasses.dataclass(frozen=True)
class Part:
    """Every `count`-th line of a Wikidata dump from the `first`.

    Lines are parsed 8 times as slowly as gzip decompresses, so a file has several readers.
    """

    side: str
    path: str
    first: int
    count: int


def build(job: Job, arguments: str = "", **ends: Any) -> dict[str, Any]:
    """Builds the probes; returns the manifest, as `probes.build`.

    Args:
      job: see `probes.build`; every worker can read its inputs and write to its folder.
      arguments: of the pipelines, see `beam_runs.new_pipeline`.
      ends: `fix_point`, `keep`, `light_tuning` of `probes.build`.

    Raises:
      UserError: bad input, bad arguments; the first pipeline is kept once it is finished.
    """
    beam_runs.new_pipeline(arguments)  # before anything is written
    return probes.build(job, steps=functools.partial(_steps, arguments=arguments), **ends)


def _steps(stages: Stages, arguments: str) -> tuple[dict[str, Any], dict[str, int]]:
    job = stages.job
    mapped = {"page_map": probe_stages.map_pages(stages)} if job.page_map else {}
    diffset_pages = probe_stages.diffset_keys(stages)
    # A pipeline that is finished is not run again after an error in the second one.
    facts = stages.once("beam_facts", lambda: _run(job, arguments, _facts, ("read", "rows")))
    read = {side: _of_side(facts["read"], side) for side in ("old", "new")}
    for side, path in (("old", job.old), ("new", job.new)):
        fact_store.check_counts(path, read[side])
    if not mapped:
        probe_rows.check_pages(job, read["new"])
    probe_rows.check_revisions(job, facts["rows"])
    pages = stages.once("beam_pages", lambda: probe_stages.page_keys(job))
    texts = stages.once("beam_texts", lambda: _run(job, arguments, _texts, ("aligned",)))
    steps = facts["rows"] | pages | {"pages read": 0} | texts["aligned"]
    return {**read, **mapped, "diffset_pages": diffset_pages}, steps


def _of_side(counts: dict[str, int], side: str) -> dict[str, int]:
    return {k.partition(" ")[2]: n for k, n in counts.items() if k.partition(" ")[0] == side}


def _run(job: Job, arguments: str, put_together, names: tuple[str, ...]) -> dict[str, Any]:
    """Runs a pipeline and returns the counts that it wrote."""
    beam, pipeline = beam_runs.new_pipeline(arguments)
    put_together(beam, pipeline, job)
    beam_runs.run_pipeline(pipeline)
    return {name: read_json(_counts(job, name)) for name in names}


def _counts(job: Job, name: str) -> Path:
    return job.out / "steps" / "beam" / f"{name}.json"


def _write(beam, pipeline, lines, job: Job, name: str) -> None:
    paths = {b: bucket_path(job.out / name, b) for b in range(job.buckets)}
    beam_runs.write_lines(beam, pipeline, lines, name, paths)


# --- the first pipeline: two Wikidata dumps to rows


def _facts(beam, pipeline, job: Job) -> None:
    """From the dumps to candidate facts in words."""
    parts = pipeline | "Parts" >> beam.Create(_parts(job)) | "Spread" >> beam.Reshuffle()
    kinds = ("old", "new", "labels", "properties", COUNTS)
    read = beam_runs.outputs(beam, parts, "Read", read_part, job.rules, to=kinds)
    versions = {"old": read.old, "new": read.new} | "Versions of an item" >> beam.CoGroupByKey()
    kinds = ("rows", "objects", "types", COUNTS)
    compared = beam_runs.outputs(beam, versions, "Compare", compare_items, job, to=kinds)
    objects = {"labels": read.labels, "asked": compared.objects}
    objects = objects | "Of an object" >> beam.CoGroupByKey()
    named = beam_runs.outputs(beam, objects, "Name objects", answers, to=("rows", "types"))
    types = (compared.types, named.types) | "Types" >> beam.Flatten()
    # Types need a second join: which type an object has is known only once it is named.
    types = {"labels": read.labels, "asked": types} | "Of a type" >> beam.CoGroupByKey()
    typed = beam_runs.outputs(beam, types, "Name types", answers, to=("rows", "types"))
    properties = read.properties | "Properties" >> beam.combiners.ToDict()
    relations = properties | "Relations" >> beam.Map(relations_of, probe_rows.further_labels(job))
    rows = {"rows": compared.rows, "objects": named.rows, "types": typed.rows}
    rows = rows | "Of a row" >> beam.CoGroupByKey()
    # A few thousand labels of properties go to every worker as a side input.
    given = job.buckets, beam.pvalue.AsSingleton(relations)
    kinds = ("rows", COUNTS)
    worded = beam_runs.outputs(beam, rows, "Put in words", put_in_words, *given, to=kinds)
    _write(beam, pipeline, worded.rows, job, "rows")
    beam_runs.write_counts(beam, [read[COUNTS]], "Read counts", _counts(job, "read"))
    counts = [compared[COUNTS], worded[COUNTS]]
    beam_runs.write_counts(beam, counts, "Row counts", _counts(job, "rows"))


def _parts(job: Job) -> list[Part]:
    parts = []
    for side, path in (("old", job.old), ("new", job.new)):
        count = min(_MAX_READERS, 1 + os.path.getsize(path) // READER_BYTES)
        parts += [Part(side, path, i, count) for i in range(count)]
    return parts


def read_part(part: Part, rules: FactRules) -> Iterator[tuple[str, Any]]:
    """Yields the items of a part with their labels, the properties, and counts."""
    counts = Counter()
    # Every reader decompresses the whole file and parses only its own lines.
    lines = itertools.islice(entity_lines(part.path), part.first, None, part.count)
    for entity in fact_store.entities(part.path, lines, rules, counts):
        if entity.id[0] == "P":
            yield "properties", (f"{part.side} {entity.id}", entity.label)
            continue
        number = int(entity.id[1:])
        yield part.side, (number, fact_store.row_of(entity))
        if entity.label:
            names = entity.label, entity.kind, entity.aliases
            yield "labels", ((part.side, number), names)
    yield from counted({f"{part.side} {what}": count for what, count in counts.items()})


@functools.lru_cache(maxsize=4)
def _aligner(job: Job) -> probe_rows.PageAligner:
    return probe_rows.PageAligner(job)  # opens its files once in a process


def compare_items(group: Group, job: Job) -> Iterator[tuple[str, Any]]:
    """Yields the rows of an item and the labels that they need."""
    _, versions = group
    old, new = pair = tuple(
        _version(versions[side], path) for side, path in (("old", job.old), ("new", job.new))
    )
    counts = Counter()
    for row in probe_rows.candidates(job, *pair, _aligner(job), counts):
        kind, *_, item, before = row
        text = json.dumps(row, ensure_ascii=False)
        side = probe_rows.side_of(kind)
        yield "rows", (text, None)
        yield "objects", (_label(side, item), (text, "object"))
        # An updated fact's old objects are named by the old dump.
        for former in before:
            yield "objects", (_label("old", former), (text, former))
        if subject_type := (old if side == "old" else new).kind:
            yield "types", (_label(side, subject_type), (text, "subject type"))
    yield from counted(counts)


def _version(lines: Iterable[str], path: str) -> Entity | None:
    rows = list(lines)
    if len(rows) > 1:
        raise fact_store.twice(path, rows)
    return fact_store.entity_of(rows[0]) if rows else None


def _label(side: str, item: str) -> Label:
    return side, int(item[1:])


def answers(group: Group) -> Iterator[tuple[str, Any]]:
    """Yields the label of an item to the rows that need it, and type and aliases of each object."""
    (side, _), grouped = group
    for label, kind, aliases in grouped["labels"]:
        for row, role in grouped["asked"]:
            yield "rows", (row, (role, label))
            if role == "object" and aliases:
                yield "rows", (row, ("aliases", aliases))
            if role == "object" and kind:
                yield "types", (_label(side, kind), (row, "object type"))


def relations_of(properties: dict[str, str], further: dict[str, str]) -> dict[str, str]:
    """Labels of relations from those of ("old P1", label)."""
    return probe_rows.relation_labels(
        further, *(_of_side(properties, side) for side in ("old", "new"))
    )


def put_in_words(
    group: Group, buckets: int, relations: dict[str, str]
) -> Iterator[tuple[str, Any]]:
    """Yields a row in words to the bucket of its page."""
    # {"object": label, "aliases": ..., "subject type": ..., "object type": ..., old object: label}.
    row, words = parse_json(group[0]), dict([*group[1]["objects"], *group[1]["types"]])
    answer, *types = (words.get(k, "") for k in ("object", "subject type", "object type"))
    before = (words.get(former, "") for former in row[-1])
    counts = Counter()
    names = answer, before, tuple(types), words.get("aliases", ())
    if probe := probe_rows.probe_of(row, relations, *names, counts):
        text = json.dumps(probe.row, ensure_ascii=False)
        yield "rows", (hash64(probe.page) % buckets, text)
    yield from counted(counts)


# --- the second pipeline: rows and texts to what is aligned


def _texts(beam, pipeline, job: Job) -> None:
    """From rows, diffset and new Wikipedia dump to the rows whose text names the object."""
    dump = open_dump(job.wikipedia)
    rows = pipeline | "Buckets" >> beam.Create(
        [os.fspath(bucket_path(job.out / "rows", b)) for b in range(job.buckets)]
    )
    new = pipeline | "Diffset" >> beam.Create([os.fspath(p) for p in record_files(job.diffset)])
    parts = pipeline | "Pieces" >> beam.Create(pieces(dump, PIECE_BYTES))
    parts = parts | "Spread" >> beam.Reshuffle()
    given = job, dump.site
    read = beam_runs.outputs(beam, parts, "Read pages", read_texts, *given, to=("texts", COUNTS))
    changed = new | "Spread diffset" >> beam.Reshuffle() | beam.FlatMap(read_records, job)
    rows = rows | "Spread rows" >> beam.Reshuffle() | "Read rows" >> beam.FlatMap(read_rows)
    texts = (read.texts, changed) | "Texts" >> beam.Flatten()
    by_page = {"rows": rows, "texts": texts} | "Of a page" >> beam.CoGroupByKey()
    aligned = beam_runs.outputs(beam, by_page, "Align", align, job, to=("rows", COUNTS))
    _write(beam, pipeline, aligned.rows, job, "aligned")
    beam_runs.write_counts(beam, [read[COUNTS], aligned[COUNTS]], "Counts", _counts(job, "aligned"))


def read_texts(piece: Span, job: Job, site: SiteInfo) -> Iterator[tuple[str, Any]]:
    """Yields (page, (source, text)) for the pages of a part of a dump that rows need."""
    count = 0
    pages = read_pages(piece.path, piece.start, piece.stop, site)
    for key, source, text in probe_rows.page_texts(job, pages, site):
        yield "texts", (key, (source, text))
        count += 1
    yield from counted({"pages read": count})


def read_records(path: str, job: Job) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yields the same for a file of the diffset."""
    for key, source, text in probe_rows.diffset_texts(job, read_jsonl(path)):
        yield key, (source, text)


def read_rows(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for row in read_jsonl(path):
        yield row["page"], row


def align(group: Group, job: Job) -> Iterator[tuple[str, Any]]:
    """Yields the rows of a page whose texts name the object."""
    key, grouped = group
    rows = list(grouped["rows"])
    # Most pages have no fact.
    if not rows:
        return
    texts: dict[str, list[str]] = {}
    for source, text in grouped["texts"]:
        texts.setdefault(source, []).append(text)
    counts = Counter()
    for row in rows:
        if probe_rows.is_named(job, row, texts, counts):
            yield "rows", (hash64(key) % job.buckets, json.dumps(row, ensure_ascii=False))
    yield from counted(counts)
