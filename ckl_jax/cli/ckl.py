"""The `ckl` command: everything that is not a gin job. Help and errors import nothing heavy."""

import argparse
import contextlib
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
    dated_commands,
    drift_commands,
    dump_commands,
    experiment_commands,
    gap_commands,
    temporalwiki_commands,
)
from ckl_jax.cli.progress_line import ProgressLine
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
    adders = (
        _demo, _world, _data, _probe, _stream, _report, _ledger, _proper_nouns, _import_hf,
        _import_haiku, _export_hf, _import_peft, _export_peft, _average,
    )  # fmt: skip
    for add in adders:
        add(commands)
    temporalwiki_commands.add(commands, _command)
    drift_commands.add(commands, _command)
    gap_commands.add(commands, _command)
    experiment_commands.add(commands, _command)
    return parser


def _command(commands, name: str, summary: str, run) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name, help=summary, description=summary,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )  # fmt: skip
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
    from ckl_jax.jobs import demo as job

    methods = _names(args.methods)
    methods = job.METHODS if methods == ("all",) else methods
    out = args.out or ("runs/demo" if args.source == "simulated" else f"runs/demo-{args.source}")
    facts = str(Path(args.data).absolute()) if args.data else None
    job.run(
        job.Demo(out, args.source, args.seed, args.size, facts, methods, args.jobs, args.gin)
    )


def _names(text: str) -> tuple[str, ...]:
    """Comma-separated names, each once, without the blanks around them."""
    return tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))


def _world(commands) -> None:
    p = _command(commands, "world", "write a simulated world in CKL's file formats", world)
    p.add_argument("--out", required=True, help="folder to write")
    p.add_argument("--seed", type=int, default=0, help="of everything in it")
    p.add_argument("--size", default="small", help="tiny, small, medium or large")
    p.add_argument("--source", default="simulated", help="simulated or wikidata (real facts)")
    p.add_argument("--data", default=None, help="folder of the real facts (docs/wikidata.md)")


def world(args: argparse.Namespace) -> None:
    from ckl_jax.world.ckl import build_world

    manifest = build_world(
        args.out, args.seed, args.size, source=args.source, data_dir=args.data
    )
    for name, rows in manifest["counts"].items():
        print(f"{rows:8,}  {name}")


def _data(commands) -> None:
    data = commands.add_parser("data", help="make data sets")
    kinds = data.add_subparsers(metavar="KIND", required=True, parser_class=_Parser)
    p = _command(kinds, "prepare", "cached tasks out of a folder in CKL's layout", prepare)
    p.add_argument("--dir", required=True, help="folder with recent_news_full.csv and so on")
    p.add_argument("--out", required=True, help="folder for the vocabulary and the tasks")
    p.add_argument(
        "--vocabulary", default=None,
        help="SentencePiece model, which gets 100 sentinels if it has none; none: train one",
    )  # fmt: skip
    p.add_argument("--vocab-size", type=int, default=32000, help="pieces of a trained vocabulary")
    p.add_argument("--input-length", type=int, default=350, help="tokens kept of an input")
    p.add_argument("--target-length", type=int, default=350, help="tokens kept of a target")
    p.add_argument(
        "--replace", action="store_true", help="make anew what --out holds of other settings"
    )
    _rows(kinds)
    _quiz(kinds)
    _kilt(kinds)
    dump_commands.add(kinds, _command)
    dated_commands.add(kinds, _command)
    benchmark_commands.add(kinds, _command)


def prepare(args: argparse.Namespace) -> None:
    from ckl_jax import checks
    from ckl_jax.data.ckl_files import CORPORA
    from ckl_jax.data.prepare import prepare_ckl

    checks.require_int(5, **{"--vocab-size": args.vocab_size})
    for name in ("input", "target"):  # the end of sequence takes one token
        checks.require_int(2, **{f"--{name}-length": getattr(args, f"{name}_length")})
    lengths = {"inputs": args.input_length, "targets": args.target_length}
    prepared = prepare_ckl(
        args.dir, args.out, args.vocab_size, lengths, vocabulary=args.vocabulary,
        replace=args.replace,
        progress=lambda task, rows: print(f"\r{task}: {rows:,} rows ", end="", flush=True),
    )  # fmt: skip
    print()
    for name, folder in prepared.tasks.items():
        print(f"{len(prepared.open(name)):10,}  {folder}")
    if absent := [f"{n} ({file})" for n, file in CORPORA.items() if n not in prepared.tasks]:
        print(f"not there, and so no task: {', '.join(absent)}")


