"""Every method through the same invariants; a new method enters by one line in `tests.helpers`."""

import dataclasses
import functools
import itertools
import pkgutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ckl_jax import methods
from ckl_jax.checkpoints import architectures
from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.errors import UserError
from ckl_jax.methods.k_adapter import k_adapter
from ckl_jax.methods.lora import lora, merge_lora
from ckl_jax.methods.method import Method, Start, combine
from ckl_jax.methods.mix_review import mix_review
from ckl_jax.methods.replay import replay
from ckl_jax.models.stack import stacked
from ckl_jax.optim.adafactor import adafactor_hf
from ckl_jax.train.prepare import BEFORE, loss_of
from ckl_jax.train.setup import make_optimizer
from ckl_jax.train.state import TrainState, as_dict, swapped
from ckl_jax.train.step import make_train_step
from ckl_jax.trees.partition import merge, split
from ckl_jax.trees.paths import flatten, scan_to_loop, unflatten
from tests.helpers import (
    METHODS,
    TINY,
    TINY_BY_ARCH,
    TINY_MODERNBERT,
    TINY_T5GEMMA,
    assert_trees_close,
    count,
    forward,
    init_shapes,
    logits_of,
    method_of,
    model_of,
    param_shapes,
    random_batch,
    random_params,
    tokens,
)

# Second phases and second sizes repeat the same code: they train in `make test-slow`.
LONG = ("lora_phase2", "k_adapter_k3", "k_adapter_phase2", "modular_phase2")
# One layer compiles for half as long as two, and shows the same but for scan and many taps.
DEEP = TINY_BY_ARCH
_ENDS = ("num_layers", "num_encoder_layers", "num_decoder_layers")
SHALLOW = {
    arch: dataclasses.replace(base, **{n: 1 for n in _ENDS if n in vars(base)})
    for arch, base in DEEP.items()
}

# The pairs that are refused, and the sentence; all others are trained.
_NO_ENCODER = "Method 'modular': .* {} has no encoder; choose lora"
_OWN_LOSS = "LwF is not offered for a {}, "
_OWN_MEMORY = "Method 'k_adapter_k.': the layers of a Transformer-XL read a memory of their own"
_ALONE = ("gpt2", "decoder", "bert", "modernbert", "xl")
_REFUSED = {
    "modular": dict.fromkeys(_ALONE, _NO_ENCODER),
    "modular_phase2": dict.fromkeys(_ALONE, _NO_ENCODER),
    "lwf": dict.fromkeys(("bert", "modernbert", "xl"), _OWN_LOSS),
    **dict.fromkeys(("k_adapter_k2", "k_adapter_k3", "k_adapter_phase2"), {"xl": _OWN_MEMORY}),
}
REFUSED = {(name, arch): said for name, of in _REFUSED.items() for arch, said in of.items()}
CASES = [(n, a) for a in ("v1.0", "t5gemma", *_ALONE) for n in METHODS if (n, a) not in REFUSED]
CASES += [("vanilla", "v1.1"), ("lora", "v1.1"), ("lora_embedding", "gpt2")]


def table(is_fast=lambda name, arch: True):
    """One test for each pair; those that are not fast run in `make test-slow`."""
    return pytest.mark.parametrize(
        ("name", "arch"),
        [
            pytest.param(*c, id="-".join(c), marks=[] if is_fast(*c) else [pytest.mark.slow])
            for c in CASES
        ],
    )


# Every method is fast on the cheapest architecture that has it, Vanilla on every one, and methods
# that add parameters stand for the others elsewhere. What is GPT-2's own is in test_gpt2.py.
ELSEWHERE = {"v1.0": ("vanilla", "modular"), "t5gemma": ("lora",), "v1.1": ()}
ADDED = ("vanilla", "lora", "k_adapter_k2", "modular")
# These differ from another method in their data alone, and those in the training alone.
OF_DATA = ("mix_review", "replay", "ewc+replay", "lora+mix_review")
OF_TRAINING = ("recadam", "ewc", "lwf", "ema", "sparse", "lora+ema")


def trains(name, arch):
    return name not in LONG and (arch == "gpt2" or name in ELSEWHERE.get(arch, ("vanilla",)))


