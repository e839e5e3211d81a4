"""Every method through the same invariants; a new method enters by one line in `tests.helpers`."""

import contextlib
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ckl_jax.errors import UserError
from ckl_jax.methods.k_adapter import k_adapter
from ckl_jax.methods.lora import lora, merge_lora
from ckl_jax.methods.lwf import lwf
from ckl_jax.methods.method import Method, Start, combine
from ckl_jax.methods.mix_review import mix_review
from ckl_jax.methods.replay import replay
from ckl_jax.models.t5 import Transformer
from ckl_jax.optim.adafactor import adafactor_hf
from ckl_jax.train.prepare import BEFORE, loss_of
from ckl_jax.train.setup import make_optimizer
from ckl_jax.train.state import TrainState
from ckl_jax.train.step import make_train_step
from ckl_jax.trees.partition import merge, split
from ckl_jax.trees.paths import flatten, loop_to_scan, scan_to_loop, unflatten
from tests.helpers import (
    GPT2_METHODS,
    METHODS,
    TABLE,
    TINY,
    TINY_BERT,
    TINY_GPT2,
    TINY_V1_1,
    TINY_XL,
    assert_trees_close,
    count,
    forward,
    init_params,
    logits_of,
    method_of,
    model_of,
    param_shapes,
    random_batch,
    random_params,
    tokens,
)

# Second phases and second sizes repeat the same code: their longer tests run in `make test-slow`.
LONG = ("lora_phase2", "k_adapter_k3", "k_adapter_phase2", "modular_phase2", "lora+mix_review")
WRAPPING = [("k_adapter_k2", TINY), ("modular", TINY)]
CASES = [(name, TINY) for name in METHODS] + [(name, TINY_V1_1) for name in ("vanilla", "lora")]
CASES += [(name, base) for base in TABLE if base is not TINY for name in TABLE[base]]
# What is GPT-2's own is in tests/models/test_gpt2.py.
NAMES = {TINY: "v1.0", TINY_V1_1: "v1.1", TINY_GPT2: "gpt2", TINY_XL: "xl", TINY_BERT: "bert"}


def case_id(name, base):
    return f"{name}-{NAMES[base]}"


def is_long(name, base):
    """Of what the architecture repeats; every pair trains in the fast tests."""
    return name in LONG or base is not TINY


def shallow(base):
    """With one layer, where two would only compile longer."""
    depths = (f.name for f in dataclasses.fields(base) if f.name.endswith("num_layers"))
    t5 = [f"num_{stack}_layers" for stack in ("encoder", "decoder") if base in (TINY, TINY_V1_1)]
    return dataclasses.replace(base, **dict.fromkeys([*depths, *t5], 1))


every_case = pytest.mark.parametrize(
    ("name", "base"), [pytest.param(*case, id=case_id(*case)) for case in CASES]
)
compiling_case = pytest.mark.parametrize(
    ("name", "base"),
    [
        pytest.param(*c, id=case_id(*c), marks=[pytest.mark.slow] if is_long(*c) else [])
        for c in CASES
    ],
)

# Scan and remat wrap a layer: the methods that put most around one stand for the others.
wrapping_case = pytest.mark.parametrize(
    ("name", "base"),
    [
        pytest.param(*c, id=case_id(*c), marks=[] if c in WRAPPING else [pytest.mark.slow])
        for c in CASES
    ],
)


def prepare(name, base):
    method = method_of(name, base)
    config = method.extend(base)
    return method, config, random_params(config)


@functools.cache
def compiled_step(method, base, config, dropout, microbatches):
    """The optimizer and the jitted step; tests and methods that share them compile once."""
    schedule = 1e-2 if method.tx is None else lambda _: 1e-2
    model, base_model = model_of(config), model_of(base)
    tx = make_optimizer(model, method, adafactor_hf, schedule, None)
    loss_fn = loss_of(method, model, base_model)
    step = make_train_step(loss_fn, tx, num_microbatches=microbatches, dropout=dropout)
    return tx, jax.jit(step)


# What decides the program of a step; methods that differ in their data alone share one.
_OF_STEP = ("trainable", "tx", "wrap", "loss")


