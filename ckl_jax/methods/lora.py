"""LoRA: low-rank additions to chosen projections (Hu et al. 2021, arXiv:2106.09685; CKL §4.1).

With DoRA (Liu et al. 2024, arXiv:2402.09353) the sum's direction is learned so, and its magnitude,
one number for each output, by itself.

Differs from vanilla training in two seams: the projection factory (query and value of every
attention get `scale * x A B`) and the trainable leaves (the decoder and the new factors).
"""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from ckl_jax import checks
from ckl_jax.methods.method import Method, embedding
from ckl_jax.models.layers import Dense, DenseFactory, param, scaled
from ckl_jax.models.products import linear
from ckl_jax.trees.paths import flatten, unflatten

_MAGNITUDE = "lora_magnitude"
_MAX_RANK = 2**16  # no kernel is so wide


class LowRank(nn.Module):
    """`scale x A B`: A [in, R] starts normal with deviation 0.02, B [R, out] at zero."""

    features: int
    rank: int
    scale: float
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
        # (x A) B, [..., R] in between: cheaper than forming A B [in, out], and to scale.
        low = linear(x.astype(self.dtype), a.astype(self.dtype))
        return linear(jnp.asarray(self.scale, self.dtype) * low, b.astype(self.dtype))


class LoraDense(Dense):
    """A plain projection plus `scale` times its low-rank entries `lora_0`, `lora_1`, ...

    With `dora` its outputs are divided by the norms of the sum of both over the inputs, through
    which no gradient flows (section 4.3 there), and multiplied by the magnitudes.
    """

    rank: int = 4
    scale: float = 0.25
    entries: int = 1
    dora: bool = False

    def product(self, x: jax.Array) -> jax.Array:
        # Shares its scope with the plain layer: the kernel keeps its path, and base checkpoints
        # restore.
        y = super().product(x)
        for i in range(self.entries):
            # Entries of earlier updates add up: W x + s B_0 A_0 x + s B_1 A_1 x.
            sizes = self.features, self.rank, self.scale
            y = y + LowRank(*sizes, self.kernel_axes, self.dtype, name=f"lora_{i}")(x)
        if not self.dora:
            return y
        magnitude = param(_MAGNITUDE, nn.initializers.ones, (self.features,), self.kernel_axes[1:])
        adapted = _adapted(flatten(self.variables["params"]), "", self.scale)
        norm = jax.lax.stop_gradient(jnp.linalg.norm(adapted, axis=0))
        return scaled(y, magnitude / norm)


def _adapted(flat: Mapping[str, jax.Array], prefix: str, scale: float) -> jax.Array:
    """The kernel [in, out] or [in, L, out] below a path, plus its low-rank entries."""
    kernel = jnp.asarray(flat[f"{prefix}kernel"])
    for path in (p for p in flat if p.startswith(f"{prefix}lora_") and p.endswith("/a")):
        # Scanned leaves have the layer axis 1 in both factors: a [in, L, R], b [R, L, out].
        product = "ir,ro->io" if kernel.ndim == 2 else "ilr,rlo->ilo"
        kernel = kernel + scale * jnp.einsum(product, flat[path], flat[path[:-1] + "b"])
    return kernel


@dataclasses.dataclass(frozen=True)
class LoraFactory(DenseFactory):
    """Gives the projections named in `targets` their low-rank entries."""

    rank: int = 4
    scale: float = 0.25
    targets: tuple[str, ...] = ("query", "value")
    entries: int = 1
    dora: bool = False

    def __post_init__(self) -> None:
        checks.require_size(**{"lora.entries": self.entries})
        checks.require_int(1, _MAX_RANK, **{"lora.rank": self.rank})
        checks.require_number("a finite number", -math.inf, **{"lora.scale": self.scale})
        checks.require_names(**{"lora.targets": self.targets})
        checks.require_bool(**{"lora.dora": self.dora})
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
            dora=self.dora,
            **kw,
        )


def lora(
    rank: int = 4,
    scale: float = 0.25,
    targets: tuple[str, ...] = ("query", "value"),
    trunk: tuple[str, ...] = ("^decoder/",),
    phase: int = 0,
    legacy_train_embedding: bool = False,
    dora: bool = False,
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
      dora: learn the magnitudes of the adapted kernels' columns by themselves, as DoRA does; they
        start as those of the model that training starts from.
    """
    checks.require_int(0, **{"lora.phase": phase})
    factory = LoraFactory(rank, scale, targets, phase + 1, dora)
    # Of the entries the newest trains; "/lora_<phase>/" is inside of paths, hence without "^".
    trainable = (*trunk, *embedding(legacy_train_embedding), f"/lora_{phase}/")
    if not dora:
        return Method(name="lora", dense=factory, trainable=trainable)

    def magnitudes(flat: Mapping[str, jax.Array], fresh: Collection[str]) -> dict[str, jax.Array]:
        prefixes = {p: p.removesuffix(_MAGNITUDE) for p in fresh if p.endswith(_MAGNITUDE)}
        # [out], or [out, L] of stacked layers, as biases are.
        return {p: jnp.linalg.norm(_adapted(flat, q, scale), axis=0).T for p, q in prefixes.items()}

    trainable = (*trainable, f"/{_MAGNITUDE}$")
    return Method(name="dora", dense=factory, trainable=trainable, init_params=magnitudes)


def merge_lora(params: Mapping[str, Any], scale: float) -> dict[str, Any]:
    """Folds every low-rank entry into its kernel: kernel + scale * A B, DoRA's with its magnitude.

    Works on looped ([in, out]) and scanned ([in, L, out]) kernels. The result fits the plain
    model, and is the independent check of the adapted one.
    """
    flat = flatten(params)
    out = {path: x for path, x in flat.items() if "/lora_" not in path}
    for prefix in sorted({p[: p.index("/lora_") + 1] for p in flat if "/lora_" in p}):
        adapted = _adapted(flat, prefix, scale)
        if (magnitude := flat.get(f"{prefix}{_MAGNITUDE}")) is not None:
            factor = magnitude.T / jnp.linalg.norm(adapted, axis=0)
            adapted = adapted * factor[None]
        out[f"{prefix}kernel"] = adapted
    return unflatten(out)
