"""The `t5x` command: parses flags, finds the job, calls it. Help and errors import nothing heavy.

Flags, macros and gin files are those of T5X; every flag is taken in every mode.
"""

import argparse
import dataclasses
import functools
import gc
import os
import shutil
import sys
import textwrap
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

import ckl_jax
from ckl_jax.cli import endings, outputs
from ckl_jax.errors import UserError, nearest, refuse_unknown
from ckl_jax.parallel import processes


@dataclasses.dataclass(frozen=True)
class Mode:
    """A subcommand.

    Attributes:
      entry: "module:function" of the job.
      summary: one line for the help.
      macros: (name, meaning) that users often set.
      call: "module:function" to call with the job's arguments in its place; "" is the job itself.
      upstream: T5X's module for `--runner=upstream`; "" if it has no such mode.
      overrides: gin statements of macros that the mode does without, see `gin_config.run_job`.
      example: a whole command, for the help.
      t5x_entry, t5x_call: the same two for gin files that are written for T5X.
    """

    entry: str
    summary: str
    macros: tuple[tuple[str, str], ...] = ()
    call: str = ""
    upstream: str = ""
    overrides: tuple[str, ...] = ()
    example: str = ""
    t5x_entry: str | None = None
    t5x_call: str | None = None


_COMMON = (
    ("MIXTURE_OR_TASK_NAME", "'name' of the task or mixture"),
    ("TASK_FEATURE_LENGTHS", "{'inputs': 350, 'targets': 50}"),
    ("BATCH_SIZE", "rows of a batch over all devices"),
)
_TRAIN = (
    ("MODEL_DIR", "'folder' of the run: checkpoints, metrics, config"),
    ("INITIAL_CHECKPOINT_PATH", "'folder' of the weights to start from"),
    ("EPOCHS", "passes over the corpus"),
    ("TRAIN_STEPS", "last step; where given it counts instead of EPOCHS"),
    ("LEARNING_RATE", "peak; warm-up over 10 % of the steps, then linear to one half"),
    ("NUM_MICROBATCHES", "parts that a batch is computed in, to save memory"),
    ("MESH_SHAPE", "{'data': -1, 'fsdp': 1, 'model': 1}; one -1 is filled"),
    ("DROPOUT_RATE", "0.0 to 1.0"),
    ("EVAL_PERIOD", "steps between evaluations; None: every epoch"),
    ("RANDOM_SEED", "of weights, dropout and the order of the data"),
    ("CHECKPOINT_PERIOD", "steps between checkpoints; None: every epoch"),
    ("CHECKPOINTS_KEPT", "number of checkpoints to keep"),
    ("CHECKPOINT_MINUTES", "save after so many minutes without a checkpoint, until the next one"),
    ("PROBES", "None disables probing"),
    ("DATA_DIR", "'folder' of the data; the simulated world is made there"),
    ("WORLD", "'disjoint' or 'legacy', whose probes are rows of the training text"),
    ("WORLD_SIZE", "'tiny', 'small', ... of the simulated world"),
    ("WORLD_SEED", "of the simulated world"),
    ("INITIAL_DIR", "'folder' of the Initial model that is trained on it"),
)
_CHECKPOINT = (
    ("CHECKPOINT_PATH", "'folder': a MODEL_DIR or a checkpoint in it; default MODEL_DIR"),
    ("CHECKPOINT_MODE", "'latest', 'specific' or 'all'"),
)
_EVAL = (
    ("EVAL_OUTPUT_DIR", "'folder'; default MODEL_DIR/eval"),
    ("PROBE_DIR", "'folder' of the probes"),
    ("PROBE_BATCH_SIZE", "questions at once"),
)
_INFER = (
    ("INFER_INPUTS", "'name' of a probe or cached task, or a .txt or .jsonl file"),
    ("INFER_MODE", "'predict' or 'score'"),
    ("INFER_LENGTHS", "{'inputs': 50, 'targets': 10}"),
    ("INFER_BATCH_SIZE", "inputs at once"),
    ("INFER_OUTPUT_DIR", "'folder'; default MODEL_DIR/infer"),
)
_DYNAMIC = (
    ("EVAL_OUTPUT_DIR", "'folder'; default MODEL_DIR/dynamic_eval/<mask>"),
    ("MIXTURE_OR_TASK_NAME", "'folder' of a dated task ('ckl data dated')"),
    ("MASK", "'all', 'bias', 'embedding', 'none' or a list of patterns"),
    ("OPTIMIZER", "@optax.sgd, @optax.adam or @krause.rms_decay"),
    ("LEARNING_RATE", "choose one for each mask on validation text"),
    ("NUM_UPDATES", "steps on a chunk"),
    ("CHUNK_LENGTH", "tokens that are scored, then learned, at once"),
    ("MEMORY_LENGTH", "of a model with a memory; None: its own"),
    ("PAST_TASKS", "dated tasks scored at every month's end: what is forgotten"),
    ("KEEP_SNAPSHOTS", "keep the parameters of every month's end"),
    ("STATISTICS_TASK", "training task of the gradients that @krause.rms_decay needs"),
)
_NOT_NEEDED = ("MODEL_DIR = 'unused'", "TRAIN_STEPS = 1")
MODES = {
    "train": Mode(
        "ckl_jax.train.train:train",
        "train a model, resuming from the newest checkpoint in MODEL_DIR",
        (*_TRAIN, *_COMMON),
        upstream="t5x.train",
        example="t5x train --gin_file=ckl_lora.gin --gin.EPOCHS=2",
        t5x_entry="ckl_jax.t5x_api.train:train",
    ),
    "eval": Mode(
        "ckl_jax.train.eval:evaluate",
        "evaluate checkpoints of a run with the probes",
        (*_CHECKPOINT, *_EVAL),
        upstream="t5x.eval",
        example="t5x eval --gin_file=runs/ckl_lora/config.gin --gin_file=ckl_eval.gin",
        t5x_entry="ckl_jax.t5x_api.eval:evaluate",
    ),
    "infer": Mode(
        "ckl_jax.train.infer:infer",
        "write predictions or scores of many inputs to JSON lines",
        (*_CHECKPOINT, *_INFER),
        upstream="t5x.infer",
        example="t5x infer --gin_file=runs/ckl_lora/config.gin --gin_file=ckl_infer.gin "
        "--gin.INFER_INPUTS=\"'new_lama'\"",
        t5x_entry="ckl_jax.t5x_api.infer:infer",
    ),
    "dynamic_eval": Mode(
        "ckl_jax.papers.mind_the_gap.dynamic_eval.dynamic_eval:dynamic_eval",
        "score a dated text while updating the model on what it has scored",
        (*_CHECKPOINT[:1], *_DYNAMIC),
        example="t5x dynamic_eval --gin_file=runs/stratified/config.gin "
        "--gin_file=mind_the_gap_dynamic_eval.gin --gin.MIXTURE_OR_TASK_NAME=\"'tasks/test'\" "
        "--gin.MASK=\"'bias'\"",
    ),
    "precompile": Mode(
        "ckl_jax.train.train:train",
        "compile the train step; report parameters, memory, FLOPs; train nothing",
        (*_TRAIN, *_COMMON, ("COMPILE", "False stops after counting parameters")),
        call="ckl_jax.train.precompile:precompile",
        upstream="t5x.main",
        # No shape depends on them, and the first two may be costly to make.
        overrides=("VOCABULARY = None", "INITIAL_CHECKPOINT_PATH = None", *_NOT_NEEDED),
        example="t5x precompile --gin_file=ckl_modular.gin --gin_file=ckl_full.gin",
        t5x_entry="ckl_jax.t5x_api.train:train",
        t5x_call="ckl_jax.t5x_api.precompile:precompile",
    ),
}
_ABSL = ("alsologtostderr", "logtostderr", "v", "verbosity", "stderrthreshold", "log_dir")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code: 0, 2 for a user's error, 130 or 143 if stopped."""
    warnings.formatwarning = lambda message, *place, **more: f"t5x: {message}\n"
    # Tracing makes many objects and little garbage: at the usual threshold collections took 1.6 of
    # the 12 CPU seconds of a short training, at this one 0.4.
    gc.set_threshold(*map(max, gc.get_threshold(), (20_000, 20, 20)))
    return endings.run_command(
        "t5x", functools.partial(_main, sys.argv[1:] if argv is None else argv)
    )