every_case = table(lambda name, arch: trains(name, arch) or arch == "v1.0" or name in ADDED)
training_case = table(trains)
saving_case = table(lambda *case: trains(*case) and case[1] == "gpt2" and case[0] not in OF_DATA)
compiling_case = table(
    lambda name, arch: name not in (*LONG, *OF_DATA, *OF_TRAINING) and arch == "v1.0"
)
# Scan and remat wrap a layer: a method that puts much around one stands for the others.
wrapping_case = table(lambda *case: case == ("k_adapter_k2", "gpt2"))
starting_case = pytest.mark.parametrize(
    "arch",
    [
        pytest.param(arch, marks=[pytest.mark.slow] if arch in ("v1.1", "t5gemma") else [])
        for arch in SHALLOW
    ],
)


@functools.cache
def prepare(name, arch, deep=False):
    """The method, the configurations without and with it, and random parameters."""
    base = (DEEP if deep or name == "k_adapter_k3" else SHALLOW)[arch]
    method = method_of(name, base)
    config = method.extend(base)
    return method, base, config, random_params(config)


# What decides the program of a step; methods that differ in their data alone share one.
_OF_STEP = ("trainable", "tx", "wrap", "loss", "init_opt_state")


@functools.cache
def first_alike(name, arch):
    """The first method of the table with the same step."""
    method, base, config, _ = prepare(name, arch)
    for other in (n for n, a in CASES if a == arch):
        theirs, their_base, their_config, _ = prepare(other, arch)
        same = all(getattr(theirs, field) == getattr(method, field) for field in _OF_STEP)
        if same and (their_base, their_config) == (base, config):
            return other
    return name


def has_dropout(name, arch):
    """Half of a step's compilation is dropout; the trunk's is Vanilla's in every other method."""
    method = prepare(name, arch)[0]
    own = bool(method.side) or method.loss is not None
    return own or name == "vanilla" or arch == "t5gemma"  # which trains with LoRA alone


@functools.cache
def compiled_step(name, arch, dropout, microbatches):
    """The optimizer and the jitted step; tests that share them compile once."""
    method, base, config, _ = prepare(name, arch)
    schedule = 1e-2 if method.tx is None else lambda _: 1e-2
    model = model_of(config)
    tx = make_optimizer(model, method, adafactor_hf, schedule, None)
    loss_fn = loss_of(method, model, model_of(base))
    step = make_train_step(loss_fn, tx, num_microbatches=microbatches, dropout=dropout)
    return tx, jax.jit(step)


@functools.cache
def first_state(name, arch):
    """The state before the first step; with EWC it has its Fisher information."""
    method, _, config, params = prepare(name, arch)
    trainable, frozen = split(params, method.trainable)
    state = TrainState.create(trainable, compiled_step(name, arch, has_dropout(name, arch), 1)[0])
    if method.init_opt_state is None:
        return state
    start = Start(
        model=model_of(config),
        trainable=trainable,
        frozen=frozen,
        examples=lambda count: iter([random_batch(config, batch=count, seed=99)]),
    )
    return state.replace(opt_state=method.init_opt_state(state.opt_state, start))


def run_steps(name, arch, steps, dropout=None, microbatches=1, start=None, first=0):
    """The state after some steps, and the frozen leaves; made as `train.prepare` makes them."""
    name = first_alike(name, arch)
    dropout = has_dropout(name, arch) if dropout is None else dropout
    method, base, config, params = prepare(name, arch)
    state = start or first_state(name, arch)
    frozen = constants = split(params, method.trainable)[1]
    if method.loss is not None:
        plain = flatten(param_shapes(base))
        before = {p: x for p, x in flatten(params).items() if p in plain}
        constants = {**frozen, BEFORE: unflatten(before)}
    _, step = compiled_step(name, arch, dropout, microbatches)
    for i in range(first, first + steps):
        state, _ = step(state, constants, random_batch(config, seed=i), jax.random.key(7))
    assert step._cache_size() == 1, "the step compiled more than once"
    return state, frozen


@functools.cache
def gradient(config):
    """Of the mean squared logits, at `random_params` in the layout of `config`."""
    params = random_params(dataclasses.replace(config, scan_layers=False))
    if config.scan_layers:
        params = stacked(params, config)
    batch = random_batch(config)
    return jax.jit(jax.value_and_grad(lambda p: jnp.mean(jnp.square(logits_of(config, p, batch)))))(
        params
    )


