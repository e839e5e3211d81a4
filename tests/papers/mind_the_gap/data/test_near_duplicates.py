"""Near-duplicates: n-grams and estimates against sets in plain Python, and planted copies."""

import itertools
import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckl_jax.papers.mind_the_gap.data.near_duplicates import first_of_each
from ckl_jax.papers.mind_the_gap.data.shingles import shingles, signatures

pytest.importorskip("rensa", reason="needs the extra 'text'")

PARTS = "a B \u00e9 \u201c, _9 \u4e2d \u0130 . \n \ud800 \u00df".split(" ")
TEXT = st.lists(st.sampled_from(PARTS), max_size=20)


def grams(text, width=5):
    words = re.findall(r"\w+", text.lower())
    if 0 < len(words) < width:
        return {tuple(words)}
    return {tuple(words[i : i + width]) for i in range(len(words) - width + 1)}


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXT.map(" ".join) | TEXT.map("".join), max_size=6))
def test_hashes_are_those_of_n_grams_of_words(texts):
    hashes, offsets = shingles(texts)
    found = [set(hashes[a:b].tolist()) for a, b in itertools.pairwise(offsets)]
    wanted = [grams(text) for text in texts]
    assert list(map(len, found)) == list(map(len, wanted))
    for a, b in itertools.combinations(range(len(texts)), 2):
        assert len(found[a] & found[b]) == len(wanted[a] & wanted[b])


def test_hashes_do_not_depend_on_the_company():
    texts = ["one two three four five six " * 3, "", "seven", "one two three four five"]
    alone = [shingles([text])[0].tolist() for text in texts]
    hashes, offsets = shingles(texts)
    assert [hashes[a:b].tolist() for a, b in itertools.pairwise(offsets)] == alone


def changed(words, count, rng):
    words = list(words)
    for i in rng.sample(range(len(words)), count):
        words[i] = f"new{rng.randrange(10**6)}"
    return words


def corpus(count=150, copies=60, words=300, seed=0):
    """Texts, copies of the first of them with a few other words, and pairs that are less alike."""
    rng = random.Random(seed)
    vocabulary = [f"w{i}" for i in range(5000)]
    texts = [rng.choices(vocabulary, k=words) for _ in range(count)]
    near = [changed(texts[i], 2, rng) for i in range(copies)]
    far = [changed(texts[i], 30, rng) for i in range(copies)]
    return [" ".join(t) for t in texts], [" ".join(t) for t in near], [" ".join(t) for t in far]


def test_signatures_estimate_what_texts_share():
    """With permutations of short multipliers the mean error would be 0.08 here, not 0.02."""
    texts, near, far = corpus()
    of_texts, of_near, of_far = map(signatures, (texts, near, far))
    errors = []
    for copies, of_copies in ((near, of_near), (far, of_far)):
        for i, copy in enumerate(copies):
            a, b = grams(texts[i]), grams(copy)
            errors.append((of_texts[i] == of_copies[i]).mean() - len(a & b) / len(a | b))
    assert np.abs(errors).mean() < 0.032 and abs(np.mean(errors)) < 0.012


def test_planted_copies_are_found_and_nothing_else():
    texts, near, far = corpus()
    every = signatures(texts + near + far)
    kept = first_of_each(every, np.arange(len(every)))
    assert kept[: len(texts)].all() and kept[len(texts) + len(near) :].all()
    assert (~kept[len(texts) : len(texts) + len(near)]).sum() >= 0.98 * len(near)


def test_the_first_in_the_order_is_kept():
    texts, near, _ = corpus(20, 20)
    every = signatures(texts + near)
    backwards = np.arange(40)[::-1]
    kept = first_of_each(every, backwards)
    assert kept[20:].all() and (~kept[:20]).sum() >= 19


def test_as_an_index_that_grows_would_keep_them():
    """Against the plain definition: a text goes if a kept one before it is like it."""
    rng = np.random.default_rng(0)
    base = rng.integers(0, 3, (12, 128), dtype=np.uint32)
    rows = base[rng.integers(0, 12, 200)]
    rows = np.where(rng.random(rows.shape) < 0.06, rng.integers(0, 9, rows.shape), rows)
    rows = rows.astype(np.uint32)
    order = rng.permutation(len(rows))
    kept = []
    for row in order:
        bands = rows[row].reshape(16, 8)
        if not any(
            (rows[row] == rows[k]).mean() >= 0.8 and (bands == rows[k].reshape(16, 8)).all(1).any()
            for k in kept
        ):
            kept.append(int(row))
    found = first_of_each(rows, order)
    assert sorted(kept) == np.flatnonzero(found).tolist() and 12 <= len(kept) < 150


def test_many_equal_texts_take_no_time():
    every = np.tile(signatures(["the same boilerplate on every page of a site"]), (5_000, 1))
    kept = first_of_each(every, np.arange(len(every)))
    assert kept.sum() == 1 and kept[0]
