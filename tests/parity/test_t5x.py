"""Our T5 has T5X's parameter tree and gives T5X's logits."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from ckl_jax.models.t5 import T5Config, Transformer
from ckl_jax.trees import paths
from tests.parity import golden_t5

SIZES = dict(
    vocab_size=64,
    emb_dim=16,
    num_heads=2,
    head_dim=8,
    mlp_dim=24,
    num_encoder_layers=2,
    num_decoder_layers=2,
    dropout_rate=0.0,
)
CONFIGS = {
    "relu_tied": T5Config(**SIZES, mlp_activations=("relu",), logits_via_embedding=True),
    "gelu_untied": T5Config(**SIZES, mlp_activations=("gelu", "linear")),
}
# Each network, number of beams and layout once; all of them in the slow part.
FAST = (("relu_tied", 4, False), ("gelu_untied", 1, True))


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
    # Logits of up to 3.5 in float32: 1.2e-5 was seen with jax 0.12 on one processor.
    np.testing.assert_allclose(logits, rest["logits"], atol=2e-5, rtol=0)


@pytest.mark.parametrize(
    ("name", "beams", "scan"),
    [
        pytest.param(*case, marks=[] if case in FAST else [pytest.mark.slow])
        for case in itertools.product(CONFIGS, [1, 4], [False, True])
    ],
)
def test_decodes_are_those_of_t5x(name, beams, scan):
    weights, rest = golden_t5.load(f"t5x_network_{name}.npz")
    params = paths.unflatten(weights)
    config = dataclasses.replace(CONFIGS[name], scan_layers=scan)
    params = paths.loop_to_scan(params) if scan else params
    expected = rest[f"beams_{beams}/tokens"]
    inputs = golden_t5.batch_of(rest)[0]
    found = golden_t5.decode(config, params, inputs, beams, expected.shape[-1], rule="t5x")
    if beams == 1:
        np.testing.assert_array_equal(found.tokens, expected)
        return
    real = rest[f"beams_{beams}/scores"] > -1e6
    np.testing.assert_array_equal(np.asarray(found.tokens)[real], expected[real])
    np.testing.assert_allclose(
        np.asarray(found.scores)[real], rest[f"beams_{beams}/scores"][real], atol=1e-5
    )
