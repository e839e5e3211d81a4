"""What the parity tests share: stored models, and decoding with them."""

import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from ckl_jax.checkpoints import architectures
from ckl_jax.models import decoding
from tests.parity.golden import packing

GOLDEN = pathlib.Path(__file__).parent / "golden"


def load(name):
    """({weight name: float32 array}, {other name: array}) of a stored model."""
    with np.load(GOLDEN / name) as stored:
        weights = packing.unpack(stored)
        rest = {k: stored[k] for k in stored if k not in ("values", "index")}
    return weights, rest


def batch_of(rest):
    """Encoder inputs, shifted decoder inputs and targets, int32."""
    inputs, targets = rest["inputs"].astype(np.int32), rest["targets"].astype(np.int32)
    return inputs, np.pad(targets, ((0, 0), (1, 0)))[:, :-1], targets


def module_of(config):
    return architectures.of_config(config).module(config)


@functools.partial(jax.jit, static_argnums=0)
def _teacher_forced(config, params, inputs, shifted, targets):
    return module_of(config).apply(
        {"params": params}, inputs, shifted, targets, enable_dropout=False
    )


def teacher_forced(*args):
    """Logits [B, T, V] for (config, params, inputs, shifted, targets)."""
    return np.asarray(_teacher_forced(*args))


def start_decoding(config, params, inputs, length):
    """A one-step function over `B * K` rows for any K, and the empty cache of `B` rows."""
    model = module_of(config)
    variables = {"params": params}
    encoded = model.apply(variables, inputs, enable_dropout=False, method=model.encode)
    dummy = jnp.ones((inputs.shape[0], length), jnp.int32)
    made = jax.eval_shape(
        lambda: model.apply(
            variables, inputs, dummy, dummy, enable_dropout=False, decode=True, mutable=["cache"]
        )[1]
    )

    def step(ids, cache):
        logits, new = model.apply(
            {**variables, "cache": cache},
            encoded,
            inputs,
            ids,
            ids,
            enable_dropout=False,
            decode=True,
            max_decode_length=length,
            mutable=["cache"],
            method=model.decode,
        )
        return logits[:, 0], new["cache"]

    return step, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), made["cache"])


@functools.partial(jax.jit, static_argnums=(0, 3, 4, 5))
def decode(config, params, inputs, beams, length, rule="hf"):
    """Greedy for one beam, else beam search by the given rule."""
    step, cache = start_decoding(config, params, inputs, length)
    common = dict(
        batch_size=len(inputs), max_decode_len=length, cache_offset=int(config.scan_layers)
    )
    if beams == 1:
        return decoding.greedy_decode(step, cache, **common)
    return decoding.beam_search(step, cache, beam_size=beams, rule=rule, **common)
