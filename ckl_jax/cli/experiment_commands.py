"""`ckl experiment`, `ckl claims` and `ckl overlap` (docs/experiments.md)."""

import argparse
from collections.abc import Callable

from ckl_jax.cli.options import names
from ckl_jax.errors import UserError


def add(commands, command: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the commands; `command` makes one of name, summary and function."""
    _experiment(commands, command)
    _claims(commands, command)
    _overlap(commands, command)


def _experiment(commands, command) -> None:
    p = command(
        commands,
        "experiment",
        "a table of a paper by its name, ours beside the paper's",
        experiment,
    )
    p.add_argument("name", metavar="NAME", help="such as ckl/table3; 'list' lists all")
    p.add_argument("--size", default="small", help="tiny, small or full")
    p.add_argument("--source", default="simulated", help="simulated or wikidata (real facts)")
    p.add_argument(
        "--data",
        default=None,
        help="folder of the published files, for --size full; of the real facts (docs/wikidata.md)",
    )
    p.add_argument("--out", default=None, help="folder (runs/experiments-SIZE)")
    p.add_argument("--seed", type=int, default=0, help="of world, parameters and data order")
    p.add_argument("--methods", default="all", help="comma-separated names")
    p.add_argument(
        "--tuning-seeds",
        type=int,
        default=None,
        help="light-tunings of each GPT-2 that are averaged (5; 2 at --size tiny)",
    )
    p.add_argument(
        "--keep-light-tuned",
        action="store_true",
        help="keep the light-tuned GPT-2s too, and not their scores alone",
    )
    p.add_argument("--jobs", type=int, default=0, help="trainings at once; 0: one for each core")
    p.add_argument(
        "--gin", action="append", default=[], metavar="NAME=VALUE", help="gin binding for all runs"
    )


def experiment(args: argparse.Namespace) -> None:
    from ckl_jax.papers.ckl import experiments as job

    if args.name == "list":
        for name, found in job.EXPERIMENTS.items():
            print(f"{name:12} {found.title}")
        return
    experiment = job.find(args.name)
    if args.tuning_seeds is not None and not any(s.tunings for s in experiment.scenarios):
        raise UserError(f"--tuning-seeds is of GPT-2, which {args.name} has none of; leave it out.")
    methods = names(args.methods)
    if not methods:
        raise UserError("--methods names none; give some of them, or leave it out.")
    job.run(
        args.name,
        job.Running(
            out=args.out or f"runs/experiments-{args.size}",
            size=args.size,
            data=args.data,
            seed=args.seed,
            methods=() if methods == ("all",) else methods,
            jobs=args.jobs,
            bindings=tuple(args.gin),
            tuning_seeds=(2 if args.size == "tiny" else 5)
            if args.tuning_seeds is None
            else args.tuning_seeds,
            source=args.source,
            keep_light_tuned=args.keep_light_tuned,
        ),
    )


def _claims(commands, command) -> None:
    p = command(
        commands, "claims", "which claims of CKL's paper hold in experiments of one's own", claims
    )
    p.add_argument("folders", nargs="+", metavar="FOLDER", help="of `experiment`, one of each seed")
    p.add_argument("--out", default=None, help="folder of claims.md (the first FOLDER)")


def claims(args: argparse.Namespace) -> None:
    from ckl_jax.papers.ckl.analysis import claims as analysis

    print(analysis.write(args.folders, args.out or args.folders[0]))


def _overlap(commands, command) -> None:
    p = command(
        commands, "overlap", "how often CKL's corpora name the answers of its probes", overlap
    )
    p.add_argument("folder", metavar="FOLDER", help="in CKL's published layout")
    p.add_argument(
        "--corpora", default="d0_small,d1", help="comma-separated names, such as d0,d1,p1,p2"
    )
    p.add_argument(
        "--probes",
        default="invariant_lama,updated_lama,new_lama,new_lama_easy",
        help="comma-separated names",
    )


def overlap(args: argparse.Namespace) -> None:
    import functools
    from pathlib import Path

    from ckl_jax import checks
    from ckl_jax.analysis.mentions import corpus_texts
    from ckl_jax.analysis.render_table import print_cells
    from ckl_jax.data.ckl_files import CORPORA, PROBES, read_probe
    from ckl_jax.papers.ckl.analysis import answer_analysis

    corpora, probes = names(args.corpora), names(args.probes)
    checks.require_names(CORPORA, **{"--corpora": corpora})
    checks.require_names(PROBES, **{"--probes": probes})
    answers = {p: [item.answers for item in read_probe(p, args.folder)] for p in probes}
    texts = {c: functools.partial(corpus_texts, Path(args.folder) / CORPORA[c]) for c in corpora}
    section = answer_analysis.named(answer_analysis.mentions_of(answers, texts))
    print_cells(section.headers, section.rows)
    print(*section.notes, sep="\n")
