"""Metrics of ranking against lm-pub-quiz's, on GPT-2's published scores, and by hand."""

import json

import numpy as np
import pytest

from ckl_jax.data.facts.relational import Dataset
from ckl_jax.errors import UserError
from ckl_jax.papers.lm_pub_quiz import ranking_metrics as metrics
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults, RelationResult
from tests.real_data import shared_data


@pytest.fixture(scope="module")
def published():
    """(BEAR, {relation: (scores, answers)}, lm-pub-quiz 0.3.3's metrics of them)."""
    bear = Dataset.from_path(shared_data("bear", "BEAR"))
    folder = shared_data("lmpq_gpt2_example")
    with np.load(folder / "scores.npz") as scores:
        table = {
            r.code: (
                scores[r.code].astype(np.float64),
                np.array([i.answer_idx for i in r.instances]),
            )
            for r in bear
        }
    return bear, table, json.loads((folder / "metrics.json").read_text())


def accumulated(published, groups, divide=True):
    _, table, _ = published
    values = {code: metrics.accuracy(*pair) for code, pair in table.items()}
    support = {code: len(pair[1]) for code, pair in table.items()}
    return metrics.accumulate(values, support, groups, divide)


def test_every_relation_and_the_whole(published):
    _, table, expected = published
    found = {code: metrics.accuracy(*pair) for code, pair in table.items()}
    assert found == expected["relations"]["accuracy"]
    overall = accumulated(published, None)["overall"]
    assert overall["value"] == pytest.approx(expected["overall accuracy"], abs=1e-12)
    assert overall["support"] == expected["overall support"] == 7731


@pytest.mark.parametrize("divide, key", [(True, ""), (False, ", divide_support=False")])
def test_the_papers_domain_table(published, divide, key):
    bear, _, expected = published
    found = accumulated(published, {r.code: r.info["domains"] for r in bear}, divide)
    want = expected[f"domains{key}"]
    assert list(found) == sorted(want["accuracy"])
    for domain, values in found.items():
        assert values["value"] == pytest.approx(want["accuracy"][domain], abs=1e-12)
        assert values["support"] == want["support"][domain]


def test_cardinality(published):
    bear, _, expected = published
    found = accumulated(published, {r.code: [r.cardinality] for r in bear})
    for kind, values in found.items():
        assert values["value"] == pytest.approx(expected["cardinality"]["accuracy"][kind])
        assert values["support"] == expected["cardinality"]["support"][kind]


@pytest.mark.parametrize("code", ["P30", "P36", "P105"])
def test_distributions(published, code):
    _, table, expected = published
    for name, want in expected[code].items():
        found = metrics.metric(name)(*table[code])
        if isinstance(want, dict):
            for group, value in want.items():
                np.testing.assert_allclose(
                    found[group], value, rtol=1e-5, err_msg=f"{name} {group}"
                )
        else:
            np.testing.assert_allclose(found, want, rtol=1e-5, err_msg=name)


def test_the_bias_of_gpt2_among_continents(published):
    """The values of the paper's figure for template 0, as recomputed from the same scores."""
    _, table, _ = published
    scores, answers = table["P30"]
    rows = [{"answer_idx": a, "template_index": 0} for a in answers]
    bias = RelationResult("P30", rows, scores).answer_bias()
    expected = [0.162270, 0.111288, 0.120442, 0.220671, 0.218366, 0.166962]
    np.testing.assert_allclose(bias[0], expected, atol=1e-6)
    several = [{**row, "template_index": i % 2} for i, row in enumerate(rows)]
    halves = RelationResult("P30", several, scores).answer_bias()
    np.testing.assert_allclose((halves[0] + halves[1]) / 2, expected, atol=1e-6)


def test_ties_go_to_the_first_option_and_no_score_underflows():
    scores = np.array([[0.0, 0.0, -1.0], [-2000.0, -1000.0, -1000.0]])
    assert metrics.correct(scores, np.array([0, 1])).all()
    assert not metrics.correct(scores, np.array([1, 2])).any()
    assert metrics.ranks(scores, np.array([1, 2])).tolist() == [1, 1]
    np.testing.assert_allclose(metrics.softmax(scores)[1], [0, 0.5, 0.5])


def test_a_metric_of_several_values_has_no_mean():
    rows = [{"answer_idx": 0}, {"answer_idx": 1}]
    scores = np.array([[0.0, -1.0], [0.0, -1.0]])
    results = DatasetResults("own", [RelationResult("P1", rows, scores, {})])
    (found,) = results.get_metrics("confidence_score", accumulate=False).values()
    assert set(found["confidence_score"]) == {"all", "correct", "incorrect"}
    with pytest.raises(UserError, match="several values of each relation"):
        results.get_metrics("confidence_score")


def test_lists_of_different_lengths_have_a_mean():
    found = metrics.weighted_mean([np.array([0.5, 1.0]), np.array([0.0, 0.5, 1.0])], [1, 3])
    np.testing.assert_allclose(found, [0.125, 0.625])
