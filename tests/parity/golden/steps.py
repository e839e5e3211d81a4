"""The model, batches and settings of the one-step comparison, and what is stored of an array.

Gradients are too large to store. Of each leaf its norm and its products with fixed random vectors
are: a difference of relative size e changes a product by about e times the norm.
"""

import zlib

import numpy as np

SIZES = dict(
    vocab_size=128,
    emb_dim=128,
    num_heads=2,
    head_dim=8,
    mlp_dim=32,
    num_encoder_layers=2,
    num_decoder_layers=1,
    mlp_activations=("gelu", "linear"),
    logits_via_embedding=False,
)
LOSS = dict(label_smoothing=0.1, z_loss=1e-2)
NUMBER = 233.0
FACTORS = {
    "none": None,
    "number": NUMBER,
    "real": "NUM_REAL_TARGET_TOKENS",
    "total": "NUM_TOTAL_TARGET_TOKENS",
    "sequence": "AVERAGE_PER_SEQUENCE",
}
# Upstream adds the means of micro-batches up; ours divides the sum by the whole batch's count.
# With these factors every micro-batch has the same count, and the gradients are so many times ours.
UPSTREAM_TIMES_OURS = {"none": 1.0, "number": 1.0, "total": 2.0}
# Adafactor's is relative to a leaf's root mean square.
LEARNING_RATES = {"adafactor": 0.1, "adamw": 0.01}
# Not the default: with that one the first step is a sign, and a gradient near 0 has a random one.
ADAM = dict(weight_decay=0.1, eps=0.1)
DROPOUT_RATE = 0.3
DECODE_LENGTH = 9
PRODUCTS = 4


def weights(shapes):
    """{path: shape} -> {path: float32 array}; the stream of RandomState never changes."""
    rng = np.random.RandomState(0)
    found = {}
    for path in sorted(shapes):
        noise = rng.standard_normal(shapes[path])
        if path.endswith("scale"):
            weight = 1 + 0.1 * noise
        elif path.endswith("embedding"):
            weight = noise
        else:
            # No saturated softmax: its gradients would be rounding errors.
            weight = noise / np.sqrt(shapes[path][0] * (8 if "query" in path else 1))
        found[path] = np.asarray(weight, np.float32)
    return found


def batches():
    """{"plain": batch, "packed": batch}, 4 rows of 11 input and 8 target positions."""
    rng = np.random.RandomState(1)
    return {
        "plain": _batch(rng, [[(11, 8)], [(6, 5)], [(9, 2)], [(3, 7)]], packed=False),
        "packed": _batch(
            rng,
            [[(4, 3), (5, 4)], [(6, 5)], [(2, 1), (3, 5), (6, 2)], [(5, 4), (6, 4)]],
            packed=True,
        ),
    }


def _batch(rng, rows, packed):
    """Rows of examples, each an (input length, target length); inputs first, then targets."""
    parts = {}
    for side, (name, length) in enumerate((("encoder", 11), ("decoder", 8))):
        ids, segments, positions = (np.zeros((len(rows), length), np.int32) for _ in range(3))
        starts = np.zeros((len(rows), length), bool)
        for row, examples in enumerate(rows):
            at = 0
            for number, sizes in enumerate(examples, 1):
                cells = (row, slice(at, at + sizes[side]))
                ids[cells] = rng.randint(2, 128, sizes[side])
                segments[cells], positions[cells] = number, np.arange(sizes[side])
                starts[row, at] = True
                at += sizes[side]
        parts[name] = (ids, segments, positions, starts)
    inputs, targets = parts["encoder"][0], parts["decoder"][0]
    shifted = np.where(parts["decoder"][3], 0, np.roll(targets, 1, axis=1))
    shifted[targets == 0] = 0
    batch = {
        "encoder_input_tokens": inputs,
        "decoder_input_tokens": shifted,
        "decoder_target_tokens": targets,
        "decoder_loss_weights": (targets > 0).astype(np.float32),
    }
    if packed:
        for name, (_, segments, positions, _) in parts.items():
            batch[f"{name}_segment_ids"], batch[f"{name}_positions"] = segments, positions
    return batch


def measures(leaves):
    """{path: array} -> [paths in order, 1 + PRODUCTS]: norms, and products with random vectors."""
    rows = []
    for path in sorted(leaves):
        x = np.asarray(leaves[path], np.float64).ravel()
        vectors = np.random.RandomState(zlib.crc32(path.encode())).standard_normal(
            (PRODUCTS, x.size)
        )
        rows.append([np.linalg.norm(x), *(vectors @ x)])
    return np.array(rows)
