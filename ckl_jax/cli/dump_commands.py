"""`ckl data diffsets`, `rest`, `probes` and `dumps` (docs/dumps.md)."""

import argparse
import os
import re
from collections.abc import Callable
from pathlib import Path

from ckl_jax.cli.progress_line import ProgressLine
from ckl_jax.errors import UserError


def add(kinds, command: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the commands to `kinds`; `command` makes one of name, summary and function."""
    for add_one in (_diffsets, _rest, _probes, _dumps):
        add_one(kinds, command)


def _diffsets(kinds, command) -> None:
    p = command(kinds, "diffsets", "new text between two Wikipedia dumps (TemporalWiki)", diffsets)
    p.add_argument(
        "--old",
        default=None,
        help="pages-articles dump, or the folder of its parts; none: all text of --new",
    )
    p.add_argument("--new", required=True, help="a later dump of the same wiki")
    p.add_argument("--out", required=True, help="folder to write; go on with it if begun")
    add_workers(p)
    p.add_argument(
        "--shard", default="0/1", metavar="I/N", help="do every N-th shard only, from the I-th (0)"
    )
    p.add_argument("--shards", type=int, default=0, help="how many; 0: one for 64 MiB")
    p.add_argument("--namespaces", default="0", help="comma-separated numbers of those that count")
    p.add_argument("--disambiguation", action="store_true", help="keep disambiguation pages")
    p.add_argument("--deletions", action="store_true", help="also say what is gone")
    p.add_argument("--legacy", action="store_true", help="the paper's released function")
    p.add_argument("--unsorted", action="store_true", help="dumps not in the order of page ids")
    add_beam(p)
    p.add_argument("--dry-run", action="store_true", help="say what would be done")


def diffsets(args: argparse.Namespace) -> None:
    from ckl_jax.papers.temporalwiki.data import diffsets as builder

    workers, part = workers_of(args), _part(args.shard)
    if args.beam is not None and part != (0, 1):
        raise UserError("--beam shares the work out itself; leave --shard away.")
    if args.shards < 0:
        raise UserError(f"--shards is {args.shards}; give 0 or more.")
    options = builder.Options(
        namespaces=_numbers(args.namespaces),
        disambiguation=args.disambiguation,
        legacy=args.legacy,
        deletions=args.deletions,
        unsorted=args.unsorted,
        shards=args.shards,
    )
    todo = builder.plan(args.old, args.new, args.out, options)
    if args.dry_run:
        for dump in filter(None, (todo.old, todo.new)):
            print(f"{dump.bytes:16,}  bytes of {dump.name}")
        print(f"{len(todo.shards):16,}  shards, by {_by(args, workers)}, into {args.out}")
        return
    if args.beam is not None:
        from ckl_jax.papers.temporalwiki.data import beam_diffsets

        manifest = beam_diffsets.build(todo, args.beam)
    else:
        with ProgressLine() as progress:
            manifest = builder.build(todo, workers, part, progress)
    if manifest is None:
        print(f"shards of part {args.shard} are finished; others are not")
        return
    for reason, pages in manifest["pages"].items():
        print(f"{pages:12,}  pages: {reason}")
    for kind, records in manifest["records"].items():
        print(f"{records:12,}  records: {kind}")
    print(
        f"{manifest['articles']:12,}  articles, {manifest['words']:,} words: "
        f"{Path(args.out) / manifest['csv']}"
    )


def _rest(kinds, command) -> None:
    p = command(kinds, "rest", "text of a dump that its diffset has not (NON-Diffset)", rest)
    p.add_argument(
        "--snapshot", required=True, help="wikipedia_DATE.jsonl of diffsets without --old"
    )
    p.add_argument("--diffset", required=True, help="folder of `ckl data diffsets`")
    p.add_argument("--out", required=True, help="JSONL file of documents to write")
    p.add_argument("--share", type=float, default=1.0, help="share of the pages that is drawn")
    p.add_argument("--seed", type=int, default=0, help="of that")
    p.add_argument("--language", default="en", help="of the sentences")


def rest(args: argparse.Namespace) -> None:
    from ckl_jax.papers.temporalwiki.data.nondiffset import write_rest

    counts = write_rest(
        args.snapshot,
        args.diffset,
        args.out,
        share=args.share,
        seed=args.seed,
        language=args.language,
    )
    for name, pages in counts.items():
        print(f"{pages:12,}  {name}")
    print(args.out)


def _probes(kinds, command) -> None:
    p = command(kinds, "probes", "changed and unchanged facts of two Wikidata dumps", probes)
    p.add_argument("--old", required=True, help="Wikidata JSON dump")
    p.add_argument("--new", required=True, help="a later one")
    p.add_argument("--diffset", required=True, help="folder of `ckl data diffsets`")
    p.add_argument("--wikipedia", required=True, help="the new Wikipedia dump")
    p.add_argument("--out", required=True, help="folder to write; go on with it if begun")
    p.add_argument("--page-map", default="", help="TSV or page_props.sql; none: sitelinks")
    p.add_argument("--properties", default="", help="another dump with names of properties")
    p.add_argument("--language", default="en", help="of labels")
    p.add_argument("--site", default="", help="of sitelinks, such as enwiki; none: --wikipedia's")
    p.add_argument("--seed", type=int, default=0, help="of the sample and of the third filter")
    p.add_argument(
        "--unchanged-share", type=float, default=0.001, help="share of unchanged facts drawn"
    )
    p.add_argument("--qualifiers", action="store_true", help="items in qualifiers count")
    p.add_argument("--references", action="store_true", help="items in references count")
    p.add_argument("--deprecated", action="store_true", help="deprecated statements count")
    p.add_argument(
        "--legacy-skip-new-subjects", action="store_true", help="no facts of items without old ones"
    )
    p.add_argument(
        "--fix-point", action="store_true", help="repeat the third filter until it holds"
    )
    p.add_argument("--buckets", type=int, default=0, help="of items; 0: one for 64 MiB")
    p.add_argument(
        "--light-tuning",
        type=int,
        default=0,
        metavar="N",
        help="also draw N facts of each class to tune a model on (published: 500)",
    )
    p.add_argument("--keep", action="store_true", help="keep the intermediate files")
    add_workers(p)
    add_beam(p)
    p.add_argument("--dry-run", action="store_true", help="say what would be done")


def probes(args: argparse.Namespace) -> None:
    from ckl_jax.data.wikidata_json import FactRules
    from ckl_jax.papers.temporalwiki.data import probes as builder
    from ckl_jax.papers.temporalwiki.data.dumps import open_dump
    from ckl_jax.papers.temporalwiki.data.probe_rows import Job

    workers = workers_of(args)
    if not 0 < args.unchanged_share <= 1:
        raise UserError(f"--unchanged-share is {args.unchanged_share}; give a number in (0, 1].")
    if args.buckets < 0:
        raise UserError(f"--buckets is {args.buckets}; give 0 or more.")
    if args.light_tuning < 0:
        raise UserError(f"--light-tuning is {args.light_tuning}; give 0 or more.")
    site = args.site or open_dump(args.wikipedia, spans=False).wiki or "enwiki"
    rules = FactRules(
        language=args.language,
        site=site,
        deprecated=args.deprecated,
        qualifiers=args.qualifiers,
        references=args.references,
    )
    job = Job(
        old=args.old,
        new=args.new,
        diffset=args.diffset,
        wikipedia=args.wikipedia,
        out=Path(args.out),
        page_map=args.page_map,
        properties=args.properties,
        rules=rules,
        unchanged_share=args.unchanged_share,
        seed=args.seed,
        skip_new_subjects=args.legacy_skip_new_subjects,
        buckets=args.buckets,
    )
    if args.dry_run:
        builder.check(job)
        for path in (args.old, args.new):
            print(f"{os.path.getsize(path):16,}  bytes of {path}")
        print(
            f"{job.sized().buckets:16,}  buckets of items, by {_by(args, workers)}, into {args.out}"
        )
        return
    ends = dict(fix_point=args.fix_point, keep=args.keep, light_tuning=args.light_tuning)
    if args.beam is not None:
        from ckl_jax.papers.temporalwiki.data import beam_probes

        manifest = beam_probes.build(job, args.beam, **ends)
    else:
        with ProgressLine() as progress:
            manifest = builder.build(job, workers, progress, **ends)
    print(f"{'':12} {'initial':>12} {'aligned':>12} {'final':>12}")
    for title, row in manifest["table_2"].items():
        print(f"{title:12} {row['initial']:12,} {row['aligned']:12,} {row['final']:12,}")
    for title, row in manifest["table_7"].items():
        print(
            f"{title:12} {row['relations']:,} relations, at most {row['max_repetition']:,} facts "
            f"of one, {row['subjects']:,} subjects"
        )
    print(Path(args.out) / "manifest.json")


def _dumps(kinds, command) -> None:
    p = command(kinds, "dumps", "monthly dumps of the simulated world", dumps)
    p.add_argument("--out", required=True, help="folder to write")
    p.add_argument("--months", type=int, default=4, help="dumps of each kind, 2 to 13")
    p.add_argument("--seed", type=int, default=0, help="of everything in them")
    p.add_argument("--size", default="small", help="tiny, small, medium or large")
    p.add_argument("--dry-run", action="store_true", help="say what would be written")


def dumps(args: argparse.Namespace) -> None:
    from ckl_jax.world.dump_files import write_dumps
    from ckl_jax.world.months import month_starts
    from ckl_jax.world.timeline import make_world

    world = make_world(args.seed, args.size)
    if args.dry_run:
        dates = month_starts(world, args.months)
        print(f"dumps of {len(world.entities):,} items at {', '.join(dates)}, into {args.out}")
        return
    with ProgressLine() as progress:
        manifest = write_dumps(world, args.out, args.months, progress)
    for row in manifest["dates"].values():
        print(f"{row['pages']:8,}  pages: {row['wikipedia']}")
        print(f"{row['items']:8,}  items: {row['wikidata']}")


# --- what they share


def add_workers(p: argparse.ArgumentParser) -> None:
    p.add_argument("--workers", type=int, default=0, help="processes; 0: one for each core")


def add_beam(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--beam",
        default=None,
        metavar="OPTIONS",
        help="as an Apache Beam pipeline with these options: --beam='--runner=...', or --beam=''",
    )


def _by(args: argparse.Namespace, workers: int) -> str:
    return f"{workers} processes" if args.beam is None else "a Beam pipeline"


def workers_of(args: argparse.Namespace) -> int:
    if args.workers < 0:
        raise UserError(f"--workers is {args.workers}; give 1 or more, or 0 for one a core.")
    return args.workers or len(os.sched_getaffinity(0))


def _part(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or int(match[1]) >= int(match[2]):
        raise UserError(f"--shard is {text!r}; give I/N with 0 <= I < N, such as 0/8.")
    return int(match[1]), int(match[2])


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"--namespaces is {text!r}; give numbers, such as 0 or 0,14.") from None
