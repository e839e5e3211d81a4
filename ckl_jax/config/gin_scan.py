"""Parses gin files without running them, for error messages with file and line.

Gin's own messages name the configurable that failed, not the macro that is unset, and stop at
the first import. This walk over the parsed statements knows the file and line of every macro.
"""

import dataclasses
import re
import tokenize
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gin import config_parser

from ckl_jax import files
from ckl_jax.config import gin_files, moved_folders, old_names
from ckl_jax.errors import UserError, nearest

COMMAND_LINE = "the command line"
_A_MODEL = {True: "t5x/examples/t5/t5_1_1/small.gin", False: "models/t5_1_1_small.gin"}  # for T5X


@dataclasses.dataclass(frozen=True, repr=False)
class Macro:
    """`%NAME` in a value."""

    name: str

    def __repr__(self) -> str:
        return f"%{self.name}"


@dataclasses.dataclass(frozen=True, repr=False)
class Reference:
    """`@scope/selector`, or if it is called `@scope/selector()`, in a value."""

    selector: str
    is_called: bool

    def __repr__(self) -> str:
        return f"@{self.selector}{'()' if self.is_called else ''}"


class _Delegate(config_parser.ParserDelegate):
    def configurable_reference(self, scoped_selector, evaluate):
        return Reference(scoped_selector, evaluate)

    def macro(self, name):
        return Macro(name)


@dataclasses.dataclass(frozen=True)
class Binding:
    """One `scope/selector.parameter = value`, or a macro's `NAME = value` (parameter "")."""

    scope: str
    selector: str
    parameter: str
    value: Any
    where: str

    @property
    def name(self) -> str:
        scoped = f"{self.scope}/{self.selector}" if self.scope else self.selector
        return f"{scoped}.{self.parameter}" if self.parameter else scoped

    @property
    def file(self) -> str:
        """Where it stands; "" on the command line."""
        return self.where.rpartition(", line ")[0]

    @property
    def is_bundled(self) -> bool:
        return Path(self.file).is_relative_to(gin_files.BUNDLED)


@dataclasses.dataclass
class Scan:
    """All statements of the files and the command line, in order.

    Attributes:
      imports: {file: {name: module}}; of two imports under one name, the last.
      modules: (file, module, where) of every import.
      roots: {file: the file on the command line that includes it}.
      texts: {file: its text}, which is what is bound: a file may change after it was checked.
    """

    bindings: list[Binding] = dataclasses.field(default_factory=list)
    imports: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    modules: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)
    roots: dict[str, str] = dataclasses.field(default_factory=dict)
    texts: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def files(self) -> list[str]:
        """The files in the order in which they are first read."""
        return list(self.roots)

    def macros(self) -> dict[str, Binding]:
        """Returns the last definition of each macro."""
        return {b.name: b for b in self.bindings if not b.parameter}

    def leaves_open(self, macro: str) -> bool:
        """Whether a macro is not set, or required."""
        last = self.macros().get(macro)
        return last is None or _required(last.value)

    def macros_used(self) -> dict[str, Binding]:
        """Returns the macros in the values that hold at the end, each with a binding that does."""
        last = {b.name: b for b in self.bindings}
        return {m.name: b for b in last.values() for m in parts_of(b.value, Macro)}

    def is_for_t5x(self) -> bool:
        """Whether the files import T5X's modules, or the script that runs them."""
        modules = {module for imports in self.imports.values() for module in imports.values()}
        return any(module.split(".")[0] in ("t5x", "__main__") for module in modules)

    def selectors(self) -> set[str]:
        return {b.selector for b in self.bindings if b.parameter}


def scan(paths: Sequence[Path], command_line: Sequence[str], folders: Sequence[Path]) -> Scan:
    """Parses the files with what they include, then the bindings of the command line.

    Raises:
      UserError: a file is missing, does not parse, or includes itself.
    """
    result = Scan()
    for path in paths:
        _scan_file(path, folders, result, [])
    for binding in map(old_names.translate, command_line):
        statements = _statements(binding, COMMAND_LINE, hint=_quote_hint(binding))
        _collect(statements, COMMAND_LINE, folders, result, [])
    return result


