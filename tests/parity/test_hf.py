"""Our T5 computes and decodes what Hugging Face's computes and decodes."""

import dataclasses

import jax
import numpy as np
import pytest

from ckl_jax.checkpoints.from_hf import load_hf
from ckl_jax.checkpoints.hf_names import (
    config_from_hf,
    config_to_hf,
    params_from_hf,
    params_to_hf,
)
from ckl_jax.checkpoints.to_hf import save_hf
from tests.parity import golden_t5

SIZES = dict(
    vocab_size=64,
    d_model=16,
    d_kv=8,
    d_ff=24,
    num_layers=2,
    num_heads=2,
    relative_attention_num_buckets=8,
)
SETTINGS = {
    "v1_0": dict(SIZES),
    "v1_1": dict(SIZES, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
}
# Made anew with transformers: class, and settings beside the sizes.
LIVE = {
    "v1_0": ("T5", {}),
    "v1_1": ("T5", SETTINGS["v1_1"]),
    "gelu": ("T5", dict(feed_forward_proj="gelu")),
    "ul2": ("T5", dict(feed_forward_proj="gated-silu", tie_word_embeddings=False)),
    "byt5": ("T5", dict(SETTINGS["v1_1"], num_layers=3, num_decoder_layers=1)),
    "mt5": ("MT5", {}),
    "mt5_tied": ("MT5", {}),
    "umt5": ("UMT5", {}),
}


def load(version, **overrides):
    state, rest = golden_t5.load(f"hf_t5_{version}.npz")
    config = config_from_hf(SETTINGS[version], **overrides)
    return config, params_from_hf(state, config), state, rest


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("version", SETTINGS)
def test_logits_equal_transformers(version, scan):
    config, params, _, rest = load(version, scan_layers=scan)
    batch = golden_t5.batch_of(rest)
    logits = golden_t5.teacher_forced(config, params, *batch)
    real = batch[2] > 0
    np.testing.assert_allclose(logits[real], rest["logits"][real], atol=2e-5, rtol=0)


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("beams", [1, 2, 4])
@pytest.mark.parametrize("version", SETTINGS)
def test_decodes_equal_transformers(version, beams, scan):
    config, params, _, rest = load(version, scan_layers=scan)
    inputs = golden_t5.batch_of(rest)[0]
    expected = rest[f"beams_{beams}/tokens"]
    found = golden_t5.decode(config, params, inputs, beams, expected.shape[-1])
    np.testing.assert_array_equal(found.tokens, expected)
    if beams > 1:
        np.testing.assert_allclose(found.scores, rest[f"beams_{beams}/scores"], atol=1e-5)


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("version", SETTINGS)
def test_cached_decoding_equals_teacher_forcing(version, scan):
    config, params, _, rest = load(version, scan_layers=scan)
    inputs, _, _ = golden_t5.batch_of(rest)
    targets = np.random.default_rng(0).integers(2, 64, size=(len(inputs), 6)).astype(np.int32)
    shifted = np.pad(targets, ((0, 0), (1, 0)))[:, :-1]
    expected = golden_t5.teacher_forced(config, params, inputs, shifted, targets)
    step, cache = golden_t5.start_decoding(config, params, inputs, targets.shape[1])
    step = jax.jit(step)
    for i in range(targets.shape[1]):
        logits, cache = step(shifted[:, i : i + 1], cache)
        np.testing.assert_allclose(logits, expected[:, i], atol=2e-5, rtol=0)


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("version", SETTINGS)
def test_conversion_and_back_changes_nothing(version, scan):
    config, params, state, _ = load(version, scan_layers=scan)
    back = params_to_hf(params, config)
    for name, value in back.items():
        np.testing.assert_array_equal(value, state[name])
    tied = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}
    tied |= {"lm_head.weight"} if config.logits_via_embedding else set()
    assert set(state) - set(back) <= tied


# With transformers at hand the same is checked on its own code and files.


def live_model(version, seed=0):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(seed)
    kind, more = LIVE[version]
    settings = getattr(transformers, f"{kind}Config")(**{**SIZES, **more}, decoder_start_token_id=0)
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(settings).eval()
    if version == "umt5":
        # transformers 5 scales it as a tied one, unlike transformers 4 and T5X; 5.24 has a field.
        model.config.tie_word_embeddings = model.config.scale_decoder_outputs = False
    if version in ("mt5", "umt5"):  # otherwise a new one is tied
        model.lm_head.weight = torch.nn.Parameter(torch.zeros_like(model.lm_head.weight))
    with torch.no_grad():
        for p in model.parameters():
            p += 0.1 * torch.randn_like(p)
    return torch, transformers, model


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("version", LIVE)
def test_a_saved_transformers_model_is_read_and_computes_the_same(version, scan, tmp_path):
    torch, _, model = live_model(version)
    model.save_pretrained(tmp_path)
    config, params = load_hf(tmp_path, scan_layers=scan)
    inputs, shifted, targets = golden_t5.batch_of(load("v1_1")[3])
    with torch.no_grad():
        ids = torch.tensor(inputs, dtype=torch.long)
        expected = model(
            input_ids=ids,
            attention_mask=ids > 0,
            decoder_input_ids=torch.tensor(shifted, dtype=torch.long),
        ).logits.numpy()
        decoded = model.generate(
            input_ids=ids, attention_mask=ids > 0, num_beams=1, do_sample=False, max_length=9
        ).numpy()[:, 1:]
    logits = golden_t5.teacher_forced(config, params, inputs, shifted, targets)
    real = targets > 0
    np.testing.assert_allclose(logits[real], expected[real], atol=2e-5, rtol=0)
    found = np.asarray(golden_t5.decode(config, params, inputs, 1, 8).tokens)[:, 0]
    np.testing.assert_array_equal(found[:, : decoded.shape[1]], decoded)
    state = model.state_dict()
    for name, value in params_to_hf(params, config).items():
        np.testing.assert_array_equal(value, state[name].numpy(), err_msg=name)
    assert config_from_hf(config_to_hf(config), scan_layers=scan) == config


@pytest.mark.parametrize("version", SETTINGS)
def test_transformers_reads_what_we_save(version, tmp_path):
    torch, transformers, _ = live_model(version)
    config, params, _, rest = load(version)
    save_hf(tmp_path, params, config)
    model, report = transformers.T5ForConditionalGeneration.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not report["missing_keys"] and not report["unexpected_keys"]
    inputs, shifted, targets = golden_t5.batch_of(rest)
    with torch.no_grad():
        ids = torch.tensor(inputs, dtype=torch.long)
        logits = model.eval()(
            input_ids=ids,
            attention_mask=ids > 0,
            decoder_input_ids=torch.tensor(shifted, dtype=torch.long),
        ).logits.numpy()
    real = targets > 0
    np.testing.assert_allclose(logits[real], rest["logits"][real], atol=2e-5, rtol=0)
    read, again = load_hf(tmp_path)
    assert dataclasses.asdict(read) == dataclasses.asdict(config)
    np.testing.assert_array_equal(
        again["token_embedder"]["embedding"], params["token_embedder"]["embedding"]
    )
