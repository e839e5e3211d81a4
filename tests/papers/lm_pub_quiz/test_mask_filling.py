"""Ranks of answers at masks, against one unpacked forward pass a statement."""

import numpy as np
import pytest

from ckl_jax.checkpoints.from_hf import load_hf
from ckl_jax.data.facts.relational import Dataset
from ckl_jax.data.facts.statements import fill
from ckl_jax.data.text.masked_vocabulary import MaskedVocabulary
from ckl_jax.errors import UserError
from ckl_jax.models.bert import Transformer
from ckl_jax.models.masked import MaskedModel
from ckl_jax.papers.lm_pub_quiz.mask_filling import MaskFiller, fill_dataset
from tests.parity.ranked import unpack


def test_ranks_are_over_the_whole_vocabulary(tmp_path):
    golden = unpack("lm_pub_quiz_masked.zip", tmp_path)
    config, params = load_hf(golden / "bert")
    vocabulary = MaskedVocabulary(golden / "bert")
    model = MaskedModel(Transformer(config), vocabulary=vocabulary)
    filler = MaskFiller(model, params, width=64, batch_size=2)
    once = [fill("In [Y]: [X]", subject, "x") for subject in ("Ann", "France", "Zoé")]
    other = [fill("In [Y]: [X]", "Ann", "Paris"), fill("In [Y] [Y]", "", "x")]
    found = filler.ranks([*other, *once])
    assert found[:2].tolist() == [-1, -1], "several pieces, and twice"
    for statement, rank in zip(once, found[2:], strict=True):
        ids = vocabulary.encode(statement.text)
        (answer,) = vocabulary.encode("x")
        place = ids.index(answer)
        hidden = [*ids[:place], vocabulary.mask_id, *ids[place + 1 :]]
        row = np.array([[vocabulary.bos_id, *hidden, vocabulary.eos_id]])
        logits = np.asarray(model.logits(params, {"encoder_input_tokens": row}))[0, place + 1]
        assert rank == np.sum(logits > logits[answer])
    capitals = Dataset.from_path(golden / "dataset", only=("P1",))
    rows = list(fill_dataset(filler, capitals, (0, 2)))
    assert {(r["relation"], r["answer"], r["sub_id"]) for r in rows} == {("P1", "x", "P1s3")}
    with pytest.raises(UserError, match="P2 has no template 2; it has 2"):
        list(fill_dataset(filler, Dataset.from_path(golden / "dataset"), (2,)))
    only = Dataset.from_path(golden / "dataset", only=("P2",))
    with pytest.raises(UserError, match="has no answer that is one token"):
        list(fill_dataset(filler, only))
