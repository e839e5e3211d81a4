"""`ckl data ...` of dumps of Wikipedia and Wikidata (docs/dumps.md)."""

import dataclasses
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from ckl_jax.cli.work import Beam, Overwrite, RecordLimit, Workers, count_workers
from ckl_jax.data.compressed import RECORD_BYTES
from ckl_jax.data.process_pool import open_folder
from ckl_jax.data.text.document_files import Fields, read_place
from ckl_jax.errors import UserError
from ckl_jax.files import claimed_folder, refuse_existing, refuse_to_replace, refuse_unclaimed
from ckl_jax.options import Files, Flat, Names
from ckl_jax.papers.temporalwiki.data.diffsets import Options
from ckl_jax.papers.temporalwiki.data.probe_rows import Job
from ckl_jax.train.progress import counting
from ckl_jax.world.timeline import SIZES


def diffsets(
    settings: Flat[Options],
    *,
    new: str,
    out: str,
    old: str | None = None,
    workers: Workers = 0,
    shard: str = "0/1",
    beam: Beam = None,
    dry_run: bool = False,
) -> dict[str, Any] | None:
    """Extract the new text between two Wikipedia dumps (TemporalWiki).

    Args:
      new: A pages-articles dump, or the folder of its parts.
      out: Folder to write; an unfinished one is continued.
      old: An earlier dump of the same wiki; by default all text of --new is new.
      shard: Do every N-th shard only, from the I-th (0): I/N.
      dry_run: Print what would be done, and stop.
    """
    from ckl_jax import checks
    from ckl_jax.papers.temporalwiki.data import diffsets as builder

    processes, part = count_workers(workers), _part(shard)
    if beam is not None and part != (0, 1):
        raise UserError("--beam distributes the work itself; leave --shard out.")
    checks.require_int(0, 99_999, **{"--shards": settings.shards})
    todo = builder.plan(old, new, out, settings)
    if dry_run:
        open_folder(out, todo.settings(), dry_run=True)
        for dump in filter(None, (todo.old, todo.new)):
            print(f"{dump.bytes:16,}  bytes of {dump.name}")
        print(f"{len(todo.shards):16,}  shards, by {_by(beam, processes)}, into {out}")
        return None
    _verify(out, filter(None, (old, new)))
    if beam is not None:
        from ckl_jax.papers.temporalwiki.data import beam_diffsets

        manifest = beam_diffsets.build(todo, beam)
    else:
        with counting() as progress:
            manifest = builder.build(todo, processes, part, progress)
    if manifest is None:
        print(f"shards of part {shard} are finished; others are not")
        return None
    for reason, pages in manifest["pages"].items():
        print(f"{pages:12,}  pages: {reason}")
    for kind, records in manifest["records"].items():
        print(f"{records:12,}  records: {kind}")
    for kind, sentences in manifest.get("edits", {}).items():
        print(f"{sentences:12,}  new sentences of old articles: {kind}")
    for what, count in manifest["templates"].items():
        print(f"{count:12,}  {what}")
    print(
        f"{manifest['articles']:12,}  articles, {manifest['words']:,} words: "
        f"{Path(out) / manifest['csv']}"
    )
    return manifest


