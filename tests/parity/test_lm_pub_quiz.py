"""Scores and result files against lm-pub-quiz's own, on one random GPT-2."""

import json
import shutil

import numpy as np
import pytest

from ckl_jax.checkpoints.from_hf import load_hf
from ckl_jax.data.facts.relational import SINGLE, Dataset
from ckl_jax.data.facts.statements import statements
from ckl_jax.data.text.byte_level import ByteLevelVocabulary
from ckl_jax.errors import UserError
from ckl_jax.models.decoder_only import DecoderOnlyModel
from ckl_jax.models.gpt2 import Transformer
from ckl_jax.papers.lm_pub_quiz.ranking import Evaluator
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults
from ckl_jax.papers.lm_pub_quiz.scorers import CausalScorer
from tests.parity.ranked import assert_same, unpack

RUNS = {  # name -> (reduction, conditional score, BOS)
    "sum": ("sum", False, True),
    "mean": ("mean", False, True),
    "raw": (None, False, True),
    "conditional": ("sum", True, True),
    "no_bos": ("sum", False, False),
}


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    return unpack("lm_pub_quiz.zip", tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module")
def model(golden):
    config, params = load_hf(golden / "model")
    vocabulary = ByteLevelVocabulary(golden / "model")
    return DecoderOnlyModel(Transformer(config), vocabulary=vocabulary), params


@pytest.fixture(scope="module")
def dataset(golden):
    return Dataset.from_path(golden / "dataset")


def evaluator(model, conditional=False, **settings):
    scorer = CausalScorer(*model, width=32, batch_size=2, **settings)
    return Evaluator(scorer, model_name="golden", conditional_score=conditional)


@pytest.mark.parametrize("run", RUNS)
def test_every_score_and_the_files_are_the_librarys(golden, model, dataset, tmp_path, run):
    reduction, conditional, bos = RUNS[run]
    ours = evaluator(model, conditional, bos=bos)
    results = ours.evaluate_dataset(dataset, reduction=reduction, save_path=tmp_path)
    assert_same(dataset, results, tmp_path, golden / "results" / run)


def test_the_librarys_results_are_read_with_their_cardinality(golden, dataset):
    theirs = DatasetResults.from_path(golden / "results" / "sum")
    assert [len(theirs[r.code].table) for r in dataset] == [15, 8]
    found = theirs.get_metrics(["accuracy", "precision_at_k", "support"], accumulate="domains")
    assert list(found) == ["P1", "P2"] and found["P1"]["support"] == 15
    overall = theirs.get_metrics("accuracy")["overall"]
    assert overall["support"] == 23
    # Its files say what it thinks of the cardinality; without that the templates are told apart.
    del theirs["P1"].metadata["relation_info"]["cardinality"]
    assert theirs["P1"].cardinality == SINGLE


def test_a_relation_is_a_table_of_pandas_by_the_librarys_name(golden):
    pytest.importorskip("pandas")
    relation = DatasetResults.from_path(golden / "results" / "sum")["P1"]
    table = relation.instance_table
    assert list(table["answer_idx"]) == list(relation.answers)
    np.testing.assert_allclose(np.array(table["pll_scores"].tolist()), relation.scores)


@pytest.mark.parametrize("run", ["sum", "raw"])
def test_some_rows_have_their_own_answers_as_options(golden, run):
    whole = DatasetResults.from_path(golden / "results" / run)
    (part,) = whole.filter_subset({"P2": [3, 0]})
    assert [row["sub_label"] for row in part.table] == [
        whole["P2"].table[i]["sub_label"] for i in (3, 0)
    ]
    assert part.answers.tolist() == [0, 1]
    labels = whole["P2"].metadata["answer_space_labels"]
    chosen = [whole["P2"].answers[i] for i in (3, 0)]
    assert part.metadata["answer_space_labels"] == [labels[i] for i in chosen]
    expected = whole["P2"].reduced().scores[[3, 0]][:, chosen]
    np.testing.assert_allclose(part.reduced().scores, expected)
    (kept,) = whole.filter_subset({"P2": [3, 0]}, keep_answer_space=True)
    np.testing.assert_allclose(kept.reduced().scores, whole["P2"].reduced().scores[[3, 0]])
    with pytest.raises(UserError, match="P2 has no row 8; it has 8"):
        whole.filter_subset({"P2": [8]})


def test_token_scores_reduce_to_the_sums(golden):
    raw = DatasetResults.from_path(golden / "results" / "raw")
    for reduction in ("sum", "mean"):
        reduced = DatasetResults.from_path(golden / "results" / reduction)
        for code in ("P1", "P2"):
            scores = raw[code].reduced(reduction).scores
            np.testing.assert_allclose(scores, reduced[code].scores, atol=1e-5)


def test_finished_relations_are_not_scored_twice(model, dataset, tmp_path):
    first = evaluator(model)
    whole = first.evaluate_dataset(dataset, save_path=tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    # Killed between the file of P2 and the metadata that name it.
    metadata = json.loads((tmp_path / "b/metadata_results.json").read_text())
    del metadata["P2"]
    (tmp_path / "b/metadata_results.json").write_text(json.dumps(metadata))
    second = evaluator(model)
    again = second.evaluate_dataset(dataset, save_path=tmp_path / "b")
    assert 0 < second.scorer.tokens_seen < first.scorer.tokens_seen
    for code in ("P1", "P2"):
        np.testing.assert_allclose(again[code].scores, whole[code].scores, atol=1e-9)
    with pytest.raises(UserError, match="scored with reduction='sum', now it is 'mean'"):
        evaluator(model).evaluate_dataset(dataset, reduction="mean", save_path=tmp_path / "b")


def test_shared_prefixes_are_seen_once(model, dataset):
    ours = evaluator(model)
    ours.evaluate_dataset(dataset)
    texts = [s for r in dataset for t in range(len(r.templates)) for s in statements(r, t)]
    tokens = sum(1 + len(ids) for ids in ours.scorer.encode(texts))
    assert ours.scorer.tokens_seen < 0.75 * tokens, "in rows of 32, of a dataset of 91 statements"


def test_what_cannot_be_scored_is_said(model, dataset, tmp_path):
    with pytest.raises(UserError, match="P1 has no template 3; it has 3, counted from 0"):
        evaluator(model).evaluate_dataset(dataset, 3)
    (tmp_path / "long").mkdir()
    (tmp_path / "long/metadata_relations.json").write_text('{"P9": {"templates": ["[X] [Y]"]}}')
    row = {"sub_id": "s", "sub_label": "a", "obj_id": "o", "obj_label": "very " * 70}
    (tmp_path / "long/P9.jsonl").write_text(json.dumps(row))
    message = "P9, .*P9.jsonl, line 1, template 0, option 'very .* more than the model's 64"
    with pytest.raises(UserError, match=message):
        evaluator(model).evaluate_dataset(Dataset.from_path(tmp_path / "long"))
    module, params = model
    broken = {
        **params,
        "token_embedder": {"embedding": params["token_embedder"]["embedding"] * np.nan},
    }
    with pytest.raises(UserError, match="P1, .*line 1, template 0, option .* is not a number"):
        evaluator((module, broken)).evaluate_dataset(dataset)
    with pytest.raises(UserError, match="answer 1: the model's score of 'A b' is not a number"):
        evaluator((module, broken)).evaluate_item("[Y] b", ["a"])
