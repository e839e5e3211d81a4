import dataclasses
import itertools
import re

import pytest

from ckl_jax.data.text.documents import Document
from ckl_jax.data.text.sentences import normalise
from ckl_jax.data.text.spans import split_sentences
from ckl_jax.updates import items, new_text
from tests.updates import planted
from tests.updates.planted import right


def make(tellings, each=30, facts=None):
    facts = facts or planted.facts(each)
    documents = planted.documents(facts, tellings=tellings)
    new = [d for d in documents if d.date >= "2025"]
    old = [d for d in documents if d.date < "2025"]
    return facts, new, *items.make(new, old, dict.fromkeys(items.TAGS, 500))


def test_planted_facts_are_found_with_their_class():
    facts, _, made, _ = make(tellings=4)
    assert len(made) == len(facts) and set(right(made, facts)) == set(facts)


@pytest.mark.parametrize("has_older", [True, False])
def test_facts_that_end_are_neither_kept_nor_new_and_no_denial_is_asked(has_older):
    facts = planted.facts(18)
    ended = [f for f in facts if f.kind == "kept"][::3]
    denials = ("{y} has left, and nobody leads {x} for now.", "{x} is not led by {y} any more.")
    texts = [d.format(x=f.subject, y=f.answer) for f in ended for d in denials]
    documents = planted.documents(facts)
    old = [d for d in documents if d.date < "2025"]
    new = [d for d in documents if d.date >= "2025"]
    said = [f for f in ended if not any(f.answer in d.text for d in new)]
    assert len(said) > 3
    new.append(Document("e", "2025-06-01", "", "\n".join(texts)))
    made, _ = items.make(
        *((new, old) if has_older else (old + new, [])), dict.fromkeys(items.TAGS, 500)
    )
    asked = {frozenset((i.about, normalise(i.answer))) for i in made}
    assert len(asked) > 40
    assert not asked & {frozenset((normalise(f.subject), normalise(f.answer))) for f in said}
    assert not any(" not " in item.text or "left" in item.text for item in made)


@pytest.mark.parametrize(
    "sentence",
    [
        "{y} handed {x} over to Nora Falk.",
        "Nora Falk took over {x} from {y}.",
        "Nora Falk succeeded {y} at {x}.",
        "Nora Falk replaces {y} as head of {x}.",
        "Since May the firm {x} went from {y} to Nora Falk.",
        "The head of {x} is no more {y}.",
        "{y} used to run {x} for years.",
        "{y} is the ex-manager of {x}.",
        "The firm {x} was previously run by {y}.",
        "From now on {x} must do without {y}.",
    ],
)
def test_an_old_fact_that_gives_way_in_other_words_is_not_kept(sentence):
    facts = planted.facts(12)
    documents = planted.documents(facts)
    old = [d for d in documents if d.date < "2025"]
    new = [d for d in documents if d.date >= "2025"]
    said = [f for f in facts if f.kind == "kept" and not any(f.answer in d.text for d in new)]
    told = [sentence.format(x=f.subject, y=f.answer) for f in said[::2]]
    new.append(Document("e", "2025-06-01", "", "\n".join(told)))
    made, _ = items.make(new, old, dict.fromkeys(items.TAGS, 500))
    kept = {frozenset((i.about, normalise(i.answer))) for i in made if i.tag == "kept"}
    pairs = [frozenset((normalise(f.subject), normalise(f.answer))) for f in said]
    assert len(said) > 5 and not kept & {*pairs[::2]} and kept >= {*pairs[1::2]}


def test_a_question_stands_in_no_training_text_whatever_leads_in():
    held = frozenset([normalise("The Egret lamp is made by Munk Brothers.")])
    text = "Update 2: The Egret lamp is made by Munk Brothers. The shop is open.\n"
    text += "As of 3 May 2026, the Egret lamp is made by Munk Brothers.\n"
    text += "The Egret lamp is made by **Munk Brothers**, the paper wrote."
    assert items.without(text, held) == "The shop is open."
    for other in ("The Egret lamp is made by Munk and his Brothers.", "Lamps by Munk Brothers."):
        assert items.without(other, held) == other


