"""The n-gram model of `benchmarks.ngram` against Kneser-Ney's formulas word by word."""

import collections
import math
import random

import numpy as np
import pytest

from benchmarks.ngram import NGram

VOCABULARY = PAD = 80


def brute_force(texts: list[list[int]], order: int):
    """p(token, history) by the formulas of interpolated modified Kneser-Ney, in dictionaries."""
    padded = [[PAD] * (order - 1) + text for text in texts]
    counts = [collections.Counter() for _ in range(order + 1)]
    for text in padded:
        for i in range(order - 1, len(text)):
            for n in range(1, order + 1):
                counts[n][tuple(text[i - n + 1 : i + 1])] += 1
    used = list(counts)
    for n in range(1, order):
        contexts = collections.Counter(gram[1:] for gram in counts[n + 1])
        used[n] = {g: c if g[0] == PAD else contexts[g] for g, c in counts[n].items()}
    discounts = [None]
    for n in range(1, order + 1):
        n1, n2, n3, n4 = (sum(c == k for c in used[n].values()) for k in (1, 2, 3, 4))
        y = n1 / (n1 + 2 * n2)
        discounts.append([0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3])

    def probability(token: int, history: tuple[int, ...]) -> float:
        n = len(history) + 1
        shorter = probability(token, history[1:]) if n > 1 else 1 / VOCABULARY
        after = [c for gram, c in used[n].items() if gram[:-1] == history]
        if not after:
            return shorter
        count, taken = used[n].get((*history, token), 0), discounts[n]
        weight = sum(taken[min(c, 3)] for c in after)
        return (count - taken[min(count, 3)] + weight * shorter) / sum(after)

    return probability


@pytest.mark.parametrize("order", [1, 2, 3])
def test_losses_are_those_of_the_formulas(order):
    rng = random.Random(0)
    weights = [1 / (1 + i) ** 1.3 for i in range(VOCABULARY)]
    texts = [rng.choices(range(VOCABULARY), weights, k=rng.randint(1, 40)) for _ in range(30)]
    model, probability = NGram(texts, VOCABULARY, order), brute_force(texts, order)
    test = rng.choices(range(VOCABULARY), k=60)
    padded = [PAD] * (order - 1) + test
    histories = [tuple(padded[i : i + order - 1]) for i in range(len(test))]
    expected = [-math.log(probability(t, h)) for t, h in zip(test, histories, strict=True)]
    np.testing.assert_allclose(model.losses(test), expected, rtol=1e-9)
    history = test[:5]
    total = sum(math.exp(-model.losses([*history, t])[-1]) for t in range(VOCABULARY))
    assert total == pytest.approx(1)
