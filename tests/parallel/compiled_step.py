"""Compiles a step for 8 devices, for test_partitioning."""

import jax
import numpy as np

from ckl_jax.methods.method import vanilla
from ckl_jax.models.encoder_decoder import EncoderDecoderModel
from ckl_jax.models.t5 import T5Config, Transformer
from ckl_jax.optim.adafactor import T5_SCANNED, adafactor_hf
from ckl_jax.parallel import mesh as meshes
from ckl_jax.train.setup import param_shapes
from ckl_jax.train.state import TrainState
from ckl_jax.train.step import make_train_step
from tests.helpers import random_batch

# Sizes that occur once: a shape in the program tells what it is of.
CONFIG = T5Config(
    vocab_size=448,
    emb_dim=16,
    num_heads=4,
    head_dim=8,
    mlp_dim=96,
    num_encoder_layers=2,
    num_decoder_layers=2,
    relpos_buckets=8,
    mlp_activations=("gelu", "linear"),
    scan_layers=True,
)


def compile_step(sizes, dims):
    """The train step of `CONFIG` for 24 rows of 10 and 6 tokens, and its abstract state."""
    rules = meshes.standard_logical_axis_rules(*dims)
    partitioner = meshes.Partitioner(mesh_shape=sizes, logical_axis_rules=rules)
    model, tx = EncoderDecoderModel(Transformer(CONFIG)), adafactor_hf(1e-3, stacked=T5_SCANNED)
    params = param_shapes(model, vanilla(), partitioner).params
    shardings = jax.tree.map(lambda x: x.sharding, params)
    state = jax.eval_shape(lambda p: TrainState.create(p, tx), params)
    moments = partitioner.state_shardings(state.opt_state, params, shardings)
    tree = TrainState(partitioner.replicated, shardings, moments)
    shaped = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), state, tree
    )
    batch = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=partitioner.batch_sharding),
        random_batch(CONFIG, 24, 10, 6),
    )
    key = jax.eval_shape(lambda: jax.random.key(0))
    step = make_train_step(model.loss_fn, tx)
    with partitioner.on_mesh():
        jitted = jax.jit(step, donate_argnums=0, out_shardings=(tree, None))
        return jitted.lower(shaped, {}, batch, key).compile(), shaped


def bytes_of(state):
    """Bytes of the whole state, and of the part that one device holds."""
    whole = of_one = 0
    for leaf in jax.tree.leaves(state):
        whole += np.prod(leaf.shape, dtype=int) * 4
        of_one += np.prod(leaf.sharding.shard_shape(leaf.shape), dtype=int) * 4
    return whole, of_one
