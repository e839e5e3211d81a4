"""Claims of one's own: effects of numbers, verdicts, and what is missing."""

import numpy as np
import pytest

from ckl_jax.analysis.claims import Claim, excess, highest, judge, lowest, mean, number

A, B, C = (number("scenario", name) for name in "abc")
VALUES = {("scenario", "a"): 3.0, ("scenario", "b"): 1.0, ("scenario", "c"): None}


@pytest.mark.parametrize(
    "effect, value",
    [
        (A - B, 2.0),
        (mean([A, B]), 2.0),
        (lowest([A, B, C]), 1.0),
        (highest([A, B]) - lowest([A, B]), 2.0),
        (excess(A, B), 100 * (np.exp(2.0) - 1)),
        (C - A, np.inf),  # None is no gain, the worst FUAR of all
    ],
)
def test_effects(effect, value):
    assert Claim("", effect, "Table 1", published=VALUES).paper == pytest.approx(value)
    arrays = {key: np.full(5, np.inf if x is None else x) for key, x in VALUES.items()}
    assert effect.of(arrays) == pytest.approx(np.full(5, value))


def test_an_effect_that_the_paper_does_not_print_has_no_number():
    some = {("scenario", "a"): 3.0}
    assert Claim("", A - B, "Figure 1", published=some).paper is None
    (row,) = judge([Claim("", A - B, "Figure 1")], [{("scenario", "a"): np.zeros(101)}])
    assert (row["paper"], row["verdict"], row["missing"]) == (None, "not run", [["scenario/b"]])
    (row,) = judge([Claim("", A - B, "Figure 1")], [{("other", "a"): np.zeros(101)}])
    assert row["missing"] == [["scenario"]]


def test_one_number_without_items_has_no_interval():
    numbers = {("scenario", "a"): np.full(101, 2.0), ("scenario", "b"): np.zeros(101)}
    (row,) = judge([Claim("", A - B, "Table 1")], [numbers])
    assert (row["mean"], row["low"], row["high"], row["seeds_needed"]) == (2.0, None, None, None)
    (row,) = judge([Claim("", A - B, "Table 1")], [numbers] * 5)
    assert (row["verdict"], row["low"]) == ("yes", 2.0)


def test_known_effects_are_found_and_no_others():
    """The planted difference is 2, of seeds that differ by 0.3 and items by 0.5."""

    def seed(i, effect):
        noise = np.random.default_rng(i).standard_normal
        a = effect + 0.3 * noise() + np.concatenate([[0.0], 0.5 * noise(400)])
        return {("scenario", "a"): a, ("scenario", "b"): np.zeros(401)}

    claim = Claim("a is above b", A - B, "Table 1")
    for effect, verdict in ((2.0, "yes"), (-2.0, "no"), (0.0, "undecided")):
        (row,) = judge([claim], [seed(i, effect) for i in range(5)])
        assert row["verdict"] == verdict and row["low"] < effect < row["high"]
    (row,) = judge([claim], [seed(i, 2.0) for i in range(4)])
    assert (row["verdict"], row["seeds"], row["seeds_needed"]) == ("undecided", 4, 5)