def _rows(kinds) -> None:
    p = _command(kinds, "rows", "rows of running text for GPT-2 or BERT", rows)
    p.add_argument(
        "--documents", required=True, action="append", metavar="FILE",
        help="JSONL(.gz) with date, title, text; its name is the task's; may be repeated",
    )  # fmt: skip
    p.add_argument("--out", required=True, help="folder for the tasks")
    p.add_argument(
        "--vocabulary", required=True, help="GPT-2's or BERT's folder, or SentencePiece"
    )
    p.add_argument("--length", type=int, default=512, help="tokens of a row at most")
    p.add_argument("--pack", action="store_true", help="several short documents in a row")
    p.add_argument(
        "--legacy", action="store_true",
        help="leave out the last row of long documents, as TemporalWiki's code did",
    )  # fmt: skip
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
        sources, args.out, open_vocabulary(args.vocabulary), args.length, packed=args.pack,
        legacy=args.legacy, replace=args.replace,
        progress=lambda task, done: print(f"\r{task}: {done:,} rows ", end="", flush=True),
    )  # fmt: skip
    for folder in made.values():
        print(f"{len(CachedTask.open(folder)):10,}  {folder}")


def _quiz(kinds) -> None:
    p = _command(kinds, "quiz", "a relational dataset like BEAR, of a world's facts", quiz)
    p.add_argument("--out", required=True, help="folder of the dataset")
    p.add_argument("--seed", type=int, default=0, help="of the simulated world")
    p.add_argument("--size", default="small", help="tiny, small, medium or large")
    p.add_argument("--source", default="simulated", help="simulated or wikidata (real facts)")
    p.add_argument("--data", default=None, help="folder of the real facts (docs/wikidata.md)")
    p.add_argument("--date", default=None, help="ISO date of the facts; none: before the news")
    p.add_argument("--templates", type=int, default=3, help="phrasings of a relation at most")
    p.add_argument("--instances", type=int, default=None, help="facts of a relation at most")


def quiz(args: argparse.Namespace) -> None:
    from ckl_jax.world.ckl import open_world
    from ckl_jax.world.quiz import write_quiz

    world = open_world(args.source, args.seed, args.size, args.data)
    counts = write_quiz(world, args.out, args.date, args.templates, args.instances)
    for code, facts in counts.items():
        print(f"{facts:8,}  {code}")


def _kilt(kinds) -> None:
    p = _command(kinds, "kilt", "KILT's data sets, of a world's facts", kilt)
    p.add_argument("--out", required=True, help="folder of the files")
    p.add_argument("--seed", type=int, default=0, help="of the simulated world")
    p.add_argument("--size", default="small", help="tiny, small, medium or large")
    p.add_argument("--source", default="simulated", help="simulated or wikidata (real facts)")
    p.add_argument("--data", default=None, help="folder of the real facts (docs/wikidata.md)")


def kilt(args: argparse.Namespace) -> None:
    from ckl_jax.world.ckl import open_world
    from ckl_jax.world.kilt import write_kilt

    world = open_world(args.source, args.seed, args.size, args.data)
    for name, records in write_kilt(world, args.out).items():
        print(f"{records:8,}  {Path(args.out) / name}")


