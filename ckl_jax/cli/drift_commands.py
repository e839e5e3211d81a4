"""`ckl drift` (docs/drift.md)."""

import argparse
from collections.abc import Callable

from ckl_jax.errors import UserError


def add(commands, command: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the command; `command` makes one of name, summary and function."""
    p = command(
        commands, "drift", "how fast a model goes stale, out of dumps of word losses", drift
    )
    p.add_argument("--control", required=True, metavar="DUMP", help="of the control model")
    p.add_argument(
        "--model",
        action="append",
        required=True,
        metavar="NAME=DUMP",
        help="the stale model first, then its updates, or others",
    )
    p.add_argument("--train", default=None, metavar="FILE", help="the stale model's training text")
    p.add_argument("--out", default="runs/drift", help="folder of the report")
    p.add_argument(
        "--tagger", default="heuristic", help="heuristic, textblob, spacy[:PIPELINE], nltk or none"
    )
    p.add_argument("--topics", type=int, default=0, help="topics learned from --train; 0: none")
    p.add_argument("--topic-assignment", default="hard", help="hard or soft")
    p.add_argument("--emerging-least", type=int, default=50, help="mentions in the test documents")
    p.add_argument(
        "--emerging-factor", type=float, default=5.0, help="how much rarer in training at least"
    )
    p.add_argument("--bin-months", type=int, default=1, help="of a point of the curves; 12: years")
    p.add_argument("--first-month", default="", help="YYYY-MM that the first begins with")
    p.add_argument("--week-least", type=int, default=5, help="documents of a week on its curve")
    p.add_argument("--bootstrap", type=int, default=1000, help="samples")
    p.add_argument("--seed", type=int, default=0, help="of bootstrap and topics")


def drift(args: argparse.Namespace) -> None:
    from ckl_jax.papers.mind_the_gap.analysis.report import write_report
    from ckl_jax.papers.mind_the_gap.analysis.staleness_study import DriftStudy

    study = DriftStudy(
        control=args.control,
        models=named(args.model),
        train=args.train,
        tagger="" if args.tagger == "none" else args.tagger,
        topics=args.topics,
        topic_assignment=args.topic_assignment,
        emerging_least=args.emerging_least,
        emerging_factor=args.emerging_factor,
        bin_months=args.bin_months,
        first_month=args.first_month,
        week_least=args.week_least,
        samples=args.bootstrap,
        seed=args.seed,
    )
    print(write_report(study, args.out))


def named(given: list[str]) -> dict[str, str]:
    """{name: folder} of NAME=FOLDER."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, folder = text.partition("=")
        if not (equals and name and folder) or name in found:
            raise UserError(f"--model {text!r}: give each as NAME=FOLDER, with a name of its own.")
        found[name] = folder
    return found
