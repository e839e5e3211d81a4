"""Finds near-duplicates among many texts by MinHash signatures, and keeps the first of each.

Signatures are cut into bands; texts that have a band in common are candidates, and those whose
signatures agree at a fraction of positions are near-duplicates. One band after another is held in
memory, about 0.2 kB a text, and the pairs; signatures stay in a file.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from ckl_jax.papers.mind_the_gap.data.shingles import mixed

BANDS = 16
THRESHOLD = 0.8
_ALL_PAIRS = 48  # of a bucket of so many texts, each is compared with each
_CHUNK = 1 << 16
T = TypeVar("T")


def first_of_each(
    signatures: np.ndarray, order: np.ndarray, bands: int = BANDS, threshold: float = THRESHOLD
) -> np.ndarray:
    """Goes through texts in order and keeps each that resembles no earlier kept one.

    Args:
      signatures: uint32 [N, permutations], may be a memory map.
      order: int [N], rows as they follow each other (by date).
      bands: of a signature; it must divide `permutations`.
      threshold: of the fraction of positions at which near-duplicates agree.

    Returns:
      bool [N], the rows that are kept. Where more than 48 texts have a band in common they are not
      all compared with one another, but with those that no other is like: a text may then be kept
      that is like a kept one.
    """
    # rank[row] is the place of a row in the order.
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    pairs_of_bands = [_pairs_of_band(signatures, i, order, bands, threshold) for i in range(bands)]
    # np.unique sorts by the later text, which `not_kept` relies on.
    pairs = np.unique(np.concatenate(pairs_of_bands), axis=0)  # by the later one, in order
    kept = np.ones(len(order), bool)
    kept[list(not_kept(pairs.tolist()))] = False  # by rank
    return kept[rank]


def not_kept(pairs: Iterable[Sequence[T]]) -> set[T]:
    """Returns which texts are dropped: those that resemble an earlier kept one.

    Args:
      pairs: (later, earlier) near-duplicates, sorted.
    """
    gone: set[T] = set()
    for later, earlier in pairs:
        if earlier not in gone:
            gone.add(later)
    return gone


def _pairs_of_band(signatures, band, order, bands, threshold) -> np.ndarray:
    """Returns int64 [P, 2], ranks (later, earlier) of near-duplicates that share a band."""
    hashes = band_hashes(signatures, band, bands)[order]
    by_hash = np.argsort(hashes, kind="stable")  # within a bucket by rank
    same = np.diff(hashes[by_hash]) == 0
    # Runs of equal hashes are buckets.
    edges = np.flatnonzero(np.diff(same, prepend=False, append=False))
    parts = [np.zeros((0, 2), np.int64)]
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        ranks = by_hash[start : stop + 1]
        members = np.asarray(signatures[order[ranks]])
        parts.extend(ranks[pairs] for pairs in pairs_of_bucket(members, threshold))
    return np.concatenate(parts)


def band_hashes(signatures: np.ndarray, band: int, bands: int) -> np.ndarray:
    """Returns uint64 [N], a hash of one band of each signature."""
    rows = signatures.shape[1] // bands
    hashes = np.empty(len(signatures), np.uint64)
    # Odd, full-width multipliers, another set for each band.
    multipliers = np.random.default_rng(band).integers(0, 2**64, rows, np.uint64) | np.uint64(1)
    for start in range(0, len(signatures), _CHUNK):
        part = signatures[start : start + _CHUNK, band * rows : (band + 1) * rows]
        hashes[start : start + _CHUNK] = mixed(part.astype(np.uint64) @ multipliers)
    return hashes


def pairs_of_bucket(members: np.ndarray, threshold: float = THRESHOLD) -> Iterator[np.ndarray]:
    """Yields int64 [P, 2], the near-duplicates (later, earlier) among texts that share a band.

    Args:
      members: uint32 [N, permutations], signatures in order.
      threshold: see `first_of_each`.
    """
    min_agreeing = threshold * members.shape[1]
    if len(members) <= _ALL_PAIRS:
        # [N, N] positions at which signatures agree; N is 48 at most.
        agreeing = (members[:, None] == members[None]).sum(-1)
        yield np.argwhere(np.tril(agreeing >= min_agreeing, -1))
        return
    left = np.arange(len(members))
    # Large buckets: boilerplate such as weather reports. Quadratic work is avoided.
    while len(left) > 1:  # the first of them, and what is like it
        alike = (members[left[1:]] == members[left[0]]).sum(1) >= min_agreeing
        duplicates = left[1:][alike]
        yield np.stack([duplicates, np.full(len(duplicates), left[0])], 1)
        left = left[1:][~alike]
