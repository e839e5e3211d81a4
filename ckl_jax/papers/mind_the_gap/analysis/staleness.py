"""Staleness: perplexity by time relative to a control model's (section 3).

Everything here reads dumps of word losses (`data.tasks.word_losses`). The perplexity of any set of
words is exp(sum of their losses / their number); of a bin of time, of its documents' words. What is
plotted is the relative increase over the control model on the same documents, in percent,

    r = 100 (PPL / PPL_control - 1),

because perplexities of different months are not comparable: their documents differ.
"""

import dataclasses
import datetime
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from ckl_jax import checks
from ckl_jax.analysis.statistics import interval, resampled_sums
from ckl_jax.data.tasks.word_losses import WordLosses, read_dump
from ckl_jax.errors import UserError

SAMPLES = 1000
_MAX = 700  # nats a word: exp is no number beyond
ALL = "all"


class Grouping(Protocol):
    """Assigns words to groups.

    Attributes:
      names: of its G groups.
    """

    names: tuple[str, ...]

    def weights(self, document: WordLosses) -> np.ndarray:
        """[G, W]: how much each word of a document counts in each group, 0 to 1."""
        ...


@dataclasses.dataclass(frozen=True)
class Totals:
    """The losses of D documents, in order, by group of words."""

    dates: tuple[str, ...]  # [D] ISO dates
    groups: tuple[str, ...]  # names of the G groups
    nll: np.ndarray  # [G, D] summed losses, in nats
    words: np.ndarray  # [G, D] how many words they are of, the same for every model

    def group(self, name: str) -> "Totals":
        """One group alone."""
        i = self.groups.index(name)
        return Totals(self.dates, (name,), self.nll[i : i + 1], self.words[i : i + 1])

    def perplexity(self) -> dict[str, float]:
        """{group: perplexity over all documents}; groups without a word are left out."""
        nll, words = self.nll.sum(1), self.words.sum(1)
        return {
            name: math.exp(n / w) for name, n, w in zip(self.groups, nll, words, strict=True) if w
        }


def read_totals(
    dumps: Mapping[str, str | os.PathLike], groupings: Sequence[Grouping] = ()
) -> dict[str, Totals]:
    """Reads several dumps side by side, keeping a few numbers per document and no words.

    Args:
      dumps: {model: folder}, all of the same documents.
      groupings: further groups of words, next to that of all words.

    Raises:
      UserError: the dumps are not of the same documents and words, or a loss is below
        0, too large or not finite.
    """
    names = (ALL, *itertools.chain.from_iterable(g.names for g in groupings))
    dates: list[str] = []
    words: list[np.ndarray] = []
    nll: dict[str, list[np.ndarray]] = {model: [] for model in dumps}
    for documents in _side_by_side(dumps):
        first = next(iter(documents.values()))
        # Group 0 is all words.
        every = np.ones((1, len(first.words)))
        # [G, W]; computed once a document, as all models share its words.
        weights = np.concatenate([every, *(g.weights(first) for g in groupings)])
        dates.append(first.date)
        words.append(weights.sum(1))
        for model, document in documents.items():
            # float64: sums over a corpus of float32 losses. [G]
            losses = weights @ document.nll.astype(np.float64)
            # Rounding leaves a sure word a little below 0. Comparisons with NaN are False.
            if not ((document.nll > -0.01).all() and (losses <= _MAX * weights.sum(1)).all()):
                raise UserError(
                    f"{dumps[model]}: the losses of the document {document.id!r} of "
                    f"{document.date} are below 0, over {_MAX} nats a word or not finite; the "
                    "file is damaged, or the model's parameters are."
                )
            nll[model].append(losses)
    counts = np.stack(words, 1)
    return {m: Totals(tuple(dates), names, np.stack(rows, 1), counts) for m, rows in nll.items()}