def model_config(values: Mapping[str, Any]) -> str:
    """The name of the model's configuration, such as "gpt2.GPT2Config".

    Args:
      values: value of each macro and parameter by its name, see `Binding.name`.

    Raises:
      UserError: the references from MODEL over its `module` to its `config` are broken off.
    """
    name = "MODEL"
    for parameter in ("", ".module", ".config"):
        name = f"{name}{parameter}"
        if not isinstance(values.get(name), Reference):
            raise UserError(
                f"The gin files do not bind {name} to a class of a model (such as @gpt2."
                "Transformer()); include one of gin_configs/models."
            )
        name = values[name].selector
    return name


class UnsetMacro(UserError):
    """A required macro that nothing sets; `macro` is its name."""

    def __init__(self, macro: str, message: str):
        super().__init__(message)
        self.macro = macro


def check_macros(result: Scan, set_later: Collection[str] = ()) -> None:
    """Raises `UserError` for a macro or parameter that is required but not set, or unknown."""
    _check_command_line(result)
    macros = result.macros()
    for name, user in result.macros_used().items():
        if name in set_later:
            continue
        if name != "gin.REQUIRED" and result.leaves_open(name):
            where = macros[name].where if name in macros else user.where
            how = f"add --gin.{name}=VALUE (text in two kinds of quotes: --gin.{name}=\"'text'\")"
            if name == "MODEL":
                how = f"include a model's gin file, such as '{_A_MODEL[result.is_for_t5x()]}',"
            raise UnsetMacro(
                name,
                f"The macro {name} is not set ({where} needs it); {how} or set it in a gin file.",
            )
    for binding in {b.name: b for b in result.bindings}.values():
        if _required(binding.value) and binding.name not in set_later:
            raise UserError(
                f"{binding.name} is required ({binding.where}) but nothing sets it; add "
                f"--gin.{binding.name}=VALUE or set it in a gin file."
            )


def _check_command_line(result: Scan) -> None:
    """Refuses macros on the command line that no file uses, since they would have no effect."""
    in_files = [b for b in result.bindings if b.where != COMMAND_LINE]
    known = {b.name for b in in_files if not b.parameter}
    known |= {m.name for b in in_files for m in parts_of(b.value, Macro)}
    for b in result.bindings:
        if b.where == COMMAND_LINE and not b.parameter and b.name not in known:
            raise UserError(
                f"--gin.{b.name}: the gin files use no macro {b.name!r}."
                + (_instead(b.name, known, result) or _listed(known))
            )


def warn_of_unused(result: Scan) -> None:
    """Warns of macros that a user's file sets in vain; bundled files do so for some methods."""
    used = {m.name for b in result.bindings for m in parts_of(b.value, Macro)}
    for b in result.bindings:
        ours = b.is_bundled or Path(b.file).name in ("", "config.gin", "model.gin")
        if not (ours or b.parameter or b.name in used):
            hint = _instead(b.name, used, result)
            warnings.warn(f"{b.where}: no gin file uses the macro {b.name}.{hint}", stacklevel=2)


def _instead(macro: str, known: Collection[str], result: Scan) -> str:
    bound = next((b.name for b in result.bindings if b.parameter == macro.lower()), None)
    near = nearest(macro, [k for k in known if not macro.startswith(f"{k}_")])  # MODEL of MODEL_DIR
    return f" Bind {bound} in its place." if bound else near


def _listed(names: set[str]) -> str:
    names = sorted(name for name in names if name != "gin.REQUIRED")
    if len(names) > 12:
        return f" They use {len(names)} others; see `t5x train --help` and the files."
    return f" They use {', '.join(names)}." if names else " They use none."


def _required(value: Any) -> bool:
    return value == Macro("gin.REQUIRED")


