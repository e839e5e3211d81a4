"""Locates and describes errors raised by a user's own code, for errors of one sentence.

Task modules, preprocessors and metrics are written by users and called through gin, SeqIO and
TensorFlow, whose tracebacks are long and whose messages carry tracebacks of their own.
"""

import dis
import inspect
import re
import sysconfig
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

TRACEBACK_VARIABLE = "CKL_JAX_TRACEBACK"  # set to 1, the command line prints tracebacks too
_LIBRARIES = (
    *{str(Path(path).resolve()) for path in sysconfig.get_paths().values()},
    str(Path(__file__).resolve().parent.parent),
)
_IN_TEXT = re.compile(r'File "([^"\n]+)", line (\d+), in (\w+|<\w+>)')
_ERROR = re.compile(r"^\s*((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)\b.*)$", re.MULTILINE)
_CALL = re.compile(r"(?:[\w<>]+\.)*([\w<>]+)\(\) (?:missing|takes|got) ")
_TENSORFLOW = re.compile(
    r"^(\s*\{\{[^}]*\}\}|\w+:: )+\s*(Error in user-defined function passed to \S+ transformation "
    r"with iterator: \S+ )?"
)


def place(error: BaseException) -> str | None:
    """Describes the innermost frame in user code (no library's, not this package's), or None."""
    location = None
    for each in chain(error):
        if isinstance(each, SyntaxError) and each.filename and not _is_library(each.filename):
            return f"{each.filename}, line {each.lineno}"
        for frame in traceback.extract_tb(each.__traceback__):
            location = _place(frame.filename, frame.lineno, frame.name) or location
        for file, line, name in _IN_TEXT.findall(str(each)):
            location = _place(file, line, name) or location
    return location


def report(error: BaseException) -> str | None:
    """The traceback of an error from the user's own frame on, and one sentence; or None."""
    where = place(error)
    if where is None:
        called = next(filter(None, map(_called, chain(error))), None)
        return called and f"{called} failed: {described(error)}."
    shown = part = traceback.TracebackException.from_exception(error)
    while part is not None:
        own = (i for i, frame in enumerate(part.stack) if not _is_library(frame.filename))
        del part.stack[: next(own, 0)]
        part = part.__cause__ or part.__context__
    return f"{''.join(shown.format())}{where} failed: {described(error)}."


def _called(error: BaseException) -> str | None:
    """The user's function that was called with arguments that it does not take, or None.

    Of such a call there is no frame of the function's own.
    """
    call = _CALL.match(str(error)) if isinstance(error, TypeError) else None
    if call is None or error.__traceback__ is None:
        return None
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    # The function, or what has it as a method or as a field: `self.method.init_opt_state`.
    known = list(frame.f_locals.values())
    known += _fields(known)
    methods = [inspect.getattr_static(value, call[1], None) for value in known]
    every = (*known, *methods, *_fields(known))
    named = [f for f in every if getattr(f, "__name__", "") == call[1]]
    return next(iter(definitions(named)), None)


def _fields(values: Iterable[Any]) -> list[Any]:
    held = (x if isinstance(x, Mapping) else getattr(x, "__dict__", {}) for x in values)
    return [field for fields in held for field in fields.values()]


def use(name: str, functions: Iterable[Callable[..., Any]]) -> str | None:
    """The line at which users' `functions`, or functions of their file, use `name`; or None."""
    for function in functions:
        for code in _codes(function):
            for instruction in dis.get_instructions(code):
                if instruction.argval == name and instruction.positions:
                    line = instruction.positions.lineno
                    if location := _place(code.co_filename, line, code.co_name):
                        return location
    return None


def definitions(functions: Iterable[Callable[..., Any]]) -> list[str]:
    """Describes where those of `functions` that are users' own are defined."""
    codes = [code for function in functions for code in list(_codes(function))[:1]]
    locations = (_place(code.co_filename, code.co_firstlineno, code.co_name) for code in codes)
    return [place for place in locations if place]


def _codes(function: Callable[..., Any]) -> Iterator[types.CodeType]:
    """The code of a function, of those within it, and of those of its file that they name."""
    function = inspect.unwrap(getattr(function, "func", function))
    own = list(_nested(getattr(function, "__code__", None)))
    yield from own
    names = {name for code in own for name in code.co_names}
    for name in sorted(names & getattr(function, "__globals__", {}).keys()):
        code = getattr(function.__globals__[name], "__code__", None)
        if code is not None and code.co_filename == own[0].co_filename:
            yield from _nested(code)


def _nested(code: types.CodeType | None) -> Iterator[types.CodeType]:
    if code is not None:
        yield code
        for inner in code.co_consts:
            if isinstance(inner, types.CodeType):
                yield from _nested(inner)


def described(error: BaseException) -> str:
    """The first error of the chain, "KeyError: 'inputs'", without the tracebacks in its text."""
    *_, first = chain(error)
    text = str(first)
    within = _ERROR.findall(text) if "Traceback" in text or "in user code" in text else []
    if within:
        return within[-1].rstrip(" .")
    message = _TENSORFLOW.sub("", getattr(first, "message", None) or text)
    line = next((part.strip() for part in message.split("\n") if part.strip()), "")
    name = type(first).__name__
    return f"{name}: {line.rstrip('.')}" if line else name


def chain(error: BaseException) -> Iterator[BaseException]:
    """`error` and its causes, ending with the first."""
    seen = None
    while error is not None and error is not seen:
        yield error
        seen, error = error, error.__cause__


def raised_in_package(error: BaseException) -> bool:
    """Whether this package's code raised the first error of the chain."""
    *_, first = chain(error)
    frames = traceback.extract_tb(first.__traceback__)
    return bool(frames) and str(Path(frames[-1].filename).resolve()).startswith(_LIBRARIES[-1])


def _place(file: str, line: int | str | None, name: str) -> str | None:
    if _is_library(file):
        return None
    where = f"{file}, line {line}"
    return where if name.startswith("<") else f"{name} ({where})"


def _is_library(file: str) -> bool:
    if file.startswith("<") or "__autograph_generated" in file:
        return True
    return str(Path(file).resolve()).startswith(_LIBRARIES)
