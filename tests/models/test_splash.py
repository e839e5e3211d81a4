"""Splash attention equals matrix products; the kernel runs on CPUs in JAX's interpreter."""

import dataclasses
import math
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core

from ckl_jax.errors import UserError
from ckl_jax.models import layers, splash
from ckl_jax.models.attention import attend
from ckl_jax.models.splash import RowMask
from ckl_jax.parallel import flops
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.trees.paths import loop_to_scan
from tests import helpers

B, N, H = 2, 4, 8


def one_of(names, fast):
    """One case in `make test`, for the interpreted kernel compiles for seconds; all in the slow."""
    return [n if n == fast else pytest.param(n, marks=pytest.mark.slow) for n in names]


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setattr(splash, "_INTERPRET", True)
    # What of the kernel is traced for the gradient promotes dtypes and ranks.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def arrays(length, groups, dtype=jnp.float32):
    keys = jax.random.split(jax.random.key(0), 4)
    heads = (N, groups, groups, N)
    return [
        jax.random.normal(k, (B, length, n, H), dtype) for k, n in zip(keys, heads, strict=True)
    ]


def bias_of(mask, length):
    far = np.arange(length)[:, None] - np.arange(length)[None]
    seen = np.ones_like(far, bool) if not mask.causal else far >= 0
    if (window := mask.windows[mask.kind or 0]) is not None:
        seen &= np.abs(far) < window
    seen = jnp.asarray(seen)[None, None]
    if (ids := mask.segment_ids) is not None:
        seen &= layers.segment_mask(ids, ids)
    return layers.mask_to_bias(seen)


def segments(length):
    """Rows of three texts and of two, and padding."""
    cuts = [(length // 3, length // 2, length - 5), (length // 4, length - 9, length - 9)]
    line = np.arange(length)
    ids = np.stack([1 + sum((line >= c).astype(int) for c in cut[:2]) for cut in cuts])
    ids[[0, 1], :] = [np.where(line >= cut[2], 0, row) for cut, row in zip(cuts, ids, strict=True)]
    return jnp.asarray(ids, jnp.int32)


CASES = {
    # name: (length, key heads, causal, window, cap, segments, dropout)
    "causal": (256, N, True, None, None, False, 0.0),
    "grouped, packed": (256, 2, True, None, None, True, 0.0),
    "window, cap": (256, 1, True, 70, 3.0, False, 0.0),
    "window, packed, no multiple": (150, 2, True, 40, None, True, 0.0),
    "causal, no multiple, dropout": (130, N, True, None, None, False, 0.5),
    "both sides": (256, N, False, None, None, True, 0.0),
    "both sides, window, no multiple": (150, 2, False, 30, None, False, 0.0),
}


def value_and_gradients(given, cotangent, mask, seen, **settings):
    """Of what positions that are `seen` get."""

    def loss(*args):
        y = attend(*args, mask, **settings)
        return jnp.sum(y * cotangent * seen), y * seen

    (_, y), gradients = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True))(*given)
    return y, gradients


@pytest.mark.parametrize("name", one_of(CASES, None))
def test_outputs_and_gradients_are_those_of_products(name):
    length, groups, causal, window, cap, packed, rate = CASES[name]
    *given, cotangent = arrays(length, groups)
    mask = RowMask(segments(length) if packed else None, causal=causal, windows=(window,))
    seen = (segments(length) > 0)[..., None, None] if packed else jnp.ones((B, length, 1, 1))
    settings = {"softcap": cap}
    if rate:
        settings |= {"dropout_rng": jax.random.key(1), "dropout_rate": rate}
    found = value_and_gradients(given, cotangent, mask, seen, **settings)
    wanted = value_and_gradients(given, cotangent, bias_of(mask, length), seen, **settings)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), found, wanted)


@pytest.mark.slow
def test_half_precision_keeps_its_dtype_and_comes_close():
    *given, _ = arrays(256, 2, jnp.bfloat16)
    mask = RowMask(segments(256))
    y = attend(*given, mask)
    assert y.dtype == jnp.bfloat16
    seen = np.asarray(segments(256) > 0)
    wanted = attend(*(x.astype(jnp.float32) for x in given), bias_of(mask, 256))
    np.testing.assert_allclose(y.astype(jnp.float32)[seen], wanted[seen], atol=0.03)


@pytest.mark.parametrize("heads", one_of([(4, 4), (2, 4), (1, 2), (2, 1)], (2, 4)))
def test_each_device_of_a_mesh_computes_its_rows_and_heads(heads):
    """Keys that are fewer than the devices of the heads are there on several."""
    groups, model = heads
    *given, _ = arrays(130, groups)
    mask = RowMask(jnp.asarray(segments(130)), windows=(50,))

    def run(*args):
        return jax.grad(lambda *a: jnp.sin(attend(*a, mask)).sum(), argnums=(0, 1, 2))(*args)

    wanted = jax.jit(run)(*given)
    partitioner = Partitioner(
        mesh_shape={"data": 2, "model": model}, devices=jax.devices()[: 2 * model]
    )
    with partitioner.on_mesh():
        found, traced = jax.jit(run)(*given), jax.make_jaxpr(run)(*given)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), found, wanted)
    kernels = filter(is_kernel, equations(traced.jaxpr))
    # One row of the two, the device's heads, one block.
    assert {math.prod(e.params["grid_mapping"].grid) for e in kernels} == {N // model}


@pytest.mark.slow
def test_gradients_of_single_examples_are_taken_on_a_mesh_too():
    """One row, as EWC takes them, is on all devices of `data`."""
    *given, _ = arrays(130, 2)

    def run(*rows):
        def loss(*row):
            return jnp.sin(attend(*(x[None] for x in row), RowMask(None))).sum()

        return jax.vmap(jax.grad(loss, argnums=(0, 1, 2)))(*rows)

    wanted = jax.jit(run)(*given)
    with Partitioner(mesh_shape={"data": 2, "model": 2}, devices=jax.devices()[:4]).on_mesh():
        found = jax.jit(run)(*given)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), found, wanted)


