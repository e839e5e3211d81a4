"""Our GPT-2 and Hugging Face's, side by side on random weights; `test_gpt2.py` needs no torch."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ckl_jax.checkpoints.hf_names import config_from_hf, params_from_hf
from ckl_jax.models.decoder_only import DecoderOnlyModel
from ckl_jax.models.decoding import greedy_decode
from ckl_jax.models.gpt2 import Transformer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SETTINGS = dict(
    vocab_size=64, n_embd=16, n_head=2, n_layer=2, n_positions=24, bos_token_id=63, eos_token_id=63
)
LENGTHS = (3, 7, 5)
EOS = 63


@functools.cache
def theirs():
    """Random weights far from the initial ones, which would make all logits alike."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(**SETTINGS, attn_implementation="eager")
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p += 0.3 * torch.randn_like(p)
    return model


@functools.cache
def ours(scan=False):
    state = {name: x.numpy() for name, x in theirs().state_dict().items()}
    config = config_from_hf(theirs().config.to_dict(), scan_layers=scan)
    return DecoderOnlyModel(Transformer(config), Vocabulary()), params_from_hf(state, config)


class Vocabulary:
    eos_id = EOS


def rows(seed=0):
    """Prompts [3, 7], padded on the right, and on the left with their mask."""
    rng = np.random.default_rng(seed)
    right = np.zeros((3, 7), np.int32)
    left, mask = np.zeros((3, 7), np.int64), np.zeros((3, 7), np.int64)
    for i, length in enumerate(LENGTHS):
        tokens = rng.integers(0, 63, length)
        right[i, :length], left[i, 7 - length :], mask[i, 7 - length :] = tokens, tokens, 1
    return right, torch.tensor(left), torch.tensor(mask)


def test_logits_equal_transformers():
    model, params = ours()
    right, _, _ = rows()
    with torch.no_grad():
        expected = theirs()(torch.tensor(right, dtype=torch.long)).logits.numpy()
    batch = {"decoder_input_tokens": right, "decoder_target_tokens": right}
    np.testing.assert_allclose(model.logits(params, batch), expected, atol=2e-5, rtol=0)


def test_packed_rows_equal_transformers_on_each_alone():
    model, params = ours()
    right, _, _ = rows()
    parts = [right[i, :n] for i, n in enumerate(LENGTHS)]
    batch = {
        "decoder_input_tokens": np.concatenate([*parts, [0]])[None],
        "decoder_target_tokens": np.zeros((1, 16), np.int32),
        "decoder_segment_ids": np.repeat([1, 2, 3, 0], [*LENGTHS, 1])[None],
        "decoder_positions": np.concatenate([*(np.arange(n) for n in LENGTHS), [0]])[None],
    }
    logits, start = np.asarray(model.logits(params, batch))[0], 0
    for part in parts:
        with torch.no_grad():
            alone = theirs()(torch.tensor(part, dtype=torch.long)[None]).logits.numpy()[0]
        np.testing.assert_allclose(logits[start : start + len(part)], alone, atol=2e-5, rtol=0)
        start += len(part)


def test_left_padding_equals_transformers_with_a_mask_and_its_own_positions():
    """As TemporalWiki's code called it: a mask, and positions that count the padding."""
    model, params = ours()
    _, left, mask = rows()
    with torch.no_grad():
        positions = torch.arange(7)[None].expand(3, 7)
        expected = theirs()(left, attention_mask=mask, position_ids=positions).logits.numpy()
    batch = {
        "decoder_input_tokens": left.numpy().astype(np.int32),
        "decoder_target_tokens": left.numpy().astype(np.int32),
        "decoder_segment_ids": mask.numpy().astype(np.int32),
    }
    logits = model.logits(params, batch)
    np.testing.assert_allclose(logits, expected, atol=2e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("beams", [1, 3])
def test_what_is_written_equals_transformers(beams, scan):
    """Sums of log probabilities: transformers 5 counts lengths otherwise than 4.12."""
    model, params = ours(scan)
    right, left, mask = rows()
    with torch.no_grad():
        written = (
            theirs()
            .generate(
                left,
                attention_mask=mask,
                num_beams=beams,
                do_sample=False,
                max_new_tokens=8,
                length_penalty=0.0,
                early_stopping=True,
                pad_token_id=0,
                num_return_sequences=beams,
            )[:, 7:]
            .numpy()
        )
    decode = functools.partial(
        model.predict,
        max_decode_length=8,
        beam_size=beams,
        num_return=beams,
        rule="hf",
        length_penalty=0.0,
    )
    found = jax.jit(decode)(params, right, prompt_lengths=jnp.array(LENGTHS))
    tokens = np.asarray(found.tokens).reshape(-1, 8)
    ended = np.cumsum(written == EOS, axis=1) - (written == EOS) > 0
    assert ended.any() and not ended.all(axis=0)[1:].all()
    np.testing.assert_array_equal(tokens[:, : written.shape[1]], np.where(ended, 0, written))


def test_greedy_equals_one_beam():
    model, params = ours()
    right, _, _ = rows()
    greedy = dataclasses.replace(model, decode_fn=greedy_decode)
    one, found = (
        jax.jit(lambda p, m=m, kw=kw: m.predict(p, right, 6, jnp.array(LENGTHS), **kw))(params)
        for m, kw in ((model, dict(beam_size=1, num_return=1)), (greedy, {}))
    )
    np.testing.assert_array_equal(found.tokens, one.tokens)
