"""Conditions such as "a <= 1.05 and b < 1", parsed into comparisons (never evaluated as code)."""

import ast
import dataclasses
import operator
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ckl_jax.errors import UserError, refuse_unknown

Value = float | tuple[float, float]  # or an interval
_Known = tuple[Collection[str], str]  # names, and the hint
_SIGNS: dict[type, tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
_LONGEST = 1000  # characters


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two operands, each a score's name or a number, and the operator."""

    left: str | float
    sign: type
    right: str | float

    def failures(self, values: Mapping[str, Value]) -> list["Comparison"]:
        """Itself, unless it holds of the values; of intervals it must hold from end to end."""
        # "<" must hold of the highest left and the lowest right value.
        is_less = self.sign in (ast.Lt, ast.LtE)
        left, right = _end(self.left, values, is_less), _end(self.right, values, not is_less)
        return [] if _SIGNS[self.sign][1](left, right) else [self]

    def impossible(self, ranges: Mapping[str, tuple[float, float]]) -> list["Comparison"]:
        """Itself, if it holds of no values within ranges."""
        # A condition holds of whole intervals, and so at best of one that is turned round.
        return self.failures({name: ends[::-1] for name, ends in ranges.items()})

    def narrowed(self, ranges: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
        """The ranges, each within the bound that a number sets."""
        (name, *others), narrowed = self.names(), dict(ranges)
        if not others:
            is_left = self.left == name
            number, (low, high) = float(self.right if is_left else self.left), narrowed[name]
            is_less = (self.sign in (ast.Lt, ast.LtE)) == is_left
            narrowed[name] = (low, min(high, number)) if is_less else (max(low, number), high)
        return narrowed

    def names(self) -> list[str]:
        return [x for x in (self.left, self.right) if isinstance(x, str)]

    def __str__(self) -> str:
        left, right = (x if isinstance(x, str) else f"{x:g}" for x in (self.left, self.right))
        return f"{left} {_SIGNS[self.sign][0]} {right}"


@dataclasses.dataclass(frozen=True)
class Condition:
    """Parts of which all ("and") or at least one ("or") must hold."""

    join: str
    parts: tuple["Comparison | Condition", ...]

    def failures(self, values: Mapping[str, Value]) -> list[Comparison]:
        """The comparisons for which it does not hold; [] if it does."""
        return self._joined([part.failures(values) for part in self.parts])

    def impossible(self, ranges: Mapping[str, tuple[float, float]]) -> list[Comparison]:
        """The comparisons that hold of no values within ranges beside the others; [] if all do."""
        ranges = self.narrowed(ranges)
        return self._joined([part.impossible(ranges) for part in self.parts])

    def narrowed(self, ranges: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
        """The ranges, each within the bounds that all parts set."""
        for part in self.parts if self.join == "and" else ():
            ranges = part.narrowed(ranges)
        return dict(ranges)

    def _joined(self, failures: list[list[Comparison]]) -> list[Comparison]:
        # An "or" holds if one part has no failure; else all failures are reported.
        if self.join == "or" and not all(failures):
            return []
        return [failure for part in failures for failure in part]

    def names(self) -> list[str]:
        return [name for part in self.parts for name in part.names()]


def _end(operand: str | float, values: Mapping[str, Value], highest: bool) -> float:
    value = values[operand] if isinstance(operand, str) else operand
    return value[highest] if isinstance(value, tuple) else value


def parse(text: str, names: Collection[str], hint: str) -> Comparison | Condition:
    """Reads a condition.

    Args:
      hint: what to give, for the message.

    Raises:
      UserError: it is anything else than comparisons of names and numbers joined by and, or.
    """
    if len(text) > _LONGEST:
        raise UserError(f"The condition has {len(text):,} characters; give a short one.")
    try:
        # Python warns of odd literals while it parses.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Python's grammar without its evaluation: the tree is read, nothing in it runs.
            tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as e:
        what = getattr(e, "msg", None) or "it cannot be read"
        raise UserError(f"The condition {text!r} is not valid: {what}; {hint}.") from e
    return _condition(tree.body, text, (names, hint))


def _condition(node: ast.expr, text: str, known: _Known) -> Comparison | Condition:
    if isinstance(node, ast.BoolOp):
        join = "and" if isinstance(node.op, ast.And) else "or"
        return Condition(join, tuple(_condition(part, text, known) for part in node.values))
    if not isinstance(node, ast.Compare) or not all(type(sign) in _SIGNS for sign in node.ops):
        raise _refuse(node, text, known[1])
    operands = [_operand(x, text, known) for x in (node.left, *node.comparators)]
    # A chain such as 0.9 < changed < 1 is "and" of its neighbours.
    parts = tuple(map(Comparison, operands, map(type, node.ops), operands[1:]))
    # 1 < 2 compares no ratio, and would decide nothing.
    if not all(part.names() for part in parts):
        raise _refuse(node, text, known[1])
    return parts[0] if len(parts) == 1 else Condition("and", parts)


def _operand(node: ast.expr, text: str, known: _Known) -> str | float:
    if isinstance(node, ast.Name):
        said = f"The condition {text!r} names {node.id!r}; there are"
        refuse_unknown(node.id, known[0], said)
        return node.id
    if isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value < 1e9:
        return float(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        if isinstance(number := _operand(node.operand, text, known), float):
            return -number
    raise _refuse(node, text, known[1])


def _refuse(node: ast.expr, text: str, hint: str) -> UserError:
    part = ast.get_source_segment(text.strip(), node) or text
    return UserError(f"The condition {text!r} has {part!r}, which is not a comparison; {hint}.")
