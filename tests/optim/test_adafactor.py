"""Both Adafactors against what they copy, and the promise about stacked layers."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ckl_jax.optim.adafactor import T5_SCANNED, adafactor_hf, adafactor_t5x
from ckl_jax.optim.clipping import clip_by_global_norm, global_norm
from ckl_jax.trees import paths

GOLDEN = pathlib.Path(__file__).parents[1] / "parity" / "golden"
SHAPES = {"norm": (7,), "matrix": (5, 6), "tall": (9, 4), "cube": (3, 4, 5)}
STEPS = 20


def make_run(shapes=SHAPES, seed=0):
    """Start, and gradients of several sizes, so that updates get clipped at some steps."""
    rng = np.random.default_rng(seed)
    start = {k: rng.normal(size=s).astype(np.float32) for k, s in shapes.items()}
    sizes = 10.0 ** rng.integers(-3, 3, size=STEPS)
    grads = [
        {k: (size * rng.normal(size=s)).astype(np.float32) for k, s in shapes.items()}
        for size in sizes
    ]
    return start, grads


def train(tx, params, grads):
    params = jax.tree.map(jnp.asarray, params)
    state = tx.init(params)

    @jax.jit
    def step(params, state, grad):
        updates, state = tx.update(grad, state, params)
        return optax.apply_updates(params, updates), state

    for grad in grads:
        params, state = step(params, state, grad)
    return params, state


def assert_close(found, expected, rtol=1e-6):
    for path, leaf in paths.flatten(expected).items():
        leaf, mine = np.asarray(leaf), np.asarray(paths.flatten(found)[path])
        np.testing.assert_allclose(mine, leaf, atol=rtol * np.abs(leaf).max(), err_msg=path)


@pytest.mark.parametrize("settings", [{}, dict(weight_decay=0.01, beta1=0.9)])
def test_hf_equals_transformers(settings):
    torch = pytest.importorskip("torch")
    optimization = pytest.importorskip("transformers.optimization")
    start, grads = make_run()
    theirs = {k: torch.nn.Parameter(torch.tensor(v)) for k, v in start.items()}
    optimizer = optimization.Adafactor(
        list(theirs.values()),
        lr=1e-2,
        scale_parameter=False,
        relative_step=False,
        warmup_init=False,
        **settings,
    )
    for grad in grads:
        for k, p in theirs.items():
            p.grad = torch.tensor(grad[k])
        optimizer.step()
    params, _ = train(adafactor_hf(1e-2, **settings), start, grads)
    assert_close(params, {k: p.detach().numpy() for k, p in theirs.items()})


def test_hf_equals_optax_on_vectors_and_matrices():
    start, grads = make_run({k: s for k, s in SHAPES.items() if len(s) < 3})
    # The parts of optax.adafactor that Hugging Face's has too.
    theirs = optax.chain(
        optax.scale_by_factored_rms(min_dim_size_to_factor=1, decay_rate=0.8),
        optax.clip_by_block_rms(1.0),
        optax.scale(-1e-2),
    )
    assert_close(train(adafactor_hf(1e-2), start, grads)[0], train(theirs, start, grads)[0])


def test_optax_factors_other_axes_of_a_cube():
    """Why `adafactor_hf` is not built from optax's parts."""
    start, grads = make_run({"cube": (6, 4, 5)})
    theirs = optax.chain(
        optax.scale_by_factored_rms(min_dim_size_to_factor=1, decay_rate=0.8),
        optax.clip_by_block_rms(1.0),
        optax.scale(-1e-2),
    )
    mine, other = train(adafactor_hf(1e-2), start, grads)[0], train(theirs, start, grads)[0]
    assert np.abs(mine["cube"] - other["cube"]).max() > 1e-3


T5X_SETTINGS = {
    "default": {},
    "small_factored": dict(min_dim_size_to_factor=8),
    "absolute": dict(min_dim_size_to_factor=8, multiply_by_parameter_scale=False),
    "decayed": dict(min_dim_size_to_factor=8, weight_decay=0.01, beta1=0.9),
}


