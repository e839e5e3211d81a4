"""Loss, gradients, one update, decodes and scores are upstream T5X's to 1e-5."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ckl_jax.models import decoding
from ckl_jax.models.encoder_decoder import EncoderDecoderModel
from ckl_jax.models.t5 import T5Config, Transformer
from ckl_jax.optim.adafactor import adafactor_t5x
from ckl_jax.train.state import TrainState
from ckl_jax.train.step import make_train_step
from ckl_jax.trees.paths import flatten, unflatten
from tests.parity import golden_t5
from tests.parity.golden import steps

TRANSFORMATIONS = {
    "adafactor": adafactor_t5x(steps.LEARNING_RATES["adafactor"]),
    "adamw": optax.adamw(steps.LEARNING_RATES["adamw"], **steps.ADAM),
}
PACKINGS = ("plain", "packed")


@pytest.fixture(scope="module")
def stored():
    with np.load(golden_t5.GOLDEN / "t5x_steps.npz") as file:
        return dict(file)


@pytest.fixture(scope="module")
def params():
    return unflatten({k: jnp.asarray(v) for k, v in steps.weights(_shapes()).items()})


def _shapes():
    ids = jnp.ones((1, 1), jnp.int32)
    made = jax.eval_shape(
        lambda: Transformer(_config()).init(jax.random.key(0), ids, ids, ids, enable_dropout=False)
    )
    return {path: x.shape for path, x in flatten(made["params"]).items()}


def _config(dropout=0.0):
    return T5Config(**steps.SIZES, dropout_rate=dropout)


def _model(factor=None, dropout=0.0):
    module = Transformer(_config(dropout))
    return EncoderDecoderModel(module, loss_normalizing_factor=factor, **steps.LOSS)


class _OfAnyFactor(EncoderDecoderModel):
    """Normalises by the factor whose number the batch says: one program serves them all."""

    def loss_fn(self, params, batch, dropout_rng=None):
        number = batch["factor"][0].astype(jnp.int32)
        models = [_model(factor) for factor in steps.FACTORS.values()]

        def normalizer(weights, segment_ids):
            each = [model._normalizer(weights, segment_ids) for model in models]
            scales = jnp.stack([jnp.broadcast_to(scale, weights.shape) for scale, _ in each])
            return scales[number], jnp.stack([count for _, count in each])[number]

        one = _model()
        object.__setattr__(one, "_normalizer", normalizer)
        return one.loss_fn(params, batch, dropout_rng)


@functools.cache
def _compiled(microbatches, legacy=False):
    """(loss, gradients and parameters after an update) by the runner's own step."""
    model = _OfAnyFactor(Transformer(_config()), **steps.LOSS)
    step = make_train_step(
        model.loss_fn,
        RECORDER,
        num_microbatches=microbatches,
        dropout=False,
        legacy_microbatch_means=legacy,
    )

    def run(params, batch):
        state, _ = step(TrainState.create(params, RECORDER), {}, batch, jax.random.key(0))
        return state.opt_state, _mean_loss(*model.loss_fn(params, batch))

    return jax.jit(run)


def _record(grads, state, params):
    """The "state" after a step: what the step gave to the optimizer, and what each makes of it."""
    found = {"gradients": grads}
    for name, tx in TRANSFORMATIONS.items():
        update, _ = tx.update(grads, tx.init(params), params)
        found[name] = optax.apply_updates(params, update)
    return grads, found


RECORDER = optax.GradientTransformation(lambda params: None, _record)


def _mean_loss(total, sums):
    return total / jnp.where(sums["denominator"] > 0, sums["denominator"], 1.0)


def _assert_close(leaves, expected, times=1.0, rounding=None):
    """Each measure within 1e-5 of its leaf's norm, and what storing the result may round off."""
    allowed = 1e-5 * expected[:, :1]
    if rounding is not None:
        allowed = allowed + 2.0**-24 * steps.measures(rounding)[:, :1]
    share = np.abs(steps.measures(leaves) * times - expected) / allowed
    worst = dict(zip(sorted(leaves), share.max(axis=1), strict=True))
    assert {path: size for path, size in worst.items() if not size <= 1.0} == {}


