"""Compares what gin files bind with the types of the parameters that get it, before a job runs.

A job may train another model before it first reads a setting, so that a value of the wrong type
would be found late, and far from where it was written.
"""

import collections.abc
import functools
import inspect
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any

import gin

import ckl_jax
from ckl_jax import checks
from ckl_jax.config import gin_scan
from ckl_jax.errors import UserError

_LISTS = (list, tuple, collections.abc.Sequence, collections.abc.Collection)
_LISTS = (*_LISTS, collections.abc.Iterable)
_DICTS = (dict, collections.abc.Mapping)
_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "text",
    types.NoneType: "None",
}
_SEVERAL = {int: "whole numbers", float: "numbers", str: "names"}


def check(scan: gin_scan.Scan) -> None:
    """Refuses a value that is not of the type of the parameter of this package that it is bound to.

    Values that refer to a function are left out, for what it returns is not known yet.

    Args:
      scan: what was read; the modules that its files import are imported.

    Raises:
      UserError: with the place of the value and what to give.
    """
    macros = scan.macros()
    values = {name: macro.value for name, macro in macros.items()}
    for binding in {b.name: b for b in scan.bindings if b.parameter}.values():
        setter = binding
        while isinstance(setter.value, gin_scan.Macro) and setter.value.name in macros:
            setter = macros[setter.value.name]
        value = gin_scan.resolved(setter.value, values)
        if any(gin_scan.parts_of(value, gin_scan.Reference | gin_scan.Macro)):
            continue
        hint = _hint(binding, scan)
        if hint is None or _fits(hint, value):
            continue
        shown = repr(value) if len(repr(value)) < 60 else f"a {type(value).__name__}"
        # What the job's own files bind is the best example of an object.
        earlier = (b.value for b in reversed(scan.bindings) if b.name == setter.name)
        example = next((str(x) for x in earlier if isinstance(x, gin_scan.Reference)), "")
        words = " or ".join(dict.fromkeys(_alternatives(hint, value, example)))
        whose = "" if setter is binding else f", for {binding.name}"
        raise UserError(f"{setter.name} is {shown}; give {words} ({setter.where}{whose}).")


def _hint(binding: gin_scan.Binding, scan: gin_scan.Scan) -> Any:
    """The type of the parameter, or None if it is not this package's or has none."""
    target = _target(binding, scan)
    if not getattr(target, "__module__", "").startswith(f"{ckl_jax.__name__}."):
        return None
    parameter = _parameters(target).get(binding.parameter)
    if parameter is None or isinstance(parameter.annotation, str):
        return None
    hint = parameter.annotation
    if hint is parameter.empty:
        return None
    return hint | None if parameter.default is None else hint


@functools.cache
def _parameters(target: Any) -> typing.Mapping[str, inspect.Parameter]:
    return inspect.signature(target).parameters


def _target(binding: gin_scan.Binding, scan: gin_scan.Scan) -> Any:
    """The function or class that a selector means; None if it is not known."""
    first, *rest = binding.selector.split(".")
    value = sys.modules.get(scan.imports.get(binding.file, {}).get(first, ""))
    for part in rest:
        value = getattr(value, part, None)
    if value is None:  # on the command line, which imports nothing
        try:
            known = gin.config._REGISTRY.get_match(binding.selector)
        except KeyError:  # there are two
            return None
        value = known and known.wrapped
    return value if callable(value) else None


def _fits(hint: Any, value: Any) -> bool:
    """Whether a value of a gin file is of a type; lists count as tuples and tuples as lists."""
    origin, kinds = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(kind, value) for kind in kinds)
    if origin in _LISTS:
        return isinstance(value, (list, tuple)) and _each_fits(origin, kinds, value)
    if origin in _DICTS:
        pairs = value.items() if isinstance(value, dict) else ()
        fits = all(_fits(k, x) for pair in pairs for k, x in zip(kinds, pair, strict=False))
        return isinstance(value, dict) and fits
    if origin in _WORDS:
        if isinstance(value, bool):  # which Python counts as a number
            return origin is bool
        return isinstance(value, (int, float) if origin is float else origin)
    try:
        checks.require_type(hint, value=value)
    except UserError:
        return False
    return True


def _each_fits(origin: Any, kinds: tuple[Any, ...], value: list | tuple) -> bool:
    if origin is tuple and kinds and kinds[-1] is not ...:
        same = len(kinds) == len(value)
        return same and all(map(_fits, kinds, value))
    return all(_fits(kinds[0], item) for item in value) if kinds else True


def _alternatives(hint: Any, value: Any = None, example: str = "") -> Iterator[str]:
    """What to give in place of a value, for each member of a type.

    Args:
      hint: the type.
      value: that is not of it.
      example: of an object or a function that is, or "".
    """
    origin, kinds = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        for kind in sorted(kinds, key=lambda kind: kind is types.NoneType):
            yield from _alternatives(kind, value, example)
    elif origin is typing.Literal:
        yield from map(repr, kinds)
    elif origin in _WORDS:
        yield _WORDS[origin]
    elif origin in _LISTS:
        yield _list(origin, kinds, value)
    elif origin in _DICTS:
        yield f"{{{': '.join(map(_in_words, kinds))}}}" if kinds else "a dictionary"
    elif origin is collections.abc.Callable:
        yield f"a function, such as {example or '@module.function'}"
    else:
        module = getattr(hint, "__module__", "module").rpartition(".")[2]
        name = getattr(hint, "__name__", "name")
        yield f"one such as {example or f'@{module}.{name}()'}"


def _list(origin: Any, kinds: tuple[Any, ...], value: Any) -> str:
    if origin is tuple and kinds and kinds[-1] is not ...:
        return f"({', '.join(map(_in_words, kinds))})"
    if not kinds:
        return "a list"
    such_as = f", such as {(value,)!r}" if value is not None and _fits(kinds[0], value) else ""
    if kinds[0] in _SEVERAL:
        return f"a list of {_SEVERAL[kinds[0]]}{such_as}"
    return f"a list{such_as}" if such_as else f"a list, each {_in_words(kinds[0])}"


def _in_words(hint: Any) -> str:
    return " or ".join(dict.fromkeys(_alternatives(hint)))
