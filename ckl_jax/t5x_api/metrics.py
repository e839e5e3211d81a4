"""T5X's scalars, with the names and meanings of `models.compute_base_metrics` and its trainer.

Means are over the steps since the last row. Where T5X divides the loss by a
`loss_normalizing_factor` and then by tokens too, the `..._per_..._token` here are of the sum.
"""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ckl_jax.train.metrics_log import Fetched
from ckl_jax.train.step_metrics import StepMetrics, speed

_SEGMENTS = "_segment_ids"
_TOKENS = ("encoder_input_tokens", "decoder_target_tokens")


class T5XMetrics(StepMetrics):
    """Rows of the split "train" as T5X writes them."""

    # T5X writes a row at the end of each of its "epochs", which end at evaluations and checkpoints.
    at_boundaries = True
    names = ("",)  # some are named after the features of a batch

    def __init__(self) -> None:
        self._began = time.monotonic()

    def of_step(self, batch: Mapping[str, jax.Array], learning_rate: jax.Array) -> dict[str, Any]:
        return {"learning_rate": jnp.asarray(learning_rate, jnp.float32), **of_batch(batch)}

    def row(self, steps: Sequence[Fetched], rows: int) -> dict[str, float]:
        every = [step.numbers for step in steps]
        rates = [values["learning_rate"] for values in every]
        return {
            **summarize(every, sum(step.seconds for step in steps), rows),
            "learning_rate": math.fsum(rates) / len(rates),
            "learning_rate/current": rates[-1],
            "gradient_norm": every[-1]["gradient_norm"],
            "timing/uptime": time.monotonic() - self._began,
        }


def of_batch(batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Sums that measure how full a batch is, each ().

    Args:
      batch: [B, L] arrays. Where rows are packed, their segment numbers are counted, by "encoder"
        and "decoder"; else the tokens that are not 0, by the names of their features, as T5X does.
    """
    # {"encoder": [B, S], "decoder": [B, T]} of packed rows.
    packed = {n.removesuffix(_SEGMENTS): x for n, x in batch.items() if n.endswith(_SEGMENTS)}
    # Not packed: 1 for each token and 0 for padding, which `packed_examples` counts as one run a
    # row.
    counted = packed or {n: jnp.int32(batch[n] != 0) for n in _TOKENS if n in batch}
    # Counts as float32 are exact up to 2^24.
    sums = {"target_size": jnp.float32(batch["decoder_target_tokens"].size)}
    for name, ids in counted.items():
        sums[f"size/{name}"] = jnp.float32(ids.size)
        sums[f"filled/{name}"] = jnp.sum(ids != 0).astype(jnp.float32)
        sums[f"examples/{name}"] = packed_examples(ids).astype(jnp.float32)
    return sums


def packed_examples(segment_ids: jax.Array) -> jax.Array:
    """The number of examples in rows [B, L] of segment ids, with 0 as trailing padding.

    Each row has one more run of equal numbers than it has changes; a run of padding is none.
    """
    # Runs of a row are changes + 1; where the row ends in padding, the last run is not an example.
    changes = jnp.sum(segment_ids[:, 1:] != segment_ids[:, :-1])
    return changes + jnp.sum(segment_ids[:, -1] != 0)


def of_sums(objective: Any, sums: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of a step of evaluation in the form of a train step's: see `train.step`."""
    tokens = jnp.maximum(sums["tokens"], 1.0)
    denominator = jnp.where(sums["denominator"] > 0, sums["denominator"], 1.0)
    return {
        "loss": sums["loss"] / tokens,
        "z_loss": sums["z_loss"] / tokens,
        "accuracy": sums["correct"] / tokens,
        "tokens": sums["tokens"],
        "objective": objective / denominator,
    }


def summarize(steps: Sequence[Mapping[str, float]], seconds: float, rows: int) -> dict[str, float]:
    """T5X's scalars of some steps.

    Args:
      steps: of each, `loss`, `z_loss` and `accuracy` per token, `tokens`, `objective` (what is
        minimised), and what `of_batch` counts.
      seconds: that they took together.
      rows: B.
    """
    count, size = len(steps), _total(steps, "target_size")
    tokens = max(_total(steps, "tokens"), 1.0)
    loss, z, correct = (
        # Steps hold means per token; times their tokens they are sums again, so that the mean over
        # steps weighs each token alike. The same floor of 1 as in the division.
        math.fsum(s[name] * max(s["tokens"], 1.0) for s in steps)
        for name in ("loss", "z_loss", "accuracy")
    )
    # T5X's "loss": what is minimised, a mean over steps of the normalised loss.
    objective = _total(steps, "objective") / count
    # The z-loss in the units of the objective: the same fraction of it as of the loss per token.
    z_step = math.fsum(s["objective"] * s["z_loss"] / s["loss"] for s in steps if s["loss"]) / count
    scalars = {
        "loss": objective,
        "z_loss": z_step,
        "cross_ent_loss": objective - z_step,
        "accuracy": correct / tokens,
        "loss_per_nonpadding_target_token": loss / tokens,
        "cross_ent_loss_per_nonpadding_target_token": (loss - z) / tokens,
        "loss_per_all_target_tokens": loss / size,
        "z_loss_per_all_target_tokens": z / size,
        "cross_ent_loss_per_all_target_tokens": (loss - z) / size,
        "tokens": steps[-1]["tokens"],
        **_fullness(steps, size),
        "timing/seconds": seconds,
        "timing/seqs": float(rows * count),
    }
    if seconds > 0:
        scalars |= speed(seconds / count, rows, size / seconds)
    return scalars


def _fullness(steps: Sequence[Mapping[str, float]], size: float) -> dict[str, float]:
    # Tokens that have a weight over all target positions.
    scalars = {"non_padding_fraction/loss_weights": _total(steps, "tokens") / size}
    names = [n.removeprefix("size/") for n in steps[0] if n.startswith("size/")]
    filled = {name: _total(steps, f"filled/{name}") for name in names}
    sizes = {name: _total(steps, f"size/{name}") for name in names}
    for name in names:
        scalars[f"effective_batch_size/{name}"] = _total(steps, f"examples/{name}") / len(steps)
        scalars[f"non_padding_fraction/{name}"] = filled[name] / sizes[name]
    if names:
        scalars["non_padding_fraction/overall"] = sum(filled.values()) / sum(sizes.values())
    return scalars


def _total(steps: Sequence[Mapping[str, float]], name: str) -> float:
    return math.fsum(step[name] for step in steps)
