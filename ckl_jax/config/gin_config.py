"""Binds gin files and flags to a job function and calls it. The rest of the library reads no gin.

Gin files use dynamic registration: `from __gin__ import dynamic_registration`, then real imports
(`from ckl_jax.train import train`) and bindings of what they import (`train.train.total_steps`).
A job function is an ordinary function; gin's configurable version of it is looked up by identity.
"""

import contextlib
import dataclasses
import gc
import importlib
import inspect
import io
import itertools
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gin

from ckl_jax.config import (
    bound_types,
    gin_files,
    gin_scan,
    missing_modules,
    old_names,
    trust,
    user_tracebacks,
)
from ckl_jax.config.quiet_imports import quiet_imports
from ckl_jax.errors import UserError, is_out_of_memory, nearest

_running: list[Callable[..., Any]] = []
_lent: dict[str, Callable[..., Any]] = {}


@contextlib.contextmanager
def _garbage_kept() -> Iterator[None]:
    """Context manager in which gin values are parsed without garbage collection.

    Before Python 3.11.8 `ast.literal_eval`, by which gin reads values, fails at sound ones if a
    finalizer that runs within it parses too, here or in another thread (python/cpython#106905).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def load(
    files: Sequence[str] = (),
    bindings: Sequence[str] = (),
    search_paths: Sequence[str] = (),
    trusted: Sequence[str] = (),
) -> gin_scan.Scan:
    """Forgets any earlier configuration, then parses `files` in order and `bindings` after them.

    Args:
      files: names or paths, found as `gin_files.find` says.
      bindings: gin statements such as "BATCH_SIZE = 8" or "train.train.total_steps = 3".
      search_paths: folders that are searched first.
      trusted: see `run`.

    Returns:
      What was read; gin's global configuration is set and locked.

    Raises:
      UserError: anything wrong with files, names or values, in one sentence.
    """
    source = read(files, bindings, search_paths, trusted=trusted)
    bind(source)
    return source.scan


@dataclasses.dataclass(frozen=True)
class Source:
    """Gin files and bindings that were read and checked, but not bound."""

    paths: list[Path]
    bindings: list[str]
    folders: list[Path]
    scan: gin_scan.Scan


@_garbage_kept()
def read(
    files: Sequence[str] = (),
    bindings: Sequence[str] = (),
    search_paths: Sequence[str] = (),
    overrides: Sequence[str] = (),
    trusted: Sequence[str] = (),
    other: "Alternative | None" = None,
) -> Source:
    """Finds and checks the files without importing anything that they import.

    Macros that `overrides` will set, statements such as "A = None", need not be set. Of files that
    come with a model only `trusted` modules and this package's are imported, see `trust.check`.
    """
    folders = gin_files.search_folders(search_paths, files)
    paths = [gin_files.find(name, folders).absolute() for name in files]
    scan = gin_scan.scan(paths, bindings, folders)
    trust.check(scan, trusted)
    if other and other.is_for(scan):
        other.prepare(scan)
    gin_scan.check_macros(scan, {statement.split("=")[0].strip() for statement in overrides})
    return Source(paths, list(map(old_names.translate, bindings)), folders, scan)


@_garbage_kept()
def bind(source: Source) -> None:
    """Makes `source` gin's only configuration, importing what its files import."""
    gin.clear_config()
    with _read_from(source), quiet_imports():
        try:
            for path in source.paths:
                gin.parse_config_file(str(path))
            gin.parse_config(source.bindings)
            gin.finalize()
            bound_types.check(source.scan)
        except Exception as e:
            gin.clear_config()
            if isinstance(e, UserError) and "\n" not in str(e):
                raise
            raise UserError(_explain(e, source.scan)) from e


def forget(package: str) -> None:
    """Drops gin's registrations of a package that can no longer be imported.

    Gin remembers of a function the import by which it first met it, also after a configuration is
    cleared, and writes that import into the next one's text.
    """
    gin.clear_config()
    for selector, known in list(gin.config._REGISTRY.items()):
        if known.import_source and known.import_source[0].module.split(".")[0] == package:
            gin.config._REGISTRY.pop(selector)
            gin.config._INVERSE_REGISTRY.pop(known.wrapped, None)


