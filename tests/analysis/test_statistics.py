import math

import numpy as np
import pytest

from ckl_jax.analysis import statistics as st


def test_bootstrap_has_the_mean_and_spread_of_a_binomial():
    n, p = 400, 0.3
    values = (np.arange(n) < p * n).astype(float)[None]
    means = st.bootstrap_means(values, samples=20_000, seed=1)
    assert means.shape == (1, 20_000)
    assert means.mean() == pytest.approx(p, abs=1e-3)
    assert means.std() == pytest.approx(math.sqrt(p * (1 - p) / n), rel=0.03)
    low, high = st.interval(means[0])
    assert low == pytest.approx(p - 1.96 * means.std(), abs=0.004)
    assert high == pytest.approx(p + 1.96 * means.std(), abs=0.004)


def test_bootstrap_is_seeded_and_keeps_pairs():
    a = np.random.default_rng(0).random((2, 50))
    np.testing.assert_array_equal(st.bootstrap_means(a, 10, 3), st.bootstrap_means(a, 10, 3))
    assert (st.bootstrap_means(a, 10, 3) != st.bootstrap_means(a, 10, 4)).any()
    turned = st.bootstrap_means(a[::-1], 10, 3)[::-1]
    np.testing.assert_array_equal(turned, st.bootstrap_means(a, 10, 3))
    shifted = np.stack([a[0], a[0] + 0.25])
    low, high = st.bootstrap_means(shifted, 100)
    np.testing.assert_allclose(high - low, 0.25)


def test_bootstrap_agrees_with_drawing_items_one_by_one():
    values = np.random.default_rng(0).integers(0, 2, (3, 40)).astype(float)
    draws = np.random.default_rng(1).integers(0, 40, (20_000, 40))
    plain = values[:, draws].mean(-1)
    fast = st.bootstrap_means(values, 20_000)
    np.testing.assert_allclose(np.cov(fast), np.cov(plain), atol=3e-4)


def _drawn(seeds, samples=2000, seed=0):
    """[S, B] differences of two models' means, in resamples of each seed's items [2, N]."""
    means = (st.bootstrap_means(v, samples, (seed, s)) for s, v in enumerate(seeds))
    return np.stack([a - b for a, b in means])


def test_seeds_and_items_are_drawn_as_in_a_plain_loop():
    generator = np.random.default_rng(0)
    # Of another number of items and another gap in each seed.
    seeds = [
        (generator.random((2, n)) < [[0.5 + gap], [0.5]]).astype(float)
        for n, gap in ((30, 0.0), (50, 0.2), (40, 0.4))
    ]
    plain = []
    for _ in range(4000):
        effects = []
        for s in generator.integers(3, size=3):
            n = seeds[s].shape[1]
            mine = seeds[s][:, generator.integers(n, size=n)].mean(axis=1)
            effects.append(mine[0] - mine[1])
        plain.append(np.mean(effects))
    fast = st.bootstrap_seeds(_drawn(seeds, 20_000))
    assert fast.mean() == pytest.approx(np.mean(plain), abs=0.008)
    assert fast.std() == pytest.approx(np.std(plain), rel=0.05)
    tails = [0.5, 2.5, 50, 97.5, 99.5]
    np.testing.assert_allclose(np.percentile(fast, tails), np.percentile(plain, tails), atol=0.03)
    np.testing.assert_array_equal(fast, st.bootstrap_seeds(_drawn(seeds, 20_000)))
    alone = _drawn(seeds[:1], 100)
    np.testing.assert_array_equal(st.bootstrap_seeds(alone), alone[0])


@pytest.mark.parametrize("seeds, stddev", [(5, 0.1), (8, 0.08)])
def test_the_interval_over_seeds_holds_the_truth_19_times_of_20(seeds, stddev):
    generator = np.random.default_rng(1)
    inside, trials = 0, 300
    for trial in range(trials):
        chances = 0.4 + stddev * generator.standard_normal(seeds)
        answers = [(generator.random((1, 200)) < p).astype(float) for p in chances]
        drawn = np.stack([st.bootstrap_means(v, 400, (trial, s))[0] for s, v in enumerate(answers)])
        low, high = st.seed_interval(st.bootstrap_seeds(drawn, trial), seeds)
        inside += low <= 0.4 <= high
    assert 0.93 <= inside / trials <= 0.99


