"""Words found in text and carried over to tokens, by both kinds of vocabulary."""

import gzip
import sys

import numpy as np
import pytest

from ckl_jax.data.tasks import word_marks
from ckl_jax.data.tasks.cached import CachedTask, write_cached
from ckl_jax.data.tasks.word_marks import CHANGED_SPANS, GROUPS, mark_rows, mark_tokens
from ckl_jax.data.text.byte_level import ByteLevelVocabulary
from ckl_jax.data.text.vocabularies import train_vocabulary
from ckl_jax.data.text.word_classes import NUMBERS, PROPER_NOUNS, make_tagger
from ckl_jax.errors import UserError
from tests.real_data import shared_data

TEXTS = [
    "In 1984 the mayor of Zürich, Anna Keller, met 3,500 people near Lake Tahoe.",
    "naïve — 東京 is big. We saw Anna Keller there.",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train_vocabulary(TEXTS, tmp_path_factory.mktemp("words") / "v.model", 120)


@pytest.fixture(scope="module")
def gpt2():
    return ByteLevelVocabulary(shared_data("tokenizers", "gpt2"))


def covered(vocabulary, text, group):
    """The text of the tokens that are marked, by a tagger that is told the words."""
    ids = vocabulary.encode(text)
    located, spans = vocabulary.locate(ids)
    words = [
        (located.index(w), located.index(w) + len(w), PROPER_NOUNS)
        for w in ("Zürich", "Anna", "Keller", "Lake", "Tahoe")
        if w in located
    ]
    bits = mark_tokens(words, spans, len(located))
    assert bits.dtype == np.uint8 and (bits & 1).all() and len(bits) == len(ids)
    return "".join(
        located[a:b]
        for (a, b), bit in zip(spans, bits, strict=True)
        if bit >> GROUPS.index(group) & 1
    )


def test_every_token_of_a_word_is_marked_and_no_other(trained, gpt2):
    for vocabulary in (trained, gpt2):
        found = covered(vocabulary, TEXTS[0], "proper_nouns")
        assert found.replace(" ", "") == "ZürichAnnaKellerLakeTahoe"


def test_tokens_are_located_wherever_a_row_was_cut(gpt2):
    ids = gpt2.encode(TEXTS[1])
    for start in range(len(ids)):
        text, spans = gpt2.locate(ids[start:])
        assert len(spans) == len(ids) - start and spans[-1][1] == len(text)
        assert all(a <= c and b <= d for (a, b), (c, d) in zip(spans, spans[1:], strict=False))
    assert gpt2.locate(ids)[0] == TEXTS[1]


def test_the_heuristic_knows_proper_nouns_and_numbers():
    tagger = make_tagger("heuristic", TEXTS)
    (first, second) = tagger.tag(TEXTS)
    assert [TEXTS[0][a:b] for a, b, c in first if c == PROPER_NOUNS] == [
        "Zürich",
        "Anna",
        "Keller",
        "Lake",
        "Tahoe",
    ]
    assert [TEXTS[0][a:b] for a, b, c in first if c == NUMBERS] == ["1984", "3,500"]
    with pytest.raises(UserError, match="No tagger is called 'spaci'"):
        make_tagger("spaci", TEXTS)


class Stub:
    """In place of a module that is not installed."""

    def __init__(self, **members):
        self.__dict__.update(members)


def test_other_taggers_classes_are_read(monkeypatch):
    """By stand-ins with the interfaces of spaCy and NLTK, which have no data in the index."""
    tags = {
        "Anna": ("PROPN", "NNP"),
        "saw": ("VERB", "VBD"),
        "two": ("NUM", "CD"),
        "dogs.": ("NOUN", "NNS"),
        "quickly": ("ADV", "RB"),
    }
    text = "Anna quickly saw two dogs."

    class Token(str):
        pos_ = property(lambda self: tags[self][0])
        idx = property(lambda self: text.index(self))

    pipe = lambda texts: [map(Token, t.split()) for t in texts]  # noqa: E731
    pipeline = Stub(meta={"version": "3"}, pipe=pipe)
    spacy = Stub(load=lambda name, exclude: pipeline, __version__="9")
    monkeypatch.setitem(sys.modules, "spacy", spacy)
    pos_tag = lambda words: [(w, tags.get(w, "XX")[1]) for w in words]  # noqa: E731
    monkeypatch.setitem(sys.modules, "nltk", Stub(pos_tag=pos_tag, __version__="7"))
    expected = ["proper_nouns", "verbs", "numbers", "nouns"]
    for name, backend in (("spacy", "spacy-9-en_core_web_sm-3"), ("nltk", "nltk-7")):
        tagger = make_tagger(name, [text])
        (words,) = tagger.tag([text])
        assert tagger.backend == backend and [c for _, _, c in words] == expected
        assert [text[a:b] for a, b, _ in words] == ["Anna", "saw", "two", "dogs."]
    monkeypatch.setitem(sys.modules, "nltk", None)
    with pytest.raises(UserError, match="needs the package nltk and its data"):
        make_tagger("nltk", [text])


def test_marks_are_kept_with_the_task(tmp_path, trained, monkeypatch):
    rows = [{"targets": trained.encode(text)} for text in TEXTS]
    write_cached(tmp_path / "task", rows, features=("targets",), eos_id=1)
    task = CachedTask.open(tmp_path / "task")
    first = mark_rows(task, trained, "heuristic", 10, 30)
    with monkeypatch.context() as patched:
        patched.setattr(word_marks, "make_tagger", None)  # nothing is tagged again
        again = mark_rows(task, trained, "heuristic", 10, 30)
    assert first.groups == again.groups == ("all", "proper_nouns", "numbers")
    assert [list(b) for b in first.bits] == [list(b) for b in again.bits]
    assert list(again.index) == [0, 1] and [len(r) for r in again.rows] == [30, 30]
    # Marks of the task's own, such as changed spans, are one more group.
    marked = [{**row, "marks": [i % 2 for i, _ in enumerate(row["targets"])]} for row in rows]
    write_cached(tmp_path / "marked", marked, features=("targets", "marks"), eos_id=1)
    both = mark_rows(CachedTask.open(tmp_path / "marked"), trained, "heuristic", 1, 20)
    assert both.groups == ("all", "proper_nouns", "numbers", CHANGED_SPANS)
    spans = [bits >> GROUPS.index(CHANGED_SPANS) for bits in both.bits]
    assert [s.tolist() for s in spans] == [[i % 2 for i in range(20)]]
    write_cached(
        tmp_path / "packed",
        [{**rows[0], "segments": [1] * len(rows[0]["targets"])}],
        features=("targets", "segments"),
    )
    with pytest.raises(UserError, match="packed rows"):
        mark_rows(CachedTask.open(tmp_path / "packed"), trained, "heuristic", 10, 30)


@pytest.mark.slow
def test_proper_nouns_against_people_s_own_tags():
    """English Web Treebank (dev), true case counted on itself: web text, harder than Wikipedia."""
    path = shared_data("tagging", "en_ewt-ud-dev.conllu.gz")
    sentences, words = [], []
    for line in gzip.open(path, "rt", encoding="utf-8"):
        if not line.strip():
            sentences.append(words)
            words = []
        elif line[0] != "#" and line.split("\t")[0].isdigit():
            words.append((line.split("\t")[1], line.split("\t")[3]))
    texts, gold = [], []
    for words in sentences:
        text, spans = "", set()
        for word, tag in words:
            if tag == "PROPN":
                spans.add((len(text), len(text) + len(word)))
            text += f"{word} "
        texts.append(text)
        gold.append(spans)
    found = [
        {w[:2] for w in ws if w[2] == PROPER_NOUNS}
        for ws in make_tagger("heuristic", texts).tag(texts)
    ]
    both = sum(len(a & b) for a, b in zip(found, gold, strict=True))
    precision, recall = both / sum(map(len, found)), both / sum(map(len, gold))
    print(precision, recall)
    assert precision > 0.6 and recall > 0.6