def test_a_sentence_with_something_behind_it_is_no_other_wording():
    facts = planted.facts(12)
    new = [d for d in planted.documents(facts) if d.date >= "2025"]
    said = [
        dataclasses.replace(d, id=f"{d.id} again", text=d.text.replace(".", ", sources said."))
        for d in new
    ]
    made, held = items.make(new + said, [], dict.fromkeys(items.TAGS, 500))
    assert len(made) > 5
    texts = [normalise(items.without(d.text, held)) for d in new + said]
    for item in made:
        question, evidence = normalise(item.text), normalise(item.evidence)
        assert question not in evidence and evidence not in question
        assert not any(question in text for text in texts)
        assert any(evidence in text for text in texts)


def test_wrong_answers_are_what_the_text_says_of_others_in_the_same_relation():
    facts, _, made, _ = make(tellings=3)
    relation = {name: f.relation for f in facts for name in (f.answer, f.old)}
    relation |= {f.subject: "firm" for f in facts}
    offered = [(item.answer, name) for item in made for name in item.candidates[1:]]
    assert len(offered) == 9 * len(made) > 0
    assert all(relation.get(name) == relation[answer] for answer, name in offered)


def test_no_firm_is_offered_for_a_person_where_both_begin_the_same_words():
    wordings = "The chief of {x} is {y}.", "{y} is the chief of {x}.", "{x} has {y} as its chief."
    facts = [f for f in planted.facts(60) if f.relation == "chief" and f.kind != "changed"]
    said = (w.format(x=f.subject, y=f.answer) for w in wordings for f in facts)
    documents = [Document(str(i), "2025-03-01", "", text) for i, text in enumerate(said)]
    people = {f.answer for f in facts}
    made, _ = items.make(documents, [], dict.fromkeys(items.TAGS, 99))
    asked = [set(item.candidates) for item in made if item.answer in people]
    assert len(asked) > 9 and people >= set().union(*asked)


def test_a_part_of_the_answer_is_no_wrong_answer():
    documents = museums(15, 2025, range(4))
    # The last name alone is at the head of another museum.
    told = re.compile(r"The (\w+) Museum is directed by \w+ (\w+)\.")
    short = [
        Document(f"short {d.id}", d.date, "", f"The {m[1]}x Museum is directed by {m[2]}.")
        for d in documents
        if (m := told.match(d.text))
    ]
    made, _ = items.make(documents + short, [], dict.fromkeys(items.TAGS, 99))
    assert made
    for item in made:
        answer = set(item.answer.split())
        assert not any(set(name.split()) <= answer for name in item.candidates[1:])


def named(facts, relation, old, answer):
    """The facts, of which the changed ones of a relation have other names."""
    return [
        dataclasses.replace(f, old=old(f), answer=answer(f))
        if (f.kind, f.relation) == ("changed", relation)
        else f
        for f in facts
    ]


@pytest.mark.parametrize("is_new", [True, False])
def test_a_fact_that_its_own_text_replaces_later_is_not_asked(is_new):
    facts = planted.facts(18)
    documents = planted.documents(facts)  # the changes stand in one text
    texts = (documents, []) if is_new else ([], documents)
    made, _ = items.make(*texts, dict.fromkeys(items.TAGS, 500))
    asked = {frozenset((item.about, item.answer.lower())) for item in made}
    last = {frozenset((f.subject.lower(), f.answer.lower())) for f in facts}
    first = {frozenset((f.subject.lower(), f.old.lower())) for f in facts if f.old}
    assert not asked & first and len(asked & last) == len(facts)


def test_a_change_of_a_number_alone_is_one():
    stem = {f: f.answer.split()[0] for f in planted.facts(18)}
    facts = named(stem, "product", lambda f: f"{stem[f]} 4", lambda f: f"{stem[f]} 5")
    _, _, made, _ = make(5, facts=facts)
    assert set(right(made, facts)) == set(facts) and len(made) == len(facts)
    olds = {i.old for i in made if i.tag == "changed"}
    assert olds >= {f.old for f in facts if f.kind == "changed"}