def _moved(params, after):
    before = flatten(params)
    return {k: np.float64(v) - np.float64(before[k]) for k, v in flatten(after).items()}


@pytest.mark.parametrize("packing", [pytest.param("plain", marks=pytest.mark.slow), "packed"])
@pytest.mark.parametrize("microbatches", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_loss_gradients_and_one_update_are_those_of_t5x(stored, params, packing, microbatches):
    batch = steps.batches()[packing]
    rows = len(batch["encoder_input_tokens"])
    for number, factor in enumerate(steps.FACTORS):
        case = {**batch, "factor": np.full(rows, number)}
        found, loss = _compiled(microbatches)(params, case)
        gradients = flatten(found["gradients"])
        for optimizer in TRANSFORMATIONS:
            name = f"{packing}/{optimizer}/{factor}/1"
            np.testing.assert_allclose(loss, stored[f"{name}/loss"], rtol=1e-5, err_msg=name)
            _assert_close(gradients, stored[f"{name}/gradients"])
            moved = _moved(params, found[optimizer])
            _assert_close(moved, stored[f"{name}/update"], rounding=flatten(params))
        if microbatches > 1 and factor in steps.UPSTREAM_TIMES_OURS:
            times = steps.UPSTREAM_TIMES_OURS[factor]
            name = f"{packing}/adafactor/{factor}/{microbatches}"
            _assert_close(gradients, stored[f"{name}/gradients"], times)
            legacy = flatten(_compiled(microbatches, legacy=True)(params, case)[0]["gradients"])
            _assert_close(legacy, stored[f"{name}/gradients"])


@pytest.mark.parametrize("packing", [pytest.param("plain", marks=pytest.mark.slow), "packed"])
def test_dropout_drops_what_t5x_drops(stored, params, packing):
    model, key = _model(dropout=steps.DROPOUT_RATE), jax.random.PRNGKey(7)
    batch = steps.batches()[packing]
    (loss, _), grads = jax.jit(jax.value_and_grad(model.loss_fn, has_aux=True))(params, batch, key)
    np.testing.assert_allclose(loss, stored[f"{packing}/dropout/loss"], rtol=1e-5)
    _assert_close(flatten(grads), stored[f"{packing}/dropout/gradients"])


@pytest.mark.parametrize("packing", PACKINGS)
def test_scores_are_those_of_t5x(stored, params, packing):
    scores = jax.jit(_model().score_batch)(params, steps.batches()[packing])
    np.testing.assert_allclose(scores, stored[f"{packing}/score"], rtol=1e-5)


@pytest.mark.parametrize("beams", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_decodes_are_those_of_t5x(stored, params, beams):
    inputs = steps.batches()["plain"]["encoder_input_tokens"]

    @functools.partial(jax.jit, static_argnums=2)
    def predict(params, inputs, decode_fn):
        model = EncoderDecoderModel(Transformer(_config()), decode_fn=decode_fn)
        return model.predict(params, inputs, steps.DECODE_LENGTH)

    search = functools.partial(decoding.beam_search, beam_size=beams, rule="t5x", num_return=beams)
    found = predict(params, inputs, search)
    np.testing.assert_array_equal(found.tokens, stored[f"beams_{beams}/tokens"])
    np.testing.assert_allclose(found.scores, stored[f"beams_{beams}/scores"], rtol=1e-5)
    if beams == 1:
        greedy = predict(params, inputs, decoding.greedy_decode)
        np.testing.assert_array_equal(greedy.tokens[:, 0], stored["greedy/tokens"])


def test_the_stored_values_say_where_they_come_from(stored):
    made_by = json.loads(str(stored["provenance"]))
    assert made_by["t5x"] == "cc342d4"
    assert {"jax", "flax", "optax", "seqio"} <= made_by.keys()
