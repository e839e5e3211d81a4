"""GPT-2 itself: paths and axes, side networks in the cache, prompts of any padding."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ckl_jax.errors import UserError
from ckl_jax.methods.k_adapter import k_adapter
from ckl_jax.methods.modular import modular
from ckl_jax.models.gpt2 import GPT2Config
from ckl_jax.trees.paths import flatten, loop_to_scan
from tests.helpers import (
    GPT2_METHODS,
    TINY_GPT2,
    logits_of,
    model_of,
    param_shapes,
    random_batch,
    random_params,
)


def test_paths_are_in_t5x_s_manner():
    paths = set(flatten(param_shapes(TINY_GPT2)))
    assert {
        "token_embedder/embedding",
        "decoder/position_embedder/pos_embedding",
        "decoder/layers_0/pre_self_attention_layer_norm/scale",
        "decoder/layers_0/self_attention/query/kernel",
        "decoder/layers_0/self_attention/value/bias",
        "decoder/layers_1/mlp/wi/kernel",
        "decoder/layers_1/mlp/wo/bias",
        "decoder/decoder_norm/bias",
    } <= paths
    assert len(paths) == 2 + 2 * 16 + 2


def test_logical_axes_of_one_layer():
    scanned = dataclasses.replace(TINY_GPT2, scan_layers=True)
    for config, layer in ((TINY_GPT2, "decoder/layers_0"), (scanned, "decoder/decoder")):
        variables = jax.eval_shape(model_of(config).init, jax.random.key(0))
        axes = {p: a.names for p, a in flatten(variables["params_axes"]).items()}
        stacked = ("layers",) if config is scanned else ()
        assert axes[f"{layer}/mlp/wi/kernel_axes"] == ("embed", *stacked, "mlp")
        assert axes[f"{layer}/self_attention/query/bias_axes"] == ("joined_kv", *stacked)
        table = axes["decoder/position_embedder/pos_embedding_axes"]
        assert table == ("abspos_buckets", "embed")


def test_adapters_are_causal_and_run_in_training_and_after_it():
    config = k_adapter(taps=(0, 2), trunk=()).extend(TINY_GPT2)
    params, batch = random_params(config), random_batch(config)
    released = dataclasses.replace(config, legacy_bypass_side=True)
    with_them, without = (logits_of(c, params, batch) for c in (config, released))
    assert np.abs(with_them - without).min(axis=-1).max() > 1e-3
    base = {name: x for name, x in params.items() if not name.startswith("k_adapter")}
    np.testing.assert_allclose(without, logits_of(TINY_GPT2, base, batch), rtol=1e-6)
    changed = {**batch, "decoder_input_tokens": batch["decoder_input_tokens"].copy()}
    changed["decoder_input_tokens"][:, -1] += 1
    later = logits_of(config, params, changed)
    np.testing.assert_allclose(later[:, :-1], with_them[:, :-1], atol=1e-5)
    gradient = jax.jit(jax.grad(lambda p: model_of(config).loss_fn(p, batch)[0]))(params)
    assert all(np.abs(x).max() > 0 for x in jax.tree.leaves(gradient["k_adapter_0"]))


@pytest.mark.parametrize(
    ("beams", "scan"),
    [
        (3, True),
        pytest.param(3, False, marks=pytest.mark.slow),
        pytest.param(1, False, marks=pytest.mark.slow),
    ],
)
def test_adapters_write_what_they_were_trained_to_write(beams, scan):
    """The score of a search through the cache is the likelihood under teacher forcing."""
    config = dataclasses.replace(GPT2_METHODS["k_adapter_k2"].extend(TINY_GPT2), scan_layers=scan)
    params = random_params(dataclasses.replace(config, scan_layers=False))
    params = loop_to_scan(params) if scan else params
    model = model_of(config)
    lengths = np.array([3, 6, 1])
    prompts = np.random.default_rng(0).integers(1, 64, (3, 6)).astype(np.int32)

    def search(params):
        return model.predict(
            params, prompts, 4, jnp.array(lengths), beam_size=beams, length_penalty=0.0
        )

    found = jax.jit(search)(params)
    rows, weights = np.zeros((3, 10), np.int32), np.zeros((3, 9), np.float32)
    for i, n in enumerate(lengths):
        answer = np.asarray(found.tokens[i, 0])
        answer = answer[: 1 + np.argmax(answer == 1)] if (answer == 1).any() else answer
        rows[i, : n + len(answer)] = np.concatenate([prompts[i, :n], answer])
        weights[i, n - 1 : n - 1 + len(answer)] = 1
    batch = {"decoder_input_tokens": rows[:, :-1], "decoder_target_tokens": rows[:, 1:]}
    scores = jax.jit(model.score_batch)(params, {**batch, "decoder_loss_weights": weights})
    np.testing.assert_allclose(scores, found.scores[:, 0], rtol=1e-4)


def test_what_does_not_fit_is_refused():
    with pytest.raises(UserError, match="GPT2Config has no encoder; choose lora or k_adapter"):
        modular().extend(TINY_GPT2)
    with pytest.raises(UserError, match=r"taps \[11\] .* lie outside the decoder"):
        k_adapter(trunk=()).extend(TINY_GPT2)
    with pytest.raises(UserError, match="legacy_attend_to_padding is for an encoder"):
        k_adapter(taps=(1,), legacy_attend_to_padding=True).extend(TINY_GPT2)
    with pytest.raises(UserError, match="GPT2Config.num_heads is 0"):
        GPT2Config(num_heads=0)
    model, params = model_of(TINY_GPT2), random_params(TINY_GPT2)
    with pytest.raises(UserError, match="of 17 tokens exceed the model's 16 positions"):
        model.predict(params, np.ones((1, 9), np.int32), 9, beam_size=1)
