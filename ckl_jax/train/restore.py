"""A model with the parameters of a checkpoint; used by `t5x eval` and `t5x infer`."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from ckl_jax.checkpoints.restore import absolute, find_checkpoint, read_json_item, step_of
from ckl_jax.files import os_errors
from ckl_jax.methods.method import Method
from ckl_jax.models.base import BaseTransformerModel
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.train import artifacts, compile_cache, setup
from ckl_jax.train.configs import RestoreCheckpointConfig
from ckl_jax.train.vocabulary_check import check_same_vocabulary


class RestoredModel:
    """A model with its method, on a mesh, that loads checkpoints.

    Raises:
      UserError: the model or the method is none, or the vocabulary or the mesh does not fit.
    """

    def __init__(
        self,
        model: BaseTransformerModel,
        method: Method,
        partitioner: Partitioner | None,
        restore: RestoreCheckpointConfig,
    ):
        compile_cache.enable()
        setup.check_model(model, method)
        self.partitioner = partitioner or Partitioner()
        self.model, self.method = model.with_method(method), method.name
        setup.check_vocabulary(self.model)
        self.paths, self._assignment = restore.checkpoints(), restore.assignment
        for path in self.paths:
            check_same_vocabulary(path, self.model.output_vocabulary)
        self.shapes = setup.param_shapes(model, method, self.partitioner)
        # `initial_params` casts to the dtype of the shapes; bfloat16 halves the memory of an
        # evaluation.
        if restore.dtype is not None:
            self.shapes.params = _as(restore.dtype, self.shapes.params)

    def load(self, path: str) -> dict[str, Any]:
        """All parameters of a checkpoint, on the devices.

        Raises:
          UserError: they are not those of the model; both lists are in the message.
        """
        return setup.initial_params(
            self.model,
            self.shapes,
            # Leaves are drawn with `fallback_to_scratch` alone.
            jax.random.key(0),
            path,
            # An evaluation with fresh adapters would be one of another model.
            complete=True,
            method=self.method,
            **self._assignment,
        )

    def describe(self, folder: str | Path) -> None:
        """Writes `config.gin` and `model-info.txt`."""
        with os_errors(folder):
            Path(folder).mkdir(parents=True, exist_ok=True)
        artifacts.write_model_info(folder, self.shapes)
        artifacts.write_config(folder)


def _as(dtype: str, shapes: Any) -> Any:
    """The shapes of parameters with another dtype."""

    def one(x: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        # Integer leaves, such as counters, keep their type.
        floats = jnp.issubdtype(x.dtype, jnp.floating)
        return jax.ShapeDtypeStruct(x.shape, dtype if floats else x.dtype, sharding=x.sharding)

    return jax.tree.map(one, shapes)


def position(path: str) -> tuple[int, int]:
    """(step, epoch) of a checkpoint; 0 where it is not recorded."""
    dataset = read_json_item(absolute(path), "dataset")
    step = step_of(absolute(path))
    # T5X's and imported checkpoints have a step in their name, and nothing about data.
    return (dataset.get("next_step", 0) if step is None else step), dataset.get("epoch", 0)


def steps_before(path: str | None) -> int:
    """The steps of all updates that a checkpoint has had; 0 for one trained from nothing, or None.

    Raises:
      UserError: there is no such checkpoint, or one that it was updated from is gone.
    """
    if path is None or phase_from(path) == 0:
        return 0
    checkpoint = find_checkpoint(path)
    # Recursively: each update's checkpoint names the one that it started from.
    base = setup.base_of(checkpoint)
    return position(str(checkpoint))[0] + steps_before(base)


def phase_from(path: str | None) -> int:
    """Number of updates of a checkpoint: 0 for one trained from scratch, or for None."""
    if path is None:
        return 0
    metadata = read_json_item(find_checkpoint(path), "metadata")
    # "initial" may have a base checkpoint, and is not an update.
    updated = metadata.get("base_checkpoint") and metadata.get("method") != "initial"
    return int(metadata.get("phase", bool(updated)))  # earlier versions did not write it
