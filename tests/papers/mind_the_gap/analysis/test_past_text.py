"""Forgetting of the past out of rows."""

import math

import pytest

from ckl_jax.errors import UserError
from ckl_jax.papers.mind_the_gap.analysis.past_text import summarize


def row(snapshot, period, words, nll, task="past"):
    return {"task": task, "period": period, "snapshot": snapshot, "words": words, "nll": nll}


def test_it_is_the_relative_increase_of_perplexity():
    rows = [
        row("start", "2015", 10, 20.0),
        row("start", "2016", 30, 90.0),
        row("2018-01", "2015", 10, 21.0),
        row("2018-01", "2016", 30, 84.0),
    ]
    found = summarize(rows)["past"]
    assert found["2015"] == {"start": 0.0, "2018-01": pytest.approx(100 * (math.exp(0.1) - 1))}
    assert found["2016"]["2018-01"] == pytest.approx(100 * (math.exp(-0.2) - 1))
    assert found["all"]["2018-01"] == pytest.approx(100 * (math.exp(105 / 40 - 110 / 40) - 1))


def test_without_a_start_there_is_nothing_to_compare_with():
    with pytest.raises(UserError, match="was not measured before the first update"):
        summarize([row("2018-01", "2015", 1, 1.0)])
