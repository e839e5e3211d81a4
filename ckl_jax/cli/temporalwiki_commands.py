"""`ckl temporalwiki` and `ckl promote` (docs/temporalwiki.md)."""

import argparse
from collections.abc import Callable

from ckl_jax.cli.options import names
from ckl_jax.cli.progress_line import ProgressLine

_RETURNS = "Exit code 1: an update should not ship; 2: bad input."


def add(commands, command: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the commands; `command` makes one of name, summary and function."""
    _temporalwiki(commands, command)
    _promote(commands, command)


def _temporalwiki(commands, command) -> None:
    p = command(
        commands,
        "temporalwiki",
        "update a GPT-2 dump by dump; see what it learned and forgot",
        temporalwiki,
    )
    p.epilog = _RETURNS
    p.add_argument(
        "--snapshots",
        nargs="+",
        default=[],
        metavar="PLACE",
        help="in order: folders with a Wikipedia and a Wikidata dump, or FOLDER/YYYYMMDD; none: "
        "the simulated world's",
    )
    p.add_argument("--out", default="runs/temporalwiki", help="folder of everything")
    p.add_argument("--methods", default="all", help="comma-separated names of gin files")
    p.add_argument("--size", default="small", help="of a new model: tiny or small")
    p.add_argument("--seed", type=int, default=0, help="of world, probes, parameters, data order")
    p.add_argument("--months", type=int, default=4, help="dumps of the simulated world")
    p.add_argument(
        "--model", default=None, help="folder of import-hf to start from; none: a new one"
    )
    p.add_argument(
        "--initial-epochs",
        type=int,
        default=None,
        help="passes over the first snapshot (4 with --model); 0 takes --model as it is",
    )
    p.add_argument(
        "--unchanged-share",
        type=float,
        default=None,
        help="share of unchanged facts drawn (0.001; 1 of the simulated world)",
    )
    p.add_argument(
        "--light-tuning",
        type=int,
        default=0,
        metavar="FACTS",
        help="tune each model on so many facts of each class and ask it again (500 in the paper)",
    )
    p.add_argument(
        "--proper-nouns",
        type=int,
        default=0,
        metavar="ROWS",
        help="what proper nouns cost in so many rows of new and of old text (10000 in the paper)",
    )
    p.add_argument("--jobs", type=int, default=0, help="processes at once; 0: one for each core")
    p.add_argument(
        "--gin", action="append", default=[], metavar="NAME=VALUE", help="gin binding for all runs"
    )
    p.add_argument(
        "--promote-if",
        default=None,
        metavar="CONDITION",
        help="such as 'unchanged <= 1.05 and changed < 1.0': new perplexity over the last model's",
    )
    p.add_argument("--dry-run", action="store_true", help="say what would be done")


def temporalwiki(args: argparse.Namespace) -> int:
    from ckl_jax.papers.temporalwiki import study as job
    from ckl_jax.papers.temporalwiki.analysis import promotion
    from ckl_jax.papers.temporalwiki.settings import METHODS, Updates

    condition = promotion.parse(args.promote_if) if args.promote_if is not None else None
    methods = names(args.methods)
    updates = Updates(
        out=args.out,
        snapshots=tuple(args.snapshots),
        methods=METHODS if methods == ("all",) else methods,
        size=args.size,
        seed=args.seed,
        months=args.months,
        model=args.model,
        initial_epochs=args.initial_epochs,
        unchanged_share=args.unchanged_share,
        jobs=args.jobs,
        bindings=tuple(args.gin),
        light_tuning=args.light_tuning,
        proper_nouns=args.proper_nouns,
    )
    if args.dry_run:
        for line in job.describe(updates):
            print(line)
        return 0
    with ProgressLine() as progress:
        job.run(updates, progress)
    if condition is None:
        return 0
    return _decide(promotion.compare_study(args.out, condition, updates.methods))


def _promote(commands, command) -> None:
    p = command(commands, "promote", "whether an updated model may replace the last", promote)
    p.epilog = _RETURNS
    p.add_argument("--model", required=True, help="MODEL_DIR of the updated model")
    p.add_argument("--relative-to", required=True, help="MODEL_DIR of the last model")
    p.add_argument(
        "--if",
        required=True,
        dest="condition",
        metavar="CONDITION",
        help="such as 'unchanged <= 1.05 and changed < 1.0': new perplexity over the last model's",
    )
    p.add_argument("--interval", default="", help="whose facts count; none: the last")


def promote(args: argparse.Namespace) -> int:
    from ckl_jax.papers.temporalwiki.analysis import promotion

    condition = promotion.parse(args.condition)
    verdict = promotion.compare_runs(args.model, args.relative_to, condition, args.interval)
    return _decide([verdict])


def _decide(verdicts) -> int:
    """Prints the verdicts; exit code 1 if one is against its model."""
    for verdict in verdicts:
        print(verdict.sentence())
    return 0 if all(verdict.passes for verdict in verdicts) else 1
