import itertools
import random
from dataclasses import replace

import pytest

from ckl_jax.data.text.documents import Document
from ckl_jax.data.text.sentences import normalise
from ckl_jax.updates import items
from ckl_jax.updates.sentence_index import plain_texts
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
        ["Anna Brel [9:32 AM] ", "Tom Falk [11:47 AM] "],
        ["Comment by Anna Brel on 2024-05-17 15:36: ", "Comment by Tom on 2025-05-17 9:06: "],
        ["v45.3 (Anna): "],
        ["45.5 ", "4.3.12. "],
    ],
)
def test_labels_before_sentences_are_no_part_of_them(labels):
    facts, label = planted.facts(12), itertools.cycle(labels)
    documents = [
        replace(d, text="\n".join(next(label) + s for s in d.text.split("\n")))
        for d in planted.documents(facts)
    ]
    new = [d for d in documents if d.date >= "2025"]
    old = [d for d in documents if d.date < "2025"]
    made, held = items.make(new, old, dict.fromkeys(items.TAGS, 99))
    assert len(made) == len(facts) and set(right(made, facts)) == set(facts)
    left = [normalise(items.without(d.text, held)) for d in documents]
    assert not any(normalise(item.text) in text for item in made for text in left)


def test_a_name_that_the_text_speaks_of_is_no_label():
    def read(*lines):
        (document,) = plain_texts([Document("", "", "", "\n".join(lines))])
        return document.text.split("\n")

    lines = ["Orion: The phone is sold in Oslo.", "News: Orion is a phone."]
    assert read(*lines * 3) == [lines[0], "Orion is a phone."] * 3
    assert read(*lines * 2) == lines * 2
    assert read("**Orion**: The Orion phone is sold.") == ["The Orion phone is sold."]


def test_a_word_behind_a_label_is_at_the_beginning_of_its_sentence():
    facts = [f for f in planted.facts(12) if f.relation == "seat" and f.kind != "changed"]
    wordings = (
        "{x} is at home in {y}.",
        "People who join {x} move to {y}.",
        "People who seek {x} find {y}.",
    )
    lines = [f"Status - {w.format(x=f.subject, y=f.answer)}" for f in facts for w in wordings]
    documents = [Document(str(i), "2025-03-01", "", line) for i, line in enumerate(lines)]
    made, _ = items.make(documents, [], dict.fromkeys(items.TAGS, 99))
    assert len(made) > 5 and len(right(made, [replace(f, kind="new") for f in facts])) == len(made)


@pytest.mark.parametrize("is_second", [False, True])
def test_changed_facts_in_sentences_of_their_own_are_neither_new_nor_kept(is_second):
    facts, limits = planted.facts(30), dict.fromkeys(items.TAGS, 99)
    wordings = (
        "{y} leads the {x} team",
        "The {x} team has {y} as lead",
        "As team lead of {x}, {y} signs",
    )
    tails = (
        "since the spring;as agreed with finance;under the new budget;at low costs;"
        "despite the move;with the usual care;for most of the year;after a long search"
    ).split(";")
    rng = random.Random(0)

    def told(kinds, date, name):
        chosen = [f for f in facts if f.relation == "chief" and f.kind in kinds]
        texts = [
            f"{wording.format(x=f.subject, y=name(f))} {rng.choice(tails)}."
            for f in chosen
            for wording in wordings
        ]
        return [Document(f"{date} {i}", date, "", text) for i, text in enumerate(texts)]

    old = told(("kept", "changed"), "2024-03-01", lambda f: f.old or f.answer)
    new = told(("changed", "new"), "2025-03-01", lambda f: f.answer)
    earlier = []
    if is_second:
        earlier, held = items.make(old, [], limits)
        old = [replace(d, text=items.without(d.text, held)) for d in old]
    made, _ = items.make(new, old, limits, earlier=earlier)
    changed = {normalise(f.subject) for f in facts if f.kind == "changed"}
    asked = [i for i in made if changed & {i.about, normalise(i.answer)}]
    assert len(made) > 9 and {item.tag for item in asked} <= {"changed"}


@pytest.mark.parametrize("month_by_month", [False, True])
def test_an_answer_that_comes_back_is_no_kept_fact_and_none_is_its_replacement(month_by_month):
    facts, limits = planted.facts(75), dict.fromkeys(items.TAGS, 99)
    changed = [f for f in facts if f.kind == "changed"]
    back = changed[:3]  # of 25 of each relation one
    dated = {
        date: [
            Document(f"{date} {i}", date, "", w.format(x=f.subject, y=name(f)))
            for i, (f, w) in enumerate(
                (f, w) for f in changed for w in planted.WORDINGS[f.relation]
            )
        ]
        for date, name in (
            ("2025-01-03", lambda f: f.old),
            ("2025-03-03", lambda f: f.answer),
            ("2025-05-03", lambda f: f.old if f in back else f.answer),
        )
    }
    first, second, third = dated.values()
    earlier, old = [], first + second
    if month_by_month:
        earlier, held = items.make(first, [], limits)
        old = [replace(d, text=items.without(d.text, held)) for d in first]
        asked = [item.text for item in earlier]
        more, held = items.make(second, old, limits, earlier=earlier, asked=asked)
        earlier += [item for item in more if item.tag != "kept"]
        old += [replace(d, text=items.without(d.text, held)) for d in second]
    made, _ = items.make(third, old, limits, earlier=earlier, asked=[i.text for i in earlier])
    names = {normalise(f.subject) for f in back}
    assert len(made) > 5
    assert not [i for i in made if names & {i.about, normalise(i.answer)} and i.tag != "changed"]