def _probe(commands) -> None:
    probes = commands.add_parser("probe", help="put a probe to a model")
    kinds = probes.add_subparsers(metavar="PROBE", required=True, parser_class=_Parser)
    p = _command(kinds, "bear", "rank the answers of a relational dataset (LM-PUB-QUIZ)", bear)
    p.add_argument("--model", required=True, help="Hugging Face folder, MODEL_DIR or checkpoint")
    p.add_argument("--dataset", default="BEAR", help="folder of BEAR, or of one in its layout")
    p.add_argument("--out", default=None, help="folder of the results (MODEL/bear/DATASET)")
    p.add_argument("--templates", default="all", help="numbers from 0, such as 0 or 0,2, or all")
    p.add_argument("--relations", type=_names, default=(), help="such as P36,P30; default all")
    p.add_argument("--relation-info", default=None, help="JSON of domains by relation")
    p.add_argument("--reduction", default="sum", help="sum, mean, or none for token scores")
    p.add_argument("--conditional", action="store_true", help="score from the answer's start on")
    p.add_argument("--no-bos", action="store_true", help="as GPT-2's published scores, without BOS")
    p.add_argument("--target", default="answer", help="what a T5 is scored on: answer or statement")
    p.add_argument(
        "--pll-metric", default="within_word_l2r",
        help="what a BERT has hidden with a token: within_word_l2r, original, sentence_l2r or "
        "answer_l2r+word_l2r",
    )  # fmt: skip
    p.add_argument(
        "--subjects", type=_names, default=None,
        help="generic subjects in place of the real ones, such as it,the place: biases alone",
    )  # fmt: skip
    p.add_argument("--dtype", default=None, help="bfloat16 or float32, of activations")
    p.add_argument("--subsample", type=int, default=None, help="instances of each relation")
    p.add_argument("--batch-size", type=int, default=None, help="rows of the model at once")
    p.add_argument(
        "--gin", action="append", default=[], metavar="NAME=VALUE",
        help="binding over the run's, such as DATA_DIR=\"'elsewhere'\"",
    )  # fmt: skip

    p = _command(kinds, "compare", "figures of several models' ranking results", compare)
    p.add_argument("results", nargs="+", help="folders of results, as NAME=FOLDER or FOLDER")
    p.add_argument("--out", required=True, help="folder of the figures")
    p.add_argument("--bias", type=_names, default=(), help="relations whose biases to draw: P30")
    p.add_argument("--relation-info", default=None, help="JSON of domains by relation")


def _stream(commands) -> None:
    summary = "a BERT on a stream of dated text, ranked and filled in after each part"
    p = _command(commands, "stream", summary, stream)
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
    from ckl_jax.jobs import stream as job

    job.run(job.Stream(
        args.out, args.size, args.seed, args.documents, args.model, args.dataset,
        args.experiences, args.epochs, args.initial_epochs, args.gin,
    ))  # fmt: skip


def compare(args: argparse.Namespace) -> None:
    from ckl_jax.analysis.ranking_report import changes, draw

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
    from ckl_jax.analysis import ranking_report as report
    from ckl_jax.data.relational import Dataset
    from ckl_jax.files import write_json, write_jsonl
    from ckl_jax.jobs import ranking

    dataset = Dataset.from_path(args.dataset, args.relation_info, args.relations)
    checks.require_choice(("sum", "mean", "none"), **{"--reduction": args.reduction})
    if args.subjects == ():
        raise UserError("--subjects names none; give some, such as it,the place.")
    if args.subjects:
        dataset = dataset.about(args.subjects)
    out = args.out or str(Path(args.model) / "bear" / dataset.name)
    settings = ranking.Settings(
        out, _numbers(args.templates), None if args.reduction == "none" else args.reduction,
        args.conditional, False if args.no_bos else None, args.subsample,
        args.target, args.pll_metric, args.batch_size, args.dtype, tuple(args.gin),
    )  # fmt: skip
    with ProgressLine() as line:
        def show(code: str, done: int, whole: int) -> None:
            line(done + 1, whole, f"relations: {code}")

        results = ranking.probe(args.model, dataset, settings, show)
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


def _report(commands) -> None:
    p = _command(commands, "report", "table, curves and changes of runs", report)
    p.add_argument(
        "runs", nargs="+", help="MODEL_DIRs, Initial first; or folders of `demo`, `temporalwiki`"
    )
    p.add_argument("--out", default=None, help="folder of report.html (the first run's parent)")
    p.add_argument(
        "--seeds", action="store_true",
        help="RUNS are folders of `demo`, `mind-the-gap` or `experiment` that differ by seed: mean "
        "and range",
    )  # fmt: skip
    p.add_argument(
        "--acquired", default="", metavar="PROBES",
        help="comma-separated probes that FUAR takes for new knowledge",
    )  # fmt: skip


def report(args: argparse.Namespace) -> None:
    from ckl_jax.analysis.report import find_runs, write_report

    acquired = _names(args.acquired)
    if args.seeds:
        from ckl_jax.analysis.seeds import compare_seeds

        out = Path(args.out) if args.out else Path(args.runs[0]).parent
        print(compare_seeds(args.runs, out, acquired=acquired))
        return
    if len(args.runs) == 1 and (Path(args.runs[0]) / "temporalwiki.json").is_file():
        from ckl_jax.analysis import temporalwiki_report

        print(temporalwiki_report.write_report(args.runs[0], args.out))
        return
    runs = find_runs(args.runs)
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
        commands, "proper-nouns", "how likely words of running text are (TemporalWiki, Figure 2)",
        proper_nouns,
    )  # fmt: skip
    p.add_argument("runs", nargs="+", metavar="RUN", help="MODEL_DIRs with PROPER_NOUN_TASKS")
    p.add_argument("--initial", required=True, help="MODEL_DIR of the Initial model")
    p.add_argument("--formula", default="token_micro", help="or batch_mean_legacy")
    p.add_argument("--out", default=None, help="folder for proper_nouns.json and .png")