def _part(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if not match or int(match[1]) >= int(match[2]):
        raise UserError(f"--shard is {text[:40]!r}; give I/N with 0 <= I < N, such as 0/8.")
    return int(match[1]), int(match[2])


def _verify(out: str | os.PathLike, dumps: Iterable[str]) -> None:
    """Compares dumps with the SHA-1 sums that lie beside them, unless `out` is finished."""
    from ckl_jax.papers.temporalwiki.data import checksums

    if not (Path(out) / "manifest.json").exists():
        checksums.verify(dumps)


def _by(beam: str | None, workers: int) -> str:
    return f"{workers} processes" if beam is None else "a Beam pipeline"


def nondiffset(
    *,
    snapshot: str,
    diffset: str,
    out: str,
    fraction: float = 1.0,
    seed: int = 0,
    language: str = "en",
    record_limit: RecordLimit = RECORD_BYTES,
    overwrite: Overwrite = False,
) -> dict[str, Any]:
    """Extract the text of a dump that its diffset lacks (TemporalWiki's NON-Diffset).

    Args:
      snapshot: File wikipedia_DATE.jsonl of `ckl data diffsets` without --old.
      diffset: Folder of `ckl data diffsets`.
      out: JSONL file of documents to write.
      fraction: Fraction of the pages that is drawn.
      seed: Random seed of the draw.
      language: Language of the sentences.
    """
    from ckl_jax.papers.temporalwiki.data.nondiffset import write_nondiffset

    refuse_to_replace(out, snapshot)
    refuse_existing(out, overwrite)
    counts = write_nondiffset(
        snapshot,
        diffset,
        out,
        fraction=fraction,
        seed=seed,
        language=language,
        record_limit=record_limit,
    )
    for name, pages in counts.items():
        print(f"{pages:12,}  {name}")
    print(out)
    return {"out": out, "pages": counts}


def probes(
    job: Flat[Job],
    *,
    site: str = "",
    fix_point: bool = False,
    light_tuning: int = 0,
    keep: bool = False,
    workers: Workers = 0,
    beam: Beam = None,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Extract the changed and the unchanged facts of two Wikidata dumps (TWiki-Probes).

    Args:
      site: Wiki of the sitelinks, such as enwiki; by default that of --wikipedia.
      fix_point: Repeat the third filter until it drops nothing.
      light_tuning: Facts of each class to draw for tuning a model (500 in the paper).
      keep: Keep the intermediate files.
      dry_run: Print what would be done, and stop.
    """
    from ckl_jax import checks
    from ckl_jax.papers.temporalwiki.data import probes as builder
    from ckl_jax.papers.temporalwiki.data.dumps import open_dump

    processes = count_workers(workers)
    for name in ("unchanged_fraction", "subject_cap", "relation_cap"):
        checks.require_fraction(**{f"--{name.replace('_', '-')}": getattr(job, name)})
    checks.require_int(0, 99_999, **{"--buckets": job.buckets})
    checks.require_int(0, **{"--light-tuning": light_tuning})
    site = site or open_dump(job.wikipedia, spans=False).wiki or "enwiki"
    job = dataclasses.replace(job, rules=dataclasses.replace(job.rules, site=site))
    if dry_run:
        builder.check(job)
        sized = job.sized()
        open_folder(job.out, builder.settings_of(sized, fix_point, light_tuning), dry_run=True)
        for path in (job.old, job.new):
            print(f"{os.path.getsize(path):16,}  bytes of {path}")
        print(f"{sized.buckets:16,}  buckets of items, by {_by(beam, processes)}, into {job.out}")
        return None
    _verify(job.out, (job.old, job.new))
    ends = dict(fix_point=fix_point, keep=keep, light_tuning=light_tuning)
    if beam is not None:
        from ckl_jax.papers.temporalwiki.data import beam_probes

        manifest = beam_probes.build(job, beam, **ends)
    else:
        with counting() as progress:
            manifest = builder.build(job, processes, progress, **ends)
    print(f"{'':12} {'initial':>12} {'aligned':>12} {'final':>12}")
    for title, row in manifest["table_2"].items():
        print(f"{title:12} {row['initial']:12,} {row['aligned']:12,} {row['final']:12,}")
    for title, row in manifest["table_7"].items():
        print(
            f"{title:12} {row['relations']:,} relations, at most {row['max_repetition']:,} facts "
            f"of one, {row['subjects']:,} subjects"
        )
    print(job.out / "manifest.json")
    return manifest


def dumps(
    *,
    out: str,
    months: int = 4,
    seed: int = 0,
    size: Literal[*SIZES] = "small",
    dry_run: bool = False,
    overwrite: Overwrite = False,
) -> dict[str, Any]:
    """Write monthly dumps of the simulated world.

    Args:
      out: Folder to write.
      months: Dumps of each kind, 2 to 13.
      seed: Random seed.
      size: Size of the world.
      dry_run: Print what would be written, and stop.
    """
    from ckl_jax.world.dump_files import write_dumps
    from ckl_jax.world.months import month_starts
    from ckl_jax.world.timeline import make_world

    world = make_world(seed, size, "legacy")
    dates = month_starts(world, months)
    command = f"ckl data dumps --size {size} --seed {seed}"
    if dry_run:
        refuse_unclaimed(out, command, overwrite)
        print(f"dumps of {len(world.entities):,} items at {', '.join(dates)}, into {out}")
        return None
    with claimed_folder(out, command, overwrite), counting() as progress:
        manifest = write_dumps(world, out, months, progress)
    for row in manifest["dates"].values():
        print(f"{row['pages']:8,}  pages: {row['wikipedia']}")
        print(f"{row['items']:8,}  items: {row['wikidata']}")
    return manifest


def snapshots(
    *,
    documents: str,
    facts: Files = (),
    out: str,
    dates: Names = (),
    language: str = "en",
    complete: bool = False,
    text_field: str = "text",
    date_field: str = "date",
    title_field: str = "title",
    id_field: str = "id",
    overwrite: Overwrite = False,
) -> dict[str, Any]:
    """Write dumps of your own dated documents and facts, a pair for each date.

    Args:
      documents: File or folder: JSON lines, CSV, Parquet, text or Markdown. Of each document the
        newest version up to a date counts; one with an empty text is gone.
      facts: JSONL(.gz) or CSV of dated facts; by default there are none, and studies measure text
        alone.
      out: Folder to write, for `ckl temporalwiki --snapshots OUT/YYYYMMDD ...`.
      dates: Dates of the snapshots, YYYY-MM-DD, separated by commas; by default all dates of
        documents.
      language: Language of the texts, by whose rules their sentences are split.
      complete: Each date of documents has all of them; those that are missing are gone.
      text_field: Name of the field with the text.
      date_field: Name of the field with the day of a version.
      title_field: Name of the field with the title, by which facts find their document.
      id_field: Name of the field that is the same in all versions of a document.
    """
    from ckl_jax.data.facts.dated_facts import check_day, read_dated_facts
    from ckl_jax.papers.temporalwiki.data.own_snapshots import write_snapshots

    for date in dates:
        check_day(date, "--dates")
    stated = list(read_dated_facts(facts)) if facts else []
    fields = Fields(text=text_field, date=date_field, title=title_field, id=id_field)
    texts = read_place(documents, fields, versions=True)
    # Later dates of the same text may come to those that are there, other text may not.
    named = ["--facts", *(Path(path).name for path in facts)] if facts else []
    named += ["--language", language] if language != "en" else []
    named += ["--complete"] if complete else []
    for name, field in dataclasses.asdict(fields).items():
        named += [f"--{name}-field", field] if field != getattr(Fields(), name) else []
    command = " ".join(["ckl data snapshots --documents", Path(documents).name, *named])
    with claimed_folder(out, command, overwrite), counting() as progress:
        more = {"language": language, "complete": complete, "replace": overwrite}
        manifest = write_snapshots(texts, stated, out, dates, **more, progress=progress)
    for stamp, row in manifest["dates"].items():
        print(f"{row['pages']:8,}  pages, {row['items']:,} items: {Path(out) / stamp}")
    return manifest


def offices(
    *,
    wikidata: str,
    out: str,
    properties: Names = ("P6", "P35"),
    instance_of: Names = (),
    language: str = "en",
    overwrite: Overwrite = False,
) -> dict[str, Any]:
    """Extract who held which office when from a Wikidata dump.

    Args:
      wikidata: JSON dump, plain, gzip or bzip2.
      out: CSV file to write, for `ckl data questions --source`.
      properties: Properties that are offices, such as P6,P35,P169.
      instance_of: Kinds of places, such as Q3624078; by default all.
      language: Language of names.
    """
    from ckl_jax.papers.mind_the_gap.data.wikidata_offices import read_offices, write_terms

    refuse_to_replace(out, wikidata)
    refuse_existing(out, overwrite)
    with counting() as progress:
        terms = read_offices(wikidata, properties, instance_of, language, progress)
    write_terms(out, terms)
    print(f"{len(terms):10,}  terms of {len({t.place for t in terms}):,} places: {out}")
    return {"out": out, "terms": len(terms)}