def test_every_method_meets_every_architecture():
    """Each pair is trained or refused, and no method or architecture of the package is absent."""
    modules = {m.name for m in pkgutil.iter_modules(methods.__path__)} - {"method", "subsets"}
    assert {m for m in modules if not any(name.startswith(m) for name in METHODS)} == set()
    ours = {a.config for a in architectures.known() if a.config.__module__.startswith("ckl_jax.")}
    named = {arch: type(base) for arch, base in DEEP.items() if arch != "v1.1"}
    assert ours == set(named.values())
    for pair in itertools.product(METHODS, named):
        assert (pair in CASES) + (pair in REFUSED) == 1, pair


@pytest.mark.parametrize(("name", "arch"), [pytest.param(*c, id="-".join(c)) for c in REFUSED])
def test_the_other_pairs_are_refused_in_a_sentence(name, arch):
    base = DEEP[arch]
    method = method_of(name, base)
    with pytest.raises(UserError, match=REFUSED[name, arch].format(type(base).__name__)):
        loss_of(method, model_of(method.extend(base)), model_of(base))


@training_case
def test_frozen_leaves_stay_and_every_trainable_leaf_moves(name, arch):
    params = prepare(name, arch)[3]
    state, frozen = run_steps(name, arch, 2)
    after, before = flatten(merge(state.params, frozen)), flatten(params)
    trainable = flatten(state.params)
    for path, old in before.items():
        moved = bool(np.any(np.asarray(after[path]) != np.asarray(old)))
        # Softmax does not see a bias of keys: its gradient is rounding alone, which SGD ignores.
        if not path.endswith("key/bias") or moved:
            assert moved == (path in trainable), path


@every_case
def test_optimizer_state_follows_from_the_trainable_count(name, arch):
    method, _, _, params = prepare(name, arch)
    trainable, _ = split(params, method.trainable)
    tx = method.tx(lambda _: 1e-3) if method.tx else adafactor_hf(1e-3)
    wrap = method.wrap or (lambda tx: tx)

    def size(tx, of):
        return count(jax.eval_shape(tx.init, of))

    own, state = size(wrap(optax.identity()), trainable), size(wrap(tx), trainable)
    assert own in (0, count(trainable), 2 * count(trainable))  # EMA's average; EWC's F and anchor
    # RecAdam has two moments and an anchor; of a leaf that is not factored Adafactor has three
    # placeholders of one number, too.
    copies = 3 if method.tx else 1
    assert state - own <= copies * count(trainable) + 3 * len(flatten(trainable)) + 8


@wrapping_case
def test_loop_equals_scan_in_output_and_gradient(name, arch):
    _, _, config, params = prepare(name, arch, deep=True)
    assert_trees_close(scan_to_loop(stacked(params, config)), params, rtol=0, atol=0)
    value, slopes = gradient(config)
    scanned_value, scanned = gradient(dataclasses.replace(config, scan_layers=True))
    np.testing.assert_allclose(scanned_value, value, rtol=1e-5)
    assert_trees_close(scan_to_loop(scanned), slopes, rtol=1e-3, atol=1e-4)


@wrapping_case
def test_remat_changes_nothing(name, arch):
    config = prepare(name, arch, deep=True)[2]
    value, slopes = gradient(dataclasses.replace(config, remat_policy="full"))
    np.testing.assert_allclose(value, gradient(config)[0], rtol=1e-5)
    assert_trees_close(slopes, gradient(config)[1], rtol=1e-3, atol=1e-4)


@compiling_case
def test_jit_equals_eager(name, arch):
    _, _, config, params = prepare(name, arch)
    batch = random_batch(config)
    eager = forward(config)(params, *tokens(batch))
    np.testing.assert_allclose(logits_of(config, params, batch), eager, rtol=1e-4, atol=1e-5)


@compiling_case
def test_cached_decoding_equals_teacher_forcing(name, arch):
    """What decoding sees is what training saw: side networks and adapters included."""
    if arch in ("bert", "modernbert"):
        pytest.skip("a masked model decodes nothing")
    decoded_as_trained(prepare(name, arch)[2])


