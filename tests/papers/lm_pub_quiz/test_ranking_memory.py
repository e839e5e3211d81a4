"""What ranking holds of a relation with 1,000 options: a stretch of its statements, never all."""

import gc
import tracemalloc

import numpy as np
import pytest

from ckl_jax.data.facts.relational import Instance, Relation
from ckl_jax.papers.lm_pub_quiz import ranking
from ckl_jax.papers.lm_pub_quiz.ranking import Evaluator
from ckl_jax.papers.lm_pub_quiz.scorers import CausalScorer
from tests.helpers import TINY_GPT2, model_of
from tests.papers.lm_pub_quiz.test_causal_scorer import Letters

OPTIONS = 1000


class WithoutModel(CausalScorer):
    """All of it but the model: tries are made and cut into rows."""

    most = 0

    def token_scores(self, statements, conditional=False):
        self.most = max(self.most, len(statements))
        return super().token_scores(statements, conditional)

    def _score(self, trie):
        for _ in self._batches(trie):
            pass
        return np.ones(len(trie.tokens), np.float32)


def relation(instances):
    facts = tuple(Instance(f"s{i}", f"{i:04}", i % OPTIONS) for i in range(instances))
    ids = tuple(f"{i:03}" for i in range(OPTIONS))
    return Relation("P0", ("[X]:[Y].",), ids, ids, facts)


def peak_of(instances):
    """The scores, and the most bytes that were allocated beside them."""
    scorer = WithoutModel(model_of(TINY_GPT2, vocabulary=Letters()), None)
    gc.collect()  # what other tests left behind is not collected in between
    tracemalloc.start()
    result = Evaluator(scorer).evaluate_relation(relation(instances))
    peak = tracemalloc.get_traced_memory()[1] - result.scores.nbytes
    tracemalloc.stop()
    return scorer.most, result.scores, peak


@pytest.mark.slow
def test_the_peak_is_of_a_stretch_and_not_of_the_relation(monkeypatch):
    monkeypatch.setattr(ranking, "_CHUNK", 4000)
    few, many = peak_of(4), peak_of(32)
    assert few[0] == many[0] == 4000
    assert many[1].shape == (32, OPTIONS) and (many[1] == 9).all()  # characters of "0000:000."
    assert many[2] < 1.2 * few[2]
