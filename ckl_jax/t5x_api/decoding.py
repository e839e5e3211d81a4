"""`t5x.decoding`: T5X's names for the searches of `models.decoding`."""

from typing import Any

import jax

from ckl_jax.models import decoding
from ckl_jax.models.decoding import Decoded


def beam_search(
    *inputs: Any,
    num_decodes: int = 4,
    alpha: float = 0.6,
    decode_rng: jax.Array | None = None,
    **sizes: Any,
) -> Decoded:
    """Beam search by T5X's rule.

    Args:
      *inputs, **sizes: see `models.decoding.beam_search`.
      num_decodes: beams; all are returned.
      alpha: of the brevity penalty.
      decode_rng: not used.
    """
    del decode_rng
    return decoding.beam_search(
        *inputs, beam_size=num_decodes, num_return=num_decodes, rule="t5x", alpha=alpha, **sizes
    )


def temperature_sample(
    *inputs: Any,
    num_decodes: int = 1,
    temperature: float = 1.0,
    topk: int = 1,
    topp: float = 0.0,
    decode_rng: jax.Array | None = None,
    **sizes: Any,
) -> Decoded:
    """Sampling with T5X's defaults: as `topk` is 1, it is greedy unless set otherwise.

    Args:
      *inputs, temperature, topk, topp, **sizes: see `models.decoding.temperature_sample`.
      num_decodes: samples of each example.
      decode_rng: None is a fixed key.
    """
    rng = jax.random.key(0) if decode_rng is None else decode_rng
    return decoding.temperature_sample(
        *inputs,
        num_return=num_decodes,
        temperature=temperature,
        topk=topk,
        topp=topp,
        rng=rng,
        **sizes,
    )
