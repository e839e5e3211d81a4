"""`t5x.examples.t5.network`: the T5 of this project has T5X's fields, signatures and paths."""

from ckl_jax.models.t5 import T5Config, Transformer

__all__ = ["T5Config", "Transformer"]
