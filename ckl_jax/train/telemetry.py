"""Progress, metric rows and TensorBoard events of a running training."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import jax
import numpy as np

from ckl_jax.train.metrics_log import Fetched, LateFetcher, MetricWriter
from ckl_jax.train.prepare import Prepared
from ckl_jax.train.progress import ProgressBar
from ckl_jax.train.state import TrainState
from ckl_jax.train.step_metrics import speed

_METRICS_BEHIND = 8  # steps that the host reads behind the device, so that neither waits
_FIRST = ("score", "perplexity", "em", "accuracy")  # the score that stands for an evaluation


class Telemetry:
    """Context manager that records metrics of steps and scores of evaluations.

    Args:
      run: what trains.
      folder: its MODEL_DIR.
      name: of the run, for the progress bar.
      step: that training goes on from.
      seconds, cpu_seconds: of training before that.
      log_period: steps between rows of training metrics.
      progress: "auto", "rich", "plain" or "silent".
      services: see `metrics_log.MetricWriter`.
      is_boundary: whether a step is followed by an evaluation or a checkpoint.
      diverged: called with the step and a sentence if its metrics are not finite; raises.

    Attributes:
      seconds: of training so far, pauses for evaluations and checkpoints left out.
      step_flops: of the matrix products of a step, on all devices; None is unknown.
      cpu_seconds: of this process in them, all its threads together. They are what can be compared
        where runs share cores.
    """

    def __init__(
        self,
        run: Prepared,
        folder: str | Path,
        *,
        name: str,
        step: int,
        seconds: float,
        cpu_seconds: float,
        log_period: int,
        progress: str,
        services: Sequence[str],
        is_boundary: Callable[[int], bool],
        diverged: Callable[[int, str], NoReturn],
    ):
        first = jax.process_index() == 0
        self._run, self._log_period = run, log_period
        self._is_boundary, self._diverged = is_boundary, diverged
        self._writer = MetricWriter(folder, resume_step=step, enabled=first, services=services)
        self.bar = ProgressBar(
            run.last_step,
            f"train {name}",
            start=step,
            mode=progress if first else "silent",
            log=Path(folder) / "log.txt" if first else None,
        )
        self._late = LateFetcher(_METRICS_BEHIND)
        self._steps: list[Fetched] = []  # since the last row
        self._newest: dict[str, tuple[int, dict[str, float]]] = {}  # row and scores, by step
        self._once: dict[str, float] = {}  # goes into the next row
        self._waits, self._began = True, _clocks()
        self.seconds, self.cpu_seconds = seconds, cpu_seconds
        self.step_flops: int | None = None

    def __enter__(self) -> "Telemetry":
        self._writer.__enter__()
        self.bar.__enter__()
        return self

    def __exit__(self, *exception) -> None:
        self.bar.__exit__(*exception)
        self._writer.__exit__(*exception)

    def text(self, step: int, name: str, text: str) -> None:
        """Writes text to TensorBoard, indented so that Markdown shows it verbatim."""
        self._writer.text("train", step, name, "\n".join(f"    {x}" for x in text.splitlines()))

    def times(self, **seconds: float) -> None:
        """Adds `timing/<name>` to the next row."""
        self._once |= {f"timing/{name}": value for name, value in seconds.items()}

    def resume(self) -> None:
        """Starts the clock, before the first batch and after a pause."""
        self._waits, self._began = True, _clocks()

    def batch_is_there(self) -> None:
        """Starts the clock of a step, if it is the first after a pause."""
        if self._waits:
            # After the wait for the first batch: starting the input pipeline is not part of a step.
            self._late.start()
            self._waits = False

    def step(self, step: int, metrics: Mapping[str, jax.Array]) -> None:
        """Takes the metrics of a step; logs those of earlier steps that have arrived."""
        for fetched in self._late.push(step, metrics):
            self._log(fetched)

    def pause(self) -> None:
        """Waits for outstanding steps, writes the row that is due, and stops the clock."""
        for fetched in self._late.flush():
            self._log(fetched)
        # Where rows are means, the steps before a checkpoint out of turn would be in none.
        if self._run.metrics.at_boundaries and self._steps:
            self._write_row()
        (began, cpu_began), (now, cpu_now) = self._began, _clocks()
        self.seconds += now - began
        self.cpu_seconds += cpu_now - cpu_began

    def evaluated(self, step: int, scores: Mapping[str, Mapping[str, float]]) -> None:
        """Writes the scores of an evaluation, {split: {name: score}}, and prints the main ones."""
        epoch = self._epoch(step)
        for split, values in scores.items():
            self._writer.write(split, step, {**epoch, **values})
        if scores:
            self.bar.say(in_a_line({"step": step, **epoch}, scores))
        flat = {f"{split}/{n}": x for split, values in scores.items() for n, x in values.items()}
        self._newest["scores"] = (step, flat)

    def remember(self, step: int, metrics: dict[str, float]) -> None:
        """Restores the metrics of a checkpoint whose evaluation is repeated after resuming."""
        self._newest["row"] = (step, metrics)

    def metrics_at(self, step: int) -> dict[str, float]:
        """The metric row and scores of a step, for its checkpoint."""
        metrics: dict[str, float] = {}
        for name in ("row", "scores"):
            written, values = self._newest.get(name, (None, {}))
            metrics |= values if written == step else {}
        return metrics

    def _log(self, fetched: Fetched) -> None:
        step, values, seconds = fetched
        run, epoch = self._run, self._epoch(step)
        tokens = int(values["tokens"])
        self.bar.update(step, seconds=seconds, loss=values["loss"], tokens=tokens, **epoch)
        if not np.isfinite(values["loss"]) or not np.isfinite(values["gradient_norm"]):
            # The step is some behind the newest one; no checkpoint was saved since, for saving
            # waits for all metrics.
            self._diverged(
                step,
                f"The loss is {values['loss']} and its gradient norm "
                f"{values['gradient_norm']} at step {step}",
            )
        self._steps.append(fetched)
        due = step % self._log_period == 0 or step == run.total_steps
        if due or (run.metrics.at_boundaries and self._is_boundary(step)):
            self._write_row()

    def _write_row(self) -> None:
        """Writes the row of the steps since the last one."""
        run, step = self._run, self._steps[-1].step
        # The update that made step n used the rate of n - 1, the state's number before it.
        row = {"learning_rate": float(run.rate(step - 1)), **self._epoch(step)}
        row |= self._speed() | run.metrics.row(self._steps, run.source.plan.batch_size)
        self._writer.write("train", step, row | self._once)
        # Kept for the checkpoint of this step, whose metadata hold it.
        self._newest["row"] = (step, {f"train/{name}": value for name, value in row.items()})
        self._once, self._steps = {}, []

    def _epoch(self, step: int) -> dict[str, int]:
        """{"epoch": of the step}; {} of a stream, whose number of rows is not known."""
        return {} if self._run.source.plan.epochs is None else {"epoch": self._run.epoch(step)}

    def _speed(self) -> dict[str, float]:
        seconds, tokens = self.bar.seconds_per_step, self.bar.tokens_per_second or 0.0
        rows = self._run.source.plan.batch_size
        return speed(seconds, rows, tokens, self.step_flops) if seconds else {}


def _clocks() -> tuple[float, float]:
    return time.monotonic(), time.process_time()


def in_a_line(at: Mapping[str, int], scores: Mapping[str, Mapping[str, float]]) -> str:
    """One line for an evaluation `at` a step (and epoch): the main score of each split."""
    parts = []
    for split, values in scores.items():
        name = next((n for n in _FIRST if n in values), next(iter(values), None))
        if name is not None:
            parts.append(f"{split.rpartition('/')[2]} {name} {values[name]:.2f}")
    return f"after {', '.join(f'{n} {x}' for n, x in at.items())}: {', '.join(parts)}"


class Profile:
    """Traces a few steps, after the slower first ones."""

    _SKIPPED = 3

    def __init__(self, folder: str, step: int, steps: int):
        self._folder, self._steps = folder, steps
        self._first, self._runs = step + self._SKIPPED, False

    def before(self, step: int, state: TrainState) -> None:
        """Begins or ends the trace before a step, where it is time to."""
        if self._runs and step >= self._first + self._steps:
            self.stop(state)
        elif self._steps and step == self._first:
            # Steps that were dispatched before are no part of the trace.
            jax.block_until_ready(state.params)
            jax.profiler.start_trace(self._folder)
            self._runs = True

    def stop(self, state: TrainState) -> None:
        """Ends the trace, if there is one."""
        if self._runs:
            jax.block_until_ready(state.params)
            jax.profiler.stop_trace()
            self._runs = False
            folder = f"{self._folder}/plugins/profile"
            say(f"A trace of the steps from {self._first + 1} on is in {folder}.")


def say(sentence: str) -> None:
    """Prints a sentence once, whatever the number of processes."""
    if jax.process_index() == 0:
        print(sentence)
