"""Scores of masked models and result files against lm-pub-quiz's own, on a BERT and a RoBERTa."""

import numpy as np
import pytest

from ckl_jax.checkpoints.from_hf import load_hf
from ckl_jax.data.facts.relational import Dataset
from ckl_jax.data.facts.statements import fill
from ckl_jax.data.text.masked_vocabulary import MaskedVocabulary
from ckl_jax.errors import UserError
from ckl_jax.models.bert import Transformer
from ckl_jax.models.masked import MaskedModel
from ckl_jax.papers.lm_pub_quiz.masked_scorer import MaskedScorer
from ckl_jax.papers.lm_pub_quiz.ranking import Evaluator
from tests.parity.ranked import assert_same, unpack

WORD, ANSWER = "within_word_l2r", "answer_l2r+word_l2r"
RUNS = {  # name -> (model, reduction, conditional score, scheme)
    "sum": ("bert", "sum", False, WORD),
    "mean": ("bert", "mean", False, WORD),
    "raw": ("bert", None, False, WORD),
    "original": ("bert", "sum", False, "original"),
    "sentence": ("bert", "sum", False, "sentence_l2r"),
    "answer": ("bert", "sum", False, ANSWER),
    "conditional": ("bert", "sum", True, WORD),
    "conditional_answer": ("bert", None, True, ANSWER),
    "roberta": ("roberta", None, False, WORD),
}
ALIKE = ("sum", "mean", "raw", "answer", "conditional", "original")  # to others


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    return unpack("lm_pub_quiz_masked.zip", tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module")
def models(golden):
    found = {}
    for name in ("bert", "roberta"):
        config, params = load_hf(golden / name)
        vocabulary = MaskedVocabulary(golden / name)
        found[name] = MaskedModel(Transformer(config), vocabulary=vocabulary), params
    return found


def evaluator(model, scheme=WORD, conditional=False, width=64):
    scorer = MaskedScorer(*model, pll_metric=scheme, width=width, batch_size=4)
    return Evaluator(scorer, model_name="golden", conditional_score=conditional)


@pytest.mark.parametrize(
    "run", [pytest.param(r, marks=pytest.mark.slow) if r in ALIKE else r for r in RUNS]
)
def test_every_score_and_the_files_are_the_librarys(golden, models, tmp_path, run):
    which, reduction, conditional, scheme = RUNS[run]
    dataset = Dataset.from_path(golden / "dataset")
    ours = evaluator(models[which], scheme, conditional)
    results = ours.evaluate_dataset(dataset, reduction=reduction, save_path=tmp_path)
    assert_same(dataset, results, tmp_path, golden / "results" / run)


@pytest.mark.slow
def test_rows_of_any_width_give_the_same(golden, models):
    texts = [fill("[X] is in [Y].", "Wien", label) for label in ("Paris", "New Moon-on-Sea", "x")]
    one, other = (evaluator(models["bert"], width=w).scorer.token_scores(texts) for w in (26, 60))
    np.testing.assert_allclose(one.values, other.values, atol=1e-5)


def test_what_cannot_be_scored_is_said(golden, models, tmp_path):
    scorer = evaluator(models["bert"]).scorer
    with pytest.raises(UserError, match="more than the model's 66 positions"):
        scorer.token_scores([fill("[Y]", "", "very " * 70)])
    with pytest.raises(UserError, match="no token to score"):
        scorer.token_scores([fill("[X] [Y]", "", "")])
    with pytest.raises(UserError, match="pll_metric is 'pll'"):
        MaskedScorer(*models["bert"], pll_metric="pll")
    words = (golden / "bert/vocab.txt").read_text().replace("[MASK]", "[HIDE]")
    (tmp_path / "vocab.txt").write_text(words)
    with pytest.raises(UserError, match=r"has no token '\[MASK\]' or '<mask>'"):
        MaskedVocabulary(tmp_path)
