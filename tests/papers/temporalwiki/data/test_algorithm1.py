"""Algorithm 1 against a literal reading of it; the released function against its vectors."""

import random
import time

import pytest

pytest.importorskip("sentencex", reason="needs the extra `data`")
pytest.importorskip("mwparserfromhell", reason="needs the extra `data`")

from hypothesis import given, settings
from hypothesis import strategies as st

from ckl_jax.data.text.sentences import (
    comparison_key,
    letters,
    normalise,
    sentence_splitter,
)
from ckl_jax.papers.temporalwiki.data import algorithm1 as diff_module
from ckl_jax.papers.temporalwiki.data.algorithm1 import (
    DELETED,
    PARAGRAPH,
    SENTENCES,
    Change,
    deletions,
    diff,
    legacy_diff,
)
from ckl_jax.papers.temporalwiki.data.diffsets import join
from ckl_jax.papers.temporalwiki.data.wiki_xml import read_pages
from ckl_jax.papers.temporalwiki.data.wikitext import Extractor
from tests.real_data import wikipedia_excerpt

SPLIT = sentence_splitter("en")


def plain_split(paragraph):
    return [s for s in paragraph.split(". ") if s]


@pytest.mark.parametrize(
    "old, new, expected",
    [  # the table of the fact sheet, "|" between lines
        ("A a|B b", "A a|New one. Two.|B b", "New one. Two."),
        ("Old lead|A a|B b", "New lead|A a|B b", ""),
        ("A a|B b", "A a|B b|Tail new", ""),
        ("A|B", "C|D", ""),
        ("A a|One. Two. Three|B b", "A a|One. Too. Three|B b", " Too"),
        ("A a|C++ is. Two|B b", "A a|C++ is. Too|B b", "  C+is.  Too"),
        ("A a|Hello, World|B b", "A a|hello world|B b", ""),
        ("A|B|C|D", "A|C|B|D", "C"),
        ("A a|One. Two. Three|B b", "A a|One. Three|B b", ""),
        ("A a||X||B b", "A a||X||Y||B b", ". X. . Y. "),
        ("A a|One. Two.|B b|Three. Four.|C c", "A a|One.|B b|Three.|C c", ". "),
        ("A a|One. Two.|B b|Three.|C c", "A a|One.|B b|Five.|C c", ". Five"),
    ],
)
def test_the_released_function(old, new, expected):
    assert legacy_diff(old.replace("|", "\n"), new.replace("|", "\n")) == expected


@pytest.mark.parametrize(
    "old, new, expected",
    [
        (
            ["Old lead.", "A a."],
            ["New lead.", "A a.", "Tail."],
            [Change(PARAGRAPH, "New lead."), Change(PARAGRAPH, "Tail.")],
        ),
        (["One. Two. Three."], ["One. Too. Three. Four."], [Change(SENTENCES, "Too. Four.")]),
        (["A b.", "C d.", "E f."], ["E f.", "A b.", "C d."], []),
        (["One here. Two here."], ["Two here.", "One here."], []),
        (["Hello, World!"], ["hello world"], []),
        (["It is 3.5 m."], ["It is 35 m."], [Change(PARAGRAPH, "It is 35 m.")]),
        (["One. Two."], ["One."], []),
        ([], ["A.", "—"], [Change(PARAGRAPH, "A.")]),
        (
            ["He met Dr. Smith. He left."],
            ["He met Dr. Jones. He left."],
            [Change(SENTENCES, "He met Dr. Jones.")],
        ),
    ],
)
def test_what_is_new(old, new, expected):
    assert diff(old, new, SPLIT) == expected


def test_deletions_are_the_same_question_asked_backwards():
    assert deletions(["One. Two."], ["One."], SPLIT) == [Change(DELETED, "Two.")]
    assert deletions(["One."], ["One. Two."], SPLIT) == []


sentence = st.sampled_from([f"{w} is {v}" for w in "abcd" for v in ("one", "two")])
paragraph = st.lists(sentence, min_size=1, max_size=4).map(". ".join)


@given(st.lists(paragraph, max_size=5), st.lists(paragraph, max_size=5))
@settings(max_examples=200, deadline=None)
def test_as_algorithm_1_is_printed(old, new):
    expected = []
    for p in new:  # literal: each sentence against each old paragraph
        found = [any(s in plain_split(q) for q in old) for s in plain_split(p)]
        if not any(found):
            expected.append(p)
        elif not all(found):
            pairs = zip(plain_split(p), found, strict=True)
            expected.append(" ".join(s for s, known in pairs if not known))
    assert [c.text for c in diff(old, new, plain_split)] == expected


