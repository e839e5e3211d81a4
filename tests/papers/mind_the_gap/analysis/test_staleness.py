"""Curves of staleness against sums written out, a pooled regression, and hand-made documents."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from ckl_jax.data.tasks.word_losses import DumpWriter, WordLosses
from ckl_jax.errors import UserError
from ckl_jax.papers.mind_the_gap.analysis import emerging, staleness, staleness_study

MONTHS = [f"2018-{m:02d}" for m in range(1, 9)]


def _stream(seed: int = 0, per_month: int = 6) -> list[WordLosses]:
    generator = np.random.default_rng(seed)
    documents = []
    for month in MONTHS:
        for i in range(per_month):
            words = [f"w{j}" for j in generator.integers(0, 20, generator.integers(3, 9))]
            nll = 1.0 + generator.gamma(2.0, 1.0, len(words)).astype(np.float32)
            tokens = generator.integers(1, 4, len(words), dtype=np.int32)
            start = np.zeros(len(words), np.int32)
            documents.append(
                WordLosses(f"{month}-{i}", f"{month}-{i + 1:02d}", words, nll, tokens, start)
            )
    return documents


def _scaled(documents, factors):
    """Losses such that a month's perplexity is its factor times what it was."""
    return [
        dataclasses.replace(d, nll=(d.nll + np.float32(math.log(factors[d.date[:7]]))))
        for d in documents
    ]


def _dump(folder, documents):
    writer = DumpWriter(folder, {"memory_length": 4}, most=5)
    for document in documents:
        writer.add(document)
    writer.flush()
    return folder


def _curves(tmp_path, *factors, **kwargs):
    control = _stream()
    dumps = {"control": _dump(tmp_path / "control", control)}
    for i, ratio in enumerate(factors):
        dumps[str(i)] = _dump(tmp_path / str(i), _scaled(control, ratio))
    totals = staleness.read_totals(dumps)
    return [
        staleness.relative_increase(totals[str(i)], totals["control"], **kwargs)
        for i in range(len(factors))
    ]


def test_a_constant_ratio_is_flat_and_a_growing_one_rises(tmp_path):
    growing = {month: 1.02 + 0.01 * i for i, month in enumerate(MONTHS)}
    flat, rising = _curves(tmp_path, dict.fromkeys(MONTHS, 1.1), growing)
    np.testing.assert_allclose(flat.values, 10.0, atol=1e-4)
    assert abs(flat.line.slope) < 1e-5
    np.testing.assert_allclose(rising.values, 2.0 + np.arange(8), atol=1e-4)
    assert rising.line.slope == pytest.approx(1.0, abs=1e-5)
    assert rising.labels == tuple(MONTHS)
    # Every document of a month has the same ratio, so that no resample differs.
    np.testing.assert_allclose(rising.low, rising.high, atol=1e-4)
    assert staleness.overtakes(flat) is None
    assert flat.overall["value"] == pytest.approx(10.0, abs=1e-4)
    gaps = [
        sum(len(d.words) for d in _stream() if d.date[:7] == m) * math.log(r)
        for m, r in growing.items()
    ]
    whole = 100 * math.expm1(sum(gaps) / rising.words.sum())
    assert rising.overall["value"] == pytest.approx(whole, abs=1e-4)
    assert rising.overall["low"] <= whole <= rising.overall["high"]


def test_perplexities_are_those_of_words_and_the_grouping_does_not_matter(tmp_path):
    documents = _stream()
    totals = staleness.read_totals({"m": _dump(tmp_path / "m", documents)})["m"]
    losses = np.concatenate([d.nll for d in documents]).astype(np.float64)
    assert totals.perplexity()["all"] == pytest.approx(math.exp(losses.mean()), rel=1e-6)

    class Initials:
        names = ("even", "odd")

        def weights(self, document):
            odd = np.array([int(w[1:]) % 2 for w in document.words])
            return np.stack([1 - odd, odd]).astype(float)

    parts = staleness.read_totals({"m": tmp_path / "m"}, [Initials()])["m"]
    np.testing.assert_allclose(parts.nll[1:].sum(0), parts.nll[0], rtol=1e-6)
    np.testing.assert_array_equal(parts.words[1:].sum(0), parts.words[0])
    odd = np.concatenate([[int(w[1:]) % 2 for w in d.words] for d in documents]).astype(bool)
    assert parts.perplexity()["odd"] == pytest.approx(math.exp(losses[odd].mean()), rel=1e-6)


def test_the_test_of_slopes_is_that_of_the_interaction_term(tmp_path):
    generator = np.random.default_rng(3)
    factors = [
        {m: 1.0 + 0.01 * (i * s + generator.normal()) for i, m in enumerate(MONTHS)}
        for s in (2.0, 1.0)
    ]
    a, b = _curves(tmp_path, *factors)
    found = staleness.compare_slopes(a, b)
    x = np.tile(np.arange(8.0), 2)
    g = np.repeat([1.0, 0.0], 8)
    design = np.stack([np.ones(16), x, g, x * g], 1)
    y = np.concatenate([a.values, b.values])
    coefficients, residual, *_ = np.linalg.lstsq(design, y, rcond=None)
    error = math.sqrt(residual[0] / 12 * np.linalg.inv(design.T @ design)[3, 3])
    assert found.degrees == 12
    assert found.difference == pytest.approx(coefficients[3])
    assert found.t == pytest.approx(coefficients[3] / error)
    paired = staleness.compare_slopes(a, b, paired=True)
    assert (paired.degrees, paired.difference) == (6, pytest.approx(found.difference))
    assert paired.t == pytest.approx(staleness.fit_line(a.values - b.values).t)


