"""Our decoder beside Hugging Face's families on random weights, odd settings included."""

import contextlib
import copy
import functools
import json
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ckl_jax.checkpoints.hf_names import config_from_hf, config_to_hf, params_from_hf, params_to_hf
from ckl_jax.checkpoints.peft import load_peft, save_peft
from ckl_jax.cli import ckl
from ckl_jax.data.facts.relational import Dataset
from ckl_jax.data.facts.statements import fill
from ckl_jax.data.text.masked_vocabulary import open_vocabulary
from ckl_jax.errors import UserError
from ckl_jax.methods.lora import lora, merge_lora
from ckl_jax.models.decoder import Transformer
from ckl_jax.models.decoder_only import DecoderOnlyModel
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults
from ckl_jax.trees import paths
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
    "llama-long": ("llama", dict(rope_parameters=LONG)),
    "mistral": ("mistral", dict(sliding_window=5, head_dim=16)),
    "mistral-full": ("mistral", dict(sliding_window=None)),
    "ministral": (
        "ministral",
        dict(
            head_dim=16,
            sliding_window=4,
            layer_types=[f"{t}_attention" for t in ("sliding", "full", "full")],
        ),
    ),
    "qwen2": ("qwen2", dict(tie_word_embeddings=True)),
    "qwen2-window": (
        "qwen2",
        dict(use_sliding_window=True, sliding_window=4, max_window_layers=1),
    ),
    "qwen3": ("qwen3", dict(head_dim=16, tie_word_embeddings=True)),
    "gemma": ("gemma", dict(head_dim=16, num_key_value_heads=1)),
    "gemma-2": ("gemma2", dict(head_dim=16, sliding_window=5, query_pre_attn_scalar=24, **CAPS)),
    "gemma-2-gelu": ("gemma2", dict(head_dim=16, hidden_activation="gelu")),
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
    "bloom-untied": ("bloom", dict(tie_word_embeddings=False)),
    "opt": ("opt", dict()),
    "opt-350m": ("opt", dict(do_layer_norm_before=False, word_embed_proj_dim=16)),
    "opt-untied": ("opt", dict(word_embed_proj_dim=16, tie_word_embeddings=False)),
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


def padded(model, params):
    """Logits of each text, padded on the right."""
    batch = {"decoder_input_tokens": rows(), "decoder_target_tokens": rows()}
    return [x[:n] for x, n in zip(model.logits(params, batch), LENGTHS, strict=True)]


def packed(model, params):
    """Logits of each text, all in one row."""
    texts = [row[:n] for row, n in zip(rows(), LENGTHS, strict=True)]
    batch = {
        "decoder_input_tokens": np.concatenate([*texts, [0]])[None],
        "decoder_target_tokens": np.zeros((1, sum(LENGTHS) + 1), np.int32),
        "decoder_segment_ids": np.repeat([1, 2, 3, 0], [*LENGTHS, 1])[None],
        "decoder_positions": np.concatenate([*(np.arange(n) for n in LENGTHS), [0]])[None],
    }
    return np.split(model.logits(params, batch)[0], np.cumsum(LENGTHS))[: len(LENGTHS)]


@every_case
def test_logits_padded_and_packed_equal_each_text_alone(name):
    texts = [row[:n] for row, n in zip(rows(), LENGTHS, strict=True)]
    expected = [logits_alone(name, text) for text in texts]
    for found in (padded(*ours(name)), packed(*ours(name))):
        for one, wanted in zip(found, expected, strict=True):
            assert_close(one, wanted)


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
    config = transformers.AutoConfig.for_model(**{**settings, **ids})
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


