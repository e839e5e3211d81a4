"""A control without a second model: the model's own loss on equally frequent words.

The perplexity of a month depends on its words. Without a control of the same time, each word is
compared with the model's mean loss, over all months, on words of the same frequency class,
floor(log2(occurrences)), and the same number of tokens. What a model loses beyond that, later more
than earlier, is staleness, or a change of the text that neither shows; a control separates these.
"""

import collections
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ckl_jax.analysis.statistics import interval
from ckl_jax.data.tasks.word_losses import Shard, WordLosses, read_dump
from ckl_jax.errors import UserError
from ckl_jax.papers.mind_the_gap.analysis.staleness import ALL, Curve, Grouping, Totals

_MAX_TOKENS = 32  # more count as so many
_CLASSES = 64 * _MAX_TOKENS
_POWER = 1.96 + 0.84  # standard errors: two-sided 5 %, detected in 80 % of corpora
_SHOWN, _DOCUMENT_WORDS = 50, 30
_MIN_COUNT = 3  # of a word that is listed: addresses occur once


class FrequencyControl:
    """Expected losses of a model by frequency class; reads its dump twice."""

    def __init__(self, dump: str | os.PathLike):
        self._dump = dump
        self.counts: collections.Counter[str] = collections.Counter()
        for shard in read_dump(dump):
            self.counts.update(shard.words)
        sums = np.zeros((2, _CLASSES))
        for shard in read_dump(dump):
            classes = self._classes(shard)
            sums[0] += np.bincount(classes, shard.nll, _CLASSES)
            sums[1] += np.bincount(classes, minlength=_CLASSES)
        self._means = sums[0] / np.maximum(sums[1], 1)

    def _classes(self, scored: Shard | WordLosses) -> np.ndarray:
        frequency = [self.counts[word].bit_length() - 1 for word in scored.words]
        tokens = np.clip(scored.tokens, 1, _MAX_TOKENS) - 1
        return np.array(frequency, np.int64) * _MAX_TOKENS + tokens

    def expected(self, document: WordLosses) -> np.ndarray:
        """[W] nats."""
        return self._means[self._classes(document)]

    def totals(self, groupings: Sequence[Grouping] = ()) -> Totals:
        """The expected losses of the dump's documents, in place of a control's."""
        names = (ALL, *(name for g in groupings for name in g.names))
        dates, nll, counts = [], [], []
        for document in documents_of(self._dump):
            every = np.ones((1, len(document.words)))
            weights = np.concatenate([every, *(g.weights(document) for g in groupings)])
            dates.append(document.date)
            nll.append(weights @ self.expected(document))
            counts.append(weights.sum(1))
        return Totals(tuple(dates), names, np.stack(nll, 1), np.stack(counts, 1))

    def sources(self, since: str) -> dict[str, list[dict[str, Any]]]:
        """The words and documents from `since` (YYYY-MM) on with the largest excess of loss."""
        words: dict[str, list[float]] = collections.defaultdict(lambda: [0, 0.0])
        documents: list[tuple[float, WordLosses]] = []
        for document in documents_of(self._dump):
            if document.date < since or not len(document.words):
                continue
            excess = document.nll - self.expected(document)
            for word, value in zip(document.words, excess.tolist(), strict=True):
                words[word][0] += 1
                words[word][1] += value
            documents.append((float(excess.mean()), document))
            documents = sorted(documents, key=lambda d: -d[0])[:_SHOWN]
        frequent = [(word, entry) for word, entry in words.items() if entry[0] >= _MIN_COUNT]
        largest = sorted(frequent, key=lambda item: -item[1][1])[:_SHOWN]
        return {
            "words": [
                {"word": word, "count": count, "nats": total / count, "total": total}
                for word, (count, total) in largest
            ],
            "documents": [
                {"id": d.id, "date": d.date, "nats": n, "text": " ".join(d.words[:_DOCUMENT_WORDS])}
                for n, d in documents
            ],
        }


def documents_of(dump: str | os.PathLike) -> Iterator[WordLosses]:
    """The documents of a dump, in order."""
    for shard in read_dump(dump):
        yield from shard.documents()


def detectable_slope(spread: float, months: Mapping[str, int]) -> float:
    """The smallest slope, percent a month, that a corpus would show in 80 % of cases.

    Args:
      spread: standard deviation, over documents, of the mean loss of a word in nats.
      months: documents of each month (YYYY-MM), in order.

    Raises:
      UserError: there are fewer than three months.
    """
    if len(months) < 3:
        raise UserError(
            f"The documents are of {len(months)} of the three months that a slope needs."
        )
    counts = np.array(list(months.values()), float)
    at = np.array([12 * int(month[:4]) + int(month[5:7]) for month in months])
    x = at - at.mean()
    # Least squares over months whose means have variance spread^2 / n each.
    error = math.sqrt(float((x**2 / counts).sum())) * spread / float(x @ x)
    return 100 * math.expm1(_POWER * error)


def estimate_cutoff(curve: Curve) -> dict[str, Any] | None:
    """Estimates the bin at which a curve begins to rise: a flat line, then a rising one (least
    squares).

    Returns:
      {"month", "low", "high": bins, "slope": points a bin after it, "slope_low", "slope_high"},
      with 95 % intervals over the bootstrap samples; None below five bins, or if the interval of
      the slope of the whole curve does not lie above 0.
    """
    if len(curve.labels) < 5 or not interval(curve.slopes)[0] > 0:
        return None
    x = np.array(curve.positions, float)
    # The last two points alone would fit any rise.
    knots = x[:-2]
    hinges = np.maximum(x[None] - knots[:, None], 0)  # [K, N]
    hinges -= hinges.mean(1, keepdims=True)

    def fit(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The best knot [B] and its slope [B] of curves [B, N]."""
        centred = values - values.mean(1, keepdims=True)
        products = centred @ hinges.T  # [B, K]
        squares = (hinges**2).sum(1)
        best = np.argmax(np.maximum(products, 0) ** 2 / squares, axis=1)
        rows = np.arange(len(values))
        return best, products[rows, best] / squares[best]

    (best,), (slope,) = fit(curve.values[None])
    drawn, slopes = fit(curve.samples)
    low, high = interval(slopes)
    first, last = np.percentile(drawn, [2.5, 97.5]).round().astype(int)
    months = zip(("month", "low", "high"), (best, first, last), strict=True)
    rise = {"slope": float(slope), "slope_low": low, "slope_high": high}
    return {name: curve.labels[at] for name, at in months} | rise
