"""Packed rows: several short examples in one row, which do not see each other."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

# The feature that says, from 1, of which example of its row each token of another feature is.
SEGMENTS = {"inputs": "input_segments", "targets": "segments"}


def pack(
    examples: Iterable[Mapping[str, Sequence[int]]], lengths: Mapping[str, int]
) -> Iterator[dict[str, list[int]]]:
    """Yields rows of as many whole examples as fit, in order; no example is split.

    Args:
      examples: feature to tokens, at most as many as `lengths` says.
      lengths: feature to the tokens of a row at most.

    Yields:
      The features of `lengths`, and the `SEGMENTS` of each.
    """
    row: dict[str, list[int]] = {}
    count = 0
    for example in examples:
        if row and any(len(row[n]) + len(example[n]) > most for n, most in lengths.items()):
            yield row
            row = {}
        if not row:
            row, count = {n: [] for f in lengths for n in (f, SEGMENTS[f])}, 0
        count += 1
        for name in lengths:
            row[name].extend(example[name])
            row[SEGMENTS[name]].extend([count] * len(example[name]))
    if row:
        yield row


def row_features(features: Sequence[str], packed: bool) -> tuple[str, ...]:
    """The features of rows, with those that `pack` adds."""
    return (*features, *(SEGMENTS[name] for name in features if packed))
