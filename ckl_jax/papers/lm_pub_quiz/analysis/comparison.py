"""Statistics between models ranked on the same rows: differences, tests, calibration, consistency.

The unit is an instance (a subject and its right answer), not a row: the templates of an instance
state the same fact, so their results are not independent.
"""

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ckl_jax.analysis import statistics
from ckl_jax.errors import UserError
from ckl_jax.papers.lm_pub_quiz import ranking_metrics
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults, RelationResult

Models = Mapping[str, DatasetResults]
# What a model's scores depend on beside the statements.
_SCORED_BY = ("parameters", "reduction", "conditional_score", "ensure_bos_token_added", "dtype")
_SCORED_BY += ("pll_metric", "target")


def align(models: Models, common_rows: bool = False) -> tuple[dict[str, DatasetResults], str]:
    """The results of all models on the same rows, in the first model's order.

    A row is a relation with its options, a template, a subject and the right answer.

    Args:
      common_rows: compare on the rows that all models have, where they differ.

    Returns:
      The results, and a sentence with each model's coverage; "" if all have the same rows.

    Raises:
      UserError: the models have different rows and `common_rows` is False, or none in common, or
        results without scores.
    """
    places = {name: _places(name, results) for name, results in models.items()}
    first = next(iter(places.values()))
    shared = [row for row in first if all(row in positions for positions in places.values())]
    coverage = ""
    if any(len(positions) > len(shared) for positions in places.values()):
        listed = "; ".join(
            f"{name} has {len(positions):,} rows of {len(models[name])} relations"
            for name, positions in places.items()
        )
        coverage = f"{listed}; {len(shared):,} rows are common"
        if not (shared and common_rows):
            how = ", or compare them on the common rows alone: --common-rows" if shared else ""
            raise UserError(f"{coverage}. Score the models on one dataset and --templates{how}.")
    aligned = {}
    for name, results in models.items():
        rows: dict[str, list[int]] = {}
        for row in shared:
            rows.setdefault(row[0], []).append(places[name][row])
        aligned[name] = results.filter_subset(rows, keep_answer_space=True)
    return aligned, coverage


def _places(name: str, results: DatasetResults) -> dict[tuple, int]:
    """{row: its number in the table of its relation}."""
    positions: dict[tuple, int] = {}
    for result in results:
        if not result.table:
            raise UserError(
                f"{name} keeps metrics of {result.code} and no scores; score it again with an "
                "instance table."
            )
        options, templates = result.answer_space, result.metadata.get("templates") or []
        if not options:
            raise UserError(
                f"{name} lacks the 'answer_space_labels' of {result.code}; score it again."
            )
        seen: collections.Counter[tuple] = collections.Counter()
        for number, row in enumerate(result.table):
            template = row.get("template_index", 0)
            template = templates[template] if template < len(templates) else template
            # Answers compete with the options of their relation: with others it is another task.
            key = result.code, hash(tuple(options)), template, row["sub_id"], row["sub_label"]
            key = *key, options[row["answer_idx"]]
            seen[key] += 1  # a dataset may hold the same statement twice
            positions[*key, seen[key]] = number
    return positions


def best_options(result: RelationResult) -> list[str]:
    """The label of the option with the highest score, of each row."""
    return [result.answer_space[i] for i in result.reduced().scores.argmax(axis=1)]


def by_instance(result: RelationResult) -> tuple[np.ndarray, np.ndarray]:
    """The fraction of an instance's templates that are answered right, and their number, [N]."""
    right = ranking_metrics.correct(result.reduced().scores, result.answers)
    numbers = np.unique(instances(result), return_inverse=True)[1]
    rows = np.bincount(numbers)
    return np.bincount(numbers, right) / rows, rows


def by_template(results: DatasetResults) -> dict[str, Any]:
    """{"mean", "sem", "templates": {number: accuracy}} in 0..1; `sem` is None with one template.

    `sem` is the standard deviation over templates, of n - 1 degrees of freedom, over √n.
    """
    right, numbers = [], []
    for result in results:
        right.append(ranking_metrics.correct(result.reduced().scores, result.answers))
        numbers += map(_template, result.table)
    templates, at = np.unique(numbers, return_inverse=True)
    values = np.bincount(at, np.concatenate(right)) / np.bincount(at)
    sem = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    accuracies = dict(zip(map(int, templates), map(float, values), strict=True))
    return {"mean": float(values.mean()), "sem": sem, "templates": accuracies}


