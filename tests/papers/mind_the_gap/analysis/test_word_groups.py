"""Words by part of speech and topic, against gold tags and planted topics."""

import gzip

import numpy as np
import pytest

from ckl_jax.data.tasks.word_losses import WordLosses
from ckl_jax.data.text.word_classes import make_tagger
from ckl_jax.papers.mind_the_gap.analysis.word_groups import OTHER, PartsOfSpeech, Topics
from tests.real_data import shared_data


def _document(words):
    n = len(words)
    return WordLosses("d", "2019-01-01", words, np.zeros(n), np.ones(n, int), np.zeros(n, int))


def test_each_word_is_of_one_group():
    """The heuristic tagger's spans are of several words, and may begin inside one."""
    words = "On Monday the mayor of Zürich , Anna Keller , met 3,500 people near Lake Tahoe ."
    words = words.split()
    groups = PartsOfSpeech(make_tagger("heuristic", [" ".join(words)]))
    assert groups.names == ("proper nouns", "numbers", OTHER)
    marks = groups.weights(_document(words))
    np.testing.assert_array_equal(marks.sum(0), np.ones(len(words)))
    found = [w for w, m in zip(words, marks[0], strict=True) if m]
    assert {"Zürich", "Anna", "Keller", "Lake", "Tahoe"} <= set(found)
    assert [w for w, m in zip(words, marks[1], strict=True) if m] == ["3,500"]


@pytest.mark.slow
def test_textblobs_tags_against_gold_ones():
    """Its F1 on EWT's development part, near those on the test part (`data.text.word_classes`)."""
    pytest.importorskip("textblob", reason="textblob is not installed")
    groups = PartsOfSpeech(make_tagger("textblob", []))
    wanted = {"PROPN": "proper nouns", "NOUN": "nouns", "NUM": "numbers", "VERB": "verbs"}
    hits, found, gold = (dict.fromkeys(wanted, 0) for _ in range(3))
    for words, tags in _sentences(shared_data("tagging", "en_ewt-ud-dev.conllu.gz")):
        marks = groups.weights(_document(words)).astype(bool)
        for tag, name in wanted.items():
            ours = marks[groups.names.index(name)]
            theirs = np.array([t == tag for t in tags])
            hits[tag] += (ours & theirs).sum()
            found[tag] += ours.sum()
            gold[tag] += theirs.sum()
    f1 = {tag: 2 * hits[tag] / (found[tag] + gold[tag]) for tag in wanted}
    assert f1["PROPN"] > 0.70 and f1["NOUN"] > 0.78 and f1["NUM"] > 0.88, f1


def _sentences(path):
    words, tags = [], []
    with gzip.open(path, "rt", encoding="utf-8") as f:
        for line in f:
            fields = line.rstrip("\n").split("\t")
            if len(fields) > 3 and fields[0].isdigit() and " " not in fields[1]:
                words.append(fields[1])
                tags.append(fields[3])
            elif not line.strip() and words:
                yield words, tags
                words, tags = [], []


@pytest.mark.slow
def test_planted_topics_are_found():
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    generator = np.random.default_rng(0)
    themes = [[f"{name}{c}" for c in "abcdefghij"] for name in ("goal", "vote", "soup")]
    texts = [" ".join(generator.choice(themes[i % 3], 30)) for i in range(90)]
    hard = Topics.fit(texts, 3, "hard")
    best = [hard.weights(_document(text.split()))[:, 0].argmax() for text in texts]
    assert len({tuple(sorted(set(best[i::3]))) for i in range(3)}) == 3  # one topic a theme
    assert all(len(set(best[i::3])) == 1 for i in range(3))
    soft = Topics.fit(texts, 3, "soft").weights(_document(texts[0].split()))
    np.testing.assert_allclose(soft.sum(0), 1.0)
    assert 0.9 < soft.max() < 1.0
