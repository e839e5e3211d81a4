"""Modular: a second, smaller encoder whose output is projected up and added (CKL §4.1).

Differs from vanilla training in two seams: a side network with no taps (it reads the tokens), and
the trainable leaves (the decoder and the side network).
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from ckl_jax import checks
from ckl_jax.errors import UserError
from ckl_jax.methods.method import Method
from ckl_jax.models.layers import Embed, over_last_axis, param
from ckl_jax.models.side import Side


class UpProjection(nn.Module):
    """An affine map to `features`; weights and bias uniform in +-1/sqrt(fan in)."""

    features: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        # PyTorch's `nn.Linear` default, as in the released code.
        bound = 1.0 / np.sqrt(x.shape[-1])

        def init(key: jax.Array, shape: tuple[int, ...], dtype=jnp.float32) -> jax.Array:
            return jax.random.uniform(key, shape, dtype, -bound, bound)

        kernel = param("kernel", init, (x.shape[-1], self.features), ("mlp", "embed"))
        bias = param("bias", init, (self.features,), ("embed",))
        y = jnp.dot(x, kernel.astype(x.dtype))
        return y + over_last_axis(bias, y)


class SecondEncoder(nn.Module):
    """W E2(tokens) + b: an encoder with an embedding of its own, [B, S] -> [B, S, D].

    `config` is that of `for_second_encoder` of a model with an encoder.
    """

    config: Any
    features: int

    @nn.compact
    def __call__(
        self,
        tokens: jax.Array,
        hidden: Mapping[int, jax.Array],
        bias: jax.Array,
        deterministic: bool,
    ) -> jax.Array:
        # Modular reads the tokens themselves, not the trunk's states.
        del hidden
        cfg = self.config
        # An embedding of its own: CKL's 36M additional parameters include 32128 x 512 (Table 3).
        x = Embed(cfg.vocab_size, cfg.emb_dim, cfg.dtype, name="token_embedder")(tokens)
        x, _ = cfg.encoder("encoder")(x, bias, deterministic)
        return UpProjection(self.features, name="projection")(x)


@dataclasses.dataclass(frozen=True)
class ModularSide(Side):
    """The side record of one second encoder; its dimensions are those of T5 v1.1 small."""

    emb_dim: int = 512
    num_heads: int = 6
    head_dim: int = 64
    mlp_dim: int = 1024
    num_layers: int = 8
    mlp_activations: tuple[str, ...] = ("gelu", "linear")

    def __post_init__(self) -> None:
        super().__post_init__()
        for size in ("emb_dim", "num_heads", "head_dim", "mlp_dim", "num_layers"):
            checks.require_size(**{f"MODULAR_{size.upper()}": getattr(self, size)})

    def check(self, config: Any) -> None:
        if not config.has_encoder:
            raise UserError(
                "Modular adds a second encoder to the one that a decoder reads, and "
                f"{type(config).__name__} has no encoder; choose lora or k_adapter."
            )

    def build(self, config: Any) -> nn.Module:
        # The trunk's vocabulary, dtype and dropout; the sizes are the second encoder's.
        small = config.for_second_encoder(
            self.num_layers,
            emb_dim=self.emb_dim,
            num_heads=self.num_heads,
            head_dim=self.head_dim,
            mlp_dim=self.mlp_dim,
            mlp_activations=self.mlp_activations,
        )
        return SecondEncoder(small, config.emb_dim)


def modular(
    scale: float = 0.05,
    emb_dim: int = 512,
    num_heads: int = 6,
    head_dim: int = 64,
    mlp_dim: int = 1024,
    num_layers: int = 8,
    mlp_activations: tuple[str, ...] = ("gelu", "linear"),
    phase: int = 0,
    legacy_bypass_side: bool = False,
) -> Method:
    """Modular with a second encoder of T5 v1.1 small's shape, randomly initialised.

    Args:
      scale: factor of the projected output; 0.05 in CKL.
      emb_dim, num_heads, head_dim, mlp_dim, num_layers, mlp_activations: the second encoder.
      phase: 0 for the first update; n adds an encoder to n earlier ones, which are frozen.
      legacy_bypass_side: decode without the second encoder, as the released evaluation did.
    """
    checks.require_int(0, **{"modular.phase": phase})
    sides = tuple(
        ModularSide(
            f"modular_{i}",
            scale,
            (),
            emb_dim=emb_dim,
            num_heads=num_heads,
            head_dim=head_dim,
            mlp_dim=mlp_dim,
            num_layers=num_layers,
            mlp_activations=tuple(mlp_activations),
        )
        # Each update adds an encoder with its embedding and projection and freezes the earlier
        # ones: only so do the 438M and 809M of CKL's Table 3 come out.
        for i in range(phase + 1)
    )
    return Method(
        name="modular",
        side=sides,
        trainable=("^decoder/", f"^modular_{phase}/"),
        legacy_bypass_side=legacy_bypass_side,
    )