def parts_of(value: Any, kind: type) -> Iterator[Any]:
    """Yields the macros or references (`kind`) nested anywhere in a value."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, dict):
        for pair in value.items():
            yield from parts_of(pair, kind)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from parts_of(item, kind)


def resolved(value: Any, macros: Mapping[str, Any]) -> Any:
    """A value with the values of macros in their place, as far as they are known."""
    match value:
        case Macro() if value.name in macros:
            return resolved(macros[value.name], macros)
        case dict():
            return {resolved(k, macros): resolved(v, macros) for k, v in value.items()}
        case list() | tuple():
            return type(value)(resolved(item, macros) for item in value)
    return value


def scan_alone(path: Path) -> Scan:
    """Parses one file without its includes."""
    result = Scan()
    _collect(_statements(read_text(path), str(path)), str(path), None, result, [])
    return result


def _scan_file(path: Path, folders, result: Scan, stack: list[Path]) -> None:
    if path in stack:
        raise UserError(f"{path} includes itself through {stack[-1]}.")
    name = str(path)
    result.roots.setdefault(name, str([*stack, path][0]))
    if name not in result.texts:
        result.texts[name] = read_text(path)
    _collect(_statements(result.texts[name], name), name, folders, result, [*stack, path])


def read_text(path: Path) -> str:
    """Reads a gin file, with names of earlier versions and moved folders replaced by today's."""
    return moved_folders.translate(path, old_names.translate(files.read_text(path)))


def _collect(statements, source: str, folders, result: Scan, stack: list[Path]) -> None:
    for s in statements:
        where = source if source == COMMAND_LINE else f"{source}, line {s.location.line_num}"
        if isinstance(s, config_parser.BindingStatement):
            binding = Binding(s.scope or "", s.selector, s.arg_name or "", s.value, where)
            result.bindings.append(binding)
        elif isinstance(s, config_parser.ImportStatement):
            result.imports.setdefault(source, {})[s.bound_name()] = s.module
            result.modules.append((source, s.module, where))
        elif isinstance(s, config_parser.IncludeStatement) and folders is not None:
            path = gin_files.find_include(s.filename, folders)
            if path is None:
                raise UserError(f"{where}: {gin_files.unknown_file(s.filename, folders)}")
            _scan_file(path, folders, result, stack)


def _statements(text: str, source: str, hint: str = "") -> Iterator[Any]:
    """Yields the statements of `text`; a syntax error becomes one sentence."""
    try:
        yield from config_parser.ConfigParser(text, _Delegate())
    except Exception as e:  # gin raises SyntaxError, tokenize its own kinds
        if isinstance(e, UserError):
            raise
        # The tokenizer of Python 3.12 and later refuses what recursion fails on before.
        if isinstance(e, RecursionError) or "too many nested" in str(e):
            e = SyntaxError("brackets nest too deep")
            e.lineno = text.count("\n", 0, files.deepest(text)) + 1
        elif isinstance(e, tokenize.TokenError):  # (message, place)
            e = SyntaxError("it ends within a statement: a bracket or a quote is open")
        message = str(getattr(e, "msg", None) or e)
        token = re.search(r"Failed to parse token '(.*)'", message)
        what = message.split("\n")[0]
        if token:
            value = token[1] if token[1][:1] in ("'", '"') else repr(token[1])
            what = f"cannot read the value {value}"
        line = getattr(e, "lineno", None)
        where = f"{source}, line {line}" if line and source != COMMAND_LINE else source
        shown = f" in {text!r}" if source == COMMAND_LINE else ""
        if re.match(r"\s*(from \S+ )?import .*,", text.split("\n")[(line or 1) - 1]):
            hint = " An import of gin names one thing; give each a line of its own."
        raise UserError(f"Gin syntax error in {where}: {what.rstrip('.')}{shown}.{hint}") from e


def _quote_hint(binding: str) -> str:
    """Says how to quote a value that looks like text without inner quotes."""
    name, _, value = (part.strip() for part in binding.partition("="))
    if not value or value[0] in "'\"@%[({" or value in ("True", "False", "None"):
        return ""
    return f" If {value!r} is meant as text it needs inner quotes: --gin.{name}=\"'{value}'\"."
