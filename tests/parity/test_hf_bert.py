"""Our masked models against Hugging Face's, side by side on random weights."""

import copy
import functools
import json

import jax
import numpy as np
import pytest

from ckl_jax.checkpoints import architectures
from ckl_jax.checkpoints.hf_names import (
    config_from_hf,
    config_to_hf,
    params_from_hf,
    params_to_hf,
)
from ckl_jax.checkpoints.peft import load_peft, save_peft
from ckl_jax.cli import ckl
from ckl_jax.convert.hugging_face import export_checkpoint
from ckl_jax.data.facts.relational import Dataset
from ckl_jax.data.facts.statements import fill
from ckl_jax.data.text.masked_vocabulary import MaskedVocabulary
from ckl_jax.errors import UserError
from ckl_jax.methods.lora import lora, merge_lora
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults
from ckl_jax.trees import paths
from tests.parity.ranked import unpack

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = dict(
    vocab_size=50,
    hidden_size=16,
    num_attention_heads=2,
    num_hidden_layers=2,
    intermediate_size=24,
    max_position_embeddings=14,
)
DISTIL = ("dim", "n_heads", "n_layers", "hidden_dim")
KINDS = {
    "xlm-roberta": ("XLMRoberta", dict(pad_token_id=1, type_vocab_size=1)),
    "camembert": ("Camembert", dict(pad_token_id=1, type_vocab_size=1)),
    "distilbert": ("DistilBert", dict(pad_token_id=0)),
    "electra": ("Electra", dict(pad_token_id=0, embedding_size=8)),
    "electra-wide": ("Electra", dict(pad_token_id=0, embedding_size=16)),
    "modernbert": (
        "ModernBert",
        dict(pad_token_id=0, num_hidden_layers=5, local_attention=4, norm_bias=False),
    ),
    "modernbert-biased": (
        "ModernBert",
        dict(
            pad_token_id=0,
            local_attention=6,
            norm_bias=True,
            attention_bias=True,
            mlp_bias=True,
            layer_types=["sliding_attention", "full_attention"],
            rope_parameters=dict(
                full_attention=dict(rope_type="linear", rope_theta=1e3, factor=3.0),
                sliding_attention=dict(rope_type="default", rope_theta=1e2),
            ),
        ),
    ),
    "bert": ("Bert", dict(pad_token_id=0)),
    "roberta": ("Roberta", dict(pad_token_id=1, type_vocab_size=1, layer_norm_eps=1e-5)),
}


