"""The steps from two Wikidata dumps to aligned probes; each runs once and leaves a marker.

stores/{old,new}   facts, names and pages of items, in buckets by item
candidates         facts by class whose subject has a page (alignment steps 1 and 2)
rows               candidates in words, in buckets by page
texts              texts of their pages, in the same buckets
aligned            rows whose object is named in the text (step 3)
"""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ckl_jax.data.buckets import KeySet, bucket_path, hash64, read_rows, write_rows
from ckl_jax.data.process_pool import Progress, run_tasks
from ckl_jax.files import read_json, read_jsonl, write_json, write_jsonl
from ckl_jax.papers.temporalwiki.data import fact_store, probe_rows
from ckl_jax.papers.temporalwiki.data.diffsets import read_manifest, read_records
from ckl_jax.papers.temporalwiki.data.dumps import Dump, id_ranges, open_dump
from ckl_jax.papers.temporalwiki.data.page_map import PageMap
from ckl_jax.papers.temporalwiki.data.probe_filters import Probe
from ckl_jax.papers.temporalwiki.data.probe_rows import TEXTS_OF, Job

FOLDERS = ("stores", "candidates", "labelled", "rows", "texts", "wikipedia", "aligned")
_WIKIPEDIA_SHARD_BYTES = 64 << 20


class Stages:
    """Runs steps over a pool and keeps their counts."""

    def __init__(self, job: Job, pool, workers: int, progress: Progress):
        self.job, self.pool, self.workers, self.progress = job, pool, workers, progress

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Calls `make` unless the step is done; returns its counts."""
        # Markers make every step resumable; their content is the counts of the manifest.
        path = self.job.out / "steps" / f"{name}.json"
        if not path.is_file():
            write_json(path, make())
        return read_json(path)

    def each(self, name: str, function: Callable, tasks: dict[str, Any]) -> dict[str, int]:
        """Calls `function` for the unfinished tasks; returns the sum of their counts."""
        folder = self.job.out / "steps" / name
        todo = [(folder, key, function, task) for key, task in tasks.items()]
        todo = [t for t in todo if not (folder / f"{t[1]}.json").is_file()]
        run_tasks(_task, todo, self.pool, self.progress, name, len(tasks) - len(todo))
        counts: collections.Counter[str] = collections.Counter()
        for key in tasks:
            counts.update(read_json(folder / f"{key}.json"))
        return dict(counts)

    def each_bucket(self, name: str, function: Callable) -> dict[str, int]:
        """Calls `function` for (the job, number) of each bucket; see `each`."""
        tasks = {f"{b:05d}": (self.job, b) for b in range(self.job.buckets)}
        return self.each(name, function, tasks)


def _task(work: tuple[Path, str, Callable, Any]) -> None:
    folder, key, function, task = work
    write_json(folder / f"{key}.json", function(task))


def all_steps(stages: Stages) -> tuple[dict[str, Any], dict[str, int]]:
    """Runs all steps; returns the counts of what was read, and of the steps."""
    read = extract(stages)
    read["diffset_pages"] = diffset_keys(stages)
    counts: dict[str, int] = {}
    for step in (compare, label, texts, align):
        counts |= step(stages)
    return read, counts


# --- facts to candidates


def extract(stages: Stages) -> dict[str, Any]:
    """Reads both dumps, and the page map if there is one."""
    job = stages.job
    counts = {
        side: fact_store.extract(
            path,
            job.store(side),
            job.buckets,
            job.rules,
            stages.pool,
            stages.workers,
            stages.progress,
        )
        for side, path in (("old", job.old), ("new", job.new))
    }
    if job.page_map:
        return {**counts, "page_map": map_pages(stages)}
    probe_rows.check_pages(job, counts["new"])
    return counts


def map_pages(stages: Stages) -> dict[str, int]:
    """Reads the page map."""
    job = stages.job
    return stages.once("page_map", lambda: {"pages": PageMap.write(job.map_path, job.page_map)})


def diffset_keys(stages: Stages) -> dict[str, int]:
    """Writes the pages with new text in the diffset, and those with deleted text."""
    job = stages.job

    def write() -> dict[str, int]:
        counts = {}
        for name, gone in (("diffset", False), ("deleted", True)):
            records = (r for r in read_records(job.diffset) if probe_rows.is_gone(r) == gone)
            # Hashes of keys, 8 bytes each, so that every worker can hold the set.
            keys = {probe_rows.page_key(job, r["page_id"], r["title"]) for r in records}
            KeySet.write(job.keys(name), keys)
            counts[name] = len(keys)
        return counts

    return stages.once("diffset_keys", write)


def compare(stages: Stages) -> dict[str, int]:
    """Classifies all facts; keeps those whose subject's page is in the right text."""
    counts = stages.each_bucket("candidates", _compare_bucket)
    probe_rows.check_revisions(stages.job, counts)
    return counts


def _compare_bucket(task: tuple[Job, int]) -> dict[str, int]:
    job, bucket = task
    old = fact_store.index(job.store("old"), bucket, job.old)
    new = fact_store.index(job.store("new"), bucket, job.new)
    counts: collections.Counter[str] = collections.Counter()
    aligner = probe_rows.PageAligner(job)
    rows = (
        row
        for pair in fact_store.merge(old, new)
        for row in probe_rows.candidates(job, *pair, aligner, counts)
    )
    write_jsonl(bucket_path(job.out / "candidates", bucket), rows)
    return counts


