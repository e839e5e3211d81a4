"""The leaderboard: its JSON has the site's form, its standard errors are scipy's."""

import json

import numpy as np
import pytest
from scipy import stats

from ckl_jax.cli import ckl
from ckl_jax.papers.lm_pub_quiz.analysis import comparison, leaderboard
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults, RelationResult
from tests.papers.lm_pub_quiz.analysis.test_comparison import results
from tests.real_data import shared_data


def test_the_standard_error_is_over_templates():
    model = results(1, lift=1.0)
    found = comparison.by_template(model)
    right = [r.scores.argmax(axis=1) == r.answers for r in model]
    values = [sum(float(x[t::3].sum()) for x in right) / 65 for t in range(3)]
    assert list(found["templates"].values()) == pytest.approx(values)
    assert found["mean"] == pytest.approx(model.get_metrics("accuracy")["overall"]["accuracy"])
    assert found["sem"] == pytest.approx(stats.sem(values))
    assert comparison.by_template(results(1, templates=1))["sem"] is None


def test_models_are_listed_best_first_as_the_site_does(tmp_path):
    for name, lift in (("low", 0.0), ("high", 2.0)):
        results(3, lift).save(tmp_path / name)
    argv = ["probe", "compare", "--leaderboard", *(f"{n}={tmp_path / n}" for n in ("low", "high"))]
    assert ckl.main([*argv, "--out", str(tmp_path / "out")]) == 0
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [e["model_name"] for e in found] == ["high", "low", "Random Baseline"]
    for entry in found:
        assert {"model_url", "model_family", "model_type", "num_params", "source"} <= entry.keys()
        assert 0 <= entry["accuracy"]["mean"] <= 1
    assert found[0]["model_type"] == "CLM" and found[0]["accuracy"]["sem"] > 0
    assert found[-1]["accuracy"]["mean"] == pytest.approx((40 / 5 + 25 / 4) / 65)
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.index("high: accuracy") < page.index("low: accuracy")
    assert "points against high" in page and f"{100 * found[0]['accuracy']['sem']:.2f}" in page


def test_chance_on_bear_is_the_published_baseline():
    relations, folder = [], shared_data("bear", "BEAR")
    for path in sorted(folder.glob("P*.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        labels = json.loads((folder / "metadata_relations.json").read_text())[path.stem]
        labels = labels["answer_space_labels"]
        scores = [[0.0] * len(labels)] * len(rows)
        relations.append(
            RelationResult(path.stem, rows, np.array(scores), {"answer_space_labels": labels})
        )
    found = leaderboard.entries({"none": DatasetResults("BEAR", relations)})
    (chance,) = (e for e in found if e["model_family"] == "baseline")
    assert chance["accuracy"]["mean"] == pytest.approx(0.0468244729, abs=1e-10)