@functools.cache
def _step_of(name, base):
    """The first method of the table with the same step."""
    method = method_of(name, base)
    config = method.extend(base)
    for other in (METHODS if base.has_encoder else GPT2_METHODS).values():
        same = all(getattr(other, field) == getattr(method, field) for field in _OF_STEP)
        with contextlib.suppress(UserError):  # of a method that this architecture refuses
            if same and other.extend(base) == config:
                return other
    return method


def run_steps(name, base, steps, dropout=True, microbatches=1, start=None, first=0):
    """The state after some steps, and the frozen leaves; made as `train.prepare` makes them."""
    method, config, params = prepare(name, base)
    trainable, frozen = split(params, method.trainable)
    tx, step = compiled_step(_step_of(name, base), base, config, dropout, microbatches)
    state = start or first_state(name, base, tx)
    constants = frozen
    if method.loss is not None:
        before = {p: jnp.copy(x) for p, x in flatten(params).items() if p in base_paths(base)}
        constants = {**frozen, BEFORE: unflatten(before)}
    for i in range(first, first + steps):
        state, _ = step(state, constants, random_batch(config, seed=i), jax.random.key(7))
    assert step._cache_size() == 1, "the step compiled more than once"
    return state, frozen


@functools.cache
def first_state(name, base, tx):
    """Nothing changes it: the steps of these tests donate no buffers."""
    method, config, params = prepare(name, base)
    trainable, frozen = split(params, method.trainable)
    state = TrainState.create(trainable, tx)
    if method.init_opt_state is None:
        return state
    start = Start(
        model=model_of(config),
        trainable=trainable,
        frozen=frozen,
        examples=lambda count: iter([random_batch(config, batch=count, seed=99)]),
    )
    return state.replace(opt_state=method.init_opt_state(state.opt_state, start))


@functools.cache
def base_paths(base):
    return frozenset(flatten(param_shapes(base)))


@functools.cache
def gradient(config):
    """Of the mean squared logits, at `random_params` in the layout of `config`."""
    params = random_params(dataclasses.replace(config, scan_layers=False))
    if config.scan_layers:
        params = loop_to_scan(params)
    batch = random_batch(config)
    return jax.jit(jax.value_and_grad(lambda p: jnp.mean(jnp.square(logits_of(config, p, batch)))))(
        params
    )


@pytest.mark.parametrize(
    ("name", "base"),
    [
        pytest.param(*c, id=case_id(*c), marks=[pytest.mark.slow] if c[0] in LONG else [])
        for c in CASES
    ],
)
def test_frozen_leaves_stay_and_every_trainable_leaf_moves(name, base):
    base = base if name == "k_adapter_k3" else shallow(base)
    params = prepare(name, base)[2]
    state, frozen = run_steps(name, base, 2)
    after, before = flatten(merge(state.params, frozen)), flatten(params)
    trainable = flatten(state.params)
    for path, old in before.items():
        moved = bool(np.any(np.asarray(after[path]) != np.asarray(old)))
        assert moved == (path in trainable), path


@every_case
def test_optimizer_state_follows_from_the_trainable_count(name, base):
    method, config, params = prepare(name, base)
    trainable, frozen = split(params, method.trainable)
    tx = method.tx(lambda _: 1e-3) if method.tx else adafactor_hf(1e-3)
    wrap = method.wrap or (lambda tx: tx)
    own, state = count(wrap(optax.identity()).init(trainable)), wrap(tx).init(trainable)
    assert own in (0, count(trainable), 2 * count(trainable))  # EMA's average; EWC's F and anchor
    if method.tx:  # RecAdam: two moments and the anchor
        assert 3 * count(trainable) <= count(state) <= 3 * count(trainable) + 4
    else:
        assert count(state) - own <= count(trainable)
        assert not frozen or count(state) - own < count(tx.init(params))


@wrapping_case
def test_loop_equals_scan_in_output_and_gradient(name, base):
    _, config, params = prepare(name, base)
    assert_trees_close(scan_to_loop(loop_to_scan(params)), params, rtol=0, atol=0)
    value, slopes = gradient(config)
    scanned_value, scanned = gradient(dataclasses.replace(config, scan_layers=True))
    np.testing.assert_allclose(scanned_value, value, rtol=1e-5)
    assert_trees_close(scan_to_loop(scanned), slopes, rtol=1e-3, atol=1e-4)