def _main(argv: Sequence[str]) -> int:
    try:
        with endings.interruptible(*processes.stops()):
            return _run(argv)
    except UserError as e:
        if os.environ.get("CKL_JAX_TRACEBACK", "0") not in ("", "0"):
            traceback.print_exception(e)
        endings.complain(f"t5x: {e}")
        return _end(2)
    except Exception as e:
        return _end(_explain(e))


def _run(argv: Sequence[str]) -> int:
    words = [word for word in argv if word not in outputs.FLAGS]
    try:
        return outputs.show(lambda: run_words(words), *(flag in argv for flag in outputs.FLAGS))
    except KeyboardInterrupt as e:
        return _end(endings.interrupted("t5x", e))


def _explain(error: Exception) -> int:
    """Says what an error means where it is the loss of another process; else it goes on."""
    if not processes.are_several():
        raise error
    if sentence := processes.explain_loss(error):
        endings.complain(f"t5x: {sentence}")
    else:
        traceback.print_exception(error)
    return 1


def _end(code: int) -> int:
    """Returns `code`; one of several processes that failed ends with it, waiting for no other."""
    if processes.are_several():
        processes.leave(code)
    return code


def run_words(argv: list[str]) -> int | dict[str, Any]:
    """Parses and dispatches; returns the exit code, or the result; raises `UserError`."""
    command = argv.pop(0) if argv and not argv[0].startswith("-") else None
    parser = _parser(command)
    args = parser.parse_args(_rewrite(argv))
    if args.version:
        print(f"ckl_jax {ckl_jax.__version__}")
        return 0
    name = _mode_name(command, args.run_mode)
    if args.help or name is None:
        print(_help(parser, name))
        return 0 if args.help else 2
    mode = MODES[name]
    if args.runner == "upstream":
        return _run_upstream(name, mode, argv, args.dry_run)
    return _run_native(name, mode, args)


