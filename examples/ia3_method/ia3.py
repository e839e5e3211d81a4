"""(IA)^3: a few learned factors of activations (Liu et al. 2022, arXiv:2205.05638, section 3.3).

Keys, values and the hidden layer of each feed-forward are multiplied by a vector that starts at
one; nothing else trains. Here each vector scales a projection's outputs, or the inputs of `wo`,
which are the hidden layer.
"""

import dataclasses
from collections.abc import Sequence

import flax.linen as nn
import jax

from ckl_jax import checks
from ckl_jax.methods.method import Method
from ckl_jax.models.layers import Dense, DenseFactory, over_last_axis, param


class ScaledDense(Dense):
    """A projection [..., in] -> [..., features] with a factor for each input or output."""

    of_inputs: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        size = x.shape[-1] if self.of_inputs else self.features
        axis = self.kernel_axes[0 if self.of_inputs else 1]
        factor = param("ia3", nn.initializers.ones, (size,), (axis,)).astype(self.dtype)
        if self.of_inputs:
            return super().__call__(x * over_last_axis(factor, x))
        y = super().__call__(x)
        return y * over_last_axis(factor, y)


@dataclasses.dataclass(frozen=True)
class Ia3Factory(DenseFactory):
    """Gives the projections named in `outputs` and `inputs` their factors."""

    outputs: tuple[str, ...]
    inputs: tuple[str, ...]

    def check_names(self, names: Sequence[str]) -> None:
        checks.require_names(names, **{"ia3.outputs": self.outputs})
        checks.require_names(names, **{"ia3.inputs": self.inputs})

    def __call__(self, features, kernel_axes, *, name: str, **kw) -> nn.Module:
        if name not in (*self.outputs, *self.inputs):
            return super().__call__(features, kernel_axes, name=name, **kw)
        return ScaledDense(features, kernel_axes, name=name, of_inputs=name in self.inputs, **kw)


def ia3(outputs: tuple[str, ...] = ("key", "value"), inputs: tuple[str, ...] = ("wo",)) -> Method:
    """(IA)^3 on every attention and feed-forward.

    Args:
      outputs: projections whose outputs have factors.
      inputs: projections whose inputs have.
    """
    return Method(name="ia3", dense=Ia3Factory(tuple(outputs), tuple(inputs)), trainable=("/ia3$",))