def test_an_interval_of_two_seeds_is_all_that_was_drawn():
    samples = np.arange(1000.0)
    assert st.seed_interval(samples, 2) == (0.0, 999.0)
    assert st.seed_interval(samples, 1) == st.interval(samples)
    low, high = st.seed_interval(samples, 5)
    assert 0 < low < 3 and 996 < high < 999
    assert st.seed_interval(samples, 1000) == pytest.approx(st.interval(samples), abs=2)
    samples[:100] = np.nan  # may be anything
    assert st.seed_interval(samples, 1) == (-math.inf, math.inf)
    assert st.seed_interval(np.array([1.0] * 50 + [np.inf] * 50), 1) == (1.0, math.inf)


def test_how_many_seeds_are_needed():
    assert st.seeds_needed(1.0, 0.1) == 5  # 2.776 / sqrt(5) * 0.1 < 1
    assert st.seeds_needed(1.0, 1.0) == 7  # 2.447 / sqrt(7) < 1 < 2.571 / sqrt(6)
    assert st.seeds_needed(-1.0, 1.0, fewest=9) == 9
    assert st.seeds_needed(0.1, 1.0) is st.seeds_needed(0.0, 0.0) is None


def test_resamples_do_not_depend_on_how_many_are_held_at_once(monkeypatch):
    part, draws = np.random.default_rng(0).random((50, 2)), []
    for held in (st._BLOCK, 7 * len(part), 1):
        monkeypatch.setattr(st, "_BLOCK", held)
        draws.append(st.resampled_sums(part, 100, np.random.default_rng(1)))
    assert draws[0].shape == (100, 2) and draws[0].std() > 0
    np.testing.assert_allclose(draws[1:], [draws[0]] * 2, rtol=1e-12)


def test_interval_ranks_infinity_last():
    samples = np.array([0.0] * 50 + [1.0] * 40 + [np.inf] * 10)
    assert st.interval(samples) == (0.0, math.inf)


def test_fuar_samples_are_nan_of_nan_alone():
    zero, one = np.zeros(3), np.ones(3)
    before = {"IL": one, "UL": np.array([0.0, 1.0, 0.0])}
    after = {"IL": zero, "UL": np.array([2.0, 1.0, 0.0])}
    samples = st.fuar_samples([before, after], ["IL"], "UL", None)
    assert samples.tolist() == [0.5, math.inf, math.inf]
    one_fact = {"IL": zero, "UL": np.full(3, np.nan)}  # which has no interval
    samples = st.fuar_samples([before, one_fact], ["IL"], "UL", None)
    assert np.isnan(samples).all() and math.isnan(st.interval(samples)[0])


def test_mcnemar_is_the_exact_binomial_test():
    a = np.array([1] * 9 + [0] * 2 + [1] * 30)
    b = np.array([0] * 9 + [1] * 2 + [1] * 30)
    exact = 2 * sum(math.comb(11, k) for k in range(3)) / 2**11
    assert st.mcnemar(a, b) == pytest.approx(exact)
    assert st.mcnemar(a, a) == 1.0
    assert st.sign_test(5, 5) == 1.0
    assert 0 < st.sign_test(3000, 1000) < 1e-200  # no underflow on the way there
    with pytest.raises(ValueError, match="items"):
        st.mcnemar(a, b[:-1])


def test_paired_differences():
    generator = np.random.default_rng(0)
    base = generator.random(300)
    better = base + 0.1 * generator.random(300)
    means = st.bootstrap_means(np.stack([better, base, generator.permutation(base)]))
    clear, none = means[0] - means[1], means[1] - means[2]
    assert st.interval(clear)[0] > 0 and st.two_sided(clear) < 0.01
    low, high = st.interval(none)
    assert low < 0 < high and st.two_sided(none) > 0.05


def test_holm():
    adjusted = st.holm({"a": 0.01, "b": 0.04, "c": 0.03})
    assert adjusted == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06})
    assert st.holm({}) == {}


def test_precision_curve_reads_the_widest_search():
    rank, beams = np.array([1, 0, 7, 40, 1]), np.array([50, 50, 50, 50, 2])
    assert st.precision_curve(rank, beams) == {1: 0.25, 5: 0.25, 10: 0.5, 20: 0.5, 50: 0.75}
    assert st.precision_curve(np.array([2]), np.array([2])) == {1: 0.0, 2: 1.0}


def test_groups_are_in_order_of_first_occurrence():
    values, relations = np.array([1, 1, 1, 0.0]), ["b", "b", "b", "a"]
    assert st.by_relation(values, relations) == {"b": (3, 1.0), "a": (1, 0.0)}
