"""A BERT trains on rows of text: what is hidden, the loss, and a run with its evaluation."""

import json

import jax
import numpy as np
import pytest

from ckl_jax.cli.ckl import main as ckl
from ckl_jax.cli.t5x import main as t5x
from ckl_jax.data.tasks.converters import Masking, masked_batch
from ckl_jax.data.text.masked_vocabulary import MaskedVocabulary, open_vocabulary
from ckl_jax.errors import UserError
from ckl_jax.models.bert import BertConfig, Transformer
from ckl_jax.models.masked import MaskedModel
from tests.moved import assert_ranks_elsewhere
from tests.parity.ranked import unpack
from tests.tiny import read_rows

MASK, CLS, SEP = 4, 2, 3
MASKING = Masking(0.15, MASK, (CLS, SEP))


class Vocabulary:
    mask_id, bos_id, eos_id, vocab_size = MASK, CLS, SEP, 50


def batch(rows=200, width=40, weights=None):
    rng = np.random.default_rng(0)
    tokens, lengths = rng.integers(5, 50, (rows, width)), rng.integers(10, width + 1, rows)
    tokens[:, 0] = CLS
    tokens[np.arange(rows), lengths - 1] = SEP
    valid = np.arange(rows) < rows - 1
    return masked_batch(tokens, lengths, valid, masking=MASKING, weights=weights), lengths


def test_evaluations_hide_a_share_of_the_tokens_and_always_the_same():
    found, lengths = batch()
    hidden = found["decoder_loss_weights"] > 0
    share = hidden[:-1].sum() / (lengths[:-1] - 2).sum()
    assert 0.13 < share < 0.17
    np.testing.assert_array_equal(found["encoder_input_tokens"][hidden], MASK)
    shown = np.where(hidden, -1, found["encoder_input_tokens"])
    np.testing.assert_array_equal(shown, np.where(hidden, -1, found["decoder_target_tokens"]))
    assert not hidden[np.isin(found["decoder_target_tokens"], (CLS, SEP, 0))].any()
    assert not hidden[-1].any(), "a row that only fills the batch"
    np.testing.assert_array_equal(found["encoder_segment_ids"].sum(1), lengths)
    again, _ = batch()
    np.testing.assert_array_equal(again["encoder_input_tokens"], found["encoder_input_tokens"])
    by_place = hidden[:-1].mean(0)[1:9]
    assert by_place.min() > 0.05 and by_place.max() < 0.3


def test_training_hides_anew_in_berts_shares():
    model = MaskedModel(Transformer(BertConfig(vocab_size=50)), vocabulary=Vocabulary())
    found, _ = batch()
    one, other = (model.hide(found, jax.random.key(i)) for i in range(2))
    hidden = np.asarray(one["decoder_loss_weights"]) > 0
    assert not np.array_equal(hidden, np.asarray(other["decoder_loss_weights"]) > 0)
    assert not (hidden & (found["maskable"] == 0)).any()
    before, after = found["decoder_target_tokens"][hidden], np.asarray(one["encoder_input_tokens"])
    shares = [np.mean(after[hidden] == MASK), np.mean(after[hidden] == before)]
    np.testing.assert_allclose(shares, [0.8, 0.1 + 0.1 / 50], atol=0.04)
    np.testing.assert_array_equal(after[~hidden], found["decoder_target_tokens"][~hidden])


def test_marked_tokens_are_hidden_as_many_times_as_often():
    weights = np.ones((200, 40), np.float32)
    weights[:, ::2] = 6.0
    found, _ = batch(weights=weights)
    model = MaskedModel(Transformer(BertConfig(vocab_size=50)), vocabulary=Vocabulary())
    may = found["maskable"] > 0
    for hidden in (found, model.hide(found, jax.random.key(0))):
        hidden = np.asarray(hidden["decoder_loss_weights"])
        np.testing.assert_allclose(hidden[:, ::2][may[:, ::2]].mean(), 0.9, atol=0.02)
        np.testing.assert_allclose(hidden[:, 1::2][may[:, 1::2]].mean(), 0.15, atol=0.02)
        assert not hidden[~may].any()