@functools.cache  # methods that change the training alone have one configuration
def decoded_as_trained(config):
    model, batch, params = model_of(config), random_batch(config), random_params(config)
    given = batch.get("encoder_input_tokens", batch["decoder_input_tokens"])
    decoded = model.predict(params, given, 5, beam_size=1, num_return=1, rule="hf")
    answer = decoded.tokens[:, 0]
    first = 0  # the place from which the answer is predicted
    if config.has_encoder:
        batch["decoder_input_tokens"] = jnp.pad(answer, ((0, 0), (1, 0)))[:, :-1]
        batch["decoder_target_tokens"] = jnp.where(answer == 0, 1, answer)
    else:
        batch = {"decoder_input_tokens": np.concatenate([given, answer], axis=1)[:, :-1]}
        batch["decoder_target_tokens"] = batch["decoder_input_tokens"]
        first = given.shape[1] - 1
    greedy = jnp.argmax(model.logits(params, batch), axis=-1)[:, first:]
    np.testing.assert_array_equal(jnp.where(answer > 0, greedy, 0), answer)


# A method has no code of its own there but a loss, which test_newer.py compares over batch sizes.
@pytest.mark.slow
@pytest.mark.parametrize(("name", "arch"), CASES)
def test_micro_batches_change_nothing(name, arch):
    whole, _ = run_steps(name, arch, 1, dropout=False)
    parts, _ = run_steps(name, arch, 1, dropout=False, microbatches=2)
    # One Adafactor step has near-unit size: compare where rounding cannot flip a sign. The bias of
    # a key moves all logits of a query alike, so its gradient is 0 and all of its step rounding; so
    # nearly do the weights of the slowest waves of distance.
    a, b = flatten(whole.params), flatten(parts.params)
    for path in (p for p in a if not p.endswith(("key/bias", "relative/kernel"))):
        close = np.isclose(a[path], b[path], rtol=1e-3, atol=1e-4)
        assert close.mean() > 0.97, path


@saving_case
def test_save_and_restore_equals_no_interruption(name, arch, tmp_path):
    straight, _ = run_steps(name, arch, 3)
    half, _ = run_steps(name, arch, 2)
    # As `train.saving` and `train.resume` do: with the parameters that are evaluated.
    with CheckpointStore(str(tmp_path)) as store:
        store.save(2, as_dict(swapped(half)))
        like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), as_dict(half))
        _, restored = store.restore(like)
    restored = swapped(TrainState(**jax.tree.map(jnp.asarray, restored)))
    resumed, _ = run_steps(name, arch, 1, start=restored, first=2)
    for a, b in zip(jax.tree.leaves(straight), jax.tree.leaves(resumed), strict=True):
        np.testing.assert_array_equal(a, b)


@every_case
def test_every_leaf_has_axis_names(name, arch):
    shapes = init_shapes(prepare(name, arch)[2])
    axes = {p.removesuffix("_axes"): a.names for p, a in flatten(shapes["params_axes"]).items()}
    params = flatten(shapes["params"])
    assert axes.keys() == params.keys()
    assert all(len(axes[p]) == x.ndim for p, x in params.items())
    assert all(len(set(names)) == len(names) for names in axes.values())


@every_case
def test_base_parameters_keep_their_paths(name, arch):
    _, base, _, params = prepare(name, arch)
    plain = flatten(param_shapes(base))
    assert plain.keys() <= flatten(params).keys()


@pytest.mark.parametrize(
    ("phase", "scan"),
    [
        (0, False),
        (1, True),
        *(pytest.param(*c, marks=pytest.mark.slow) for c in ((0, True), (1, False))),
    ],
)
def test_lora_equals_its_merged_weights(phase, scan):
    method = lora(scale=0.7, phase=phase)
    base = dataclasses.replace(TINY, scan_layers=scan)
    config = method.extend(base)
    params = random_params(config)
    batch = random_batch(config)
    merged = merge_lora(params, 0.7)
    np.testing.assert_allclose(
        logits_of(config, params, batch), logits_of(base, merged, batch), rtol=1e-4, atol=2e-4
    )


