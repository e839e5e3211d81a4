"""`ckl average`: the weighted mean of the parameters of models.

The mean of the models before and after an update forgets less and learns less (WiSE-FT, Wortsman et
al. 2022); that of several updates is a "soup".
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax import __version__
from ckl_jax.checkpoints import scan_layout
from ckl_jax.checkpoints.restore import find_checkpoint, read_json_item
from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.errors import UserError
from ckl_jax.train import adapters
from ckl_jax.train.setup import load_params
from ckl_jax.trees.paths import flatten, unflatten

_SHOWN = 5


def average(models: Sequence[str], weights: Sequence[float], out: str) -> str:
    """Writes the weighted mean of checkpoints as `checkpoint_0` of a new MODEL_DIR.

    Args:
      models: MODEL_DIRs or `checkpoint_<step>` folders, of one architecture and vocabulary.
      weights: of each, 0 or more; they sum to 1.
      out: the new MODEL_DIR; its method is that of the last model.

    Returns:
      What was done.

    Raises:
      UserError: the weights are no such, a checkpoint is missing, the checkpoints have other
        parameters or vocabularies, or `out` already holds one.
    """
    _check_weights(models, weights)
    folders = [find_checkpoint(model) for model in models]
    metadata = [read_json_item(path, "metadata") for path in folders]
    _check_vocabularies(models, metadata)
    for model, held in zip(models[:-1], metadata, strict=False):
        if name := adapters.first_difference(held, metadata[-1]):
            raise UserError(
                f"{model} and {models[-1]} were trained with different {name}; a mean of their "
                "parameters is not a model."
            )
    with CheckpointStore(out) as store:
        store.require_empty()
        mean = _mean(models, weights)
        parts = [
            {"model": str(path), "weight": weight}
            for path, weight in zip(folders, weights, strict=True)
        ]
        kept = ("vocabulary_digest", "method", "phase", "dense", "side", "scan_layers")
        about = {k: metadata[-1][k] for k in kept if k in metadata[-1]}
        about |= {"ckl_jax": __version__, "averaged": parts}
        store.save(0, {"params": unflatten(mean), "step": np.zeros((), np.int32)}, about)
    count = sum(value.size for value in mean.values())
    summary = ", ".join(f"{w:g} of {Path(m)}" for m, w in zip(models, weights, strict=True))
    return f"{count:,} parameters in {out}/checkpoint_0: {summary}."


def _check_weights(models: Sequence[str], weights: Sequence[float]) -> None:
    if len(models) < 2 or len(models) != len(weights):
        raise UserError(
            f"{len(models)} models and {len(weights)} weights are given; give two models or more, "
            "and a weight for each."
        )
    if not all(math.isfinite(w) and w >= 0 for w in weights) or abs(sum(weights) - 1) > 1e-6:
        shown = " ".join(f"{w:g}" for w in weights)
        raise UserError(f"The weights {shown} are not numbers of 0 or more that sum to 1.")


def _check_vocabularies(models: Sequence[str], metadata: Sequence[Mapping[str, Any]]) -> None:
    digests = {m["vocabulary_digest"] for m in metadata if m.get("vocabulary_digest")}
    if len(digests) > 1:
        raise UserError(
            f"{' and '.join(map(str, models))} have different vocabularies; a mean of their "
            "parameters is not a model."
        )


def _mean(models: Sequence[str], weights: Sequence[float]) -> dict[str, np.ndarray]:
    """{path: mean, float32}, in the layout of the last model; holds two models at a time."""
    total: dict[str, np.ndarray] = {}
    for model, weight in reversed(list(zip(models, weights, strict=True))):
        params = flatten(load_params(str(model)))
        if total:
            params = scan_layout.convert(params, total)
            _check_same(models[-1], total, model, params)
        for path, value in params.items():
            part = np.float32(weight) * np.asarray(value, np.float32)
            total[path] = total[path] + part if path in total else part
    return total


def _check_same(
    first: str, ours: Mapping[str, np.ndarray], second: str, theirs: Mapping[str, np.ndarray]
) -> None:
    apart = sorted(ours.keys() ^ theirs.keys())
    if apart:
        more = f" and {len(apart) - _SHOWN} more" if len(apart) > _SHOWN else ""
        raise UserError(
            f"Of {first} and {second} only one has {', '.join(apart[:_SHOWN])}{more}; average "
            "models of one method (what a method adds has no counterpart without it)."
        )
    for path, value in ours.items():
        if value.shape != np.shape(theirs[path]):
            raise UserError(
                f"{path} is {value.shape} in {first} and {np.shape(theirs[path])} in {second}; "
                "average models of one size."
            )