@given(st.lists(paragraph, max_size=6), st.lists(paragraph, max_size=6), st.integers(0, 3))
@settings(max_examples=200, deadline=None)
def test_looking_for_less_finds_the_same(old, new, searches):
    found = diff(old, new, plain_split)
    with pytest.MonkeyPatch.context() as m:
        m.setattr(diff_module._Known, "_SEARCHES", searches)
        assert diff(old, new, plain_split) == found


def literal(old, new):
    """Algorithm 1 with all sentences of both versions, with no thought of speed."""
    paragraphs = {comparison_key(p) for p in old}
    sentences = {comparison_key(s) for p in old for s in SPLIT(p)}
    for p in new:
        if comparison_key(p) in paragraphs:
            continue
        parts = [s for s in SPLIT(p) if comparison_key(s)]
        fresh = [s for s in parts if comparison_key(s) not in sentences]
        if fresh and len(fresh) == len(parts):
            yield Change(PARAGRAPH, p)
        elif fresh:
            yield Change(SENTENCES, " ".join(fresh))


@pytest.mark.parametrize(
    "names",
    [
        ("simplewiki-20190901", "simplewiki-20230820"),
        ("enwiki-20150112", "enwiki-20150305"),
    ],
    ids=" ".join,
)
def test_real_pages_as_algorithm_1_is_printed(names):
    extractor, compared = Extractor(), 0
    for a, b in join(*(read_pages(wikipedia_excerpt(name)) for name in names)):
        if a and b and not a.redirect and not b.redirect and a.text != b.text:
            old, new = extractor.paragraphs(a.text), extractor.paragraphs(b.text)
            assert diff(old, new, SPLIT) == list(literal(old, new)), a.title
            compared += 1
    assert compared >= 6


def test_abbreviations_end_no_sentence():
    text = "Dr. Smith met J. R. Jones at 5 p.m. in Washington D.C. on Jan. 5, 2019. He left."
    assert SPLIT(text) == [text[:-9], "He left."]
    assert SPLIT("In the U.S. Army, e.g. in 1775, $3.5 million was paid. See Fig. 3.") == [
        "In the U.S. Army, e.g. in 1775, $3.5 million was paid.",
        "See Fig. 3.",
    ]


@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_no_text_breaks_the_splitter_or_loses_a_letter(text):
    assert normalise(" ".join(SPLIT(text))).replace(" ", "") == normalise(text).replace(" ", "")


@given(st.text(max_size=30), st.text(max_size=30))
@settings(max_examples=200, deadline=None)
def test_texts_that_are_the_same_have_the_same_letters(a, b):
    assert letters(normalise(a)) == letters(a)
    assert letters(comparison_key(a)) in (letters(a), b"")
    assert letters(a) in letters(f"{b} {a}.{b}")


@pytest.mark.parametrize(
    "a, b, same",
    [
        ("It cost $5.", "It cost EUR 5.", False),
        ("It cost $5.", "It cost 5.", False),
        ("It was -5 degrees.", "It was 5 degrees.", False),
        ("It was \u22125 degrees.", "It was \u20135 degrees.", True),
        ("C is a language.", "C++ is a language.", False),
        ("C is a language.", "C# is a language.", False),
        ("x < 5", "x > 5", False),
        ("5% of it", "5 of it", False),
        ("5% of it", "5 % of it", True),
        ("a well-known man", "a well known man", True),
        ("1990-95", "1990\u201395", True),
        ("1990-95", "199095", False),
        ("a dog \u2014 or cat", "a dog, or cat", True),
        ("3.5 m", "35 m", False),
        ("Hello, World - 5!", "hello world 5", True),
        ("-", "+", True),  # neither has a letter
        ("a loss of -$5", "a loss of $5", False),
        ("a loss of \u2212US$5", "a loss of -US$5", True),
        ("a loss of -\u20ac5", "a loss of \u20ac5", False),
        ("a rate of .5", "a rate of 5", False),
        ("a rate of -.5", "a rate of .5", False),
        ("(.308 and $.50)", "(308 and $.50)", False),
        ("See ... 5", "See 5", True),
        ("5\u2032 wide", "5\u2033 wide", False),
        ("graded A-", "graded A", False),
        ("A-levels, A - Z", "A levels, A\u2013Z", True),
        # Vowels and tones that are marks of their letter, and accents that are.
        ("महापौर मीना हैं।", "महापौर मोना हैं।", False),
        ("महापौर, मीना 5% हैं!", "महापौर मीना 5% हैं।", True),
        ("หา บาท", "ห้า บาท", False),
        ("\u00e9t\u00e9", "e\u0301te\u0301", True),
        ("_The_ __mill__ of a_b", "The mill of a_b", True),
        ("a_b", "ab", False),
    ],
)
def test_which_texts_are_the_same(a, b, same):
    assert (comparison_key(a) == comparison_key(b)) == same


