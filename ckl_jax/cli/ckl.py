"""The `ckl` command: everything that is not a gin job.

A command is a public function of one of the modules below; its parameters, or the fields of the
settings that it takes, are the options. Help of `ckl` and its errors import none of them.
"""

import ast
import contextlib
import dataclasses
import functools
import importlib
import inspect
import io
import itertools
import re
import shlex
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import ckl_jax
from ckl_jax.cli import endings, outputs
from ckl_jax.errors import UserError, nearest
from ckl_jax.parallel import processes

_SHELLS = ("bash", "zsh", "fish")
_NO_DEFAULT = re.compile(r"\(default:[\s│]*(None|''|False|True)?\)")
# Flags that earlier versions had, and their names today.
_RENAMED = {
    "--replace": "--overwrite",
    "--share": "--fraction",
    "--test-share": "--test-fraction",
    "--unchanged-share": "--unchanged-fraction",
    "--emerging-least": "--emerging-min-count",
    "--wordings": "--templates",
    "--probes": "--facts",
}
_KINDS = {
    "INT": "a whole number",
    "FLOAT": "a number",
    "[FLOAT [FLOAT ...]]": "numbers with blanks between, such as 0.5 0.5",
}
# Module -> title of its commands, and the word before them.
_MODULES = {
    "studies": ("Run a study", ""),
    "text_data": ("Make data of text", "data"),
    "dump_data": ("Make data of Wikipedia and Wikidata dumps", "data"),
    "fact_data": ("Make data of facts and probes", "data"),
    "world": ("Make data of facts and probes", ""),
    "models": ("Convert models", ""),
    "rankings": ("Probe and report", "probe"),
    "reports": ("Probe and report", ""),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """A command: what the user types after `ckl`, and the function that it calls."""

    name: str
    title: str
    module: str
    function: str
    summary: str

    def load(self) -> Callable[..., Any]:
        return getattr(importlib.import_module(f"ckl_jax.cli.{self.module}"), self.function)


@functools.cache
def commands() -> dict[str, Command]:
    """{name: command}, such as "data clean", read without importing the commands' modules."""
    by_name = {}
    for module, (title, word) in _MODULES.items():
        source = (Path(__file__).parent / f"{module}.py").read_text()
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                name = f"{word} {node.name.replace('_', '-')}".strip()
                summary = ast.get_docstring(node).split("\n\n")[0].replace("\n", " ")
                by_name[name] = Command(
                    name=name, title=title, module=module, function=node.name, summary=summary
                )
    return by_name


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns the exit code: 0, 2 for a user's error, 130 or 143 if stopped.

    130 is for Ctrl-C, 143 for SIGTERM or a terminal that closes. A command that decides something
    (`ckl promote`) returns 1 where the answer is no.
    """
    warnings.formatwarning = lambda message, *place, **more: f"ckl: {message}\n"
    return endings.run_command(
        "ckl", functools.partial(_main, sys.argv[1:] if argv is None else argv)
    )


def _main(argv: Sequence[str]) -> int:
    with endings.interruptible(*processes.stops()):
        try:
            words = [word for word in argv if word not in outputs.FLAGS]
            shown = [flag in argv for flag in outputs.FLAGS]
            return outputs.show(lambda: parse(words)(), *shown)
        except KeyboardInterrupt as e:
            return endings.interrupted("ckl", e)


def command(line: str | Sequence[str]) -> dict[str, Any]:
    """Runs a command of `ckl` in this process.

    Args:
      line: such as "demo --size tiny", or a list of its words.

    Returns:
      What --json prints: `exit_code`, and what the command counted, scored or wrote.

    Raises:
      UserError: the words are no command, or it ends with 2.
    """
    try:
        words = shlex.split(line) if isinstance(line, str) else [*line]
        " ".join(words)
    except (TypeError, ValueError) as e:
        raise UserError(f"{line!r} is no command, such as 'demo --size tiny': {e}.") from e
    return outputs.result_of(parse(words)())


def parse(argv: list[str]) -> Callable[[], Any]:
    """Returns what the arguments ask for, ready to be called.

    Raises:
      UserError: the arguments name no command, or do not fit it.
    """
    match argv:
        case ["-h" | "--help"]:
            return functools.partial(print, _help(""))
        case ["--version"]:
            return functools.partial(print, f"ckl_jax {ckl_jax.__version__}")
        case ["--print-completion", shell] if shell in _SHELLS:
            return functools.partial(_print_completion, shell)
        case ["--print-completion", *_]:
            raise UserError(f"--print-completion needs a shell: {', '.join(_SHELLS)}.")
        case [word, "-h" | "--help"] if _of(word):
            return functools.partial(print, _help(word))
    for words in (1, 2):
        if command := commands().get(" ".join(argv[:words])):
            return _fill_in(command, _with_gin(argv[words:]))
    group = argv[0] if argv and _of(argv[0]) else ""
    given, prog = argv[1:] if group else argv, f"ckl {group}".strip()
    known = [name.removeprefix(group).split()[0] for name in (_of(group) if group else commands())]
    if not given:
        raise UserError(f"a command is missing; see '{prog} --help'.")
    what = "option" if given[0].startswith("-") else "command"
    raise UserError(
        f"there is no {what} {given[0]!r}; see '{prog} --help'.{nearest(given[0], known)}"
    )


def _of(word: str) -> list[str]:
    return [name for name in commands() if name.startswith(f"{word} ")]


def _help(word: str) -> str:
    """Help of `ckl`, or of its commands that begin with `word`."""
    lines = [f"usage: {' '.join(filter(None, ('ckl', word)))} COMMAND [OPTIONS]", ""]
    if not word:
        lines.append(
            "Update a language model, and measure what it kept, updated, learned and forgot."
        )
    title = ""
    for command in commands().values():
        if word and not command.name.startswith(f"{word} "):
            continue
        if command.title != title:
            title = command.title
            lines += ["", f"{title}:"]
        lines += textwrap.wrap(
            f"  {command.name:18} {command.summary}", 96, subsequent_indent=" " * 21
        )
    lines += ["", "`ckl COMMAND --help` lists the options of a command."]
    if not word:
        lines += ["`ckl --version` and `ckl --print-completion SHELL` (bash, zsh, fish) too."]
    lines += [outputs.HELP]
    return "\n".join(lines)


def _with_gin(argv: list[str]) -> list[str]:
    """`argv` with --gin.NAME=VALUE as --gin=NAME=VALUE."""
    rewritten = []
    for argument in argv:
        if argument.startswith("--gin."):
            name, equals, value = argument.removeprefix("--gin.").partition("=")
            if not equals:
                raise UserError(f"{argument} needs its value after `=`: --gin.{name}=VALUE.")
            argument = f"--gin={name}={value}"
        rewritten.append(argument)
    return rewritten


def _fill_in(command: Command, argv: list[str]) -> Callable[[], Any]:
    """The function of a command with the arguments of `argv`, or what prints its help."""
    import tyro

    function, prog = command.load(), f"ckl {command.name}"
    if choose := getattr(function, "for_words", None):
        function = choose(argv)  # whose options depend on what it runs

    @functools.wraps(function)  # so that errors of the job itself are not taken for bad arguments
    def fill(**arguments: Any) -> dict[str, Any]:
        return arguments

    def read(words: Sequence[str]) -> dict[str, Any]:
        markers = (
            tyro.conf.DisallowNone,
            tyro.conf.FlagCreatePairsOff,
            tyro.conf.OmitArgPrefixes,
            tyro.conf.PositionalMetavarFromFieldName,
        )
        return tyro.cli(fill, prog=prog, args=words, config=markers)

    def help_text() -> str:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
            read(["--help"])
        text = re.sub(
            r"\{(\{.*?\})\}", r"\1", out.getvalue()
        )  # choices, of which none need be made
        # Where nothing is the default, the text says what that means.
        return _NO_DEFAULT.sub(lambda match: re.sub(r"[^\s│]", " ", match[0]), text)

    if {"-h", "--help"} & set(argv):
        return functools.partial(print, help_text(), end="")
    flags = [word.partition("=")[0] for word in argv if word.startswith("--")]
    for flag in sorted({flag for flag in flags if flags.count(flag) > 1}):
        if f"{flag} FILE..." in help_text():  # the last alone would count
            raise UserError(f"{flag} is given twice; give all files behind one: {flag} FILE FILE.")
    with tyro._errors.on_parse_error(functools.partial(_refuse, argv, help_text)):
        arguments = read(argv)
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is parameter.empty and arguments[name] == ():
            flag = f"--{name}" if f"--{name} " in help_text() else name.upper()
            raise UserError(f"the following arguments are required: {flag}; see '{prog} --help'.")
    for number in _huge(arguments):
        # int() takes more than its own digits: 1_000, and those of other scripts.
        words = enumerate(re.sub(r"\d", lambda d: str(int(d[0])), w.replace("_", "")) for w in argv)
        i = next(i for i, word in words if str(number) in word)
        flag = argv[i].partition("=")[0] if argv[i].startswith("--") else argv[i - 1]
        raise UserError(f"{flag} is {number}; give a number of at most 18 digits.")
    return functools.partial(function, **arguments)


def _huge(value: Any) -> Iterator[int]:
    """The whole numbers in arguments that do not fit into 64 bits."""
    match value:
        case int() if not -(2**63) <= value < 2**63:
            yield value
        case dict():
            yield from itertools.chain.from_iterable(map(_huge, value.values()))
        case tuple():
            yield from itertools.chain.from_iterable(map(_huge, value))
        case _ if dataclasses.is_dataclass(value):
            yield from _huge(vars(value))


def _refuse(argv: Sequence[str], help_text: Callable[[], str], event: Any) -> None:
    """Raises `UserError` in place of tyro's box: one sentence."""
    see = f"see '{event.prog} --help'."
    unknown = getattr(event, "tokens", None) or getattr(event, "unrecognized_tokens", None)
    argument = getattr(event, "argument", None)
    flag = _flag(argument) if argument else ""
    match type(event).__name__:
        case "UnrecognizedArgs" | "MissingArgs" if unknown:
            name = unknown[0].partition("=")[0]
            known = re.findall(r"--[a-z][\w-]*", help_text())
            before = itertools.takewhile(lambda word: word != unknown[0], argv)
            given = [word for word in before if word in known]
            if name.startswith("-"):
                hint = nearest(name, known)
            elif given:
                hint = f" Quote the value of {given[-1]} if it has spaces."
            else:
                hint = f" Did you mean --model {name}?" if "--model" in known else ""
            if (new := _RENAMED.get(name)) in known:
                hint = f" It is {new} now."
            raise UserError(f"unrecognized arguments: {' '.join(unknown)}; {see}{hint}")
        case "MissingArgs":
            missing = ", ".join(_flag(arg.arg) for arg in event.missing_arguments)
            raise UserError(f"the following arguments are required: {missing}; {see}")
        case "InvalidChoice":
            # Those of the event are in no order where the option has no default.
            choices = re.sub(r"[{}]", "", argument.lowered.metavar).split(",")
            raise UserError(
                f"{flag} is {event.value!r}; choose from {', '.join(choices)}."
                f"{nearest(event.value, choices)}"
            )
        case "BadValue":
            raise UserError(f"{flag} lacks a value; {see}")
        case "InstantiationFailure":
            raise _not_a_value(argument, flag, event.message)
    raise UserError(f"these arguments do not go together; {see}")


def _not_a_value(argument: Any, flag: str, message: str) -> UserError:
    """The error for what tyro cannot make a value of an option from."""
    value = re.search(r"'.*?'", message)
    if value and re.fullmatch(r"\{[\w,-]+\}", flags := argument.lowered.metavar):
        choices = flags[1:-1].replace(",", ", ")
        return UserError(f"{flag} is {value[0]}; choose from {choices}.")
    if kind := _KINDS.get(argument and argument.lowered.metavar):
        what = f"is {value[0]}" if value else "has too many digits"
        return UserError(f"{flag} {what}; give {kind}.")
    return UserError(f"{flag or 'an argument'} is {message}.")


def _flag(argument: Any) -> str:
    lowered = argument.lowered
    return lowered.metavar if argument.is_positional() else lowered.name_or_flags[0]


def _print_completion(shell: str) -> None:
    import tyro

    apps = {"": tyro.extras.SubcommandApp()}
    for command in commands().values():
        word, _, name = command.name.rpartition(" ")
        if word not in apps:
            apps[word] = tyro.extras.SubcommandApp()
            apps[""].command(apps[word], name=word)
        apps[word].command(command.load(), name=name)
    markers = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes)
    script = io.StringIO()
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(script):
        apps[""].cli(prog="ckl", args=["--tyro-print-completion", shell], config=markers)
    # The scripts read a choice from each line of what tyro describes, second lines of help among
    # them, and None is what an option is if it is not given.
    text = re.sub("^COMPLETION_SPEC = .*", _one_line_each, script.getvalue(), flags=re.MULTILINE)
    print(text, end="")


def _one_line_each(spec: re.Match[str]) -> str:
    return re.sub(r"'None', |, 'None'(?=\])", "", spec[0].replace(r"\n", " "))


if __name__ == "__main__":
    sys.exit(main())