def _side_by_side(dumps: Mapping[str, str | os.PathLike]) -> Iterator[dict[str, WordLosses]]:
    # Read in parallel, document by document: no dump is held in memory.
    streams = [(d for shard in read_dump(f) for d in shard.documents()) for f in dumps.values()]
    for number, documents in enumerate(itertools.zip_longest(*streams)):
        for folder, document in zip(dumps.values(), documents, strict=True):
            if document is None:
                raise UserError(
                    f"{folder} ends after {number} documents, and others go on: its run is not "
                    "finished, or was of another test set."
                )
            first = documents[0]
            of = document.id, document.date, document.words
            if first and of != (first.id, first.date, first.words):
                raise UserError(
                    f"{folder} and {next(iter(dumps.values()))} are not of the same documents: "
                    f"they differ at document {number}; score both models on the same test set."
                )
        yield dict(zip(dumps, documents, strict=True))


# --- bins of time


@dataclasses.dataclass(frozen=True)
class Bins:
    """Consecutive spans of time.

    Attributes:
      labels: [N] the month (YYYY-MM), the first of several, or the first day of a week.
      spans: [N] (start, stop) of the documents of each bin, in the order of their dates.
      positions: [N] in time, counted in bins from the first; some may be left out.
    """

    labels: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    positions: tuple[int, ...]


def bins_of(
    dates: Sequence[str],
    unit: str = "month",
    min_documents: int = 1,
    months: int = 1,
    first: str = "",
) -> Bins:
    """The months, or the spans of seven days from the first day of the first month.

    Args:
      dates: [D], in order.
      unit: "month" or "week".
      min_documents: of a week; weeks with fewer are left out.
      months: of a bin, such as 12.
      first: the month (YYYY-MM) that the first bin begins with; "": that of the first document.

    Raises:
      UserError: dates out of order or before `first`, a bin of months without a document, or no
        such unit.
    """
    checks.require_choice(("month", "week"), **{"--unit": unit})
    checks.require_size(**{"--bin-months": months})
    if not dates:
        raise UserError("There are no test documents.")
    if any(a > b for a, b in itertools.pairwise(dates)):
        raise UserError("The documents of a dump are not in the order of their dates.")
    if first > dates[0]:
        raise UserError(f"A test document is of {dates[0]}, before {first}, the first month.")
    labels = _months(first or dates[0], dates[-1])[::months] if unit == "month" else _weeks(dates)
    # ISO dates and months compare as texts.
    starts = [*np.searchsorted(np.array(dates), np.array(labels)).tolist(), len(dates)]
    all_bins = list(zip(labels, itertools.pairwise(starts), strict=True))
    empty = [label for label, (start, stop) in all_bins if start == stop]
    if unit == "month" and empty:
        what = f"month {empty[0]} has" if months == 1 else f"{months} months from {empty[0]} have"
        raise UserError(
            f"The {what} no test document, and a curve needs one in every bin: choose another test "
            "period, or more --bin-months."
        )
    kept = [i for i, (_, (start, stop)) in enumerate(all_bins) if stop - start >= min_documents]
    labels, spans = (tuple(all_bins[i][k] for i in kept) for k in (0, 1))
    return Bins(labels, spans, tuple(kept))


def _months(start: str, stop: str) -> list[str]:
    (first, month), (last, end) = (map(int, d.split("-")[:2]) for d in (start, stop))
    numbers = range(12 * first + month - 1, 12 * last + end)
    return [f"{n // 12:04d}-{n % 12 + 1:02d}" for n in numbers]


def _weeks(dates: Sequence[str]) -> list[str]:
    day, last = datetime.date.fromisoformat(f"{dates[0][:7]}-01"), dates[-1]
    days = (day + datetime.timedelta(7 * i) for i in itertools.count())
    return list(itertools.takewhile(lambda label: label <= last, map(str, days)))


# --- curves


@dataclasses.dataclass(frozen=True)
class Line:
    """An ordinary least-squares line through a curve of N points, one a bin."""

    slope: float  # percentage points a bin; error: its standard error
    error: float
    intercept: float  # at bin 0
    # t, p: of the slope against 0, two-sided, N - 2 degrees of freedom
    t: float
    p: float