# --- candidates to words


def label(stages: Stages) -> dict[str, int]:
    """Puts the candidates into words and into buckets by page."""
    job = stages.job
    stages.once("properties", lambda: _property_labels(job))
    counts = stages.each_bucket("labelled", _label_bucket)

    def by_page() -> dict[str, int]:
        # From buckets by item to buckets by page: the two joins of the build.
        rows = read_rows(job.out / "labelled", job.buckets)
        write_rows(((hash64(row["page"]), row) for row in rows), job.out / "rows", job.buckets)
        return page_keys(job)

    return {**counts, **stages.once("rows", by_page)}


def page_keys(job: Job) -> dict[str, int]:
    """Writes the pages of the new Wikipedia dump that the rows need."""
    rows = read_rows(job.out / "rows", job.buckets)
    pages = {row["page"] for row in rows if "page" in TEXTS_OF[row["kind"]]}
    KeySet.write(job.keys("page"), pages)
    return {"pages to read": len(pages)}


def _property_labels(job: Job) -> dict[str, str]:
    old, new = (read_json(job.store(side) / "properties.json") for side in ("old", "new"))
    return probe_rows.relation_labels(probe_rows.further_labels(job), old, new)


def _label_bucket(task: tuple[Job, int]) -> dict[str, int]:
    job, bucket = task
    labels = {side: fact_store.Labels(job.store(side), job.buckets) for side in ("old", "new")}
    relations = read_json(job.out / "steps" / "properties.json")
    counts: collections.Counter[str] = collections.Counter()

    def rows() -> Iterator[dict[str, Any]]:
        for row in read_jsonl(bucket_path(job.out / "candidates", bucket)):
            kind, subject, *_, item, old = row
            side = labels[probe_rows.side_of(kind)]
            before = map(labels["old"].item, old)
            types = side.type_of(subject), side.type_of(item)
            names = side.item(item), before, types, side.aliases(item)
            if probe := probe_rows.probe_of(row, relations, *names, counts):
                yield probe.row

    write_jsonl(bucket_path(job.out / "labelled", bucket), rows())
    return counts


# --- texts, and whether they name the object


def texts(stages: Stages) -> dict[str, int]:
    """Collects the texts of the candidates' pages, in buckets by page."""
    job = stages.job
    dump = open_dump(job.wikipedia)
    ranges = id_ranges(dump, -(-dump.bytes // _WIKIPEDIA_SHARD_BYTES))
    # A dump that gives one process all the work is decoded by threads.
    dump = dataclasses.replace(dump, threads=stages.workers if len(ranges) == 1 else 1)
    tasks = {f"{i:05d}": (job, dump, r, i) for i, r in enumerate(ranges)}
    counts = stages.each("wikipedia", _page_texts, tasks)

    def by_page() -> dict[str, int]:
        of_diffset = probe_rows.diffset_texts(job, read_records(job.diffset))
        rows = itertools.chain(of_diffset, read_rows(job.out / "wikipedia", len(tasks)))
        write_rows(((hash64(row[0]), row) for row in rows), job.out / "texts", job.buckets)
        return {}

    stages.once("texts", by_page)
    return counts


def _page_texts(task: tuple[Job, Dump, tuple[int, int | None], int]) -> dict[str, int]:
    job, dump, ids, shard = task
    # In which order the pages stand makes no difference here.
    is_unsorted = read_manifest(job.diffset)["options"].get("unsorted")
    pages = dump.unsorted_pages(*ids) if is_unsorted else dump.pages(*ids)
    rows = probe_rows.page_texts(job, pages, dump.site)
    return {"pages read": write_jsonl(bucket_path(job.out / "wikipedia", shard), rows)}


def align(stages: Stages) -> dict[str, int]:
    """Alignment step 3: the text of the subject's page contains the object's name."""
    return stages.each_bucket("aligned", _align_bucket)


def _align_bucket(task: tuple[Job, int]) -> dict[str, int]:
    job, bucket = task
    rows = list(read_jsonl(bucket_path(job.out / "rows", bucket)))
    pages = {row["page"] for row in rows}
    texts_of: dict[str, dict[str, list[str]]] = {page: {} for page in pages}
    for key, source, text in read_jsonl(bucket_path(job.out / "texts", bucket)):
        # The bucket holds texts of all sources; only those of its rows are kept in memory.
        if key in pages:
            texts_of[key].setdefault(source, []).append(text)
    counts: collections.Counter[str] = collections.Counter()
    named = (r for r in rows if probe_rows.is_named(job, r, texts_of[r["page"]], counts))
    write_jsonl(bucket_path(job.out / "aligned", bucket), named)
    return counts


def aligned(job: Job) -> Iterator[Probe]:
    """Yields the probes that passed all alignment steps."""
    return map(Probe.of, read_rows(job.out / "aligned", job.buckets))


def in_words(job: Job) -> Iterator[Probe]:
    """Yields all candidates in words, whether or not their text names the object."""
    return map(Probe.of, read_rows(job.out / "rows", job.buckets))
