"""`t5x train`: update a model on a corpus by a method, and probe it as it learns."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import optax

from ckl_jax import checks
from ckl_jax.methods.method import Method, vanilla
from ckl_jax.models.base import BaseTransformerModel
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.parallel.processes import FolderLock, StopSignal
from ckl_jax.train import compile_cache
from ckl_jax.train.configs import CheckpointConfig, DatasetConfig
from ckl_jax.train.evaluations import Probes, make_evaluator
from ckl_jax.train.job import Run
from ckl_jax.train.loop import Loop
from ckl_jax.train.remote_sync import Mirror
from ckl_jax.train.restore import phase_from
from ckl_jax.train.resume_check import check_same_run
from ckl_jax.train.state import TrainState
from ckl_jax.train.step_metrics import StepMetrics
from ckl_jax.train.vocabulary_check import check_same_vocabulary

# (parameters, step, whether it is the last) -> {split: scalars}, which go to the run's metrics.
Evaluation = Callable[[Any, int, bool], dict[str, dict[str, float]]]


def check_macros(given: Callable[[str], Any]) -> None:
    """Refuses numbers of the bundled gin files before others of their macros make data and models.

    Args:
      given: the value of a macro, None if it has none.

    Raises:
      UserError: one is out of range.
    """
    counts = ("EPOCHS", "TRAIN_STEPS", "BATCH_SIZE", "NUM_MICROBATCHES", "EVAL_PERIOD")
    checks.require_int(**{name: given(name) for name in counts})
    checks.require_int(0, RANDOM_SEED=given("RANDOM_SEED"))
    if (rate := given("LEARNING_RATE")) is not None:
        checks.require_number("a finite number, 0 or more", 0.0, LEARNING_RATE=rate)
    checks.require_positive(CLIP_NORM=given("CLIP_NORM"))


def train(
    *,
    model: BaseTransformerModel,
    train_dataset_cfg: DatasetConfig,
    model_dir: str,
    method: Method = vanilla(),  # noqa: B008 (a frozen record)
    optimizer: Callable[..., optax.GradientTransformation],
    learning_rate: Callable[..., optax.Schedule],
    clip_norm: float | None = 0.5,
    epochs: int | None = None,
    total_steps: int | None = None,
    probes: Probes | None = None,
    evaluations: Sequence[Callable[[BaseTransformerModel, Partitioner], Evaluation]] = (),
    eval_period: int | None = None,
    eval_first: bool | None = None,
    checkpoint_cfg: CheckpointConfig = CheckpointConfig(),  # noqa: B008
    partitioner: Partitioner | None = None,
    num_microbatches: int = 1,
    random_seed: int = 0,
    first_step: int = 0,
    may_change: bool = False,
    run_name: str | None = None,
    phase: int | None = None,
    log_period: int = 10,
    progress: str = "auto",
    metrics: StepMetrics | None = None,
    legacy_microbatch_means: bool = False,
) -> tuple[int, TrainState]:
    """Trains a model, resuming from the newest checkpoint in `model_dir` if there is one.

    Args:
      model: the base model; the method is put into it here.
      train_dataset_cfg: the corpus.
      model_dir: everything the run writes goes here.
      method: how to update the model.
      optimizer: `schedule -> optax transformation`, where the method has none of its own.
      learning_rate: `total_steps=n -> schedule`.
      clip_norm: bound of the global gradient norm, or None.
      epochs: passes over the corpus.
      total_steps: ends the run at this step instead, within as many epochs as it takes.
      probes: closed-book probes or facts, put after every epoch.
      evaluations: make further evaluations, done where probes are put.
      eval_period: evaluate every so many steps instead of every epoch.
      eval_first: also evaluate before the first step; None does so where training starts from a
        checkpoint.
      checkpoint_cfg: what to start from; when to save.
      partitioner: mesh and rules.
      num_microbatches: gradient accumulation within a step.
      random_seed: of new parameters and dropout.
      first_step: the number of the step that a new run starts at; `total_steps` and the schedule
        count from 0.
      may_change: go on with a run whose settings were others, such as `total_steps`.
      run_name: for rows; default, the folder's name.
      phase: number of this update in a sequence of corpora, for rows; None counts on from the
        checkpoint that training starts from, see `restored.phase_from`.
      log_period: steps between rows of training metrics.
      progress: "auto", "rich", "plain" or "silent".
      metrics: makes the rows of training metrics; None is `StepMetrics()`.
      legacy_microbatch_means: see `train.step.make_train_step`.

    Returns:
      The last step and state.

    Raises:
      UserError: something in the configuration or the files does not fit.
    """
    compile_cache.enable()
    run = Run(
        model,
        train_dataset_cfg,
        model_dir,
        method,
        optimizer,
        learning_rate,
        clip_norm,
        epochs,
        total_steps,
        checkpoint_cfg,
        partitioner or Partitioner(),
        num_microbatches,
        random_seed,
        first_step,
        metrics,
        legacy_microbatch_means,
    )
    restore = checkpoint_cfg.restore
    if restore.path and not restore.assignment_map:  # which may leave the embedding out
        check_same_vocabulary(restore.path, run.model.output_vocabulary, warn=True)
    mirror = Mirror.of(model_dir)
    mirror.pull()
    difference = check_same_run(model_dir, method.name, may_change)
    if phase is None:
        phase = phase_from(restore.path) + (method.trains and restore.path is not None)
    context = {"run": run_name or Path(model_dir).name, "method": method.name, "phase": phase}
    stop = StopSignal()
    asking = dataclasses.replace(run.partitioner, before_batch=stop.check)
    evaluator = make_evaluator(probes, run.model, asking)
    made = [make(run.model, asking) for make in evaluations]
    if eval_first is None:
        eval_first = bool(checkpoint_cfg.restore.path)
    with jax.set_mesh(run.partitioner.mesh), run.partitioner.axis_rules(), FolderLock() as lock:
        loop = Loop(
            run,
            evaluator,
            made,
            context,
            eval_period,
            eval_first,
            log_period,
            progress,
            mirror,
            stop,
        )
        return loop.run(lock, difference)