def test_settings_that_transformers_reads_under_other_names():
    types = theirs("ministral").config.layer_types
    mixed = SIZES | dict(model_type="mistral", layer_types=types, sliding_window=4)
    assert config_to_hf(config_from_hf(mixed))["layer_types"] == types  # which make it a Ministral
    biased = theirs("mistral").config.to_dict() | {"attention_bias": True}  # which it does not read
    assert config_from_hf(biased) == ours("mistral")[0].config
    bloom = config_to_hf(ours("bloom")[0].config)
    bloom["n_embed"] = bloom.pop("hidden_size")  # as in the published files
    assert config_from_hf(bloom) == ours("bloom")[0].config


@pytest.mark.parametrize("name", ["gemma-3", "llama-3", "bloom"])
def test_scanned_layers_equal_looped_ones(name):
    (model, params), (scanned, stacked) = ours(name), ours(name, scan=True)
    batch = {"decoder_input_tokens": rows(), "decoder_target_tokens": rows()}
    assert_close(scanned.logits(stacked, batch), model.logits(params, batch))
    out, wanted = (
        params_to_hf(p, m.module.config) for m, p in ((scanned, stacked), (model, params))
    )
    assert out.keys() == wanted.keys()
    assert all(np.array_equal(x, wanted[n]) for n, x in out.items())


def test_a_narrow_embedding_is_laid_out_on_a_mesh():
    """No axis of a mesh can split both axes of a kernel."""
    module = ours("opt-350m")[0].module
    shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), rows(), rows()))["params_axes"]
    axes = [names.names for names in paths.flatten(shapes).values()]
    assert all(len(set(names)) == len(names) for names in axes)


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


# {case: layers that PEFT adapts}
ADAPTED = {
    "llama-biased": ["q_proj", "v_proj", "down_proj"],
    "gemma-3": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    "phi-3": ["qkv_proj", "gate_up_proj", "o_proj"],
    "pythia": ["query_key_value"],
    "bloom": ["query_key_value", "dense_4h_to_h"],
    "opt": ["q_proj", "v_proj"],
}


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # of peft
@pytest.mark.parametrize(
    ("name", "dora"),
    [(n, False) for n in ADAPTED] + [(n, True) for n in ("llama-biased", "phi-3", "pythia")],
)
def test_adapters_of_peft_go_in_and_out(name, dora, tmp_path):
    """An adapter from PEFT gives its logits here; ours, written in its format, gives ours there."""
    peft = pytest.importorskip("peft")
    settings = dict(
        target_modules=ADAPTED[name], lora_alpha=6, init_lora_weights=False, use_dora=dora
    )
    base = copy.deepcopy(theirs(name))
    adapted = peft.get_peft_model(base, peft.LoraConfig(r=4, task_type="CAUSAL_LM", **settings))
    if dora:  # else the magnitudes are the norms
        with torch.no_grad():
            for name_, p in adapted.named_parameters():
                if "magnitude" in name_:
                    p *= 1 + 0.3 * torch.rand_like(p)
    adapted.eval().save_pretrained(tmp_path / "in")
    model, params = ours(name)
    tree, found = load_peft(tmp_path / "in", model.config)
    assert found["scale"] == 1.5
    method = lora(**found, trunk=())
    whole = paths.unflatten(paths.flatten(params) | paths.flatten(tree))
    ours_adapted = DecoderOnlyModel(Transformer(method.extend(model.config)), Vocabulary())
    tokens = rows()[1:2]
    batch = {"decoder_input_tokens": tokens, "decoder_target_tokens": tokens}
    given = torch.tensor(tokens.astype(np.int64))
    with torch.no_grad():
        expected = adapted(given).logits.numpy()
        assert np.abs(expected - theirs(name)(given).logits.numpy()).max() > 0.1
    assert_close(ours_adapted.logits(whole, batch), expected)
    merged = DecoderOnlyModel(Transformer(model.config), Vocabulary())
    assert_close(merged.logits(merge_lora(whole, 1.5), batch), expected)
    save_peft(tmp_path / "out", whole, model.config, found["scale"])
    again = peft.PeftModel.from_pretrained(copy.deepcopy(theirs(name)), tmp_path / "out").eval()
    with torch.no_grad():
        assert_close(again(given).logits.numpy(), expected)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # of peft