def _mode_name(command: str | None, run_mode: str | None) -> str | None:
    if command and run_mode and command != run_mode:
        raise UserError(f"`t5x {command}` and --run_mode={run_mode} name two modes; give one.")
    name = command or run_mode
    if name is not None:
        refuse_unknown(name, MODES, f"There is no mode {name!r}; the modes are")
    return name


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        if message.startswith("unrecognized arguments: "):
            raise UserError(_unknown(message.split(": ", 1)[1].split()[0], self))
        raise UserError(message.removeprefix("argument ") + "; see `t5x --help`.")


def _unknown(flag: str, parser: argparse.ArgumentParser) -> str:
    name = flag.split("=")[0]
    if not flag.startswith("-"):
        return f"{flag!r} is not a flag; a value is given as --flag=value."
    if name.lstrip("-").isupper():
        return f"Unknown flag {name}; macros are set by --gin.{name.lstrip('-')}=VALUE."
    known = [s for a in parser._actions for s in a.option_strings if a.help != argparse.SUPPRESS]
    return f"Unknown flag {name}." + (nearest(name, known) or " See `t5x --help`.")


def _switch(value: str) -> bool:
    if value.lower() in ("true", "t", "1", "yes"):
        return True
    if value.lower() in ("false", "f", "0", "no"):
        return False
    raise argparse.ArgumentTypeError(f"{value!r} is neither true nor false")


