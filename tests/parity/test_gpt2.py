"""Our GPT-2 computes and writes what Hugging Face's did; `test_hf_gpt2.py` asks it live."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ckl_jax.checkpoints.hf_names import config_from_hf, params_from_hf, params_to_hf
from ckl_jax.models.decoder_only import DecoderOnlyModel
from ckl_jax.models.gpt2 import Transformer

LENGTHS = jnp.array([3, 7, 5])
SETTINGS = dict(model_type="gpt2", vocab_size=64, n_embd=16, n_head=2, n_layer=2, n_positions=24)


class Vocabulary:
    eos_id = 63


@functools.cache
def golden():
    with np.load(Path(__file__).parent / "golden" / "hf_gpt2.npz") as file:
        found = dict(file)
    names = [name for name in found if name.startswith("state/")]
    return {n.removeprefix("state/"): found[n].astype(np.float32) for n in names}, found


@functools.cache
def ours(scan):
    config = config_from_hf(SETTINGS, scan_layers=scan)
    params = params_from_hf(golden()[0], config)
    return DecoderOnlyModel(Transformer(config), Vocabulary()), params


def right():
    """The prompts, padded on the right."""
    left, mask = golden()[1]["left"], golden()[1]["mask"]
    rows = [row[seen > 0] for row, seen in zip(left, mask, strict=True)]
    return np.stack([np.pad(row, (0, 7 - len(row))) for row in rows]).astype(np.int32)


@pytest.mark.parametrize("scan", [False, True])
def test_logits_equal_transformers(scan):
    model, params = ours(scan)
    found, rows = golden()[1], right()
    logits = model.logits(params, {"decoder_input_tokens": rows, "decoder_target_tokens": rows})
    for i, n in enumerate(LENGTHS.tolist()):
        np.testing.assert_allclose(logits[i, :n], found["logits"][i, 7 - n :], atol=2e-5, rtol=0)


@pytest.mark.parametrize("beams", [1, 3])
def test_what_is_written_equals_transformers(beams):
    model, params = ours(False)
    decode = functools.partial(
        model.predict, max_decode_length=8, beam_size=beams, num_return=beams, length_penalty=0.0
    )
    found = jax.jit(decode)(params, right(), prompt_lengths=LENGTHS)
    expected = golden()[1][f"beams_{beams}"]
    np.testing.assert_array_equal(np.asarray(found.tokens).reshape(-1, 8), expected)
    assert (expected == 63).any()


@pytest.mark.parametrize("scan", [False, True])
def test_conversion_and_back_changes_nothing(scan):
    model, params = ours(scan)
    back, state = params_to_hf(params, model.config), golden()[0]
    assert back.keys() == state.keys()
    for name, value in back.items():
        np.testing.assert_array_equal(value, state[name])