@pytest.mark.parametrize("packed", [False, True])
def test_rows_that_are_longer_than_the_positions_are_refused(packed):
    config = BertConfig(vocab_size=50, max_positions=32)
    model = MaskedModel(Transformer(config), vocabulary=Vocabulary())
    segments = {"segments": np.ones((200, 40), np.int32)} if packed else {}
    tokens = np.full((200, 40), 7)
    found = masked_batch(tokens, np.full(200, 40), np.ones(200, bool), masking=MASKING, **segments)
    assert ("encoder_positions" in found) == packed
    with pytest.raises(UserError, match="of 40 tokens exceed the model's 32 positions"):
        model.loss_fn({}, found)


def test_vocabularies_are_told_apart(tmp_path):
    folder = unpack("lm_pub_quiz_masked.zip", tmp_path)
    for name in ("bert", "roberta"):
        assert isinstance(open_vocabulary(folder / name), MaskedVocabulary)


def train(tmp_path, **bindings):
    """Trains the golden BERT on 40 sentences; returns the rows of metrics."""
    golden = unpack("lm_pub_quiz_masked.zip", tmp_path / "golden")
    news = tmp_path / "news.jsonl"
    lines = [
        {"date": "2020-01-01", "title": "", "text": f"The capital of {x} is {y}."}
        for x, y in [("France", "Paris"), ("iOS", "San José")] * 20
    ]
    news.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run, rows = tmp_path / "run", tmp_path / "rows"
    assert ckl(["import-hf", "--model", str(golden / "bert"), "--out", str(tmp_path / "bert")]) == 0
    prepare = ["data", "rows", "--documents", str(news), "--vocabulary", str(golden / "bert")]
    assert ckl([*prepare, "--out", str(rows), "--length", "48"]) == 0
    bindings = {
        "MODEL_DIR": str(run),
        "INITIAL_CHECKPOINT_PATH": str(tmp_path / "bert"),
        "CACHE_DIRS": (str(rows),),
        "MIXTURE_OR_TASK_NAME": "news",
        "TASK_FEATURE_LENGTHS": {"targets": 48},
        "RANKING_DATASET": str(golden / "dataset"),
        **bindings,
    }
    files = ("lm_pub_quiz_bert.gin", str(tmp_path / "bert/model.gin"))
    flags = [f"--gin_file={f}" for f in files]
    assert t5x(["train", *flags, *(f"--gin.{k}={v!r}" for k, v in bindings.items())]) == 0
    return read_rows(run / "metrics.jsonl")


@pytest.mark.slow
def test_training_hides_anew_without_dropout_too(tmp_path):
    rows = train(
        tmp_path,
        BATCH_SIZE=40,
        EPOCHS=3,
        LEARNING_RATE=1e-30,
        DROPOUT_RATE=0.0,
        **{"train.train.log_period": 1},
    )
    losses = [row["loss"] for row in rows if row["split"] == "train"]
    assert len(losses) == len(set(losses)) == 3  # the same rows and parameters, other tokens hidden


@pytest.mark.slow
def test_a_bert_is_trained_and_ranked_while_it_trains(tmp_path):
    lines = train(
        tmp_path,
        BATCH_SIZE=8,
        EPOCHS=10,
        LEARNING_RATE=3e-3,
        HELD_OUT_TASKS=("news",),
        FILLING_DATASET=str(tmp_path / "golden/dataset"),
    )
    losses = [m["loss"] for m in lines if m["split"] == "training_eval/news"]
    assert losses[-1] < 0.7 * losses[0]
    filled = [m["items"] for m in lines if m["split"] == "inference_eval/dataset_mask_filling"]
    assert filled == [1] * 11
    ranked = [m["accuracy"] for m in lines if m["split"] == "inference_eval/dataset"]
    assert len(ranked) == len(losses) == 11
    assert (tmp_path / "run/ranking/dataset/000050/P1_results.jsonl").is_file()
    assert_ranks_elsewhere(tmp_path / "run", tmp_path / "moved", tmp_path)
