"""The steps from one item and one page to probes, shared by the local build and Beam.

A candidate is a row [kind, subject, its label, page, relation, object, old objects]; in words it is
a `Probe`. `counts` are added to.
"""

import collections
import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import arg

from ckl_jax.data.buckets import KeySet, hash64
from ckl_jax.data.facts.fact_files import SETS
from ckl_jax.data.facts.wikidata_json import Entity, FactRules, read_entities
from ckl_jax.data.text.sentences import MARKS, composed
from ckl_jax.errors import UserError
from ckl_jax.files import require_file
from ckl_jax.options import Flat
from ckl_jax.papers.temporalwiki.data import fact_diff, page_diff
from ckl_jax.papers.temporalwiki.data.algorithm1 import DELETED, DELETED_PAGE
from ckl_jax.papers.temporalwiki.data.diffsets import read_manifest, record_files
from ckl_jax.papers.temporalwiki.data.dumps import date_of
from ckl_jax.papers.temporalwiki.data.page_diff import Rules
from ckl_jax.papers.temporalwiki.data.page_map import PageMap, check_page_map
from ckl_jax.papers.temporalwiki.data.probe_filters import (
    MAX_RELATION_FRACTION,
    MAX_SUBJECT_FRACTION,
    Probe,
)
from ckl_jax.papers.temporalwiki.data.wiki_xml import Page, SiteInfo

_BUCKET_BYTES = 64 << 20  # of the compressed dump
TEXTS_OF = {  # class -> whose text has to name the object
    fact_diff.UNCHANGED: ("page",),
    fact_diff.UPDATED: ("diffset",),
    fact_diff.NEW: ("diffset",),
    fact_diff.DELETED: ("deleted",),
    # What ended is stated by a new sentence, or stands in one that is gone.
    fact_diff.ENDED: ("diffset", "deleted"),
}
# Letters of scripts that have no blanks between words, in which no name is a part of a longer word:
# Thai, Lao, Tibetan, Burmese, Khmer, kana and Chinese characters.
_WITHOUT_BLANKS = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u312f\u31f0-\u31ff\u3400-\u9fff"
    "\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff"
)
_LETTER = rf"(?:(?![{_WITHOUT_BLANKS}])[\w{MARKS}])"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """Settings that all steps share.

    Attributes:
      old: Wikidata JSON dump.
      new: A later one.
      diffset: Folder of `ckl data diffsets`.
      wikipedia: The new Wikipedia dump.
      out: Folder to write; an unfinished one is continued.
      page_map: File of pages and items, TSV or page_props.sql; by default the dumps' sitelinks.
      properties: Another Wikidata dump, with labels of properties.
      rules: What is read of an entity.
      facts: Which facts count: "current" are those that hold at each dump's date by rank, start and
        end; "paper" are all that a dump states, as the paper's.
      unchanged_fraction: Fraction of the unchanged facts that is drawn.
      seed: Random seed of the sample and of the third filter.
      subject_cap: Fraction of the probes that may have one subject.
      relation_cap: Fraction of the probes that may have one relation; give more for a table of few.
      skip_new_subjects: Leave out items without facts in the old dump, as the released code does.
      buckets: Files that the items are spread over; 0 is one for 64 MiB of the new dump.
    """

    old: str
    new: str
    diffset: str
    wikipedia: str
    out: Path
    page_map: str = ""
    properties: str = ""
    rules: Flat[FactRules] = FactRules()
    facts: Literal["current", "paper"] = "current"
    unchanged_fraction: float = 0.001
    seed: int = 0
    subject_cap: float = MAX_SUBJECT_FRACTION
    relation_cap: float = MAX_RELATION_FRACTION
    skip_new_subjects: Annotated[bool, arg(name="legacy-skip-new-subjects")] = False
    buckets: int = 0

    def sized(self) -> "Job":
        """The same job with a number of buckets."""
        size = os.path.getsize(self.new) // _BUCKET_BYTES
        # At most 512, as each bucket is an open file.
        return dataclasses.replace(self, buckets=self.buckets or min(512, max(4, size)))

    @property
    def is_current(self) -> bool:
        return self.facts == "current"

    @property
    def sets(self) -> dict[str, tuple[str, ...]]:
        """Set of probes -> its classes; the paper's reading knows no ended facts."""
        return {title: k for title, k in SETS.items() if title != "ended" or self.is_current}

    def store(self, side: str) -> Path:
        return self.out / "stores" / side

    @property
    def map_path(self) -> Path:
        return self.out / "page_map.npy"

    def keys(self, name: str) -> Path:
        return self.out / "keys" / f"{name}.npy"


