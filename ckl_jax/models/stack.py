"""A stack of layers: looped or scanned, rematerialised or not; shared by every architecture."""

import contextlib
import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.linen import partitioning
from jax.dtypes import canonicalize_dtype

from ckl_jax import checks
from ckl_jax.errors import UserError
from ckl_jax.models import attention, layers
from ckl_jax.models.dropout import Dropout
from ckl_jax.models.side import Side
from ckl_jax.parallel.topology import platform
from ckl_jax.trees.paths import loop_to_scan

Array = jax.Array

REMAT_POLICIES = ("none", "minimal", "full")


def validate(config: Any, sizes: tuple[str, ...]) -> None:
    """Validates the fields that all configurations share, and makes them hashable.

    Args:
      config: a frozen dataclass, being made; gin gives lists where it has tuples.
      sizes: names of its fields that are whole numbers of at least 1.

    Raises:
      UserError: a field's value is no such thing.
    """
    name = type(config).__name__
    # The dataclass is frozen, hence `object.__setattr__`.
    object.__setattr__(config, "side", tuple(config.side))
    object.__setattr__(config, "dtype", _dtype(config.dtype))
    for size in sizes:
        checks.require_size(**{f"{name}.{size}": getattr(config, size)})
    if config.dropout_rate is None:
        raise UserError("DROPOUT_RATE is None; give a number in [0, 1).")
    checks.require_number("a number in [0, 1)", 0.0, 1.0, DROPOUT_RATE=config.dropout_rate)
    checks.require_bool(SCAN_LAYERS=config.scan_layers)
    checks.require_choice(attention.IMPLEMENTATIONS, ATTENTION_IMPL=config.attention_impl)
    if config.attention_impl == "splash" and config.not_for_splash:
        raise UserError(
            f"ATTENTION_IMPL = 'splash' is not possible: {config.not_for_splash}; give 'auto'."
        )
    checks.require_choice(REMAT_POLICIES, **{f"{name}.remat_policy": config.remat_policy})


def _dtype(dtype: Any) -> Any:
    if isinstance(dtype, str) and dtype == "auto":
        return jnp.dtype(jnp.float32 if platform() == "cpu" else jnp.bfloat16)
    with contextlib.suppress(TypeError):
        # Without jax_enable_x64 a float64 would silently be a float32.
        resolved = dtype is not None and jnp.dtype(dtype)
        if (
            resolved
            and jnp.issubdtype(resolved, jnp.floating)
            and resolved == canonicalize_dtype(resolved)
        ):
            return resolved
    known = "'float32', 'bfloat16', 'float16' or 'auto'"
    raise UserError(f"ACTIVATION_DTYPE is {dtype!r}; give {known}.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StackConfig:
    """Hyper-parameters of one stack with learned positions. Names are T5X's where it has them.

    Attributes:
      vocab_size: V.
      dtype: of the activations; parameters stay float32. "auto" is bfloat16 on GPUs and TPUs,
        float32 on CPUs.
      emb_dim, num_heads, head_dim, mlp_dim: D, N, H, F.
      max_positions: the longest row, special tokens included, or prompt and answer.
      dropout_rate: of embeddings, attention weights and residual branches.
      layer_norm_epsilon: of all norms.
      float32_attention_logits: attention logits in float32 whatever `dtype` is.
      attention_impl: see `attention.attend`.
      scan_layers: stack the layers and scan over them (axis 1 of every parameter).
      remat_policy: "none", "minimal" (keep projections) or "full": what backward recomputes.
      dense: the projection factory (first seam of a method).
      side: side networks over the stack's hidden states (second seam of a method).
      legacy_bypass_side: never call the side networks.
      has_encoder: whether a decoder reads an encoder's output.
      output_is_embedding: whether the output is the token embedding alone, so that both can be
        given more rows.
    """

    has_encoder: ClassVar[bool] = False
    output_is_embedding: ClassVar[bool] = True

    vocab_size: int = 50257
    dtype: Any = jnp.float32
    emb_dim: int = 768
    num_heads: int = 12
    num_layers: int = 12
    head_dim: int = 64
    mlp_dim: int = 3072
    max_positions: int = 1024
    dropout_rate: float = 0.1
    layer_norm_epsilon: float = 1e-5
    float32_attention_logits: bool = False
    attention_impl: str = "auto"
    scan_layers: bool = False
    remat_policy: str = "none"
    dense: layers.DenseFactory = layers.DenseFactory()
    side: tuple[Side, ...] = ()
    legacy_bypass_side: bool = False

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "emb_dim", "num_heads", "num_layers", "head_dim", "mlp_dim")
        validate(self, (*sizes, "max_positions"))
        name = f"{type(self).__name__}.layer_norm_epsilon"
        checks.require_positive(**{name: self.layer_norm_epsilon})

    @property
    def not_for_splash(self) -> str | None:
        """Why splash attention cannot compute this model's; None if it can."""
        return None

    @property
    def projections(self) -> tuple[str, ...]:
        """Names of the projections that `dense` makes, for methods that choose some."""
        return (*layers.ATTENTION, "wi", "wo")

    def norm(self, name: str) -> layers.LayerNorm:
        return layers.LayerNorm(self.layer_norm_epsilon, self.dtype, name=name)

    def dropout(self, x: Array, deterministic: bool) -> Array:
        """Drops from [..., T, D]."""
        return Dropout(self.dropout_rate)(x, deterministic)


