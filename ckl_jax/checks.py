"""Checks of single settings: each complaint names the setting and the value it has."""

import ast
import functools
import inspect
import json
import math
import os
import re
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax import __version__
from ckl_jax.errors import UserError, nearest, refuse_unknown

LARGEST = 2**63 - 1  # that NumPy and files hold
MAX_ROWS = 2**16  # of a batch


def require_int(minimum: int = 1, maximum: int = LARGEST, /, **values: Any) -> None:
    """Raises `UserError` unless each of `values` is None or an int in [minimum, maximum]."""
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
            raise UserError(f"{name} is {value!r}; give a whole number, {minimum} or more.")
        if value < minimum:
            raise UserError(f"{name} is {value}; give {minimum} or more.")
        if value > maximum:
            raise UserError(f"{name} is {value}; give {maximum:,} or less.")


def require_vocabulary(**values: Any) -> None:
    """Raises `UserError` for a vocabulary that is the path of one, or plain data."""
    for name, value in values.items():
        if isinstance(value, (int, float, complex, bytes, list, tuple, dict)):
            raise UserError(
                f"{name} is {value!r} and no vocabulary; bind {name} = @vocabularies.Vocabulary()."
            )
        if isinstance(value, (str, os.PathLike)):
            raise UserError(
                f"{name} is the path {os.fspath(value)!r} and no vocabulary; bind {name} = "
                f"@vocabularies.Vocabulary() and vocabularies.Vocabulary.path = "
                f"{os.fspath(value)!r} in its place."
            )


def need_vocabulary(vocabulary: Any, what: str) -> Any:
    """The vocabulary; raises `UserError` for None, which `what` cannot do without."""
    if vocabulary is None:
        raise UserError(
            f"VOCABULARY is None, and {what} cannot do without; bind VOCABULARY = "
            "@vocabularies.Vocabulary()."
        )
    return vocabulary


def require_size(**values: Any) -> None:
    """Raises `UserError` unless each of `values` is a whole number in [1, 2**31), and not None."""
    for name, value in values.items():
        if value is None:
            raise UserError(f"{name} is None; give a whole number, 1 or more.")
        require_int(1, 2**31 - 1, **{name: value})


def require_ints(minimum: int = 1, **values: Any) -> None:
    """Raises `UserError` unless each of `values` is a list of whole numbers, and not empty."""
    for name, value in values.items():
        if isinstance(value, str) or not isinstance(value, Sequence) or not value:
            raise UserError(
                f"{name} is {value!r}; give whole numbers of {minimum} or more, such as "
                f"({minimum},)."
            )
        for number in value:
            require_int(minimum, **{f"a number of {name}, {value!r},": number})
            if number is None:
                raise UserError(f"{name} is {value!r}; give whole numbers of {minimum} or more.")


def require_names(choices: Iterable[str] = (), empty: bool = False, **values: Any) -> None:
    """Raises `UserError` unless each of `values` is a list of text.

    Args:
      choices: the names that there are; () is any.
      empty: whether an empty list passes.
      **values: lists by the name of the setting.
    """
    choices = list(choices)
    for name, value in values.items():
        is_list = isinstance(value, Sequence) and not isinstance(value, str)
        if not is_list or not (value or empty) or not all(isinstance(v, str) for v in value):
            example = (value if isinstance(value, str) and value else (*choices, "name")[0],)
            raise UserError(f"{name} is {value!r}; give a list of names, such as {example!r}.")
        for entry in value:
            if choices:
                refuse_unknown(entry, choices, f"{name} has {entry!r}, which is none of")


def require_choice(choices: Iterable[str | None], **values: Any) -> None:
    """Raises `UserError` unless each of `values` is one of `choices`."""
    choices = list(choices)
    for name, value in values.items():
        if value not in choices:
            raise UserError(
                f"{name} is {value!r}; choose from {', '.join(map(str, choices))}."
                f"{nearest(str(value), map(str, choices))}"
            )


def require_number(what: str, low: float, high: float = math.inf, **values: Any) -> None:
    """Raises `UserError` unless each of `values` is a finite number in [low, high).

    Args:
      what: how to say that, such as "a number in [0, 1)".
      low, high: the bounds.
      **values: numbers by the name of the setting; None passes.
    """
    for name, value in values.items():
        if value is None:
            continue
        number = isinstance(value, (int, float, np.integer, np.floating))
        if isinstance(value, bool) or not number or not (low <= value < high):
            raise UserError(f"{name} is {value!r}; give {what}.")


