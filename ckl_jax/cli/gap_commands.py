"""`ckl mind-the-gap` and `ckl ask` (docs/mind_the_gap.md)."""

import argparse
from collections.abc import Callable

from ckl_jax.cli.dated_commands import add_split_options, split_options
from ckl_jax.cli.options import names
from ckl_jax.cli.progress_line import ProgressLine


def add(commands, command: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the commands; `command` makes one of name, summary and function."""
    _mind_the_gap(commands, command)
    _ask(commands, command)


def _mind_the_gap(commands, command) -> None:
    p = command(
        commands, "mind-the-gap", "how fast a model goes stale, and what updates win back", gap
    )
    p.add_argument("--out", default="runs/mind-the-gap", help="folder of everything")
    p.add_argument(
        "--corpus",
        default=None,
        metavar="FILE",
        help="dated documents; none: the simulated stream",
    )
    p.add_argument("--source", default="jsonl", help="their form: jsonl, wmt or arxiv")
    p.add_argument(
        "--no-clean", action="store_true", help="--corpus is tokenised, without duplicates"
    )
    p.add_argument("--skip-bad", action="store_true", help="leave out malformed documents")
    add_split_options(p)
    p.add_argument("--size", default="small", help="of the models: tiny or small")
    p.add_argument("--vocabulary-size", type=int, default=None, help="pieces; none: that of --size")
    p.add_argument("--seed", type=int, default=0, help="of stream, splits, parameters, data order")
    p.add_argument("--masks", default="all,bias,embedding", help="what learns; '': nothing")
    p.add_argument(
        "--rates", default="0.01,0.03,0.1,0.3", help="of dynamic evaluation, to choose from"
    )
    p.add_argument(
        "--tuning-documents", type=int, default=200, help="of validation text, to try --rates on"
    )
    p.add_argument(
        "--past-documents", type=int, default=20, help="of each past year, to see what is forgotten"
    )
    p.add_argument("--tagger", default="heuristic", help="see ckl drift; none: no parts of speech")
    p.add_argument("--topics", type=int, default=0, help="see ckl drift")
    p.add_argument("--emerging-least", type=int, default=50, help="see ckl drift")
    p.add_argument("--jobs", type=int, default=0, help="processes at once; 0: one for each core")
    p.add_argument(
        "--gin", action="append", default=[], metavar="NAME=VALUE", help="gin binding for all runs"
    )


def gap(args: argparse.Namespace) -> None:
    from ckl_jax.errors import UserError
    from ckl_jax.papers.mind_the_gap import study as job

    try:
        rates = tuple(float(rate) for rate in args.rates.split(",") if rate.strip())
    except ValueError as e:
        raise UserError(f"--rates {args.rates!r}: give numbers with commas between.") from e
    masks = names(args.masks)
    settings = job.Gap(
        out=args.out,
        corpus=args.corpus,
        source=args.source,
        clean=not args.no_clean,
        options=split_options(args),
        size=args.size,
        vocabulary_size=args.vocabulary_size,
        seed=args.seed,
        masks=masks,
        rates=rates,
        tuning_documents=args.tuning_documents,
        past_documents=args.past_documents,
        tagger="" if args.tagger == "none" else args.tagger,
        topics=args.topics,
        emerging_least=args.emerging_least,
        jobs=args.jobs,
        bindings=tuple(args.gin),
        skip_bad=args.skip_bad,
    )
    with ProgressLine() as progress:
        job.run(settings, progress)


def _ask(commands, command) -> None:
    p = command(commands, "ask", "put dated questions to models of several times", ask)
    p.add_argument(
        "--model",
        action="append",
        required=True,
        metavar="NAME=RUN",
        help="MODEL_DIR or checkpoint, in the order of the figure",
    )
    p.add_argument("--questions", required=True, metavar="FILE", help="of `ckl data questions`")
    p.add_argument(
        "--tune", default=None, metavar="FILE", help="questions of another time, for the form"
    )
    p.add_argument("--out", default="runs/asked", help="folder of answers, table and figure")
    p.add_argument("--epochs", type=int, default=5, help="passes over --tune")
    p.add_argument("--learning-rate", type=float, default=1e-4, help="of Adam")
    p.add_argument("--batch-size", type=int, default=32, help="questions at once")
    p.add_argument("--length", type=int, default=512, help="pieces of question and answer")
    p.add_argument("--seed", type=int, default=0, help="of the order of --tune")


def ask(args: argparse.Namespace) -> None:
    from ckl_jax.cli.drift_commands import named
    from ckl_jax.papers.mind_the_gap import office_holder_qa

    settings = office_holder_qa.Settings(
        epochs=args.epochs,
        learning_rate=args.learning_rate,
        batch_size=args.batch_size,
        length=args.length,
        seed=args.seed,
    )
    print(office_holder_qa.ask(named(args.model), args.questions, args.out, args.tune, settings))
