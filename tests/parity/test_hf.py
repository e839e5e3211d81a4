"""Our T5 and T5Gemma compute and decode what Hugging Face's compute and decode."""

import copy
import dataclasses
import itertools

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
from ckl_jax.cli import ckl
from ckl_jax.data.facts.relational import Dataset
from ckl_jax.data.facts.statements import fill
from ckl_jax.data.text.byte_level import SpanVocabulary
from ckl_jax.data.text.spans import mask_spans
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults
from tests.helpers import model_of
from tests.llama_tokenizer import train_gemmas
from tests.parity import golden_t5
from tests.parity.ranked import unpack

SIZES = dict(
    vocab_size=64,
    d_model=16,
    d_kv=8,
    d_ff=24,
    num_layers=2,
    num_heads=2,
    relative_attention_num_buckets=8,
)
# Each version, number of beams and layout once; all of them in the slow part.
FAST = (("v1_0", 1, True), ("v1_1", 2, False), ("v1_0", 4, False))
SETTINGS = {
    "v1_0": dict(SIZES),
    "v1_1": dict(SIZES, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
}
GEMMA = dict(
    vocab_size=64,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=8,
    sliding_window=3,
    query_pre_attn_scalar=24,
    attn_logit_softcapping=2.0,
    final_logit_softcapping=3.0,
    max_position_embeddings=32,
)
LINEAR = dict(rope_type="linear", rope_theta=100.0, factor=2.0)
PLAIN = dict(
    GEMMA,
    attention_bias=True,
    attn_logit_softcapping=None,
    final_logit_softcapping=None,
    layer_types=["full_attention", "full_attention"],
    num_key_value_heads=2,
)
# Made anew with transformers: class, and settings beside the sizes.
LIVE = {
    "v1_0": ("T5", {}),
    "v1_1": ("T5", SETTINGS["v1_1"]),
    "gelu": ("T5", dict(feed_forward_proj="gelu")),
    "ul2": ("T5", dict(feed_forward_proj="gated-silu", tie_word_embeddings=False)),
    "byt5": ("T5", dict(SETTINGS["v1_1"], num_layers=3, num_decoder_layers=1)),
    "mt5": ("MT5", {}),
    "mt5_tied": ("MT5", {}),
    "umt5": ("UMT5", dict(tie_word_embeddings=False)),
    "umt5_tied": ("UMT5", {}),
    # A larger encoder with windows of its own, and a deeper decoder whose first layer is full.
    "t5gemma": (
        "T5Gemma",
        dict(
            encoder=dict(GEMMA, hidden_size=24, num_key_value_heads=2, sliding_window=2),
            decoder=dict(
                GEMMA,
                num_hidden_layers=3,
                layer_types=["full_attention", "sliding_attention", "sliding_attention"],
            ),
        ),
    ),
    "t5gemma_plain": (
        "T5Gemma",
        dict(
            encoder=dict(PLAIN, rope_parameters=LINEAR, intermediate_size=40),
            decoder=dict(PLAIN, num_hidden_layers=1, layer_types=["full_attention"]),
            tie_word_embeddings=False,
        ),
    ),
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


@pytest.mark.parametrize(
    ("version", "beams", "scan"),
    [
        pytest.param(*case, marks=[] if case in FAST else [pytest.mark.slow])
        for case in itertools.product(SETTINGS, [1, 2, 4], [False, True])
    ],
)
def test_decodes_equal_transformers(version, beams, scan):
    config, params, _, rest = load(version, scan_layers=scan)
    inputs = golden_t5.batch_of(rest)[0]
    expected = rest[f"beams_{beams}/tokens"]
    found = golden_t5.decode(config, params, inputs, beams, expected.shape[-1])
    np.testing.assert_array_equal(found.tokens, expected)
    if beams > 1:
        np.testing.assert_allclose(found.scores, rest[f"beams_{beams}/scores"], atol=1e-5)


@pytest.mark.parametrize("scan", [False, pytest.param(True, marks=pytest.mark.slow)])
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


def live_model(version, seed=0, **changed):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(seed)
    kind, more = LIVE[version]
    if kind == "T5Gemma":
        given = {**copy.deepcopy(more), "attn_implementation": "eager"}
        for stack in ("encoder", "decoder"):
            given[stack].update(changed)
    else:
        given = {**SIZES, **more, "decoder_start_token_id": 0}
    settings = getattr(transformers, f"{kind}Config")(**given)
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(settings).eval()
    if kind == "UMT5" and not hasattr(settings, "scale_decoder_outputs"):
        pytest.skip("transformers before 5.24 does not keep whether a umT5 is scaled")
    if version in ("mt5", "umt5"):  # otherwise a new one is tied
        model.lm_head.weight = torch.nn.Parameter(torch.zeros_like(model.lm_head.weight))
    with torch.no_grad():
        for p in model.parameters():
            p += 0.1 * torch.randn_like(p)
    return torch, transformers, model


def started(model, shifted):
    """What transformers wants as the decoder's input: T5Gemma's start token is no padding."""
    start = getattr(model.config.get_text_config(decoder=True), "bos_token_id", None) or 0
    return np.where(shifted == 0, start, shifted)


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
            decoder_input_ids=torch.tensor(started(model, shifted), dtype=torch.long),
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


@pytest.mark.parametrize("version", ["v1_1", "t5gemma", "t5gemma_plain"])
def test_padded_and_packed_equal_each_pair_alone(version):
    torch, _, model = live_model(version)
    config = config_from_hf(model.config.to_dict())
    params = params_from_hf({k: x.numpy() for k, x in model.state_dict().items()}, config)
    rng, lengths = np.random.default_rng(1), ((5, 7), (9, 3), (2, 6))
    pairs = [[rng.integers(3, 64, n).astype(np.int32) for n in pair] for pair in lengths]
    expected = []
    for inputs, targets in pairs:
        shifted = np.concatenate([[0], targets[:-1]])
        given = [torch.tensor(x[None], dtype=torch.long) for x in (inputs, started(model, shifted))]
        with torch.no_grad():
            expected.append(model(input_ids=given[0], decoder_input_ids=given[1]).logits[0].numpy())

    def whole(side, numbers=False):
        parts = [np.full_like(p[side], i) if numbers else p[side] for i, p in enumerate(pairs, 1)]
        return np.pad(np.concatenate(parts), (0, 2))[None]

    packed = {
        "encoder_input_tokens": whole(0),
        "decoder_target_tokens": whole(1),
        "encoder_segment_ids": whole(0, numbers=True),
        "decoder_segment_ids": whole(1, numbers=True),
    }
    padded = {
        name: np.stack([np.pad(pair[side], (0, 9 - len(pair[side]))) for pair in pairs])
        for side, name in enumerate(("encoder_input_tokens", "decoder_target_tokens"))
    }
    ends = np.cumsum([n for _, n in lengths])
    for batch, rows in (
        (packed, lambda x: np.split(x[0], ends)[:-1]),
        (padded, lambda x: [row[:n] for row, (_, n) in zip(x, lengths, strict=True)]),
    ):
        before = np.pad(batch["decoder_target_tokens"], ((0, 0), (1, 0)))[:, :-1]
        if batch is packed:
            before[0, ends[:-1]] = 0  # each text begins with the start token
        batch = {**batch, "decoder_input_tokens": before}
        logits = model_of(config).logits(params, batch)
        for found, wanted in zip(rows(logits), expected, strict=True):
            np.testing.assert_allclose(found, wanted, atol=2e-5, rtol=0)


@pytest.mark.slow
def test_answers_are_ranked_as_transformers_scores_them(tmp_path):
    """log p(answers and sentinels | statement, <extra_id_0>) of BEAR's, by a T5Gemma."""
    torch, _, model = live_model("t5gemma", vocab_size=300)
    dataset = unpack("lm_pub_quiz.zip", tmp_path) / "dataset"
    relation = Dataset.from_path(dataset)["P1"]
    model.save_pretrained(tmp_path / "hf")
    train_gemmas(tmp_path / "hf", texts=[*relation.templates, *relation.answer_labels])
    argv = ["--model", str(tmp_path / "hf"), "--out", str(tmp_path / "out")]
    assert ckl.main(["probe", "bear", "--dataset", str(dataset), *argv]) == 0
    vocabulary = SpanVocabulary(tmp_path / "hf")
    found = DatasetResults.from_path(tmp_path / "out")["P1"]
    for row, scores in zip(found.table, found.scores, strict=True):
        template = relation.templates[row["template_index"]]
        for label, score in zip(relation.answer_labels, scores, strict=True):
            statement = fill(template, row["sub_label"], label)
            inputs, target = (
                vocabulary.encode(t) for t in mask_spans(statement.text, statement.answers)
            )
            assert target[0] == vocabulary.sentinel(0)
            given = {"input_ids": [*inputs, 1], "decoder_input_ids": [2, *target[:-1]]}
            with torch.no_grad():
                logits = model(**{k: torch.tensor([x]) for k, x in given.items()}).logits[0]
            logs = torch.log_softmax(logits.double(), -1)
            expected = logs.gather(1, torch.tensor(target)[:, None])[1:].sum().item()
            assert score == pytest.approx(expected, abs=2e-4), statement


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
