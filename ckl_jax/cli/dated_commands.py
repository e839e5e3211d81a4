"""`ckl data vocabulary` and `dated` (docs/time_splits.md)."""

import argparse
from collections.abc import Callable
from pathlib import Path


def add(kinds, command: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the commands to `kinds`; `command` makes one of name, summary and function."""
    for add_one in (_stream, _vocabulary, _dated):
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
    from ckl_jax.data.dated_vocabulary import DatedVocabulary

    recipe = DatedVocabulary(
        args.size, args.max_bytes, args.type, args.coverage, args.normalizer,
        not args.no_byte_fallback, args.seed,
    )  # fmt: skip
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
    from ckl_jax.cli.dump_commands import Progress
    from ckl_jax.data.dated_task import prepare_dated
    from ckl_jax.data.masked_vocabulary import open_vocabulary

    with Progress() as progress:
        task = prepare_dated(
            args.input, args.out, open_vocabulary(args.vocabulary), replace=args.replace,
            progress=lambda name, done: progress(done, 0, f"documents of {name}"),
        )  # fmt: skip
    print(f"{len(task):10,}  documents, {task.words:,} words, {task.pieces:,} pieces: "
          f"{Path(args.out)}")  # fmt: skip