@wrapping_case
def test_remat_changes_nothing(name, base):
    config = prepare(name, base)[1]
    value, slopes = gradient(dataclasses.replace(config, remat_policy="full"))
    np.testing.assert_allclose(value, gradient(config)[0], rtol=1e-5)
    assert_trees_close(slopes, gradient(config)[1], rtol=1e-3, atol=1e-4)


@compiling_case
def test_jit_equals_eager(name, base):
    _, config, params = prepare(name, base)
    batch = random_batch(config)
    eager = forward(config)(params, *tokens(batch))
    np.testing.assert_allclose(logits_of(config, params, batch), eager, rtol=1e-4, atol=1e-5)


@compiling_case
def test_cached_decoding_equals_teacher_forcing(name, base):
    """What decoding sees is what training saw: side networks and adapters included."""
    if base is TINY_BERT:
        pytest.skip("a masked model decodes nothing")
    _, config, params = prepare(name, base)
    model, batch = model_of(config), random_batch(config)
    given = batch.get("encoder_input_tokens", batch["decoder_input_tokens"])
    decoded = model.predict(params, given, 5, beam_size=1, num_return=1, rule="hf")
    answer = decoded.tokens[:, 0]
    first = 0  # the place from which the answer is predicted
    if base in (TINY_GPT2, TINY_XL):
        batch = {"decoder_input_tokens": np.concatenate([given, answer], axis=1)[:, :-1]}
        batch["decoder_target_tokens"] = batch["decoder_input_tokens"]
        first = given.shape[1] - 1
    else:
        batch["decoder_input_tokens"] = jnp.pad(answer, ((0, 0), (1, 0)))[:, :-1]
        batch["decoder_target_tokens"] = jnp.where(answer == 0, 1, answer)
    greedy = jnp.argmax(model.logits(params, batch), axis=-1)[:, first:]
    np.testing.assert_array_equal(jnp.where(answer > 0, greedy, 0), answer)


@pytest.mark.parametrize(
    ("name", "base"),
    [
        # A method has no code of its own there: one is enough where time is short.
        pytest.param(*c, id=case_id(*c), marks=[] if c == CASES[0] else [pytest.mark.slow])
        for c in CASES
    ],
)
def test_micro_batches_change_nothing(name, base):
    base = base if name == "k_adapter_k3" else shallow(base)
    whole, _ = run_steps(name, base, 1, dropout=False)
    parts, _ = run_steps(name, base, 1, dropout=False, microbatches=2)
    # One Adafactor step has near-unit size: compare where rounding cannot flip a sign. The bias of
    # a key moves all logits of a query alike, so its gradient is 0 and all of its step rounding; so
    # nearly do the weights of the slowest waves of distance.
    a, b = flatten(whole.params), flatten(parts.params)
    for path in (p for p in a if not p.endswith(("key/bias", "relative/kernel"))):
        close = np.isclose(a[path], b[path], rtol=1e-3, atol=1e-4)
        assert close.mean() > 0.97, path


@compiling_case
def test_save_and_restore_equals_no_interruption(name, base):
    base = base if name == "k_adapter_k3" else shallow(base)
    straight, _ = run_steps(name, base, 3)
    half, _ = run_steps(name, base, 2)
    restored = jax.tree.map(jnp.asarray, jax.tree.map(np.array, half))
    resumed, _ = run_steps(name, base, 1, start=restored, first=2)
    for a, b in zip(jax.tree.leaves(straight), jax.tree.leaves(resumed), strict=True):
        np.testing.assert_array_equal(a, b)


@every_case
def test_every_leaf_has_axis_names(name, base):
    _, config, _ = prepare(name, base)
    shapes = jax.eval_shape(model_of(config).init, jax.random.key(0))
    axes = {p.removesuffix("_axes"): a.names for p, a in flatten(shapes["params_axes"]).items()}
    params = flatten(shapes["params"])
    assert axes.keys() == params.keys()
    assert all(len(axes[p]) == x.ndim for p, x in params.items())


@every_case
def test_base_parameters_keep_their_paths(name, base):
    _, config, params = prepare(name, base)
    plain = flatten(param_shapes(base))
    assert plain.keys() <= flatten(params).keys()


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("phase", [0, 1])
def test_lora_equals_its_merged_weights(scan, phase):
    method = lora(scale=0.7, phase=phase)
    base = dataclasses.replace(TINY, scan_layers=scan)
    config = method.extend(base)
    params = random_params(config)
    batch = random_batch(config)
    merged = merge_lora(params, 0.7)
    np.testing.assert_allclose(
        logits_of(config, params, batch), logits_of(base, merged, batch), rtol=1e-4, atol=2e-4
    )