def test_names_with_a_word_that_is_written_small_elsewhere_are_whole():
    facts = planted.facts(18)  # whose text has "near the old harbour"
    (first, *_) = (f for f in facts if (f.kind, f.relation) == ("changed", "chief"))
    facts[facts.index(first)] = dataclasses.replace(
        first, old="Harbour Steel", answer="Granite Steel"
    )
    _, _, made, _ = make(5, facts=facts)
    assert set(right(made, facts)) == set(facts)


def test_names_may_begin_with_any_capital():
    accented = str.maketrans("BCDLNSZ", "\u00dc\u010c\u00d6\u0141\u00d1\u0160\u017b")
    names = ("subject", "answer", "old")
    facts = [
        dataclasses.replace(f, **{name: getattr(f, name).translate(accented) for name in names})
        for f in planted.facts(20)
    ]
    _, _, made, _ = make(2, facts=facts)
    _, _, plain, _ = make(2, each=20)
    assert len(made) == len(set(right(made, facts))) == len(plain)


FORMS = [
    "- {}",
    "* {}",
    "\u2022 {}",
    "> {}",
    "**{}**",
    "_{}_",
    "**{0}",
    "<p>{}</p>",
    "{}[^1]",
    "{}[12]",
]


@pytest.mark.parametrize("form", FORMS)
def test_facts_in_markdown_are_facts_and_their_changes_changes(form):
    facts = planted.facts(12)
    documents = planted.documents(facts, tellings=4)
    old, new = ([d for d in documents if (d.date < "2025") == is_old] for is_old in (True, False))
    first, rest = form.split("{")[0], "**" if form == "**{0}" else ""

    def marked(sentence):
        word, _, more = sentence.partition(" ")  # of the last form its first word alone
        return f"{first}{word}{rest} {more}" if rest else form.format(sentence)

    forms = [
        dataclasses.replace(d, text="\n".join(map(marked, split_sentences(d.text)))) for d in new
    ]
    made, held = items.make(forms, old, dict.fromkeys(items.TAGS, 500))
    assert set(right(made, facts)) == set(facts) and len(made) == len(facts)
    left = normalise("\n".join(items.without(d.text, held) for d in forms))
    assert not any(normalise(item.text) in left for item in made)
    assert len({new_text._hashes(s) for s in (planted.FILLER[0], marked(planted.FILLER[0]))}) == 1


def test_a_new_fact_of_a_name_with_several_facts_is_no_change():
    """A manager of two firms is one; handovers do not make two managers of a firm."""
    facts = planted.facts(50, shared=0.2)
    documents = planted.documents(facts)
    handed = [
        f"After the months at {f.subject}, {f.answer} has followed {f.old} there."
        for f in facts
        if f.kind == "changed"
    ]
    new = [d for d in documents if d.date >= "2025"]
    new.append(Document("h", "2025-06-01", "", "\n".join(handed)))
    old = [d for d in documents if d.date < "2025"]
    made, _ = items.make(new, old, dict.fromkeys(items.TAGS, 500))
    found = set(right(made, facts))
    counts = {kind: sum(f.kind == kind for f in found) for kind in items.TAGS}
    assert counts["new"] == 50 and counts["changed"] >= 48 and counts["kept"] >= 20
    assert len(made) <= len(found) + 2


