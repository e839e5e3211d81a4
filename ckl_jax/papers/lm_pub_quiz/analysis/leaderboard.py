"""The JSON of LM-PUB-QUIZ's leaderboard (`results.json` of its site)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ckl_jax.papers.lm_pub_quiz.analysis import comparison
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults

_KINDS = {"MLM": "pll_metric", "EDLM": "target"}  # settings that only results of a kind have
_FIELDS = ("model_name", "model_url", "model_family", "model_type", "num_params", "num_tokens")
_FIELDS += ("size_pretraining_GB", "source")


def entries(models: Mapping[str, DatasetResults]) -> list[dict[str, Any]]:
    """The models, best first, and chance; what results do not say (`model_url`, ...) is None.

    Args:
      models: {name: results}, with the same rows (`comparison.align`).
    """
    rows = []
    for name, results in models.items():
        metadata = results.get_metadata()
        kind = next((kind for kind, key in _KINDS.items() if key in metadata), "CLM")
        own = {"model_name": name, "model_family": metadata.get("model_family", name)}
        own |= {"model_type": kind, "num_params": metadata.get("num_params")}
        rows.append({**dict.fromkeys(_FIELDS), **own, "accuracy": comparison.by_template(results)})
    options = [len(r.answer_space) for r in next(iter(models.values())) for _ in r.table]
    chance = {"model_name": "Random Baseline", "model_family": "baseline"}
    chance["accuracy"] = {"mean": float(np.mean(1 / np.array(options)))}
    rows.append({**dict.fromkeys(_FIELDS), **chance})
    return sorted(rows, key=lambda entry: -entry["accuracy"]["mean"])