def check_inputs(job: Job) -> None:
    """Raises `UserError` for missing inputs, before anything is written."""
    for path in filter(None, (job.old, job.new, job.properties)):
        said = f"There is no Wikidata dump {path}; give a JSON dump, one entity a line."
        require_file(path, said)
    if job.page_map:
        check_page_map(job.page_map)
    record_files(job.diffset)


def check_pages(job: Job, counts: Mapping[str, int]) -> None:
    """Raises `UserError` if, by these counts, no item of the new dump names its page."""
    if not counts.get("pages"):
        raise UserError(
            f"{job.new} has no sitelinks to {job.rules.site}, so the pages of its items are not "
            "known; give --page-map, or to `ckl data probes` --site if the wiki has another name."
        )


def check_revisions(job: Job, counts: Mapping[str, int]) -> None:
    """Raises `UserError` if, by these counts, items of the new dump are older than the old ones."""
    if counts.get("revisions backward", 0) > counts.get("revisions forward", 0):
        raise UserError(
            f"Most items have an older revision in {job.new} than in {job.old}; give the older "
            "dump as --old."
        )


def is_gone(record: dict[str, Any]) -> bool:
    """Whether a record of the diffset is of deleted text."""
    return record["kind"] in (DELETED, DELETED_PAGE)


def page_key(job: Job, number: int, title: str) -> str:
    """The key of pages: the id with a page map, the title with sitelinks.

    MediaWiki writes `_` and a space for one character of a title, and so do sitelinks.
    """
    return str(number) if job.page_map else title.replace("_", " ")


def candidates(
    job: Job, old: Entity | None, new: Entity | None, aligner: "PageAligner", counts
) -> Iterator[list[Any]]:
    """The candidate facts of one item: kind, subject, label, page, relation, object, old object."""
    for change, item in _changes(job, old, new, counts):
        if key := aligner.of(change, item, counts):
            yield [change.kind, item.id, item.label, key, *dataclasses.astuple(change)[1:]]


def _changes(job: Job, old, new, counts) -> Iterator[tuple[fact_diff.FactChange, Entity]]:
    """The facts of one item that are considered, each with the version that names its subject."""
    item = new or old
    if old and new and old.revision and new.revision and old.revision != new.revision:
        # Counted, because names of dumps may have no date: see `check_revisions`.
        counts["revisions " + ("forward" if old.revision < new.revision else "backward")] += 1
    if job.skip_new_subjects and not (old and old.facts):
        counts["items skipped as new"] += 1
        return
    for change in _classified(job, old, new, counts):
        counts[f"{change.kind} all"] += 1
        if change.kind == fact_diff.LATE:
            continue
        # Table 2's "initial" of UNCHANGED is this sample already.
        if change.kind != fact_diff.UNCHANGED or _is_drawn(job, item.id, change):
            counts[f"{change.kind} initial"] += 1
            yield change, item


def _classified(job: Job, old, new, counts) -> Iterator[fact_diff.FactChange]:
    pair = [item or Entity("") for item in (old, new)]
    if not job.is_current:
        return fact_diff.classify(*(item.facts for item in pair))
    sides = []
    for item in pair:
        sides.append([s for s in item.statements if not fact_diff.is_about_wikimedia(s.fact)])
        counts["statements about Wikimedia's pages"] += len(item.statements) - len(sides[-1])
    return fact_diff.classify_current(*sides, (_day(job.old), _day(job.new)))


def _day(dump: str) -> str:
    date = date_of(dump)
    return date and f"{date[:4]}-{date[4:6]}-{date[6:]}"


def _is_drawn(job: Job, subject: str, change: fact_diff.FactChange) -> bool:
    # By hash: the same sample whatever the order and number of workers.
    drawn = hash64(job.seed, subject, change.relation, change.object) / 2**63
    return drawn < job.unchanged_fraction


class PageAligner:
    """Alignment steps 1 and 2: the page of a subject, and whether the diffset has it."""

    def __init__(self, job: Job):
        self.map = PageMap(job.map_path) if job.page_map else None
        self.sets = {name: KeySet(job.keys(name)) for name in ("diffset", "deleted")}

    def of(self, change: fact_diff.FactChange, item: Entity, counts) -> str:
        """Key of the page, "" if the fact is dropped."""
        key = self.map.page(item.id) if self.map else item.title
        if not key:
            return ""
        counts[f"{change.kind} with a page"] += 1
        sources = TEXTS_OF[change.kind]
        if sources != ("page",):
            if not any(key in self.sets[source] for source in sources):
                return ""
            counts[f"{change.kind} page in {' or '.join(sources)}"] += 1
        return key