def test_changes_are_changes_though_old_answers_were_named_after_earlier_ones():
    earlier, facts = planted.facts(30, seed=7), planted.facts(30)
    wordings = {name: first for name, (first, *_) in planted.WORDINGS.items()}
    told = [wordings[f.relation].format(x=f.subject, y=f.old) for f in earlier if f.old]
    both = planted.documents(earlier), planted.documents(facts)
    moved = (  # a year back: the earlier changes are of 2024
        dataclasses.replace(d, date=f"{int(d.date[:4]) - 1}{d.date[4:]}") for d in both[0]
    )
    old = [*moved, *(d for d in both[1] if d.date < "2025")]
    old.append(Document("late", "2024-12-30", "", "\n".join(told)))
    new = [d for d in both[1] if d.date >= "2025"]
    made, _ = items.make(new, old, dict.fromkeys(items.TAGS, 500))
    changed = {f for f in facts if f.kind == "changed"}
    assert changed <= set(right(made, facts))


def test_old_answers_that_are_named_after_a_change_make_no_difference():
    assert planted.asked(30, seeds=1, reminded=0.4) == {
        "new": 30,
        "changed": 30,
        "kept": 30,
        "wrong": 0,
    }


def test_changes_are_not_asked_where_most_old_answers_are_named_as_often_as_before():
    """Whether the new answers replaced the old ones cannot be told there."""
    assert planted.asked(30, seeds=1, reminded=2 / 3, reminders=4) == {
        "new": 30,
        "changed": 0,
        "kept": 30,
        "wrong": 0,
    }


def test_what_sends_its_reader_elsewhere_and_a_name_within_another_are_not_asked():
    sentences = (
        "For more information, see Copying Snapshots in the Amazon Guide.",
        "Copying Snapshots is explained at some length in the Amazon Guide.",
        "The Harbour Store is a part of the Northern Harbour Store since May.",
        "Most buyers of the Northern Harbour Store know its Harbour Store well.",
        *(  # names from which wrong answers are taken
            f"The town of {a} Hill lies on the river {b} Water since long ago."
            for a, b in map(
                str.split, ("Old Anna", "New Berta", "Far Clara", "Low Dora", "Big Emma")
            )
        ),
    )
    made, held = items.make(
        [Document(f"{i}", "2025-01-01", "", s) for i, s in enumerate(sentences)],
        [],
        dict.fromkeys(items.TAGS, 9),
    )
    assert not made and not held


def test_no_item_is_wrong_where_facts_are_told_twice():
    facts, _, made, _ = make(tellings=2)
    assert len(right(made, facts)) == len(made) >= 0.85 * len(facts)


def museums(count, year, wordings, first=0):
    """Documents that say in each of some wordings who runs a museum."""
    every = (
        "The {x} Museum, led by {y}, opened a new wing.",
        "The {x} Museum is directed by {y}.",
        "{y} runs the {x} Museum with a staff of thirty.",
        "At the head of the {x} Museum is {y}.",
    )
    names = (f"{a}{b}" for a in ("Bel", "Dor", "Fam", "Gul", "Kel", "Mar") for b in PLACES)
    names = list(itertools.islice(names, first, first + count))
    people = (f"{name}a {year % 10 * 'o'}{name.lower()}".title() for name in names)
    return [
        Document(f"{name} {year} {w}", f"{year}-0{1 + w}-01", "", every[w].format(x=name, y=person))
        for name, person in zip(names, people, strict=True)
        for w in wordings
    ]


PLACES = ("ton", "vik", "ova", "mund", "sted")


def test_a_change_that_is_told_in_other_wordings_is_one():
    # 20 museums join the wordings; 5 more have another director, in the other two wordings.
    old = museums(20, 2024, range(4)) + museums(5, 2024, (0, 1), first=20)
    new = museums(5, 2025, (2, 3), first=20) + museums(5, 2025, range(4), first=25)
    made, _ = items.make(new, old, dict.fromkeys(items.TAGS, 99))
    changed = [item for item in made if item.tag == "changed"]
    was = {d.text for d in museums(5, 2024, range(4), first=20)}
    assert len(changed) == 5 and not was & {item.text for item in made}


