"""Uncertainty of scores over items, and tests between models evaluated on the same items.

The bootstrap resamples the items of a probe, the same resample for every model, so that pairs
stay paired. The intervals of one run say how far the choice of items matters, and nothing on the
choice of the random seed; those over runs of several seeds (`bootstrap_seeds`) say both.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ckl_jax.probes.forgetting import fuar_parts

SAMPLES = 2000
_BLOCK = 1 << 23  # counts that are held at once


def bootstrap_means(
    values: np.ndarray, samples: int = SAMPLES, seed: int | Sequence[int] = 0
) -> np.ndarray:
    """Means of resampled items, paired over models.

    Items on which all models score alike are interchangeable, so whole patterns are drawn from a
    multinomial: the same distribution as drawing items, at a cost that hardly grows with N. The
    order of the models does not matter, but which they are does.

    Args:
      values: [M, N] score of each model on each item.
      samples: B.

    Returns:
      [M, B].
    """
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] == 0:
        raise ValueError(f"need [models, items] with at least one item, got {values.shape}")
    n = values.shape[1]
    # Columns of `values`: at most 2^M different ones for right and wrong answers of M models.
    # Which of them comes first depends on the first model, so that is made to be always the same.
    order = sorted(range(len(values)), key=lambda i: values[i].tobytes())
    patterns, counts = np.unique(values[order], axis=1, return_counts=True)
    sums = resampled_sums(patterns.T, samples, np.random.default_rng(seed), counts)
    return sums.T[np.argsort(order)] / n


def resampled_sums(
    values: np.ndarray,
    samples: int,
    generator: np.random.Generator,
    counts: np.ndarray | None = None,
) -> np.ndarray:
    """Sums over resamples of all rows, in bounded memory.

    Args:
      values: [N, C] of each row.
      samples: B.
      counts: [N] how many rows each stands for; None is one each.

    Returns:
      [B, C].
    """
    counts = np.ones(len(values), np.int64) if counts is None else counts
    rows = counts.sum()
    block = max(1, _BLOCK // len(values))
    sizes = [min(block, samples - done) for done in range(0, samples, block)]
    # [B, N] counts of each row times [N, C].
    return np.concatenate(
        [generator.multinomial(rows, counts / rows, size=size) @ values for size in sizes]
    )


def bootstrap_seeds(values: np.ndarray, seed: int = 0) -> np.ndarray:
    """Means over resampled seeds, each with resampled items: a hierarchical bootstrap.

    Args:
      values: [S, B] an effect in B resamples of the items of each of S seeds.

    Returns:
      [B].
    """
    seeds, samples = values.shape
    chosen = np.random.default_rng(seed).integers(seeds, size=(samples, seeds))
    # A seed that is drawn twice into one sample gets another resample of its items each time, as
    # if its items were drawn anew.
    stride = max(1, samples // seeds)
    items = (np.arange(samples)[:, None] + stride * np.arange(seeds)) % samples
    return values[chosen, items].mean(axis=1)


def seed_interval(samples: np.ndarray, seeds: int) -> tuple[float, float]:
    """95 % percentile interval of `bootstrap_seeds`, expanded for few seeds (Hesterberg, 2015).

    A resample of S seeds varies as if there were (S - 1) / S of the variance, and its percentiles
    are those of a normal distribution; with S small the interval would be far too short. Where
    items matter more than seeds it is too long, as means of seeds vary with their items already.

    Args:
      samples: [B]; NaN is a number of which nothing is known, so that it counts at both ends.
      seeds: S; of one seed the interval is over items alone.
    """
    from scipy import special

    level = 0.95
    if seeds > 1:
        width = -special.stdtrit(seeds - 1, 0.5 * (1.0 - level)) * math.sqrt(seeds / (seeds - 1))
        level = 1.0 - 2.0 * float(special.ndtr(-width))
    unknown = np.isnan(samples)
    low, _ = interval(np.where(unknown, -np.inf, samples), level)
    _, high = interval(np.where(unknown, np.inf, samples), level)
    return low, high


def seeds_needed(effect: float, stddev: float, fewest: int = 5) -> int | None:
    """The fewest seeds whose 95 % interval of the mean (Student's t) would leave out 0.

    Args:
      effect: the mean.
      stddev: over seeds.
      fewest: to be tried.

    Returns:
      Their number; None if it is above 100.
    """
    from scipy import special

    n = np.arange(fewest, 101)
    enough = special.stdtrit(n - 1, 0.975) * stddev / np.sqrt(n) < abs(effect)
    return int(n[enough.argmax()]) if enough.any() else None


def spread(values: Sequence[float | None]) -> dict[str, Any]:
    """{"mean", "low", "high", "values"} over seeds; None if a seed lacks the number."""
    known = [v for v in values if v is not None]
    return {
        "mean": float(np.mean(known)) if known else None,
        "low": min(known, default=None),
        "high": max(known, default=None),
        "values": list(values),
    }


def interval(samples: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """Percentile interval of [B] samples; infinity ranks as the largest."""
    tail = 50.0 * (1.0 - level)
    # "nearest", because interpolating between a number and infinity gives NaN.
    low, high = np.percentile(samples, [tail, 100.0 - tail], method="nearest")
    return float(low), float(high)


def estimate(value: float, samples: np.ndarray) -> dict[str, float]:
    """{"value", "low", "high"} of a number and its [B] samples."""
    low, high = interval(samples)
    return {"value": float(value), "low": low, "high": high}


def fuar_samples(
    scores: Sequence[Mapping[str, np.ndarray]], forgotten, updated, acquired
) -> np.ndarray:
    """FUAR of each bootstrap sample, [B]; infinity where nothing was gained, NaN of NaN."""
    lost, gained = fuar_parts(scores, forgotten, updated, acquired)
    lost, gained = np.broadcast_arrays(np.asarray(lost, float), np.asarray(gained, float))
    out = np.where(np.isnan(lost + gained), np.nan, np.inf)
    # Divides where something was gained; elsewhere infinity stays.
    np.divide(lost, gained, out=out, where=gained > 1e-9)
    return out


def mcnemar(a: np.ndarray, b: np.ndarray) -> float:
    """Two-sided p of the exact McNemar test on right/wrong answers [N] of two models."""
    a, b = np.asarray(a, bool), np.asarray(b, bool)
    if a.shape != b.shape:
        raise ValueError(f"the models answered {a.shape} and {b.shape} items")
    # Items that both models answer alike say nothing about the difference.
    only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
    return sign_test(only_a, only_b)


def sign_test(wins: int, losses: int) -> float:
    """Two-sided p of a split as uneven as wins : losses among fair coin flips."""
    n, k = wins + losses, min(wins, losses)
    if n == 0:
        return 1.0
    # In logarithms: binomial coefficients of thousands of items overflow floats.
    log_factorial = [math.lgamma(i + 1) for i in (n, *range(k + 1))]
    terms = [
        log_factorial[0] - log_factorial[i + 1] - math.lgamma(n - i + 1) - n * math.log(2)
        for i in range(k + 1)
    ]
    top = max(terms)
    return min(1.0, 2.0 * math.exp(top) * math.fsum(math.exp(t - top) for t in terms))


def two_sided(difference: np.ndarray) -> float:
    """Twice the fraction of samples [B] on the rarer side of 0; never 0, as B is finite."""
    b = len(difference)
    # Ties count on both sides, which makes the test conservative.
    below, above = (difference <= 0).sum(), (difference >= 0).sum()
    return float(min(1.0, 2.0 * (min(below, above) + 1) / (b + 1)))


def holm(p_values: Mapping) -> dict:
    """Adjusts p values, {test: p}, for their number (Holm, 1979)."""
    adjusted, running = {}, 0.0
    ordered = sorted(p_values.items(), key=lambda pair: pair[1])
    # The i-th smallest p times (n - i); `running` keeps the adjusted values monotone.
    for rank, (name, p) in enumerate(ordered):
        running = max(running, min(1.0, p * (len(ordered) - rank)))
        adjusted[name] = running
    return {name: adjusted[name] for name in p_values}


def precision_curve(hit_rank: np.ndarray, beams: np.ndarray) -> dict[int, float]:
    """{k: fraction of items whose first k answers hold a right one}, up to the widest search.

    Items that were searched less widely are left out. Always holds k = 1 and the widest k.
    """
    widest = int(np.max(beams))
    ranks = np.asarray(hit_rank)[np.asarray(beams) == widest]
    wanted = sorted({k for k in (1, 5, 10, 20, 50, 100) if k <= widest} | {1, widest})
    return {k: float(np.mean((ranks > 0) & (ranks <= k))) for k in wanted}


def by_relation(values: np.ndarray, relations: Sequence[str]) -> dict[str, tuple[int, float]]:
    """{relation: (items, mean)} in order of first occurrence."""
    # np.unique sorts; `first` restores the order of occurrence.
    names, first, inverse = np.unique(np.array(relations), return_index=True, return_inverse=True)
    counts = np.bincount(inverse)
    means = np.bincount(inverse, weights=values) / counts
    return {
        str(names[i]): (int(counts[i]), float(means[i])) for i in np.argsort(first, kind="stable")
    }
