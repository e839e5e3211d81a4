"""The tiny table "models" on which the beam searches are compared.

The next token's logits depend on the example, the position and the last token: a table
`[B, L, V, V]`. Values are float16 numbers, so that they can be stored exactly in little space.
"""

import numpy as np

EOS = 1

# name: (seed, examples, length, vocabulary, what is added to the logit of EOS)
TABLES = {
    "plain": (0, 3, 5, 12, 0.0),
    "early": (1, 3, 6, 10, 2.0),
    "never": (2, 2, 4, 10, -20.0),
    "narrow": (3, 2, 5, 5, 0.5),
    "sharp": (4, 3, 6, 9, 1.0),
}


def make_table(name: str) -> np.ndarray:
    """[B, L, V, V] float16."""
    seed, batch, length, vocabulary, eos_bonus = TABLES[name]
    rng = np.random.default_rng(seed)
    spread = 3.0 if name == "sharp" else 1.0
    table = spread * rng.normal(size=(batch, length, vocabulary, vocabulary))
    table[..., EOS] += eos_bonus
    return table.astype(np.float16)
