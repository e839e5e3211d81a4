"""The masks of dynamic evaluation on every architecture, by paths alone."""

import jax
import pytest

from ckl_jax.errors import UserError
from ckl_jax.methods.subsets import patterns_of
from ckl_jax.trees.partition import select
from ckl_jax.trees.paths import flatten
from tests.helpers import TINY, TINY_GPT2, TINY_T5GEMMA, model_of


def paths_of(config):
    return list(flatten(jax.eval_shape(model_of(config).init, jax.random.key(0))["params"]))


def selected(config, mask):
    paths = paths_of(config)
    chosen = select(paths, patterns_of(mask, paths, architecture="T5Config"))
    return {p for p, c in zip(paths, chosen, strict=True) if c}


def test_gpt2():
    paths = set(paths_of(TINY_GPT2))
    assert selected(TINY_GPT2, "all") == paths
    assert selected(TINY_GPT2, "embedding") == {"token_embedder/embedding"}
    bias = selected(TINY_GPT2, "bias")
    assert bias == {p for p in paths if p.endswith("/bias")}
    assert len(bias) == 2 * 8 + 1  # four of attention, two of the MLP, two norms; the last norm


def test_t5_has_no_biases():
    assert selected(TINY, "embedding") == {"token_embedder/embedding"}
    tables = {"token_embedder/embedding", "decoder_token_embedder/embedding"}
    assert selected(TINY_T5GEMMA, "embedding") == tables
    with pytest.raises(UserError, match="a? ?T5Config: it has no bias"):
        selected(TINY, "bias")


def test_none_and_patterns():
    paths = paths_of(TINY_GPT2)
    assert patterns_of("none", paths) == ()
    assert patterns_of(["^decoder/layers_0/"], paths) == ("^decoder/layers_0/",)
    with pytest.raises(UserError, match="matches none of the"):
        patterns_of(["^encoder/"], paths)
    with pytest.raises(UserError, match="MASK is 'biases'; choose from all, bias"):
        patterns_of("biases", paths)


def test_the_output_bias_is_part_of_the_embedding_or_not():
    paths = ["token_embedder/embedding", "token_embedder/bias", "decoder/mlp/bias"]
    assert sum(select(paths, patterns_of("embedding", paths))) == 2
    without = patterns_of("embedding", paths, include_output_bias=False)
    assert select(paths, without) == [True, False, False]
    assert sum(select(paths, patterns_of("bias", paths))) == 2
