"""Makes the golden values that come from upstream T5X.

    python make_t5x.py --source DIR

DIR is a checkout of github.com/google-research/t5x (the folder with `t5x/` in it); the values
in this folder are from commit cc342d4 (2026-04-21). Needs no network.

Only its decoding, Adafactor and example network are used, so what those modules import and never
call here (all of `t5x.utils` but one function, `jestimator`) is replaced by empty modules.
"""

import argparse
import pathlib
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util
from packing import pack
from tables import EOS, TABLES, make_table

HERE = pathlib.Path(__file__).parent

# name: (table, beams, alpha)
SEARCHES = {
    "plain_2": ("plain", 2, 0.6),
    "plain_4": ("plain", 4, 0.6),
    "early_3": ("early", 3, 0.6),
    "early_4_sum": ("early", 4, 0.0),
    "early_2_mean": ("early", 2, 1.0),
    "never_3": ("never", 3, 0.6),
    "narrow_3": ("narrow", 3, 0.6),
    "sharp_4": ("sharp", 4, 0.6),
}
ADAFACTORS = {
    "default": {},
    "small_factored": dict(min_dim_size_to_factor=8),
    "absolute": dict(min_dim_size_to_factor=8, multiply_by_parameter_scale=False),
    "decayed": dict(min_dim_size_to_factor=8, weight_decay_rate=0.01, beta1=0.9),
}
SHAPES = {"norm": (9,), "wide": (8, 12), "tall": (13, 9), "small": (3, 12)}
STEPS = 20
NETWORKS = {
    "relu_tied": dict(mlp_activations=("relu",), logits_via_embedding=True),
    "gelu_untied": dict(mlp_activations=("gelu", "linear"), logits_via_embedding=False),
}
SIZES = dict(
    vocab_size=64,
    emb_dim=16,
    num_heads=2,
    head_dim=8,
    mlp_dim=24,
    num_encoder_layers=2,
    num_decoder_layers=2,
)


def install(source):
    """Makes `t5x` importable without running its `__init__`, which imports everything."""

    def stub(name, **members):
        sys.modules[name] = module = types.ModuleType(name)
        vars(module).update(members)

    stub("t5x", __path__=[str(pathlib.Path(source) / "t5x")])
    stub(
        "t5x.utils",
        flatten_dict_string_keys=lambda tree: traverse_util.flatten_dict(tree, sep="/"),
    )
    stub("jestimator")
    stub("jestimator.amos", ScaleByAmosState=type("Unused", (), {}), amos=lambda **kw: None)
    stub("jestimator.amos_helper", state_partition_rule=None)
    sys.modules["jestimator"].amos = sys.modules["jestimator.amos"]
    sys.modules["jestimator"].amos_helper = sys.modules["jestimator.amos_helper"]


def search_tables():
    from t5x import decoding

    found = {f"table/{name}": make_table(name) for name in TABLES}
    for name, (table, beams, alpha) in SEARCHES.items():
        logits = jnp.asarray(found[f"table/{table}"].astype(np.float32))
        batch, length = logits.shape[:2]
        example = jnp.arange(batch * beams) // beams

        def step(state, logits=logits, example=example):
            return logits[example, state.cur_index, state.cur_token[:, 0]], state.cache

        tokens, scores = decoding.beam_search(
            jnp.zeros((batch, length + 1), jnp.int32),
            {},
            step,
            EOS,
            num_decodes=beams,
            alpha=alpha,
            max_decode_len=length,
        )
        # T5X returns the worst first.
        found[f"{name}/tokens"] = np.asarray(tokens)[:, ::-1].astype(np.int8)
        found[f"{name}/scores"] = np.asarray(scores)[:, ::-1]
        found[f"{name}/settings"] = np.array([beams, alpha], np.float32)
        found[f"{name}/table_name"] = np.array(table)
    np.savez_compressed(HERE / "t5x_beam_search.npz", **found)


def gradients(step):
    """Deterministic, of sizes that exercise the clipping of updates."""

    def leaf(shape, i):
        x = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
        return (np.sin(x * 1.7 + step * 0.9 + i) * (1 + 5 * (step % 4 == 3))).astype(np.float16)

    return {name: leaf(shape, i) for i, (name, shape) in enumerate(SHAPES.items())}


