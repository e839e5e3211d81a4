"""`t5x precompile` of gin files that are written for T5X."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from ckl_jax.methods.method import Method, vanilla
from ckl_jax.t5x_api import utils
from ckl_jax.t5x_api.train import native_arguments
from ckl_jax.t5x_api.trainer import Trainer
from ckl_jax.train import configs
from ckl_jax.train import precompile as native

_USED = (
    "model",
    "checkpoint_cfg",
    "partitioner",
    "trainer_cls",
    "total_steps",
    "relative_steps",
    "random_seed",
)


def _any_rate(step: Any) -> jax.Array:
    # A function of the step, so that it is traced like a schedule.
    return 1e-3 + 0.0 * jnp.asarray(step, jnp.float32)


def precompile(
    *,
    train_dataset_cfg: utils.DatasetConfig,
    model_dir: str = "unused",
    method: Method = vanilla(),  # noqa: B008 (a frozen record)
    clip_norm: float | None = None,
    compile: bool = True,
    **arguments: Any,
) -> dict[str, Any]:
    """Compiles the step that `t5x_api.train.train` would run; see `train.precompile.precompile`.

    The arguments are those of either: T5X's own precompile has no trainer and no number of steps.
    Rows are taken to be whole ones: what packing adds, two arrays of segment numbers, is left out.
    """
    stands_in = {
        "checkpoint_cfg": utils.CheckpointConfig(),
        # A rate for files without a trainer: any will do, because it does not change the program.
        "trainer_cls": functools.partial(Trainer, learning_rate_fn=_any_rate),
        "total_steps": 1,
    }
    given = native_arguments(**{name: arguments.get(name) or stands_in.get(name) for name in _USED})
    cfg = train_dataset_cfg
    # The native record: it makes batches of the lengths without SeqIO.
    stand_in = configs.DatasetConfig(
        mixture_or_task_name=cfg.task_name,
        task_feature_lengths=cfg.task_feature_lengths,
        batch_size=cfg.batch_size,
    )
    return native.precompile(
        compile,
        arguments.get("target"),
        train_dataset_cfg=stand_in,
        model_dir=model_dir,
        method=method,
        clip_norm=clip_norm,
        **given,
    )
