"""`t5x.eval`: T5X's arguments of an evaluation, over the native runner."""

from pathlib import Path
from typing import Any

from ckl_jax.errors import UserError
from ckl_jax.methods.method import Method, vanilla
from ckl_jax.t5x_api import names, utils
from ckl_jax.t5x_api.models import EncoderDecoderModel
from ckl_jax.t5x_api.partitioning import PjitPartitioner
from ckl_jax.train.eval import Done
from ckl_jax.train.restore import RestoredModel, position


def evaluate(
    *,
    model: EncoderDecoderModel,
    dataset_cfg: utils.DatasetConfig,
    restore_checkpoint_cfg: utils.RestoreCheckpointConfig,
    partitioner: PjitPartitioner,
    output_dir: str,
    inference_evaluator_cls: Any = None,
    training_evaluator_cls: Any = None,
    summarize_config_fn: Any = None,
    train_state_initializer_cls: Any = None,
    train_eval_get_dataset_fn: Any = None,
    fallback_init_rng: Any = None,
    use_orbax: bool = True,
    method: Method = vanilla(),  # noqa: B008 (a frozen record)
) -> dict[int, dict[str, Any]]:
    """Computes the metrics of SeqIO tasks at one checkpoint or all of a run.

    Args:
      model: the base model.
      dataset_cfg: the task or mixture, and its split.
      restore_checkpoint_cfg: which checkpoints; with the mode "all" those done before are left out.
      partitioner: mesh and rules.
      output_dir: gets `config.gin`, `model-info.txt`, `inference_eval/` and `eval.<task>.ckpt`.
      inference_evaluator_cls: `seqio.Evaluator`.
      summarize_config_fn, use_orbax: accepted, without effect.
      method: the one that trained the checkpoints; T5X has no such argument.
      Others: must be left out.

    Returns:
      Metrics by step and task.

    Raises:
      UserError: something in the configuration or the files does not fit.
    """
    del summarize_config_fn, use_orbax
    names.not_offered(
        "eval.evaluate",
        training_evaluator_cls=training_evaluator_cls,
        train_state_initializer_cls=train_state_initializer_cls,
        train_eval_get_dataset_fn=train_eval_get_dataset_fn,
        fallback_init_rng=fallback_init_rng,
    )
    # Here, not above: SeqIO and TensorFlow take seconds to import, and need not be installed for
    # other jobs.
    from ckl_jax.t5x_api import seqio_data, seqio_evaluation

    restored = RestoredModel(model, method, partitioner, restore_checkpoint_cfg)
    restored.partitioner.check_batch_size(dataset_cfg.batch_size)
    seqio_data.check_vocabulary(dataset_cfg, restored.model)
    # Made once for all checkpoints: SeqIO computes the targets and keeps the examples in memory.
    evaluation = seqio_evaluation.InferenceEvaluation(
        dataset_cfg,
        inference_evaluator_cls,
        restored.model,
        restored.partitioner.put_whole,
        str(Path(output_dir) / "inference_eval"),
    )
    if not evaluation.evaluator.eval_tasks:
        seqio_data.check_split(dataset_cfg)
        raise UserError(f"Task {dataset_cfg.task_name!r} has no metric_fns: nothing to evaluate.")
    done = Done(output_dir, (dataset_cfg.task_name,))
    results = {}
    with restored.partitioner.on_mesh():
        for path in restored.paths:
            if restore_checkpoint_cfg.mode == "all" and done.has(path):
                continue
            step, _ = position(path)
            params = restored.load(path)
            restored.describe(output_dir)
            evaluation(params, step, True)
            del params  # two checkpoints need not fit at once
            results[step] = evaluation.scores
            done.add(path)
            print(f"{path}: {_shown(results[step])}", flush=True)
    return results


# The name by which gin files refer to it.
evaluate.__module__ = "t5x.eval"


def _shown(metrics: dict[str, Any]) -> str:
    parts = []
    for task, values in metrics.items():
        numbers = (f"{name} {getattr(value, 'value', value)}" for name, value in values.items())
        parts.append(f"{task}: {', '.join(numbers)}")
    return "; ".join(parts) or "no metrics"
