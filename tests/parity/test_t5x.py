"""Our T5 has T5X's parameter tree and gives T5X's logits."""

import jax
import numpy as np
import pytest

from ckl_jax.models.t5 import T5Config, Transformer
from ckl_jax.trees import paths
from tests.parity import golden_t5

SIZES = dict(
    vocab_size=64, emb_dim=16, num_heads=2, head_dim=8, mlp_dim=24, num_encoder_layers=2,
    num_decoder_layers=2, dropout_rate=0.0,
)  # fmt: skip
CONFIGS = {
    "relu_tied": T5Config(**SIZES, mlp_activations=("relu",), logits_via_embedding=True),
    "gelu_untied": T5Config(**SIZES, mlp_activations=("gelu", "linear")),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_tree_and_the_logits_are_those_of_t5x(name):
    weights, rest = golden_t5.load(f"t5x_network_{name}.npz")
    batch = golden_t5.batch_of(rest)
    made = jax.eval_shape(
        lambda: Transformer(CONFIGS[name]).init(jax.random.key(0), *batch, enable_dropout=False)
    )["params"]
    assert {k: v.shape for k, v in paths.flatten(made).items()} == {
        k: v.shape for k, v in weights.items()
    }
    logits = golden_t5.teacher_forced(CONFIGS[name], paths.unflatten(weights), *batch)
    np.testing.assert_allclose(logits, rest["logits"], atol=1e-5, rtol=0)
