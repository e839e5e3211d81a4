"""K-Adapter: a side stack fed by chosen hidden states (Wang et al. 2021; CKL §4.1, reference 8.6).

Differs from vanilla training in two seams: a side network, and the trainable leaves (T5's decoder
and the side network; on GPT-2, TemporalWiki §4, the side network).
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax

from ckl_jax import checks
from ckl_jax.errors import UserError
from ckl_jax.methods.method import Method, embedding
from ckl_jax.models.layers import DenseFactory
from ckl_jax.models.side import Side


class KAdapterStack(nn.Module):
    """h <- Block_i(H_{tap i} + h) over the taps, then a norm: [B, S, D].

    Each block is a full layer of the tapped stack: of T5's encoder, or of GPT-2, there with a
    cache of its own for decoding.
    """

    config: Any
    taps: tuple[int, ...]
    attend_to_padding: bool

    @nn.compact
    def __call__(
        self,
        tokens: jax.Array,
        hidden: Mapping[int, jax.Array],
        bias: jax.Array | None,
        deterministic: bool,
        decode: bool = False,
    ) -> jax.Array:
        del tokens
        cfg = self.config
        if self.attend_to_padding:
            # The released code passed no mask to the blocks, and the bias holds masks only (T5's
            # positions are added in `side_layer`).
            bias = None
        # [B, S, D] from the first addition on; h of Block 0's input is 0.
        h = 0.0
        # h <- Block_i(H_{tap i} + h): no residual around the block, no projection down or up.
        for i, tap in enumerate(self.taps):
            h = cfg.side_layer(i, hidden[tap] + h, bias, deterministic, decode)
        return cfg.norm("norm")(h)


@dataclasses.dataclass(frozen=True)
class KAdapterSide(Side):
    """The side record of one K-Adapter stack."""

    attend_to_padding: bool = False

    def check(self, config: Any) -> None:
        super().check(config)
        if self.attend_to_padding and config.tapped[0] != "encoder":
            raise UserError(
                "legacy_attend_to_padding is for an encoder: a decoder's mask also hides what "
                "comes later; leave it at False."
            )

    def build(self, config: Any) -> nn.Module:
        # The blocks are plain layers: no LoRA in them, no side networks of their own, and looped,
        # because each reads another tap.
        plain = dataclasses.replace(config, dense=DenseFactory(), side=(), scan_layers=False)
        return KAdapterStack(plain, self.taps, self.attend_to_padding)


def k_adapter(
    taps: tuple[int, ...] = (1, 11),
    scale: float = 0.1,
    trunk: tuple[str, ...] = ("^decoder/",),
    phase: int = 0,
    legacy_attend_to_padding: bool = False,
    legacy_bypass_side: bool = False,
    legacy_train_embedding: bool = False,
) -> Method:
    """K-Adapter as CKL and TemporalWiki ran it: k = len(taps) blocks.

    Args:
      taps: hidden states that feed the blocks: (1, 11) for k=2 and (1, 11, 23) for k=3 on a
        24-layer encoder or on GPT-2 Large; j is the output of the first j layers.
      scale: factor of the stack's normalised output; 0.1 in both papers.
      trunk: what else trains. CKL trains T5's decoder; `()` trains the blocks alone, as
        TemporalWiki says of GPT-2, which is nothing but a decoder.
      phase: 0 for the first update; n adds a stack to n earlier ones, which are frozen.
      legacy_attend_to_padding: let the blocks attend to padding, as the released code did.
      legacy_bypass_side: on T5, decode without the stack, as the released evaluation did; on
        GPT-2, never call it, as the released code did.
      legacy_train_embedding: train the token embedding (and so a tied output) too, which the
        released GPT-2 code did by resizing the vocabulary after it had frozen the model.
    """
    checks.require_ints(0, **{"k_adapter.taps": taps})
    checks.require_int(0, **{"k_adapter.phase": phase})
    sides = tuple(
        KAdapterSide(f"k_adapter_{i}", scale, tuple(taps), legacy_attend_to_padding)
        # CKL Table 3, second update: 427M trainable parameters of 788M, which needs a new stack
        # beside the first, and the first one frozen.
        for i in range(phase + 1)
    )
    return Method(
        # CKL's tables name k=2 and k=3 apart.
        name=f"k_adapter_k{len(taps)}",
        side=sides,
        trainable=(*trunk, *embedding(legacy_train_embedding), f"^k_adapter_{phase}/"),
        legacy_bypass_side=legacy_bypass_side,
    )
