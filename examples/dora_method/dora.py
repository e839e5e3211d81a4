"""DoRA: weight-decomposed low-rank adaptation (Liu et al. 2024, arXiv:2402.09353, section 4).

A projection's kernel W becomes magnitude * (W + scale A B) / ||W + scale A B||, the norm over the
input axis; magnitude, A and B train. It starts at the base model: B is zero, and the magnitude is
||W|| of the checkpoint that training starts from.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from ckl_jax import checks
from ckl_jax.methods.method import Method
from ckl_jax.models.layers import Dense, DenseFactory, over_last_axis, param


class DoraDense(Dense):
    """A projection [..., in] -> [..., features] whose kernel has a magnitude and a direction."""

    rank: int = 4
    scale: float = 1.0

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        rows, columns = self.kernel_axes
        width = x.shape[-1]
        kernel = param("kernel", self.kernel_init, (width, self.features), self.kernel_axes)
        a = param("dora_a", nn.initializers.normal(0.02), (width, self.rank), (rows, "lora_rank"))
        b = param(
            "dora_b", nn.initializers.zeros, (self.rank, self.features), ("lora_rank", columns)
        )
        magnitude = param("dora_magnitude", nn.initializers.ones, (self.features,), (columns,))
        direction = kernel + self.scale * (a @ b)
        # The norm gets no gradient (the paper's section 4.3), which saves memory.
        norm = jax.lax.stop_gradient(jnp.linalg.norm(direction, axis=0))
        adapted = direction * (magnitude / norm)[None, :]
        y = x.astype(self.dtype) @ adapted.astype(self.dtype)
        if not self.use_bias:
            return y
        bias = param("bias", nn.initializers.zeros, (self.features,), (columns,))
        return y + over_last_axis(bias.astype(self.dtype), y)


@dataclasses.dataclass(frozen=True)
class DoraFactory(DenseFactory):
    """Decomposes the projections named in `targets`."""

    rank: int
    scale: float
    targets: tuple[str, ...]

    def check_names(self, names: Sequence[str]) -> None:
        checks.require_names(names, **{"dora.targets": self.targets})

    def __call__(self, features, kernel_axes, *, name: str, **kw) -> nn.Module:
        if name not in self.targets:
            return super().__call__(features, kernel_axes, name=name, **kw)
        return DoraDense(features, kernel_axes, name=name, rank=self.rank, scale=self.scale, **kw)


def magnitudes(params: Mapping[str, jax.Array], fresh: Collection[str]) -> dict[str, jax.Array]:
    """The norms of the restored kernels, for the magnitudes that no checkpoint has."""
    found = {}
    for path in fresh:
        folder, _, leaf = path.rpartition("/")
        if leaf == "dora_magnitude":
            # Of stacked layers a kernel is [in, L, out] and a magnitude [out, L].
            found[path] = jnp.linalg.norm(params[f"{folder}/kernel"], axis=0).T
    return found


def dora(
    rank: int = 4,
    scale: float = 1.0,
    targets: tuple[str, ...] = ("query", "value"),
    trunk: tuple[str, ...] = ("^decoder/",),
) -> Method:
    """DoRA on projections of every attention.

    Args:
      rank: of A [in, rank] and B [rank, out].
      scale: factor of A B.
      targets: names of projections.
      trunk: patterns of what else trains, as in `methods.lora`; () is nothing.
    """
    checks.require_int(**{"dora.rank": rank})
    return Method(
        name="dora",
        dense=DoraFactory(rank, scale, tuple(targets)),
        trainable=(*trunk, "/dora_"),
        init_params=magnitudes,
    )
