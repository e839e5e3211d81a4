"""Explains failed imports: which package provides the module, and how to install it."""

import importlib
import importlib.util
import pkgutil
import re

from ckl_jax.errors import nearest

_SEQIO = "pip install 'ckl-jax[seqio]'"
_INSTALLED_BY = {  # packages that gin files and task modules often name
    "t5": "pip install --no-deps t5, and see docs/t5x.md for the rest (T5's own tasks)",
    "seqio": _SEQIO,
    "tensorflow": _SEQIO,
    "tensorflow_text": _SEQIO,
    "tensorflow_datasets": _SEQIO,
    "clu": _SEQIO,
}


def missing_in(message: str) -> str | None:
    """The name of the module that a `ModuleNotFoundError` is about."""
    match = re.search(r"No module named '(.*?)'", message)
    return match[1] if match else None


def how_to_get(module: str) -> str:
    """How to install a module, as the end of a message: " The package t5 is not installed: pip
    install t5.".
    """
    top = module.split(".")[0]
    if _is_there(top):
        return _nearest_module(module)
    if command := _INSTALLED_BY.get(top):
        return f" The package {top} is not installed: {command}."
    return (
        f" {top} is neither installed nor in the folder where the command runs: install the "
        f"package that has it, or start the command where it lies.{_nearest_module(module)}"
    )


def _is_there(top: str) -> bool:
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def _nearest_module(name: str) -> str:
    parent, _, last = name.rpartition(".")
    try:
        package = importlib.import_module(parent) if parent else None
        names = [m.name for m in pkgutil.iter_modules(package.__path__ if package else None)]
    except (ImportError, AttributeError):
        return ""
    return nearest(last, names)
