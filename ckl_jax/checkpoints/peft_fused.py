"""Low-rank adapters where query, key and value are one projection at Hugging Face, as in GPT-2.

Entries of rank r on n of the three are exactly one of rank n r on `c_attn` [D, 3D]: the n A's side
by side, and a B whose r rows of each are zero but in its own third of the columns.

An adapter of rank R on `c_attn` whose B has not that form is R on each of the three, all with the
same A: the same model, with more to train.

A `Layer` is the layer's name there, and for a fused one which third of it a projection is. Table
rows (`hf_entry.Entry`) name the thirds `<layer>.weight[0]` to `[2]`.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ckl_jax.checkpoints.hf_entry import Entry

Layer = tuple[str, int | None]
Pair = tuple[np.ndarray, np.ndarray]  # A [in, r] and B [r, out]

_PARTS = 3
# Which of query (0), key (1) and value (2) an adapter of the whole may be of, in this order.
_CHOICES = ((0, 2), (0, 1, 2), (0,), (1,), (2,), (0, 1), (1, 2))


def layers(entries: Sequence[Entry]) -> dict[str, Layer]:
    """{path of a projection here: its layer} of a table of parameters."""
    found = {}
    for entry in entries:
        if entry.path.endswith("/kernel"):
            layer, _, part = entry.name.partition(".weight")
            found[entry.path.removesuffix("/kernel")] = layer, int(part[1:-1]) if part else None
    return found


def shapes(entries: Sequence[Entry]) -> dict[str, tuple[int, int]]:
    """{name of a layer there: its kernel's shape [in, out]}."""
    kernels = {e.path.removesuffix("/kernel"): e.shape for e in entries}
    result = {}
    for path, (layer, part) in layers(entries).items():
        inputs, outputs = kernels[path]
        result[layer] = (inputs, outputs if part is None else _PARTS * outputs)
    return result


def fuse(pairs: Mapping[str, Pair], layer_of: Mapping[str, Layer]) -> dict[str, Pair]:
    """{layer there: pair} of {path here: pair}.

    Where a model has fused layers, ranks are filled up with zeros to the largest.
    """
    grouped: dict[str, list[tuple[int | None, Pair]]] = {}
    for path, (layer, part) in layer_of.items():
        if path in pairs:
            grouped.setdefault(layer, []).append((part, pairs[path]))
    fused = {layer: _side_by_side(parts) for layer, parts in grouped.items()}
    if not _fused_layers(layer_of):
        return fused
    # PEFT has one rank for all layers; a zero column of A with a zero row of B adds nothing.
    rank = max((a.shape[1] for a, _ in fused.values()), default=0)
    return {layer: _filled_up(pair, rank) for layer, pair in fused.items()}


def _fused_layers(layer_of: Mapping[str, Layer]) -> set[str]:
    return {layer for layer, part in layer_of.values() if part is not None}


def _side_by_side(parts: Sequence[tuple[int | None, Pair]]) -> Pair:
    if parts[0][0] is None:
        return parts[0][1]
    rows = []
    for part, (_, b) in parts:
        # B_i acts on its own third of the output only.
        blocks = [np.zeros_like(b)] * _PARTS
        blocks[part] = b
        rows.append(np.concatenate(blocks, axis=1))
    return np.concatenate([a for _, (a, _) in parts], axis=1), np.concatenate(rows)


def _filled_up(pair: Pair, rank: int) -> Pair:
    a, b = pair
    more = rank - a.shape[1]
    return np.pad(a, ((0, 0), (0, more))), np.pad(b, ((0, more), (0, 0)))


def split(pairs: Mapping[str, Pair], layer_of: Mapping[str, Layer]) -> dict[str, Pair]:
    """{path here: pair} of {layer there: pair}, all of one rank; the inverse of `fuse`."""
    where = {layer: path for path, layer in layer_of.items()}
    whole = _fused_layers(layer_of)
    if not whole:
        return {path: pairs[layer] for path, (layer, _) in layer_of.items() if layer in pairs}
    rank = next(iter(pairs.values()))[0].shape[1]
    # The first form that every layer has; (query, value) is the papers' choice.
    for chosen in _CHOICES:
        r = rank // len(chosen)
        fits = (_fits(*p, chosen, r) if n in whole else _is_of(*p, r) for n, p in pairs.items())
        if rank % len(chosen) == 0 and all(fits):
            break
    else:
        # No block form: each third gets the whole A and its own columns of B.
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
    # What is left of B outside the blocks must be zero.
    rest = [third.copy() for third in np.split(b, _PARTS, axis=1)]
    for part, rows in _blocks(chosen, r):
        rest[part][rows] = 0
    return not any(third.any() for third in rest)


def _is_of(a: np.ndarray, b: np.ndarray, r: int) -> bool:
    """Whether a pair is of rank `r`, filled up."""
    return not (a[:, r:].any() and b[r:].any())
