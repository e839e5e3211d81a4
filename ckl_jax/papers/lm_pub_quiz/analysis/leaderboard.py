"""A leaderboard of ranking results: its JSON, in the form of LM-PUB-QUIZ's site, and a page."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.analysis import sections
from ckl_jax.analysis.sections import Cell, Section
from ckl_jax.files import write_json
from ckl_jax.papers.lm_pub_quiz.analysis import comparison, ranking_report
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults

_KINDS = {"MLM": "pll_metric", "EDLM": "target"}  # settings that only results of a kind have
_SCORING = ("reduction", "conditional_score", "ensure_bos_token_added", "dtype", *_KINDS.values())
_NOTES = (
    "Accuracy: mean over templates of the percent of instances whose right answer has the best "
    "score, ± its standard error over templates, which is what LM-PUB-QUIZ's leaderboard shows; "
    "below, the 95 % interval of a bootstrap over instances. Chance: a random option.",
)


def entries(models: Mapping[str, DatasetResults]) -> list[dict[str, Any]]:
    """The models, best first, and chance, in the form of the site's `results.json`.

    What results do not say (`model_url`, `num_tokens`, ...) is None.

    Args:
      models: {name: results}, with the same rows (`comparison.align`).
    """
    found = []
    for name, results in models.items():
        told = results.get_metadata()
        entry = {
            "model_name": name,
            "model_family": told.get("model_family") or name,
            "model_type": next((kind for kind, key in _KINDS.items() if key in told), "CLM"),
            "num_params": told.get("num_params"),
        }
        found.append(_entry(entry, comparison.by_template(results)))
    options = [len(r.answer_space) for r in next(iter(models.values())) for _ in r.table]
    chance = {"model_name": "Random Baseline", "model_family": "baseline"}
    found.append(_entry(chance, {"mean": float(np.mean(1 / np.array(options)))}))
    return sorted(found, key=lambda entry: -entry["accuracy"]["mean"])


def _entry(known: Mapping[str, Any], accuracy: Mapping[str, Any]) -> dict[str, Any]:
    names = ("model_name", "model_url", "model_family", "model_type", "num_params", "num_tokens")
    names += ("size_pretraining_GB", "source")
    return {**dict.fromkeys(names), **known, "accuracy": accuracy}


def write(models: Mapping[str, DatasetResults], out: str | Path, coverage: str = "") -> Path:
    """Writes `leaderboard.html` and `results.json`, and prints the table; returns the page.

    Args:
      models: {name: results}, with the same rows (`comparison.align`).
      out: the folder.
      coverage: a sentence for the page, where the models were scored on different rows.
    """
    found, first = entries(models), next(iter(models.values()))
    write_json(Path(out) / "results.json", found)
    table = Section("Models", ["Model", *_COLUMNS], _rows(found, models), _NOTES, anchor="models")
    parts = [table]
    if all("domains" in result.relation_info for r in models.values() for result in r):
        names = [e["model_name"] for e in found if e["model_name"] in models]
        scores = {name: models[name].get_metrics("accuracy", "domains") for name in names}
        domains = list(next(iter(scores.values())))
        rows = [[n, *(100 * scores[n][d]["accuracy"] for d in domains)] for n in names]
        parts.append(Section("Domains", ["Model", *domains], rows, anchor="domains"))
    dataset = first.get_metadata().get("dataset_name") or "ranking results"
    lead = [f"{len(models)} models on {dataset}, {len(first)} relations."]
    lead += [f"Compared on common rows alone: {coverage}."] if coverage else []
    table.show()
    path = Path(out) / "leaderboard.html"
    return sections.write_page(path, f"Leaderboard: {dataset}", parts, lead)


_COLUMNS = ("Type", "Parameters", "Accuracy", "By template", "Scored by")


def _rows(found: list[dict[str, Any]], models: Mapping[str, DatasetResults]) -> list[list[Any]]:
    rows = []
    for entry in found:
        name, accuracy = entry["model_name"], entry["accuracy"]
        text = sections.two(100 * accuracy["mean"])
        text += f" ± {100 * accuracy['sem']:.2f}" if accuracy.get("sem") is not None else ""
        if name not in models:
            rows.append([name, "–", "–", text, "–", "–"])
            continue
        x, told = ranking_report.overall(models[name]), models[name].get_metadata()
        each = ", ".join(f"{100 * value:.1f}" for value in accuracy["templates"].values())
        how = ", ".join(f"{k}={told[k]}" for k in _SCORING if told.get(k) is not None)
        cell = Cell(text, f"{x['low']:.2f}–{x['high']:.2f}")
        params = sections.compact(entry["num_params"])
        rows.append([name, entry["model_type"], params, cell, each, how])
    return rows
