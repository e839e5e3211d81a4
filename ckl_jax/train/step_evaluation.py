"""The evaluations of a running training, on the parameters of a step."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax

from ckl_jax.parallel.processes import Stopped, StopSignal
from ckl_jax.train.evaluations import (
    Evaluations,
    MakeEvaluation,
    check_metric,
    write_evaluation,
)
from ckl_jax.train.prepare import Prepared
from ckl_jax.train.state import TrainState, swapped
from ckl_jax.train.telemetry import Telemetry
from ckl_jax.trees.partition import merge


class StepEvaluation:
    """Runs the evaluations on the parameters of a step.

    Attributes:
      probes: whether there are probes, whose rows the run writes.
    """

    def __init__(
        self,
        run: Prepared,
        evaluations: Sequence[MakeEvaluation],
        context: dict[str, Any],
        stop: StopSignal,
    ):
        # Asks before each batch whether to stop: a preempted machine gets some seconds.
        partitioner = dataclasses.replace(run.partitioner, before_batch=stop.check)
        self._run, self._context, self._stop = run, context, stop
        self._evaluations = Evaluations(evaluations, run.model, partitioner)
        self._at: int | None = None  # the step, while it is evaluated
        self.probes = bool(self._evaluations.probes)
        stop.reply = self._reply

    def __call__(self, state: TrainState, frozen: Any, telemetry: Telemetry) -> bool:
        """Evaluates and writes the scores; returns False if a stop signal interrupted it."""
        if not self._evaluations:
            return True
        if self._stop.received:
            return False
        step = int(state.step)
        params, last = merge(swapped(state).params, frozen), step == self._run.last_step
        context = {**self._context, "epoch": self._run.epoch(step), "step": step}
        self._at = step
        try:
            rows, scores = self._evaluations(params, context, last=last)
        except Stopped:
            return False
        self._at = None
        if self.probes and jax.process_index() == 0:
            probed = write_evaluation(self._run.model_dir, step, rows)
            scores = {f"inference_eval/{probe}": x for probe, x in probed.items()} | scores
        telemetry.evaluated(step, scores)
        if not last:  # whose searches may be wider, and its numbers more
            check_metric(self._run.checkpoint_cfg.save.keep_best, scores)
        return True

    def _reply(self) -> str:
        """The message printed on the signal, before anything is saved."""
        if self._at is None:
            return "stopping: finishing the dispatched steps, then saving."
        # The signal may come in the last batch, after which another step is trained.
        saved = "; what is trained by then is saved" if self._at > self._run.first_step else ""
        return f"stopping after this batch of the evaluation{saved}."