def test_lora_starts_at_the_base_model():
    config = lora().extend(TINY)
    params = init_params(config)
    base, _ = split(params, ("", "!/lora_"))
    batch = random_batch(TINY)
    np.testing.assert_allclose(
        logits_of(config, params, batch), logits_of(TINY, base, batch), rtol=1e-6, atol=1e-6
    )


def test_padding_does_not_reach_the_side_networks():
    for name in ("k_adapter_k2", "modular"):
        _, config, params = prepare(name, TINY)
        batch = random_batch(config)
        real = batch["decoder_loss_weights"] > 0
        source = np.pad(batch["encoder_input_tokens"], ((0, 0), (0, 3)))
        longer = logits_of(config, params, {**batch, "encoder_input_tokens": source})
        shorter = logits_of(config, params, batch)
        np.testing.assert_allclose(longer[real], shorter[real], rtol=1e-4, atol=1e-4)


def test_legacy_options_change_what_they_say():
    batch = random_batch(TINY)
    masked, unmasked = (
        k_adapter(taps=(1, 2), legacy_attend_to_padding=flag).extend(TINY) for flag in (False, True)
    )
    params = random_params(masked)
    change = logits_of(masked, params, batch) - logits_of(unmasked, params, batch)
    assert np.abs(change).max() > 1e-4
    bypassed = k_adapter(taps=(1, 2), legacy_bypass_side=True).extend(TINY)
    source = batch["encoder_input_tokens"]

    def encoded(config):
        variables = {"params": params}
        return Transformer(config).apply(variables, source, enable_dropout=False, method="encode")

    assert np.abs(encoded(masked) - encoded(bypassed)).max() > 1e-4
    np.testing.assert_array_equal(
        logits_of(masked, params, batch), logits_of(bypassed, params, batch)
    )


def test_a_pattern_that_matches_nothing_is_an_error():
    with pytest.raises(UserError, match="matches none"):
        split(param_shapes(TINY), ("^decoder/", "/lora_0/"))


def test_taps_outside_the_encoder_are_an_error():
    with pytest.raises(UserError, match=r"taps \[11\] .* lie outside"):
        k_adapter().extend(TINY)


@pytest.mark.parametrize("share", [0.01, 0.05, 0.5])
def test_replay_is_a_share_of_every_epoch(share):
    """Of the rows of each epoch, the last one's too, `share` are earlier ones."""
    mixture = replay(share).mixture
    for epoch in (0, 7):
        old = mixture.sample_rows(9900, epoch)
        assert old / (old + 9900) == pytest.approx(share, abs=1e-4)
    with pytest.raises(UserError, match="replay.share is 1.0"):
        replay(1.0)


def test_methods_combine_unless_they_claim_one_seam():
    both = combine(lora(), mix_review())
    assert (both.name, combine(lora(), mix_review(), "both").name) == ("lora+mix_review", "both")
    assert both.dense == lora().dense and both.mixture == mix_review().mixture
    with pytest.raises(UserError, match="both fill 'trainable'"):
        combine(lora(), k_adapter())


def test_a_model_without_the_seam_is_refused():
    @dataclasses.dataclass(frozen=True)
    class NoSeams:
        num_encoder_layers: int = 2

    with pytest.raises(UserError, match="does not have"):
        lora().extend(NoSeams())
    assert Method("vanilla").extend(NoSeams()) == NoSeams()


@pytest.mark.parametrize(
    ("name", "base"),
    [
        pytest.param(name, base, id=case_id(name, base))
        for base in TABLE
        for name in METHODS
        if name not in TABLE[base] and name != "k_adapter_k3"
    ],
)
def test_pairs_outside_the_table_are_refused(name, base):
    method = {**METHODS, **GPT2_METHODS}[name]
    with pytest.raises(
        UserError, match=r"side network does not have|has no encoder|not offered for"
    ):
        model = model_of(method.extend(base))
        method.loss(model, model_of(base))


def test_learning_without_forgetting_is_refused_where_the_loss_is_the_models_own():
    model = model_of(TINY_XL)
    with pytest.raises(UserError, match="not offered for a RecurrentModel"):
        lwf().loss(model, model)
