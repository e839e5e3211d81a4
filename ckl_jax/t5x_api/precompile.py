"""`t5x precompile` of gin files that are written for T5X."""

from typing import Any

from ckl_jax.jobs import configs
from ckl_jax.jobs import precompile as native
from ckl_jax.methods.method import Method, vanilla
from ckl_jax.t5x_api import utils
from ckl_jax.t5x_api.train import native_arguments

_USED = (
    "model",
    "checkpoint_cfg",
    "partitioner",
    "trainer_cls",
    "total_steps",
    "relative_steps",
    "random_seed",
)


def precompile(
    *,
    train_dataset_cfg: utils.DatasetConfig,
    model_dir: str = "unused",
    method: Method = vanilla(),  # noqa: B008 (a frozen record)
    clip_norm: float | None = None,
    compile: bool = True,
    **arguments: Any,
) -> dict[str, Any]:
    """Compiles the step that `t5x_api.train.train` would run; see `jobs.precompile.precompile`.

    Rows are taken to be whole ones: what packing adds, two arrays of segment numbers, is left out.
    """
    given = native_arguments(**{name: arguments.get(name) for name in _USED})
    cfg = train_dataset_cfg
    stand_in = configs.DatasetConfig(cfg.task_name, cfg.task_feature_lengths, cfg.batch_size)
    return native.precompile(
        compile, arguments.get("tpu_slice"), train_dataset_cfg=stand_in, model_dir=model_dir,
        method=method, clip_norm=clip_norm, **given,
    )  # fmt: skip
