"""User functions given as `module:function` on the command line.

They are called with lists and return a list of the same length, so that a model can work in
batches.
"""

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.errors import UserError
from ckl_jax.files import sha256

PlugIn = Callable[..., list[str]]


def import_from_here() -> None:
    """Puts the working directory first on the module search path, as `python -m` does.

    A user's `tasks` or `data` module is then theirs, whatever is installed under that name.
    """
    here = os.getcwd()
    sys.path[:] = [here, *(path for path in sys.path if path != here)]


def modules_here() -> dict[str, str]:
    """{file: SHA-256} of the imported modules of the working directory, which are the user's."""
    here, modules = Path.cwd(), list(sys.modules.values())
    places = {Path(file) for m in modules if (file := getattr(m, "__file__", None))}
    own = (p for p in places if p.suffix == ".py" and p.is_relative_to(here) and p.is_file())
    named = {path.relative_to(here): path for path in own}
    # Python, a virtual environment or a clone of this project may lie there too.
    others = {"site-packages", "dist-packages", "ckl_jax", Path(os.__file__).parent.name}
    return {str(n): sha256(p) for n, p in sorted(named.items()) if others.isdisjoint(n.parts)}


def find_here(modules: Iterable[str]) -> None:
    """Lets these modules, and no others, be found in the working directory, before what is
    installed.

    Of a folder that others have filled, no other file takes the place of an installed module.
    """
    names = {module.split(".")[0] for module in modules}
    sys.meta_path.insert(0, _Here(os.getcwd(), names))


class _Here(importlib.abc.MetaPathFinder):
    def __init__(self, folder: str, names: Collection[str]):
        self._folder, self._names = folder, names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if path is None and name in self._names:
            return importlib.machinery.PathFinder.find_spec(name, [self._folder])
        return None


def load(name: str, flag: str) -> PlugIn | None:
    """Returns the function "package.module:function", with its results checked; None for "".

    A module is also found in the current folder.

    Raises:
      UserError: there is no such function. What it returns is checked when it is called.
    """
    if not name:
        return None
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise UserError(f"{flag} is {name!r}; give module:function.")
    import_from_here()
    try:
        function = getattr(importlib.import_module(module), attribute)
    except Exception as e:  # the user's module may raise anything
        raise UserError(f"{flag}: {name!r} cannot be loaded ({type(e).__name__}: {e}).") from e
    if not callable(function):
        raise UserError(f"{flag}: {name!r} is not a function, but a {type(function).__name__}.")
    return _checked(function, flag)


def _checked(function: Callable[..., Any], flag: str) -> PlugIn:
    def call(*arguments: Sequence[str]) -> list[str]:
        try:
            result = function(*map(list, arguments))
        except Exception as e:
            raise UserError(f"{flag}: the function raised {type(e).__name__}: {e}.") from e
        wanted = len(arguments[0])
        right = isinstance(result, list | tuple) and len(result) == wanted
        if not right or not all(isinstance(r, str | None) for r in result):
            raise UserError(
                f"{flag}: the function must return a list of {wanted} texts, one for each that it "
                f'is given (None or "" drops one); it returned {str(result)[:60]!r}.'
            )
        return [" ".join((r or "").split()) for r in result]

    return call
