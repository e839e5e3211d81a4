"""Makes haiku_xl.npz: the Haiku Transformer-XL of the authors' group, on random weights.

    git clone https://github.com/google-deepmind/transformer_grammars  (0f546f0 was used)
    pip install dm-haiku einshape
    python make_haiku_xl.py PATH_TO_transformer_grammars haiku_xl.npz

Three segments with a memory of 7 positions: the first one with an empty memory, the second with
two empty slots, the third with a full memory and padding (0) at the end of a row. Keys of the file:
`params/<module>/<name>`, `tokens`, and `logits` and `memory` of each segment.
"""

import importlib.metadata
import sys

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

# What newer versions of jax no longer have and that code still calls.
jax.lax.tie_in = lambda _, x: x
jax.tree_map = jax.tree.map

SIZES = dict(vocab_size=40, d_model=16, num_layers=3, num_heads=2, ffw_hidden_size=24)
ROWS, LENGTH, SLOTS = 2, 5, 7


def main(repository: str, out: str) -> None:
    sys.path.insert(0, repository)
    from transformer_grammars.models import lm

    def apply(tokens, begins, slots):
        model = lm.GeneralizedTXLLanguageModel(
            **SIZES,
            core_dropout=0.0,
            core_output_dropout=0.0,
            embedding_dropout=0.0,
            sequence_length=LENGTH,
            memory_length=SLOTS,
            tied_input_output_embeddings=True,
        )
        return model(
            tokens,
            begins,
            attn_mask=None,
            attn_relpos=None,
            attn_indicator=None,
            memory_attn_mask=None,
            memory_padding_mask=slots,
            smartmem_mem_from_seq=None,
            smartmem_mem_from_mem=None,
            is_training=False,
        )[0]

    rng = np.random.default_rng(0)
    tokens = rng.integers(1, SIZES["vocab_size"], (3, ROWS, LENGTH)).astype(np.int32)
    tokens[2, 1, 3:] = 0
    begins, nothing = jnp.ones(ROWS), jnp.zeros((ROWS, SLOTS))
    network = hk.transform_with_state(apply)
    params, state = network.init(jax.random.key(0), tokens[0], begins, nothing)

    def random(module, name, x):
        noise = rng.standard_normal(x.shape)
        x = noise / np.sqrt(x.shape[0]) if x.ndim > 1 else 0.1 * noise + (name == "scale")
        return x.astype(np.float16).astype(np.float32)  # packs better

    params = hk.data_structures.map(random, params)
    found = {f"params/{m}/{n}": x for m, n, x in hk.data_structures.traverse(params)}
    found["tokens"] = tokens
    state = jax.tree.map(jnp.zeros_like, state)
    for i in range(3):
        filled = min(SLOTS, i * LENGTH)
        slots = jnp.tile(jnp.arange(SLOTS) >= SLOTS - filled, (ROWS, 1)).astype(jnp.float32)
        begins = jnp.full(ROWS, float(i == 0))
        logits, state = network.apply(params, state, None, tokens[i], begins, slots)
        (memory,) = jax.tree.leaves(state)  # [L, B, M, D]
        found[f"logits_{i}"], found[f"memory_{i}"] = logits, memory
    names = ("jax", "dm-haiku")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    versions += ", transformer_grammars 0f546f0"
    np.savez_compressed(out, provenance=versions, **{k: np.asarray(v) for k, v in found.items()})
    print(versions)


if __name__ == "__main__":
    main(*sys.argv[1:])
