"""Which leaves train: patterns over parameter paths split a tree into two, and back.

The train step differentiates the first tree only, so that a frozen leaf costs neither a
gradient nor optimizer state.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ckl_jax import checks
from ckl_jax.errors import UserError, nearest
from ckl_jax.trees.paths import flatten, unflatten


def select(paths: Sequence[str], patterns: Sequence[str]) -> list[bool]:
    """Decides for each path whether it is selected.

    Args:
      paths: parameter paths such as "decoder/layers_0/mlp/wi/kernel".
      patterns: regular expressions, searched in the path. The *last* one that matches decides;
        one that begins with "!" deselects. `["", "!^encoder/"]` is everything but the encoder.

    Raises:
      UserError: a pattern matches nothing, or is not a regular expression; `patterns` is not a list
        of text.
    """
    # Text is a sequence too, whose characters would each be a pattern.
    checks.require_names(empty=True, patterns=patterns)
    chosen = [False] * len(paths)
    for pattern in patterns:
        deselect = pattern.startswith("!")
        try:
            regex = re.compile(pattern[1:] if deselect else pattern)
        except re.error as e:
            raise UserError(f"Pattern {pattern!r} is not a regular expression: {e}.") from e
        # `search`, not `match`: patterns say "^" where they mean the start of a path.
        hits = [i for i, path in enumerate(paths) if regex.search(path)]
        # A misspelt pattern would otherwise train, or freeze, something else than it says.
        if not hits:
            raise UserError(
                f"Pattern {pattern!r} matches none of the {len(paths)} parameter paths, such as "
                f"{', '.join(sorted(paths)[:: max(1, len(paths) // 3)][:3])}."
                f"{nearest(regex.pattern, paths)}"
            )
        for i in hits:
            chosen[i] = not deselect
    return chosen


def split(params: Mapping[str, Any], patterns: Sequence[str]) -> tuple[dict, dict]:
    """Splits a tree of parameters into (selected, rest); see `select` for the patterns.

    Raises:
      UserError: a pattern matches nothing, or nothing at all is selected.
    """
    flat = flatten(params)
    chosen = select(list(flat), patterns)
    if not any(chosen):
        raise UserError(f"Patterns {list(patterns)} select no parameter: nothing would train.")
    yes = {p: x for (p, x), c in zip(flat.items(), chosen, strict=True) if c}
    no = {p: x for (p, x), c in zip(flat.items(), chosen, strict=True) if not c}
    return unflatten(yes), unflatten(no)


def merge(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Joins two trees that share no leaf: the inverse of `split`."""
    return unflatten({**flatten(first), **flatten(second)})
