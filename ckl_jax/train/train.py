"""`t5x train`: updates a model on a corpus by a method and probes it during training.

`train` reads from top to bottom: prepare, restore, compile, loop, evaluate and save, summary. What
it calls stands beside it: `prepare.py` (settings and shapes), `resume.py` (where to begin),
`step.py` (the jitted step), `telemetry.py` (progress, metrics), `step_evaluation.py` (scores),
`saving.py` (checkpoints).
"""

import contextlib
import dataclasses
import functools
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jax
import optax

from ckl_jax import checks
from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.errors import UserError
from ckl_jax.methods.method import Method, vanilla
from ckl_jax.models.base import BaseTransformerModel
from ckl_jax.parallel import flops
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.parallel.processes import FolderLock, StopSignal
from ckl_jax.train import compile_cache
from ckl_jax.train.configs import CheckpointConfig, DatasetConfig
from ckl_jax.train.evaluations import MakeEvaluation, chosen
from ckl_jax.train.metrics_log import check_services
from ckl_jax.train.prepare import Prepared, check_settings, prepare
from ckl_jax.train.remote_sync import Mirror
from ckl_jax.train.restore import phase_from
from ckl_jax.train.resume import Begun, begin, why_finished
from ckl_jax.train.resume_check import check_same_run
from ckl_jax.train.saving import Saver, stop_training
from ckl_jax.train.state import TrainState
from ckl_jax.train.step_evaluation import StepEvaluation
from ckl_jax.train.step_metrics import StepMetrics
from ckl_jax.train.telemetry import Profile, Telemetry, say
from ckl_jax.train.vocabulary_check import check_same_vocabulary


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
    probes: MakeEvaluation | None = None,
    evaluations: Sequence[MakeEvaluation] = (),
    eval_period: int | None = None,
    eval_first: bool | None = None,
    checkpoint_cfg: CheckpointConfig = CheckpointConfig(),  # noqa: B008
    partitioner: Partitioner | None = None,
    num_microbatches: int = 1,
    random_seed: int = 0,
    use_hardware_rng: bool = False,
    first_step: int = 0,
    may_change: bool = False,
    run_name: str | None = None,
    phase: int | None = None,
    log_period: int = 10,
    progress: str = "auto",
    metric_services: Sequence[str] = (),
    metrics: StepMetrics | None = None,
    legacy_microbatch_means: bool = False,
    make_inputs: Callable[[], Any] | None = None,
    profile_steps: int = 0,
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
      probes: the first of the evaluations, such as `ClosedBook`; it has an argument of its own, so
        that a gin file binds it without repeating the others.
      evaluations: what to evaluate after every epoch; see `evaluations`.
      eval_period: evaluate every so many steps instead of every epoch.
      eval_first: also evaluate before the first step; None does so where training starts from a
        checkpoint.
      checkpoint_cfg: what to start from; when to save.
      partitioner: mesh and rules.
      num_microbatches: gradient accumulation within a step.
      random_seed: of new parameters and dropout.
      use_hardware_rng: draws dropout masks by the accelerator's own generator (JAX's `unsafe_rbg`),
        in fewer operations; they depend on the device, the mesh and the compiler, too.
      first_step: the number of the step that a new run starts at; `total_steps` and the schedule
        count from 0.
      may_change: allow resuming with changed settings, such as `total_steps`.
      run_name: for rows; default, the folder's name.
      phase: number of this update in a sequence of corpora, for rows; None counts on from the
        checkpoint that training starts from, see `restore.phase_from`.
      log_period: steps between rows of training metrics.
      progress: "auto", "rich", "plain" or "silent".
      metric_services: "wandb", "mlflow": get the metrics too, see `metrics_log.SERVICES`.
      metrics: makes the rows of training metrics; None is `StepMetrics()`.
      legacy_microbatch_means: see `step.make_train_step`.
      make_inputs: makes what is missing of what the run reads, such as data of the simulated world.
        Called once every setting has been checked. It may return a function that makes the base
        model; that is called once the data have been found to fit.
      profile_steps: write a trace of so many steps to MODEL_DIR/plugins/profile, where TensorBoard
        looks for it.

    Returns:
      The last step and state.

    Raises:
      UserError: something in the configuration or the files does not fit.
    """
    # Prepare: every setting is checked before anything is written or allocated.
    compile_cache.enable()
    compile_cache.keep_freed_memory()
    _check_reports(eval_period, log_period, profile_steps, progress, metric_services)
    restore, partitioner = checkpoint_cfg.restore, partitioner or Partitioner()
    evaluations = chosen(probes, evaluations)
    run = prepare(
        model=model,
        dataset=train_dataset_cfg,
        model_dir=model_dir,
        method=method,
        optimizer=optimizer,
        learning_rate=learning_rate,
        clip_norm=clip_norm,
        epochs=epochs,
        total_steps=total_steps,
        checkpoint_cfg=checkpoint_cfg,
        partitioner=partitioner,
        num_microbatches=num_microbatches,
        random_seed=random_seed,
        use_hardware_rng=use_hardware_rng,
        first_step=first_step,
        metrics=metrics,
        legacy_microbatch_means=legacy_microbatch_means,
        make_inputs=make_inputs,
        evaluations=evaluations,
    )
    if restore.path and not restore.assignment_map:  # which may leave the embedding out
        check_same_vocabulary(restore.path, run.model.output_vocabulary, warn=True)
    mirror = Mirror.of(model_dir)
    mirror.pull()
    difference = check_same_run(model_dir, method.name, may_change, inputs=run.inputs_digest)
    if phase is None:
        phase = phase_from(restore.path) + (method.trains and restore.path is not None)
    context = {"run": run_name or Path(model_dir).name, "method": method.name, "phase": phase}
    stop = StopSignal()
    evaluation = StepEvaluation(run, evaluations, context, stop)
    eval_first = restore.path is not None if eval_first is None else eval_first
    save_cfg = checkpoint_cfg.save
    store = CheckpointStore(run.model_dir, keep=save_cfg.keep, keep_best=save_cfg.keep_best)
    due = _Due(run, eval_period)

    with partitioner.on_mesh(), FolderLock() as lock, _saves_finished(store):
        # Restore.
        clock = time.monotonic()
        begun = begin(run, store, lock, probed=evaluation.probes)
        state, step = begun.state, int(begun.state.step)
        if begun.finished:
            say(why_finished(run, step, difference))
            store.close()
            return step, state
        if difference:
            say(f"{model_dir} was trained {difference}: training goes on with the new settings.")
        telemetry = Telemetry(
            run,
            model_dir,
            name=context["run"],
            step=step,
            seconds=begun.seconds,
            cpu_seconds=begun.cpu_seconds,
            log_period=log_period,
            services=metric_services,
            progress=progress,
            is_boundary=lambda step: due.evaluation(step) or due.checkpoint(step),
            diverged=functools.partial(_diverged, run, store),
        )
        telemetry.times(init_or_restore_seconds=time.monotonic() - clock)
        saver = Saver(run, store, begun, telemetry, context=context, mirror=mirror)

        # Compile.
        compiled, telemetry.step_flops = _compile(run, step, telemetry)

        # Loop, with what it evaluates and saves.
        with telemetry, stop:
            telemetry.text(step, "gin_config", begun.config_text)
            if begun.owes_evaluation or (step == run.first_step and eval_first):
                _evaluate_first(begun, evaluation, saver, store, telemetry, stop)
            if save_cfg.first and store.latest_step() is None:
                saver.save(state)
            if step < run.last_step and not run.ends_early(step):
                state = _loop(
                    run,
                    begun,
                    compiled,
                    due=due,
                    evaluation=evaluation,
                    saver=saver,
                    store=store,
                    telemetry=telemetry,
                    stop=stop,
                    profile=Profile(run.model_dir, step, profile_steps),
                )
            elif run.last_step == 0 and store.latest_step() is None:
                saver.save(state)
            store.close()

    # Summary.
    saver.write_summary(state, flops=telemetry.step_flops)
    return int(state.step), state


def _evaluate_first(
    begun: Begun,
    evaluation: StepEvaluation,
    saver: Saver,
    store: CheckpointStore,
    telemetry: Telemetry,
    stop: StopSignal,
) -> None:
    """Evaluates the starting parameters, or those that an interrupted run left unevaluated."""
    step = int(begun.state.step)
    telemetry.remember(step, begun.metrics)
    if not evaluation(begun.state, begun.frozen, telemetry):
        _end_early(store, step, stop)
    if begun.owes_evaluation:
        saver.amend_evaluated(step)


def _loop(
    run: Prepared,
    begun: Begun,
    compiled: Callable,
    *,
    due: "_Due",
    evaluation: StepEvaluation,
    saver: Saver,
    store: CheckpointStore,
    telemetry: Telemetry,
    stop: StopSignal,
    profile: Profile,
) -> TrainState:
    """Runs the training steps; see `train`."""
    state, step = begun.state, int(begun.state.step)
    key = run.dropout_key()
    telemetry.resume()
    for batch in run.batches(step):
        if step >= run.last_step:
            break
        telemetry.batch_is_there()
        profile.before(step, state)
        batch = run.partitioner.put_batch(batch)
        state, metrics = compiled(state, begun.constants, batch, key)
        step += 1
        telemetry.step(step, metrics)
        evaluate, save = due.evaluation(step), due.checkpoint(step)
        stopping, overdue = stop.requested(), saver.is_overdue(step)
        if not (evaluate or save or stopping or overdue):
            continue
        telemetry.pause()
        saver.check_finite(state)
        # Rows first: a run killed in between probes again and writes the same rows.
        owes = evaluate and not evaluation(state, begun.frozen, telemetry)
        if save or stopping or owes or overdue:
            saver.save(state, owes_evaluation=owes, until_next=not save)
        if owes or (stopping and step < run.last_step):
            _end_early(store, step, stop)
        if evaluate and step < run.last_step and run.ends_early(step):
            if not save:
                saver.save(state)
            best = run.checkpoint_cfg.save.keep_best
            say(f"No better {best.metric} in {best.patience} evaluations: stopped at step {step}.")
            break
        telemetry.resume()
    profile.stop(state)
    return state


def _compile(run: Prepared, step: int, telemetry: Telemetry) -> tuple[Any, int | None]:
    """The compiled step, None if no step is left, and the FLOPs of its matrix products."""
    if not run.method.trains:
        return None, None
    clock = time.monotonic()
    traced = run.trace()
    counted = flops.of_jaxpr(traced.jaxpr)
    if step >= run.total_steps:
        return None, counted
    compiled = traced.lower().compile()
    telemetry.times(compilation_seconds=time.monotonic() - clock)
    return compiled, counted


@dataclasses.dataclass(frozen=True)
class _Due:
    """The actions due after a step (evaluation, checkpoint), by epoch or by period."""

    run: Prepared
    eval_period: int | None

    def evaluation(self, step: int) -> bool:
        if step == self.run.total_steps:
            return True
        if self.eval_period is None:
            return self.run.ends_epoch(step)
        return step % self.eval_period == 0

    def checkpoint(self, step: int) -> bool:
        save = self.run.checkpoint_cfg.save
        return step == self.run.total_steps or save.is_due(step, self.run.ends_epoch(step))


@contextlib.contextmanager
def _saves_finished(store: CheckpointStore) -> Iterator[None]:
    """Finishes the save under way where training fails, which the end of Python would cut off."""
    try:
        yield
    except (Exception, SystemExit):
        # The other processes, which a save waits for, may not have failed.
        if jax.process_count() == 1:
            with contextlib.suppress(UserError):  # the first error is the one to tell
                store.close()
        raise


def _diverged(run: Prepared, store: CheckpointStore, step: int, what: str) -> NoReturn:
    store.discard(step - 1)  # a run that resumed there would stop here again
    stop_training(run, store, what)


def _end_early(store: CheckpointStore, step: int, stop: StopSignal) -> NoReturn:
    store.close()
    saved = store.latest_step() == step
    say(f"Stopped at step {step}{', which is saved' * saved}: start again to go on.")
    raise SystemExit(stop.exit_code)


def check(**arguments: Any) -> None:
    """Checks what `train` of these arguments checks without data, checkpoints and devices.

    Raises:
      UserError: a setting cannot work.
    """
    given = _with_defaults(arguments)
    names = inspect.signature(_check_reports).parameters
    _check_reports(**{name: given[name] for name in names})
    check_settings(**for_prepare(arguments))


def _check_reports(
    eval_period: int | None,
    log_period: int,
    profile_steps: int,
    progress: str,
    metric_services: Sequence[str],
) -> None:
    checks.require_int(EVAL_PERIOD=eval_period, log_period=log_period)
    checks.require_int(0, **{"--profile": profile_steps})
    checks.require_choice(("auto", "rich", "plain", "silent"), progress=progress)
    check_services(metric_services)


def for_prepare(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `train`, and its defaults, under the names that `prepare` has for them."""
    given = _with_defaults(arguments)
    given["dataset"] = given["train_dataset_cfg"]
    given["partitioner"] = given["partitioner"] or Partitioner()
    given["evaluations"] = chosen(given["probes"], given["evaluations"])
    return {name: given[name] for name in inspect.signature(prepare).parameters}


def _with_defaults(arguments: Mapping[str, Any]) -> dict[str, Any]:
    given = inspect.signature(train).bind(**arguments)
    given.apply_defaults()
    return given.arguments
