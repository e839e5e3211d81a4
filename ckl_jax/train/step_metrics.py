"""Rows of metrics of the split "train" under this project's names."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from ckl_jax.parallel import flops
from ckl_jax.train.metrics_log import Fetched


class StepMetrics:
    """Makes a row of metrics for the steps since the last row; values are of the last step.

    Attributes:
      at_boundaries: also write a row at each evaluation and each save.
      names: of the numbers in a row; what ends in "/" or is empty stands for all that begin so.
    """

    at_boundaries = False
    names: Sequence[str] = (
        "loss",
        "z_loss",
        "accuracy",
        "tokens",
        "gradient_norm",
        "learning_rate",
        "epoch",
        "loss_per_nonpadding_target_token",
        "cross_ent_loss_per_nonpadding_target_token",
        "timing/",
        "memory/",
    )

    def of_step(self, batch: Mapping[str, jax.Array], learning_rate: jax.Array) -> dict[str, Any]:
        """Further scalars of a step, computed within it."""
        del batch, learning_rate
        return {}

    def row(self, steps: Sequence[Fetched], rows: int) -> dict[str, float]:
        """A row.

        Args:
          steps: those since the row before.
          rows: B, of a global batch.
        """
        del rows
        values = steps[-1].numbers
        # The objective is what T5X calls "loss"; `t5x_api` has the rows with it.
        values = {name: value for name, value in values.items() if name != "objective"}
        # T5X's names for the same two numbers, so that its dashboards work.
        values["loss_per_nonpadding_target_token"] = values["loss"]
        values["cross_ent_loss_per_nonpadding_target_token"] = values["loss"] - values["z_loss"]
        return values


def speed(
    seconds: float, rows: float, tokens: float, step_flops: int | None = None
) -> dict[str, float]:
    """Training speed under T5X's names, and device utilization.

    Args:
      seconds: of a step.
      rows: of a step.
      tokens: of a second.
      step_flops: of the matrix products of a step on all devices, those included that the backward
        pass computes again; without any such (REMAT_POLICY 'none') utilization is MFU.
    """
    devices = jax.device_count()
    used = {}
    if step_flops:
        rate = step_flops / seconds / devices
        used["timing/matmul_tflops_per_second_per_device"] = rate / 1e12
        if peak := flops.peak(jax.local_devices()[0].device_kind):
            used["timing/flops_utilization"] = rate / peak
    memory = [d.memory_stats() or {} for d in jax.local_devices()]
    if peaks := [m["peak_bytes_in_use"] for m in memory if "peak_bytes_in_use" in m]:
        used["memory/peak_gib_per_device"] = max(peaks) / 2**30
    return used | {
        "timing/seconds_per_step": seconds,
        "timing/steps_per_second": 1.0 / seconds,
        "timing/seqs_per_second": rows / seconds,
        "timing/seqs_per_second_per_core": rows / seconds / devices,
        "timing/target_tokens_per_second": tokens,
        "timing/target_tokens_per_second_per_core": tokens / devices,
    }
