"""Makes `t5x_legacy.zip`, a checkpoint in T5X's legacy form, and `t5x_legacy.npz`, its content.

    python make_t5x_legacy.py

Needs an environment in which all of T5X is importable (`docs/upstream.md`). The network is the
smallest that T5X's example gives; three Adafactor steps leave numbers in its state. Weights are
saved as bfloat16, some arrays in the msgpack file and some as zarr folders, as in T5X's public
checkpoints.
"""

import json
import pathlib
import shutil
import tempfile
from importlib import metadata

import jax
import jax.numpy as jnp
import numpy as np
import seqio
from flax import core, traverse_util
from t5x import adafactor, checkpoints, models, partitioning, train_state
from t5x.examples.t5 import network

HERE = pathlib.Path(__file__).parent
SIZES = dict(
    vocab_size=4,
    emb_dim=4,
    num_heads=1,
    head_dim=2,
    mlp_dim=2,
    num_encoder_layers=1,
    num_decoder_layers=1,
    mlp_activations=("relu",),
    logits_via_embedding=True,
)


class Partitioner(partitioning.PjitPartitioner):
    """Arrays on no mesh axis count as not partitioned, as on several devices."""

    def get_mesh_axes(self, state):
        axes = super().get_mesh_axes(state)
        is_spec = partitioning.PartitionSpec
        return jax.tree.map(
            lambda x: x if isinstance(x, is_spec) and any(x) else None,
            axes,
            is_leaf=lambda x: isinstance(x, is_spec),
        )


def make_state():
    vocabulary = seqio.PassThroughVocabulary(4, eos_id=1)
    rules = adafactor.standard_logical_factor_rules()
    optimizer = adafactor.Adafactor(learning_rate=None, logical_factor_rules=rules)
    module = network.Transformer(network.T5Config(**SIZES, dropout_rate=0.0))
    model = models.EncoderDecoderModel(module, vocabulary, vocabulary, optimizer)
    names = ("encoder_input_tokens", "decoder_input_tokens", "decoder_target_tokens")
    variables = model.get_initial_variables(jax.random.PRNGKey(0), {k: (1, 2) for k in names})
    state = train_state.FlaxOptimTrainState.create(optimizer, variables)
    grads = jax.tree.map(lambda x: jnp.cos(jnp.arange(x.size)).reshape(x.shape), state.params)
    for _ in range(3):
        state = state.apply_gradient(grads, learning_rate=0.01)
    return state


def provenance():
    names = ("jax", "flax", "tensorstore", "numpy")
    return {"t5x": "cc342d4", **{name: metadata.version(name) for name in names}}


if __name__ == "__main__":
    state = make_state()
    with tempfile.TemporaryDirectory() as folder:
        saver = checkpoints.Checkpointer(
            state, Partitioner(num_partitions=1), folder, save_dtype=jnp.bfloat16
        )
        saver.save(state)
        shutil.make_archive(str(HERE / "t5x_legacy"), "zip", folder)
    flat = traverse_util.flatten_dict(core.unfreeze(state.state_dict()), sep="/")
    index = [(name, list(x.shape)) for name, x in flat.items()]
    np.savez_compressed(
        HERE / "t5x_legacy.npz",
        values=np.concatenate([np.ravel(x).astype(np.float32) for x in flat.values()]),
        index=np.array(json.dumps(index)),
        provenance=np.array(json.dumps(provenance())),
    )
