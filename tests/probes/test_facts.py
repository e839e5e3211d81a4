"""What a row of a fact says; the losses themselves are in `tests/parity/test_hf_perplexity.py`."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import pytest

from ckl_jax.errors import UserError
from ckl_jax.probes.facts import FactEvaluator, FactProbes
from ckl_jax.train.evaluations import write_evaluation
from tests.helpers import TINY_GPT2, model_of, random_params


class Letters:
    """A token for each character."""

    eos_id = pad_id = 0

    def encode_many(self, texts):
        return [[ord(c) % 63 + 1 for c in text] for text in texts]

    def offsets(self, text):
        return [(i, i + 1) for i in range(len(text))]


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory):
    folder = tmp_path_factory.mktemp("facts")
    path = folder / "0801-0901_changed.csv"
    path.write_text("subject,relation,object\nA B,in,Rome\nC,is,O\n")
    before = {
        "subject": "A B",
        "relation": "in",
        "object": "Rome",
        "kind": "updated",
        "old_objects": ["Bari"],
    }
    path.with_suffix(".jsonl").write_text(json.dumps(before))
    model = dataclasses.replace(model_of(TINY_GPT2), vocabulary=Letters())
    config = FactProbes(files=(str(path),), length=10, batch_size=2, answers="last")
    return FactEvaluator(config, model)


def test_a_row_says_what_a_fact_cost_and_what_was_answered(evaluator, tmp_path, monkeypatch):
    params = random_params(TINY_GPT2)
    first, second = evaluator(params, 0, False)
    assert "predictions" not in first
    assert (first["interval"], first["class"], first["kind"]) == ("0801-0901", "changed", "updated")
    assert (first["input"], first["answers"]) == ("A B in", ["Rome"])
    assert first["old_answers"] == ["Bari"]
    # "A B in Rome" has 11 tokens of which 10 are kept and 9 predicted; " Rom" is the object's.
    assert (first["truncated"], first["tokens"], first["object_tokens"]) == (1, 9, 4)
    assert (second["truncated"], second["tokens"], second["object_tokens"]) == (0, 5, 2)
    assert 0 < first["object_nll"] < first["nll"]

    def answers(params, prompts, source_length, target_length, beams):
        assert (len(prompts), source_length, target_length, beams) == (2, 10, 6, 2)
        return iter([[" Bari. It is", "Rome"], ["the o", "x"]])

    monkeypatch.setattr(evaluator._generator, "answers", answers)
    first, second = rows = list(evaluator(params, 0, True))
    assert first["predictions"] == ["Bari", "Rome"]
    assert (first["em"], first["em_old"], first["hit_rank"]) == (0, 1, 2)
    assert (second["em"], second["f1"]) == (1, 1.0)  # without the article
    (scores,) = write_evaluation(tmp_path, 3, rows).values()
    assert scores["em"] == 50.0 and scores["perplexity"] > 1 and scores["truncated"] == 1
    assert (tmp_path / "inference_eval" / "0801-0901_changed-000003.jsonl").is_file()


def test_losses_that_are_not_finite_are_refused(evaluator):
    broken = jax.tree.map(lambda x: x * jnp.nan, random_params(TINY_GPT2))
    with pytest.raises(UserError, match=r"loss of the fact 'A B . in . Rome' is nan; the model's"):
        list(evaluator(broken, 0, False))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"files": "a_new.csv"}, "FACT_PROBES is 'a_new.csv'; give a list of names"),
        ({"answers": "first"}, "FACT_ANSWERS is 'first'; choose from last, always, never"),
        ({"length": 0}, "FACT_LENGTH is 0"),
    ],
)
def test_settings_are_checked_at_once(settings, message):
    with pytest.raises(UserError, match=message):
        FactProbes(**settings)


def test_a_fact_begins_as_texts_of_the_family_do(evaluator):
    vocabulary = Letters()
    vocabulary.around = [5], []
    model = dataclasses.replace(evaluator._losses.model, vocabulary=vocabulary)
    row, marks = FactEvaluator(evaluator.config, model)._files[0][1][1]
    bare, marked = evaluator._files[0][1][1]
    assert (row, marks) == ([5, *bare], [0, *marked])