@functools.cache
def theirs(kind):
    name, more = KINDS[kind]
    torch.manual_seed(0)
    sizes = SIZES
    if kind == "distilbert":
        sizes = dict(zip(DISTIL, list(SIZES.values())[1:5], strict=True))
        sizes |= {k: SIZES[k] for k in ("vocab_size", "max_position_embeddings")}
    config = getattr(transformers, f"{name}Config")(
        **{**sizes, **more}, attn_implementation="eager"
    )
    model = getattr(transformers, f"{name}ForMaskedLM")(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p += 0.3 * torch.randn_like(p)
    return model


def ours(kind, **overrides):
    state = {name: x.numpy() for name, x in theirs(kind).state_dict().items()}
    config = config_from_hf(theirs(kind).config.to_dict(), **overrides)
    return config, params_from_hf(state, config)


def module_of(config):
    return architectures.of_config(config).module(config)


def jitted(config):
    module = module_of(config)
    return jax.jit(
        lambda params, *args, **kw: module.apply(
            {"params": params}, *args, enable_dropout=False, **kw
        )
    )


def rows():
    """Tokens [2, 11], the second row padded behind 7 by RoBERTa's padding."""
    tokens = np.random.default_rng(0).integers(2, 50, (2, 11))
    tokens[1, 7:] = 1
    return tokens, (np.arange(11) < np.array([[11], [7]])).astype(np.int64)


@pytest.mark.parametrize(
    "kind, scan",
    [
        ("bert", False),
        ("roberta", True),
        ("xlm-roberta", False),
        ("camembert", False),
        ("distilbert", True),
        ("electra", False),
        ("electra-wide", True),
        ("modernbert", False),
        ("modernbert", True),
        ("modernbert-biased", False),
        pytest.param("bert", True, marks=pytest.mark.slow),
        pytest.param("roberta", False, marks=pytest.mark.slow),
    ],
)
def test_logits_equal_transformers(kind, scan):
    tokens, mask = rows()
    with torch.no_grad():
        want = theirs(kind)(torch.tensor(tokens), attention_mask=torch.tensor(mask)).logits.numpy()
    config, params = ours(kind, scan_layers=scan)
    apply = jitted(config)
    logits = np.asarray(apply(params, tokens, mask))
    atol = min(1e-4, 1e-5 * np.abs(want).max())
    np.testing.assert_allclose(logits[0], want[0], atol=atol)
    np.testing.assert_allclose(logits[1, :7], want[1, :7], atol=atol)
    positions = np.array([[3, 0], [6, 2]])
    some = np.asarray(apply(params, tokens, mask, target_positions=positions))
    np.testing.assert_allclose(some, np.take_along_axis(logits, positions[..., None], 1), atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_configuration_and_parameters_go_back(kind):
    config, params = ours(kind)
    assert config_from_hf(config_to_hf(config)) == config
    back = params_to_hf(params, config)
    state = theirs(kind).state_dict()
    assert set(state) - set(back) == {
        name
        for name in state
        if name.endswith(("decoder.weight", ".decoder.bias", "projector.weight", "lm_head.weight"))
    }
    for name, value in back.items():
        np.testing.assert_array_equal(value, state[name].numpy())
    shapes = jax.eval_shape(
        lambda: module_of(config).init(jax.random.key(0), rows()[0], enable_dropout=False)
    )["params"]
    assert jax.tree.map(np.shape, params) == jax.tree.map(np.shape, shapes)


@pytest.mark.parametrize("kind", ["roberta", "modernbert"])
def test_packed_rows_equal_each_alone(kind):
    config, params = ours(kind)
    apply, tokens = jitted(config), rows()[0][0]
    alone = [apply(params, part[None])[0] for part in (tokens[:4], tokens[4:])]
    positions = np.concatenate([np.arange(4), np.arange(7)])[None]
    ids = np.repeat([1, 2], [4, 7])[None]
    packed = apply(params, tokens[None], ids, positions)
    np.testing.assert_allclose(packed[0], np.concatenate(alone), atol=1e-5)


def test_names_of_older_files_are_read():
    config, params = ours("bert")
    state = params_to_hf(params, config)
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("Norm.bias", "Norm.beta"): x
        for name, x in state.items()
    }
    old |= {"bert.pooler.dense.weight": np.ones(3), "cls.seq_relationship.bias": np.ones(2)}
    assert old.keys() != state.keys()
    again = params_from_hf(old, config)
    jax.tree.map(np.testing.assert_array_equal, again, params)


def test_what_has_no_language_model_is_refused():
    config, params = ours("electra")
    state = {**params_to_hf(params, config), "discriminator_predictions.dense.bias": np.ones(16)}
    with pytest.raises(UserError, match="ELECTRA's discriminator, which has no output for tokens"):
        params_from_hf(state, config)


def save(kind, golden, folder):
    """A model of random weights with the vocabulary of the golden BERT or RoBERTa."""
    name, more = KINDS[kind]
    source = golden / ("roberta" if kind == "modernbert" else "bert")
    folder.mkdir()
    text = (source / "tokenizer.json").read_text()
    if kind == "modernbert":  # bytes, with BERT's names of special tokens; the mask eats a space
        for old, new in (("<s>", "[CLS]"), ("</s>", "[SEP]"), ("<pad>", "[PAD]")):
            text = text.replace(json.dumps(old), json.dumps(new))
        text = text.replace('"<mask>"', '"[MASK]"').replace('"<unk>"', '"[UNK]"')
    (folder / "tokenizer.json").write_text(text)
    sizes = SIZES | dict(vocab_size=400, max_position_embeddings=66) | more
    config = getattr(transformers, f"{name}Config")(**sizes, initializer_range=0.3)
    torch.manual_seed(1)
    model = getattr(transformers, f"{name}ForMaskedLM")(config).eval()
    model.save_pretrained(folder)
    return model


def masked_score(model, vocabulary, text):
    """Kauf and Ivanova 2023: each token with it and what follows in its word hidden."""
    (encoded,) = vocabulary.encode_words([text])
    ids, words = [vocabulary.bos_id, *encoded.ids, vocabulary.eos_id], [None, *encoded.words, None]
    count = len(encoded.ids)
    rows = [
        [
            vocabulary.mask_id if j >= i and words[j] == words[i] else token
            for j, token in enumerate(ids)
        ]
        for i in range(1, count + 1)
    ]
    with torch.no_grad():
        logs = torch.log_softmax(model(torch.tensor(rows)).logits.double(), -1)
    return logs[range(count), range(1, count + 1), encoded.ids].sum().item()


@pytest.mark.parametrize("kind", ["modernbert", pytest.param("electra", marks=pytest.mark.slow)])
def test_answers_are_ranked_as_transformers_scores_them(kind, tmp_path):
    """By `ckl probe bear` on the folder as imported; the export holds the same bits."""
    golden, there = unpack("lm_pub_quiz_masked.zip", tmp_path / "golden"), tmp_path / "hf"
    model, run = save(kind, golden, there), tmp_path / "run"
    vocabulary = MaskedVocabulary(there)
    assert ckl.main(["import-hf", "--model", str(there), "--out", str(run)]) == 0
    argv = ["--dataset", str(golden / "dataset"), "--out", str(tmp_path / "out")]
    assert ckl.main(["probe", "bear", "--model", str(run), *argv]) == 0
    for relation in Dataset.from_path(golden / "dataset"):
        found = DatasetResults.from_path(tmp_path / "out")[relation.code]
        for row, scores in list(zip(found.table, found.scores, strict=True))[:1]:
            template = relation.templates[row["template_index"]]
            for label, score in zip(relation.answer_labels, scores, strict=True):
                statement = fill(template, row["sub_label"], label).text
                expected = masked_score(model, vocabulary, statement)
                assert score == pytest.approx(expected, abs=2e-3), statement
    export_checkpoint(str(run), str(there / "config.json"), str(tmp_path / "back"))
    again = type(model).from_pretrained(tmp_path / "back")
    for name, value in again.state_dict().items():
        np.testing.assert_array_equal(value, model.state_dict()[name])


def test_a_distilbert_has_the_epsilon_that_transformers_has():
    settings = theirs("distilbert").config.to_dict()
    assert config_from_hf({**settings, "layer_norm_eps": 0.01}) == config_from_hf(settings)


def test_what_a_distilbert_has_other_than_ours_is_named_in_its_words():
    settings = theirs("distilbert").config.to_dict()
    with pytest.raises(UserError, match="activation 'relu': only 'gelu' can be imported"):
        config_from_hf({**settings, "activation": "relu"})
    with pytest.raises(UserError, match="config.json lacks dim: it is not a DistilBERT's"):
        config_from_hf({**settings, "dim": None})


# {kind: layers that PEFT adapts}
ADAPTED = {
    "bert": ["query", "value", "attention.output.dense", "intermediate.dense"],
    "distilbert": ["q_lin", "v_lin", "lin1"],
    "modernbert": ["Wqkv", "Wi"],
}


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # of peft
@pytest.mark.parametrize("kind", ADAPTED)
def test_adapters_of_peft_go_in_and_out(kind, tmp_path):
    peft = pytest.importorskip("peft")
    settings = dict(target_modules=ADAPTED[kind], lora_alpha=6, init_lora_weights=False)
    adapted = peft.get_peft_model(copy.deepcopy(theirs(kind)), peft.LoraConfig(r=4, **settings))
    adapted.eval().save_pretrained(tmp_path / "in")
    config, params = ours(kind)
    tree, found = load_peft(tmp_path / "in", config)
    whole = paths.unflatten(paths.flatten(params) | paths.flatten(tree))
    tokens, mask = rows()
    given = dict(input_ids=torch.tensor(tokens), attention_mask=torch.tensor(mask))
    with torch.no_grad():
        want = adapted(**given).logits.numpy()
        assert np.abs(want - theirs(kind)(**given).logits.numpy()).max() > 0.1
    method = lora(**found, trunk=())
    atol = 1e-5 * np.abs(want).max()
    for of, with_them in ((method.extend(config), whole), (config, merge_lora(whole, 1.5))):
        logits = np.asarray(jitted(of)(with_them, tokens, mask))
        np.testing.assert_allclose(logits[0], want[0], atol=atol)
        np.testing.assert_allclose(logits[1, :7], want[1, :7], atol=atol)
    save_peft(tmp_path / "out", whole, config, found["scale"])
    again = peft.PeftModel.from_pretrained(copy.deepcopy(theirs(kind)), tmp_path / "out").eval()
    with torch.no_grad():
        np.testing.assert_allclose(again(**given).logits.numpy(), want, atol=atol)
