"""Our BERT and RoBERTa against Hugging Face's, side by side on random weights."""

import functools

import jax
import numpy as np
import pytest

from ckl_jax.checkpoints.hf_names import (
    config_from_hf,
    config_to_hf,
    params_from_hf,
    params_to_hf,
)
from ckl_jax.models.bert import Transformer

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
    config = getattr(transformers, f"{name}Config")(**sizes, **more, attn_implementation="eager")
    model = getattr(transformers, f"{name}ForMaskedLM")(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p += 0.3 * torch.randn_like(p)
    return model


def ours(kind, **overrides):
    state = {name: x.numpy() for name, x in theirs(kind).state_dict().items()}
    config = config_from_hf(theirs(kind).config.to_dict(), **overrides)
    return config, params_from_hf(state, config)


def jitted(config):
    module = Transformer(config)
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
    np.testing.assert_allclose(logits[0], want[0], atol=3e-5)
    np.testing.assert_allclose(logits[1, :7], want[1, :7], atol=3e-5)
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
        if name.endswith((".decoder.weight", ".decoder.bias", "vocab_projector.weight"))
    }
    for name, value in back.items():
        np.testing.assert_array_equal(value, state[name].numpy())
    shapes = jax.eval_shape(
        lambda: Transformer(config).init(jax.random.key(0), rows()[0], enable_dropout=False)
    )["params"]
    assert jax.tree.map(np.shape, params) == jax.tree.map(np.shape, shapes)


def test_packed_rows_equal_each_alone():
    config, params = ours("roberta")
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
