"""K-Adapter: a side stack fed by chosen hidden states (Wang et al. 2021; CKL §4.1, reference 8.6).

Differs from vanilla training in two seams: a side network, and the trainable leaves (the decoder
and the side network).
"""

import dataclasses
from collections.abc import Mapping

import flax.linen as nn
import jax

from ckl_jax import checks
from ckl_jax.methods.method import Method
from ckl_jax.models.layers import DenseFactory
from ckl_jax.models.side import Side
from ckl_jax.models.t5 import EncoderLayer, T5Config


class KAdapterStack(nn.Module):
    """h <- Block_i(H_{tap i} + h) over the taps, then a norm: [B, S, D].

    Each block is a full encoder layer; only the first knows relative positions.
    """

    config: T5Config
    taps: tuple[int, ...]
    attend_to_padding: bool

    @nn.compact
    def __call__(
        self,
        tokens: jax.Array,
        hidden: Mapping[int, jax.Array],
        bias: jax.Array,
        deterministic: bool,
    ) -> jax.Array:
        cfg = self.config
        if self.attend_to_padding:
            bias = bias * 0
        length = tokens.shape[1]
        h = 0.0
        for i, tap in enumerate(self.taps):
            positions = cfg.relpos_bias()(length, length, True) if i == 0 else 0
            layer = EncoderLayer(cfg, name=f"layers_{i}")
            h = layer(hidden[tap] + h, bias + positions, deterministic)
        return cfg.norm("norm")(h)


@dataclasses.dataclass(frozen=True)
class KAdapterSide(Side):
    """The side record of one K-Adapter stack."""

    attend_to_padding: bool = False

    def build(self, config: T5Config) -> nn.Module:
        plain = dataclasses.replace(config, dense=DenseFactory(), side=(), scan_layers=False)
        return KAdapterStack(plain, self.taps, self.attend_to_padding)


def k_adapter(
    taps: tuple[int, ...] = (1, 11),
    scale: float = 0.1,
    phase: int = 0,
    legacy_attend_to_padding: bool = False,
    legacy_bypass_side: bool = False,
) -> Method:
    """K-Adapter as CKL ran it: k = len(taps) blocks.

    Args:
      taps: hidden states that feed the blocks: (1, 11) for k=2 and (1, 11, 23) for k=3 on a
        24-layer encoder; j is the output of the first j layers.
      scale: factor of the stack's normalised output; 0.1 in CKL.
      phase: 0 for the first update; n adds a stack to n earlier ones, which are frozen.
      legacy_attend_to_padding: let the blocks attend to padding, as the released code did.
      legacy_bypass_side: decode without the stack, as the released evaluation did.

    Returns:
      The method, named after k.
    """
    checks.require_ints(0, **{"k_adapter.taps": taps})
    checks.require_int(0, **{"k_adapter.phase": phase})
    sides = tuple(
        KAdapterSide(f"k_adapter_{i}", scale, tuple(taps), legacy_attend_to_padding)
        for i in range(phase + 1)
    )
    return Method(
        name=f"k_adapter_k{len(taps)}",
        side=sides,
        trainable=("^decoder/", f"^k_adapter_{phase}/"),
        legacy_bypass_side=legacy_bypass_side,
    )
