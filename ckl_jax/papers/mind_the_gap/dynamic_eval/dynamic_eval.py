"""`t5x dynamic_eval`: scores dated text in order while the model trains on what was scored.

Mind the Gap (Lazaridou et al. 2021, section 6): parameters go on from document to document; every
token is scored before it is learned from. Without a mask ("none") the same code is the static
evaluation.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from ckl_jax import checks
from ckl_jax.checkpoints.restore import is_remote
from ckl_jax.data.tasks.dated_task import DatedTask
from ckl_jax.errors import UserError
from ckl_jax.files import os_errors
from ckl_jax.methods.method import Method, vanilla
from ckl_jax.methods.subsets import Mask
from ckl_jax.models.base import BaseTransformerModel
from ckl_jax.papers.mind_the_gap.dynamic_eval.gradient_statistics import GradientStatistics
from ckl_jax.papers.mind_the_gap.dynamic_eval.job import DynamicRun
from ckl_jax.papers.mind_the_gap.dynamic_eval.past_text import PastText
from ckl_jax.papers.mind_the_gap.dynamic_eval.runner import StreamConfig, UpdateConfig
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.parallel.processes import FolderLock
from ckl_jax.train.configs import RestoreCheckpointConfig
from ckl_jax.train.restore import RestoredModel
from ckl_jax.train.resume_check import check_same_run, digest_inputs
from ckl_jax.train.vocabulary_check import check_task_vocabulary


def output_folder(folder: str, mask: Mask) -> str:
    """`folder`/dynamic_eval/<mask>, from which gin files derive EVAL_OUTPUT_DIR."""
    return str(Path(folder) / "dynamic_eval" / (mask if isinstance(mask, str) else "patterns"))


def mesh_of(mesh_shape: Mapping[str, int] | Sequence[int] | None = None) -> Partitioner:
    """A mesh of that shape, or of the first device only, since a stream is one row."""
    if mesh_shape is None:
        return Partitioner(devices=jax.local_devices()[:1])
    return Partitioner(mesh_shape=mesh_shape)


def dynamic_eval(
    *,
    model: BaseTransformerModel,
    restore_checkpoint_cfg: RestoreCheckpointConfig,
    mixture_or_task_name: str,
    output_dir: str,
    mask: Mask = "all",
    include_output_bias: bool = True,
    updates: UpdateConfig = UpdateConfig(),  # noqa: B008 (a frozen record)
    stream: StreamConfig = StreamConfig(),  # noqa: B008
    statistics: GradientStatistics | None = None,
    past: PastText | None = None,
    keep_snapshots: bool = False,
    checkpoint_period: int = 1000,
    method: Method = vanilla(),  # noqa: B008
    partitioner: Partitioner | None = None,
    cache_dirs: Sequence[str] = (),
    progress: str = "auto",
) -> dict[str, Any]:
    """Scores a dated task; resumes an interrupted run; returns what `summary.json` says.

    Args:
      model: the base model; the method is put into it here.
      restore_checkpoint_cfg: the parameters to begin with.
      mixture_or_task_name: a dated task's folder, or its name in `cache_dirs`.
      output_dir: gets `dump/` (word losses, see `data.tasks.word_losses`),
        `checkpoint_<documents>`, `forgetting/`, `summary.json`, `config.gin`, `model-info.txt`.
      mask: what learns: "all", "bias", "embedding", "none" or patterns, see `methods.subsets`.
      include_output_bias: whether "embedding" has the output bias, where there is one.
      statistics: of gradients on training text, for `krause.rms_decay`.
      past: dated text of the past that is scored at every month's end, to see what is forgotten.
      keep_snapshots: keep the checkpoint of every month's end, not only the newest.
      checkpoint_period: documents between checkpoints; the ends of months have one too.
      method: the one that trained the checkpoint.
      partitioner: mesh and rules; None is one device.
      cache_dirs: folders of dated tasks.
      progress: "auto", "rich", "plain" or "silent".

    Raises:
      UserError: something in the configuration or the files does not fit, or the loss diverged:
        the documents before that are in the dump.
    """
    checks.require_text(EVAL_OUTPUT_DIR=output_dir)
    checks.require_size(CHECKPOINT_PERIOD=checkpoint_period)
    checks.require_bool(KEEP_SNAPSHOTS=keep_snapshots)
    if is_remote(output_dir) or jax.process_count() > 1:
        raise UserError(
            "Dynamic evaluation is one process that writes to a local folder; run it on one host "
            "and copy EVAL_OUTPUT_DIR afterwards."
        )
    if restore_checkpoint_cfg.mode == "all":
        raise UserError("CHECKPOINT_MODE is 'all'; dynamic evaluation begins with one checkpoint.")
    partitioner = partitioner or mesh_of()
    if partitioner.batch_parts > 1:
        raise UserError(
            "A stream is one row, which cannot be split over devices; give MESH_SHAPE = "
            "{'data': 1, 'model': -1}, or None for one device."
        )
    if mask != "none":
        # Learning is sequential: a second row would be scored before the first was learned from.
        stream = dataclasses.replace(stream, batch_size=1)
    restored = RestoredModel(model, method, partitioner, restore_checkpoint_cfg)
    task = DatedTask.find(mixture_or_task_name, cache_dirs)
    check_task_vocabulary(task.task, mixture_or_task_name, restored.model.output_vocabulary)
    past = past or PastText()
    read = [task.task, *(DatedTask.find(t, past.cache_dirs).task for t in past.tasks)]
    if statistics and statistics.task:
        read.append(statistics.open())
    inputs = digest_inputs(read, restored.model.output_vocabulary, restored.paths[0])
    check_same_run(output_dir, method.name, setting="EVAL_OUTPUT_DIR", inputs=inputs)
    with restored.partitioner.on_mesh(), FolderLock() as lock:
        run = DynamicRun(
            restored=restored,
            task=task,
            output_dir=output_dir,
            mask=mask,
            include_output_bias=include_output_bias,
            updates=updates,
            stream=stream,
            statistics=statistics,
            past=past,
            keep_snapshots=keep_snapshots,
            checkpoint_period=checkpoint_period,
            progress=progress,
            inputs_digest=inputs,
        )
        with os_errors(output_dir):
            Path(output_dir).mkdir(parents=True, exist_ok=True)
        lock.acquire(output_dir, "written", "EVAL_OUTPUT_DIR")
        return run()
