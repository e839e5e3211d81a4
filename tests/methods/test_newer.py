"""EWC, LwF and EMA against what their papers' formulas say, computed another way."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import log_softmax

from ckl_jax.errors import UserError
from ckl_jax.methods.ema import ema
from ckl_jax.methods.ewc import ewc
from ckl_jax.methods.lora import lora
from ckl_jax.methods.lwf import Distillation, lwf, teacher_losses
from ckl_jax.methods.method import Start, combine, vanilla
from ckl_jax.methods.sparse import largest, sparse
from ckl_jax.optim import gradient_squares
from ckl_jax.optim.gradient_squares import wants_statistics, with_statistics
from ckl_jax.train.prepare import BEFORE, Prepared, loss_of
from ckl_jax.train.setup import make_optimizer
from ckl_jax.train.state import TrainState, swapped
from ckl_jax.train.step import SUMS, make_train_step
from ckl_jax.trees.partition import merge, split
from ckl_jax.trees.paths import flatten, unflatten
from tests.helpers import (
    TINY,
    TINY_GPT2,
    assert_trees_close,
    logits_of,
    model_of,
    random_batch,
    random_params,
)

SMALLER = dataclasses.replace(TINY, num_encoder_layers=1, num_decoder_layers=1)


def _numbers(seed, *shape):
    return jnp.asarray(np.random.RandomState(seed).standard_normal(shape), jnp.float32)


# --- a stranger's method


def test_what_a_seam_gives_is_checked():
    model = model_of(TINY_GPT2)
    own = dataclasses.replace(vanilla(), name="own")
    three = dataclasses.replace(own, wrap=lambda tx: 3)
    with pytest.raises(UserError, match="wrap of method 'own' returned 3; give an optax"):
        make_optimizer(model, three, optax.sgd, lambda step: 0.1, None)
    no_pair = dataclasses.replace(own, loss=lambda model, base: lambda *given: jnp.float32(1.0))
    with pytest.raises(UserError, match="The loss of method 'own' must return a sum and"):
        loss_of(no_pair, model, model)({BEFORE: {}}, {}, None)
    no_sums = dataclasses.replace(own, loss=lambda model, base: lambda *given: (jnp.ones(()), {}))
    with pytest.raises(UserError, match="loss of method 'own' returns lack denominator, loss, z_l"):
        loss_of(no_sums, model, model)({BEFORE: {}}, {}, None)
    state = TrainState.create({"a": jnp.zeros(3)}, optax.adam(0.1))
    with pytest.raises(UserError, match="loss of method 'own' returned None; give a function"):
        loss_of(dataclasses.replace(own, loss=lambda model, base: None), model, model)
    nothing = dataclasses.replace(own, tx=lambda schedule: None)
    with pytest.raises(UserError, match="tx of method 'own' returned None; give an optax"):
        make_optimizer(model, nothing, optax.sgd, lambda step: 0.1, 1.0)
    other = [jax.tree.map(lambda x, to=to: to, state.opt_state) for to in (jnp.zeros(2), "x")]
    for made in (None, *other):
        method = dataclasses.replace(own, init_opt_state=lambda state, start, made=made: made)
        run = types.SimpleNamespace(method=method, model=model)
        with pytest.raises(UserError, match="init_opt_state of method 'own' returned a state"):
            Prepared.method_state(run, state, {})


def test_updates_of_other_shapes_are_named():
    def update(updates, state, params=None):
        return jax.tree.map(jnp.sum, updates), state

    tx = optax.GradientTransformation(lambda params: (), update)
    state = TrainState.create({"a": {"b": jnp.ones(3)}}, tx)

    def loss(params, batch, key):
        return params["a"]["b"].sum(), dict.fromkeys(SUMS, jnp.float32(1))

    with pytest.raises(UserError, match=r"gives a/b an update of shape \(\), .* has \(3,\)"):
        make_train_step(loss, tx)(state, {}, {}, jax.random.key(0))


# --- EMA


def test_the_average_follows_its_recurrence():
    tx = ema(0.8).wrap(optax.sgd(0.1))
    params = {"a": _numbers(0, 3), "b": _numbers(1, 2, 2)}
    state = TrainState.create(params, tx)
    wanted = jax.tree.map(np.float64, params)
    for i in range(5):
        grads = {"a": _numbers(2 + i, 3), "b": _numbers(20 + i, 2, 2)}
        updates, opt_state = tx.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        state = state.replace(params=params, opt_state=opt_state)
        wanted = jax.tree.map(lambda w, p: 0.8 * w + 0.2 * np.float64(p), wanted, params)
    saved = swapped(state)
    assert_trees_close(saved.params, wanted)
    again = swapped(saved)
    assert jax.tree.all(jax.tree.map(lambda x, y: bool((x == y).all()), again, state))


def test_a_state_without_an_average_stays():
    state = TrainState.create({"a": _numbers(0, 3)}, optax.adam(0.1))
    assert jax.tree.all(jax.tree.map(lambda x, y: x is y, swapped(state), state))


def test_no_decay_is_plain_training():
    tx = ema(0.0).wrap(optax.sgd(0.1))
    params = {"a": _numbers(0, 3)}
    state = TrainState.create(params, tx)
    updates, opt_state = tx.update({"a": _numbers(1, 3)}, state.opt_state, params)
    params = optax.apply_updates(params, updates)
    averaged = swapped(state.replace(params=params, opt_state=opt_state)).params
    assert_trees_close(averaged, params)


# --- EWC


def test_the_pull_is_the_gradient_of_the_penalty():
    anchor, params = {"a": _numbers(0, 3)}, {"a": _numbers(1, 3)}
    fisher, grads = {"a": jnp.abs(_numbers(2, 3))}, {"a": _numbers(3, 3)}
    tx = ewc(7.0).wrap(optax.identity())
    state = tx.init(anchor)
    assert wants_statistics(state)
    found, _ = tx.update(grads, with_statistics(state, fisher, 5), params)

    def penalty(p):
        return 3.5 * jnp.sum(fisher["a"] * jnp.square(p["a"] - anchor["a"]))

    assert_trees_close(found, jax.tree.map(jnp.add, grads, jax.grad(penalty)(params)))


def test_fisher_information_is_the_mean_over_examples():
    model, params = model_of(SMALLER), random_params(SMALLER)
    batches = [random_batch(SMALLER, seed=i) for i in range(2)]
    batches[1]["decoder_loss_weights"][3] = 0  # a row of padding counts for nothing
    trainable, frozen = split(params, ("decoder_norm",))
    method, counts = ewc(examples=9), []
    start = Start(
        model=model,
        trainable=trainable,
        frozen=frozen,
        examples=lambda count: counts.append(count) or iter(batches),
    )
    pull, _ = method.init_opt_state(method.wrap(optax.identity()).init(trainable), start)
    found = pull.fisher
    assert counts == [9]
    assert_trees_close(pull.anchor, trainable, rtol=0, atol=0)

    def likelihoods(trainable, batch):
        log_p = jax.nn.log_softmax(model.logits(merge(trainable, frozen), batch))
        log_p = jnp.take_along_axis(log_p, batch["decoder_target_tokens"][..., None], -1)[..., 0]
        return jnp.sum(log_p * batch["decoder_loss_weights"], axis=1)

    jacobian = jax.jit(jax.jacrev(likelihoods))
    rows = [flatten(jacobian(trainable, batch)) for batch in batches]
    wanted = {p: sum(np.square(r[p]).sum(axis=0) for r in rows) / 7 for p in rows[0]}
    assert_trees_close(found, unflatten(wanted), rtol=1e-3)


def test_fisher_information_is_of_each_example_of_packed_rows():
    # The gradient of a log likelihood is how often each token is in it.
    def score(params, batch):
        return jnp.sum(params["w"][batch["tokens"]] * batch["decoder_loss_weights"], axis=-1)

    tokens = jnp.asarray([[0, 1, 1, 2, 3, 3], [2, 2, 0, 0, 0, 0]])
    batch = {"tokens": tokens, "decoder_loss_weights": jnp.asarray([[1.0] * 6, [1, 1, 0, 0, 0, 0]])}
    params = {"w": jnp.zeros(4)}
    found, count = gradient_squares.of_examples(score, params, {}, [batch])
    assert count == 2 and found["w"].tolist() == [0.5, 2, 2.5, 2]
    packed = {**batch, "decoder_segment_ids": jnp.asarray([[1, 1, 2, 2, 3, 3], [1, 1, 0, 0, 0, 0]])}
    found, count = gradient_squares.of_examples(score, params, {}, [packed])
    assert count == 4 and found["w"].tolist() == [0.25, 0.5, 1.25, 1]


# --- LwF


def test_the_teachers_loss_in_float64():
    student, teacher = _numbers(0, 2, 3, 7), _numbers(1, 2, 3, 7)
    known = log_softmax(np.float64(teacher) / 2, axis=-1)
    learned = log_softmax(np.float64(student) / 2, axis=-1)
    wanted = 4 * np.sum(np.exp(known) * (known - learned), axis=-1)
    np.testing.assert_allclose(teacher_losses(student, teacher, 2.0), wanted, rtol=1e-4)
    assert np.abs(teacher_losses(student, student, 2.0)).max() < 1e-6


@pytest.mark.parametrize("weight", [pytest.param(0.0, marks=pytest.mark.slow), 3.0])
def test_the_teacher_is_silent_where_both_agree_and_pulls_where_not(weight):
    model, batch, before = model_of(SMALLER), random_batch(SMALLER), random_params(SMALLER)
    loss_fn = Distillation(weight)(model, model)

    @jax.jit
    def gradients(params):
        plain = jax.grad(lambda p: model.loss_fn(p, batch)[0])(params)
        with_it = jax.grad(lambda p: loss_fn(p, before, batch, None)[0])(params)
        differ = jax.tree.map(lambda x, y: jnp.abs(x - y).max(), plain, with_it)
        return jnp.max(jnp.stack(jax.tree.leaves(differ)))

    assert gradients(before) < 1e-4
    drifted = gradients(jax.tree.map(lambda x: x + 0.05 * jnp.sign(x), before))
    assert drifted > 1e-2 if weight else drifted < 1e-4


@pytest.mark.parametrize("rows", [4, 2])
def test_the_loss_is_a_sum_over_targets_of_both_losses_in_float64(rows):
    """Of any number of rows, and of no target that is padding."""
    config = dataclasses.replace(TINY_GPT2, num_layers=1)
    model, batch = model_of(config), random_batch(config, batch=rows)
    old, new = random_params(config), random_params(config, seed=1)
    learned, known = (np.float64(logits_of(config, p, batch)) for p in (new, old))
    targets, weights = batch["decoder_target_tokens"], batch["decoder_loss_weights"]
    cross = -np.take_along_axis(log_softmax(learned, -1), targets[..., None], -1)[..., 0]
    soft, hard = log_softmax(learned / 3, -1), log_softmax(known / 3, -1)
    wanted = cross + 0.5 * 9 * np.sum(np.exp(hard) * (hard - soft), axis=-1)
    method = lwf(weight=0.5, temperature=3.0)
    loss_fn = jax.jit(loss_of(method, model, model))
    loss, sums = loss_fn({**new, BEFORE: old}, batch, None)
    np.testing.assert_allclose(loss, np.sum(weights * wanted), rtol=1e-4)
    np.testing.assert_allclose(sums["loss"], np.sum(weights * cross), rtol=1e-4)


@pytest.mark.slow
def test_the_reported_loss_is_the_cross_entropy():
    model, batch, params = model_of(SMALLER), random_batch(SMALLER), random_params(SMALLER)
    other = jax.tree.map(lambda x: x * 0.5, params)
    taught = Distillation()(model, model)
    step = make_train_step(
        lambda p, b, key: taught(p, other, b, key), optax.sgd(0.1), dropout=False
    )
    state = TrainState.create(params, optax.sgd(0.1))
    _, metrics = jax.jit(step)(state, {}, batch, jax.random.key(0))
    value, sums = jax.jit(model.loss_fn)(params, batch)
    np.testing.assert_allclose(metrics["loss"], value / sums["tokens"], rtol=1e-5)
    assert metrics["objective"] > metrics["loss"] * 1.001


def test_they_combine_with_what_fills_other_seams():
    both = combine(lwf(), combine(lora(), ema()), name="all")
    assert both.loss and both.dense and both.wrap
    with pytest.raises(UserError, match="both fill 'wrap'"):
        combine(ewc(), ema())
    assert combine(vanilla(), ewc(examples=3)).reads_earlier_data


@pytest.mark.parametrize("make", [lambda: ema(1.0), lambda: ewc(-1.0), lambda: lwf(temperature=0)])
def test_numbers_out_of_range(make):
    with pytest.raises(UserError):
        make()


# --- sparse updates


@pytest.mark.parametrize("fraction", [1e-9, 0.03, 0.5, 1.0])
def test_the_largest_entries_are_those_of_a_sort(fraction):
    x = np.abs(np.asarray(_numbers(0, 7, 41))) ** 9
    x[0, :5] = [0.0, 1e-42, 3e38, x[1, 1], x[1, 1]]
    count = max(1, int(np.ceil(fraction * x.size)))
    least = np.sort(x.ravel())[::-1][count - 1]
    found = jax.jit(largest, static_argnums=1)(x, fraction)
    np.testing.assert_array_equal(found, (x >= least) & (x > 0))


@pytest.mark.parametrize("accumulated", [False, True])
def test_only_the_entries_with_the_largest_gradients_move(accumulated):
    """The optimizer's own state is that of a run that moves everything by the same gradients."""
    tx, plain = sparse(0.25, accumulated).wrap(optax.adam(0.1)), optax.adam(0.1)
    params = {"a": _numbers(0, 8), "b": _numbers(1, 4, 5)}
    state, dense = tx.init(params), plain.init(params)
    squares = jax.tree.map(np.zeros_like, params)
    for i in range(4):
        grads = {"a": _numbers(2 + i, 8), "b": _numbers(20 + i, 4, 5)}
        squares = jax.tree.map(lambda s, g: s + np.square(g), squares, grads)
        updates, state = tx.update(grads, state, params)
        whole, dense = plain.update(grads, dense, params)
        for path, size in (squares if accumulated else jax.tree.map(np.abs, grads)).items():
            kept = np.argsort(-np.ravel(size))[: updates[path].size // 4]
            wanted = np.zeros(updates[path].size)
            wanted[kept] = np.ravel(whole[path])[kept]
            np.testing.assert_allclose(np.ravel(updates[path]), wanted, rtol=1e-6)
    with pytest.raises(UserError, match="fraction is 0; give a number above 0, up to 1"):
        sparse(0)
