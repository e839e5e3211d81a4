"""Log probabilities block by block, against a softmax over the whole vocabulary."""

import jax
import numpy as np
import pytest

from ckl_jax.models.log_probs import log_normalizers, log_probs


def random(*shape, scale=1.0):
    return np.random.default_rng(0).normal(0, scale, shape).astype(np.float32)


@pytest.mark.parametrize("block", [3, 7, 10, 11, 40])
def test_blocks_of_any_size_give_the_whole_sum(block):
    x, table, bias = random(5, 4), random(11, 4, scale=20.0), random(11)
    logits = x.astype(np.float64) @ table.T + bias
    peak = logits.max(axis=1)
    want = peak + np.log(np.exp(logits - peak[:, None]).sum(axis=1))
    np.testing.assert_allclose(log_normalizers(x, table, bias, block), want, rtol=1e-5)


def test_chosen_tokens_have_the_softmax_of_all():
    x, table, bias = random(2, 3, 4), random(11, 4), random(11)
    positions, targets = np.array([[0, 0, 2], [1, 2, 2]]), np.array([[10, 0, 5], [3, 3, 4]])
    whole = jax.nn.log_softmax(x @ table.T + bias)
    want = [
        [whole[b, p, t] for p, t in zip(*pair, strict=True)]
        for b, pair in enumerate(zip(positions, targets, strict=True))
    ]
    np.testing.assert_allclose(log_probs(x, table, bias, positions, targets), want, rtol=1e-5)
    no_bias = log_probs(x, table, None, positions, targets)
    np.testing.assert_array_equal(log_probs(x, table, 0 * bias, positions, targets), no_bias)
