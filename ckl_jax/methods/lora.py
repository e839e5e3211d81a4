"""LoRA: low-rank additions to chosen projections (Hu et al. 2021, arXiv:2106.09685; CKL §4.1).

Differs from vanilla training in two seams: the projection factory (query and value of every
attention get `scale * x A B`) and the trainable leaves (the decoder and the new factors).
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from ckl_jax import checks
from ckl_jax.methods.method import Method, embedding
from ckl_jax.models.layers import Dense, DenseFactory, param
from ckl_jax.trees.paths import flatten, unflatten


class LowRank(nn.Module):
    """`x A B`: A [in, R] starts normal with deviation 0.02, B [R, out] at zero."""

    features: int
    rank: int
    kernel_axes: tuple[str, str]
    dtype: Any

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        # A is normal and B zero, so that the adapted model starts as the base model.
        a = param(
            "a",
            nn.initializers.normal(0.02),
            (x.shape[-1], self.rank),
            (self.kernel_axes[0], "lora_rank"),
        )
        b = param(
            "b",
            nn.initializers.zeros,
            (self.rank, self.features),
            ("lora_rank", self.kernel_axes[1]),
        )
        # (x A) B, [..., R] in between: cheaper than forming A B [in, out].
        return jnp.dot(jnp.dot(x.astype(self.dtype), a.astype(self.dtype)), b.astype(self.dtype))


class LoraDense(Dense):
    """A plain projection plus `scale` times its low-rank entries `lora_0`, `lora_1`, ..."""

    rank: int = 4
    scale: float = 0.25
    entries: int = 1

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        # Shares its scope with the plain layer: the kernel keeps its path, and base checkpoints
        # restore.
        y = super().__call__(x)
        for i in range(self.entries):
            # Entries of earlier updates add up: W x + s B_0 A_0 x + s B_1 A_1 x.
            low_rank = LowRank(
                self.features, self.rank, self.kernel_axes, self.dtype, name=f"lora_{i}"
            )
            y = y + jnp.asarray(self.scale, y.dtype) * low_rank(x)
        return y


@dataclasses.dataclass(frozen=True)
class LoraFactory(DenseFactory):
    """Gives the projections named in `targets` their low-rank entries."""

    rank: int = 4
    scale: float = 0.25
    targets: tuple[str, ...] = ("query", "value")
    entries: int = 1

    def __post_init__(self) -> None:
        checks.require_size(**{"lora.rank": self.rank, "lora.entries": self.entries})
        checks.require_number("a finite number", -math.inf, **{"lora.scale": self.scale})
        checks.require_names(**{"lora.targets": self.targets})
        # gin gives a list, and the factory must be hashable.
        object.__setattr__(self, "targets", tuple(self.targets))

    def check_names(self, names: Sequence[str]) -> None:
        checks.require_names(names, **{"lora.targets": self.targets})

    def settings(self) -> dict[str, Any]:
        # Rank, targets and entries show in the parameters' shapes and paths; the scale does not.
        return {"name": "lora", "scale": self.scale}

    def __call__(
        self, features: int, kernel_axes: tuple[str, str], *, name: str, **kw
    ) -> nn.Module:
        if name not in self.targets:
            return super().__call__(features, kernel_axes, name=name, **kw)
        return LoraDense(
            features,
            kernel_axes,
            name=name,
            rank=self.rank,
            scale=self.scale,
            entries=self.entries,
            **kw,
        )


def lora(
    rank: int = 4,
    scale: float = 0.25,
    targets: tuple[str, ...] = ("query", "value"),
    trunk: tuple[str, ...] = ("^decoder/",),
    phase: int = 0,
    legacy_train_embedding: bool = False,
) -> Method:
    """LoRA as CKL and TemporalWiki ran it.

    Args:
      rank: r.
      scale: factor of the low-rank path. CKL's code multiplies by r/alpha = 4/16, the inverse of
        the LoRA paper's alpha/r = 4; give 4.0 for that.
      targets: projections to adapt, in all attentions of encoder and decoder: only so do the
        parameter counts of CKL's Table 3 come out.
      trunk: what else trains. CKL trains T5's decoder; `()` trains the factors alone, as
        TemporalWiki says of GPT-2, which is nothing but a decoder.
      phase: 0 for the first update; n adds an entry to n earlier ones. Earlier entries are
        frozen in the encoder, and train on in the decoder as part of it.
      legacy_train_embedding: train the token embedding (and so a tied output) too, which the
        released GPT-2 code did by resizing the vocabulary after it had frozen the model.

    Returns:
      The method.
    """
    checks.require_int(0, **{"lora.phase": phase})
    factory = LoraFactory(rank, scale, targets, phase + 1)
    # Of the entries the newest trains; "/lora_<phase>/" is inside of paths, hence without "^".
    trainable = (*trunk, *embedding(legacy_train_embedding), f"/lora_{phase}/")
    return Method(name="lora", dense=factory, trainable=trainable)


def merge_lora(params: Mapping[str, Any], scale: float) -> dict[str, Any]:
    """Folds every low-rank entry into its kernel: kernel + scale * A B.

    Works on looped ([in, out]) and scanned ([in, L, out]) kernels. The result fits the plain
    model, and is the independent check of the adapted one.
    """
    flat = flatten(params)
    out = {path: x for path, x in flat.items() if "/lora_" not in path}
    for path, a in flat.items():
        # Visits each entry once, at its factor `a`.
        if "/lora_" not in path or not path.endswith("/a"):
            continue
        kernel = path[: path.index("/lora_")] + "/kernel"
        b = flat[path[:-1] + "b"]
        # Scanned leaves have the layer axis 1 in both factors: a [in, L, R], b [R, L, out].
        product = "ir,ro->io" if a.ndim == 2 else "ilr,rlo->ilo"
        out[kernel] = out[kernel] + scale * jnp.einsum(product, a, b)
    return unflatten(out)
