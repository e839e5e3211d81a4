"""Statistics between models against scipy and brute force, on results of random scores."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
from scipy import stats

from ckl_jax.cli import ckl
from ckl_jax.errors import UserError
from ckl_jax.papers.lm_pub_quiz import ranking_metrics as metrics
from ckl_jax.papers.lm_pub_quiz.analysis import comparison
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults, RelationResult

DOMAINS = {"P1": ["Arts"], "P2": ["Arts", "Sports"]}


def results(seed: int, lift: float = 0.0, templates: int = 3) -> DatasetResults:
    """Random scores of 40 instances with 5 options and 25 with 4; `lift` favours right options."""
    rng, found = np.random.default_rng(seed), []
    for code, instances, options in (("P1", 40, 5), ("P2", 25, 4)):
        rows = [
            {"sub_id": f"S{i}", "sub_label": f"s{i}", "answer_idx": i % options}
            | {"template_index": t, "instance_index": i}
            for i in range(instances)
            for t in range(templates)
        ]
        scores = rng.normal(size=(len(rows), options))
        scores[range(len(rows)), [row["answer_idx"] for row in rows]] += lift
        metadata = {
            "answer_space_labels": [f"o{k}" for k in range(options)],
            "templates": ["[X] a [Y]", "[X] b [Y]", "[X] c [Y]"][:templates],
            "relation_info": {"domains": DOMAINS[code]},
        }
        found.append(RelationResult(code, rows, scores, metadata))
    return DatasetResults("own", found)


def fractions(model: DatasetResults, code: str) -> np.ndarray:
    result = model[code]
    right = result.scores.argmax(axis=1) == result.answers
    return right.reshape(-1, 3).mean(axis=1)


def test_differences_against_scipy_and_a_bootstrap_by_hand():
    models = {"a": results(0), "b": results(1, lift=1.0)}
    found = comparison.compare(models)
    assert [t["group"] for t in found["relations"]] == ["P1", "P2"]
    assert [t["group"] for t in found["domains"]] == ["Arts", "Sports"]
    a, b = (np.concatenate([fractions(m, c) for c in ("P1", "P2")]) for m in models.values())
    (test,) = found["overall"]
    assert test["difference"] == pytest.approx(100 * (b.mean() - a.mean()))
    better, worse = int((b > a).sum()), int((b < a).sum())
    assert (test["better"], test["worse"]) == (better, worse)
    assert test["p"] == pytest.approx(stats.binomtest(better, better + worse).pvalue)
    drawn = np.random.default_rng(5).integers(len(a), size=(20_000, len(a)))
    low, high = np.percentile(100 * (b - a)[drawn].mean(axis=1), [2.5, 97.5])
    assert test["low"] == pytest.approx(low, abs=0.8) and test["high"] == pytest.approx(high, abs=1)
    # By domain: LM-PUB-QUIZ's accuracies, and a weighted bootstrap of both relations.
    for name, key in (("a", "first"), ("b", "accuracy")):
        theirs = models[name].get_metrics("accuracy", "domains")
        for t in found["domains"]:
            assert t[key] == pytest.approx(100 * theirs[t["group"]]["accuracy"])
    arts = found["domains"][0]
    weight = np.repeat([1.0, 0.5], [40, 25])
    means = [np.average((b - a)[i], weights=weight[i]) for i in drawn[:8000]]
    assert arts["low"] == pytest.approx(100 * np.percentile(means, 2.5), abs=1)
    assert arts["high"] == pytest.approx(100 * np.percentile(means, 97.5), abs=1)
    smaller, larger = sorted(t["p"] for t in found["relations"])
    holm = {t["p"]: t["p_holm"] for t in found["relations"]}
    assert holm[smaller] == pytest.approx(min(1, 2 * smaller))
    assert holm[larger] == pytest.approx(max(min(1, 2 * smaller), larger))


def test_with_one_template_it_is_mcnemars_test():
    models = {"a": results(2, templates=1), "b": results(3, lift=0.5, templates=1)}
    (test,) = comparison.compare(models)["overall"]
    right = [
        np.concatenate([metrics.correct(r.scores, r.answers) for r in m]) for m in models.values()
    ]
    discordant = int((right[1] & ~right[0]).sum()), int((right[0] & ~right[1]).sum())
    assert (test["better"], test["worse"]) == discordant
    assert test["p"] == pytest.approx(stats.binomtest(discordant[0], sum(discordant)).pvalue)


def test_calibration_and_consistency_by_hand():
    model = results(4, lift=0.7)
    found = comparison.quality(model)
    confidence, right = [], []
    for result in model:
        for row, answer in zip(result.scores, result.answers, strict=True):
            p = np.exp(row) / np.exp(row).sum()
            confidence.append(p.max())
            right.append(p.argmax() == answer)
    error, n = 0.0, len(right)
    for i in range(10):
        inside = [k for k in range(n) if i / 10 < confidence[k] <= (i + 1) / 10]
        if inside:
            gap = np.mean([right[k] for k in inside]) - np.mean([confidence[k] for k in inside])
            error += len(inside) / n * abs(gap)
    assert found["calibration_error"] == pytest.approx(100 * error)
    assert found["confidence"] == pytest.approx(100 * np.mean(confidence))
    assert sum(b["rows"] for b in found["bins"]) == n
    agree = []
    for result in model:
        for best in result.scores.argmax(axis=1).reshape(-1, 3):
            agree.append(np.mean([x == y for x, y in itertools.combinations(best, 2)]))
    assert found["consistency"] == pytest.approx(100 * np.mean(agree))
    every = np.concatenate([fractions(model, c) == 1 for c in ("P1", "P2")])
    assert found["every_template"] == pytest.approx(100 * every.mean())
    single = comparison.quality(results(4, templates=1))
    assert single["consistency"] is None and single["every_template"] is None
    # A model whose confidence is its accuracy has no error; edges of bins belong to the lower bin.
    assert metrics.calibration(np.array([0.5, 0.5]), np.array([True, False]))[0] == 0
    overall = model.get_metrics("calibration_error")["overall"]["calibration_error"]
    by_hand = [metrics.calibration_error(r.scores, r.answers) for r in model]
    assert overall == pytest.approx(np.average(by_hand, weights=[120, 75]))


def test_different_coverage_is_refused_or_said():
    whole, part = results(0), results(1)
    part.relations["P1"] = part["P1"].filter_subset(range(5, 35), keep_answer_space=True)
    models = {"whole": whole, "part": part}
    said = (
        "whole has 195 rows of 2 relations; part has 105 rows of 2 relations; 105 rows are common"
    )
    with pytest.raises(UserError, match=rf"{said}. Score the models on .* --common-rows"):
        comparison.align(models)
    aligned, coverage = comparison.align(models, common_rows=True)
    assert coverage == said and [len(r.table) for r in aligned["whole"]] == [30, 75]
    np.testing.assert_array_equal(aligned["whole"]["P1"].scores, whole["P1"].scores[5:35])
    (test,) = comparison.compare(aligned)["overall"]
    assert test["instances"] == 36  # rows 5 to 34 are of instances 1 to 11
    assert comparison.align({"a": whole, "b": results(1)})[1] == ""


def test_rows_in_another_order_are_paired_and_other_options_are_other_rows():
    first, other = results(0), results(1)
    mixed = other["P1"].filter_subset(range(119, -1, -1), keep_answer_space=True)
    found = comparison.align({"a": first, "b": DatasetResults("own", [mixed, other["P2"]])})[0]
    np.testing.assert_array_equal(found["b"]["P1"].scores, other["P1"].scores)
    other["P1"].metadata["answer_space_labels"][4] = "another"
    with pytest.raises(UserError, match="75 rows are common"):
        comparison.align({"a": first, "b": other})
    bare = DatasetResults("own", [first["P1"].without_table()])
    with pytest.raises(UserError, match="b keeps metrics of P1 and no scores"):
        comparison.align({"a": first, "b": bare})


def generic(model: DatasetResults, shift: dict[str, np.ndarray]) -> DatasetResults:
    """Scores of two subjects that nobody knows: `shift` [options] and another constant each."""
    found = []
    for result in model:
        rows = [
            {"sub_id": s, "sub_label": s, "answer_idx": 0, "template_index": t, "instance_index": i}
            for i, s in enumerate(("it", "the place"))
            for t in range(3)
        ]
        scores = shift[result.code] + np.arange(6.0)[:, None]
        found.append(RelationResult(result.code, rows, scores, result.metadata))
    return DatasetResults("own", found)


def test_what_an_option_has_anyway_is_divided_out(tmp_path, capsys):
    plain = results(2, lift=2.0)
    shift = {"P1": np.array([0.0, 900, 0, -3, 0]), "P2": np.array([4.0, 0, 0, 0])}
    biased = [dataclasses.replace(r, scores=r.scores + shift[r.code]) for r in plain]
    model, prior = DatasetResults("own", biased), generic(plain, shift)
    found = comparison.without_prior(model, prior)
    for result in plain:
        np.testing.assert_allclose(
            metrics.softmax(found[result.code].scores), metrics.softmax(result.scores), atol=1e-9
        )
    # By hand, with subjects that are biased differently, in probabilities.
    prior["P2"].scores[:3] += np.array([0, 1.0, 0, 2])
    p = metrics.softmax(prior["P2"].scores)
    mean = (p[:3] + p[3:]) / 2  # by template
    expected = metrics.softmax(model["P2"].scores) / np.tile(mean, (25, 1))
    again = metrics.softmax(comparison.without_prior(model, prior)["P2"].scores)
    np.testing.assert_allclose(again, expected / expected.sum(axis=1, keepdims=True))
    model.save(tmp_path / "m")
    prior.save(tmp_path / "p")
    argv = ["probe", "compare", f"m={tmp_path / 'm'}", "--prior", f"m={tmp_path / 'p'}", "--out"]
    assert ckl.main([*argv, str(tmp_path / "out")]) == 0
    assert "m without prior: another best option than m in" in capsys.readouterr().out
    prior.relations["P2"] = prior["P2"].filter_subset([0])
    with pytest.raises(UserError, match="has not the options of P2"):
        comparison.without_prior(model, prior)
    prior.relations["P1"] = prior["P1"].filter_subset([0, 3], keep_answer_space=True)
    with pytest.raises(UserError, match="The prior of P1 lacks a template"):
        comparison.without_prior(model, prior)


def test_a_prior_that_was_scored_in_another_way_is_refused():
    plain = results(2)
    prior = generic(plain, {"P1": np.zeros(5), "P2": np.zeros(4)})
    of = prior["P1"]
    prior.relations["P1"] = dataclasses.replace(of, metadata={**of.metadata, "reduction": "mean"})
    with pytest.raises(UserError, match="P1 was scored with reduction=None, its prior with 'mean'"):
        comparison.without_prior(plain, prior)


def test_accuracy_by_popularity_against_a_bootstrap_by_hand(tmp_path, capsys):
    models = {"a": results(0), "b": results(1, lift=1.0)}
    popularity = {f"S{i}": float(i // 2) for i in range(30)}  # 30 of 40 and 25 of 25 instances
    found = comparison.by_popularity(models, popularity, bins=3)
    known = np.array([i // 2 for i in range(30)] + [i // 2 for i in range(25)])
    right = np.concatenate([fractions(models["b"], "P1")[:30], fractions(models["b"], "P2")])
    assert sum(b["instances"] for b in found) == 55 and len(found) == 3
    for one in found:
        inside = right[(known >= one["from"]) & (known <= one["to"])]
        assert len(inside) == one["instances"] and 12 <= len(inside) <= 24
        x = one["models"]["b"]
        assert x["value"] == pytest.approx(100 * inside.mean())
        drawn = np.random.default_rng(5).integers(len(inside), size=(20_000, len(inside)))
        low, high = np.percentile(100 * inside[drawn].mean(axis=1), [2.5, 97.5])
        assert (x["low"], x["high"]) == (pytest.approx(low, abs=3), pytest.approx(high, abs=3))
    for name, model in models.items():
        model.save(tmp_path / name)
    argv = ["probe", "compare", *(f"{n}={tmp_path / n}" for n in models), "--popularity"]
    argv += [str(tmp_path / "views.json"), "--out", str(tmp_path / "out")]
    for content, message in (
        ('{"S1": "many"}', "the popularity of 'S1' is no number"),
        ('{"Q1": 1}', "--popularity has none of the subjects"),
    ):
        (tmp_path / "views.json").write_text(content)
        assert ckl.main(argv) == 2 and message in capsys.readouterr().err
    (tmp_path / "views.json").write_text(json.dumps(popularity))
    assert ckl.main(argv) == 0
    assert (tmp_path / "out" / "popularity.png").is_file()
    page = (tmp_path / "out" / "report.html").read_text()
    assert "0 to 2" in page and "What is asked, for example: " in page

    texts = ["S0 and s0 (s0); s11s, xs2", "s1"]  # each subject stands in both relations
    lines = (json.dumps({"text": text, "date": "2020-01-01"}) + "\n" for text in texts)
    (tmp_path / "news.jsonl").write_text("".join(lines))
    argv[argv.index("--popularity") + 1] = str(tmp_path / "news.jsonl")
    capsys.readouterr()
    assert ckl.main([*argv, "--overwrite", "--json"]) == 0
    bins = json.loads(capsys.readouterr().out)["popularity"]
    assert [(b["from"], b["to"], b["instances"]) for b in bins] == [(0, 0, 61), (1, 3, 4)]