def _parser(command: str | None) -> argparse.ArgumentParser:
    shown = command if command in MODES else f"{{{','.join(MODES)}}}"
    usage = f"t5x {shown} [flags]"
    parser = _Parser(
        prog="t5x",
        usage=usage,
        add_help=False,
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=34, width=96),
    )
    add = parser.add_argument
    add("-h", "--help", action="store_true", help="show this help")
    add("--version", action="store_true", help="show the version")
    _add_list(
        parser,
        ("--gin_file",),
        "FILE",
        "parsed in order; a bare name is looked up in --gin_search_paths, here, and among the "
        "bundled files",
    )
    _add_list(
        parser,
        ("--gin_bindings",),
        "'A = 1'",
        "gin statement, parsed after all files; --gin.A=1 is the same (text: --gin.A=\"'text'\")",
    )
    _add_list(parser, ("--gin_search_paths",), "A,B", "folders of gin files")
    _add_list(
        parser,
        ("--trust_imports", "--trust-imports"),
        "A,B",
        "modules of yours that the config.gin or model.gin of a folder may import; all is any",
    )
    _add_switch(
        parser,
        "dry_run",
        "check the gin files, importing what they import, print the whole configuration, stop",
    )
    add(
        "--runner",
        choices=("native", "upstream"),
        default="native",
        help="upstream: run the same gin files under T5X itself, if it is installed",
    )
    add(
        "--profile",
        type=int,
        nargs="?",
        const=5,
        metavar="STEPS",
        help="train: write a profiler's trace of so many steps (5) to MODEL_DIR/plugins/profile",
    )
    add("--run_mode", metavar="MODE", help="the subcommand, as T5X spells it")
    add("--shard_id", type=int, metavar="N", help="infer: index of the input shard")
    add("--devices", type=int, metavar="N", help="precompile: for so many simulated CPU devices")
    add(
        "--topology",
        metavar="NAME",
        help="precompile: for TPUs or GPUs that need not be there, e.g. v4-32 (needs libtpu) or "
        "h100-8 (needs jax[cuda13])",
    )
    add("--tfds_data_dir", metavar="DIR", help="data folder of TensorFlow Datasets tasks")
    add("--seqio_additional_cache_dirs", metavar="A,B", help="more roots of cached seqio tasks")
    _add_switch(parser, "multiprocess_gpu", "several processes, each with GPUs")
    add("--coordinator_address", metavar="HOST:PORT", help="of the first process")
    add("--process_count", type=int, metavar="N", help="how many processes there are")
    add("--process_index", type=int, metavar="I", help="index of this process")
    add(
        "--initialization_timeout",
        type=int,
        metavar="SECONDS",
        help="timeout for the other processes",
    )
    for name in _ABSL:
        add(f"--{name}", nargs="?", help=argparse.SUPPRESS)
    return parser


def _add_list(
    parser: argparse.ArgumentParser, names: Sequence[str], metavar: str, text: str
) -> None:
    """Adds a flag that may be given several times."""
    parser.add_argument(*names, action="append", default=[], metavar=metavar, help=text)