@contextlib.contextmanager
def _read_from(source: Source) -> Iterator[None]:
    """Context manager in which gin reads files from what was checked, and none other.

    Gin would look for an included file by rules of its own, and read it a second time.
    """

    def find(name: str) -> str:
        return str(gin_files.find_include(name, source.folders))

    def open_text(name: str) -> io.StringIO:
        text = io.StringIO(source.scan.texts[find(name)])
        text.name = find(name)  # gin's complaints name it
        return text

    # Gin can add folders and readers but not remove them.
    wanted = ([""], [(open_text, lambda name: find(name) in source.scan.texts)])
    lists = (gin.config._LOCATION_PREFIXES, gin.config._FILE_READERS)
    before = [list(entries) for entries in lists]
    try:
        for entries, new in zip(lists, wanted, strict=True):
            entries[:] = new
        yield
    finally:
        for entries, old in zip(lists, before, strict=True):
            entries[:] = old


def resolve_function(entry: str | Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function that "package.module:function" names; a function is itself."""
    if callable(entry):
        return entry
    module, _, name = entry.partition(":")
    return getattr(importlib.import_module(module), name)


@dataclasses.dataclass(frozen=True)
class Alternative:
    """A job for gin files of another kind, such as those written for T5X.

    Attributes:
      entry, instead: as in `run`.
      is_for: whether the files that were read are of that kind.
      prepare: called with what was read, before it is checked and imported.
    """

    entry: str
    instead: str | None
    is_for: Callable[[gin_scan.Scan], bool]
    prepare: Callable[[gin_scan.Scan], None]


def run_job(
    entry: str | Callable[..., Any],
    *,
    files: Sequence[str] = (),
    bindings: Sequence[str] = (),
    search_paths: Sequence[str] = (),
    dry_run: bool = False,
    instead: str | Callable[..., Any] | None = None,
    overrides: Sequence[str] = (),
    other: Alternative | None = None,
    trusted: Sequence[str] = (),
    **arguments: Any,
) -> Any:
    """Loads the configuration, then calls `entry` with the arguments that gin binds to it.

    Args:
      entry: the job function or "package.module:function".
      files, bindings, search_paths: see `load`.
      dry_run: check everything and return the configuration's text instead of calling.
      instead: called in the place of `entry`, with the arguments that gin binds to either.
      overrides: macros that the files need not set; None stands in the place of what they set.
      other: takes the places of `entry` and `instead` for the files that it is for.
      trusted: modules that gin files which come with a model may import, see `trust.check`.
      **arguments: given to `entry` in place of what gin binds.

    Raises:
      UserError: also one raised by the job, without gin's trail of calls.
      RuntimeError: called from within a job; start a process instead.
    """
    if _running:
        raise RuntimeError("A job runs in this process, and gin holds one configuration only.")
    source = read(files, bindings, search_paths, overrides, trusted, other)
    gin_scan.warn_of_unused(source.scan)
    is_open = source.scan.leaves_open
    overrides = [o for o in overrides if o.endswith(" = None") or is_open(o.split(" = ")[0])]
    if other and other.is_for(source.scan):
        entry, instead = other.entry, other.instead
    function = resolve_function(entry)
    _lend_to_main(function)
    if instead is not None:
        _lend_to_main(resolve_function(instead))
    # None, which stands for what is not needed, is of no type.
    free = {o.split(" = ")[0] for o in overrides}
    source.scan.bindings[:] = [b for b in source.scan.bindings if b.name not in free]
    bind(dataclasses.replace(source, bindings=[*source.bindings, *overrides]))
    if instead is not None and _is_bound(resolve_function(instead)) and not _is_bound(function):
        function, instead = resolve_function(instead), None  # T5X's precompile.gin binds only this
    configured = configurable(function)
    if missing := missing_arguments(function, arguments):
        raise UserError(_what_is_missing(function, configured, missing))
    if dry_run:
        return config_text()
    if instead is not None:
        target = resolve_function(instead)
        with contextlib.suppress(KeyError, ValueError):  # it is in no gin file
            target = gin.get_configurable(target)

        def configured(job=configured, **given):
            return target(**{**gin.get_bindings(job), **given})

    _running.append(function)
    try:
        return call(configured, **arguments)
    except UserError as e:
        # "EPOCHS is -1" of `EPOCHS = %LIGHT_TUNE_EPOCHS` is about a name that the user did not set.
        name, _, rest = str(e).partition(" ")
        macros = {b.name: b.value for b in source.scan.bindings}
        if isinstance(set_to := macros.get(name), gin_scan.Macro):
            raise UserError(f"{set_to.name} {rest}") from e
        raise
    finally:
        _running.pop()


def _what_is_missing(
    function: Callable[..., Any], configured: Callable[..., Any], missing: Sequence[str]
) -> str:
    """The sentence on arguments of a job that the gin files do not set."""
    module = function.__module__.rsplit(".", 1)[-1]
    name, own = f"{module}.{function.__name__}", f"ckl_{module}.gin"
    is_unset = not gin.get_bindings(configured, resolve_references=False)
    if is_unset and own in gin_files.bundled_files():
        return f"The gin files set nothing of {name}; add --gin_file={own} behind them."
    return (
        f"The gin files leave {', '.join(f'{name}.{m}' for m in missing)} unset; bind "
        f"{'it' if len(missing) == 1 else 'them'} in a gin file or by --gin.{name}."
        f"{missing[0]}=VALUE."
    )


def in_job() -> bool:
    """Whether the caller runs inside a job that gin configured."""
    return bool(_running)


def bound_to(function: Any) -> dict[str, Any]:
    """The arguments that gin gives a function or class; {} if it does not know it."""
    with contextlib.suppress(ValueError):
        return gin.get_bindings(function)
    return {}


def _lend_to_main(function: Callable[..., Any]) -> None:
    """Lets `import __main__ as train_script` in T5X's gin files find the job function.

    A name that the caller's own script defines is left alone.
    """
    main, name = sys.modules["__main__"], function.__name__
    if getattr(main, name, None) is _lent.get(name):
        setattr(main, name, function)
        _lent[name] = function


def configurable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns gin's configurable for `function`, registering it if no gin file mentions it."""
    try:
        return gin.get_configurable(function)
    except (KeyError, ValueError):
        with gin.unlock_config():
            return gin.external_configurable(function, module=function.__module__)


def _is_bound(function: Callable[..., Any]) -> bool:
    try:
        return bool(gin.get_bindings(gin.get_configurable(function), resolve_references=False))
    except (KeyError, ValueError):
        return False


def missing_arguments(function: Callable[..., Any], given: dict[str, Any]) -> list[str]:
    """Returns the parameters without default that neither gin nor `given` sets."""
    bound = gin.get_bindings(configurable(function), resolve_references=False)
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        and name not in bound
        and name not in given
    ]