def require_positive(**values: Any) -> None:
    """Raises `UserError` unless each of `values` is a finite number above 0, or None."""
    require_number("a finite number above 0", math.ulp(0.0), **values)


def require_fraction(**values: Any) -> None:
    """Raises `UserError` unless each of `values` is a number above 0 and at most 1, or None."""
    require_number("a number in (0, 1]", math.ulp(0.0), math.nextafter(1.0, 2.0), **values)


def require_bool(**values: Any) -> None:
    """Raises `UserError` unless each of `values` is True or False."""
    for name, value in values.items():
        if not isinstance(value, bool):
            raise UserError(f"{name} is {value!r}; give True or False.")


def require_folder(**values: Any) -> None:
    """Raises `UserError` for a path among `values` that can be no folder; it need not exist."""
    for name, value in values.items():
        if os.path.isfile(value):
            raise UserError(f"{name} is {value}, which is a file; give a folder.")
        for path in (Path(value), *Path(value).parents):
            if path.is_symlink() and not path.exists():
                raise UserError(
                    f"{name} is {value}, but the link {path} leads nowhere; choose another."
                )
            if os.path.lexists(path):
                if not path.is_dir():
                    raise UserError(f"{name} is {value}, but {path} is no folder; choose another.")
                if path != Path(value) and not os.access(path, os.W_OK | os.X_OK):
                    raise UserError(f"{name} is {value}, but nothing can be written in {path}.")
                break


def require_text(**values: Any) -> None:
    """Raises `UserError` unless each of `values` is text or a path that a file system can have."""
    for name, value in values.items():
        text = isinstance(value, (str, os.PathLike)) and os.fspath(value)
        if not text or not text.strip() or "\0" in text:
            raise UserError(f"{name} is {value!r}; give the name of a folder, as text.")


def require_texts(**values: Any) -> None:
    """Raises `UserError` unless each of `values` is a list of what `require_text` takes."""
    for name, value in values.items():
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise UserError(f"{name} is {value!r}; give a list of folders, such as ('data',).")
        for entry in value:
            require_text(**{f"one of {name}": entry})


def require_literals(function: str, macros: Mapping[str, Any]) -> None:
    """Raises `UserError` unless each value of `macros` can stand in a gin file."""
    for name, value in macros.items():
        try:
            is_literal = ast.literal_eval(repr(value)) == value
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            is_literal = False
        if not is_literal or isinstance(value, set | bytes | complex):
            raise UserError(
                f"{name} of {function}() is {value!r}, which cannot stand in a gin file: give "
                "text, a number, True, False, None, or a list, tuple or dict of these; methods and "
                "models are chosen by gin files."
            )


def require_lengths(
    lengths: Any,
    name: str = "TASK_FEATURE_LENGTHS",
    features: Sequence[str] = ("inputs", "targets"),
) -> None:
    """Raises `UserError` unless `lengths` gives a whole number for each of `features`."""
    example = f"give it as {dict.fromkeys(features, 350)}"
    if not isinstance(lengths, Mapping):
        raise UserError(f"{name} is {lengths!r}; {example}.")
    if missing := [f for f in features if f not in lengths]:
        raise UserError(f"{name} lacks {missing}; {example}.")
    for feature in features:
        value = lengths[feature]
        if value is None:
            raise UserError(f"{name}[{feature!r}] is None; {example}.")
        require_int(**{f"{name}[{feature!r}]": value})


def require_lengths_of(probes: Iterable[str], minimum: int, **values: Any) -> None:
    """Raises `UserError` unless each of `values` gives probes, or "*", whole numbers.

    Args:
      probes: their names.
      minimum: of the numbers.
      **values: mappings by the name of the setting.
    """
    probes = (*probes, "*")
    for name, lengths in values.items():
        if not isinstance(lengths, Mapping):
            raise UserError(f"{name} is {lengths!r}; give {{'*': 16}}, or lengths by probe.")
        require_names(probes, empty=True, **{f"{name}'s keys": list(lengths)})
        for probe, length in lengths.items():
            if length is None:
                raise UserError(f"{name}[{probe!r}] is None; give a whole number.")
            require_int(minimum, **{f"{name}[{probe!r}]": length})


