"""Ranks of answers at masks, against one unpacked forward pass a statement."""

import json

import numpy as np
import pytest

from ckl_jax.checkpoints.from_hf import load_hf
from ckl_jax.cli import ckl
from ckl_jax.data.facts.relational import Dataset
from ckl_jax.data.facts.statements import fill
from ckl_jax.data.text.masked_vocabulary import MaskedVocabulary
from ckl_jax.errors import UserError
from ckl_jax.models.bert import Transformer
from ckl_jax.models.masked import MaskedModel
from ckl_jax.papers.lm_pub_quiz.mask_filling import MaskFiller, fill_dataset, measure
from tests.parity.ranked import unpack
from tests.tiny import read_rows


def test_ranks_are_over_the_whole_vocabulary(tmp_path):
    golden = unpack("lm_pub_quiz_masked.zip", tmp_path)
    config, params = load_hf(golden / "bert")
    vocabulary = MaskedVocabulary(golden / "bert")
    model = MaskedModel(Transformer(config), vocabulary=vocabulary)
    filler = MaskFiller(model, params, width=64, batch_size=2)
    once = [fill("In [Y]: [X]", subject, "x") for subject in ("Ann", "France", "Zoé")]
    other = [fill("In [Y]: [X]", "Ann", word) for word in ("Paris", "ϡ")]
    other.append(fill("In [Y] [Y]", "", "x"))
    assert vocabulary.encode("ϡ") == [vocabulary.unk_id]
    found = filler.ranks([*other, *once])
    assert found[:3].tolist() == [-1, -1, -1], "several pieces, an unknown word, and twice"
    for statement, rank in zip(once, found[3:], strict=True):
        ids = vocabulary.encode(statement.text)
        (answer,) = vocabulary.encode("x")
        place = ids.index(answer)
        hidden = [*ids[:place], vocabulary.mask_id, *ids[place + 1 :]]
        row = np.array([[vocabulary.bos_id, *hidden, vocabulary.eos_id]])
        logits = np.asarray(model.logits(params, {"encoder_input_tokens": row}))[0, place + 1]
        assert rank == np.sum(logits > logits[answer])
    capitals = Dataset.from_path(golden / "dataset", only=("P1",))
    announced = []
    rows = list(fill_dataset(filler, capitals, (0, 2), lambda *counts: announced.append(counts)))
    assert announced == [("P1", 0, 1)]
    assert {(r["relation"], r["answer"], r["sub_id"]) for r in rows} == {("P1", "x", "P1s3")}
    with pytest.raises(UserError, match="P2 has no template 2; it has 2"):
        list(fill_dataset(filler, Dataset.from_path(golden / "dataset"), (2,)))
    only = Dataset.from_path(golden / "dataset", only=("P2",))
    with pytest.raises(UserError, match="has no answer that is one token"):
        list(fill_dataset(filler, only))


def test_a_bert_fills_by_command(tmp_path, capsys):
    golden = unpack("lm_pub_quiz_masked.zip", tmp_path)
    argv = ["probe", "fill", "--model", str(golden / "bert"), "--dataset", str(golden / "dataset")]
    assert ckl.main([*argv, "--templates", "all", "--relations", "P1"]) == 0
    out = golden / "bert" / "fill" / "dataset"
    found = json.loads((out / "summary.json").read_text())["overall"]
    rows = read_rows(out / "items.jsonl")
    whole = Dataset.from_path(golden / "dataset", only=("P1",))["P1"]
    assert found["items"] == len(rows)
    assert found["left_out"] == len(whole.instances) * len(whole.templates) - len(rows)
    for k in (1, 10):
        right = 100 * np.mean([row["rank"] < k for row in rows])
        assert found[f"precision@{k}"]["value"] == pytest.approx(right)
        assert f"precision@{k} {right:.2f} % (95 % interval" in capsys.readouterr().out or k > 1
    for more, message in (
        (["--templates", "9"], "P1 has no template 9; it has 3, counted from 0"),
        (["--templates", "0,0"], "name one twice"),
        (["--dataset", "nowhere"], "Cannot read nowhere"),
    ):
        assert ckl.main([*argv, *more]) == 2 and message in capsys.readouterr().err
    causal = unpack("lm_pub_quiz.zip", tmp_path / "causal")
    assert ckl.main([*argv, "--model", str(causal / "model")]) == 2
    assert "Only masked models fill masks, not a" in capsys.readouterr().err


def test_facts_count_once_in_intervals_and_templates_in_values():
    rows = [
        {
            "relation": f"P{i % 2}",
            "sub_id": f"s{i}",
            "template": t,
            "answer": "x",
            "rank": i % 3 + t,
        }
        for i in range(60)
        for t in range(3)
    ]
    found = measure(rows)
    assert found["overall"]["precision@1"]["value"] == pytest.approx(100 / 9)
    assert found["overall"]["precision@10"] == {"value": 100, "low": 100, "high": 100}
    right = np.array([row["rank"] < 1 for row in rows]).reshape(60, 3).mean(axis=1)
    drawn = np.random.default_rng(5).integers(60, size=(20_000, 60))
    low, high = np.percentile(100 * right[drawn].mean(axis=1), [2.5, 97.5])
    x = found["overall"]["precision@1"]
    assert (x["low"], x["high"]) == (pytest.approx(low, abs=1), pytest.approx(high, abs=1))
    assert list(found["relations"]) == ["P0", "P1"]
