"""Low-rank adapters of GPT-2 as PEFT has them, where query, key and value are one projection.

Entries of rank r on n of the three are exactly one of rank n r on `c_attn` [D, 3D]: the n A's side
by side, and a B whose r rows of each are zero but in its own third of the columns.

An adapter of rank R on `c_attn` whose B has not that form is R on each of the three, all with the
same A: the same model, with more to train.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ckl_jax.checkpoints import hf_gpt2
from ckl_jax.models.gpt2 import GPT2Config

Pair = tuple[np.ndarray, np.ndarray]  # A [in, r] and B [r, out]

_PARTS = 3
# Which of query (0), key (1) and value (2) an adapter of the whole may be of, in this order.
_CHOICES = ((0, 2), (0, 1, 2), (0,), (1,), (2,), (0, 1), (1, 2))


def places(config: GPT2Config) -> dict[str, tuple[str, int | None]]:
    """{path of a projection here: (the layer's name there, its third of a fused one or None)}."""
    found = {}
    for entry in hf_gpt2.entries(config):
        if entry.path.endswith("/kernel"):
            layer, _, part = entry.name.partition(".weight")
            found[entry.path.removesuffix("/kernel")] = layer, int(part[1:-1]) if part else None
    return found


def shapes(config: GPT2Config) -> dict[str, tuple[int, int]]:
    """{name of a layer there: its kernel's shape [in, out]}."""
    kernels = {e.path.removesuffix("/kernel"): e.shape for e in hf_gpt2.entries(config)}
    found = {}
    for path, (layer, part) in places(config).items():
        inputs, outputs = kernels[path]
        found[layer] = (inputs, outputs if part is None else _PARTS * outputs)
    return found


def fuse(pairs: Mapping[str, Pair], config: GPT2Config) -> dict[str, Pair]:
    """{layer there: pair} of {path here: pair}; ranks are filled up with zeros to the largest."""
    grouped: dict[str, list[tuple[int | None, Pair]]] = {}
    for path, (layer, part) in places(config).items():
        if path in pairs:
            grouped.setdefault(layer, []).append((part, pairs[path]))
    fused = {layer: _side_by_side(parts) for layer, parts in grouped.items()}
    rank = max((a.shape[1] for a, _ in fused.values()), default=0)
    return {layer: _filled_up(pair, rank) for layer, pair in fused.items()}


def _side_by_side(parts: Sequence[tuple[int | None, Pair]]) -> Pair:
    if parts[0][0] is None:
        return parts[0][1]
    rows = []
    for part, (_, b) in parts:
        blocks = [np.zeros_like(b)] * _PARTS
        blocks[part] = b
        rows.append(np.concatenate(blocks, axis=1))
    return np.concatenate([a for _, (a, _) in parts], axis=1), np.concatenate(rows)


def _filled_up(pair: Pair, rank: int) -> Pair:
    a, b = pair
    more = rank - a.shape[1]
    return np.pad(a, ((0, 0), (0, more))), np.pad(b, ((0, more), (0, 0)))


def split(pairs: Mapping[str, Pair], config: GPT2Config) -> dict[str, Pair]:
    """{path here: pair} of {layer there: pair}, all of one rank; see the module."""
    where = {place: path for path, place in places(config).items()}
    whole = {layer for layer, part in where if part is not None}
    rank = next(iter(pairs.values()))[0].shape[1]
    for chosen in _CHOICES:
        r = rank // len(chosen)
        fits = (_fits(*p, chosen, r) if n in whole else _is_of(*p, r) for n, p in pairs.items())
        if rank % len(chosen) == 0 and all(fits):
            break
    else:
        chosen, r = (), rank
    found = {}
    for layer, (a, b) in pairs.items():
        if layer not in whole:
            found[where[layer, None]] = a[:, :r], b[:r]
            continue
        thirds = np.split(b, _PARTS, axis=1)
        for part, rows in _blocks(chosen, r):
            found[where[layer, part]] = a[:, rows], thirds[part][rows]
    return found


def _blocks(chosen: Sequence[int], r: int) -> Iterator[tuple[int, slice]]:
    """(part, its rows of B); with none chosen all parts have all rows."""
    for i, part in enumerate(chosen or range(_PARTS)):
        yield part, slice(i * r, (i + 1) * r) if chosen else slice(0, r)


def _fits(a: np.ndarray, b: np.ndarray, chosen: Sequence[int], r: int) -> bool:
    """Whether B has the form that `_side_by_side` makes."""
    del a
    rest = [third.copy() for third in np.split(b, _PARTS, axis=1)]
    for part, rows in _blocks(chosen, r):
        rest[part][rows] = 0
    return not any(third.any() for third in rest)


def _is_of(a: np.ndarray, b: np.ndarray, r: int) -> bool:
    """Whether a pair is of rank `r`, filled up."""
    return not (a[:, r:].any() and b[r:].any())
