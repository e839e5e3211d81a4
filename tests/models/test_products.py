"""Gradients of products in row order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ckl_jax.models.products import linear, scores, with_gradients_in_row_order


def _arrays(*shapes):
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return [jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]


@pytest.mark.parametrize(
    "function, shapes",
    [(linear, [(2, 5, 3), (3, 7)]), (linear, [(9, 30), (30, 2)]), (scores, [(2, 4, 3, 5)] * 2)],
)
def test_gradients_are_those_of_the_plain_product(function, shapes):
    gradient = jax.grad(lambda a, b: jnp.sum(jnp.sin(function(a, b))), argnums=(0, 1))
    arrays = _arrays(*shapes)
    for ours, plain in zip(
        jax.jit(with_gradients_in_row_order(gradient))(*arrays), gradient(*arrays), strict=True
    ):
        np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("forward", [True, False])
def test_derivatives_within_a_loss_are_of_the_plain_product(forward):
    def loss(kernel, x):
        def out(k):
            return jnp.sum(jnp.sin(linear(x, k)))

        if forward:
            return jax.jvp(out, (kernel,), (kernel,))[1]
        return jnp.sum(jax.grad(out)(kernel) ** 2)

    x, kernel = _arrays((2, 3), (3, 4))
    gradient = jax.grad(loss)
    ours = jax.jit(with_gradients_in_row_order(gradient))(kernel, x)
    np.testing.assert_allclose(ours, gradient(kernel, x), rtol=1e-5)
    with pytest.raises(TypeError, match="my own"):
        with_gradients_in_row_order(_raise)()


def _raise():
    raise TypeError("my own")