LEAD = "The town of Arlen has a mill and"


@pytest.mark.parametrize(
    "old, new, kind, changed",
    [
        (f"{LEAD} 900 people.", f"{LEAD} 950 people.", "number", ["950"]),
        (f"{LEAD} two shops.", f"{LEAD} three shops.", "number", ["three"]),
        ("It was founded by John Smith.", "It was founded by John Brown.", "name", ["Brown"]),
        (f"{LEAD} thirteen shops.", f"{LEAD} fourteen shops.", "number", ["fourteen"]),
        (f"{LEAD} came first.", f"{LEAD} came third.", "number", ["third"]),
        (f"{LEAD} is a third of it.", f"{LEAD} is a quarter of it.", "number", ["quarter"]),
        (f"{LEAD} has dozens of them.", f"{LEAD} has hundreds of them.", "number", ["hundreds"]),
        (f"{LEAD} lasted 5 hours.", f"{LEAD} lasted 5 minutes.", "number", ["minutes"]),
        (f"{LEAD} costs 5 pence.", f"{LEAD} costs 5 cents.", "number", ["cents"]),
        (f"{LEAD} was there.", f"{LEAD} was there first.", "reworded", ["first"]),
        (f"{LEAD} has 1,500 shops, old.", f"{LEAD} has 1500 shops.", "reworded", []),
        (f"{LEAD} has 1,500 shops.", f"{LEAD} has 15,00 shops.", "number", ["15,00"]),
        (f"{LEAD} is 5 km away.", f"{LEAD} is 5 miles away.", "number", ["miles"]),
        (f"{LEAD} is 5 km away.", f"{LEAD} is 5km away.", "reworded", []),
        (f"{LEAD} has 5 mg of it.", f"{LEAD} has 5 \u00b5g of it.", "number", ["\u00b5g"]),
        (f"{LEAD} is 5km away.", f"{LEAD} is 6km away.", "number", ["6"]),
        (f"{LEAD} takes 5 s of it.", f"{LEAD} takes 5 ms of it.", "number", ["ms"]),
        (f"{LEAD} takes 5 min of it.", f"{LEAD} takes 5 minutes of it.", "reworded", ["minutes"]),
        (f"{LEAD} has 5 km² of it.", f"{LEAD} has 5 m² of it.", "number", ["m²"]),
        (f"{LEAD} sells 5 litres.", f"{LEAD} sells 5 gallons.", "number", ["gallons"]),
        (f"{LEAD} has 10GB of it.", f"{LEAD} has 10 GB of it.", "reworded", []),
        (f"{LEAD} came 1st of it.", f"{LEAD} came 1 St of it.", "number", ["1 St"]),
        (f"{LEAD} has 10\u00a0000 shops.", f"{LEAD} has 10,000 shops.", "reworded", []),
        (
            f"{LEAD} has 10\u202f000 shops.",
            f"{LEAD} has 10\u2009001 shops.",
            "number",
            ["10\u2009001"],
        ),
        (f"{LEAD} has 5 percent of it.", f"{LEAD} has five per cent of it.", "reworded", []),
        (f"{LEAD} has 1% of it.", f"{LEAD} has one percent of it.", "reworded", []),
        (
            f"{LEAD} has 5 percent of it.",
            f"{LEAD} has six percent of it.",
            "number",
            ["six percent"],
        ),
        (f"{LEAD} has 1 shop.", f"{LEAD} has one shop.", "reworded", ["one"]),
        (f"{LEAD} has one shop.", f"{LEAD} has 1 shop.", "reworded", ["1"]),
        ("महापौर मीना आज नगर में हैं।", "महापौर मोना आज नगर में हैं।", "reworded", ["मोना"]),
        (f"{LEAD} saw World War II.", f"{LEAD} saw World War I.", "name", ["I"]),
        (f"{LEAD} saw that Bob left.", f"{LEAD} saw that I left.", "reworded", ["I"]),
        (f"{LEAD} is worth $5.", f"{LEAD} is worth €5.", "number", ["€5"]),
        (f"{LEAD} was at 5 degrees.", f"{LEAD} was at \u22125 degrees.", "number", ["\u22125"]),
        (f"{LEAD} 5% of it.", f"{LEAD} 5 of it.", "number", ["5"]),
        (f"{LEAD} was at 5 °C.", f"{LEAD} was at 5 °F.", "number", ["5 °F"]),
        (f"{LEAD} was at 5.", f"{LEAD} was at \u20135.", "number", ["\u20135"]),
        (f"{LEAD} lost $5.", f"{LEAD} lost -$5.", "number", ["-$5"]),
        (f"{LEAD} is at .5 of it.", f"{LEAD} is at 5 of it.", "number", ["5"]),
        (f"{LEAD} is at 5 of it.", f"{LEAD} is at .5 of it.", "number", [".5"]),
        (f"{LEAD} is 5\u2032 wide.", f"{LEAD} is 5\u2033 wide.", "number", ["5\u2033"]),
        (f"{LEAD} is 5 km away.", f"{LEAD} is 5 kilometres away.", "reworded", ["kilometres"]),
        (f"{LEAD} where x < 5.", f"{LEAD} where x > 5.", "number", ["> 5"]),
        (f"{LEAD} has $5 million.", f"{LEAD} has $5.", "number", ["$5"]),
        (f"{LEAD} has $5.", f"{LEAD} has $5 million.", "number", ["$5 million"]),
        (f"{LEAD} 5 million shops.", f"{LEAD} 5 billion shops.", "number", ["5 billion"]),
        (
            f"{LEAD} lay a mile off in it.",
            f"{LEAD} had a hand off it.",
            "reworded",
            ["had", "hand"],
        ),
        (f"{LEAD} of stone since 5.", f"{LEAD} in wood since 5.", "reworded", ["in wood"]),
        (f"{LEAD} has ten big shops.", f"{LEAD} has 10 shops.", "reworded", []),
        (f"{LEAD} had thirteen shops.", f"{LEAD} had 13 shops.", "reworded", []),
        (f"{LEAD} lost $2 million.", f"{LEAD} lost $2,000,000.", "reworded", []),
        (f"{LEAD} is 0.5 of it.", f"{LEAD} has .5 of it.", "reworded", ["has"]),
        (f"{LEAD} is agent 007 of it.", f"{LEAD} is agent 7 of it.", "number", ["7"]),
        (f"{LEAD} won it once.", f"{LEAD} won it twice.", "number", ["twice"]),
        (f"{LEAD} had a theory.", f"{LEAD} had one theory.", "reworded", ["one"]),
        (f"{LEAD} had two of them.", f"{LEAD} had one of them.", "number", ["one"]),
        (f"{LEAD} at 5 a.m. sharp.", f"{LEAD} at 5 p.m. sharp.", "number", ["p.m"]),
        (f"{LEAD} sells the iPhone.", f"{LEAD} sells the iPad.", "name", ["iPad"]),
        (f"{LEAD} per hour.", f"{LEAD} per week.", "number", ["week"]),
        (f"{LEAD} ran 5 m a day.", f"{LEAD} ran 5 ft a day.", "number", ["ft"]),
        (f"{LEAD} with J. Hill.", f"{LEAD} with W. Hill.", "name", ["W"]),
        ("Bush won all of the votes.", "Kerry won all of the votes.", "name", ["Kerry"]),
        ("Smith won all of the votes.", "Jones won all of the votes.", "name", ["Jones"]),
        ("Cars are sold in the city.", "Trucks are sold in the city.", "reworded", ["Trucks"]),
        ("They won all of the votes.", "Nobody won all of the votes.", "reworded", ["Nobody"]),
        ("However won all of it.", "Although won all of it.", "reworded", ["Although"]),
        ("Scholars say it is old.", "Historians say it is old.", "reworded", ["Historians"]),
        ("Now Bob won all the votes.", "Later Bob won all the votes.", "reworded", ["Later"]),
        (f"{LEAD} all in C.", f"{LEAD} all in C++.", "name", ["C++"]),
        (f"{LEAD} 5 percent of it.", f"{LEAD} 5% of its.", "reworded", ["its"]),
        (f"{LEAD} is worth $5.", f"{LEAD} has a worth of US$5.", "reworded", ["has a", "of"]),
        (f"{LEAD} in 1990 - 1995.", f"{LEAD} was in 1990 -1995.", "reworded", ["was"]),
        (f"{LEAD} is worth 5 €.", f"{LEAD} is worth 5 $.", "number", ["5 $"]),
        (f"{LEAD} is worth 5 dollars.", f"{LEAD} is worth 5 euros.", "number", ["euros"]),
        ("June was cold in all of it.", "July was cold in all of it.", "number", ["July"]),
        ("Now was cold in all of it.", "May was cold in all of it.", "reworded", ["May"]),
        (f"{LEAD} on Monday.", f"{LEAD} on Tuesday.", "number", ["Tuesday"]),
        (f"{LEAD} it was May.", f"{LEAD} it was June.", "number", ["June"]),
        (f"{LEAD} some shops.", f"{LEAD} several shops.", "reworded", ["several"]),
        (f"{LEAD} some big shops.", f"{LEAD} some shops.", "reworded", []),
        ("In 1990, he left Rome.", "He left Rome in 1990.", "reworded", ["in 1990"]),
        (f"{LEAD} vote was 52-48.", f"{LEAD} vote was 48–52.", "number", ["48", "52"]),
        (
            f"{LEAD} had Bob 3 to 5 Ann.",
            f"{LEAD} finally had Bob 5 to 3 Ann.",
            "number",
            ["finally", "5", "3"],
        ),
        (
            f"{LEAD} Ann (born 1950) and Bob (born 1960).",
            f"{LEAD} Bob (born 1960) and Ann (born 1950).",
            "reworded",
            ["Bob (born 1960) and"],
        ),
        (
            f"{LEAD} a shop.",
            f"{LEAD} a shop, which sells bread to its many neighbours.",
            "added",
            [", which sells bread to its many neighbours"],
        ),
        (f"{LEAD} a shop.", "Nobody ever saw him again.", "added", ["Nobody ever saw him again."]),
        ("", "Nobody ever saw him again.", "added", ["Nobody ever saw him again."]),
    ],
)
def test_edits_and_their_spans(old, new, kind, changed):
    (change,) = diff([f"It stays. {old}".strip()], [f"It stays. {new}"], SPLIT)
    (edit,) = change.edits
    assert change.text == new and (edit.kind, edit.start, edit.end) == (kind, 0, len(new))
    spans = [new[a:b] for a, b in edit.spans]
    if kind != "reworded" or not changed or changed[0].islower():
        assert spans == changed