def test_dora_of_some_parts_of_a_fused_layer_goes_out(tmp_path):
    """The magnitudes of Pythia's keys are the norms of the base's there."""
    peft = pytest.importorskip("peft")
    model, params = ours("pythia")
    method = lora(rank=2, scale=0.5, trunk=(), dora=True)
    adapted = DecoderOnlyModel(Transformer(method.extend(model.config)), Vocabulary())
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(adapted.init, jax.random.key(0))["params"]
    whole = {p: rng.uniform(0.2, 1, x.shape) for p, x in paths.flatten(shapes).items()}
    whole = paths.unflatten(jax.tree.map(np.float32, whole) | paths.flatten(params))
    save_peft(tmp_path / "out", whole, model.config, 0.5)
    there = peft.PeftModel.from_pretrained(copy.deepcopy(theirs("pythia")), tmp_path / "out").eval()
    tokens = rows()[1:2]
    with torch.no_grad():
        expected = there(torch.tensor(tokens.astype(np.int64))).logits.numpy()
    batch = {"decoder_input_tokens": tokens, "decoder_target_tokens": tokens}
    assert_close(adapted.logits(whole, batch), expected)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # of peft
@pytest.mark.parametrize(
    "start", ["gaussian", "eva", "orthogonal", "mica", "lora_ga", "pissa", "pissa_niter_2", "olora"]
)
def test_adapters_whose_base_peft_changes_are_refused(start, tmp_path):
    peft = pytest.importorskip("peft")
    plain = peft.LoraConfig(r=2, task_type="CAUSAL_LM", target_modules=["q_proj"])
    peft.get_peft_model(copy.deepcopy(theirs("llama")), plain).save_pretrained(tmp_path)
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"init_lora_weights": start}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that eva_config is the default
        loaded = peft.PeftModel.from_pretrained(copy.deepcopy(theirs("llama")), tmp_path)
    base = loaded.model.model.layers[0].self_attn.q_proj.base_layer.weight.detach().numpy()
    changes = not np.array_equal(base, state("llama")["model.layers.0.self_attn.q_proj.weight"])
    assert changes == start.startswith(("pissa", "olora"))
    with pytest.raises(UserError, match=start) if changes else contextlib.nullcontext():
        load_peft(tmp_path, ours("llama")[0].config)


PAGE = Path(__file__).parents[2] / "docs" / "models.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"


def test_the_page_names_every_case():
    table = PAGE.read_text().split(BEGIN)[1].split(END)[0]
    assert [row.split(" | ")[0].strip("| ") for row in table.splitlines()[2:]] == list(CASES)


def differences(name):
    """The largest difference of logits, relative to the largest: alone or padded, and packed."""
    model, params = ours(name)
    texts = [row[:n] for row, n in zip(rows(), LENGTHS, strict=True)]
    expected = [logits_alone(name, text) for text in texts]
    scale = max(np.abs(x).max() for x in expected)
    return [
        max(np.abs(a - b).max() for a, b in zip(found, expected, strict=True)) / scale
        for found in (padded(model, params), packed(model, params))
    ]


def main():
    """Writes the table of docs/models.md."""
    lines = [
        "| case | settings beside the family's own | padded | packed |",
        "| --- | --- | ---: | ---: |",
    ]
    for name, (_, settings) in CASES.items():
        said = ", ".join(f"{k} {v!r}" for k, v in settings.items() if not isinstance(v, dict))
        ropes = [k for k, v in settings.items() if isinstance(v, dict)]
        kinds = {v["rope_type"] for k in ropes for v in [settings[k]] if "rope_type" in v}
        said = ", ".join([s for s in (said, *(f"rope {k}" for k in kinds)) if s])
        lines.append(
            " | ".join([f"| {name}", said, *(f"{x:.0e}" for x in differences(name))]) + " |"
        )
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