def call(configured: Callable[..., Any], **arguments: Any) -> Any:
    """Calls a configurable; a `UserError` is raised unchanged, without gin's additions."""
    try:
        return configured(**arguments)
    except UserError as e:
        raise UserError(str(e).split("\n  In call to configurable")[0]) from e
    except OSError as e:
        raise _without_trail(e) from None
    except ValueError as e:
        if not _raised_here(e):
            raise
        raise UserError(str(e).split("\n")[0]) from e  # a check of arguments in the library
    except (TypeError, RuntimeError) as e:
        text = str(e)
        if isinstance(e, RecursionError) and _is_circular(e):
            raise UserError(
                "A value in the gin configuration calls what it is a value of; look for the @...() "
                "that names a function above it, such as the job's own."
            ) from None
        if is_out_of_memory(e):
            raise UserError(
                "The device has not enough memory for this run; raise NUM_MICROBATCHES, set "
                "REMAT_POLICY='full', lower BATCH_SIZE or split the model by MESH_SHAPE "
                "(`t5x precompile` with the same flags prints the peak)."
            ) from e
        unset = re.search(r"missing \d+ required .*?arguments?: (.*)", text)
        required = re.search(r"Required bindings for `(.*?)` not provided in config: (.*)", text)
        called = re.search(r"In call to configurable '(.*?)'", text)
        if required:
            raise UserError(f"The gin files leave {required[2]} of {required[1]} unset.") from e
        if unset and called and "No values supplied by Gin" in text:
            raise UserError(
                f"The gin files leave {unset[1]} of {called[1]} unset; bind it in a gin file."
            ) from e
        raise


def _without_trail(e: OSError) -> OSError:
    """The error that gin repeats; its copies lack the number and the file."""
    while e.errno is None and isinstance(e.__context__, OSError):
        e = e.__context__
    return e