@given(st.lists(st.text("ab c.\u2014-5A", max_size=40), max_size=4), st.data())
@settings(max_examples=100, deadline=None)
def test_edits_lie_in_their_text(old, data):
    new = data.draw(st.lists(st.text("ab c.\u2014-5A", max_size=40), max_size=4))
    for change in diff(old, new, SPLIT):
        ends = [0]
        for edit in change.edits:
            assert ends[-1] <= edit.start < edit.end <= len(change.text)
            assert all(edit.start <= a < b <= edit.end for a, b in edit.spans)
            ends.append(edit.end)
        assert change.edits


def test_long_sentences_and_many_alike_ones_take_no_time():
    words = [f"w{i}" for i in range(20_000)]
    start = time.process_time()
    old = [" ".join(words), *(f"The w{i} is a thing of the kind {i}." for i in range(2000))]
    new = [" ".join(reversed(words)), *(f"The w{i} is a thing of kind {i}." for i in range(2000))]
    assert len(diff(old, new, lambda p: [p])) == 2001
    assert time.process_time() - start < 3


def test_cost_is_linear_where_the_released_function_is_not():
    rng = random.Random(0)

    def page(paragraphs):
        words = [f"w{rng.randrange(5000)}" for _ in range(paragraphs * 12)]
        return [" ".join(words[i : i + 12]) + "." for i in range(0, len(words), 12)]

    def seconds(paragraphs):
        old, new = page(paragraphs), page(paragraphs)
        start = time.process_time()
        assert len(diff(old, new, SPLIT)) == paragraphs
        return time.process_time() - start

    seconds(100)
    assert min(seconds(4000) for _ in range(2)) < 40 * max(
        0.001, min(seconds(500) for _ in range(3))
    )