class Named:
    """Words called `name`."""

    def __init__(self, name):
        self.names = (name,)

    def weights(self, document):
        return np.array([[float(word == self.names[0]) for word in document.words]])


def _few(tmp_path, words, factors, name="few", dates=None):
    """A document a month, of the words given; its losses are log(100 factor) a word."""
    dates = dates or [f"2018-{i + 1:02d}-01" for i in range(len(words))]
    return _dump(
        tmp_path / name,
        [
            WordLosses(
                f"d{i}",
                dates[i],
                list(text),
                np.full(len(text), np.log(100 * factor), np.float32),
                np.ones(len(text), np.int32),
                np.zeros(len(text), np.int32),
            )
            for i, (text, factor) in enumerate(zip(words, factors, strict=True))
        ],
    )


def test_a_group_that_lacks_months_keeps_its_places_in_time(tmp_path):
    words = ("ab", "b", "b", "ab", "ab")
    dumps = {
        "control": _few(tmp_path, words, [1] * 5, "control"),
        "model": _few(tmp_path, words, [1.1, 9, 9, 1.4, 1.5]),
    }
    totals = staleness.read_totals(dumps, [Named("a")])
    curve = staleness.relative_increase(totals["model"], totals["control"], group="a", samples=9)
    assert curve.positions == (0, 3, 4)
    assert curve.line.slope == pytest.approx(10, rel=1e-4)  # 10, 40, 50 percent
    # Of one document a month nothing is known about the spread of a month's documents.
    assert all(map(np.isnan, [*curve.low, *curve.high, *curve.slopes]))
    assert curve.as_dict()["line"]["slope"] == pytest.approx(10, rel=1e-4)


def test_months_with_one_document_do_not_narrow_intervals(tmp_path):
    """Months of 1, 2, 1 and 2 documents: the line is that through the second and the fourth."""
    dates = [f"2018-{day}" for day in ("01-01", "02-01", "02-02", "03-01", "04-01", "04-02")]
    factors = (9, 1.1, 1.3, 9, 1.5, 2.0)
    dumps = {
        "control": _few(tmp_path, "aaaaaa", [1] * 6, "control", dates),
        "model": _few(tmp_path, "aaaaaa", factors, "model", dates),
    }
    totals = staleness.read_totals(dumps, [])
    curve = staleness.relative_increase(totals["model"], totals["control"])
    np.testing.assert_array_equal(np.isnan(curve.low), [True, False, True, False])
    second, fourth = (100 * (math.sqrt(x * y) - 1) for x, y in ((1.1, 1.3), (1.5, 2.0)))
    assert curve.line.slope == pytest.approx((fourth - second) / 2, rel=1e-4)
    assert staleness_study._slopes(curve, curve) is None, "of two points"
    low, high = staleness.interval(curve.slopes)
    assert low == pytest.approx((50 - 30) / 2, rel=1e-3)  # the worse of one, the better of another
    assert high == pytest.approx((100 - 10) / 2, rel=1e-3)
    # The outliers of January and March are in some samples of the whole, and not in others.
    every = curve.overall
    assert every["low"] < every["value"] / 1.5 and every["high"] > every["value"] * 1.5


def test_documents_without_a_word_of_the_group_do_not_narrow_its_interval(tmp_path):
    """Against all 4^4 equally likely samples of a month's documents."""
    factors, dates = [1.1, 9, 9, 1.4], [f"2018-05-{i:02d}" for i in (1, 2, 3, 4)]
    dumps = {}
    for name, words in {"two": ("a", "b", "b", "a"), "one": ("a", "b", "b", "b")}.items():
        dumps[f"{name} control"] = _few(tmp_path, words, [1] * 4, f"{name} control", dates)
        dumps[name] = _few(tmp_path, words, factors, name, dates)

    def curve(name):
        totals = staleness.read_totals(
            {n: dumps[n] for n in (name, f"{name} control")}, [Named("a")]
        )
        return staleness.relative_increase(totals[name], totals[f"{name} control"], group="a")

    samples = [np.bincount(s, minlength=4) for s in itertools.product(range(4), repeat=4)]
    defined = [s for s in samples if s[0] + s[3]]
    logs = [(s[0] * math.log(1.1) + s[3] * math.log(1.4)) / (s[0] + s[3]) for s in defined]
    expected = np.percentile(100 * np.expm1(logs), [2.5, 97.5], method="nearest")
    found = curve("two")
    np.testing.assert_allclose([*found.low, *found.high], expected, rtol=1e-4)
    np.testing.assert_allclose([found.overall["low"], found.overall["high"]], expected, rtol=1e-4)
    assert expected[0] < found.values[0] < expected[1]
    alone = curve("one")
    assert all(map(np.isnan, [*alone.low, *alone.high, alone.overall["low"]]))


