"""`ckl data prepare` and `ckl data rows`: cached tasks of text in files."""

import argparse
from collections.abc import Callable
from pathlib import Path

from ckl_jax.errors import UserError


def add(kinds, command: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the commands to `kinds`; `command` makes one of name, summary and function."""
    _prepare(kinds, command)
    _rows(kinds, command)


def _prepare(kinds, command) -> None:
    p = command(kinds, "prepare", "cached tasks out of a folder in CKL's layout", prepare)
    p.add_argument("--dir", required=True, help="folder with recent_news_full.csv and so on")
    p.add_argument("--out", required=True, help="folder for the vocabulary and the tasks")
    p.add_argument(
        "--vocabulary",
        default=None,
        help="SentencePiece model, which gets 100 sentinels if it has none; none: train one",
    )
    p.add_argument("--vocab-size", type=int, default=32000, help="pieces of a trained vocabulary")
    p.add_argument("--input-length", type=int, default=350, help="tokens kept of an input")
    p.add_argument("--target-length", type=int, default=350, help="tokens kept of a target")
    p.add_argument(
        "--replace", action="store_true", help="make anew what --out holds of other settings"
    )


def prepare(args: argparse.Namespace) -> None:
    from ckl_jax import checks
    from ckl_jax.data.ckl_files import CORPORA
    from ckl_jax.data.prepare import prepare_ckl

    checks.require_int(5, **{"--vocab-size": args.vocab_size})
    for name in ("input", "target"):  # the end of sequence takes one token
        checks.require_int(2, **{f"--{name}-length": getattr(args, f"{name}_length")})
    lengths = {"inputs": args.input_length, "targets": args.target_length}
    prepared = prepare_ckl(
        args.dir,
        args.out,
        args.vocab_size,
        lengths,
        vocabulary=args.vocabulary,
        replace=args.replace,
        progress=lambda task, rows: print(f"\r{task}: {rows:,} rows ", end="", flush=True),
    )
    print()
    for name, folder in prepared.tasks.items():
        print(f"{len(prepared.open(name)):10,}  {folder}")
    if absent := [f"{n} ({file})" for n, file in CORPORA.items() if n not in prepared.tasks]:
        print(f"not there, and so no task: {', '.join(absent)}")


def _rows(kinds, command) -> None:
    p = command(kinds, "rows", "rows of running text for GPT-2 or BERT", rows)
    p.add_argument(
        "--documents",
        required=True,
        action="append",
        metavar="FILE",
        help="JSONL(.gz) with date, title, text; its name is the task's; may be repeated",
    )
    p.add_argument("--out", required=True, help="folder for the tasks")
    p.add_argument("--vocabulary", required=True, help="GPT-2's or BERT's folder, or SentencePiece")
    p.add_argument("--length", type=int, default=512, help="tokens of a row at most")
    p.add_argument("--pack", action="store_true", help="several short documents in a row")
    p.add_argument(
        "--legacy",
        action="store_true",
        help="leave out the last row of long documents, as TemporalWiki's code did",
    )
    p.add_argument(
        "--replace", action="store_true", help="make anew what --out holds of other settings"
    )


def rows(args: argparse.Namespace) -> None:
    from ckl_jax.data.cached import CachedTask
    from ckl_jax.data.causal import prepare_rows
    from ckl_jax.data.masked_vocabulary import open_vocabulary

    sources = {Path(file).name.split(".")[0]: file for file in args.documents}
    if len(sources) < len(args.documents):
        raise UserError("Two files of --documents have one name, which would be one task's.")
    made = prepare_rows(
        sources,
        args.out,
        open_vocabulary(args.vocabulary),
        args.length,
        packed=args.pack,
        legacy=args.legacy,
        replace=args.replace,
        progress=lambda task, done: print(f"\r{task}: {done:,} rows ", end="", flush=True),
    )
    for folder in made.values():
        print(f"{len(CachedTask.open(folder)):10,}  {folder}")
