"""`t5x.partitioning`: T5X's arguments over this project's one mesh."""

import dataclasses
from typing import Any

from ckl_jax.parallel import mesh
from ckl_jax.parallel.mesh import standard_logical_axis_rules
from ckl_jax.t5x_api import names

__all__ = ["ModelBasedPjitPartitioner", "PjitPartitioner", "standard_logical_axis_rules"]


@dataclasses.dataclass(frozen=True)
class PjitPartitioner(mesh.Partitioner):
    """`parallel.mesh.Partitioner`; on CPU and GPU `num_partitions` counts too, as on TPU.

    Attributes:
      params_on_devices: must be true.
      backend: must be None: the platform is chosen by JAX_PLATFORMS.
    """

    params_on_devices: bool = True
    backend: Any = None

    def __post_init__(self):
        # T5X's run files bind it to its default, whatever else is bound.
        others = (
            self.model_parallel_submesh,
            self.mesh_shape,
            self.ici_mesh_shape,
            self.dcn_mesh_shape,
        )
        if self.num_partitions == 1 and any(other is not None for other in others):
            # The record is frozen; the native partitioner refuses num_partitions beside another
            # shape of the mesh.
            object.__setattr__(self, "num_partitions", None)
        names.not_offered(
            f"partitioning.{type(self).__name__}",
            backend=self.backend,
            params_on_devices=None if self.params_on_devices else "False",
        )
        super().__post_init__()


@dataclasses.dataclass(frozen=True)
class ModelBasedPjitPartitioner(PjitPartitioner):
    """The same partitioner under another name, so that gin binds the two separately."""
