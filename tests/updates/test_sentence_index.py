import dataclasses
import itertools

import pytest

from ckl_jax.data.text.sentences import normalise
from ckl_jax.updates import items
from ckl_jax.updates.sentence_index import labels_of
from tests.updates import planted
from tests.updates.planted import right


@pytest.mark.parametrize(
    "labels",
    [
        ["**News:** ", ""],
        ["> Anna Brel: ", "> Tom Falk: "],
        ["- 10:32 Press Office: ", "- 11:47 Press Office: "],
        ["[Status] [Low] "],
        ["**Acme News** – "],
        ["\U0001f4e3 "],
        ["| Low | "],
    ],
)
def test_labels_before_sentences_are_no_part_of_them(labels):
    facts, label = planted.facts(12), itertools.cycle(labels)
    documents = [
        dataclasses.replace(d, text="\n".join(next(label) + s for s in d.text.split("\n")))
        for d in planted.documents(facts)
    ]
    new = [d for d in documents if d.date >= "2025"]
    old = [d for d in documents if d.date < "2025"]
    made, held = items.make(new, old, dict.fromkeys(items.TAGS, 99))
    assert len(made) == len(facts) and set(right(made, facts)) == set(facts)
    left = [normalise(items.without(d.text, held)) for d in documents]
    assert not any(normalise(item.text) in text for item in made for text in left)


def test_a_name_that_the_text_speaks_of_is_no_label():
    lines = ["Orion: The phone is sold in Oslo.", "News: Orion is a phone."] * 3
    assert labels_of(lines) == {"News:"}
    assert labels_of(["News: Orion is a phone."] * 2) == frozenset()