def refuse_newer(where: str, version: Any) -> None:
    """Raises `UserError` for what a newer version of this package wrote; old ones recorded none."""
    theirs, ours = (re.findall(r"\d{1,9}", str(v))[:2] for v in (version, __version__))
    if [*map(int, theirs)] > [*map(int, ours)]:
        raise UserError(
            f"{where} was written by ckl_jax {version}, which is newer than this one "
            f"({__version__}); install that version to open it."
        )


def require_fields(where: str, row: Mapping[str, Any], kinds: Mapping[str, Any], do: str) -> None:
    """Raises `UserError` for what is no JSON object, lacks a field or has one of another type.

    Args:
      where: file, and line if it has several.
      kinds: {field: type, tuple of kinds, [kind of each element], {"*": kind of each value}, or
        {field: kind}}.
      do: what to do about it.
    """
    if not isinstance(row, Mapping):
        raise UserError(f"{where}: {json.dumps(row)[:40]} is not a JSON object {{...}}; {do}.")
    for name, kind in kinds.items():
        if not _fits(row.get(name), kind):
            shown = repr(row.get(name))
            shown = shown if len(shown) < 60 else f"{shown[:50]} ..."
            what = "is missing" if name not in row else f"has the value {shown}"
            raise UserError(f"{where}: the field {name!r} {what}; {do}.")


def _fits(value: Any, kind: Any) -> bool:
    match kind:
        case [each]:
            return isinstance(value, list) and all(_fits(x, each) for x in value)
        case {"*": each}:
            return isinstance(value, dict) and all(_fits(x, each) for x in value.values())
        case dict():
            return isinstance(value, dict) and all(_fits(value.get(n), x) for n, x in kind.items())
        case tuple():
            return any(_fits(value, each) for each in kind)
    if isinstance(value, bool):  # which Python counts as a number
        return bool in (kind, *typing.get_args(kind))
    return isinstance(value, kind)


_MODULE = re.compile(r"\b(collections\.abc|typing|os)\.")


def require_type(hint: Any, **values: Any) -> None:
    """Raises `UserError` for a value that is not of the type `hint`."""
    import typeguard

    kinds = (hint, *typing.get_args(hint))
    numbers_alone = (int in kinds or float in kinds) and bool not in kinds
    for name, value in values.items():
        try:
            if isinstance(value, bool) and numbers_alone:  # which Python counts as a number
                raise typeguard.TypeCheckError("a bool")
            every = typeguard.CollectionCheckStrategy.ALL_ITEMS
            typeguard.check_type(value, hint, collection_check_strategy=every)
        except typeguard.TypeCheckError:
            shown = hint.__name__ if isinstance(hint, type) else _MODULE.sub("", str(hint))
            what = repr(value) if len(repr(value)) < 60 else f"a {type(value).__name__}"
            raise UserError(f"{name} is {what}; give {shown}.") from None


_F = typing.TypeVar("_F", bound=Callable)


def typed(function: _F) -> _F:
    """Makes a function refuse arguments of other types than its annotations, if these are no text.

    Raises:
      UserError: by the function that is returned; see `require_type`.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            parameter = signature.parameters[name]
            unchecked = parameter.annotation is parameter.empty, parameter.kind is _KEYWORDS
            if not any(unchecked) and not isinstance(parameter.annotation, str):
                where = f"{name} of {function.__name__}()"
                require_type(parameter.annotation, **{where: value})
        return function(*args, **kwargs)

    return typing.cast(_F, call)


_KEYWORDS = inspect.Parameter.VAR_KEYWORD
_Settings = typing.TypeVar("_Settings")


def settings(function: str, cls: type[_Settings], given: Mapping[str, Any]) -> _Settings:
    """A dataclass of settings that a function was given by name.

    Lists become tuples, paths text and numbers of NumPy Python's.

    Raises:
      UserError: the class has no such field, or one of another type; or what the class refuses.
    """
    hints = typing.get_type_hints(cls)
    values = {}
    for name, value in given.items():
        refuse_unknown(name, sorted(hints), f"{function}() has no {name!r}; there are")
        match value:
            case list():
                value = tuple(value)
            case os.PathLike():
                value = os.fspath(value)
            case np.generic():
                value = value.item()
        if not isinstance(value, Mapping):  # a class may take one for NAME=VALUE
            require_type(hints[name], **{f"{name} of {function}()": value})
        values[name] = value
    return cls(**values)
