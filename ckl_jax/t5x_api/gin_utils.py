"""`t5x.gin_utils`: helpers that gin files compute values with."""

from collections.abc import Sequence
from typing import Any


def summarize_gin_config(*unused: Any, **also_unused: Any) -> None:
    """Every run writes `config.gin` and shows it in TensorBoard; this name is for gin files."""


def sum_fn(var1: Any, var2: Any) -> Any:
    """var1 + var2."""
    return var1 + var2


def bool_fn(var1: Any) -> bool:
    """Whether `var1` counts as true."""
    return bool(var1)


def string_split_fn(text: str, separator: str, maxsplit: int = -1, index: int | None = None):
    """The parts of a text, or the one of number `index`."""
    parts: Sequence[str] = text.split(separator, maxsplit)
    return parts if index is None else parts[index]
