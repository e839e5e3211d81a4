"""`ckl probe bear`, `ckl probe compare` and `ckl stream` (docs/ranking.md)."""

import argparse
from collections.abc import Callable
from pathlib import Path

from ckl_jax.cli.options import names
from ckl_jax.cli.progress_line import ProgressLine
from ckl_jax.errors import UserError


def add(commands, command: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the commands to `commands`; `command` makes one of name, summary and function."""
    _probe(commands, command)
    _stream(commands, command)


def _probe(commands, command) -> None:
    probes = commands.add_parser("probe", help="put a probe to a model")
    kinds = probes.add_subparsers(metavar="PROBE", required=True)
    p = command(kinds, "bear", "rank the answers of a relational dataset (LM-PUB-QUIZ)", bear)
    p.add_argument("--model", required=True, help="Hugging Face folder, MODEL_DIR or checkpoint")
    p.add_argument("--dataset", default="BEAR", help="folder of BEAR, or of one in its layout")
    p.add_argument("--out", default=None, help="folder of the results (MODEL/bear/DATASET)")
    p.add_argument("--templates", default="all", help="numbers from 0, such as 0 or 0,2, or all")
    p.add_argument("--relations", type=names, default=(), help="such as P36,P30; default all")
    p.add_argument("--relation-info", default=None, help="JSON of domains by relation")
    p.add_argument("--reduction", default="sum", help="sum, mean, or none for token scores")
    p.add_argument("--conditional", action="store_true", help="score from the answer's start on")
    p.add_argument("--no-bos", action="store_true", help="as GPT-2's published scores, without BOS")
    p.add_argument("--target", default="answer", help="what a T5 is scored on: answer or statement")
    p.add_argument(
        "--pll-metric",
        default="within_word_l2r",
        help="what a BERT has hidden with a token: within_word_l2r, original, sentence_l2r or "
        "answer_l2r+word_l2r",
    )
    p.add_argument(
        "--subjects",
        type=names,
        default=None,
        help="generic subjects in place of the real ones, such as it,the place: biases alone",
    )
    p.add_argument("--dtype", default=None, help="bfloat16 or float32, of activations")
    p.add_argument("--subsample", type=int, default=None, help="instances of each relation")
    p.add_argument("--batch-size", type=int, default=None, help="rows of the model at once")
    p.add_argument(
        "--gin",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="binding over the run's, such as DATA_DIR=\"'elsewhere'\"",
    )

    p = command(kinds, "compare", "figures of several models' ranking results", compare)
    p.add_argument("results", nargs="+", help="folders of results, as NAME=FOLDER or FOLDER")
    p.add_argument("--out", required=True, help="folder of the figures")
    p.add_argument("--bias", type=names, default=(), help="relations whose biases to draw: P30")
    p.add_argument("--relation-info", default=None, help="JSON of domains by relation")


def _stream(commands, command) -> None:
    summary = "a BERT on a stream of dated text, ranked and filled in after each part"
    p = command(commands, "stream", summary, stream)
    p.add_argument("--out", default="runs/stream", help="folder of everything")
    p.add_argument("--size", default="small", help="of the simulated world")
    p.add_argument("--seed", type=int, default=0, help="of world, parameters and data order")
    p.add_argument("--documents", default=None, help="JSONL(.gz) with date, title, text")
    p.add_argument("--model", default=None, help="folder of import-hf; none: a small new model")
    p.add_argument("--dataset", default=None, help="facts to ask for, in BEAR's layout")
    p.add_argument("--experiences", type=int, default=5, help="parts of the stream, by date")
    p.add_argument("--epochs", type=int, default=3, help="passes over each part")
    p.add_argument("--initial-epochs", type=int, default=40, help="passes over the old pages")
    p.add_argument(
        "--gin", action="append", default=[], metavar="NAME=VALUE", help="gin binding for all runs"
    )


def stream(args: argparse.Namespace) -> None:
    from ckl_jax.papers.lm_pub_quiz import knowledge_stream as job

    job.run(
        job.Stream(
            out=args.out,
            size=args.size,
            seed=args.seed,
            documents=args.documents,
            model=args.model,
            dataset=args.dataset,
            experiences=args.experiences,
            epochs=args.epochs,
            initial_epochs=args.initial_epochs,
            bindings=args.gin,
        )
    )


def compare(args: argparse.Namespace) -> None:
    from ckl_jax.papers.lm_pub_quiz.analysis.ranking_report import changes, draw

    named = [text.split("=", 1) if "=" in text else (text, text) for text in args.results]
    names = [name for name, _ in named]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"{twice} is named twice; give each folder its own name (NAME=FOLDER).")
    written = draw(dict(named), args.out, args.bias, args.relation_info)
    print("\n".join(written))
    if not any(path.endswith("domains.png") for path in written):
        print("No domains.png: the results have no domains; give --relation-info.")
    for line in changes(dict(named)):
        print(line)


def bear(args: argparse.Namespace) -> None:
    from ckl_jax import checks
    from ckl_jax.data.relational import Dataset
    from ckl_jax.files import write_json, write_jsonl
    from ckl_jax.papers.lm_pub_quiz import probe
    from ckl_jax.papers.lm_pub_quiz.analysis import ranking_report as report

    dataset = Dataset.from_path(args.dataset, args.relation_info, args.relations)
    checks.require_choice(("sum", "mean", "none"), **{"--reduction": args.reduction})
    if args.subjects == ():
        raise UserError("--subjects names none; give some, such as it,the place.")
    if args.subjects:
        dataset = dataset.about(args.subjects)
    out = args.out or str(Path(args.model) / "bear" / dataset.name)
    settings = probe.Settings(
        out=out,
        templates=_numbers(args.templates),
        reduction=None if args.reduction == "none" else args.reduction,
        conditional_score=args.conditional,
        bos=False if args.no_bos else None,
        subsample=args.subsample,
        target=args.target,
        pll_metric=args.pll_metric,
        batch_size=args.batch_size,
        dtype=args.dtype,
        bindings=tuple(args.gin),
    )
    with ProgressLine() as line:

        def show(code: str, done: int, whole: int) -> None:
            line(done + 1, whole, f"relations: {code}")

        results = probe.probe(args.model, dataset, settings, show)
    if args.subjects:
        print(f"{report.biases(results)}\nResults: {out}")
        return
    write_json(Path(out) / "summary.json", report.as_json(results))
    write_jsonl(Path(out) / "items.jsonl", report.items(results))
    print(f"{report.summary(results)}\nResults: {out}")


def _numbers(text: str) -> tuple[int, ...] | None:
    if text == "all":
        return None
    numbers = text.split(",")
    if not all(number.strip().isdigit() for number in numbers):
        raise UserError(f"--templates is {text!r}; give numbers from 0, such as 0,2, or all.")
    return tuple(int(number) for number in numbers)
