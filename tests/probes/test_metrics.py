"""The published semantics as a table, and what must hold for any text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckl_jax.probes import metrics


@pytest.mark.parametrize(
    "text,expected",
    [
        ("The United States", "united states"),
        ("U.S.A.", "usa"),
        ("  two   spaces\tand\nlines ", "two spaces and lines"),
        ("a an the", ""),
        ("theatre", "theatre"),
        ("A.N. Other", "other"),
        ("well-known", "wellknown"),
        ("the-end", "theend"),
        ("1,000", "1000"),
        ("“quoted”", "“quoted”"),  # only ASCII punctuation goes
        ("<extra_id_0> Paris", "extraid0 paris"),
        ("Élan", "élan"),
        ("", ""),
    ],
)
def test_normalisation(text, expected):
    assert metrics.normalize_answer(text) == expected


@pytest.mark.parametrize(
    "prediction,answers,em,f1",
    [
        ("Joe Biden", ["Joe Biden"], 1, 1.0),
        ("joe biden.", "Joe Biden", 1, 1.0),
        ("Biden", ["Joe Biden"], 0, 2 / 3),
        ("Biden", ["Joe Biden", "Biden"], 1, 1.0),
        ("Joe Joe", ["Joe Biden"], 0, 0.5),
        ("the cat", ["a cat"], 1, 1.0),
        ("Paris", ["London"], 0, 0.0),
        ("", ["London"], 0, 0.0),
        ("", ["The"], 1, 0.0),
        ("Paris", [], 0, 0.0),
        ("b", "abc", 0, 0.0),  # a lone string is one answer, not three
    ],
)
def test_exact_match_and_f1(prediction, answers, em, f1):
    assert metrics.exact_match(prediction, answers) == em
    assert metrics.f1(prediction, answers) == pytest.approx(f1)


def test_precision_at_k_counts_the_first_hit():
    predictions = ["London", "the Paris", "Paris"]
    assert metrics.hit_rank(predictions, ["Paris"]) == 2
    assert metrics.precision_at_k(predictions, ["Paris"], (1, 2, 5)) == {1: 0, 2: 1, 5: 1}
    assert metrics.precision_at_k([], ["Paris"], (1, 5)) == {1: 0, 5: 0}
    with pytest.raises(ValueError, match="at least 1"):
        metrics.precision_at_k(predictions, "Paris", (0,))


texts = st.text(alphabet="ab the.,!Xé \t", max_size=20)


@given(texts)
def test_normalisation_of_a_normal_text_changes_nothing_but_articles(text):
    once = metrics.normalize_answer(text)
    assert metrics.normalize_answer(once) == once
    assert metrics.normalize_answer(text.upper()) == once


@given(texts, st.lists(texts, max_size=4))
def test_scores_are_bounded_and_consistent(prediction, answers):
    em, f1 = metrics.exact_match(prediction, answers), metrics.f1(prediction, answers)
    assert em in (0, 1) and 0.0 <= f1 <= 1.0
    if em and metrics.normalize_answer(prediction):
        assert f1 == pytest.approx(1.0)
    for extra in answers:
        assert metrics.exact_match(extra, answers) == 1
        assert f1 >= metrics.f1(prediction, extra)


@given(texts, texts)
def test_f1_is_symmetric(a, b):
    assert metrics.f1(a, b) == pytest.approx(metrics.f1(b, a))


@given(st.lists(texts, max_size=6), st.lists(texts, max_size=3))
def test_precision_at_k_grows_with_k_and_starts_at_exact_match(predictions, answers):
    scores = metrics.precision_at_k(predictions, answers, range(1, 8))
    values = list(scores.values())
    assert values == sorted(values)
    assert values[0] == (metrics.exact_match(predictions[0], answers) if predictions else 0)
    assert values[-1] == max((metrics.exact_match(p, answers) for p in predictions), default=0)
