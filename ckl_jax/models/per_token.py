"""Logits of a few positions at a time: those of a large vocabulary never exist whole."""

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from ckl_jax.models.layers import Array, constrain

Head = Callable[[nn.Module, Array], Array]


@dataclasses.dataclass(frozen=True)
class PerToken:
    """A function of logits, applied to a few positions at a time: [B, T, V] never exists whole.

    The backward pass computes the logits again, or needs none where the head is frozen.
    """

    # (logits [B, t, V] float32, tokens [B, t]) -> a tree of [B, t]
    function: Callable[[Array, Array], Any]
    tokens: Array  # [B, T] integers
    size: int  # t, positions at a time
    # That no parameter of the head trains, and of the function's tuple only the first part is
    # minimised: its gradient by the states is taken in the forward pass.
    frozen_head: bool = False

    def of(self, module: nn.Module, head: Head, x: Array) -> Any:
        """A tree of [B, T].

        Args:
          module: the caller, which may have made no module of the head's before.
          head: (module, x [B, t, D]) -> logits.
          x: [B, T, D].
        """
        rows, length = self.tokens.shape
        count = -(-length // self.size)
        size = -(-length // count)  # as even as can be

        def cut(a: Array) -> Array:
            a = jnp.pad(a, ((0, 0), (0, count * size - length), *((0, 0),) * (a.ndim - 2)))
            return jnp.swapaxes(a.reshape(rows, count, size, *a.shape[2:]), 0, 1)

        def part(module: nn.Module, carry: tuple, given: tuple[Array, Array]) -> tuple[tuple, Any]:
            states, tokens = given
            return carry, self.function(head(module, states), tokens)

        def with_slopes(
            module: nn.Module, carry: tuple, given: tuple[Array, Array]
        ) -> tuple[tuple, Any]:
            states, tokens = given

            def of_states(module: nn.Module, states: Array) -> tuple[Array, list[Array]]:
                first, *others = self.function(head(module, states), tokens)
                return first, others

            value, back, others = nn.vjp(
                of_states, module, states, has_aux=True, vjp_variables=False, multi_scope=True
            )
            slopes = back(jnp.ones_like(value))[1].astype(jnp.float32)  # [B, t, D]
            value, slopes, others = jax.lax.stop_gradient((value, slopes, others))
            # 0, with the slopes as its gradient.
            nothing = (states - jax.lax.stop_gradient(states)).astype(jnp.float32)
            return carry, (value + jnp.sum(nothing * slopes, axis=-1), *others)

        scanned = nn.scan(
            with_slopes if self.frozen_head else nn.remat(part, prevent_cse=False),
            variable_broadcast="params",
            split_rngs={"params": False},
            in_axes=0,
            out_axes=0,
        )
        _, parts = scanned(module, (), (cut(x), cut(self.tokens)))
        # [count, B, t] -> [B, T]
        return jax.tree.map(
            lambda a: jnp.swapaxes(a, 0, 1).reshape(rows, count * size)[:, :length], parts
        )


def logits_of(module: nn.Module, head: Head, x: Array, per_token: PerToken | None) -> Any:
    """Logits [B, T, V] float32 of states x [B, T, D], or what `per_token` makes of them."""

    def whole(module: nn.Module, x: Array) -> Array:
        return constrain(head(module, x).astype(jnp.float32), ("batch", "length", "vocab"))

    return whole(module, x) if per_token is None else per_token.of(module, whole, x)
