"""Hashes of word n-grams of many texts at once, and MinHash signatures of them.

Words are lower-cased runs of letters, digits and underscores. All hashing is arithmetic modulo 2^64
with odd multipliers of full width: with short ones the hashes of neighbouring n-grams would not be
independent, and nor would the minima of a signature.
"""

import re
from collections.abc import Sequence

import numpy as np

from ckl_jax.data.process_pool import batches
from ckl_jax.errors import if_missing

WIDTH = 5  # words of an n-gram
LONGEST = 64
PERMUTATIONS = 128
_SEED = 20210209
_NO_WORD = re.compile(r"\W+")
_WORD_BYTES = np.zeros(256, bool)
_WORD_BYTES[[*b"abcdefghijklmnopqrstuvwxyz0123456789_", *range(128, 256)]] = True
_CACHED = 100_000  # characters at once, so that intermediate arrays stay in the processor's cache
_BASE = 0x9E3779B97F4A7C15


def _random_words(count: int) -> np.ndarray:
    return np.random.default_rng(_SEED).integers(0, 2**64, count, np.uint64, endpoint=False)


# Hashes of bytes, and multipliers of the words of an n-gram.
_OF_BYTE = _random_words(256)
_OF_PLACE = _random_words(LONGEST) | np.uint64(1)


class _Powers:
    """Powers of an odd number and of its inverse modulo 2^64, computed on demand."""

    def __init__(self):
        self._up = self._down = np.ones(1, np.uint64)

    def up_to(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the 0th to the `count`-th power, and those of the inverse."""
        if len(self._up) <= count:
            size = max(count + 1, 2 * len(self._up))
            bases = _BASE, pow(_BASE, -1, 2**64)
            self._up, self._down = (
                np.concatenate([[np.uint64(1)], np.full(size, b, np.uint64)]).cumprod(
                    dtype=np.uint64
                )
                for b in bases
            )
        return self._up, self._down


_powers = _Powers()


def shingles(texts: Sequence[str], width: int = WIDTH) -> tuple[np.ndarray, np.ndarray]:
    """Hashes the n-grams of words of texts.

    Args:
      texts: any. One with fewer than `width` words has one n-gram, of all of them.
      width: words of an n-gram, 64 at most.

    Returns:
      uint64 [N], the hashes of all texts; int64 [len(texts) + 1], where those of each begin.
    """
    # All texts as one byte string, with a blank behind each: NumPy then works on all at once.
    parts = [_plain(text) for text in texts]
    lengths = np.array([len(part) + 1 for part in parts], np.int64)
    flat = np.frombuffer(b" ".join([*parts, b""]), np.uint8)
    ends_of_texts = np.cumsum(lengths)
    hashes, starts = _word_hashes(flat)
    words = np.searchsorted(starts, ends_of_texts)  # up to the end of each text
    counts = np.diff(words, prepend=0)
    return _roll(hashes, words - counts, counts, width)


def _plain(text: str) -> bytes:
    text = text.lower()
    if not text.isascii():
        text = _NO_WORD.sub(" ", text)
    return text.encode("utf-8", "replace")


def _word_hashes(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns uint64 [W], a hash of each word of flat bytes, and int64 [W], where it begins."""
    inside = _WORD_BYTES[flat]
    # Borders between word bytes and others alternate: begin, end, begin, end.
    edges = np.flatnonzero(np.diff(inside, prepend=False, append=False))
    starts, ends = edges[::2], edges[1::2]
    up, down = _powers.up_to(len(flat))
    # A polynomial hash by prefix sums: sum of h(byte i) b^i, shifted to 0 by the inverse of
    # b^start.
    sums = np.zeros(len(flat) + 1, np.uint64)
    np.cumsum(_OF_BYTE[flat] * up[: len(flat)], out=sums[1:])
    return mixed((sums[ends] - sums[starts]) * down[starts]), starts


def mixed(x: np.ndarray) -> np.ndarray:
    """MurmurHash3's finaliser: a bijection in which each output bit depends on all input bits."""
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


def _roll(
    hashes: np.ndarray, first: np.ndarray, counts: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Hashes n-grams of words of texts that begin at `first` and have `counts` words."""
    padded = np.concatenate([hashes, np.zeros(width, np.uint64)])
    # A text of fewer than `width` words has one n-gram, one without words has none.
    rows = np.where(counts > 0, np.maximum(counts - width + 1, 1), 0)
    offsets = np.concatenate([[0], np.cumsum(rows)])
    begin = np.repeat(first - offsets[:-1], rows) + np.arange(offsets[-1])
    left = np.repeat(first + counts, rows) - begin  # words from there to the end of the text
    total = np.zeros(len(begin), np.uint64)
    for k in range(width):
        # The k-th word of an n-gram has a multiplier of its own: order matters.
        total += np.where(k < left, padded[begin + k], np.uint64(0)) * _OF_PLACE[k]
    return mixed(total), offsets


def signatures(
    texts: Sequence[str], width: int = WIDTH, permutations: int = PERMUTATIONS
) -> np.ndarray:
    """Returns uint32 [len(texts), permutations], a MinHash signature of each text.

    The fraction of positions at which two signatures agree estimates the fraction of n-grams that
    two texts have in common (Jaccard's), with a standard error of 0.04 at most for 128 places.
    Texts without a word have a signature of their own, which agrees with each other's.

    Raises:
      UserError: the package `rensa` is not installed.
    """
    if not len(texts):  # near-duplicates are left in, say, and need no package
        return np.zeros((0, permutations), np.uint32)
    with if_missing("Near-duplicates need the package 'rensa': pip install 'ckl-jax[text]'."):
        from rensa import RMinHash
    parts = []
    for part in batches(texts, len, _CACHED):
        hashes, offsets = shingles(part, width)
        # [texts, permutations]
        matrix = RMinHash.digest_matrix_from_flat_token_hashes(
            hashes, offsets.astype(np.uint64), permutations, _SEED
        )
        parts.append(np.array(matrix.to_rows(), np.uint32).reshape(len(part), permutations))
    return np.concatenate(parts)