def run_adafactors():
    from t5x import adafactor

    rng = np.random.default_rng(0)
    start = {k: rng.normal(size=s).astype(np.float16) for k, s in SHAPES.items()}
    grads = [gradients(i) for i in range(STEPS)]
    found = {f"start/{k}": v for k, v in start.items()}
    found |= {f"grad/{k}": np.stack([g[k] for g in grads]) for k in SHAPES}
    for name, settings in ADAFACTORS.items():
        definition = adafactor.Adafactor(learning_rate=0.01, **settings)
        params = {k: jnp.asarray(v, jnp.float32) for k, v in start.items()}
        optimizer = definition.create(params)
        for grad in grads:
            grad = {k: jnp.asarray(v, jnp.float32) for k, v in grad.items()}
            optimizer = optimizer.apply_gradient(grad)
        found |= {f"{name}/{k}": np.asarray(v) for k, v in optimizer.target.items()}
    np.savez_compressed(HERE / "t5x_adafactor.npz", **found)


def run_network(name):
    from t5x.examples.t5 import network

    config = network.T5Config(dropout_rate=0.0, **SIZES, **NETWORKS[name])
    model = network.Transformer(config)
    rng = np.random.default_rng(1)
    inputs = rng.integers(2, 64, size=(3, 7)).astype(np.int8)
    targets = rng.integers(2, 64, size=(3, 5)).astype(np.int8)
    inputs[1, 4:], targets[2, 3:] = 0, 0
    shifted = np.pad(targets, ((0, 0), (1, 0)))[:, :-1]
    args = [jnp.asarray(a, jnp.int32) for a in (inputs, shifted, targets)]
    variables = model.init(jax.random.key(0), *args, enable_dropout=False)
    flat = traverse_util.flatten_dict(variables["params"], sep="/")
    noisy = {
        k: np.asarray(v + 0.2 * rng.normal(size=v.shape)).astype(np.float16)
        for k, v in flat.items()
    }
    found = pack(noisy)
    params = traverse_util.unflatten_dict(
        {k: jnp.asarray(v, jnp.float32) for k, v in noisy.items()}, sep="/"
    )
    found["logits"] = np.asarray(model.apply({"params": params}, *args, enable_dropout=False))
    found |= {"inputs": inputs, "targets": targets}
    found |= decode(model, params, args[0])
    np.savez_compressed(HERE / f"t5x_network_{name}.npz", **found)
    print(name, found["beams_4/tokens"].tolist())


def decode(model, params, inputs, length=6):
    """Greedy and four beams with T5X's own cache and decoders."""
    from t5x import decoding

    found, dummy = {}, jnp.ones((len(inputs), length), jnp.int32)
    _, made = model.apply(
        {"params": params},
        inputs,
        dummy,
        dummy,
        decode=True,
        enable_dropout=False,
        mutable=["cache"],
    )
    encoded = model.apply({"params": params}, inputs, enable_dropout=False, method=model.encode)
    for beams in (1, 4):
        rows = [jnp.repeat(x, beams, axis=0) for x in (encoded, inputs)]

        def step(state, rows=rows):
            logits, new = model.apply(
                {"params": params, "cache": state.cache},
                *rows,
                state.cur_token,
                state.cur_token,
                enable_dropout=False,
                decode=True,
                max_decode_length=length,
                mutable=["cache"],
                method=model.decode,
            )
            return logits[:, 0], new["cache"]

        start = jnp.zeros((len(inputs), length + (beams > 1)), jnp.int32)
        if beams == 1:
            tokens, _ = decoding.temperature_sample(start, made["cache"], step, EOS, topk=1)
        else:
            tokens, scores = decoding.beam_search(
                start, made["cache"], step, EOS, num_decodes=beams, max_decode_len=length
            )
            found[f"beams_{beams}/scores"] = np.asarray(scores)[:, ::-1]
        found[f"beams_{beams}/tokens"] = np.asarray(tokens)[:, ::-1].astype(np.int8)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", required=True, help="checkout of T5X")
    install(parser.parse_args().source)
    search_tables()
    run_adafactors()
    for network_name in NETWORKS:
        run_network(network_name)