def golden_run():
    with np.load(GOLDEN / "t5x_adafactor.npz") as stored:
        leaves = sorted(k.split("/")[1] for k in stored if k.startswith("start/"))
        start = {k: stored[f"start/{k}"].astype(np.float32) for k in leaves}
        grads = {k: stored[f"grad/{k}"].astype(np.float32) for k in leaves}
    return start, [{k: g[i] for k, g in grads.items()} for i in range(len(grads["norm"]))]


def golden_end(file, name):
    with np.load(GOLDEN / file) as stored:
        return {k.split("/")[1]: stored[k] for k in stored if k.startswith(f"{name}/")}


@pytest.mark.parametrize("name", T5X_SETTINGS)
def test_t5x_equals_t5x(name):
    params, _ = train(adafactor_t5x(0.01, **T5X_SETTINGS[name]), *golden_run())
    assert_close(params, golden_end("t5x_adafactor.npz", name))


HF_SETTINGS = {"default": {}, "decayed": dict(weight_decay=0.01, beta1=0.9)}


@pytest.mark.parametrize("name", HF_SETTINGS)
def test_hf_equals_stored_values_of_transformers(name):
    params, _ = train(adafactor_hf(0.01, **HF_SETTINGS[name]), *golden_run())
    assert_close(params, golden_end("hf_adafactor.npz", name))


STACK_SHAPES = {"mlp/kernel": (10, 12), "norm/scale": (10,), "deep/kernel": (2, 9, 11)}
MAKERS = {
    "hf": lambda stacked: adafactor_hf(1e-2, weight_decay=0.01, stacked=stacked),
    "t5x": lambda stacked: adafactor_t5x(1e-2, min_dim_size_to_factor=8, stacked=stacked),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("axis", [0, 1])
def test_stacked_layers_move_as_separate_layers_do(name, axis):
    shapes = {k: s for k, s in STACK_SHAPES.items() if name == "hf" or len(s) < 3}
    runs = [make_run(shapes, seed) for seed in range(3)]
    # One layer's gradient is a hundred times larger: clipping must not see the stack as a whole.
    sizes = [1.0, 100.0, 0.01]

    def stack(trees):
        return {f"encoder/encoder/{k}": np.stack([t[k] for t in trees], axis=axis) for k in shapes}

    start = stack([run[0] for run in runs])
    grads = [
        stack([{k: g * c for k, g in run[1][i].items()} for run, c in zip(runs, sizes)])  # noqa: B905
        for i in range(STEPS)
    ]
    together, _ = train(
        MAKERS[name]([(r"^encoder/encoder/", axis)]),
        paths.unflatten(start),
        [paths.unflatten(g) for g in grads],
    )
    flat = paths.flatten(together)
    for i, (run, size) in enumerate(zip(runs, sizes, strict=True)):
        scaled = [{k: g * np.float32(size) for k, g in grad.items()} for grad in run[1]]
        alone, _ = train(MAKERS[name]([]), run[0], scaled)
        one = {k: jnp.take(flat[f"encoder/encoder/{k}"], i, axis=axis) for k in shapes}
        assert_close(one, alone)


def test_t5_scanned_names_both_stacks_of_a_scanned_tree():
    loop = {
        f"{part}/layers_{i}/mlp/wi/kernel": np.full((4, 6), i + 1.0, np.float32)
        for part in ("encoder", "decoder")
        for i in range(2)
    }
    loop["token_embedder/embedding"] = np.ones((8, 4), np.float32)
    loop["encoder/layers_0/pre_mlp_layer_norm/scale"] = np.ones(4, np.float32)
    loop["encoder/layers_1/pre_mlp_layer_norm/scale"] = np.ones(4, np.float32)
    params = paths.unflatten(loop)
    rng = np.random.default_rng(0)
    grads = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), params)
    separate, _ = train(adafactor_hf(1e-2), params, [grads])
    scanned, _ = train(
        adafactor_hf(1e-2, stacked=T5_SCANNED),
        paths.loop_to_scan(params),
        [paths.loop_to_scan(grads)],
    )
    assert_close(paths.scan_to_loop(scanned), separate)


