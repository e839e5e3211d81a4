"""`t5x.train`: T5X's arguments of a training run, over `train.train`."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from ckl_jax.errors import UserError
from ckl_jax.methods.method import Method, vanilla
from ckl_jax.probes.closed_book import ClosedBook
from ckl_jax.t5x_api import names, utils
from ckl_jax.t5x_api.metrics import T5XMetrics
from ckl_jax.t5x_api.models import EncoderDecoderModel
from ckl_jax.t5x_api.partitioning import PjitPartitioner
from ckl_jax.t5x_api.trainer import Trainer, unknown_actions
from ckl_jax.train import train as native
from ckl_jax.train.state import TrainState


def train(
    *,
    model: EncoderDecoderModel,
    train_dataset_cfg: utils.DatasetConfig,
    train_eval_dataset_cfg: utils.DatasetConfig | None,
    infer_eval_dataset_cfg: utils.DatasetConfig | None,
    checkpoint_cfg: utils.CheckpointConfig,
    partitioner: PjitPartitioner,
    trainer_cls: Callable[[], Trainer],
    model_dir: str,
    total_steps: int,
    eval_steps: int,
    eval_period: int | None,
    random_seed: int | None,
    summarize_config_fn: Any = None,
    relative_steps: int | None = None,
    stats_period: int | None = None,
    use_hardware_rng: bool = False,
    inference_evaluator_cls: Any = None,
    get_dataset_fn: Any = None,
    concurrent_metrics: bool = True,
    actions: Any = None,
    train_eval_get_dataset_fn: Any = None,
    run_eval_before_training: bool = False,
    train_state_initializer_cls: Any = None,
    use_orbax: bool = True,
    verify_matching_vocabs_fn: Any = None,
    gc_period: int = 0,
    method: Method = vanilla(),  # noqa: B008 (a frozen record)
    probes: ClosedBook | None = None,
    clip_norm: float | None = None,
    progress: str = "auto",
) -> tuple[int, TrainState]:
    """Trains as T5X does, by the native runner; returns the last step and state.

    The differences: a `random_seed` of None is 0, and the position in the data is always stored, so
    a run that is killed goes on as if it had not been; checkpoints and evaluations lie at multiples
    of their periods, counted from 0. A new run goes on with the optimizer state of its initial
    checkpoint where that fits the optimizer and what trains, else with a fresh one.

    Args:
      model: with its `optimizer_def`.
      train_eval_dataset_cfg: the loss of its split is logged under `training_eval/<task>`.
      infer_eval_dataset_cfg: its tasks' metrics are computed by `inference_evaluator_cls`.
      total_steps: the last step; counts the initial checkpoint's own steps.
      eval_steps: batches of a `train_eval`.
      summarize_config_fn, concurrent_metrics, use_orbax, gc_period: accepted, without effect.
      relative_steps: steps beyond the initial checkpoint; wins over `total_steps`.
      stats_period: steps between rows of metrics; None writes them with each evaluation and
        checkpoint.
      inference_evaluator_cls: `seqio.Evaluator`.
      run_eval_before_training: also evaluate before the first step.
      use_hardware_rng: see `train.train.train`; new parameters are drawn as without it.
      method, probes, clip_norm, progress: see `train.train.train`; T5X has no such arguments.
      get_dataset_fn, actions, train_eval_get_dataset_fn, train_state_initializer_cls,
        verify_matching_vocabs_fn: must be left out.
      Others: as in `train.train.train`.

    Raises:
      UserError: something in the configuration or the files does not fit.
    """
    del summarize_config_fn, concurrent_metrics, use_orbax, gc_period
    names.not_offered(
        "train.train",
        get_dataset_fn=get_dataset_fn,
        actions=unknown_actions(actions),
        train_eval_get_dataset_fn=train_eval_get_dataset_fn,
        train_state_initializer_cls=train_state_initializer_cls,
        verify_matching_vocabs_fn=verify_matching_vocabs_fn,
    )
    given = native_arguments(
        model, checkpoint_cfg, partitioner, trainer_cls, total_steps, relative_steps, random_seed
    )
    evaluations = []
    if _has_splits("training_eval", train_eval_dataset_cfg):
        # Partial functions, which `train.train` calls with the model and the partitioner when it
        # has them.
        evaluations.append(functools.partial(_train_evaluation, train_eval_dataset_cfg, eval_steps))
    if _has_splits("inference_eval", infer_eval_dataset_cfg):
        folder = str(Path(model_dir) / "inference_eval")
        evaluations.append(
            functools.partial(
                _inference_evaluation, infer_eval_dataset_cfg, inference_evaluator_cls, folder
            )
        )
    return native.train(
        **given,
        train_dataset_cfg=train_dataset_cfg,
        model_dir=model_dir,
        method=method,
        clip_norm=clip_norm,
        use_hardware_rng=use_hardware_rng,
        probes=probes,
        evaluations=evaluations,
        eval_period=eval_period,
        eval_first=run_eval_before_training,
        log_period=stats_period or _epoch(eval_period, checkpoint_cfg, given["total_steps"]),
        # T5X goes on with a changed configuration without asking; so do its gin files here.
        may_change=True,
        progress=progress,
        metrics=T5XMetrics(),
    )


def _has_splits(job: str, cfg: utils.DatasetConfig | None) -> bool:
    """Whether the task has splits to evaluate on; a cached task is all training data."""
    if cfg is None or not cfg.is_cached_folder:
        return cfg is not None
    if jax.process_index() == 0:
        print(f"{job} leaves out {cfg.task_name}: a cached task has no splits.", flush=True)
    return False


def _epoch(eval_period: int | None, cfg: utils.CheckpointConfig, total_steps: int) -> int:
    """T5X's "epoch": the steps between two evaluations or checkpoints, whichever come first."""
    # 0 and None are not periods.
    return min(period for period in (eval_period, cfg.save.period, total_steps) if period)


