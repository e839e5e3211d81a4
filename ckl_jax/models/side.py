"""Side networks: modules that read a stack's hidden states and add to its output.

The stack is the encoder of an encoder-decoder, and the decoder where there is nothing else.

A `Side` is a small static record inside a model's configuration: its name (the path component
of its parameters), which hidden states it taps, the scale of its output, and how to build the
module. It is the second seam of a method (K-Adapter and Modular fill it).
"""

import abc
import dataclasses
import math

import flax.linen as nn

from ckl_jax import checks
from ckl_jax.errors import UserError


@dataclasses.dataclass(frozen=True)
class Side(abc.ABC):
    """One side network."""

    name: str  # module name; its parameters live under this path component
    scale: float  # factor of its output before it is added to the stack's
    # hidden states that it reads; j is the output of the first j layers, 0 the embedding
    taps: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        checks.require_number("a finite number", -math.inf, **{f"{self.name}.scale": self.scale})
        if self.taps:
            checks.require_ints(0, **{f"{self.name}.taps": self.taps})
        # gin gives lists; a tuple makes the record hashable, as a static argument of jit must be.
        object.__setattr__(self, "taps", tuple(self.taps))

    def check(self, config) -> None:
        """Raises `UserError` if this side network does not fit a trunk with that configuration."""
        stack, depth = config.tapped
        # State `depth` is the output of the last layer, before the final norm.
        outside = [t for t in self.taps if not 0 <= t <= depth]
        if outside:
            raise UserError(
                f"The taps {outside} of {self.name!r} lie outside the {stack}, whose hidden "
                f"states are 0 to {depth}."
            )

    @abc.abstractmethod
    def build(self, config) -> nn.Module:
        """Returns the module for a trunk with configuration `config`.

        It is called as `(tokens [B, S], hidden {tap: [B, S, D]}, bias, deterministic)` and
        returns [B, S, D]. On a decoder there is a fifth argument, `decode`: whether it sees the
        next positions only and keeps what it must of earlier ones in the `cache` collection.
        """
