"""Staleness without a control: planted drift is found, and none where there is none."""

import collections

import numpy as np
import pytest

from ckl_jax.data.tasks.word_losses import DumpWriter, WordLosses
from ckl_jax.errors import UserError
from ckl_jax.papers.mind_the_gap.analysis import frequency_control, staleness
from tests.papers.mind_the_gap.analysis.dumps import write_scored

MONTHS, PER_MONTH, WORDS = 18, 12, 40
ONE = np.ones(2, np.int32)
KINDS = np.arange(60)
CHANCES = 1 / (1 + KINDS) / (1 / (1 + KINDS)).sum()


def corpus(seed):
    generator = np.random.default_rng(seed)
    return [
        (
            f"{2019 + m // 12}-{1 + m % 12:02d}-{d + 1:02d}",
            [f"w{k}" for k in generator.choice(KINDS, WORDS, p=CHANCES)],
        )
        for m in range(MONTHS)
        for d in range(PER_MONTH)
    ]


def month_of(date):
    return 12 * (int(date[:4]) - 2019) + int(date[5:7]) - 1


def curve_of(folder, seed, rise):
    """A model whose losses depend on the word, and rise by `rise` nats a month from month 9 on."""
    generator = np.random.default_rng(seed + 1000)

    def perplexity(date, word):
        late = max(0, month_of(date) - 8)
        return np.exp(4 + int(word[1:]) / 20 + generator.normal(0, 0.5) + rise * late)

    dump = write_scored(folder, corpus(seed), perplexity)
    control = frequency_control.FrequencyControl(dump)
    totals = staleness.read_totals({"m": dump})["m"]
    return control, staleness.relative_increase(totals, control.totals(), samples=200)


def test_a_planted_rise_is_found_where_it_begins(tmp_path):
    control, curve = curve_of(tmp_path, 0, 0.03)
    found = frequency_control.estimate_cutoff(curve)
    assert found["low"] <= "2019-09" <= found["high"] and "2019-06" <= found["month"] <= "2019-12"
    # The last month is 9 after the rise begins: exp(0.03) - 1 a month, from a mean above the start.
    assert found["slope_low"] < 3.3 < found["slope_high"]
    pair = WordLosses("d", "2019-01-01", ["w0", "w59"], np.zeros(2), ONE, ONE)
    expected = control.expected(pair)
    assert expected[0] < expected[1]  # w59 is rarer, and was made harder
    rising = control.sources(found["month"])["documents"]
    assert all(document["date"] >= found["month"] for document in rising)


def test_nothing_is_found_where_nothing_rises(tmp_path):
    found = [
        frequency_control.estimate_cutoff(curve_of(tmp_path / str(seed), seed, 0.0)[1]) is not None
        for seed in range(12)
    ]
    assert sum(found) <= 2


def test_words_of_one_frequency_and_length_are_their_own_control(tmp_path):
    """A brute force over classes."""
    generator = np.random.default_rng(2)
    documents = [
        WordLosses(
            str(i),
            date,
            words,
            generator.uniform(1, 9, len(words)).astype(np.float32),
            np.array([1 + int(word[1:]) % 3 for word in words], np.int32),
            np.zeros(len(words), np.int32),
        )
        for i, (date, words) in enumerate(corpus(1))
    ]
    writer = DumpWriter(tmp_path, {})
    for document in documents:
        writer.add(document)
    writer.flush()
    control = frequency_control.FrequencyControl(tmp_path)
    every = [
        (word, tokens, float(nll))
        for d in documents
        for word, tokens, nll in zip(d.words, d.tokens.tolist(), d.nll, strict=True)
    ]
    counts = collections.Counter(word for word, *_ in every)

    def kind(word, tokens):
        return int(np.log2(counts[word])), tokens

    expected = control.expected(documents[0])
    for word, tokens, value in zip(documents[0].words, documents[0].tokens, expected, strict=True):
        alike = [nll for w, t, nll in every if kind(w, t) == kind(word, int(tokens))]
        assert value == pytest.approx(np.mean(alike), abs=1e-5)
    assert control.totals().nll.sum() == pytest.approx(sum(nll for *_, nll in every), rel=1e-6)


def test_the_detectable_slope_is_that_of_least_squares():
    months = {f"2020-{m:02d}": n for m, n in zip(range(1, 7), (5, 9, 2, 7, 4, 8), strict=True)}
    generator = np.random.default_rng(0)
    slopes = []
    for _ in range(4000):
        means = [generator.normal(0, 0.1, n).mean() for n in months.values()]
        slopes.append(np.polyfit(np.arange(6), means, 1)[0])
    found = frequency_control.detectable_slope(0.1, months)
    assert np.log1p(found / 100) == pytest.approx(2.8 * np.std(slopes), rel=0.05)
    with pytest.raises(UserError, match="of the three months that a slope needs"):
        frequency_control.detectable_slope(0.1, {"2020-01": 3, "2020-02": 3})