@dataclasses.dataclass(frozen=True)
class Curve:
    """The relative increase of a model over the control, by bin.

    Attributes:
      labels: [N] of the bins.
      positions: [N] of the bins in time; those without a word of the group are left out.
      values: [N] percent.
      low, high: [N] the 95 % interval of a bootstrap over each bin's documents; NaN of a bin where
        one document alone has words of the group, which says nothing on the spread of documents:
        lines are fitted to the other bins, where there are two or more.
      documents, words: [N] how many a bin has.
      samples: [B, N] values of each bootstrap sample.
      slopes: [B] of the line through each bootstrap sample.
      overall: of all bins together: "value", "low", "high", NaN where there is one such document.
    """

    labels: tuple[str, ...]
    positions: tuple[int, ...]
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    documents: np.ndarray
    words: np.ndarray
    samples: np.ndarray
    slopes: np.ndarray
    overall: Mapping[str, float]

    @property
    def fitted(self) -> np.ndarray:
        """[N], which bins a line is fitted to: those with an interval, if there are two."""
        known = ~np.isnan(self.low)
        return known if np.count_nonzero(known) > 1 else np.ones_like(known)

    @property
    def line(self) -> Line:
        return fit_line(self.values[self.fitted], np.array(self.positions)[self.fitted])

    def as_dict(self) -> dict:
        """As JSON values."""
        columns = ("values", "low", "high", "documents", "words")
        low, high = interval(self.slopes)
        at = np.array(self.positions) - np.mean(np.array(self.positions)[self.fitted])
        # Lines through the bootstrap samples, [B, N].
        lines = self.samples[:, self.fitted].mean(1, keepdims=True) + self.slopes[:, None] * at
        band = np.percentile(lines, [2.5, 97.5], axis=0, method="nearest")
        return {
            "labels": list(self.labels),
            "places": list(self.positions),
            **{c: getattr(self, c).tolist() for c in columns},
            "line": {**dataclasses.asdict(self.line), "low": low, "high": high},
            "band": band.tolist(),
            "overall": dict(self.overall),
        }


def relative_increase(
    model: Totals,
    control: Totals,
    bins: Bins | None = None,
    group: str = ALL,
    samples: int = SAMPLES,
    seed: int = 0,
) -> Curve:
    """The curve of Figures 1 to 3 and 5.

    The bootstrap draws documents within each bin, the same for both models. Bins in which the
    group has no word are left out; a sample of a bin without a word of it has no value, and is
    drawn again.

    Args:
      model, control: as `read_totals` gives them.
      bins: of the documents; None is months.

    Raises:
      UserError: see `bins_of`; or the group has no word at all.
    """
    model, control = model.group(group), control.group(group)
    bins = bins or bins_of(model.dates)
    generator = np.random.default_rng(seed)
    # Gap of the losses and number of words: all that a bin's value is made of.
    both = np.stack([model.nll[0] - control.nll[0], model.words[0]], 1)  # [D, 2]
    kept = [i for i, (start, stop) in enumerate(bins.spans) if both[start:stop, 1].sum()]
    if not kept:
        raise UserError(f"No test document has a word of the group {group!r}.")
    labels, positions = (tuple(of[i] for i in kept) for of in (bins.labels, bins.positions))
    parts = [both[slice(*bins.spans[i])] for i in kept]
    documents = np.array(list(map(len, parts)), np.float64)
    drawn = [_draw(part, samples, generator) for part in parts]
    sums = np.stack([having for _, having in drawn])  # [N, B, 2]
    # [N] each.
    gaps, counts = np.stack([part.sum(0) for part in parts], 1)
    values = _percent(gaps, counts)
    curves = _percent(*np.moveaxis(sums, 2, 0))
    with_words = np.array([np.count_nonzero(part[:, 1]) for part in parts])
    known = with_words > 1
    low, high = np.where(known, np.percentile(curves, [2.5, 97.5], axis=1), np.nan)
    # [B, 2] resamples of all bins together: within bins, as the test set is stratified by month.
    # A bin with one document would never vary: then the bins are drawn from as one.
    every = sum(first for first, _ in drawn) if known.all() else _draw(both, samples, generator)[0]
    every = every[every[:, 1] > 0]
    whole = interval(_percent(*every.T)) if with_words.sum() > 1 else (math.nan, math.nan)
    value = float(_percent(gaps.sum(), counts.sum()))
    return Curve(
        labels=labels,
        positions=positions,
        values=values,
        low=low,
        high=high,
        documents=documents,
        words=counts,
        samples=curves.T if known.any() else np.full_like(curves.T, np.nan),
        slopes=_slopes(curves.T[:, known], np.array(positions)[known]),
        overall={"value": value, "low": whole[0], "high": whole[1]},
    )


