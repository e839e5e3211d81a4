"""GPT-2: one more setting of the decoder of today's families.

Radford et al. 2019, "Language Models are Unsupervised Multitask Learners". Norms come before each
block and once after the last, positions are learned, projections have biases, the activation is
the tanh form of GELU (`gelu_new`), and the output is tied to the embedding. Query, key and value
are projections of their own, so that methods choose them as on T5.
"""

import dataclasses

from ckl_jax.models import decoder, layers


@dataclasses.dataclass(frozen=True, kw_only=True)
class GPT2Config(decoder.DecoderConfig):
    """Hyper-parameters; the defaults are GPT-2 small's.

    `vocab_size` is 50257, or 50262 with the five tokens that TemporalWiki adds. With
    `legacy_bypass_side` the side networks are never called, neither in training nor afterwards,
    which is what the released GPT-2 code did.
    """

    family: str = "gpt2"
    vocab_size: int = 50257
    layer_norm_epsilon: float = 1e-5
    dropout_rate: float = 0.1
    norm_kind: str = "layer"
    positions: str = "learned"
    attention_bias: tuple[str, ...] = layers.ATTENTION
    mlp_bias: bool = True
    mlp_activations: tuple[str, ...] = ("gelu",)
    logits_via_embedding: bool = True


class Transformer(decoder.Transformer):
    """The whole language model, side networks of the configuration included."""

    config: GPT2Config
