"""Scores by a trie, against the model on one statement at a time."""

import dataclasses

import jax
import numpy as np
import pytest

from ckl_jax.data.facts.statements import fill
from ckl_jax.papers.lm_pub_quiz.scorers import CausalScorer
from tests.helpers import TINY_GPT2, TINY_XL, model_of, random_params

STATEMENTS = [
    fill(template, subject, answer)
    for template in ("[X]:[Y].", "[Y]<[X]!")
    for subject in ("ab", "abc", "c")
    for answer in ("x", "xy", "zyx")
]


class Letters:
    """A letter a token."""

    bos_id, eos_id, pad_id = 2, 1, 0

    def encode_many(self, texts):
        return [[3 + ord(c) % 60 for c in text] for text in texts]


def scores(config, start, **memory):
    """Of `CausalScorer`, and [S, L] of rows that hold a statement each, behind `start`."""
    model = model_of(config, vocabulary=Letters(), **memory)
    params = random_params(config, 1)
    scorer = CausalScorer(model, params, width=16, batch_size=2)
    found = scorer.token_scores(STATEMENTS)
    targets = np.where(found.scored, found.ids, 0)
    inputs = np.concatenate([np.full((len(targets), 1), start), targets[:, :-1]], axis=1)
    batch = {"decoder_input_tokens": inputs, "decoder_target_tokens": targets}
    if memory:
        batch["decoder_segment_ids"] = found.scored.astype(np.int32)
        empty = model.initial_memory(len(targets))
        return found, -np.array(jax.jit(model.stream_losses)(params, batch, empty)[0])
    logits = jax.nn.log_softmax(jax.jit(model.logits)(params, batch))
    return found, np.take_along_axis(np.array(logits), targets[..., None], axis=-1)[..., 0]


def assert_same(found, wanted):
    lengths = [len(s.text) for s in STATEMENTS]
    assert found.scored.sum(axis=1).tolist() == lengths
    np.testing.assert_allclose(found.values, np.where(found.scored, wanted, 0), atol=2e-5)


@pytest.mark.slow  # tests/parity/test_lm_pub_quiz.py says it too
def test_gpt2_sees_each_statement_behind_bos():
    assert_same(*scores(TINY_GPT2, Letters.bos_id))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param({"same_length": True, "scale_embedding": True}, marks=pytest.mark.slow),
        pytest.param({"clamp_len": 3, "scan_layers": True}, marks=pytest.mark.slow),
    ],
)
def test_a_transformer_xl_sees_each_statement_behind_eos_and_an_empty_memory(changes):
    config = dataclasses.replace(TINY_XL, **changes)
    assert_same(*scores(config, Letters.eos_id, memory_length=16))
