"""Continuations of prompts in batches, and their scores, against the model's own."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ckl_jax.errors import UserError
from ckl_jax.probes.answering import EncoderDecoderGenerator
from ckl_jax.probes.continuing import DecoderOnlyGenerator
from tests.helpers import TINY_GPT2, model_of, random_params

EOS = 1


class Numbers:
    eos_id = EOS

    def decode(self, ids):
        ids = list(map(int, ids))
        return " ".join(map(str, ids[: ids.index(EOS)] if EOS in ids else ids))


@pytest.fixture(scope="module")
def model():
    return dataclasses.replace(model_of(TINY_GPT2), vocabulary=Numbers())


def test_batches_write_and_score_as_the_model_does_at_once(model):
    params = random_params(TINY_GPT2)
    prompts = [[5, 6, 7, EOS], [8, EOS], [9, 10, 11, 12, 13, 14, EOS]]
    generator = DecoderOnlyGenerator(model, batch_size=2, options={"length_penalty": 0.0})
    found = list(generator.scored_answers(params, prompts, 5, 5, 2))
    tokens = jnp.array([[5, 6, 7, 0, 0], [8, 0, 0, 0, 0], [10, 11, 12, 13, 14]])
    once = jax.jit(
        lambda p: model.predict(
            p, tokens, 4, jnp.array([3, 1, 5]), beam_size=2, num_return=2, length_penalty=0.0
        )
    )(params)
    targets = []
    for i, (texts, scores) in enumerate(found):
        assert texts == [Numbers().decode(ids) for ids in once.tokens[i]]
        np.testing.assert_allclose(scores, once.scores[i], rtol=1e-4)
        targets.append([*map(int, texts[0].split()), EOS])
    likely = list(generator.scores(params, prompts, targets, (5, 4)))
    whole = [len(target) == 5 for target in targets]  # those that the search did not end
    assert any(whole)
    for score, (_, scores), ran_on in zip(likely, found, whole, strict=True):
        assert score >= scores[0] - 1e-4 and (not ran_on or score == pytest.approx(scores[0], 1e-4))


def test_an_empty_prompt_is_the_end_of_a_text(model):
    generator = DecoderOnlyGenerator(model, batch_size=1)
    assert generator._prompt([EOS], 4) == generator._prompt([], 4) == [EOS]


def test_what_is_longer_than_the_lengths_is_counted(model):
    generator = DecoderOnlyGenerator(model, batch_size=1)
    rows = [5, 6, 7, EOS], [8, 9, EOS]  # EOS is not counted
    assert generator.cut(rows, rows, (3, 3)) == (0, 0)
    assert generator.cut(rows, rows, (2, 1)) == (1, 2)
    seq2seq = object.__new__(EncoderDecoderGenerator)  # it asks no model
    assert seq2seq.cut(rows, rows, (4, 3)) == (0, 1)


def test_a_prompt_begins_with_what_the_family_puts_before_a_text(model):
    class Llama(Numbers):
        around = ((2,), ())

    generator = DecoderOnlyGenerator(dataclasses.replace(model, vocabulary=Llama()), batch_size=1)
    assert generator._prompt([5, 6, EOS], 4) == generator._prompt([2, 5, 6], 4) == [2, 5, 6]
    assert generator._prompt([5, 6, 7, 8, EOS], 3) == [2, 7, 8]  # cut behind it
    assert generator._prompt([EOS], 4) == generator._prompt([5], 1) == [2]


def test_each_kind_of_model_has_its_own(model):
    with pytest.raises(UserError, match="DecoderOnlyGenerator"):
        EncoderDecoderGenerator(model, batch_size=1)
