"""One step of every method on one device and on several, over many meshes; for test_devices."""

import dataclasses
import math

import jax
import numpy as np
from flax import linen as nn

from ckl_jax.optim.adafactor import adafactor_hf
from ckl_jax.parallel import mesh as meshes
from ckl_jax.train.setup import make_optimizer
from ckl_jax.train.state import TrainState
from ckl_jax.train.step import make_train_step
from ckl_jax.trees.partition import split
from ckl_jax.trees.paths import flatten, loop_to_scan
from tests.helpers import TINY, TINY_GPT2, method_of, model_of, random_batch, random_params

# Everything that 2, 4 and 8 devices can be without an axis of another size than a power of two.
GRID = [
    {"data": 2**a, "fsdp": 2**b, "model": 2 ** (n - a - b)}
    for n in (1, 2, 3)
    for a in range(n + 1)
    for b in range(n + 1 - a)
]
QUICK = [{"data": 2, "fsdp": 2}, {"data": 2, "fsdp": 2, "model": 2}]
LOOPED, SCANNED = QUICK[1:], [{"data": 8}, {"fsdp": 4, "model": 2}]


def one_step(method, config, mesh):
    """The loss before the step, gradient norm and parameters after it, as numpy."""
    model = model_of(config)
    params = random_params(dataclasses.replace(config, scan_layers=False))
    params = loop_to_scan(params) if config.scan_layers else params
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    rules = meshes.standard_logical_axis_rules()
    axes = meshes.params_logical_axes(shapes)
    shardings = meshes.logical_to_shardings(mesh, rules, axes, shapes["params"])
    trainable, frozen = split(jax.device_put(params, shardings), method.trainable)
    tx = make_optimizer(model, method, adafactor_hf, lambda _: 1e-2, None)
    step = make_train_step(model.loss_fn, tx, num_microbatches=2, dropout=False)
    batch = jax.device_put(random_batch(config, batch=16), meshes.batch_sharding(mesh))
    with jax.set_mesh(mesh), nn.logical_axis_rules(meshes.Partitioner().rules):
        state = jax.jit(lambda p: TrainState.create(p, tx))(trainable)
        state, metrics = jax.jit(step, donate_argnums=0)(state, frozen, batch, jax.random.key(0))
    return jax.device_get((metrics, state.params))


def on(sizes):
    """A mesh of as many devices as it needs."""
    return meshes.build_mesh(sizes, devices=jax.devices()[: math.prod(sizes.values())])


def compare(name, method, config, all_sizes):
    """One device against each mesh."""
    expected, before = one_step(method, config, on({"data": 1}))
    for sizes in all_sizes:
        metrics, after = one_step(method, config, on(sizes))
        for key in expected:
            np.testing.assert_allclose(
                metrics[key], expected[key], rtol=1e-4, err_msg=f"{name} {sizes} {key}"
            )
        after, expected_after = flatten(after), flatten(before)
        assert after.keys() == expected_after.keys()
        for path, a in after.items():
            if path.endswith("key/bias"):  # has no gradient but rounding: softmax undoes a shift
                continue
            # A sign that rounding flips moves one element by twice the rate.
            close = np.isclose(a, expected_after[path], rtol=1e-3, atol=1e-4)
            assert close.mean() > 0.97, (name, sizes, path)
        print(f"{name} scan={config.scan_layers} {sizes}: equal to one device", flush=True)


def main(names):
    seen = []
    for name in (n for n in names if not n.startswith("--")):
        model, _, kind = name.rpartition("/")
        base = dataclasses.replace(TINY_GPT2 if model == "gpt2" else TINY, dropout_rate=0.0)
        method = method_of(kind, base)
        config = method.extend(base)
        step = (method.trainable, method.tx, method.wrap, config)
        if step in seen:  # methods that differ in their data or loss alone share one
            print(f"{name}: its step has been compared")
        elif "--quick" in names:
            compare(name, method, config, QUICK)
        elif "--grid" in names:  # heads for 8 devices on `model`; one layer shows the same
            layers = dict(num_encoder_layers=1, num_decoder_layers=1)
            config = dataclasses.replace(config, num_heads=8, head_dim=2, **layers)
            compare(name, method, config, GRID)
        else:
            compare(name, method, config, LOOPED)
            compare(name, method, dataclasses.replace(config, scan_layers=True), SCANNED)
        seen.append(step)