def test_weeks_are_seven_days_and_the_first_lasting_one_below_zero_is_named(tmp_path):
    documents = [
        WordLosses(
            f"d{i}",
            f"2018-01-{i + 1:02d}",
            ["a"],
            np.ones(1, np.float32),
            np.ones(1, np.int32),
            np.zeros(1, np.int32),
        )
        for i in range(28)
    ]
    bins = staleness.bins_of([d.date for d in documents], "week")
    assert bins.labels == ("2018-01-01", "2018-01-08", "2018-01-15", "2018-01-22")
    assert bins.spans == ((0, 7), (7, 14), (14, 21), (21, 28))
    sparse = staleness.bins_of(["2018-01-01", "2018-01-20"], "week")
    assert sparse.labels == ("2018-01-01", "2018-01-15") and sparse.positions == (0, 2)
    with pytest.raises(UserError, match="2018-02 has no test document"):
        staleness.bins_of(["2018-01-01", "2018-03-20"])
    with pytest.raises(UserError, match="order of their dates"):
        staleness.bins_of(["2018-02-01", "2018-01-20"])
    values = np.array([1.0, -1, 2, -1, -2, -3, -1])
    none = np.zeros(0)
    curve = staleness.Curve(
        tuple("abcdefg"), tuple(range(7)), values, none, none, none, none, none, none, {}
    )
    assert staleness.overtakes(curve) == "d"


def test_dumps_of_other_documents_are_refused(tmp_path):
    documents = _stream()
    a = _dump(tmp_path / "a", documents)
    with pytest.raises(UserError, match="b ends after 47 documents, and others go on"):
        staleness.read_totals({"a": a, "b": _dump(tmp_path / "b", documents[:-1])})
    with pytest.raises(UserError, match="differ at document 46"):
        staleness.read_totals(
            {"a": a, "d": _dump(tmp_path / "d", [*documents[:-2], documents[-1]])}
        )
    other = [dataclasses.replace(d, date=f"{d.date[:8]}2{d.date[9]}") for d in documents]
    with pytest.raises(UserError, match="differ at document 0"):
        staleness.read_totals({"a": a, "e": _dump(tmp_path / "e", other)})
    for loss in (np.nan, np.inf, -1.0, 1e30):
        broken = _scaled(documents, dict.fromkeys(MONTHS, 1.0))
        broken[3].nll[1] = loss
        with pytest.raises(UserError, match="2018-01-3"):
            staleness.read_totals({"c": _dump(tmp_path / "c", broken)})


def test_a_word_emerges_at_50_mentions_and_a_factor_of_5_exactly():
    def repeat(**counts):
        return [[w] * n for w, n in counts.items()]

    test = repeat(new=50, rare=49, five=50, less=50, filler=301)  # 500 words
    train = repeat(five=20, less=21, filler=959)  # 1,000 words: 20/1,000 is a fifth of 50/500
    counts = emerging.WordCounts.of(test, train)
    found = counts.emerging()
    assert [(w.word, w.test, w.train) for w in found] == [("five", 50, 20), ("new", 50, 0)]
    assert [w.word for w in counts.emerging(min_count=49)] == ["five", "new", "rare"]
    assert counts.unseen_fraction(["new", "new", "rare", "five", "filler"]) == 0.5
    with pytest.raises(UserError, match="training documents have no words"):
        emerging.WordCounts.of(test, [])


def test_mentions_are_told_apart_by_what_the_model_still_sees():
    """Chunks of 4 tokens, a memory of 4, words of one token."""
    words = "x a b c y x y c c a x".split()
    tokens = np.ones(len(words), np.int32)
    start = np.arange(len(words)) // 4 * 4
    document = WordLosses("d", "2019-01-01", words, np.zeros(len(words)), tokens, start)
    marks = emerging.EmergingMentions({"x", "a", "c"}, memory=4).weights(document)
    at = [np.flatnonzero(m).tolist() for m in marks]
    assert at[0] == [0, 1, 3, 5, 7, 8, 9, 10]
    assert at[1] == [0, 1, 3]
    assert at[2] == [5, 7]  # x at 5 sees x at 0: chunk 1 and its memory begin at 0
    assert at[3] == [9]  # a at 9: chunk 2 begins at 8, its memory at 4, the first a was at 1


def test_bins_of_several_months():
    dates = ["1980-03-05", "1981-11-01", "1982-01-01", "1983-12-31"]
    found = staleness.bins_of(dates, months=24, first="1980-01")
    assert found.labels == ("1980-01", "1982-01") and found.spans == ((0, 2), (2, 4))
    assert staleness.bins_of(dates, months=24).labels == ("1980-03", "1982-03")
    with pytest.raises(UserError, match="The 12 months from 1982-03 have no test document"):
        staleness.bins_of(dates, months=12)
    with pytest.raises(UserError, match="is of 1980-03-05, before 1981-01"):
        staleness.bins_of(dates, months=24, first="1981-01")
