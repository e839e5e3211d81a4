"""LoRA of query, key and value where Hugging Face has one layer of all three, as GPT-2's `c_attn`.

Three adapters of rank r on n of the three are exactly one of rank n r on the fused layer: the n A's
side by side, and a B whose r rows of each are zero but in its own columns. Which columns those are
differs: thirds (GPT-2), unequal blocks (Phi-3), or every head's own (Pythia, BLOOM).

An adapter of rank R on a fused layer whose B has not that form is R on each of its parts, all with
the same A: the same model, with more to train.

A `Layer` is the layer's name there, and for a fused one which part of it a projection is. Table
rows (`hf_entry.Entry`) name the parts `<layer>.weight[0]` and so on.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ckl_jax.checkpoints.architecture import Config, HuggingFace
from ckl_jax.checkpoints.hf_entry import Entry

Layer = tuple[str, int | None]
Pair = tuple[np.ndarray, np.ndarray]  # A [in, r] and B [r, out]
Columns = Mapping[str, Sequence[np.ndarray]]  # of each part of a fused layer: its outputs


def layers(entries: Sequence[Entry]) -> dict[str, Layer]:
    """{path of a projection here: its layer} of a table of parameters."""
    layer_of = {}
    for entry in entries:
        if entry.path.endswith("/kernel"):
            layer, _, part = entry.name.partition(".weight")
            layer_of[entry.path.removesuffix("/kernel")] = layer, int(part[1:-1]) if part else None
    return layer_of


def shapes(entries: Sequence[Entry]) -> dict[str, tuple[int, int]]:
    """{name of a layer there: its kernel's shape [in, out]}."""
    kernels = {e.path.removesuffix("/kernel"): e.shape for e in entries}
    result: dict[str, tuple[int, int]] = {}
    for path, (layer, _) in layers(entries).items():
        inputs, outputs = kernels[path]
        result[layer] = inputs, outputs + result.get(layer, (0, 0))[1]
    return result


def columns(form: HuggingFace, config: Config, entries: Sequence[Entry]) -> Columns:
    """The outputs of each part of the fused layers: `form.view` applied to their numbers."""
    fused = {e.name.partition(".weight[")[0]: e for e in entries if ".weight[" in e.name}
    by_layer = {}
    for layer, (_, outputs) in shapes(entries).items():
        if layer in fused:
            numbers = np.arange(outputs)
            numbers = numbers[:, None] if fused[layer].transposed else numbers[None]
            parts = form.view({f"{layer}.weight": numbers}, config)
            by_layer[layer] = [parts[name].ravel() for name in parts]
    return by_layer


def fuse(
    pairs: Mapping[str, Pair], layer_of: Mapping[str, Layer], of_parts: Columns
) -> dict[str, Pair]:
    """{layer there: pair} of {path here: pair}.

    Where a model has fused layers, ranks are filled up with zeros to the largest.
    """
    grouped: dict[str, list[tuple[int | None, Pair]]] = {}
    for path, (layer, part) in layer_of.items():
        if path in pairs:
            grouped.setdefault(layer, []).append((part, pairs[path]))
    fused = {
        layer: _side_by_side(parts, of_parts[layer]) if layer in of_parts else parts[0][1]
        for layer, parts in grouped.items()
    }
    if not of_parts:
        return fused
    # PEFT has one rank for all layers; a zero column of A with a zero row of B adds nothing.
    rank = max((a.shape[1] for a, _ in fused.values()), default=0)
    return {layer: _filled_up(pair, rank) for layer, pair in fused.items()}


def _side_by_side(parts: Sequence[tuple[int, Pair]], of_parts: Sequence[np.ndarray]) -> Pair:
    rows = []
    for part, (_, b) in parts:
        whole = np.zeros((len(b), sum(map(len, of_parts))), b.dtype)
        whole[:, of_parts[part]] = b  # B_i acts on its own outputs only
        rows.append(whole)
    return np.concatenate([a for _, (a, _) in parts], axis=1), np.concatenate(rows)


def _filled_up(pair: Pair, rank: int) -> Pair:
    a, b = pair
    more = rank - a.shape[1]
    return np.pad(a, ((0, 0), (0, more))), np.pad(b, ((0, more), (0, 0)))


def join_vectors(
    vectors: Mapping[str, np.ndarray], layer_of: Mapping[str, Layer], of_parts: Columns
) -> dict[str, np.ndarray]:
    """{layer there: [out]} of {path here: [out]}, which has all parts of a layer or none."""
    joined = {}
    for path, (layer, part) in layer_of.items():
        if path in vectors and layer not in of_parts:
            joined[layer] = vectors[path]
        elif path in vectors:
            size = sum(map(len, of_parts[layer]))
            joined.setdefault(layer, np.zeros(size, np.float32))[of_parts[layer][part]] = vectors[
                path
            ]
    return joined


def split_vectors(
    vectors: Mapping[str, np.ndarray], layer_of: Mapping[str, Layer], of_parts: Columns
) -> dict[str, np.ndarray]:
    """The inverse of `join_vectors`."""
    return {
        path: np.float32(vectors[layer].ravel())[... if part is None else of_parts[layer][part]]
        for path, (layer, part) in layer_of.items()
        if layer in vectors
    }


def split(
    pairs: Mapping[str, Pair], layer_of: Mapping[str, Layer], of_parts: Columns, whole: bool = False
) -> dict[str, Pair]:
    """{path here: pair} of {layer there: pair}, all of one rank; the inverse of `fuse`.

    With `whole` every part of a fused layer has a pair, whatever the form of B.
    """
    where = {layer: path for path, layer in layer_of.items()}
    if not of_parts:
        return {path: pairs[layer] for path, (layer, _) in layer_of.items() if layer in pairs}
    chosen, r = _form(pairs, of_parts)
    if whole:
        chosen, r = {}, next(iter(pairs.values()))[0].shape[1]
    parts = {}
    for layer, (a, b) in pairs.items():
        if layer not in of_parts:
            parts[where[layer, None]] = a[:, :r], b[:r]
            continue
        for part, rows in _blocks(chosen.get(_kind(layer), ()), r, len(of_parts[layer])):
            parts[where[layer, part]] = a[:, rows], b[rows][:, of_parts[layer][part]]
    return parts


def _kind(layer: str) -> str:
    return layer.rpartition(".")[2]


def _form(pairs: Mapping[str, Pair], of_parts: Columns) -> tuple[dict[str, tuple[int, ...]], int]:
    """{kind of fused layer: the parts that an adapter of the whole is of}, and their rank r.

    Where no block form fits, each part gets the whole A and its own columns of B: {} and R.
    """
    rank = next(iter(pairs.values()))[0].shape[1]
    plain = [pair for layer, pair in pairs.items() if layer not in of_parts]
    kinds = {_kind(layer): len(of_parts[layer]) for layer in pairs if layer in of_parts}
    # Two parts first, of them query and value: the papers' choice.
    for count in (2, 3, 1):
        r = rank // count
        if rank % count or not all(_is_of(*pair, r) for pair in plain):
            continue
        chosen = {}
        for kind, parts in kinds.items():
            mine = [layer for layer in pairs if layer in of_parts and _kind(layer) == kind]
            for choice in _choices(min(count, parts), parts):
                if all(_fits(pairs[layer][1], choice, r, of_parts[layer]) for layer in mine):
                    chosen[kind] = choice
                    break
        if len(chosen) == len(kinds):
            return chosen, r
    return {}, rank


def _choices(count: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Which of the parts an adapter may be of, at most `count`."""
    for size in range(count, 0, -1):
        yield from sorted(itertools.combinations(range(parts), size), key=lambda c: c != (0, 2))


def _blocks(chosen: Sequence[int], r: int, parts: int) -> Iterator[tuple[int, slice]]:
    """(part, its rows of B); with none chosen all parts have all rows."""
    for i, part in enumerate(chosen or range(parts)):
        yield part, slice(i * r, (i + 1) * r) if chosen else slice(0, r)


def _fits(b: np.ndarray, chosen: Sequence[int], r: int, of_parts: Sequence[np.ndarray]) -> bool:
    """Whether B has the form that `_side_by_side` makes."""
    rest = b.copy()
    for part, rows in _blocks(chosen, r, len(of_parts)):
        rest[rows, of_parts[part]] = 0
    return not rest.any()  # outside of the blocks


def _is_of(a: np.ndarray, b: np.ndarray, r: int) -> bool:
    """Whether a pair is of rank `r`, filled up."""
    return not (a[:, r:].any() and b[r:].any())
