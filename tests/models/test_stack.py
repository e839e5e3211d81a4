"""Layers of several types are scanned as one layer that is told its type."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ckl_jax.methods.lora import lora
from ckl_jax.models.stack import stacked
from ckl_jax.trees.partition import merge, split
from ckl_jax.trees.paths import scan_to_loop
from tests import helpers

# Two periods of two, and one layer more than that.
PERIOD = dataclasses.replace(
    helpers.TINY_DECODER, num_layers=5, layer_types=("sliding", "full"), window=2
)
# The first layer has one norm less than the others.
FIRST = dataclasses.replace(helpers.TINY_MODERNBERT, num_layers=3)


@pytest.mark.parametrize("config", [PERIOD, FIRST], ids=["period", "first"])
@pytest.mark.parametrize("remat", ["none", pytest.param("full", marks=pytest.mark.slow)])
def test_lora_beside_frozen_layers_has_the_gradients_of_the_loop(config, remat):
    """Values and gradients of what trains, and hidden states."""
    method = lora(rank=2, trunk=())
    config = dataclasses.replace(method.extend(config), remat_policy=remat)
    batch, params = helpers.random_batch(config), helpers.random_params(config)

    def of(config, params):
        trainable, frozen = split(params, method.trainable)

        def loss(trainable):
            logits = helpers.forward(config)(merge(trainable, frozen), *helpers.tokens(batch))
            return jnp.mean(jnp.square(logits))

        return jax.jit(jax.value_and_grad(loss))(trainable)

    value, wanted = of(config, params)
    scanned = dataclasses.replace(config, scan_layers=True)
    found_value, found = of(scanned, stacked(params, config))
    np.testing.assert_allclose(found_value, value, rtol=1e-5)
    helpers.assert_trees_close(scan_to_loop(found), wanted, rtol=1e-3, atol=1e-5)
    shapes = helpers.param_shapes(scanned)
    given = jax.tree.map(jnp.shape, stacked(params, config))
    assert given == jax.tree.map(jnp.shape, shapes)


@pytest.mark.parametrize("scan", [False, True])
def test_a_loop_of_layers_that_are_computed_again_keeps_xla_from_merging_them(scan):
    """A scan needs no barrier."""
    config = dataclasses.replace(helpers.TINY_DECODER, remat_policy="full", scan_layers=scan)
    tokens = helpers.tokens(helpers.random_batch(config))

    def loss(params):
        return jnp.sum(helpers.forward(config)(params, *tokens))

    lowered = jax.jit(jax.grad(loss)).lower(helpers.param_shapes(config))
    assert ("optimization_barrier" in lowered.as_text()) != scan


def test_the_layers_that_are_left_over_are_no_second_copy():
    """One traced layer, whatever the depth and the period: the program does not grow."""

    def products(config, layers):
        config = dataclasses.replace(config, num_layers=layers, scan_layers=True)
        tokens = helpers.tokens(helpers.random_batch(config))
        lowered = jax.jit(helpers.forward(config)).lower(helpers.param_shapes(config), *tokens)
        return len(re.findall("dot_general", lowered.as_text()))

    one_type = dataclasses.replace(PERIOD, layer_types=("full",), window=None)
    assert products(PERIOD, 7) == products(PERIOD, 26) == products(one_type, 7)