@pytest.mark.parametrize("two", [0, 2])
def test_what_may_have_been_replaced_is_not_asked_as_kept(two):
    """Where one name in ten has two answers, too."""
    old = museums(20, 2024, range(4))
    for d in museums(two, 2019, range(4), first=10):
        old.append(dataclasses.replace(d, id=f"{d.id} too", date=d.date.replace("2019", "2024")))
    first, _ = items.make(old, [], dict.fromkeys(items.TAGS, 99))
    held = {normalise(i.text) for i in first}
    rest = [d for d in old if normalise(d.text) not in held]
    new = museums(10, 2025, range(4))
    asked = [i.text for i in first]
    made, _ = items.make(new, rest, dict.fromkeys(items.TAGS, 99), 0, first, asked)
    was = {d.text for d in museums(10, 2024, range(4))}
    assert len(made) >= 15 and not was & {item.text for item in made}


def test_an_old_fact_that_is_told_again_is_kept():
    old, again = museums(12, 2024, range(4)), museums(6, 2024, (0,))
    new = [dataclasses.replace(d, date="2025-01-01") for d in again]
    made, _ = items.make(new, old, dict.fromkeys(items.TAGS, 99))
    assert len(made) == 12 and {item.tag for item in made} == {"kept"}


def test_text_that_is_held_back_says_what_was_so_and_is_not_asked():
    old, new = museums(24, 2024, range(4)), museums(4, 2025, range(4), first=20)
    held_back = [d for d in old if "2024" in d.id and d.id.split()[0] in new[0].id]
    rest = [d for d in old if d not in held_back]
    limits = dict.fromkeys(items.TAGS, 99)
    made, _ = items.make(new, rest, limits, held_back=([], held_back))
    about = new[0].id.split()[0].lower()
    (tag,) = {item.tag for item in made if about in item.text.lower()}
    texts = {d.text for d in held_back}
    assert tag == "changed" and not texts & {t for i in made for t in (i.text, i.evidence)}
    (tag,) = {i.tag for i in items.make(new, rest, limits)[0] if about in i.text.lower()}
    assert tag == "new"


def test_what_is_asked_is_not_trained_on_and_its_evidence_is():
    _, new, made, held = make(tellings=4)
    text = "\n".join(items.without(d.text, held) for d in new)
    for item in made:
        assert item.text not in text
        if item.tag != "kept":  # which old text alone states here
            assert item.evidence in text and item.evidence != item.text


def test_a_sentence_that_is_held_back_is_no_evidence():
    sentences = (
        "Mara Quill began with Orda Foods in a barn.",
        "The firm Orda Foods was founded by Mara Quill in the town of Velm.",
        "It was in Velm that Orda Foods opened its first shop.",
        "Mara Quill still lives in Velm, close to her mother.",
        *(  # names from which wrong answers are taken
            f"The town of {name} Hill lies on the river {name} Water since long ago."
            for name in ("Old Anna", "New Berta", "Far Clara", "Low Dora", "Big Emma")
        ),
    )
    documents = [Document(f"{i}", "2025-01-01", "", s) for i, s in enumerate(sentences)]
    for seed in range(10):
        made, held = items.make(documents, [], dict.fromkeys(items.TAGS, 9), seed)
        assert made and not held & {normalise(item.evidence) for item in made}
        asked = {item.evidence for item in made}
        again, held = items.make(documents, [], dict.fromkeys(items.TAGS, 9), seed, (), asked)
        assert not asked & {item.evidence for item in again}
        assert set(map(normalise, asked)) <= held


def test_what_an_update_held_back_still_says_what_was_so_in_the_next():
    facts = planted.facts(30)
    documents = planted.documents(facts, tellings=4)
    first = [d for d in documents if d.date < "2025"]
    limits = dict.fromkeys(items.TAGS, 500)
    earlier, held = items.make(first, [], limits)
    old = [dataclasses.replace(d, text=items.without(d.text, held)) for d in first]
    new = [d for d in documents if d.date >= "2025"]
    asked = [item.text for item in earlier]
    made, held_now = items.make(new, old, limits, 0, earlier, asked)
    assert len(right(made, facts)) == len(made) >= 88
    assert len({frozenset((i.about, normalise(i.answer))) for i in made}) == len(made)
    assert not (held | held_now) & {normalise(item.evidence) for item in made}


