"""ModernBERT in linen: an encoder that fills masked tokens, of the parts of today's decoders.

Warner et al. 2024, arXiv:2412.13663. Norms come before each branch and have no bias, positions are
rotary, most layers see a window to both sides, feed-forwards are gated. The embedding has a norm
already, so the first layer has none before its attention; it is not stacked with the others.
"""

import dataclasses
from typing import Any, ClassVar

from ckl_jax.models import bert, decoder, encoder


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModernBertConfig(encoder.EncoderConfig):
    """Hyper-parameters beside those of every decoder; the defaults are those of ModernBERT-base."""

    head_bias: ClassVar[bool] = False
    output_is_embedding: ClassVar[bool] = False  # there is a bias for each token

    family: str = "modernbert"
    vocab_size: int = 50368
    mlp_dim: int = 1152
    num_layers: int = 22
    max_positions: int = 8192
    layer_norm_epsilon: float = 1e-5
    norm_kind: str = "layer"
    norm_bias: bool = False
    embed_norm: bool = True
    layer_types: tuple[str, ...] = ("full", "sliding", "sliding")
    ropes: Any = (("full", (("rope_theta", 160000.0),)), ("sliding", (("rope_theta", 10000.0),)))
    window: int | None = 65
    mlp_activations: tuple[str, ...] = ("gelu_exact", "linear")
    logits_via_embedding: bool = True

    @property
    def first(self) -> decoder.DecoderConfig:
        return dataclasses.replace(self, norm_place="mlp")


class Transformer(bert.Transformer):
    """The whole masked language model; arguments and results are those of BERT's."""

    encoder_cls: ClassVar[Any] = encoder.Encoder

    config: ModernBertConfig
