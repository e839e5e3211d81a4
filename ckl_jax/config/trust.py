"""Restricts gin files that come with a model to the names of this package's own gin files.

A gin file is a program: it imports modules and calls what they hold. The `config.gin` of a run and
the `model.gin` of an imported model come with their folder, which may be a stranger's. They may
import the modules and refer to the functions that the bundled gin files import and refer to;
modules of the user's own, such as that of a method, have to be trusted by name. See
docs/security.md.
"""

import functools
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import ckl_jax
from ckl_jax.config import gin_files, gin_scan
from ckl_jax.errors import UserError

ALL = "all"
_OF_FOLDERS = ("config.gin", "model.gin")
# {function: its parameter that names modules to import, or gin files of another training}.
_CODE = {"DatasetConfig": "module", "make_inputs": "initial_gin_files"}
# What the `model.gin` of an imported model names in addition: the readers of vocabularies.
_READERS = {
    ("ckl_jax.data.text.byte_level", "ByteLevelVocabulary"),
    ("ckl_jax.data.text.byte_vocabulary", "ByteVocabulary"),
    ("ckl_jax.data.text.masked_vocabulary", "MaskedVocabulary"),
    ("ckl_jax.data.text.byte_level", "SpanVocabulary"),
    ("ckl_jax.data.text.byte_level", "TokenizerVocabulary"),
    ("ckl_jax.data.text.vocabularies", "Vocabulary"),
    ("ckl_jax.data.text.vocabulary_copy", "open_copy"),
}


def check(scan: gin_scan.Scan, trusted: Iterable[str]) -> None:
    """Refuses what the files of folders import and refer to beyond the bundled files and `trusted`.

    Args:
      scan: what was read.
      trusted: modules and packages; `ALL` is every one.

    Raises:
      UserError: with a list of what they name, or the name that only another version has.
    """
    trusted = set(trusted)
    sources = set() if ALL in trusted else _of_folders(scan)
    wanted: dict[str, str] = {}
    for name, what in _untrusted(scan, sources, trusted):
        wanted.setdefault(name, what)
    if wanted:
        listed = "; ".join(f"{module} ({where})" for module, where in wanted.items())
        raise UserError(
            f"Gin files that come with a model could run a stranger's code. Untrusted names in "
            f"this one: {listed}. Read it, and if the code is yours add "
            f"--trust-imports={','.join(wanted)} (in Python, trusted={(*wanted,)!r})."
        )


def _untrusted(
    scan: gin_scan.Scan, sources: set[str], trusted: set[str]
) -> Iterator[tuple[str, str]]:
    """(module to trust, where it is named and how) of all that `sources` import and refer to."""
    folders = _folders(scan)
    for source, module, where in scan.modules:
        if source in sources and not _is_trusted(module, trusted):
            if module not in _bundled().modules:
                _check_version(module, "", where)
                yield module, f"{where} imports it"
            elif lies := _within(module, folders):
                yield module, f"{where} imports it, and it lies in {lies}"
    for name, where in _named_code(scan, sources):
        if not (name in _bundled().code or _is_trusted(name, trusted)):
            yield name, f"{where} names it, and it is run"
    for binding in scan.bindings:
        source = _source(binding.where)
        if source not in sources:
            continue
        imports = scan.imports.get(source, {})
        if binding.parameter and (name := _strange(binding.selector, imports, trusted)):
            yield name, f"{binding.where} sets {binding.name}"
        for reference in _references(binding.value):
            module, name = _named(reference.selector, imports)
            if (module, name) not in _bundled().references:
                _check_version(module, name, binding.where)
                # `train.os.system` is no part of ckl_jax.train.train: trust is of what it reaches.
                owner = ".".join(filter(None, (module, name.rpartition(".")[0])))
                if not (owner in trusted or owner == module and _is_trusted(module, trusted)):
                    yield owner or reference.selector, f"{binding.where} refers to {name}"


def _check_version(module: str, name: str, where: str) -> None:
    """Refuses a module of this package that is not there, or a name that its text lacks."""
    package, _, inner = module.partition(".")
    if package != ckl_jax.__name__ or not inner:
        return
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # a package that would hold it is missing
        spec = None
    if not (spec and spec.origin) or name.partition(".")[0] not in Path(spec.origin).read_text():
        raise UserError(
            f"{where} names {'.'.join(filter(None, (module, name)))}, which ckl_jax "
            f"{ckl_jax.__version__} does not have: another version wrote this file. Use that "
            'version (checkpoint_<step>/metadata/metadata records it as "ckl_jax"), or write '
            "the present name into the file."
        )


def _folders(scan: gin_scan.Scan) -> set[Path]:
    """The folders of models and runs, without links and `..`."""
    files = [Path(path) for path in scan.roots if Path(path).name in _OF_FOLDERS]
    # A link is part of the folder that it lies in, and so is what it leads to.
    return {file.parent.resolve() for file in files} | {file.resolve().parent for file in files}


