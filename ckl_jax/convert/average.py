"""`ckl average`: the weighted mean of the parameters of models, or several updates in one model.

The mean of the models before and after an update forgets less and learns less (WiSE-FT, Wortsman et
al. 2022); that of several updates is a "soup". With the model before them, updates are merged as
task vectors (what is added to it; Ilharco et al. 2022, arXiv:2212.04089).
"""

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax import __version__, checks
from ckl_jax.checkpoints import scan_layout
from ckl_jax.checkpoints.restore import find_checkpoint, is_remote, read_json_item
from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.convert.hugging_face import merged
from ckl_jax.errors import UserError
from ckl_jax.files import claimed_folder
from ckl_jax.train import adapters, opening
from ckl_jax.train.setup import load_params
from ckl_jax.trees.paths import flatten, unflatten

_SHOWN = 5
RULES = ("sum", "ties", "dare")


@dataclasses.dataclass(frozen=True)
class Merge:
    """How updates of one model are merged into it: the model plus `scale` times their merged sum.

    Attributes:
      base: MODEL_DIR or `checkpoint_<step>` of the model.
      rule: "sum", weighted; "ties" (Yadav et al. 2023, arXiv:2306.01708): of each update only the
        largest numbers are kept, each parameter takes the sign whose weighted sum is larger, and
        the weighted mean of the updates of that sign; "dare" (Yu et al. 2023, arXiv:2311.03099):
        numbers of each update are dropped at random, the others divided by `density`, and summed.
      density: fraction of the numbers of an update that are kept; "sum" keeps all.
      scale: factor of the merged update.
      seed: of what "dare" drops.
    """

    base: str
    rule: str = "sum"
    density: float = 0.2
    scale: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        checks.require_choice(RULES, **{"--rule": self.rule})
        checks.require_number("a number above 0, up to 1", 1e-9, 1 + 1e-9, density=self.density)
        checks.require_number("a finite number", -math.inf, **{"--scale": self.scale})
        checks.require_int(0, **{"--seed": self.seed})


def average(
    models: Sequence[str], weights: Sequence[float], out: str, merge: Merge | None = None
) -> str:
    """Writes the weighted mean of checkpoints as `checkpoint_0` of a new MODEL_DIR.

    Args:
      models: MODEL_DIRs or `checkpoint_<step>` folders, of one architecture and vocabulary.
      weights: of each, 0 or more; they sum to 1.
      out: the new MODEL_DIR; its method is that of the last model, and it is opened by the same
        gin file, or by that of `merge.base`.
      merge: merge the models as updates of one instead. LoRA's adapters are folded into the
        kernels, and what is written is a model without a method.

    Returns:
      What was done.

    Raises:
      UserError: the weights are no such, a checkpoint is missing, the checkpoints have other
        parameters or vocabularies, or `out` already holds one.
    """
    _check_weights(models, weights, 1 if merge else 2)
    folders = [find_checkpoint(model) for model in models]
    metadata = [read_json_item(path, "metadata") for path in folders]
    _check_vocabularies(models, metadata)
    for model, held in zip(models[:-1], metadata, strict=False) if merge is None else ():
        if name := adapters.first_difference(held, metadata[-1]):
            raise UserError(
                f"{model} and {models[-1]} were trained with different {name}; a mean of their "
                "parameters is not a model."
            )
    claimed = contextlib.nullcontext() if is_remote(out) else claimed_folder(out, "ckl average")
    with claimed, CheckpointStore(out) as store:
        store.require_empty()
        opening.copy_description(find_checkpoint(merge.base) if merge else folders[-1], out)
        mean = _merged(models, weights, merge) if merge else _mean(models, weights)
        parts = [
            {"model": str(path), "weight": weight}
            for path, weight in zip(folders, weights, strict=True)
        ]
        kept = ("vocabulary_digest", "scan_layers")
        if merge is None:
            kept += ("method", "phase", "dense", "side")
        about = {k: metadata[-1][k] for k in kept if k in metadata[-1]}
        about |= {"ckl_jax": __version__, "averaged": parts}
        if merge:
            about["merge"] = dataclasses.asdict(merge)
        store.save(
            0, {"params": unflatten(mean), "step": np.zeros((), np.int32)}, about, copy=False
        )
    count = sum(value.size for value in mean.values())
    over = f" merged into {merge.base} by {merge.rule}" if merge else ""
    summary = ", ".join(f"{w:g} of {Path(m)}" for m, w in zip(models, weights, strict=True))
    return f"{count:,} parameters in {out}/checkpoint_0: {summary}{over}."


def _check_weights(models: Sequence[str], weights: Sequence[float], least: int) -> None:
    if len(models) < least or len(models) != len(weights):
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


def _merged(models: Sequence[str], weights: Sequence[float], merge: Merge) -> dict[str, np.ndarray]:
    """{path: float32}, in the layout of the base; holds one update at a time."""
    base = {p: np.asarray(x, np.float32) for p, x in flatten(load_params(merge.base)).items()}
    # Of each sign: the weighted sum, and the weights in it.
    sums = {
        sign: {p: [np.zeros_like(x), np.zeros_like(x)] for p, x in base.items()} for sign in (1, -1)
    }
    for i, (model, weight) in enumerate(zip(models, weights, strict=True)):
        params = scan_layout.convert(flatten(merged(load_params(str(model)), str(model))), base)
        _check_same(merge.base, base, model, params)
        vector = {p: np.asarray(params[p], np.float32) - x for p, x in base.items()}
        for path, x in _thinned(vector, merge, i).items():
            for sign, of_sign in sums.items():
                of_sign[path][0] += np.float32(weight) * np.where(sign * x > 0, x, 0)
                of_sign[path][1] += np.float32(weight) * (sign * x > 0)
    return {
        path: x + np.float32(merge.scale) * _joined(*(sums[s][path] for s in (1, -1)), merge.rule)
        for path, x in base.items()
    }


def _thinned(vector: dict[str, np.ndarray], merge: Merge, number: int) -> dict[str, np.ndarray]:
    """What is kept of one update."""
    if merge.rule == "ties":
        # Of the whole update, not of each parameter by itself.
        sizes = np.concatenate([np.abs(x).ravel() for x in vector.values()])
        least = len(sizes) - math.ceil(merge.density * len(sizes))
        smallest = np.partition(sizes, least)[least]
        return {p: np.where(np.abs(x) >= smallest, x, 0) for p, x in vector.items()}
    if merge.rule == "dare":
        rng, density = np.random.default_rng([merge.seed, number]), np.float32(merge.density)
        return {p: x * (rng.random(x.shape) < density) / density for p, x in sorted(vector.items())}
    return vector


def _joined(
    positive: Sequence[np.ndarray], negative: Sequence[np.ndarray], rule: str
) -> np.ndarray:
    """The merged update of one parameter; where signs are even, "ties" leaves it as it is."""
    if rule != "ties":
        return positive[0] + negative[0]
    elected = np.sign(positive[0] + negative[0])
    total = np.where(elected > 0, positive[0], negative[0])
    weight = np.where(elected > 0, positive[1], negative[1])
    return np.where(elected == 0, 0, total / np.where(weight > 0, weight, 1))


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
