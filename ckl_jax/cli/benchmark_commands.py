"""`ckl data benchmark`, `ckl data review` (docs/benchmark_builder.md) and `ckl data trex`."""

import argparse
from collections.abc import Callable
from pathlib import Path

from ckl_jax.cli.progress_line import ProgressLine
from ckl_jax.errors import UserError


def add(kinds, command: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the commands to `kinds`; `command` makes one of name, summary and function."""
    for add_one in (_benchmark, _review, _trex):
        add_one(kinds, command)


def _benchmark(kinds, command) -> None:
    p = command(kinds, "benchmark", "CKL's probes out of dated facts and dated text", benchmark)
    p.add_argument(
        "--facts",
        required=True,
        nargs="+",
        metavar="FILE",
        help="JSONL(.gz) or CSV of facts, or folders of JSONL (docs/benchmark_builder.md)",
    )
    p.add_argument(
        "--corpus",
        nargs="*",
        default=[],
        metavar="FILE",
        help="JSONL(.gz) of documents with date and text, of D0 and D1",
    )
    p.add_argument(
        "--dates", required=True, nargs=2, metavar=("A", "B"), help="last days of D0 and of D1"
    )
    p.add_argument("--out", required=True, help="folder to write, in CKL's layout")
    p.add_argument(
        "--evidence",
        default="note",
        help="note: write down the sentences that are found; require: leave out facts without",
    )
    p.add_argument("--wordings", default="", help="JSONL of relation, cloze, question, kind")
    p.add_argument("--patterns", default="", help="ParaRel's folder, in place of LAMA's templates")
    p.add_argument(
        "--per-relation", type=int, default=0, help="items of a relation at most; 0: all"
    )
    p.add_argument(
        "--light-tuning",
        type=int,
        default=0,
        metavar="N",
        help="set N of InvariantLAMA's items aside, to tune a GPT-2 on (published: 5,000)",
    )
    p.add_argument(
        "--training-rows",
        action="store_true",
        help="write the documents too, as CKL's corpora with salient spans masked",
    )
    p.add_argument(
        "--row-words",
        type=int,
        default=250,
        metavar="N",
        help="words of a row at most; 0: a sentence a row",
    )
    p.add_argument(
        "--row-spans",
        type=int,
        default=0,
        metavar="N",
        help="spans masked in a row at most, each once in some row; 0: all in one",
    )
    p.add_argument(
        "--small",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="share of the documents that are SMALL's, with its halves P1 and P2 (published: 0.1)",
    )
    p.add_argument("--half", default="", metavar="DATE", help="first day of P2 (the middle)")
    p.add_argument("--seed", type=int, default=0, help="of the draws of items and of SMALL")
    p.add_argument("--finder", default="heuristic", help="of entities: heuristic or spacy")
    p.add_argument("--language", default="en", help="of the sentences")
    p.add_argument(
        "--decontextualize",
        default="",
        metavar="MODULE:FUNCTION",
        help="makes sentences stand alone: (sentences, contexts) -> sentences",
    )
    p.add_argument(
        "--back-translate",
        default="",
        metavar="MODULE:FUNCTION",
        help="paraphrases: sentences -> sentences",
    )
    p.add_argument(
        "--ask",
        default="",
        metavar="MODULE:FUNCTION",
        help="questions for NewLAMA-Easy: (statements, answers) -> questions",
    )
    p.add_argument("--replace", action="store_true", help="make anew what --out holds")


def benchmark(args: argparse.Namespace) -> None:
    from ckl_jax.data.ckl_files import CORPORA
    from ckl_jax.data.dated_facts import check_day
    from ckl_jax.papers.ckl.data import benchmark as builder

    names = (
        "evidence",
        "per_relation",
        "light_tuning",
        "finder",
        "language",
        "ask",
        "wordings",
        "patterns",
        "training_rows",
        "row_words",
        "row_spans",
        "small",
        "seed",
    )
    options = builder.Options(
        **{name: getattr(args, name) for name in names},
        stand_alone=args.decontextualize,
        paraphrase=args.back_translate,
        half=check_day(args.half, "--half") if args.half else "",
    )
    dates = tuple(check_day(day, "--dates") for day in args.dates)
    with ProgressLine() as progress:
        manifest = builder.build(
            args.facts,
            args.corpus,
            dates,
            args.out,
            options,
            replace=args.replace,
            progress=progress,
        )
    for probe in dict.fromkeys((*builder.PROBES, *manifest["items"])):
        found = manifest["with_evidence"].get(probe, {})
        named = ", ".join(f"{what} answer {n:,}" for what, n in found.items())
        print(
            f"{manifest['items'].get(probe, 0):10,}  {probe}"
            + f"; with sentences of {named}" * bool(named)
        )
    for side, count in manifest["documents"].items():
        print(f"{count:10,}  documents {'of ' * (side != 'later')}{side}")
    for corpus, count in manifest.get("rows", {}).items():
        print(f"{count:10,}  rows of {CORPORA[corpus]}")
    for reason, count in manifest["counts"].items():
        print(f"{count:10,}  {reason}")
    print(Path(args.out) / "manifest.json")


def _review(kinds, command) -> None:
    p = command(kinds, "review", "a page to keep, drop and edit probes' items by hand", review)
    p.add_argument("dir", metavar="DIR", help="folder of probes in CKL's layout")
    p.add_argument("--apply", default="", metavar="FILE", help="decisions that the page exported")
    p.add_argument("--out", default="", help="page (DIR/review.html), or with --apply: folder")
    p.add_argument(
        "--undecided", default="keep", help="with --apply, what is not decided: keep or drop"
    )
    p.add_argument(
        "--replace", action="store_true", help="with --apply: make anew what --out holds"
    )


def review(args: argparse.Namespace) -> None:
    if args.apply:
        from ckl_jax.papers.ckl.data import review as decisions

        if not args.out:
            raise UserError("--apply needs --out, a folder for the reviewed files.")
        manifest = decisions.apply(
            args.dir, args.apply, args.out, args.undecided, replace=args.replace
        )
        for probe, counts in manifest["probes"].items():
            print(
                f"{counts['items']:10,}  {probe}: {counts['dropped']:,} dropped, "
                f"{counts['edited']:,} edited, {counts['undecided']:,} not decided"
            )
        print(args.out)
        return
    from ckl_jax.papers.ckl.analysis import review_page

    print(review_page.write(args.dir, args.out))


def _trex(kinds, command) -> None:
    p = command(kinds, "trex", "facts to light-tune a GPT-2 on before InvariantLAMA (CKL)", trex)
    p.add_argument(
        "--facts",
        required=True,
        nargs="+",
        metavar="FILE",
        help="T-REx as LAMA or ParaRel has it: JSONL(.gz) files, or folders of them",
    )
    p.add_argument("--invariant", required=True, help="invariantLAMA.csv, which is left out")
    p.add_argument("--out", required=True, help="the CSV file to write, such as trex_5000.csv")
    p.add_argument("--count", type=int, default=5000, help="how many to draw")
    p.add_argument("--seed", type=int, default=0, help="of the lot")
    p.add_argument("--replace", action="store_true", help="write over the file of --out")


def trex(args: argparse.Namespace) -> None:
    from ckl_jax.papers.ckl.data.trex import draw

    if Path(args.out).exists() and not args.replace:
        raise UserError(f"{args.out} is there already; add --replace, or choose another --out.")
    counts = draw(args.facts, args.invariant, args.out, args.count, args.seed)
    print(f"{counts.pop('written'):10,}  facts in {args.out}")
    for why, number in counts.items():
        print(f"{number:10,}  left out: {why}")
