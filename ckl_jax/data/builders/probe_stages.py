"""The steps from two Wikidata dumps to aligned probes; each is done once and leaves a marker.

stores/{old,new}   facts, names and pages of items, in buckets by item
candidates         facts by class whose subject has a page (alignment steps 1 and 2)
rows               candidates in words, in buckets by page
texts              texts of their pages, in the same buckets
aligned            rows whose object is named in the text (step 3)
"""

import collections
import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.data.builders import fact_diff, fact_store, page_diff
from ckl_jax.data.builders.buckets import KeySet, bucket_path, hash64, read_rows, write_rows
from ckl_jax.data.builders.diff import DELETED, DELETED_PAGE
from ckl_jax.data.builders.diffsets import read_records
from ckl_jax.data.builders.dumps import Dump, id_ranges, open_dump
from ckl_jax.data.builders.fact_store import Item
from ckl_jax.data.builders.page_diff import Rules
from ckl_jax.data.builders.page_map import PageMap
from ckl_jax.data.builders.pool import Progress, read_json, run_tasks
from ckl_jax.data.builders.probe_filters import Probe
from ckl_jax.data.builders.wiki_xml import Page, SiteInfo
from ckl_jax.data.builders.wikidata_json import FactRules, read_entities
from ckl_jax.errors import UserError
from ckl_jax.files import atomic_write, read_jsonl, write_json

