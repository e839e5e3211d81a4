"""Estimates what the trainings of an experiment cost before they run: steps, FLOPs and disk.

FLOPs are those of the padded batches through the base model, forward and backward, in all
parameters: `t5x precompile` counts some 7 % more of Vanilla's step, and of methods that freeze or
add a part up to 25 % less or 20 % more.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ckl_jax.analysis import labels
from ckl_jax.data.tasks.epochs import EpochPlan
from ckl_jax.methods.method import Method
from ckl_jax.train.studies import method_of, settings_of
from ckl_jax.train.subprocess_runs import Training

_CORE = 45e9  # FLOP a second of the small world's T5 on one CPU core
_OVERHEAD = 20.0  # further seconds of a training there: starting, compiling, evaluating
_GPU = 0.5 * 989e12  # half of an H100's; docs/experiments.md
Rows = Callable[[str], int | None]  # of a task; None if it is not known yet


@dataclasses.dataclass(frozen=True)
class Cost:
    """The cost of a training."""

    steps: int
    flops: float
    stored: int  # bytes of its checkpoint


def lines(trainings: Sequence[Training], rows: Rows) -> list[str]:
    """Sentences about the cost of a plan.

    Args:
      trainings: of the experiment, finished ones among them.
    """
    left = [training for training in trainings if not training.is_done]
    text = labels.count(len(trainings), "training")
    if len(left) < len(trainings):
        text += f", {len(trainings) - len(left)} of them done"
    costs = [cost for training in left if (cost := of(training, rows))]
    if not costs:
        return [f"{text}."]
    steps, flops, stored = (sum(getattr(c, n) for c in costs) for n in ("steps", "flops", "stored"))
    also = f" (and {len(left) - len(costs)} fine-tunings)" if len(costs) < len(left) else ""
    time = f"about {_duration(flops / _CORE + _OVERHEAD * len(costs))} of a CPU core"
    if flops / _GPU > 60.0:
        time += f", or {_duration(flops / _GPU)} of an H100 at half its speed without evaluation"
    return [
        f"{text}: {steps:,} steps{also}, about {_sized(flops, 'FLOP')}, {_sized(stored, 'B')} of "
        f"checkpoints, {time}."
    ]


def of(training: Training, rows: Rows) -> Cost | None:
    """The cost of a training; None if its rows are unknown before it runs, as for KILT."""
    settings = settings_of(training)
    # Of GPT-2's updates a text is about a row.
    task = settings.get("D1_TEXT") or settings["MIXTURE_OR_TASK_NAME"]
    steps, main = settings.get("TRAIN_STEPS"), rows(task) if isinstance(task, str) else None
    is_tuning = any("LIGHT_TUNE_NAME" in argument for argument in training.command)
    if is_tuning or not (steps or main):
        return None
    parameters, per_row = _model(settings)
    method = method_of(training)
    steps = steps or _plan(settings, method, main, rows).total_steps
    moments = 2 if method.tx else 0  # as of Adam; those of the usual Adafactor are small
    stored = 4 * parameters * (1 + moments)
    return Cost(steps, 6.0 * steps * settings["BATCH_SIZE"] * per_row, stored)


def check_rows(trainings: Iterable[Training], rows: Rows) -> None:
    """Raises `UserError` if an epoch of a training has fewer rows than a batch."""
    for training in trainings:
        settings = settings_of(training)
        name = settings.get("MIXTURE_OR_TASK_NAME")
        if main := rows(name) if isinstance(name, str) else None:
            once = {**settings, "EPOCHS": 1}
            _plan(once, method_of(training), main, rows).refuse_padding(name)


def _plan(settings: Mapping[str, Any], method: Method, main: int, rows: Rows) -> EpochPlan:
    mixture, replay, review = method.mixture, 0, 0
    if mixture is not None:
        replay = rows(settings.get("D0_TEXT") or settings["REPLAY_TASK_NAME"]) or 1
        again = settings.get("REVIEW_TASK_NAME") if mixture.review_phases else None
        review = rows(again) or 0 if again else 0
    size, epochs = settings["BATCH_SIZE"], settings["EPOCHS"]
    return EpochPlan(main, replay, mixture, size, epochs, 0, review)


def _model(settings: Mapping[str, Any]) -> tuple[int, int]:
    """Parameters of the base model, and its forward multiplications per padded row."""
    of = {n.rpartition(".")[2]: x for n, x in settings.items() if "Config." in n}
    lengths = settings["TASK_FEATURE_LENGTHS"]
    width, inner = of["emb_dim"], of["num_heads"] * of["head_dim"]
    attention, table = 4 * width * inner, of["vocab_size"] * width
    mlp = (1 + len(of.get("mlp_activations", ("",)))) * width * of["mlp_dim"]
    decoder = of.get("num_layers", 0) * (attention + mlp)
    encoder = of.get("num_encoder_layers", 0) * (attention + mlp)
    decoder += of.get("num_decoder_layers", 0) * (2 * attention + mlp)
    tables = table if of.get("logits_via_embedding", True) else 2 * table
    per_row = encoder * lengths.get("inputs", 0) + (decoder + table) * lengths["targets"]
    return encoder + decoder + tables, per_row


def _sized(number: float, unit: str) -> str:
    """Such as "3.1 TFLOP" or "25 MB"."""
    power = min(max(int(math.log10(max(number, 1.0)) // 3), 0), 7)
    return f"{number / 1000.0**power:.3g} {' kMGTPEZ'[power].strip()}{unit}"


def _duration(seconds: float) -> str:
    """Such as "1.5 hours" or "40 minutes"."""
    for unit, name in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if (count := seconds / unit) >= 1.5:
            return f"{count:.{int(count < 10)}f} {name}"
    return f"{seconds:.0f} seconds"