def test_state_is_as_large_as_what_trains():
    params = {"a": jnp.ones((256, 128)), "b": jnp.ones((5,))}
    for tx, sizes in [
        (adafactor_hf(1e-3), 256 + 128 + 5),
        (adafactor_t5x(1e-3), 256 + 128 + 5),
        (adafactor_hf(1e-3, beta1=0.9), 256 + 128 + 5 + 256 * 128 + 5),
    ]:
        state = tx.init(params)
        used = [leaf.size for leaf in jax.tree.leaves(state) if leaf.size > 1]
        assert sum(used) == sizes
    without = adafactor_hf(1e-3).init({"b": params["b"]})
    assert sum(leaf.size for leaf in jax.tree.leaves(without) if leaf.size > 1) == 5


def test_bfloat16_leaves_keep_float32_statistics():
    params = {"a": jnp.ones((4, 4), jnp.bfloat16)}
    grads = {"a": jnp.full((4, 4), 0.5, jnp.bfloat16)}
    params, state = train(adafactor_hf(1e-2), params, [grads] * 2)
    assert params["a"].dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(state.v_row)} == {jnp.dtype("float32")}


def test_learning_rate_may_be_a_schedule():
    start, grads = make_run()
    grads = grads[:4]
    rates = jnp.linspace(1e-2, 1e-3, len(grads))
    scheduled, _ = train(adafactor_hf(lambda step: rates[step]), start, grads)
    params, tx = start, None
    state = adafactor_hf(1.0).init(start)
    for rate, grad in zip(rates, grads, strict=True):
        tx = adafactor_hf(float(rate))
        updates, state = tx.update(grad, state, params)
        params = optax.apply_updates(params, updates)
    assert_close(scheduled, params, rtol=2e-6)


def test_optax_can_map_over_the_state():
    tx = adafactor_t5x(1e-3, stacked=[("a", 0)])
    state = tx.init({"a": jnp.ones((2, 3, 4))})
    marked = optax.tree_utils.tree_map_params(tx, lambda leaf: "param", state)
    assert marked.v_row == {"a": "param"} and isinstance(marked.count, jax.Array)


def test_wrong_arguments_are_named():
    params = {"layer/kernel": jnp.ones((2, 3, 4))}
    with pytest.raises(ValueError, match="'encodr' matches none of 1"):
        adafactor_hf(1e-3, stacked=[("encodr", 0)]).init(params)
    with pytest.raises(ValueError, match=r"layer/kernel of shape \(2, 3, 4\)"):
        adafactor_t5x(1e-3).init(params)
    with pytest.raises(ValueError, match="needs params"):
        adafactor_hf(1e-3).update(params, adafactor_hf(1e-3).init(params))


@pytest.mark.parametrize("size", [1e-6, 0.1, 10.0])
def test_global_norm_is_clipped_as_torch_does(size):
    rng = np.random.default_rng(0)
    grads = {k: (size * rng.normal(size=s)).astype(np.float32) for k, s in SHAPES.items()}
    grads = jax.tree.map(jnp.asarray, grads)
    clipped, _ = clip_by_global_norm(0.5).update(grads, optax.EmptyState())
    norm = np.sqrt(sum(float((np.asarray(g, np.float64) ** 2).sum()) for g in grads.values()))
    assert float(global_norm(grads)) == pytest.approx(norm, rel=1e-6)
    scale = min(1.0, 0.5 / (norm + 1e-6))
    assert_close(clipped, {k: scale * np.asarray(g) for k, g in grads.items()})
    torch = pytest.importorskip("torch")
    tensors = [torch.nn.Parameter(torch.zeros(g.shape)) for g in grads.values()]
    for tensor, grad in zip(tensors, grads.values(), strict=True):
        tensor.grad = torch.tensor(np.array(grad))
    torch.nn.utils.clip_grad_norm_(tensors, 0.5)
    assert_close(clipped, {k: t.grad.numpy() for k, t in zip(grads, tensors, strict=True)})
