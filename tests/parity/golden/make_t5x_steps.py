"""Makes `t5x_steps.npz`: losses, gradients, updates, decodes and scores of upstream T5X.

    python make_t5x_steps.py

Needs an environment in which all of T5X is importable (`docs/upstream.md` says how to make one)
and no network. The model is `t5x.models.EncoderDecoderModel` around T5X's example network; the
gradients are those of `t5x.trainer.accumulate_grads_microbatched`, the updates those of
`t5x.adafactor.Adafactor` and `t5x.optimizers.adamw`.
"""

import json
import pathlib
import platform
from importlib import metadata

import jax
import jax.numpy as jnp
import numpy as np
import seqio
import steps
from flax import core, traverse_util
from t5x import adafactor, decoding, models, optimizers, train_state, trainer
from t5x.examples.t5 import network

T5X_COMMIT = "cc342d4"
OPTIMIZERS = {
    "adafactor": lambda: adafactor.Adafactor(
        learning_rate=None, logical_factor_rules=adafactor.standard_logical_factor_rules()
    ),
    "adamw": lambda: optimizers.adamw(learning_rate=steps.LEARNING_RATES["adamw"], **steps.ADAM),
}


def make_model(optimizer="adafactor", factor=None, dropout=0.0, decode_fn=decoding.beam_search):
    vocabulary = seqio.PassThroughVocabulary(steps.SIZES["vocab_size"], eos_id=1)
    module = network.Transformer(network.T5Config(**steps.SIZES, dropout_rate=dropout))
    return models.EncoderDecoderModel(
        module,
        vocabulary,
        vocabulary,
        OPTIMIZERS[optimizer](),
        decode_fn,
        loss_normalizing_factor=factor,
        **steps.LOSS,
    )


def make_state(model):
    """A train state with the shared weights, and those weights by path."""
    batch = steps.batches()["plain"]
    shapes = {name: x.shape for name, x in batch.items()}
    variables = jax.eval_shape(lambda: model.get_initial_variables(jax.random.PRNGKey(0), shapes))
    given = steps.weights({path: x.shape for path, x in flat(variables["params"]).items()})
    params = traverse_util.unflatten_dict({k: jnp.asarray(v) for k, v in given.items()}, sep="/")
    variables = core.freeze({**core.unfreeze(variables), "params": params})
    return train_state.FlaxOptimTrainState.create(model.optimizer_def, variables), given


def flat(tree):
    return traverse_util.flatten_dict(dict(tree), sep="/")


def run_step(found, name, model, batch, optimizer, count, key):
    state, before = make_state(model)

    @jax.jit
    def step(state, batch):
        grads, metrics, _ = trainer.accumulate_grads_microbatched(model, state, batch, key, count)
        new, _ = trainer.apply_grads(state, grads, metrics, steps.LEARNING_RATES[optimizer], None)
        return grads, new.params, model.loss_fn(state.params, batch, key)[0]

    grads, after, loss = step(state, batch)
    found[f"{name}/gradients"] = steps.measures(flat(grads))
    moved = {k: np.float64(v) - before[k] for k, v in flat(after).items()}
    found[f"{name}/update"] = steps.measures(moved)
    if count == 1:
        found[f"{name}/loss"] = np.asarray(loss, np.float64)


def run_steps(found):
    for kind, batch in steps.batches().items():
        batch = jax.tree.map(jnp.asarray, batch)
        key = jax.random.PRNGKey(0)  # the rate is 0
        for factor, value in steps.FACTORS.items():
            for optimizer in OPTIMIZERS:
                model = make_model(optimizer, value)
                run_step(found, f"{kind}/{optimizer}/{factor}/1", model, batch, optimizer, 1, key)
            if factor in steps.UPSTREAM_TIMES_OURS:
                model = make_model("adafactor", value)
                name = f"{kind}/adafactor/{factor}/2"
                run_step(found, name, model, batch, "adafactor", 2, key)
            print(kind, factor, flush=True)
        model = make_model("adafactor", None, steps.DROPOUT_RATE)
        key = jax.random.PRNGKey(7)
        run_step(found, f"{kind}/dropout", model, batch, "adafactor", 1, key)


def run_inference(found):
    for kind, batch in steps.batches().items():
        model = make_model()
        state, _ = make_state(model)
        found[f"{kind}/score"] = np.asarray(model.score_batch(state.params, batch), np.float64)
    batch = steps.batches()["plain"]
    shape = (len(batch["encoder_input_tokens"]), steps.DECODE_LENGTH)
    ask = {**batch, "decoder_input_tokens": jnp.zeros(shape, jnp.int32)}
    for beams in (1, 4):
        tokens, aux = model.predict_batch_with_aux(
            state.params, ask, return_all_decodes=True, num_decodes=beams
        )
        # T5X returns the worst first.
        found[f"beams_{beams}/tokens"] = np.asarray(tokens)[:, ::-1].astype(np.int16)
        found[f"beams_{beams}/scores"] = np.asarray(aux["scores"], np.float64)[:, ::-1]
    greedy = make_model(decode_fn=decoding.temperature_sample)
    tokens, _ = greedy.predict_batch_with_aux(state.params, ask, num_decodes=1)
    found["greedy/tokens"] = np.asarray(tokens).astype(np.int16)


def provenance():
    names = ("jax", "jaxlib", "flax", "optax", "seqio", "clu", "numpy")
    versions = {name: metadata.version(name) for name in names}
    return {"t5x": T5X_COMMIT, "python": platform.python_version(), **versions}


if __name__ == "__main__":
    found = {}
    run_steps(found)
    run_inference(found)
    small = {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in found.items()}
    small["provenance"] = np.array(json.dumps(provenance()))
    np.savez_compressed(pathlib.Path(__file__).parent / "t5x_steps.npz", **small)
    print(provenance())
