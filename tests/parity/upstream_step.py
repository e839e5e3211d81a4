"""Run by `test_upstream.py` under upstream T5X: restore a checkpoint, take a step, save twice.

    python upstream_step.py CHECKPOINT SIZES.json OUT

CHECKPOINT is `.../checkpoint_<step>`. Writes OUT/orbax/checkpoint_<step + 1> and
OUT/legacy/checkpoint_<step + 1>.
"""

import json
import os
import sys

import jax
import jax.numpy as jnp
import seqio
from t5x import adafactor, checkpoints, models, partitioning, utils
from t5x.examples.t5 import network

NAMES = ("encoder_input_tokens", "decoder_input_tokens", "decoder_target_tokens")


def main(checkpoint, sizes, out):
    with open(sizes) as file:
        config = network.T5Config(**json.load(file), dropout_rate=0.0)
    vocabulary = seqio.PassThroughVocabulary(config.vocab_size, eos_id=1)
    optimizer = adafactor.Adafactor(
        learning_rate=None, logical_factor_rules=adafactor.standard_logical_factor_rules()
    )
    model = models.EncoderDecoderModel(
        network.Transformer(config), vocabulary, vocabulary, optimizer
    )
    partitioner = partitioning.PjitPartitioner(num_partitions=1)
    state = utils.TrainStateInitializer(
        optimizer_def=optimizer,
        init_fn=model.get_initial_variables,
        input_shapes={name: (1, 2) for name in NAMES},
        partitioner=partitioner,
    ).global_train_state_shape
    folder = os.path.dirname(checkpoint)
    reader = checkpoints.OrbaxCheckpointManagerInterface(folder, state, partitioner)
    state = reader.restore(path=checkpoint)
    grads = jax.tree.map(lambda x: jnp.cos(jnp.arange(x.size)).reshape(x.shape), state.params)
    state = state.apply_gradient(grads, learning_rate=0.01)
    writer = checkpoints.OrbaxCheckpointManagerInterface(f"{out}/orbax/", state, partitioner)
    writer.save(state)
    writer.close()
    checkpoints.Checkpointer(state, partitioner, f"{out}/legacy").save(state)


if __name__ == "__main__":
    main(*sys.argv[1:])
