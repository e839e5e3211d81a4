"""What a model is asked."""

import types

import numpy as np

from ckl_jax.updates import evidence
from ckl_jax.updates.items import Item


class Letters:
    """A model of eight positions that finds short statements likely; a letter is a token."""

    model = types.SimpleNamespace(
        config=types.SimpleNamespace(max_positions=8),
        input_vocabulary=types.SimpleNamespace(encode_many=lambda texts: [[1] * len(texts[0])]),
    )

    def token_scores(self, statements):
        values = np.array([[-len(s.text)] for s in statements], np.float32)
        return types.SimpleNamespace(values=values, scored=values < 0)


def test_questions_longer_than_the_positions_are_counted_aloud():
    items = [
        Item(id=str(i), tag="new", text=text, start=0, end=2, candidates=("ab", "c"), old="")
        for i, text in enumerate(("ab d", "ab defgh"))
    ]
    said = []
    results = evidence.ask(Letters(), items, {}, lambda *given: said.append(given))
    assert results["answers"] == {"0": 1} and results["too_long"] == 1
    assert said[-1] == (
        1,
        1,
        "facts asked, without 1 that are longer than the model's 8 positions",
    )