def facts(result: RelationResult) -> list[dict[str, Any]]:
    """A row of each instance, in the order of `by_instance`."""
    rows = dict(zip(instances(result), result.table, strict=True))
    return [rows[number] for number in sorted(rows)]


def instances(result: RelationResult) -> list[int]:
    """The number of each row's instance."""
    # Results of before LM-PUB-QUIZ 0.3.2 have one template and no such column.
    return [row.get("instance_index", i) for i, row in enumerate(result.table)]


def _template(row: Mapping[str, Any]) -> int:
    return row.get("template_index", 0)  # as `instances`


def without_prior(results: DatasetResults, generic: DatasetResults) -> DatasetResults:
    """The results with the probability that each option has anyway divided out.

    Contextual calibration (Zhao et al. 2021): softmax of the scores over the mean softmax of the
    same template with generic subjects ("it"), whose answer nobody knows.

    Args:
      results: of the real subjects.
      generic: of the same model, of `Dataset.about`.

    Raises:
      UserError: `generic` lacks a relation, template or option, or was scored in another way.
    """
    adjusted = []
    for result in results:
        prior = generic.relations.get(result.code)
        if prior is None or prior.answer_space != result.answer_space:
            raise UserError(f"The prior has not the options of {result.code}; score it again.")
        for key in _SCORED_BY:
            if result.metadata.get(key) != prior.metadata.get(key):
                raise UserError(
                    f"{result.code} was scored with {key}={result.metadata.get(key)!r}, its prior "
                    f"with {prior.metadata.get(key)!r}; score both alike."
                )
        whole, chances = result.reduced(), _log_bias(prior)
        scores = [
            row - chances.get(_template(of), np.nan)
            for row, of in zip(whole.scores, whole.table, strict=True)
        ]
        if not np.isfinite(scores).all():
            raise UserError(f"The prior of {result.code} lacks a template; score it again.")
        adjusted.append(dataclasses.replace(whole, scores=np.array(scores)))
    return DatasetResults(results.name, adjusted)


def _log_bias(result: RelationResult) -> dict[int, np.ndarray]:
    """The logarithms of `RelationResult.answer_bias`, which do not underflow."""
    from scipy.special import log_softmax, logsumexp

    logs = log_softmax(result.reduced().scores, axis=1)
    templates = np.array(list(map(_template, result.table)))
    return {int(t): logsumexp(logs[templates == t], axis=0) for t in np.unique(templates)}


def by_popularity(
    models: Models, popularity: Mapping[str, float], bins: int = 5
) -> list[dict[str, Any]]:
    """Accuracy by how popular the subject is, on aligned results (`align`).

    Args:
      popularity: of subjects by `sub_id`: page views, sitelinks, mentions. Others are left out.
      bins: of about equally many instances; equal subjects stay together.

    Returns:
      For each bin, the least popular first: {"from", "to": popularity; "instances"; "models":
      {name: {"value", "low", "high": accuracy in percent, with the interval of a bootstrap over
      instances}}}.

    Raises:
      UserError: it has no subject of the results.
    """
    known, right = [], []
    for result in next(iter(models.values())):
        known += [popularity.get(row["sub_id"], np.nan) for row in facts(result)]
        right.append(np.stack([by_instance(of[result.code])[0] for of in models.values()]))
    values, fractions = np.array(known, float), np.concatenate(right, axis=1)
    there = np.isfinite(values)
    if not there.any():
        raise UserError("--popularity has none of the subjects (by `sub_id`) of the results.")
    values, fractions = values[there], fractions[:, there]
    ends = np.unique(np.quantile(values, np.arange(1, bins + 1) / bins, method="inverted_cdf"))
    at = np.searchsorted(ends, values)
    groups = []
    for i in np.unique(at):
        part, inside = 100 * fractions[:, at == i], values[at == i]
        cells = zip(part.mean(axis=1), statistics.bootstrap_means(part), strict=True)
        of = {name: statistics.estimate(*cell) for name, cell in zip(models, cells, strict=True)}
        span = {"from": float(inside.min()), "to": float(inside.max()), "instances": len(inside)}
        groups.append({**span, "models": of})
    return groups