def _of_folders(scan: gin_scan.Scan) -> set[str]:
    """The files of folders: those that come with a model, and what they include from anywhere."""
    files, folders = set(), _folders(scan)
    for path, root in scan.roots.items():
        # Resolved: "gin_configs/../../evil.gin" is no bundled file.
        parents = set(Path(path).resolve().parents)
        if gin_files.BUNDLED not in parents:
            # Not resolved: a link may lead out of the folder.
            parents |= {parent.resolve() for parent in Path(path).parents}
            if Path(root).name in _OF_FOLDERS or folders & parents:
                files.add(path)
    return files


def _source(where: str) -> str:
    return where.rpartition(", line ")[0]


def _within(module: str, folders: set[Path]) -> Path | None:
    """The folder that a module would be imported from, if it is one of `folders`."""
    package = module.split(".")[0]
    # A module that is loaded, such as this package, is not imported again.
    spec = None if package in sys.modules else importlib.util.find_spec(package)
    if spec is None:
        return None
    locations = spec.submodule_search_locations or [spec.origin or ""]
    lie_in = (p for x in map(Path, locations) for p in (x.parent.resolve(), x.resolve().parent))
    return next((p for p in lie_in if p in folders), None)


def _named_code(scan: gin_scan.Scan, sources: set[str]) -> Iterator[tuple[str, str]]:
    """(name, where) of the modules and gin files (`_CODE`) that `sources` name.

    Macros are followed.

    Raises:
      UserError: a function makes the name, so that it cannot be checked.
    """
    macros = scan.macros()
    # A model's `module` is one, of linen.
    open_ends = [
        (b, b.selector.rpartition(".")[2] not in _CODE) for b in scan.bindings if _names_code(b)
    ]
    seen: set[tuple[str, bool]] = set()  # a macro may serve both
    while open_ends:
        binding, is_model = open_ends.pop()
        for macro in gin_scan.parts_of(binding.value, gin_scan.Macro):
            if macro.name in macros and (macro.name, is_model) not in seen:
                seen.add((macro.name, is_model))
                open_ends.append((macros[macro.name], is_model))
        if _source(binding.where) not in sources:
            continue
        if not is_model and any(_references(binding.value)):
            raise UserError(
                f"{binding.where}: what {binding.name} names is run, so its name must stand there, "
                "and not a function that makes it."
            )
        for name in gin_scan.parts_of(binding.value, str):
            yield name, binding.where


def _names_code(binding: gin_scan.Binding) -> bool:
    return binding.parameter in _CODE.values()


def _is_trusted(module: str, trusted: set[str]) -> bool:
    parts = module.split(".")
    return any(".".join(parts[:n]) in trusted for n in range(1, len(parts) + 1))


def _named(selector: str, imports: dict[str, str]) -> tuple[str, str]:
    """The module and the name in it that "scope/module.name" means; no module if none is known."""
    bound, _, name = selector.rpartition("/")[2].partition(".")
    module = imports.get(bound, "")
    # `import a.b` binds a, so that `a.b.c` is c of a.b.
    if module.startswith(f"{bound}."):
        name = name.removeprefix(f"{module.removeprefix(f'{bound}.')}.")
    return module, name


def _strange(selector: str, imports: dict[str, str], trusted: set[str]) -> str | None:
    """The module of a bound selector if it lies outside what may be imported, else None."""
    module, name = _named(selector, imports)
    if _is_trusted(module, trusted) or (module in _bundled().modules and "." not in name):
        return None
    return module or selector


def _references(value) -> Iterator[gin_scan.Reference]:
    return gin_scan.parts_of(value, gin_scan.Reference)


class _Bundled:
    """The modules that gin files of this package import, and the names that they refer to."""

    def __init__(self) -> None:
        paths = sorted(gin_files.BUNDLED.rglob("*.gin"))
        self.modules = {module for module, _ in _READERS}
        self.references = set(_READERS)
        bindings: list[gin_scan.Binding] = []
        for path in paths:
            scan = gin_scan.scan_alone(path)
            imports = scan.imports.get(str(path), {})
            self.modules |= set(imports.values())
            bindings += scan.bindings
            for binding in scan.bindings:
                for reference in _references(binding.value):
                    self.references.add(_named(reference.selector, imports))
        naming = [b for b in bindings if _names_code(b)]
        macros = {m.name for b in naming for m in gin_scan.parts_of(b.value, gin_scan.Macro)}
        naming += [b for b in bindings if b.name in macros]
        self.code = {name for b in naming for name in gin_scan.parts_of(b.value, str)}


@functools.cache
def _bundled() -> _Bundled:
    return _Bundled()