FOLDERS = ("stores", "candidates", "labelled", "rows", "texts", "wikipedia", "aligned")
_WIKIPEDIA_SHARD_BYTES = 64 << 20
_BUCKET_BYTES = 64 << 20  # of the compressed dump
TEXT_OF = {  # class -> whose text has to name the object
    fact_diff.UNCHANGED: "page", fact_diff.UPDATED: "diffset", fact_diff.NEW: "diffset",
    fact_diff.DELETED: "deleted",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Job:
    """What all steps know.

    Attributes:
      old, new: Wikidata dumps.
      diffset: folder that `diffsets.build` made.
      wikipedia: the new Wikipedia dump.
      out: folder.
      page_map: file of pages and items; "": the sitelinks of the Wikidata dumps say it.
      properties: a further Wikidata dump with labels of properties; "".
      rules: what is read of an entity.
      unchanged_share: share of the unchanged facts that is drawn.
      seed: of that.
      skip_new_subjects: leave out items without facts in the old dump, as the released code does.
      buckets: files that the items are spread over; 0: by the size of the new dump.
    """

    old: str
    new: str
    diffset: str
    wikipedia: str
    out: Path
    page_map: str = ""
    properties: str = ""
    rules: FactRules = FactRules()
    unchanged_share: float = 0.001
    seed: int = 0
    skip_new_subjects: bool = False
    buckets: int = 0

    def sized(self) -> "Job":
        """The same with a number of buckets."""
        size = os.path.getsize(self.new) // _BUCKET_BYTES
        return dataclasses.replace(self, buckets=self.buckets or min(512, max(4, size)))

    def store(self, side: str) -> Path:
        return self.out / "stores" / side

    @property
    def map_path(self) -> Path:
        return self.out / "page_map.npy"

    def keys(self, name: str) -> Path:
        return self.out / "keys" / f"{name}.npy"


class Run:
    """Runs steps over a pool and keeps their counts."""

    def __init__(self, job: Job, pool, workers: int, progress: Progress):
        self.job, self.pool, self.workers, self.progress = job, pool, workers, progress

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Calls `make` unless the step is done; returns its counts."""
        path = self.job.out / "steps" / f"{name}.json"
        if not path.is_file():
            write_json(path, make())
        return read_json(path)

    def each(self, name: str, function: Callable, tasks: dict[str, Any]) -> dict[str, int]:
        """Calls `function` for the tasks that are not done; returns the sum of their counts."""
        folder = self.job.out / "steps" / name
        todo = [(folder, key, function, task) for key, task in tasks.items()]
        todo = [t for t in todo if not (folder / f"{t[1]}.json").is_file()]
        done = len(tasks) - len(todo)

        def finished(_: Any) -> None:
            nonlocal done
            done += 1
            self.progress(done, len(tasks), name)

        run_tasks(_task, todo, self.pool, finished)
        counts: collections.Counter[str] = collections.Counter()
        for key in tasks:
            counts.update(read_json(folder / f"{key}.json"))
        return dict(counts)


def _task(work: tuple[Path, str, Callable, Any]) -> None:
    folder, key, function, task = work
    write_json(folder / f"{key}.json", function(task))


def all_steps(run: Run) -> tuple[dict[str, Any], dict[str, int]]:
    """Does all steps; returns the counts of what was read, and of the steps."""
    read = extract(run)
    read["diffset_pages"] = diffset_keys(run)
    counts: dict[str, int] = {}
    for step in (compare, label, texts, align):
        counts |= step(run)
    return read, counts


# --- facts to candidates


def extract(run: Run) -> dict[str, Any]:
    """Reads both dumps, and the page map if there is one."""
    job = run.job
    counts = {
        side: fact_store.extract(
            path, job.store(side), job.buckets, job.rules, run.pool, run.workers, run.progress
        )
        for side, path in (("old", job.old), ("new", job.new))
    }
    if job.page_map:
        return {**counts, "page_map": map_pages(run)}
    check_pages(job, counts["new"])
    return counts


def check_pages(job: Job, counts: Mapping[str, int]) -> None:
    """Raises `UserError` if the new dump, read with these counts, says of no item its page."""
    if not counts.get("pages"):
        raise UserError(
            f"{job.new} has no sitelinks to {job.rules.site}, so the pages of its items are not "
            "known; give --page-map, or --site if the wiki has another name."
        )


def map_pages(run: Run) -> dict[str, int]:
    """Reads the page map."""
    job = run.job
    return run.once("page_map", lambda: {"pages": PageMap.write(job.map_path, job.page_map)})


def diffset_keys(run: Run) -> dict[str, int]:
    """Writes which pages the diffset has new text of, and which it says of that text is gone."""
    job = run.job

    def write() -> dict[str, int]:
        counts = {}
        for name, gone in (("diffset", False), ("deleted", True)):
            records = (r for r in read_records(job.diffset) if _is_gone(r) == gone)
            keys = {_page_key(job, r["page_id"], r["title"]) for r in records}
            KeySet.write(job.keys(name), keys)
            counts[name] = len(keys)
        return counts

    return run.once("diffset_keys", write)


def _is_gone(record: dict[str, Any]) -> bool:
    return record["kind"] in (DELETED, DELETED_PAGE)


def _page_key(job: Job, number: int, title: str) -> str:
    return str(number) if job.page_map else title


def compare(run: Run) -> dict[str, int]:
    """Classifies all facts; keeps those whose subject has a page that is in the right text."""
    tasks = {f"{b:05d}": (run.job, b) for b in range(run.job.buckets)}
    counts = run.each("candidates", _compare_bucket, tasks)
    check_revisions(run.job, counts)
    return counts


def check_revisions(job: Job, counts: Mapping[str, int]) -> None:
    """Raises `UserError` if items, as they were counted, went back in time."""
    if counts.get("revisions backward", 0) > counts.get("revisions forward", 0):
        raise UserError(
            f"Most items have an older revision in {job.new} than in {job.old}; give the older "
            "dump as --old."
        )


def _compare_bucket(task: tuple[Job, int]) -> dict[str, int]:
    job, bucket = task
    old = fact_store.index(job.store("old"), bucket, job.old)
    new = fact_store.index(job.store("new"), bucket, job.new)
    counts: collections.Counter[str] = collections.Counter()
    place = Place(job)
    with atomic_write(bucket_path(job.out / "candidates", bucket)) as f:
        for pair in fact_store.merge(old, new):
            for row in candidates(job, *pair, place, counts):
                f.write(json.dumps(row, ensure_ascii=False) + "\n")
    return counts


def candidates(
    job: Job, old: Item | None, new: Item | None, place: "Place", counts
) -> Iterator[list[Any]]:
    """The facts of one item that go on: kind, subject, its label, page, relation, object, old."""
    for change, item in _changes(job, old, new, counts):
        if key := place.of(change, item, counts):
            yield [change.kind, item.id, item.label, key, *dataclasses.astuple(change)[1:]]


def _changes(job: Job, old, new, counts) -> Iterator[tuple[fact_diff.FactChange, fact_store.Item]]:
    """The facts of one item that are considered, each with the version that names its subject."""
    item = new or old
    if old and new and old.revision and new.revision and old.revision != new.revision:
        counts["revisions " + ("forward" if old.revision < new.revision else "backward")] += 1
    if job.skip_new_subjects and not (old and old.facts):
        counts["items skipped as new"] += 1
        return
    for change in fact_diff.classify(old.facts if old else (), new.facts if new else ()):
        counts[f"{change.kind} all"] += 1
        if change.kind != fact_diff.UNCHANGED or _is_drawn(job, item.id, change):
            counts[f"{change.kind} initial"] += 1
            yield change, item


def _is_drawn(job: Job, subject: str, change: fact_diff.FactChange) -> bool:
    drawn = hash64(job.seed, subject, change.relation, change.object) / 2**63
    return drawn < job.unchanged_share


class Place:
    """Alignment steps 1 and 2: the page of a subject, and whether the diffset has it."""

    def __init__(self, job: Job):
        self.map = PageMap(job.map_path) if job.page_map else None
        self.sets = {name: KeySet(job.keys(name)) for name in ("diffset", "deleted")}

    def of(self, change: fact_diff.FactChange, item: fact_store.Item, counts) -> str:
        """Key of the page, "" if the fact is dropped."""
        key = self.map.page(item.id) if self.map else item.title
        if not key:
            return ""
        counts[f"{change.kind} with a page"] += 1
        source = TEXT_OF[change.kind]
        if source in self.sets:
            if key not in self.sets[source]:
                return ""
            counts[f"{change.kind} page in {source}"] += 1
        return key


# --- candidates to words


def label(run: Run) -> dict[str, int]:
    """Puts the candidates into words and into buckets by page."""
    job = run.job
    run.once("properties", lambda: _property_labels(job))
    tasks = {f"{b:05d}": (job, b) for b in range(job.buckets)}
    counts = run.each("labelled", _label_bucket, tasks)

    def by_page() -> dict[str, int]:
        rows = read_rows(job.out / "labelled", job.buckets)
        write_rows(((hash64(row["page"]), row) for row in rows), job.out / "rows", job.buckets)
        return page_keys(job)

    return {**counts, **run.once("rows", by_page)}


def page_keys(job: Job) -> dict[str, int]:
    """Writes which pages of the new Wikipedia the rows need."""
    rows = read_rows(job.out / "rows", job.buckets)
    pages = {row["page"] for row in rows if TEXT_OF[row["kind"]] == "page"}
    KeySet.write(job.keys("page"), pages)
    return {"pages to read": len(pages)}


def _property_labels(job: Job) -> dict[str, str]:
    old, new = (read_json(job.store(side) / "properties.json") for side in ("old", "new"))
    return relation_labels(further_labels(job), old, new)


def further_labels(job: Job) -> dict[str, str]:
    """Labels of the properties of the further dump."""
    if not job.properties:
        return {}
    return {e.id: e.label for e in read_entities(job.properties, job.rules) if e.id[0] == "P"}


def relation_labels(
    further: dict[str, str], old: dict[str, str], new: dict[str, str]
) -> dict[str, str]:
    """Labels of relations: of the new dump, then of the old one, then of the further one."""
    return further | {p: text for found in (old, new) for p, text in found.items() if text}


def side_of(kind: str) -> str:
    """Which dump names the object of a fact, and the types."""
    return "old" if kind == fact_diff.DELETED else "new"


def probe_of(
    row: Sequence[Any],
    relations: Mapping[str, str],
    answer: str,
    old_objects: Iterable[str],
    types: tuple[str, str],
    counts: collections.Counter[str],
) -> Probe | None:
    """A candidate in words; None if a word is missing.

    Args:
      row: of `candidates`.
      relations: labels.
      answer: label of the object.
      old_objects: labels, of which empty ones are left out.
      types: labels of what subject and object are instances of.
      counts: of the step.
    """
    kind, subject, name, page, relation, item, _ = row
    texts = {"subject": name, "relation": relations.get(relation, ""), "object": answer}
    if missing := [what for what, text in texts.items() if not text]:
        counts[f"{kind} {missing[0]} without a label"] += 1
        return None
    counts[f"{kind} with labels"] += 1
    before = tuple(filter(None, old_objects))
    return Probe(kind, subject, relation, item, *texts.values(), before, page, *types)


def _label_bucket(task: tuple[Job, int]) -> dict[str, int]:
    job, bucket = task
    labels = {side: fact_store.Labels(job.store(side), job.buckets) for side in ("old", "new")}
    relations = read_json(job.out / "steps" / "properties.json")
    counts: collections.Counter[str] = collections.Counter()
    with atomic_write(bucket_path(job.out / "labelled", bucket)) as f:
        for row in read_jsonl(bucket_path(job.out / "candidates", bucket)):
            kind, subject, *_, item, old = row
            side = labels[side_of(kind)]
            before = map(labels["old"].item, old)
            types = side.type_of(subject), side.type_of(item)
            if probe := probe_of(row, relations, side.item(item), before, types, counts):
                f.write(json.dumps(dataclasses.asdict(probe), ensure_ascii=False) + "\n")
    return counts


# --- texts, and whether they name the object


def texts(run: Run) -> dict[str, int]:
    """Collects the texts of the pages that candidates are about, in buckets by page."""
    job = run.job
    dump = open_dump(job.wikipedia)
    ranges = id_ranges(dump, -(-dump.bytes // _WIKIPEDIA_SHARD_BYTES))
    tasks = {f"{i:05d}": (job, dump, r, i) for i, r in enumerate(ranges)}
    counts = run.each("wikipedia", _page_texts, tasks)

    def by_page() -> dict[str, int]:
        rows = ((hash64(row[0]), row) for row in _texts(job, len(tasks)))
        write_rows(rows, job.out / "texts", job.buckets)
        return {}

    run.once("texts", by_page)
    return counts


def _page_texts(task: tuple[Job, Dump, tuple[int, int | None], int]) -> dict[str, int]:
    job, dump, ids, shard = task
    found = 0
    with atomic_write(bucket_path(job.out / "wikipedia", shard)) as f:
        for row in page_texts(job, dump.pages(*ids), dump.site):
            f.write(json.dumps(row, ensure_ascii=False) + "\n")
            found += 1
    return {"pages read": found}


def page_texts(job: Job, pages: Iterable[Page], site: SiteInfo) -> Iterator[list[str]]:
    """(page, source, text) of the pages that candidates need."""
    wanted = KeySet(job.keys("page"))
    rules = Rules(site.language or "en", site.dropped_links)
    extractor, _ = page_diff.tools(rules)
    for page in pages:
        key = _page_key(job, page.id, page.title)
        if not page_diff.drop_reason(page, rules) and key in wanted:
            yield [key, "page", "\n".join(extractor.paragraphs(page.text))]


def diffset_texts(job: Job, records: Iterable[dict[str, Any]]) -> Iterator[list[str]]:
    """(page, source, text) of records of the diffset."""
    for record in records:
        source = "deleted" if _is_gone(record) else "diffset"
        yield [_page_key(job, record["page_id"], record["title"]), source, record["text"]]


def _texts(job: Job, shards: int) -> Iterator[list[str]]:
    yield from diffset_texts(job, read_records(job.diffset))
    yield from read_rows(job.out / "wikipedia", shards)


def align(run: Run) -> dict[str, int]:
    """Alignment step 3: the object's name stands in the text of the subject's page."""
    return run.each(
        "aligned", _align_bucket, {f"{b:05d}": (run.job, b) for b in range(run.job.buckets)}
    )


def _align_bucket(task: tuple[Job, int]) -> dict[str, int]:
    job, bucket = task
    rows = list(read_jsonl(bucket_path(job.out / "rows", bucket)))
    pages = {row["page"] for row in rows}
    found: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for key, source, text in read_jsonl(bucket_path(job.out / "texts", bucket)):
        if key in pages:
            found[key, source].append(text.lower())
    counts: collections.Counter[str] = collections.Counter()
    with atomic_write(bucket_path(job.out / "aligned", bucket)) as f:
        for row in rows:
            if is_named(row, found.get((row["page"], TEXT_OF[row["kind"]])), counts):
                f.write(json.dumps(row, ensure_ascii=False) + "\n")
    return counts


def is_named(row: dict[str, Any], texts: Sequence[str] | None, counts) -> bool:
    """Whether the lower-case texts of a row's page (None: there are none) name its object."""
    counts[f"{row['kind']} text found"] += texts is not None
    named = bool(texts) and any(row["object"].lower() in text for text in texts)
    if named:
        counts[f"{row['kind']} aligned"] += 1
    return named


def aligned(job: Job) -> Iterator[Probe]:
    """Yields the probes that passed all alignment steps."""
    return _read_probes(job, "aligned")


def in_words(job: Job) -> Iterator[Probe]:
    """Yields all candidates in words, whether or not their text names the object."""
    return _read_probes(job, "rows")


def _read_probes(job: Job, stage: str) -> Iterator[Probe]:
    for row in read_rows(job.out / stage, job.buckets):
        yield Probe(**{**row, "old_objects": tuple(row["old_objects"])})


def check_inputs(job: Job) -> None:
    """Raises `UserError` for what is missing, before anything is written."""
    for path in filter(None, (job.old, job.new, job.properties)):
        if not os.path.isfile(path):
            raise UserError(
                f"There is no Wikidata dump {path}; give a JSON dump, one entity a line."
            )
    if job.page_map and not os.path.isfile(job.page_map):
        raise UserError(
            f"There is no page-to-item map {job.page_map}; give a TSV with the columns page_id and "
            "wikidata_id, a page_props.sql dump, or leave --page-map out to go by sitelinks."
        )
    next(read_records(job.diffset), None)