def _draw(
    part: np.ndarray, samples: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Bootstrap sums [B, 2] over a bin's documents [D, 2], and of resamples with words only."""
    first = resampled_sums(part, samples, generator)
    having = first.copy()
    # A resample without a word of the group has no perplexity; it is drawn again.
    while (lacking := having[:, 1] == 0).any():
        having[lacking] = resampled_sums(part, np.count_nonzero(lacking), generator)
    return first, having


def _percent(gap: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Relative increase of a perplexity, from summed losses and words."""
    # expm1: increases far below 1 % keep their digits.
    return 100.0 * np.expm1(gap / np.where(words > 0, words, 1.0))


def _slopes(curves: np.ndarray, positions: Sequence[int]) -> np.ndarray:
    """[B], of lines through [B, N] points at N positions; NaN of less than two."""
    if not len(positions):
        return np.full(len(curves), np.nan)
    # The slope of least squares is linear in the values: all B lines in one product.
    x = np.array(positions) - np.mean(positions)
    return curves @ x / (float(x @ x) or np.nan)


def fit_line(values: Sequence[float], positions: Sequence[int] | None = None) -> Line:
    """The line through values at `positions`, or 0 .. N - 1; no error below three points."""
    from scipy import stats

    n = len(values)
    if n < 2:
        return Line(math.nan, math.nan, float(values[0]), math.nan, math.nan)
    fit = stats.linregress(np.arange(n) if positions is None else positions, values)
    error = float(fit.stderr) if n > 2 else math.nan
    return Line(float(fit.slope), error, float(fit.intercept), *_t_test(fit.slope, error, n - 2))


def _t_test(slope: float, error: float, degrees: int) -> tuple[float, float]:
    """(t, two-sided p) of a slope against 0."""
    from scipy import stats

    t = 0.0 if slope == 0 else slope / error if error else math.copysign(math.inf, slope)
    return float(t), float(2 * stats.t.sf(abs(t), degrees)) if degrees else math.nan


@dataclasses.dataclass(frozen=True)
class SlopeTest:
    """A test of whether two curves rise differently.

    Attributes:
      difference: of the slopes, first less second, percentage points a bin.
      t, p, degrees: of the test.
      low, high: 95 % interval of the difference, of the bootstrap over documents.
    """

    difference: float
    t: float
    p: float
    degrees: int
    low: float
    high: float


def compare_slopes(a: Curve, b: Curve, paired: bool = False) -> SlopeTest:
    """Tests two slopes against each other.

    Args:
      a, b: curves over the same bins; if their bootstraps had the same seed, so have the samples.
      paired: fit a line to a - b (N - 2 degrees of freedom), which is apt where both were measured
        on the same documents. Otherwise t is that of the interaction term in the regression of
        both curves on bin, model and their product (2 N - 4).

    Raises:
      UserError: the curves are of different bins, or of fewer than three.
    """
    at, count = a.fitted, int(np.count_nonzero(a.fitted))
    if a.labels != b.labels or (at != b.fitted).any() or count < 3:
        raise UserError("Slopes are compared over the same bins, three at least.")
    # Equal seeds drew the same documents for both, so that the difference is paired.
    spans = interval(a.slopes - b.slopes)
    if paired:
        line = fit_line((a.values - b.values)[at], np.array(a.positions)[at])
        return SlopeTest(line.slope, line.t, line.p, count - 2, *spans)
    one, two = a.line, b.line
    difference, degrees = one.slope - two.slope, 2 * count - 4
    # For equal bins this is the t of the interaction term in the pooled regression.
    t, p = _t_test(difference, math.hypot(one.error, two.error), degrees)
    return SlopeTest(difference, t, p, degrees, *spans)


def overtakes(curve: Curve) -> str | None:
    """The first bin from which a model is better than the control for at least three bins."""
    better = curve.values < 0
    starts = (i for i in range(len(better) - 2) if better[i : i + 3].all())
    return next((curve.labels[i] for i in starts), None)