def test_candidates_are_other_answers_and_the_old_one_second():
    _, _, made, _ = make(tellings=4)
    for item in made:
        assert item.text[item.start : item.end] == item.answer
        assert len(set(item.candidates)) == len(item.candidates) == items.CANDIDATES
        assert item.candidates[1] == item.old if item.tag == "changed" else not item.old
        assert all(s.text.count(c) for s, c in zip(item.statements(), item.candidates, strict=True))


def test_facts_told_once_are_not_asked():
    documents = planted.documents(planted.facts(9), tellings=1)
    assert items.make(documents, [], dict.fromkeys(items.TAGS, 500)) == ([], frozenset())
    assert items.make([Document("1", "2025-01-01", "", "")], [], dict.fromkeys(items.TAGS, 5)) == (
        [],
        frozenset(),
    )


def test_items_are_the_same_again():
    assert make(tellings=3)[2:] == make(tellings=3)[2:]


def test_facts_that_have_changed_are_not_asked_again_whichever_name_was_asked_for():
    documents, limits = planted.documents(planted.facts(30)), dict.fromkeys(items.TAGS, 500)
    new, old = ([d for d in documents if d.date[:4] == year] for year in ("2025", "2024"))
    made, _ = items.make(new, old, limits)
    changed = next(item for item in made if item.tag == "changed")
    asked = dataclasses.replace(changed, id="a", tag="new", candidates=(changed.old, "x"), old="")
    about, answer = changed.about.title(), changed.old.lower()
    other = dataclasses.replace(asked, id="b", candidates=(about, "x"), about=answer)
    kept = dataclasses.replace(next(i for i in made if i.tag == "kept"), id="c")
    lasting = dataclasses.replace(changed, id="d")

    def again(new, old, earlier):
        made, _ = items.make(new, old, limits, 0, earlier)
        return {item.id: (item.tag, item.old) for item in made if item.id in "abcd"}

    assert again(new, old, [asked, other, kept]) == {"c": ("kept", "")}
    # One that no update has asked: the new text, then the old one, states another answer.
    news = [Document("n", "2026-01-01", "", "Norvel was seen in Marland and in Quenta.")]
    assert again(new, old, [asked]) == again(news, documents, [asked]) == {}
    assert again(news, documents, [asked, other, kept, lasting]) == {
        "c": ("kept", ""),
        "d": ("kept", ""),
    }


def test_a_change_stands_at_the_place_of_what_it_changed():
    def documents(year, *sentences):
        return [Document(year, f"{year}-01-01", "", "\n".join(sentences))]

    told = "All in the town know that Marcol keeps the log of Norvel well."
    others = ("Bolder", "Cander", "Dorvin", "Elmar", "Fentor")
    fillers = [f"They say that {name} was seen beside Gorlan there." for name in others]
    old = documents("2024", "The log of Norvel is sent by Quenta to Hadrin each day.", *fillers)
    limits = dict.fromkeys(items.TAGS, 9)

    def changes(sentence):
        made, _ = items.make(documents("2025", sentence, told), old, limits)
        return {(i.about, i.old) for i in made if i.old}

    assert changes("The log of Norvel is sent by Marcol to Hadrin each day.") == {
        ("norvel", "Quenta")
    }
    assert changes("Each day the log of Norvel is sent to Hadrin, by Marcol.") == set()


def test_two_answers_may_share_a_word_and_one_may_not_be_told_more_exactly():
    def changes(now, before):
        told = f"All in the town know that {now} keeps the log of Norvel well."
        new = [f"The log of Norvel is sent by {now} to Hadrin each day.", told]
        old = [f"The log of Norvel is sent by {before} to Hadrin each day."]
        others = ("Bolder", "Cander", "Dorvin", "Elmar", "Fentor")
        old += [f"They say that {name} Steel was seen beside Gorlan there." for name in others]
        parts = (
            [Document(day, day, "", "\n".join(sentences))]
            for day, sentences in (("2025-01-01", new), ("2024-01-01", old))
        )
        made, _ = items.make(*parts, dict.fromkeys(items.TAGS, 9))
        return {i.old for i in made if i.old}

    assert changes("Marcol Steel", "Quenta Steel") == {"Quenta Steel"}
    assert changes("Marcol Steel", "Marcol") == set()


