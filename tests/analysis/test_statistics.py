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
    shifted = np.stack([a[0], a[0] + 0.25])
    low, high = st.bootstrap_means(shifted, 100)
    np.testing.assert_allclose(high - low, 0.25)


def test_bootstrap_agrees_with_drawing_items_one_by_one():
    values = np.random.default_rng(0).integers(0, 2, (3, 40)).astype(float)
    draws = np.random.default_rng(1).integers(0, 40, (20_000, 40))
    plain = values[:, draws].mean(-1)
    fast = st.bootstrap_means(values, 20_000)
    np.testing.assert_allclose(np.cov(fast), np.cov(plain), atol=3e-4)


def test_interval_ranks_infinity_last():
    samples = np.array([0.0] * 50 + [1.0] * 40 + [np.inf] * 10)
    assert st.interval(samples) == (0.0, math.inf)


def test_fuar_samples_never_nan():
    zero, one = np.zeros(3), np.ones(3)
    before = {"IL": one, "UL": np.array([0.0, 1.0, 0.0])}
    after = {"IL": zero, "UL": np.array([2.0, 1.0, 0.0])}
    samples = st.fuar_samples([before, after], ["IL"], "UL", None)
    assert samples.tolist() == [0.5, math.inf, math.inf]


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
