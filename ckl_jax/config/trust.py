"""Restricts gin files that come with a model to the names of this package's own gin files.

A gin file is a program: it imports modules and calls what they hold. The `config.gin` of a run and
the `model.gin` of an imported model come with their folder, which may be a stranger's. They may
import the modules and refer to the functions that the bundled gin files import and refer to;
modules of the user's own, such as that of a method, have to be trusted by name. See
docs/security.md.
"""

import functools
from collections.abc import Iterable, Iterator
from pathlib import Path

from ckl_jax.config import gin_files, gin_scan
from ckl_jax.errors import UserError

ALL = "all"
_OF_FOLDERS = ("config.gin", "model.gin")
# What the `model.gin` of an imported model names besides: the readers of vocabularies.
_READERS = {
    ("ckl_jax.data.text.byte_level", "ByteLevelVocabulary"),
    ("ckl_jax.data.text.byte_vocabulary", "ByteVocabulary"),
    ("ckl_jax.data.text.masked_vocabulary", "MaskedVocabulary"),
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
      UserError: with a list of what they name.
    """
    trusted = set(trusted)
    sources = set() if ALL in trusted else _of_folders(scan)
    wanted: dict[str, str] = {}
    for source in sources:
        for bound, module in scan.imports.get(source, {}).items():
            if module not in _bundled().modules and not _is_trusted(module, trusted):
                wanted.setdefault(module, f"{source} imports {bound}")
    for binding in scan.bindings:
        source = binding.where.rpartition(", line ")[0]
        if source not in sources:
            continue
        imports = scan.imports.get(source, {})
        if binding.parameter and (name := _strange(binding.selector, imports, trusted)):
            wanted.setdefault(name, f"{binding.where} sets {binding.name}")
        for reference in _references(binding.value):
            module, name = _named(reference.selector, imports)
            known = (module, name) in _bundled().references or _is_trusted(module, trusted)
            if not known:
                wanted.setdefault(module or reference.selector, f"{binding.where} refers to {name}")
        module = binding.value if binding.parameter == "module" else None
        if isinstance(module, str) and not _is_trusted(module, trusted):
            wanted.setdefault(module, f"{binding.where} imports it")
    if wanted:
        listed = "; ".join(f"{module} ({where})" for module, where in wanted.items())
        raise UserError(
            f"Gin files that come with a model could run a stranger's code, and this names "
            f"what is not trusted: {listed}. Read it, and if the code is yours add "
            f"--trust-imports={','.join(wanted)}."
        )


def _of_folders(scan: gin_scan.Scan) -> set[str]:
    """The files of folders: those that come with a model, and what they include from anywhere."""
    folders = {Path(path).parent for path in scan.roots if Path(path).name in _OF_FOLDERS}
    return {
        path
        for path, root in scan.roots.items()
        if gin_files.BUNDLED not in Path(path).parents
        and (Path(root).name in _OF_FOLDERS or folders & set(Path(path).parents))
    }


def _is_trusted(module: str, trusted: set[str]) -> bool:
    parts = module.split(".")
    return any(".".join(parts[:n]) in trusted for n in range(1, len(parts) + 1))


def _named(selector: str, imports: dict[str, str]) -> tuple[str, str]:
    """The module and the name in it that "scope/module.name" means; no module if none is known."""
    bound, _, name = selector.rpartition("/")[2].partition(".")
    return imports.get(bound, ""), name


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
        for path in paths:
            scan = gin_scan.scan_alone(path)
            imports = scan.imports.get(str(path), {})
            self.modules |= set(imports.values())
            for binding in scan.bindings:
                for reference in _references(binding.value):
                    self.references.add(_named(reference.selector, imports))


@functools.cache
def _bundled() -> _Bundled:
    return _Bundled()