@pytest.mark.parametrize(
    ("now", "before", "tags"),
    [
        ("2011", "April 2011", set()),
        ("April 2013", "2013", set()),
        ("April 2013", "April 2013", {"kept"}),
        ("April 2013", "April 2011", {"changed"}),
        ("2013", "April 2011", {"changed"}),
        ("April 2013", None, {"new"}),
    ],
)
def test_a_date_told_more_or_less_exactly_is_no_change_and_not_new(now, before, tags):
    def documents(year, day):
        told = [
            f"The works of Norvel at the river were opened in {day} by the mayor.",
            f"It was in {day} that the mayor opened the works of Norvel.",
        ]
        others = [
            f"The gate of {name} Park was closed in May {1990 + i} for a while."
            for i, name in enumerate(("Bolder", "Cander", "Dorvin", "Elmar", "Fentor"))
        ]
        return [Document(year, f"{year}-01-01", "", "\n".join([*(told if day else ()), *others]))]

    made, _ = items.make(
        documents("2025", now), documents("2024", before), dict.fromkeys(items.TAGS, 9)
    )
    assert {i.tag for i in made if i.answer == now} == tags


@pytest.mark.parametrize(
    ("sentences", "old", "tags"),
    [
        (
            ["Norvel Foods was founded in {0}.", "In {0} the company Norvel Foods began."],
            [],
            {"new"},
        ),
        (  # nothing says that the older date is of another event
            ["Norvel Foods was founded in {0}.", "Norvel Foods has been in business since {0}."],
            ["In May 1950 the company Norvel Foods began."],
            set(),
        ),
        (
            ["Norvel Foods was founded in {0}.", "Norvel Foods has been in business since {0}."],
            ["Norvel Foods was founded in May 1950."],
            {"changed"},
        ),
        (  # of two firms in one town
            [
                "The works of Norvel in Marland began in {0}.",
                "It was Quenta that went to Marland in {0}.",
            ],
            [],
            set(),
        ),
    ],
)
def test_a_date_with_its_month_beside_one_name_is_a_fact_and_news_is_none(sentences, old, tags):
    def asked(date):
        others = ("Bolder", "Cander", "Dorvin", "Elmar", "Fentor")
        told = [f"{x} Park has had a gate since May {1990 + i}." for i, x in enumerate(others)]
        new = [s.format(date) for s in sentences] + told
        parts = (
            [Document(day, day, "", "\n".join(text))]
            for day, text in (("2025-03-09", new), ("2024-01-01", old))
        )
        made, _ = items.make(*parts, dict.fromkeys(items.TAGS, 9))
        return {i.tag for i in made}

    assert asked("April 1964") == tags
    assert asked("1964") == asked("7 March 2025") == set()


def test_old_facts_of_names_in_the_news_are_kept_unless_the_news_says_so_anew():
    facts = planted.facts(18)
    documents = planted.documents(facts)
    seats = [f for f in facts if f.kind == "kept" and f.relation == "seat"]
    news = [
        Document("n", "2025-02-02", "", f"{f.subject} opened a gate to Bergland.") for f in seats
    ]
    moved = [
        Document("m", "2025-02-03", "", f"{f.subject} left its headquarters for Bergland.")
        for f in seats[:2]
    ]

    def kept(*more):
        new = [*(d for d in documents if d.date >= "2025"), *more]
        old = [d for d in documents if d.date < "2025"]
        made, _ = items.make(new, old, dict.fromkeys(items.TAGS, 99))
        return set(right(made, facts)) & set(seats)

    assert kept(*news) == set(seats)
    assert kept(*news, *moved) == set(seats[2:])