def stacked(params: Any, config: Any) -> dict[str, Any]:
    """A tree of layers apart as a model with `scan_layers` has it."""
    return loop_to_scan(params, before=int(getattr(config, "first", None) is not None))


def constrain_embed(x: Array) -> Array:
    return layers.constrain(x, ("batch", "length", "embed"))


def run_layers(
    config: Any,
    layer_cls: Any,
    count: int,
    name: str,
    x: Array,
    *,
    args: tuple = (),
    each: tuple[Array | np.ndarray, ...] = (),
    taps: tuple = (),
    first: Any = None,
) -> tuple[Array, dict[int, Array]]:
    """Applies `count` layers in the calling module, by loop or by scan.

    Args:
      config: says how (`scan_layers`, `remat_policy`).
      layer_cls: a module made as `layer_cls(config)`; its last static arguments are booleans.
      count: number of layers.
      name: T5X's name for the stacked layers, "encoder" or "decoder".
      x: [B, T, D].
      args: further arguments of every layer.
      each: [L, ...] arguments of which layer i gets the i-th part, before those of `args`. Layers
        that are looped may branch on numbers of NumPy.
      taps: which hidden states to keep; state j is the output of the first j layers.
      first: the configuration of layer 0, where it differs; it comes before those that are scanned.

    Returns:
      The last output, and {j: hidden state j}, each [B, T, D].
    """
    # jax.checkpoint traces every argument that is not static, and a module cannot branch on a
    # traced boolean. Argument 0 is the module itself and 1 is x.
    static = [i for i, a in enumerate((*each, *args), start=2) if isinstance(a, bool)]
    if not config.scan_layers:
        static += [i for i, a in enumerate(each, start=2) if isinstance(a, np.ndarray)]
    layer_cls = _remat(layer_cls, config.remat_policy, config.scan_layers, tuple(static))
    hidden = {0: x} if 0 in taps else {}
    # Loop: each layer has parameters of its own, under `layers_0`, `layers_1`, ...
    before = int(first is not None) if config.scan_layers else count
    for i in range(before):
        own = first if i == 0 and first is not None else config
        x = layer_cls(own, name=f"layers_{i}")(x, *(a[i] for a in each), *args)
        if i + 1 in taps:
            hidden[i + 1] = x
    if before < count:
        # States are collected only if asked for: all of them take [L, B, T, D].
        collect, each = any(j > before for j in taps), tuple(jnp.asarray(a)[before:] for a in each)
        scanned = _scanned(config, layer_cls, count - before, name, collect, len(each), args)
        x, states = scanned(x, *each, *(a for a in args if not isinstance(a, bool)))
        # states [L, B, T, D]: the first entry is the output of the first layer that is scanned.
        hidden.update({j: states[j - 1 - before] for j in taps if j > before})
    return x, hidden


def _scanned(
    config: Any, layer_cls: Any, count: int, name: str, collect: bool, each: int, args: tuple
) -> Any:
    """One traced layer over `count` of them, whose parameters are stacked to [in, L, out]: compile
    time no longer grows with the depth.

    Args:
      collect: whether it also returns the output of every layer.
      each: how many of its arguments have a part for each layer.
      args: the further arguments of every layer.
    """
    # Booleans cannot go through `scan` as arguments; they are closed over by the body.
    booleans = [a for a in args if isinstance(a, bool)]
    cls = _scan_body(layer_cls, collect, tuple(booleans))
    scanned = partitioning.scan_with_axes(
        cls,
        # axis 1 for parameters as in T5X; caches are stacked in front
        variable_axes={"params": 1, "cache": 0},
        # Each layer gets keys of its own; otherwise all layers would start equal and drop alike.
        split_rngs={"params": True, "dropout": True},
        in_axes=(0,) * each + (nn.broadcast,) * (len(args) - len(booleans)),
        length=count,
        # The logical name of the stacked axis, which `params_axes` records for the partitioner.
        axis_name="layers",
    )
    return scanned(config, name=name)


def _scan_body(layer_cls: Any, collect: bool, booleans: tuple[bool, ...]) -> Any:
    """A subclass of `layer_cls` with `scan`'s signature; parameter names stay the layer's own."""

    # A subclass, not a wrapper: a wrapping module would add a component to every parameter path.
    class Body(layer_cls):
        @nn.compact
        def __call__(self, x: Array, *arrays):
            y = super().__call__(x, *arrays, *booleans)
            return y, (y if collect else None)

    return Body


def _remat(layer_cls: Any, policy: str, scans: bool, static_argnums: tuple[int, ...]) -> Any:
    if policy == "none":
        return layer_cls
    # "minimal" keeps the outputs of the projections and recomputes attention, norms and
    # activations.
    saved = None if policy == "full" else jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    # Within a scan XLA cannot merge the backward pass's layer with the forward pass's.
    return nn.remat(layer_cls, policy=saved, prevent_cse=not scans, static_argnums=static_argnums)
