"""Assigns documents to splits: TIME-STRATIFIED and CONTROL, of equal size (Mind the Gap).

The test documents are drawn from the last months; TIME-STRATIFIED trains on what is older than the
validation months before them, CONTROL on as much, of which a fraction comes from the test months
themselves. Everything here is arithmetic on dates, sizes and hashes of ids: no text is held.
Draws are by hashes of ids, so that they do not depend on the order of the corpus.
"""

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from tyro.conf import arg

from ckl_jax import checks
from ckl_jax.errors import UserError
from ckl_jax.papers.mind_the_gap.data.time_index import MEASURES, Index, month_name, month_number

# The splits of a document are bits of one byte.
NAMES = (
    "time_stratified_train",
    "time_stratified_validation",
    "control_train",
    "control_validation",
    "test",
)
TS_TRAIN, TS_VALIDATION, CTL_TRAIN, CTL_VALIDATION, TEST = (1 << i for i in range(len(NAMES)))
UNITS = {"year": 12, "month": 1}
_Name = TypeVar("_Name")
PER_MONTH = 1000  # test documents of a month in the paper


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of the splits, including those that the paper leaves open.

    Attributes:
      test_period: Length of the test period, in --unit.
      unit: Calendar years or months.
      test_end: Last year or month of the test period, 2019 or 2019-12; by default the corpus's
        last.
      validation_months: Months between training and test period, for validation.
      per_month: Test documents of each month; by default 1000, or a third of the smallest month
        if that is less.
      test_fraction: Fraction of each month's documents that are test documents, in place of a
        number; CONTROL then trains on all others of the test period.
      bin_months: Count by so many months together, such as 12, instead of by one.
      control_per_month: Documents of each test month that CONTROL trains on; by default as many as
        every month can give.
      control_on_validation_months: CONTROL trains on the months that TIME-STRATIFIED is validated
        on too.
      measure: What is equal in size for both arms.
      seed: Random seed of the draws.
    """

    test_period: int = 2
    unit: Literal[*UNITS] = "year"
    test_end: str = ""
    validation_months: int = 3
    per_month: int | None = None
    test_fraction: float | None = None
    bin_months: int = 1
    control_per_month: int | None = None
    control_on_validation_months: Annotated[
        bool,
        arg(help="Keep CONTROL from training on the months that TIME-STRATIFIED is validated on."),
    ] = True
    measure: Literal[*MEASURES] = "words"
    seed: int = 0

    def __post_init__(self):
        checks.require_choice(UNITS, **{"--unit": self.unit})
        checks.require_choice(MEASURES, **{"--measure": self.measure})
        months = {"--test-period": self.test_period, "--validation-months": self.validation_months}
        checks.require_int(1, 9999, **months)
        counts = {"--per-month": self.per_month, "--bin-months": self.bin_months}
        checks.require_int(1, **counts, **{"--control-per-month": self.control_per_month})
        fraction = {"--test-fraction": self.test_fraction}
        checks.require_number("a number from 1e-9 to below 1", 1e-9, 1, **fraction)
        if self.test_fraction and (self.per_month or self.control_per_month):
            raise UserError(
                "--test-fraction excludes --per-month and --control-per-month; give one of them."
            )
        if self.test_period * UNITS[self.unit] % self.bin_months:
            raise UserError(
                f"The test period, {self.test_period * UNITS[self.unit]} months, is not a multiple "
                f"of --bin-months {self.bin_months}; change one of them."
            )


@dataclasses.dataclass(frozen=True)
class Period:
    """The `first` and `last` month of the test, validation months before it, months per bin."""

    first: int
    last: int
    validation: int
    bin: int = 1

    @property
    def train_stop(self) -> int:
        """The first month after TIME-STRATIFIED's training months."""
        return self.first - self.validation

    def last_training_day(self) -> str:
        stop = max(self.train_stop, 13)  # of the year 1: dates know no earlier day before a month
        first = datetime.date(stop // 12, stop % 12 + 1, 1)
        return (first - datetime.timedelta(days=1)).isoformat()

    @property
    def test_months(self) -> range:
        return range(self.first, self.last + 1)

    @property
    def bins(self) -> int:
        return len(self.test_months) // self.bin

    def bin_of(self, months: np.ndarray) -> np.ndarray:
        """The bin of each month of the test period; of others, none of 0 to `bins` - 1."""
        return (months - self.first) // self.bin

    def name(self, bin: int) -> str:
        """A bin as messages call it."""
        month = month_name(self.first + bin * self.bin)
        return f"test month {month}" if self.bin == 1 else f"{self.bin} test months from {month}"


def period_of(index: Index, options: Options) -> Period:
    """The test period; checks that there are documents in each of its months and before it.

    Raises:
      UserError: there are not.
    """
    if options.test_end:
        last = month_number(options.test_end, "--test-end")
    else:
        last = int(index.months.max())
        # A period of years ends with a December, also where the corpus ends before.
        last = last // 12 * 12 + 11 if options.unit == "year" else last
    first = last - options.test_period * UNITS[options.unit] + 1
    period = Period(first, last, options.validation_months, options.bin_months)
    bins = period.bin_of(index.months)
    counts = np.bincount(bins[(bins >= 0) & (bins < period.bins)], minlength=period.bins)
    if (counts == 0).any():
        more = f" and in {n} more" if (n := int((counts == 0).sum()) - 1) else ""
        empty = period.name(int(np.argmax(counts == 0)))
        first, newest = (month_name(int(f(index.months))) for f in (np.min, np.max))
        raise UserError(
            f"The corpus, of {first} to {newest}, has no documents in the {empty}{more}; "
            f"{_advice(index, period)}."
        )
    if not (index.months < period.train_stop).any():
        raise UserError(
            f"No document is older than {period.last_training_day()}, the last day that "
            f"TIME-STRATIFIED may train on; {_advice(index, period)}, or give fewer "
            "--validation-months."
        )
    if not ((index.months >= period.train_stop) & (index.months < period.first)).any():
        raise UserError(
            f"The {period.validation} months before {month_name(period.first)} have no documents, "
            "so TIME-STRATIFIED cannot be validated; give more --validation-months."
        )
    return period


def _advice(index: Index, period: Period) -> str:
    """Proposes the longest test period of the corpus, and the shortest bins for the present one."""
    present, counts = np.unique(index.months, return_counts=True)
    full, validation, spans = present[counts > 1], period.validation, [(0, 0)]
    for run in filter(len, np.split(full, np.flatnonzero(np.diff(full) > 1) + 1)):
        lengths = run[-1] + 1 - run
        train, before = (np.searchsorted(np.sort(index.months), x) for x in (run - validation, run))
        # CONTROL needs a document of each month, and so TIME-STRATIFIED as many: twice, to be sure.
        fits = (train < before) & (train >= 2 * lengths) & (lengths % period.bin == 0)
        spans += [(n, run[-1]) for n in lengths[fits][:1]]
    months, last = map(int, max(spans))
    longest = f"--unit month --test-period {months} --test-end {month_name(last)}"
    advice = [f"choose {longest} (the longest with enough documents)"] * (months > 0)
    older, bins = present[present < period.first], period.bin_of(full)
    bins = bins[(bins >= 0) & (bins < period.bins)]
    wider = [n for n in range(2, period.bins // 2 + 1) if period.bins % n == 0]
    wider = [n * period.bin for n in wider if len(set(bins // n)) * n == period.bins]
    needed = max([validation, *(period.first - older[-1:])])
    if wider and (older < period.first - needed).any():
        more = f" --validation-months {needed}" if needed > validation else ""
        advice.append(f"count by --bin-months {wider[0]}{more}")
    return " or ".join(advice) or "no test period of months has documents before it to train on"


def assign(index: Index, options: Options, period: Period) -> np.ndarray:
    """Returns uint8 [N], the splits of each document as bits.

    Raises:
      UserError: a month has too few documents, or the two arms cannot be made equally large.
    """
    bits = np.zeros(len(index), np.uint8)
    # TIME-STRATIFIED: all before the validation months.
    bits[index.months < period.train_stop] |= TS_TRAIN
    before = (index.months >= period.train_stop) & (index.months < period.first)
    bits[before] |= TS_VALIDATION
    bins = period.bin_of(index.months)
    # Each month in random order: the first `quota` are test documents.
    drawn = [_drawn(index, np.flatnonzero(bins == i)) for i in range(period.bins)]
    quotas = _test_quotas(drawn, options, period)
    for rows, quota in zip(drawn, quotas, strict=True):
        bits[rows[:quota]] |= TEST
    # CONTROL's validation and training documents come from what is left, so that no test document
    # is among them.
    rest = [rows[quota:] for rows, quota in zip(drawn, quotas, strict=True)]
    rest = _draw_validation(index, bits, rest, int(before.sum()))
    _fill_control(index, bits, rest, options, period)
    # Checked on every split: a leak would look like a result.
    verify(index, bits, options, period)
    return bits


def _drawn(index: Index, rows: np.ndarray) -> np.ndarray:
    """Rows in a random order that depends on ids and seed only."""
    return rows[np.argsort(index.keys[rows])]


def _mixed(keys: np.ndarray) -> np.ndarray:
    """Hashes of hashes, so that a second draw is independent of the first (splitmix64)."""
    z = keys.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _test_quotas(drawn: list[np.ndarray], options: Options, period: Period) -> list[int]:
    """Number of test documents in each bin."""
    if options.test_fraction:
        return [max(1, round(options.test_fraction * len(rows))) for rows in drawn]
    smallest = min(range(len(drawn)), key=lambda i: len(drawn[i]))
    available = len(drawn[smallest])
    quota = options.per_month or max(1, min(PER_MONTH, available // 3))
    if available <= quota:
        raise UserError(
            f"The {period.name(smallest)} has {available} documents, of which {quota} would be "
            "for the test and none for CONTROL; give a smaller --per-month, or a --test-fraction."
        )
    return [quota] * len(drawn)


def _draw_validation(
    index: Index, bits: np.ndarray, rest: list[np.ndarray], wanted: int
) -> list[np.ndarray]:
    """Draws CONTROL's validation documents; returns the rest of each bin.

    There are as many as TIME-STRATIFIED's, but a quarter of what is left at most.
    """
    everything = np.concatenate(rest)
    count = min(wanted, len(everything) // 4)
    # Another hash: the order of `drawn` has chosen the test documents already.
    order = np.argsort(_mixed(index.keys[everything]))
    bits[everything[order[:count]]] |= CTL_VALIDATION
    return [rows[bits[rows] & CTL_VALIDATION == 0] for rows in rest]


def _fill_control(
    index: Index, bits: np.ndarray, rest: list[np.ndarray], options: Options, period: Period
) -> None:
    """Gives CONTROL as much training text as TIME-STRATIFIED: of each bin, then of before them."""
    sizes = index.sizes(options.measure)
    target = int(sizes[bits & TS_TRAIN > 0].sum())
    chosen = _chosen(sizes, rest, target, options, period)
    bits[chosen] |= CTL_TRAIN
    stop = period.first if options.control_on_validation_months else period.train_stop
    newest = newest_first(index, np.flatnonzero(index.months < stop))
    # Newest first until the sizes are equal.
    within = np.cumsum(sizes[newest]) <= target - int(sizes[chosen].sum())
    bits[newest[within]] |= CTL_TRAIN


def _chosen(
    sizes: np.ndarray, rest: list[np.ndarray], target: int, options: Options, period: Period
) -> np.ndarray:
    """CONTROL's training documents of the test period: equally many of each bin, or all."""
    if options.test_fraction:
        chosen = np.concatenate(rest)
        if not len(chosen) or sizes[chosen].sum() > target:
            raise UserError(
                f"The arms cannot be made equal: TIME-STRATIFIED trains on {target:,} "
                f"{options.measure}, and what is left of the test period for CONTROL is "
                f"{int(sizes[chosen].sum()):,}; choose a shorter --test-period or --per-month."
            )
        return chosen
    smallest = min(range(len(rest)), key=lambda i: len(rest[i]))
    available = len(rest[smallest])
    quota = options.control_per_month or available
    if not available or quota > available:
        raise UserError(
            f"The arms cannot be made equal: CONTROL would train on {quota or 'some'} documents of "
            f"the {period.name(smallest)}, which has {available} left; give a smaller --per-month "
            "or --control-per-month, or a --test-fraction."
        )
    # totals[n - 1]: the size of n documents of each bin.
    totals = sum(np.cumsum(sizes[rows[:quota]]) for rows in rest)
    fits = int(np.searchsorted(totals, target, "right"))
    if fits == 0 or (options.control_per_month and fits < quota):
        raise UserError(
            f"The arms cannot be made equal: TIME-STRATIFIED trains on {target:,} "
            f"{options.measure}, and {quota} documents of each test month are "
            f"{int(totals[quota - 1]):,}; give a smaller --control-per-month, or a shorter "
            "--test-period."
        )
    return np.concatenate([rows[:fits] for rows in rest])


def newest_first(index: Index, rows: np.ndarray) -> np.ndarray:
    """Rows by day, latest first; within a day in a random but fixed order."""
    return rows[np.lexsort((index.keys[rows], -index.days[rows].astype(np.int64)))]


def verify(index: Index, bits: np.ndarray, options: Options, period: Period) -> None:
    """Checks that the two arms of a split are comparable.

    Raises:
      RuntimeError: it is not as it should be, which is an error of this module.
    """
    has = {name: bits & (1 << i) > 0 for i, name in enumerate(NAMES)}
    test, train = has["test"], has["time_stratified_train"]
    validation, control = has["time_stratified_validation"], has["control_train"]
    validated = has["control_validation"]
    sizes = index.sizes(options.measure)
    wanted, got = int(sizes[train].sum()), int(sizes[control].sum())
    most = 0 if options.measure == "documents" else int(sizes.max())  # that the arms may differ by
    in_test = (index.months >= period.first) & (index.months <= period.last)
    months = index.months[control & in_test]
    older = index.days[control & ~in_test]
    pool = ~in_test & (index.months < period.first)
    if not options.control_on_validation_months:
        pool &= index.months < period.train_stop
    left = index.days[pool & ~control]
    facts = {
        "the arms differ in size": 0 <= wanted - got <= most,
        "a test document is in another split": not (test & (bits != TEST)).any(),
        "CONTROL is validated on what it trains on": not (control & validated).any(),
        "training is not before validation, and that not before the test": (
            index.days[train].max() < index.days[validation].min()
            and index.days[validation].max() < index.days[test].min()
        ),
        "the test months are not alike": bool(options.test_fraction)
        or (_alike(index.months[test], period) and _alike(months, period)),
        "a test month has no test document": len(np.unique(period.bin_of(index.months[test])))
        == period.bins,
        "CONTROL's older documents are not the newest": (
            not len(older) or not len(left) or left.max() <= older.min()
        ),
    }
    if wrong := [what for what, holds in facts.items() if not holds]:
        raise RuntimeError(f"The split is wrong: {'; '.join(wrong)}.")


def _alike(months: np.ndarray, period: Period) -> bool:
    bins = period.bin_of(months)
    if ((bins < 0) | (bins >= period.bins)).any():
        return False
    counts = np.bincount(bins, minlength=period.bins)
    return len(set(counts.tolist())) == 1


def summary(index: Index, bits: np.ndarray, options: Options, period: Period) -> dict[str, Any]:
    """The contents of `split.json`: settings, counts, CONTROL's fraction of the test period."""
    sizes, control = index.sizes(options.measure), bits & CTL_TRAIN > 0
    fraction = sizes[control & (index.months >= period.first)].sum() / max(sizes[control].sum(), 1)

    def of_each(split: int) -> int | None:
        if options.test_fraction:
            return None
        return int((bits & split > 0)[index.months >= period.first].sum()) // period.bins

    return {
        "settings": dataclasses.asdict(options),
        "test_per_month": of_each(TEST),
        "train_until": period.last_training_day(),
        "test_months": [month_name(m) for m in period.test_months],
        "control_per_month": of_each(CTL_TRAIN),
        "fraction_from_test_period": float(fraction),
        "counts": {name: counts(index, bits & (1 << i) > 0) for i, name in enumerate(NAMES)},
        "unused": counts(index, bits == 0),
    }


def counts(index: Index, rows: np.ndarray) -> dict[str, Any]:
    """Documents, words, bytes and dates of some rows (a mask)."""
    days = index.days[rows]
    ends = (int(f(days)) for f in (np.min, np.max) if len(days))
    return {
        "documents": len(days),
        "words": int(index.words[rows].sum()),
        "bytes": int(index.bytes[rows].sum()),
        "dates": [datetime.date.fromordinal(day).isoformat() for day in ends],
    }


def windows(
    index: Index, options: Options, period: Period, count: int = 11
) -> dict[str, np.ndarray]:
    """Training sets of one size whose last months lie further and further back, by half a year.

    Args:
      index, options, period: of the main experiment, whose test documents are those of all.
      count: of sets.

    Returns:
      ISO date of the last training day -> rows. All have as many documents (words, bytes) as there
      are up to the earliest of these days.

    Raises:
      UserError: there is nothing before the earliest day.
    """
    stops = {}
    for i in range(count):
        stop = period.train_stop - 6 * i
        end = dataclasses.replace(period, first=stop + period.validation).last_training_day()
        stops[end] = np.flatnonzero(index.months < stop)
    if not len(stops[end]):
        raise UserError(
            f"There are no documents before {month_name(stop)}, where the last of {count} "
            f"training windows ends; give fewer --steps than {count}."
        )
    return _of_one_size(index, options, stops)


def cutoffs(
    index: Index, options: Options, period: Period, years: Sequence[int]
) -> dict[int, np.ndarray]:
    """Training sets of one size that end with different years: the newest documents until then.

    Documents of test and validation are in none of them, so that years of the test period can be
    among them.

    Returns:
      Year -> rows. All have as many words (documents, bytes) as there are in the first of them.

    Raises:
      UserError: a year lies outside the corpus.
    """
    free = assign(index, options, period) & (TEST | TS_VALIDATION | CTL_VALIDATION) == 0
    first, last = (int(f(index.months)) // 12 for f in (np.min, np.max))
    if bad := [year for year in years if not first <= year <= last]:
        raise UserError(
            f"--cutoffs {bad[0]}: the corpus has documents of {first} to {last}; give years of it."
        )
    rows = {y: np.flatnonzero(free & (index.months // 12 <= y)) for y in sorted(years)}
    return _of_one_size(index, options, rows)


def _of_one_size(
    index: Index, options: Options, candidates: Mapping[_Name, np.ndarray]
) -> dict[_Name, np.ndarray]:
    """The newest rows of each, up to what the smallest can supply."""
    sizes = index.sizes(options.measure)
    target = min(int(sizes[rows].sum()) for rows in candidates.values())
    newest = {name: newest_first(index, rows) for name, rows in candidates.items()}
    return {name: rows[np.cumsum(sizes[rows]) <= target] for name, rows in newest.items()}
