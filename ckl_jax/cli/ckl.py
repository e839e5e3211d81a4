"""The `ckl` command: everything that is not a gin job. Help and errors import nothing heavy."""

import argparse
import contextlib
import functools
import os
import re
import signal
import sys
import threading
import types
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import ckl_jax
from ckl_jax.cli import (
    benchmark_commands,
    checkpoint_commands,
    dated_commands,
    drift_commands,
    dump_commands,
    experiment_commands,
    gap_commands,
    prepare_commands,
    ranking_commands,
    temporalwiki_commands,
    world_commands,
)
from ckl_jax.cli.options import names
from ckl_jax.errors import UserError, nearest

_STOPS = (signal.SIGINT, signal.SIGTERM)
_FINALIZERS = ("__del__", "_xla_gc_callback")  # the second is JAX's, at every garbage collection
_SHORTLY = 0.01  # seconds
_CHOICE = re.compile(r": invalid choice: '(.*?)' \(choose from (.*)\)")  # in argparse's words


class _Parser(argparse.ArgumentParser):
    """Raises `UserError` in place of exiting, so that all errors look alike."""

    def error(self, message: str) -> None:
        choice = _CHOICE.search(message)
        hint = nearest(choice[1], re.findall(r"[\w-]+", choice[2])) if choice else ""
        raise UserError(f"{message}; see '{self.prog} --help'.{hint}")

    def parse_known_args(self, args=None, namespace=None):
        """As argparse, but the parser of a command names the flags that it does not know itself."""
        namespace, unknown = super().parse_known_args(args, namespace)
        if unknown:
            flag = unknown[0].partition("=")[0]
            hint = nearest(flag, self._option_string_actions) if flag.startswith("-") else ""
            raise UserError(
                f"unrecognized arguments: {' '.join(unknown)}; see '{self.prog} --help'.{hint}"
            )
        return namespace, unknown


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns the exit code: 0, 2 for a user's error, 130 or 143 if stopped.

    130 is for Ctrl-C, 143 for SIGTERM. A command that decides something (`ckl promote`) returns 1
    where the answer is no.
    """
    warnings.formatwarning = lambda message, *place, **more: f"ckl: {message}\n"
    try:
        args = _parser().parse_args(sys.argv[1:] if argv is None else argv)
        with _terminable():
            code = args.run(args) or 0
        sys.stdout.flush()
        return code
    except UserError as e:
        print(f"ckl: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as e:
        print("ckl: interrupted; start it again to go on", file=sys.stderr)
        return 143 if isinstance(e, _Terminated) else 130
    except BrokenPipeError:  # whoever read the output has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


class _Terminated(KeyboardInterrupt):
    """SIGTERM came."""


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """A `with` block in which SIGTERM ends the command as Ctrl-C does, with what it started."""

    def stop(number: int, frame: types.FrameType | None) -> None:
        if _is_finalizing(frame):  # Python would print what is raised there, and go on
            threading.Timer(_SHORTLY, os.kill, (os.getpid(), number)).start()
            return
        raise _Terminated if number == signal.SIGTERM else KeyboardInterrupt

    try:
        before = {number: signal.signal(number, stop) for number in _STOPS}
    except ValueError:  # not the main thread: the host program handles signals
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_finalizing(frame: types.FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name in _FINALIZERS:
            return True
        frame = frame.f_back
    return False


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="ckl", description="Update a language model; see what it kept and lost.")
    parser.add_argument("--version", action="version", version=f"ckl_jax {ckl_jax.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    _demo(commands)
    world_commands.add(commands, _command)
    _data(commands)
    ranking_commands.add(commands, _command)
    for add in (_report, _ledger, _proper_nouns):
        add(commands)
    checkpoint_commands.add(commands, _command)
    temporalwiki_commands.add(commands, _command)
    drift_commands.add(commands, _command)
    gap_commands.add(commands, _command)
    experiment_commands.add(commands, _command)
    return parser


def _command(commands, name: str, summary: str, run) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=summary,
        description=summary,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def _demo(commands) -> None:
    p = _command(commands, "demo", "run CKL's main experiment at a small size, to a report", demo)
    p.add_argument("--out", default=None, help="folder of everything (runs/demo[-SOURCE])")
    p.add_argument("--source", default="simulated", help="simulated or wikidata (real facts)")
    p.add_argument("--data", default=None, help="folder of the real facts (docs/wikidata.md)")
    p.add_argument("--seed", type=int, default=0, help="of world, parameters and data order")
    p.add_argument("--size", default="small", help="of the world: tiny, small, medium or large")
    p.add_argument("--methods", default="all", help="comma-separated names (docs/methods)")
    p.add_argument("--jobs", type=int, default=0, help="trainings at once; 0: one for each core")
    p.add_argument(
        "--gin", action="append", default=[], metavar="NAME=VALUE", help="gin binding for all runs"
    )


def demo(args: argparse.Namespace) -> None:
    from ckl_jax.papers.ckl import demo as job

    methods = names(args.methods)
    methods = job.METHODS if methods == ("all",) else methods
    out = args.out or ("runs/demo" if args.source == "simulated" else f"runs/demo-{args.source}")
    facts = str(Path(args.data).absolute()) if args.data else None
    job.run(
        job.Demo(
            out=out,
            source=args.source,
            seed=args.seed,
            size=args.size,
            data=facts,
            methods=methods,
            jobs=args.jobs,
            bindings=args.gin,
        )
    )


def _data(commands) -> None:
    data = commands.add_parser("data", help="make data sets")
    kinds = data.add_subparsers(metavar="KIND", required=True, parser_class=_Parser)
    prepare_commands.add(kinds, _command)
    world_commands.add_data(kinds, _command)
    dump_commands.add(kinds, _command)
    dated_commands.add(kinds, _command)
    benchmark_commands.add(kinds, _command)


def _report(commands) -> None:
    p = _command(commands, "report", "table, curves and changes of runs", report)
    p.add_argument(
        "runs", nargs="+", help="MODEL_DIRs, Initial first; or folders of `demo`, `temporalwiki`"
    )
    p.add_argument("--out", default=None, help="folder of report.html (the first run's parent)")
    p.add_argument(
        "--seeds",
        action="store_true",
        help="RUNS are folders of `demo`, `mind-the-gap` or `experiment` that differ by seed: mean "
        "and range",
    )
    p.add_argument(
        "--acquired",
        default="",
        metavar="PROBES",
        help="comma-separated probes that FUAR takes for new knowledge",
    )


def report(args: argparse.Namespace) -> None:
    from ckl_jax.analysis.report import find_runs, is_run, write_report
    from ckl_jax.papers.ckl.analysis import experiment_seeds
    from ckl_jax.papers.ckl.analysis.experiment_tables import is_experiment
    from ckl_jax.papers.mind_the_gap.analysis import seeds as mind_the_gap
    from ckl_jax.papers.temporalwiki.analysis import report as temporalwiki
    from ckl_jax.papers.temporalwiki.analysis.results import RECORD

    acquired, folders = names(args.acquired), [Path(run) for run in args.runs]
    if args.seeds:
        from ckl_jax.analysis.seeds import check_folders, compare_seeds, of_demos

        out = Path(args.out) if args.out else folders[0].parent
        if any(map(is_experiment, folders)):
            check_folders(folders)
            print(experiment_seeds.write(folders, out)[-1])
        elif any(map(mind_the_gap.is_study, folders)):
            print(compare_seeds(folders, out, mind_the_gap.summarize))
        else:
            print(compare_seeds(folders, out, functools.partial(of_demos, acquired=acquired)))
        return
    for folder in folders:
        if mind_the_gap.is_study(folder):
            raise UserError(
                f"{folder} is of `ckl mind-the-gap`, whose report is {folder / 'report.html'}; "
                "several such folders are compared by --seeds."
            )
        if is_experiment(folder):
            parts = sorted({str(run.parent) for run in folder.glob("*/*") if is_run(run)})
            raise UserError(
                f"{folder} is of `ckl experiment`; give a scenario of it: {', '.join(parts)}."
            )
    if len(folders) == 1 and (folders[0] / RECORD).is_file():
        print(temporalwiki.write_report(args.runs[0], args.out))
        return
    runs = find_runs(folders)
    out = Path(args.out) if args.out else runs[0].parent
    print(write_report(runs, out, acquired=acquired))


def _ledger(commands) -> None:
    p = _command(commands, "ledger", "what became of each fact in a run", ledger)
    p.add_argument("run_dir", metavar="RUN", help="a MODEL_DIR with probe rows")
    p.add_argument("--initial", default=None, help="MODEL_DIR of the Initial model")
    p.add_argument("--diff", default=None, metavar="RUN2", help="compare with another run")
    p.add_argument("--state", default=None, help="list the facts of one state only")
    p.add_argument("--limit", type=int, default=20, help="facts listed")


def ledger(args: argparse.Namespace) -> None:
    from ckl_jax.analysis import ledger as facts

    print(
        facts.describe(
            args.run_dir, initial=args.initial, diff=args.diff, state=args.state, limit=args.limit
        )
    )


def _proper_nouns(commands) -> None:
    p = _command(
        commands,
        "proper-nouns",
        "how likely words of running text are (TemporalWiki, Figure 2)",
        proper_nouns,
    )
    p.add_argument("runs", nargs="+", metavar="RUN", help="MODEL_DIRs with PROPER_NOUN_TASKS")
    p.add_argument("--initial", required=True, help="MODEL_DIR of the Initial model")
    p.add_argument("--formula", default="token_micro", help="or batch_mean_legacy")
    p.add_argument("--out", default=None, help="folder for proper_nouns.json and .png")


def proper_nouns(args: argparse.Namespace) -> None:
    from ckl_jax.papers.temporalwiki.analysis import text_report

    table = text_report.compare(args.runs, args.initial, args.formula)
    print(text_report.as_text(table))
    if args.out:
        text_report.write(table, args.out)


if __name__ == "__main__":
    sys.exit(main())