@starting_case
def test_lora_starts_at_the_base_model(arch):
    _, base, config, _ = prepare("lora", arch)
    model, plain, batch = model_of(config), random_params(base), random_batch(base)

    @jax.jit
    def added(key):  # what else is initialised is not computed
        return split(model.init(key)["params"], ("/lora_",))[0]

    params = merge(plain, added(jax.random.key(0)))
    np.testing.assert_allclose(
        logits_of(config, params, batch), logits_of(base, plain, batch), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("arch", ["v1.0", pytest.param("t5gemma", marks=pytest.mark.slow)])
def test_padding_does_not_reach_the_side_networks(arch):
    for name in ("k_adapter_k2", "modular"):
        _, _, config, params = prepare(name, arch)
        batch = random_batch(config)
        real = batch["decoder_loss_weights"] > 0
        source = np.pad(batch["encoder_input_tokens"], ((0, 0), (0, 3)))
        longer = logits_of(config, params, {**batch, "encoder_input_tokens": source})
        shorter = logits_of(config, params, batch)
        np.testing.assert_allclose(longer[real], shorter[real], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("base", [TINY, TINY_T5GEMMA], ids=["v1.0", "t5gemma"])
def test_legacy_options_change_what_they_say(base):
    batch = random_batch(base)
    masked, unmasked = (
        k_adapter(taps=(1, 2), legacy_attend_to_padding=flag).extend(base) for flag in (False, True)
    )
    params = random_params(masked)
    change = logits_of(masked, params, batch) - logits_of(unmasked, params, batch)
    assert np.abs(change).max() > 1e-4
    bypassed = k_adapter(taps=(1, 2), legacy_bypass_side=True).extend(base)
    source = batch["encoder_input_tokens"]

    def encoded(config):
        variables = {"params": params}
        module = model_of(config).module
        return module.apply(variables, source, enable_dropout=False, method="encode")

    assert np.abs(encoded(masked) - encoded(bypassed)).max() > 1e-4
    np.testing.assert_array_equal(
        logits_of(masked, params, batch), logits_of(bypassed, params, batch)
    )


def test_side_networks_of_a_modernbert_may_attend_to_padding():
    batch, (masked, unmasked) = (
        random_batch(TINY_MODERNBERT),
        (
            k_adapter(taps=(0, 1), legacy_attend_to_padding=flag, trunk=()).extend(TINY_MODERNBERT)
            for flag in (False, True)
        ),
    )
    params = random_params(masked)
    one, other = (model_of(config).logits(params, batch) for config in (masked, unmasked))
    assert np.abs(one[0] - other[0]).max() > 1e-4  # the row with padding
    np.testing.assert_allclose(one[1:], other[1:], atol=1e-5)


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
    with pytest.raises(UserError, match="replay.fraction is 1.0"):
        replay(1.0)


def test_mix_review_reviews_less_in_every_epoch():
    mixture = mix_review(ratio=2.0, decay=0.5).mixture
    assert [mixture.sample_rows(100, epoch) for epoch in range(3)] == [200, 100, 50]


def test_methods_combine_unless_they_claim_one_seam():
    both = combine(lora(), mix_review())
    assert (both.name, combine(lora(), mix_review(), "both").name) == ("lora+mix_review", "both")
    assert both.dense == lora().dense and both.mixture == mix_review().mixture
    with pytest.raises(UserError, match="both fill 'trainable'"):
        combine(lora(), k_adapter())


@pytest.mark.parametrize(
    "fields, said",
    [
        ({"name": ""}, r"Method.name is ''; give a name without /"),
        ({"name": "a/b"}, r"Method.name is 'a/b'; give a name without /"),
        ({"trainable": "!^encoder/"}, r"give a list of names, such as \('!\^encoder/',\)"),
        ({"side": "adapter"}, "side of method 'mine' is 'adapter'; give side networks"),
        ({"dense": lora}, "dense of method 'mine' is .*; give a DenseFactory or None"),
        ({"mixture": 0.5}, "mixture of method 'mine' is 0.5; give a Mixture or None"),
        ({"wrap": "ema"}, "wrap of method 'mine' is 'ema'; give a function or None"),
        ({"trains": "no"}, "trains of method 'mine' is 'no'; give True or False"),
    ],
)
def test_a_field_of_another_kind_is_refused(fields, said):
    with pytest.raises(UserError, match=said):
        Method(**{"name": "mine", **fields})


def test_a_model_without_the_seam_is_refused():
    @dataclasses.dataclass(frozen=True)
    class NoSeams:
        num_encoder_layers: int = 2

    with pytest.raises(UserError, match="does not have"):
        lora().extend(NoSeams())
    assert Method(name="vanilla").extend(NoSeams()) == NoSeams()