def is_kernel(equation):
    return equation.primitive.name == "pallas_call"


def equations(jaxpr):
    """Those of a program and of all that it calls."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in core.jaxprs_in_params(equation.params):
            yield from equations(getattr(inner, "jaxpr", inner))


TARGETS = "decoder_target_tokens"
LONG = dict(max_positions=256)
MODELS = {
    "decoder": dataclasses.replace(helpers.TINY_DECODER, **LONG, window=40),
    "rematerialised": dataclasses.replace(
        helpers.TINY_DECODER, **LONG, window=40, remat_policy="minimal"
    ),
    "scanned": dataclasses.replace(
        helpers.TINY_DECODER, **LONG, window=40, scan_layers=True, remat_policy="full"
    ),
    "gpt2": dataclasses.replace(helpers.TINY_GPT2, **LONG),
    "bert": dataclasses.replace(helpers.TINY_BERT, **LONG),
    "modernbert": dataclasses.replace(helpers.TINY_MODERNBERT, **LONG),
    "t5gemma": dataclasses.replace(helpers.TINY_T5GEMMA, **LONG),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_logits_and_gradients_of_models_are_those_of_products(name):
    """Of rows of several texts, with padding."""
    config = MODELS[name]
    batch = helpers.random_batch(config, batch=B, inputs=140, targets=130)
    sides = {"encoder": 140} if "maskable" in batch else {"decoder": 140}
    if config.has_encoder:
        sides = {"encoder": 140, "decoder": 130}
    ids = {f"{side}_segment_ids": segments(length) for side, length in sides.items()}
    if config.has_encoder:  # their padding is token 0
        for side, tokens in (("encoder", "encoder_input_tokens"), ("decoder", TARGETS)):
            batch[tokens] = np.where(
                ids[f"{side}_segment_ids"] > 0, np.maximum(batch[tokens], 1), 0
            )
    params = helpers.random_params(dataclasses.replace(config, scan_layers=False))
    if config.scan_layers:
        params = loop_to_scan(params)
    weights = (list(ids.values())[-1] > 0)[..., None]

    def run(impl):
        module = helpers.model_of(dataclasses.replace(config, attention_impl=impl)).module

        def loss(params):
            given = helpers.tokens(batch)
            logits = module.apply({"params": params}, *given, **ids, enable_dropout=False)
            return jnp.mean(jnp.square(logits * weights)), logits * weights

        function = jax.value_and_grad(loss, has_aux=True)
        kernels = [e for e in equations(jax.make_jaxpr(function)(params).jaxpr) if is_kernel(e)]
        return jax.jit(function)(params), len(kernels)

    (((_, found), gradients), kernels), (((_, logits), wanted), none) = run("splash"), run("xla")
    assert kernels and not none
    np.testing.assert_allclose(found, logits, atol=1e-4)
    helpers.assert_trees_close(gradients, wanted, rtol=1e-3, atol=1e-4)


def test_what_the_kernel_cannot_compute_is_computed_otherwise_or_refused():
    for config in (
        helpers.TINY,
        helpers.TINY_XL,
        dataclasses.replace(helpers.TINY_DECODER, positions="alibi"),
    ):
        with pytest.raises(UserError, match="ATTENTION_IMPL = 'splash' is not possible: .* adds"):
            dataclasses.replace(config, attention_impl="splash")
    config = dataclasses.replace(MODELS["decoder"], attention_impl="splash")
    module, length = helpers.model_of(config).module, 130
    row, shapes = jax.ShapeDtypeStruct((B, length), jnp.int32), helpers.param_shapes(config)

    def kernels(*args, **settings):
        def run(params, *given, **more):
            return module.apply(
                {"params": params}, *given, enable_dropout=False, **settings, **more
            )

        found = equations(jax.make_jaxpr(run)(shapes, *args).jaxpr)
        return sum(map(is_kernel, found))

    assert kernels(row, row) == config.num_layers
    assert kernels(*[jax.ShapeDtypeStruct((B, 127), jnp.int32)] * 2) == 0  # a short row
    assert kernels(row, row, row, row, row) == 0  # with a prefix whose positions see each other
    assert kernels(row, row, decode=True, mutable=["cache"]) == 0


def test_it_is_for_tpus(monkeypatch):
    monkeypatch.setattr(splash, "_INTERPRET", False)
    assert splash.row_mask("splash", 256, None, True) is None
    monkeypatch.setattr(splash, "platform", lambda: "tpu")
    assert splash.row_mask("splash", 256, None, True) == RowMask(None)
    assert splash.row_mask("auto", 256, None, True) is None


def test_products_of_the_kernel_are_counted():
    *given, _ = arrays(256, 2)
    mask = RowMask(None)
    counted = flops.of_jaxpr(jax.make_jaxpr(lambda *a: attend(*a, mask))(*given))
    assert counted == 2 * 2 * B * N * 256 * 256 * H


@pytest.mark.slow
def test_models_do_not_import_the_kernel():
    code = "import sys, ckl_jax.train.train; print([m for m in sys.modules if 'ops.tpu' in m])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
