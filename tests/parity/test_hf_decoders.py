"""Our decoder beside Hugging Face's families on random weights, odd settings included."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ckl_jax.checkpoints.hf_names import config_from_hf, config_to_hf, params_from_hf, params_to_hf
from ckl_jax.cli import ckl
from ckl_jax.data.facts.relational import Dataset
from ckl_jax.data.facts.statements import fill
from ckl_jax.data.text.masked_vocabulary import open_vocabulary
from ckl_jax.models.decoder import Transformer
from ckl_jax.models.decoder_only import DecoderOnlyModel
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults
from tests.llama_tokenizer import train_tokenizer
from tests.parity.ranked import unpack

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

LENGTHS = (3, 13, 8)
V, EOS = 96, 95
SIZES = dict(
    vocab_size=V,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    initializer_range=0.3,
    bos_token_id=1,
    eos_token_id=EOS,
    pad_token_id=0,
)
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=10000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)
YARN = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=16)
CAPS = dict(attn_logit_softcapping=5.0, final_logit_softcapping=3.0)
LONG = dict(
    rope_type="longrope",
    rope_theta=1e4,
    short_factor=[1.0, 1.2, 1.4, 1.6],
    long_factor=[2.0, 3.0, 4.0, 5.0],
    original_max_position_embeddings=32,
)
# {test id: (model type, settings)}
CASES = {
    "llama": ("llama", dict()),
    "llama-3": ("llama", dict(rope_parameters=LLAMA3, tie_word_embeddings=True)),
    "llama-biased": ("llama", dict(attention_bias=True, mlp_bias=True, num_key_value_heads=1)),
    "llama-linear": (
        "llama",
        dict(rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=3.0)),
    ),
    "llama-yarn": ("llama", dict(rope_parameters=YARN, num_key_value_heads=4)),
    "mistral": ("mistral", dict(sliding_window=5, head_dim=16)),
    "mistral-full": ("mistral", dict(sliding_window=None)),
    "qwen2": ("qwen2", dict(tie_word_embeddings=True)),
    "qwen2-window": (
        "qwen2",
        dict(use_sliding_window=True, sliding_window=4, max_window_layers=1),
    ),
    "qwen3": ("qwen3", dict(head_dim=16, tie_word_embeddings=True)),
    "gemma": ("gemma", dict(head_dim=16, num_key_value_heads=1)),
    "gemma-2": ("gemma2", dict(head_dim=16, sliding_window=5, query_pre_attn_scalar=24, **CAPS)),
    "gemma-3": (
        "gemma3_text",
        dict(
            head_dim=16,
            sliding_window=4,
            query_pre_attn_scalar=24,
            num_hidden_layers=7,
            rope_parameters=dict(
                full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0),
                sliding_attention=dict(rope_type="default", rope_theta=1e4),
            ),
        ),
    ),
    "olmo-2": ("olmo2", dict()),
    "phi-3": ("phi3", dict(sliding_window=6)),
    "phi-3-long": ("phi3", dict(rope_parameters=LONG, original_max_position_embeddings=32)),
    "pythia": ("gpt_neox", dict(partial_rotary_factor=0.5)),
    "pythia-sequential": ("gpt_neox", dict(use_parallel_residual=False, rotary_pct=0.25)),
    "bloom": ("bloom", dict()),
    "bloom-6-heads": ("bloom", dict(num_attention_heads=6, hidden_size=36)),
    "opt": ("opt", dict()),
    "opt-350m": ("opt", dict(do_layer_norm_before=False, word_embed_proj_dim=16)),
}
BY_FAMILY = {
    "bloom": {"num_attention_heads": "n_head", "num_hidden_layers": "n_layer"},
    "opt": {"intermediate_size": "ffn_dim"},
}


@functools.cache
def theirs(name):
    """Random weights, norms and biases far from the initial ones, which would hide errors."""
    model_type, settings = CASES[name]
    given = {BY_FAMILY.get(model_type, {}).get(k, k): v for k, v in {**SIZES, **settings}.items()}
    if model_type == "opt":
        given["init_std"] = 0.3
        given.setdefault("word_embed_proj_dim", 32)
    config = transformers.AutoConfig.for_model(model_type, **given)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 1:
                p += 0.3 * torch.randn_like(p)
    return model.eval()


@functools.cache
def state(name):
    return {k: x.numpy() for k, x in theirs(name).state_dict().items()}


@functools.cache
def ours(name, scan=False):
    config = config_from_hf(theirs(name).config.to_dict(), scan_layers=scan)
    return DecoderOnlyModel(Transformer(config), Vocabulary()), params_from_hf(state(name), config)


class Vocabulary:
    eos_id = EOS
    bos_id = 1


def rows():
    """Prompts [3, 13], padded on the right."""
    rng, found = np.random.default_rng(0), np.zeros((3, max(LENGTHS)), np.int32)
    for i, length in enumerate(LENGTHS):
        found[i, :length] = rng.integers(2, V - 2, length)
    return found


def logits_alone(name, tokens):
    with torch.no_grad():
        return theirs(name)(torch.tensor(np.asarray(tokens, np.int64))[None]).logits[0].numpy()


def assert_close(found, expected):
    expected = np.asarray(expected)
    np.testing.assert_allclose(found, expected, atol=1e-4 * max(1.0, np.abs(expected).max()))


every_case = pytest.mark.parametrize("name", CASES)


@every_case
def test_logits_padded_and_packed_equal_each_text_alone(name):
    model, params = ours(name)
    texts = [row[:n] for row, n in zip(rows(), LENGTHS, strict=True)]
    expected = [logits_alone(name, text) for text in texts]
    padded = model.logits(params, {"decoder_input_tokens": rows(), "decoder_target_tokens": rows()})
    for found, wanted in zip(padded, expected, strict=True):
        assert_close(found[: len(wanted)], wanted)
    packed = {
        "decoder_input_tokens": np.concatenate([*texts, [0]])[None],
        "decoder_target_tokens": np.zeros((1, sum(LENGTHS) + 1), np.int32),
        "decoder_segment_ids": np.repeat([1, 2, 3, 0], [*LENGTHS, 1])[None],
        "decoder_positions": np.concatenate([*(np.arange(n) for n in LENGTHS), [0]])[None],
    }
    found = model.logits(params, packed)[0]
    for end, wanted in zip(itertools.accumulate(LENGTHS), expected, strict=True):
        assert_close(found[end - len(wanted) : end], wanted)


@every_case
def test_what_goes_in_comes_out_bit_by_bit(name):
    model, params = ours(name)
    out = params_to_hf(params, model.config)
    there = state(name)
    renamed = {"embed_out.weight": "lm_head.weight"}
    assert all(np.array_equal(x, there[renamed.get(n, n)]) for n, x in out.items())
    settings = config_to_hf(model.config)
    assert config_from_hf(settings) == model.config
    ids = {k: v for k, v in SIZES.items() if k.endswith("_id")}  # which the vocabulary decides
    config = transformers.AutoConfig.for_model(**settings, **ids)
    again = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    tensors = {renamed.get(n, n): torch.tensor(x) for n, x in out.items()}
    lost = again.load_state_dict(tensors, strict=False)
    assert not lost.unexpected_keys and set(lost.missing_keys) <= {"lm_head.weight"}
    again.tie_weights()
    tokens = torch.tensor(rows()[1:2].astype(np.int64))
    with torch.no_grad():
        assert_close(again.eval()(tokens).logits.numpy(), theirs(name)(tokens).logits.numpy())


@every_case
def test_cached_decoding_equals_transformers(name):
    model, params = ours(name)
    found = jax.jit(
        lambda p: model.predict(p, rows(), 6, jnp.array(LENGTHS), beam_size=1, num_return=1)
    )(params)
    for tokens, row, length in zip(found.tokens[:, 0], rows(), LENGTHS, strict=True):
        text = list(row[:length])
        for token in tokens:  # uncached and greedy
            best = int(logits_alone(name, text)[-1].argmax())
            assert token == best, (name, text)
            text.append(best)
            if best == EOS:
                break


@pytest.mark.parametrize("name", ["gemma-3", "llama-3", "bloom"])
def test_scanned_layers_equal_looped_ones(name):
    (model, params), (scanned, stacked) = ours(name), ours(name, scan=True)
    batch = {"decoder_input_tokens": rows(), "decoder_target_tokens": rows()}
    assert_close(scanned.logits(stacked, batch), model.logits(params, batch))


def test_answers_are_ranked_as_transformers_scores_them(tmp_path):
    """Sums of log probabilities, by tries here and statement by statement there."""
    dataset = unpack("lm_pub_quiz.zip", tmp_path) / "dataset"
    settings = SIZES | dict(vocab_size=300, max_position_embeddings=128, eos_token_id=2)
    config = transformers.Qwen3Config(**settings, head_dim=16)
    torch.manual_seed(0)
    model = transformers.Qwen3ForCausalLM(config).eval()
    model.save_pretrained(tmp_path / "hf")
    train_tokenizer(tmp_path / "hf")
    argv = ["--model", str(tmp_path / "hf"), "--out", str(tmp_path / "out")]
    assert ckl.main(["probe", "bear", "--dataset", str(dataset), *argv]) == 0
    vocabulary = open_vocabulary(tmp_path / "hf")
    relation = Dataset.from_path(dataset)["P1"]
    found = DatasetResults.from_path(tmp_path / "out")["P1"]
    for row, scores in zip(found.table, found.scores, strict=True):
        template = relation.templates[row["template_index"]]
        for label, score in zip(relation.answer_labels, scores, strict=True):
            statement = fill(template, row["sub_label"], label).text
            ids = torch.tensor([[1, *vocabulary.encode(statement)]])
            with torch.no_grad():
                logs = torch.log_softmax(model(ids).logits[0, :-1].double(), -1)
            expected = logs.gather(1, ids[0, 1:, None]).sum().item()
            assert score == pytest.approx(expected, abs=2e-3), statement
