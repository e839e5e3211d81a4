"""What a model is asked."""

import types

import numpy as np

from ckl_jax.data.facts.statements import Statement
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


def test_facts_are_asked_and_text_beyond_the_positions_is_left_out():
    items = [Item(id="0", tag="new", text="ab d", start=0, end=2, candidates=("ab", "c"), old="")]
    texts = {"new": [Statement(text, (), ((0, 1),)) for text in ("ab d", "ab defgh")]}
    said = []
    results = evidence.ask(Letters(), items, texts, lambda *given: said.append(given))
    assert results["answers"] == {"0": 1} and results["texts"] == {"new": [[4.0, 1]]}
    assert said[0] == (1, 1, "facts asked")
