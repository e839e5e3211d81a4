"""Scores of KILT's answers against KILT's own program, case by case and on its test files."""

import json
from pathlib import Path

import pytest

pytest.importorskip("rouge", reason="needs the extra `kilt`")

from ckl_jax.papers.ckl import kilt
from ckl_jax.papers.ckl.data.kilt import read_kilt
from tests.real_data import shared_data

GOLDEN = json.loads((Path(__file__).parent / "golden" / "kilt.json").read_text(encoding="utf-8"))
_NAMES = {"rougel": "rouge_l"}


def theirs(scores):
    return {_NAMES.get(name, name): value for name, value in scores.items()}


def as_read(answers):
    return tuple(dict.fromkeys(a.strip() for a in answers))


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: repr(case["prediction"])[:30])
def test_each_score_is_kilts(case):
    ours = kilt.score_answer(case["prediction"], as_read(case["answers"]), reading=kilt.KILT)
    assert ours == pytest.approx(theirs(case["scores"]), abs=1e-12)


@pytest.mark.parametrize("said", ["guess1_1", "gold1"])
def test_kilts_test_files_score_as_kilt_says(said):
    gold, guess = (
        list(read_kilt(shared_data("qa", "kilt-eval-fixtures", f"{name}.jsonl")))
        for name in ("gold1", said)
    )
    assert [r.id for r in gold] == [r.id for r in guess] == ["1", "2", "3"]
    every = [
        kilt.score_answer(b.answers[0], a.answers, reading=kilt.KILT)
        for a, b in zip(gold, guess, strict=True)
    ]
    means = {name: sum(scores[name] for scores in every) / 3 for name in kilt.METRICS}
    assert means == pytest.approx(theirs(GOLDEN[f"gold1/{said}"]), abs=1e-12)
    if said == "guess1_1":  # as KILT's own test says
        assert means["rouge_l"] == pytest.approx(0.7222222178240741, abs=1e-15)


def test_the_papers_reading_differs_in_two_things():
    both = [lambda p, a, r=reading: kilt.score_answer(p, a, reading=r) for reading in kilt.READINGS]
    paper, official = (score("City of Light", ("Paris", "City of Light")) for score in both)
    assert (paper["accuracy"], official["accuracy"]) == (0, 1)
    assert paper["em"] == official["em"] == 1
    paper, official = (score("", ("The",)) for score in both)
    assert (paper["em"], official["em"]) == (1, 0)
    for case in GOLDEN["cases"]:
        answers = as_read(case["answers"])
        paper, official = (score(case["prediction"], answers) for score in both)
        if case["prediction"].strip():
            paper["accuracy"] = official["accuracy"]  # tested above
            assert paper == official, case


def test_long_sentences_do_not_exhaust_the_stack():
    text = " ".join(f"w{i}" for i in range(2000))
    assert kilt.metrics.rouge_l(text, ("w0",)) == pytest.approx(2 / 2001, abs=1e-8)