# The name by which `config.gin` refers to it, and T5X's users import it.
train.__module__ = "t5x.train"


def native_arguments(
    model: EncoderDecoderModel,
    checkpoint_cfg: utils.CheckpointConfig,
    partitioner: PjitPartitioner | None,
    trainer_cls: Callable[[], Trainer],
    total_steps: int,
    relative_steps: int | None,
    random_seed: int | None,
) -> dict[str, Any]:
    """Translates T5X's arguments to those of `train.train.train`.

    Raises:
      UserError: the model has no optimizer, or the trainer no learning rate.
    """
    if getattr(model, "optimizer_def", None) is None:
        raise UserError(
            "The model has no optimizer: bind models.EncoderDecoderModel.optimizer_def, such as "
            "@adafactor.Adafactor()."
        )
    # gin has bound its arguments to the class.
    trainer = trainer_cls()
    if trainer.learning_rate_fn is None:
        raise UserError(
            "trainer.Trainer.learning_rate_fn is not set; bind "
            "@utils.create_learning_rate_scheduler() to it."
        )
    restore = checkpoint_cfg.restore
    if restore.mode == "all":
        raise UserError(
            "RestoreCheckpointConfig.mode 'all' is for evaluation: a run starts from one "
            "checkpoint; give 'specific' or 'latest'."
        )
    if restore.dtype not in (None, "float32"):
        raise UserError(
            f"RestoreCheckpointConfig.dtype is {restore.dtype!r}: it is for eval and "
            "infer; what trains is float32 (T5Config.dtype is the type of the computation)."
        )
    # T5X counts the steps of the checkpoint: pretrained T5 1.1 starts at 1,000,000, and total_steps
    # must be larger.
    first = restore.first_step()
    return {
        "model": model,
        "optimizer": model.optimizer_def,
        # The native runner passes the length of the run; T5X's schedules are functions of the step
        # alone.
        "learning_rate": lambda total_steps: trainer.learning_rate_fn,
        "checkpoint_cfg": checkpoint_cfg,
        "partitioner": partitioner,
        "num_microbatches": trainer.num_microbatches or 1,
        "legacy_microbatch_means": trainer.legacy_microbatch_means,
        "random_seed": random_seed or 0,
        "total_steps": total_steps if relative_steps is None else first + relative_steps,
        "first_step": first,
    }


def _train_evaluation(cfg, steps, model, partitioner):
    from ckl_jax.t5x_api.seqio_evaluation import TrainEvaluation

    return TrainEvaluation(cfg, steps, model, partitioner)


def _inference_evaluation(cfg, evaluator_cls, folder, model, partitioner):
    from ckl_jax.t5x_api.seqio_evaluation import InferenceEvaluation

    return InferenceEvaluation(cfg, evaluator_cls, model, partitioner.put_whole, folder)