def further_labels(job: Job) -> dict[str, str]:
    """Labels of the properties of the further dump."""
    if not job.properties:
        return {}
    return {e.id: e.label for e in read_entities(job.properties, job.rules) if e.id[0] == "P"}


def relation_labels(
    further: dict[str, str], old: dict[str, str], new: dict[str, str]
) -> dict[str, str]:
    """Labels of relations: of the new dump, then of the old one, then of the further one."""
    return further | {p: text for labels in (old, new) for p, text in labels.items() if text}


def side_of(kind: str) -> str:
    """Which dump names the object of a fact, and its types."""
    return "old" if kind == fact_diff.DELETED else "new"


def probe_of(
    row: Sequence[Any],
    relations: Mapping[str, str],
    answer: str,
    old_objects: Iterable[str],
    types: tuple[str, str],
    aliases: Iterable[str],
    counts: collections.Counter[str],
) -> Probe | None:
    """A candidate in words; None if a word is missing.

    Args:
      row: of `candidates`.
      relations: labels.
      answer: label of the object.
      old_objects: labels, of which empty ones are left out.
      types: labels of what subject and object are instances of.
      aliases: of the object.
    """
    kind, subject, name, page, relation, item, _ = row
    texts = {"subject": name, "relation": relations.get(relation, ""), "object": answer}
    if missing := [what for what, text in texts.items() if not text]:
        counts[f"{kind} {missing[0]} without a label"] += 1
        return None
    counts[f"{kind} with labels"] += 1
    subject_type, object_type = types
    return Probe(
        kind=kind,
        subject_id=subject,
        relation_id=relation,
        object_id=item,
        **texts,
        old_objects=tuple(filter(None, old_objects)),
        page=page,
        subject_type=subject_type,
        object_type=object_type,
        aliases=tuple(aliases),
    )


def diffset_texts(job: Job, records: Iterable[dict[str, Any]]) -> Iterator[list[str]]:
    """(page, source, text) of records of the diffset."""
    for record in records:
        source = "deleted" if is_gone(record) else "diffset"
        yield [page_key(job, record["page_id"], record["title"]), source, record["text"]]


def page_texts(job: Job, pages: Iterable[Page], site: SiteInfo) -> Iterator[list[str]]:
    """(page, source, text) of the pages that candidates need."""
    wanted = KeySet(job.keys("page"))
    templates = tuple(map(tuple, read_manifest(job.diffset)["options"].get("templates") or ()))
    rules = Rules(site.language or "en", site.dropped_links, templates=templates)
    extractor, _ = page_diff.tools(rules)
    for page in pages:
        key = page_key(job, page.id, page.title)
        if not page_diff.drop_reason(page, rules) and key in wanted:
            yield [key, "page", "\n".join(page_diff.prose(page, extractor))]


def is_named(job: Job, row: dict[str, Any], texts: Mapping[str, list[str]], counts) -> bool:
    """Whether the texts of a row's page, by source, name its object.

    The paper's reading takes any substring, as the released alignment; else the name is not part of
    a longer word. An alias is never part of one, and has its own case: "us" is not "US".
    """
    texts = [plain(text) for source in TEXTS_OF[row["kind"]] for text in texts.get(source, ())]
    counts[f"{row['kind']} text found"] += bool(texts)
    label = plain(row["object"])
    name = label.lower()
    # The search for a substring is the faster one.
    named = any(
        name in text.lower() and (not job.is_current or has_name(text, label, re.IGNORECASE))
        for text in texts
    )
    if not named:
        aliases = map(plain, row.get("aliases", ()))
        named = any(alias in text and has_name(text, alias) for alias in aliases for text in texts)
        if named:
            counts[f"{row['kind']} aligned by an alias"] += 1
    if named:
        counts[f"{row['kind']} aligned"] += 1
    return named


def plain(text: str) -> str:
    """A text with its accents within their letters, and one form of apostrophe."""
    return composed(text).replace("\u2019", "'")


def has_name(text: str, name: str, flags: int = 0) -> bool:
    """Whether a text has a name that is no part of a longer one, as of C++ or Guinea-Bissau."""
    return any(
        not _is_part(text[: match.start()][-2:], text[match.end() :][:2])
        for match in re.finditer(rf"(?<!{_LETTER}){re.escape(name)}(?!{_LETTER})", text, flags)
    )


def _is_part(before: str, after: str) -> bool:
    """Whether a name is a part of a longer one, by the two characters before and after it."""
    joined = re.fullmatch(r"\w[-\u2011]|.?\.", before) or re.fullmatch(r"#.?|\+.?|\.\w", after)
    return bool(joined or (re.fullmatch(r"[-\u2011]\w", after) and after[1].isupper()))
