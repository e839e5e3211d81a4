"""What a GPU computes is traced for every architecture, so that its kernel's demands are met."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import pytest

from tests.helpers import TINY_BY_ARCH, model_of, random_batch


@pytest.mark.parametrize(
    ("scan", "length"),
    [
        pytest.param(False, 8, id="even"),
        pytest.param(False, 7, id="odd", marks=pytest.mark.slow),
        pytest.param(True, 8, id="scan", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "arch",
    # Their parts are those of v1.0 and of the decoder.
    [pytest.param(a, marks=[pytest.mark.slow] * (a in ("v1.1", "t5gemma"))) for a in TINY_BY_ARCH],
)
def test_losses_and_answers_are_traced(arch, scan, length, cudnn):
    """Training, scores and decoding, of padded rows, with few and many beams."""
    base = TINY_BY_ARCH[arch]
    changes = {"scan_layers": scan, "dtype": jnp.bfloat16}
    if "attention_softcap" in vars(base):  # capped logits are not for the kernel
        changes["attention_softcap"] = None
    config = dataclasses.replace(base, **changes)
    model = model_of(config)
    params = jax.eval_shape(model.init, jax.random.key(0))["params"]
    batch = random_batch(config, inputs=length, targets=6)
    gradient = jax.grad(lambda *given: model.loss_fn(*given)[0])
    jax.eval_shape(gradient, params, batch, jax.random.key(1))
    assert cudnn or length % 2 or arch == "xl"
    jax.eval_shape(model.score_batch, params, batch)
    if not hasattr(model, "predict"):
        return
    given = batch.get("encoder_input_tokens", batch.get("decoder_input_tokens"))
    for beams in (1, 2):
        answer = functools.partial(model.predict, max_decode_length=4, beam_size=beams)
        jax.eval_shape(answer, params, given)


def test_gradients_of_padded_rows_are_as_right_as_those_of_products(cudnn):
    """What the kernel masks by itself is what a bias masks elsewhere."""
    base = TINY_BY_ARCH["v1.0"]
    params = model_of(base).init(jax.random.key(0))["params"]
    batch = random_batch(base, inputs=8, targets=6)

    def gradients(**changes):
        model = model_of(dataclasses.replace(base, **changes))
        return jax.jit(jax.grad(lambda p: model.loss_fn(p, batch, None)[0]))(params)

    def distance(a, b):
        return sum(
            jnp.sum((x - y) ** 2) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True)
        )

    right = gradients(attention_impl="xla")
    products = gradients(attention_impl="xla", dtype=jnp.bfloat16)
    assert not cudnn
    kernels = gradients(dtype=jnp.bfloat16)
    assert [x for x in cudnn if x["key_value_seq_lengths"] is not None]
    assert 0 < distance(kernels, right) < 1.3 * distance(products, right)