def proper_nouns(args: argparse.Namespace) -> None:
    from ckl_jax.analysis import text_report

    table = text_report.compare(args.runs, args.initial, args.formula)
    print(text_report.as_text(table))
    if args.out:
        text_report.write(table, args.out)


def _import_hf(commands) -> None:
    p = _command(commands, "import-hf", "a Hugging Face model as a checkpoint", import_hf)
    p.add_argument("--model", required=True, help="folder with config.json and safetensors")
    p.add_argument("--out", required=True, help="MODEL_DIR to write")
    p.add_argument("--vocab-size", type=int, default=None, help="grow the embedding to so many")
    p.add_argument(
        "--legacy-tokens", action="store_true",
        help="add the five tokens that TemporalWiki's code added to GPT-2",
    )  # fmt: skip


def import_hf(args: argparse.Namespace) -> None:
    from ckl_jax.jobs.hugging_face import import_checkpoint

    print(import_checkpoint(args.model, args.out, args.vocab_size, args.legacy_tokens))


def _import_haiku(commands) -> None:
    p = _command(
        commands, "import-haiku", "a Haiku Transformer-XL as a checkpoint", import_haiku
    )
    p.add_argument("--weights", required=True, help=".npz or .safetensors of module/param")
    p.add_argument("--heads", required=True, type=int, help="heads of a layer")
    p.add_argument("--out", required=True, help="MODEL_DIR to write")


def import_haiku(args: argparse.Namespace) -> None:
    from ckl_jax.jobs import haiku

    print(haiku.import_haiku(args.weights, args.heads, args.out))


def _export_hf(commands) -> None:
    p = _command(commands, "export-hf", "a checkpoint as a Hugging Face model", export_hf)
    p.add_argument("--model", required=True, help="MODEL_DIR or checkpoint_<step>")
    p.add_argument("--like", required=True, help="config.json of the Hugging Face model")
    p.add_argument("--out", required=True, help="folder to write")


def export_hf(args: argparse.Namespace) -> None:
    from ckl_jax.jobs.hugging_face import export_checkpoint

    print(export_checkpoint(args.model, args.like, args.out))


def _import_peft(commands) -> None:
    p = _command(commands, "import-peft", "a PEFT LoRA adapter as a checkpoint", import_peft)
    p.add_argument("--adapter", required=True, help="folder that PEFT's save_pretrained wrote")
    p.add_argument("--model", required=True, help="the base: MODEL_DIR or checkpoint_<step>")
    p.add_argument("--like", required=True, help="config.json of the base")
    p.add_argument("--out", required=True, help="MODEL_DIR to write")


def import_peft(args: argparse.Namespace) -> None:
    from ckl_jax.jobs import peft

    print(peft.import_peft(args.adapter, args.model, args.like, args.out))


def _export_peft(commands) -> None:
    p = _command(commands, "export-peft", "a LoRA run as an adapter of PEFT", export_peft)
    p.add_argument("--model", required=True, help="MODEL_DIR or checkpoint_<step>")
    p.add_argument("--like", required=True, help="config.json of the base")
    p.add_argument("--out", required=True, help="folder to write; the base goes to its base/")
    p.add_argument("--scale", type=float, default=None, help="of the adapters, if not recorded")


def export_peft(args: argparse.Namespace) -> None:
    from ckl_jax.jobs import peft

    print(peft.export_peft(args.model, args.like, args.out, args.scale))


def _average(commands) -> None:
    p = _command(commands, "average", "a model between models (WiSE-FT)", average)
    p.add_argument("models", nargs="+", metavar="MODEL", help="MODEL_DIR or checkpoint_<step>")
    p.add_argument(
        "--weights", nargs="+", type=float, default=None, metavar="W",
        help="of each model, summing to 1; none: all alike",
    )  # fmt: skip
    p.add_argument("--out", required=True, help="MODEL_DIR to write")


def average(args: argparse.Namespace) -> None:
    from ckl_jax.jobs.average import average as job

    weights = args.weights or [1.0 / len(args.models)] * len(args.models)
    print(job(args.models, weights, args.out))


if __name__ == "__main__":
    sys.exit(main())