def compare(models: Models) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Tests each model against the first one, on aligned results (`align`).

    Differences of accuracies, in percentage points, have paired bootstrap intervals over instances.
    p is of the exact McNemar test: instances that the model answers right in more (`better`) or in
    fewer (`worse`) templates than the first one; with one template, the usual discordant pairs.

    Returns:
      {"overall", "domains" (where all relations have any), "relations": a list of {"group",
      "model", "first", "accuracy", "difference", "low", "high", "instances", "better", "worse",
      "p", "p_holm" (adjusted within the list)}}. A relation of several domains counts in each with
      a fraction of its weight, as in LM-PUB-QUIZ.
    """
    first, by_kind = next(iter(models.values())), {}
    for kind in ("overall", "domains", "relations"):
        if kind == "domains" and not all(kind in result.relation_info for result in first):
            continue
        tests = [
            {"group": group, "model": name, **test}
            for group, (right, weight) in _grouped(models, kind).items()
            for name, test in zip([*models][1:], _tests(right, weight), strict=True)
        ]
        adjusted = statistics.holm({i: test["p"] for i, test in enumerate(tests)})
        by_kind[kind] = [{**test, "p_holm": adjusted[i]} for i, test in enumerate(tests)]
    return by_kind


def _grouped(models: Models, kind: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """{group: (right [M, N], weight [N])}, see `_tests`."""
    parts: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for result in next(iter(models.values())):
        right = np.stack([by_instance(of[result.code])[0] for of in models.values()])
        groups = {"overall": ["overall"], "relations": [result.code]}.get(kind)
        groups = groups or sorted(result.groups(kind))
        for group in groups:
            parts.setdefault(group, []).append((right, by_instance(result)[1] / len(groups)))
    return {
        name: tuple(np.concatenate(x, axis=-1) for x in zip(*parts[name], strict=True))
        for name in (parts if kind == "relations" else sorted(parts))
    }


def _tests(right: np.ndarray, weight: np.ndarray) -> Iterator[dict[str, Any]]:
    """Tests models 1 to M-1 against model 0.

    Args:
      right: [M, N] fraction of right templates of each instance.
      weight: [N].
    """
    differences = right[1:] - right[0]
    # Ratios of means, as an instance counts with its weight.
    *sums, total = statistics.bootstrap_means(np.vstack([differences * weight, weight]))
    first, *means = 100 * np.average(right, axis=1, weights=weight)
    for mean, difference, drawn in zip(means, differences, sums, strict=True):
        low, high = statistics.interval(100 * drawn / total)
        better, worse = int((difference > 0).sum()), int((difference < 0).sum())
        yield {
            "first": float(first),
            "accuracy": float(mean),
            "difference": float(mean - first),
            "low": low,
            "high": high,
            "instances": len(weight),
            "better": better,
            "worse": worse,
            "p": statistics.sign_test(better, worse),
        }


def quality(results: DatasetResults) -> dict[str, Any]:
    """How sure a model is, whether it is rightly so, and whether templates agree; over all rows.

    Returns:
      {"confidence": percent, mean probability of the best option; "calibration_error": percent;
      "bins": of the calibration; "consistency": percent, and "every_template": percent of
      instances that are right in each template, both None with a single template}.
    """
    scores = [(result.reduced().scores, result.answers) for result in results]
    right = np.concatenate([ranking_metrics.correct(*pair) for pair in scores])
    confidence = np.concatenate([ranking_metrics.softmax(s).max(axis=1) for s, _ in scores])
    error, bins = ranking_metrics.calibration(confidence, right)
    several = [(best_options(result), instances(result)) for result in results]
    pairs = np.concatenate([ranking_metrics.agreement(*of) for of in several])
    every = np.concatenate([by_instance(result)[0] == 1 for result in results])
    return {
        "confidence": 100 * float(confidence.mean()),
        "calibration_error": 100 * error,
        "bins": bins,
        "consistency": 100 * float(pairs.mean()) if len(pairs) else None,
        "every_template": 100 * float(every.mean()) if len(pairs) else None,
    }


def sentences(tests: Sequence[Mapping[str, Any]], first: str) -> list[str]:
    """What the overall tests found, a sentence for each model."""
    return [
        f"{t['model']}: {t['difference']:+.2f} points against {first} (95 % interval "
        f"{t['low']:+.2f} to {t['high']:+.2f}; McNemar p = {t['p']:.2g}, {t['better']:,} instances "
        f"better and {t['worse']:,} worse of {t['instances']:,})"
        for t in tests
    ]