def _is_circular(e: RecursionError) -> bool:
    """Whether gin itself recursed without end, as opposed to a function of the job."""
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(e.__traceback__)]
    return files.count(gin.config.__file__) > len(files) / 4


def _raised_here(e: Exception) -> bool:
    """Whether this package's own code raised `e`, not a library that it called."""
    last = e.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    return last.tb_frame.f_globals.get("__name__", "").startswith("ckl_jax.")


def config_text() -> str:
    """Returns the whole configuration as gin text that parses again, for `config.gin`."""
    return gin.config_str(max_line_length=100)


def _sentence(e: Exception) -> tuple[str, list[str]]:
    """(the first line of an error that went through gin, the trail that gin put behind it)."""
    message, *trail = re.split(r"\n\s+In (?:file|bindings)", str(e))
    message = message.strip().split("\n")[0]
    return re.sub(r"<(module '[^']*') from [^>]*>", r"\1", message), trail


def _explain(e: Exception, scan: gin_scan.Scan) -> str:
    """Turns gin's exception into one sentence with file, line and the nearest right name."""
    source, where = gin_scan.COMMAND_LINE, gin_scan.COMMAND_LINE
    location = re.search(r"\n  In file \"(.*?)\", line (\d+)", str(e))
    if location:
        source, where = location[1], f"{location[1]}, line {location[2]}"
    message, rest = _sentence(e)
    if isinstance(e, UserError):  # a name of T5X that is imported and not offered
        return f"{where}: {message}"
    if place := user_tracebacks.place(e):  # a module that a gin file imports
        if isinstance(e, SyntaxError):
            return f"{place}: SyntaxError: {e.msg}."
        error = f"{type(e).__name__}: {message.rstrip('.')}"
        return f"{where}: {error}, in {place}.{_hint(message, source, scan)}"
    if missing_modules.missing_in(message) and rest:
        where = f"{where}: `{rest[0].splitlines()[-1].strip()}`"
    return f"{where}: {message.rstrip('.')}.{_hint(message, source, scan)}"


def _hint(message: str, source: str, scan: gin_scan.Scan) -> str:
    imports = scan.imports.get(source, {})
    if missing := missing_modules.missing_in(message):
        return missing_modules.how_to_get(missing)
    if m := re.search(r"'(.*?)' was not provided by an import", message):
        if m[1] in imports:
            return f" Move its import in {source} above this line."
        return nearest(m[1], imports) or f" Import it in {source}."
    if m := re.search(r"resolve selector (.*?); .* has no attribute (\w+)", message):
        hint = _nearest_attribute(m[1], m[2], imports)
        if "ckl_jax.t5x_api" in message:
            hint = f" The native runner does not offer it; use --runner=upstream.{hint}"
        return hint
    if m := re.search(r"Configurable '(.*?)' doesn't have a parameter named '(.*?)'", message):
        return _nearest_parameter(m[1], m[2], scan)
    if m := re.search(r"No configurable matching (?:reference '@([\w./]*).*|'(.*?))'", message):
        name = m[1] or m[2]
        hint = nearest(name, scan.selectors() - {name})
        if m[1] and source == gin_scan.COMMAND_LINE:
            hint = f"{hint} A gin file of your own can import its module: give that by --gin_file."
        return hint
    return ""


def _walk(selector: str, imports: dict[str, str]) -> Any:
    """Returns the object that the components of a selector lead to, following as many as exist."""
    first, *rest = selector.split(".")
    value = sys.modules.get(imports.get(first, first))
    for part in rest:
        if not hasattr(value, part):
            break
        value = getattr(value, part)
    return value


def _nearest_attribute(selector: str, attribute: str, imports: dict[str, str]) -> str:
    owner = _walk(selector, imports)
    return nearest(attribute, [name for name in dir(owner) if not name.startswith("_")])


def _nearest_parameter(selector: str, parameter: str, scan: gin_scan.Scan) -> str:
    # Gin takes the end of a selector for the whole: `train` for `train.train`.
    wholes = [selector, *(s for s in sorted(scan.selectors()) if s.endswith(f".{selector}"))]
    for whole, imports in itertools.product(wholes, scan.imports.values()):
        target = _walk(whole, imports)
        if callable(target):
            names = [n for n in inspect.signature(target).parameters if n != "self"]
            return nearest(parameter, names) or f" Its parameters are {', '.join(names)}."
    return ""