def _add_switch(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    """Adds --name, --name=false and --noname, as absl has them."""
    parser.add_argument(
        f"--{name}", nargs="?", type=_switch, const=True, default=False, metavar="BOOL", help=text
    )
    parser.add_argument(f"--no{name}", dest=name, action="store_false", help=argparse.SUPPRESS)


def _rewrite(argv: list[str]) -> list[str]:
    """Turns --gin.NAME=VALUE into --gin_bindings, and --jax_x=y into JAX's environment."""
    rewritten = []
    for argument in argv:
        if argument.startswith("--gin."):
            name, equals, value = argument.removeprefix("--gin.").partition("=")
            if not equals:
                raise UserError(f"{argument} needs its value after `=`: --gin.{name}=VALUE.")
            rewritten.append(f"--gin_bindings={name} = {value}")
        elif argument.startswith("--jax_"):
            name, _, value = argument.removeprefix("--").partition("=")
            os.environ[name.upper()] = value or "true"
        else:
            rewritten.append(argument)
    return rewritten


def _help(parser: argparse.ArgumentParser, name: str | None) -> str:
    from ckl_jax.config import gin_files

    modes = "\n".join(f"  {mode:14}{MODES[mode].summary}" for mode in MODES)
    title = MODES[name].summary if name else "Train and evaluate models from gin files."
    parts = [parser.format_usage() + f"\n{title[0].upper()}{title[1:]}"]
    if name is None:
        parts.append(f"modes:\n{modes}")
    flags = parser.format_help().split("\n\n", 1)[1].replace("options:", "flags:").rstrip()
    parts.append(flags)
    macros = MODES[name or "train"].macros
    if example := MODES[name or "train"].example:
        example = _wrapped("  ", example, "      ").replace("\n", " \\\n")
        parts.append(f"for example:\n{example}")
    lines = "\n".join(_wrapped(f"  --gin.{macro + '=':26}", text) for macro, text in macros)
    stem = "T5X's files have macros of their own, named at the head of each of t5x/configs/runs/."
    parts.append(f"macros often set ({name or 'train'}):\n{lines}\n{_wrapped('  ', stem)}")
    groups: dict[str, list[str]] = {}
    for file in gin_files.bundled_files():
        folder, _, base = file.rpartition("/")
        groups.setdefault(folder, []).append(base)
    lines = "\n".join(
        f"  {folder or '.'}/\n{_wrapped('    ', '  '.join(names))}"
        for folder, names in groups.items()
    )
    parts += [f"bundled gin files ({gin_files.BUNDLED}):\n{lines or '  none'}", outputs.HELP]
    return "\n\n".join(parts)


def _wrapped(start: str, text: str, further: str = "") -> str:
    """`start` and text in lines as long as argparse's; the next begin with `further` or spaces."""
    return textwrap.fill(
        text,
        shutil.get_terminal_size().columns - 2,
        initial_indent=start,
        subsequent_indent=further or " " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _run_native(name: str, mode: Mode, args: argparse.Namespace) -> dict[str, Any]:
    if not args.gin_file and not args.gin_bindings:
        raise UserError(f"`t5x {name}` needs --gin_file=FILE; `t5x {name} --help` lists the files.")
    arguments = {}
    if args.shard_id is not None:
        if name != "infer":
            raise UserError(f"--shard_id is a flag of `t5x infer`, not of `t5x {name}`.")
        arguments["shard_id"] = args.shard_id
    if args.profile is not None:
        if name != "train":
            raise UserError(f"--profile is a flag of `t5x train`, not of `t5x {name}`.")
        arguments["profile_steps"] = args.profile
    if args.devices is not None or args.topology is not None:
        arguments |= _pretended_devices(name, args)
    _check_processes(args)
    try:
        from ckl_jax.config import gin_config, gin_scan
        from ckl_jax.data import plugins
        from ckl_jax.parallel import processes
        from ckl_jax.t5x_api import names
    except ImportError as e:
        raise UserError(f"{e}; install the package's requirements.") from e
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # its greetings would hide what matters
    plugins.import_from_here()
    if not args.dry_run:
        processes.initialize(
            args.coordinator_address,
            args.process_count,
            args.process_index,
            args.initialization_timeout,
            multiprocess=args.multiprocess_gpu,
            stop_together=name == "train",
        )
    processes.set_data_folders(args.tfds_data_dir, _split(args.seqio_additional_cache_dirs))
    prepare = functools.partial(names.prepare, name)
    for_t5x = mode.t5x_entry and gin_config.Alternative(
        mode.t5x_entry, mode.t5x_call, gin_scan.Scan.is_for_t5x, prepare
    )
    try:
        result = gin_config.run_job(
            mode.entry,
            files=args.gin_file,
            bindings=args.gin_bindings,
            search_paths=[path for paths in args.gin_search_paths for path in _split(paths)],
            dry_run=args.dry_run,
            instead=mode.call or None,
            overrides=mode.overrides,
            other=for_t5x,
            trusted=[name for names in args.trust_imports for name in _split(names)],
            **arguments,
        )
    except gin_scan.UnsetMacro as e:
        takes = dict(mode.macros).get(e.macro, "").partition("; default")[0]
        raise UserError(f"{e} It takes: {takes}." if takes else str(e)) from e
    if args.dry_run:
        print(result)
    return _described(result)


def _described(returned: Any) -> dict[str, Any]:
    """What a job returns, as --json prints it."""
    match returned:
        case int(step), _:  # of a training, beside its state
            return {"step": step}
        case list():
            return {"files": returned}
        case dict() if all(isinstance(key, int) for key in returned):  # by step
            return {"scores": returned}
        case dict():
            return returned
    return {}


def _pretended_devices(name: str, args: argparse.Namespace) -> dict[str, str]:
    """Sets up devices that are not there, before JAX starts; returns arguments of the job."""
    from ckl_jax.parallel import topology

    if name != "precompile":
        flag = "devices" if args.devices is not None else "topology"
        raise UserError(f"--{flag} is a flag of `t5x precompile`, not of `t5x {name}`.")
    if args.topology is None:
        topology.simulate_devices(args.devices)
        return {}
    if args.devices is not None:
        raise UserError("--devices and --topology exclude each other; give one.")
    topology.no_devices(args.topology)
    return {"target": args.topology}


def _split(paths: str | None) -> list[str]:
    return [path for path in (paths or "").split(",") if path]


def _check_processes(args: argparse.Namespace) -> None:
    given = [
        n
        for n in ("coordinator_address", "process_count", "process_index")
        if getattr(args, n) is not None
    ]
    if given and len(given) < 3:
        raise UserError(
            f"--{given[0]} is given without all of --coordinator_address, --process_count and "
            "--process_index; give all three or none."
        )
    if not given:
        return
    host, _, port = args.coordinator_address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UserError(
            f"--coordinator_address is {args.coordinator_address!r}; give HOST:PORT, such as "
            "localhost:8476."
        )
    if not 0 <= args.process_index < args.process_count:
        raise UserError(
            f"--process_index is {args.process_index} of --process_count {args.process_count}; "
            "give a number from 0 to one less than the count."
        )


def _run_upstream(name: str, mode: Mode, argv: list[str], dry_run: bool) -> int:
    from importlib.util import find_spec

    from ckl_jax.config import gin_files

    if not mode.upstream:
        raise UserError(f"T5X has no mode {name!r}; leave out --runner=upstream.")
    try:
        # Not 't5x': a folder of that name, or the placeholder on PyPI, would be found too.
        spec = find_spec("t5x.partitioning")
    except ImportError:
        spec = None
    if spec is None:
        raise UserError(
            "--runner=upstream needs T5X, which is not installed here; see requirements-t5x.txt, "
            "or leave the flag out to run the same gin files natively."
        )
    flags = _without(argv, "--runner", "--run_mode")
    module = "t5x.main" if dry_run else mode.upstream  # the one script that can stop there
    if module == "t5x.main":
        flags.append(f"--run_mode={name}")
    if not any(a.startswith("--gin_search_paths") for a in flags):
        flags.append(f"--gin_search_paths=.,{gin_files.BUNDLED}")
    os.execv(sys.executable, [sys.executable, "-m", module, *flags])
    return 0


def _without(argv: list[str], *flags: str) -> list[str]:
    """`argv` without these flags and their values, written as --flag=value or as two words."""
    kept = [a for a, before in zip(argv, ["", *argv], strict=False) if before not in flags]
    return [a for a in kept if a.split("=")[0] not in flags]


if __name__ == "__main__":
    sys.exit(main())
