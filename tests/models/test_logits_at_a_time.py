"""Losses of a few positions at a time are those of all logits at once."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ckl_jax.errors import UserError
from ckl_jax.methods.lora import lora
from ckl_jax.parallel.flops import of_jaxpr
from ckl_jax.train import setup
from ckl_jax.trees.partition import merge, split
from tests.helpers import (
    TINY,
    TINY_DECODER,
    TINY_GPT2,
    TINY_T5GEMMA,
    TINY_V1_1,
    assert_trees_close,
    model_of,
    random_batch,
    random_params,
)

# One layer below the logits shows as much as two.
CONFIGS = {
    "decoder": dataclasses.replace(TINY_DECODER, num_layers=1),
}
MORE = {
    "T5": dataclasses.replace(TINY, num_encoder_layers=1, num_decoder_layers=1),
    "T5 v1.1": TINY_V1_1,
    "T5Gemma": TINY_T5GEMMA,
    "T5Gemma, untied": dataclasses.replace(TINY_T5GEMMA, logits_via_embedding=False),
    "GPT-2": TINY_GPT2,
    "decoder, untied": dataclasses.replace(TINY_DECODER, logits_via_embedding=False),
}


each_config = pytest.mark.parametrize(
    "config",
    [*CONFIGS.values(), *(pytest.param(x, marks=pytest.mark.slow) for x in MORE.values())],
    ids=[*CONFIGS, *MORE],
)


@each_config
def test_sums_and_gradients_do_not_depend_on_it(config):
    model = dataclasses.replace(model_of(config), z_loss=0.01, label_smoothing=0.1)
    params, batch = random_params(config), random_batch(config)
    assert batch["decoder_target_tokens"].shape[1] % 3  # the last part is shorter

    def of(size):
        part = dataclasses.replace(model, logits_at_a_time=size)
        key = jax.random.key(1)  # of dropout, before the logits
        loss = jax.value_and_grad(lambda p: part.loss_fn(p, batch, key), has_aux=True)
        scores = jax.jit(lambda p: (loss(p), part.score_batch(p, batch)))
        return scores(params)

    ((wanted, sums), grads), scored = of(0)
    ((value, parts), part_grads), part_scored = of(3)
    np.testing.assert_allclose(value, wanted, rtol=1e-6)
    for name in sums:
        np.testing.assert_allclose(parts[name], sums[name], rtol=1e-5, err_msg=name)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), part_grads, grads
    )
    np.testing.assert_allclose(part_scored, scored, rtol=1e-5)


@each_config
def test_a_frozen_head_takes_one_computation_of_logits(config):
    """Sums, and gradients of what trains, are those of all logits at once."""
    config = dataclasses.replace(lora(rank=2, trunk=()).extend(config), scan_layers=True)
    model = dataclasses.replace(model_of(config), z_loss=0.01, label_smoothing=0.1)
    params, batch = random_params(config), random_batch(config)
    trainable, frozen = split(params, ("/lora_0/",))
    training = setup.for_gradients(model, trainable)
    assert training.frozen_head and not setup.for_gradients(model, params).frozen_head

    def of(model):
        def loss(trainable):
            return model.loss_fn(merge(trainable, frozen), batch, jax.random.key(1))

        return jax.jit(jax.value_and_grad(loss, has_aux=True))

    (value, sums), grads = of(dataclasses.replace(model, logits_at_a_time=0))(trainable)
    part = dataclasses.replace(training, logits_at_a_time=3)
    (found, parts), part_grads = of(part)(trainable)
    np.testing.assert_allclose(found, value, rtol=1e-6)
    for name in sums:
        np.testing.assert_allclose(parts[name], sums[name], rtol=1e-5, err_msg=name)
    assert_trees_close(part_grads, grads, rtol=1e-4, atol=1e-5)
    again = dataclasses.replace(part, frozen_head=False)
    flops = [of_jaxpr(jax.make_jaxpr(of(m))(trainable)) for m in (part, again)]
    rows, length = batch["decoder_target_tokens"].shape
    padded = length + -length % 3
    assert flops[1] - flops[0] == 2 * rows * padded * config.emb_dim * config.vocab_size


def test_large_logits_are_split_by_themselves(monkeypatch):
    monkeypatch.setattr("ckl_jax.models.base._LOGITS_BYTES", 4 * 64 * 8)
    model, shapes = model_of(TINY_GPT2), []
    params, batch = random_params(TINY_GPT2), random_batch(TINY_GPT2)
    rows, length = batch["decoder_target_tokens"].shape

    def note(logits, targets):
        shapes.append(logits.shape)
        return jnp.zeros(targets.shape)

    assert model.per_token(note, params, batch).shape == (rows, length)
    assert shapes and all(s == (rows, 8 // rows, 64) for s in shapes)


def test_a_negative_number_is_refused():
    with pytest.raises(UserError, match="LOGITS_AT_A_TIME is -1"):
        dataclasses.replace(model_of(TINY), logits_at_a_time=-1)
