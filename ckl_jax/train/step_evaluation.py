"""The evaluations of a running training, on the parameters of a step."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax

from ckl_jax.models.base import BaseTransformerModel
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.parallel.processes import Stopped, StopSignal
from ckl_jax.train.evaluations import (
    Probes,
    check_metric,
    further_scores,
    make_evaluator,
    write_evaluation,
)
from ckl_jax.train.prepare import Prepared
from ckl_jax.train.state import TrainState, swapped
from ckl_jax.train.telemetry import Telemetry
from ckl_jax.trees.partition import merge

# (parameters, step, whether it is the last) -> {split: scalars}, which go to the run's metrics.
Evaluation = Callable[[Any, int, bool], dict[str, dict[str, float]]]


class StepEvaluation:
    """Runs the probes and further evaluations on the parameters of a step.

    Attributes:
      probes: whether there are probes, whose rows the run writes.
    """

    def __init__(
        self,
        run: Prepared,
        probes: Probes | None,
        evaluations: Sequence[Callable[[BaseTransformerModel, Partitioner], Evaluation]],
        context: dict[str, Any],
        stop: StopSignal,
    ):
        # Asks before each batch whether to stop: a preempted machine gets some seconds.
        partitioner = dataclasses.replace(run.partitioner, before_batch=stop.check)
        self._run, self._context, self._stop = run, context, stop
        self._evaluator = make_evaluator(probes, run.model, partitioner)
        self._further = [make(run.model, partitioner) for make in evaluations]
        self._at: int | None = None  # the step, while it is evaluated
        self.probes = self._evaluator is not None
        stop.reply = self._reply

    def __call__(self, state: TrainState, frozen: Any, telemetry: Telemetry) -> bool:
        """Evaluates and writes the scores; returns False if a stop signal interrupted it."""
        if not self._evaluator and not self._further:
            return True
        if self._stop.received:
            return False
        step = int(state.step)
        params, last = merge(swapped(state).params, frozen), step == self._run.last_step
        self._at = step
        try:
            scores = self._probe(params, step, last) if self._evaluator else {}
            for evaluation in self._further:
                scores |= further_scores(evaluation, params, step, last)
        except Stopped:
            return False
        self._at = None
        telemetry.evaluated(step, scores)
        if not last:  # whose searches may be wider, and its numbers more
            check_metric(self._run.checkpoint_cfg.save.keep_best, scores)
        return True

    def _probe(self, params: Any, step: int, last: bool) -> dict[str, dict[str, float]]:
        context = {**self._context, "epoch": self._run.epoch(step), "step": step}
        rows = list(self._evaluator.rows(params, context, last=last))
        if jax.process_index() != 0:
            return {}
        scores = write_evaluation(self._run.model_dir, step, rows)
        return {f"inference_eval/{probe}": values for probe, values in scores.items()}

    def _reply(self) -> str:
        """The message printed on the signal, before anything is saved."""
        if self._at is None:
            return "stopping: finishing the dispatched steps, then saving."
        # The signal may come in the last batch, after which another step is trained.
        saved = "; what is trained by then is saved" if self._at > self._run.first_step else ""
        return f"stopping after this batch of the evaluation{saved}."
