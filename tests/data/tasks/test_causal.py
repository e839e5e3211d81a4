"""Rows of running text: cutting, packing, and the batches of decoder-only models."""

import json

import numpy as np
import pytest

from ckl_jax.data.tasks import causal
from ckl_jax.data.tasks.cached import CachedTask
from ckl_jax.data.tasks.converters import converter_of, decoder_only_batch
from ckl_jax.data.tasks.epochs import EpochPlan
from ckl_jax.data.tasks.pipeline import BatchSource
from ckl_jax.data.text.documents import Document, read_documents, write_documents
from ckl_jax.errors import UserError
from ckl_jax.papers.ckl import facts_task
from ckl_jax.train.configs import DatasetConfig


class Letters:
    """A vocabulary of bytes, in which 0 is a token."""

    vocab_size, eos_id, pad_id, digest = 256, 255, 254, "letters"

    def encode_many(self, texts):
        return [[b - 97 if b >= 97 else b for b in text.encode()] for text in texts]

    def encode(self, text):
        return self.encode_many([text])[0]

    def offsets(self, text):
        return [(i, i + 1) for i in range(len(text))]


def test_1301_tokens_are_three_rows_and_were_two():
    tokens = list(range(1301))
    assert [len(row) for row in causal.cut(tokens, 512)] == [512, 512, 277]
    assert [len(row) for row in causal.cut(tokens, 512, legacy=True)] == [512, 512]
    assert list(causal.cut(tokens[:300], 512, legacy=True)) == [tokens[:300]]
    assert [len(row) for row in causal.cut(tokens[:1024], 512, legacy=True)] == [512, 512]
    assert list(causal.cut([], 512)) == []


def test_the_text_of_a_document():
    document = Document("1", "2021-08-01", "Rome", "A city.\nIn Italy.")
    assert causal.document_text(document) == "Rome. A city.\nIn Italy."
    assert causal.document_text(document, legacy=True) == "Rome. A city.In Italy."


def test_a_batch_predicts_every_next_token_and_knows_zero_from_padding():
    rows = np.array([[5, 0, 6, 0], [7, 8, 9, 0]], np.int32)
    batch = decoder_only_batch(rows, np.array([3, 4]), np.array([True, False]), pad_id=99)
    assert batch["decoder_input_tokens"].tolist() == [[5, 0, 6, 99], [7, 8, 9, 0]]
    assert batch["decoder_target_tokens"][0, :2].tolist() == [0, 6]
    assert batch["decoder_loss_weights"].tolist() == [[1, 1, 0, 0], [0, 0, 0, 0]]
    assert set(batch) == {
        "decoder_input_tokens",
        "decoder_target_tokens",
        "decoder_loss_weights",
    }


def test_a_packed_batch_never_predicts_across_documents():
    rows, segments = np.array([[1, 2, 3, 4, 5, 0]]), np.array([[1, 1, 2, 2, 2, 0]])
    batch = decoder_only_batch(rows, np.array([5]), None, segments)
    assert batch["decoder_segment_ids"].tolist() == [[1, 1, 2, 2, 2, 0]]
    assert batch["decoder_positions"][0, :5].tolist() == [0, 1, 0, 1, 2]
    assert batch["decoder_loss_weights"].tolist() == [[1, 0, 1, 1, 0, 0]]


def test_left_padding_predicts_the_first_token_from_the_padding():
    rows = np.array([[1, 2, 0, 0], [3, 4, 5, 6]])
    batch = decoder_only_batch(rows, np.array([2, 4]), pad_id=9, left_pad_legacy=True)
    assert batch["decoder_input_tokens"].tolist() == [[9, 9, 1, 2], [3, 4, 5, 6]]
    assert batch["decoder_segment_ids"].tolist() == [[0, 0, 1, 1], [1, 1, 1, 1]]
    assert batch["decoder_loss_weights"].tolist() == [[0, 1, 1, 0], [1, 1, 1, 0]]
    assert batch["decoder_target_tokens"][0, 1:3].tolist() == [1, 2]


@pytest.mark.parametrize("packed", [False, True])
def test_from_documents_to_batches(packed, tmp_path):
    documents = [Document(str(i), "2021-08-01", "", "ab" * (i + 1)) for i in range(5)]
    write_documents(tmp_path / "d.jsonl", documents)
    sources, out = {"d1": tmp_path / "d.jsonl"}, tmp_path / "tasks"
    folder = causal.prepare_rows(sources, out, Letters(), 6, packed=packed)["d1"]
    task = CachedTask.open(folder)
    made = (folder / "manifest.json").stat().st_mtime_ns
    causal.prepare_rows(sources, out, Letters(), 6, packed=packed)
    assert (folder / "manifest.json").stat().st_mtime_ns == made
    with pytest.raises(UserError, match="lengths = {'targets': 6}, not {'targets': 4}"):
        causal.prepare_rows(sources, out, Letters(), 4, packed=packed)
    lengths = {name: 6 for name in task.features}
    plan = EpochPlan(len(task), batch_size=len(task))
    batch = BatchSource(plan, [task], lengths, convert=converter_of(("targets",), 254))[0]
    # 2, 4, 6, 6 + 2 and 6 + 4 tokens, of which the first of a piece is not predicted
    assert batch["decoder_loss_weights"].sum() == 30 - 7
    assert ("decoder_segment_ids" in batch) == packed
    assert len(task) == (6 if packed else 7)


def test_every_part_of_a_text_begins_and_its_last_one_ends():
    vocabulary = Letters()
    vocabulary.around = [250], [251]
    documents = [Document("a", "2021-08-01", "", "abcde", marks=((1, 4),))]
    rows = list(causal.causal_rows(documents, vocabulary, 5))
    assert [row["targets"] for row in rows] == [[250, 0, 1, 2], [250, 3, 4, 251]]
    marked = list(causal.causal_rows(documents, vocabulary, 5, marks=True))
    assert [row["targets"] for row in marked] == [row["targets"] for row in rows]
    assert [row["marks"] for row in marked] == [[0, 0, 1, 1], [0, 1, 0, 0]]
    vocabulary.mask_id = 252  # of a masked model each part is a text
    rows = causal.causal_rows(documents, vocabulary, 5)
    assert [row["targets"] for row in rows] == [[250, 0, 1, 2, 251], [250, 3, 4, 251]]


def test_marks_weigh_tokens_and_change_nothing_else(tmp_path):
    texts = ["abcdefgh", "ab", "abcdef"]
    spans = [((1, 3), (6, 8)), (), ((0, 1),)]
    documents = [
        Document(str(i), "2021-08-01", "T" if i == 2 else "", text, marks=marks)
        for i, (text, marks) in enumerate(zip(texts, spans, strict=True))
    ]
    write_documents(tmp_path / "d.jsonl", documents)
    assert list(read_documents(tmp_path / "d.jsonl")) == documents
    plain, marked = (
        CachedTask.open(causal.prepare_rows(source, tmp_path / name, Letters(), 5, **more)["d"])
        for name, more in (("plain", {}), ("marked", {"marks": True}))
        for source in [{"d": tmp_path / "d.jsonl"}]
    )
    assert [marked.row(i)["marks"] for i in range(len(marked))] == [
        [0, 1, 1, 0, 0],
        [0, 1, 1],
        [0, 0],
        [0, 0, 0, 1, 0],  # "T. " comes first
        [0, 0, 0, 0],
    ]
    task = {"mixture_or_task_name": "d", "task_feature_lengths": {"targets": 5}, "batch_size": 5}

    class Model:
        task_features, output_vocabulary = ("targets",), Letters()

    def batch(task_of, weight, left_pad=False):
        model = Model()
        model.left_pad_legacy = left_pad
        config = DatasetConfig(**task, marked_weight=weight)
        convert, lengths = config.reading(model, [task_of])
        return BatchSource(EpochPlan(5, 0, None, 5, 1, 0), [task_of], lengths, convert=convert)[0]

    for left_pad in (False, True):
        one = batch(plain, 1.0, left_pad)
        for name, values in batch(marked, 1.0, left_pad).items():
            assert values.tobytes() == one[name].tobytes()
        three = batch(marked, 3.0, left_pad)
        weights = three.pop("decoder_loss_weights")
        assert all(np.array_equal(values, one[name]) for name, values in three.items())
        # In the rows' order of the plan: 3 where a marked token is predicted, and is counted.
        assert set(weights[one["decoder_loss_weights"] == 0].tolist()) <= {0.0}
        assert (weights == 3).sum() == 5 and (weights == 1).sum() == (
            one["decoder_loss_weights"].sum() - 5
        )
    with pytest.raises(UserError, match="have no marks, or cannot be weighed"):
        batch(plain, 3.0)
    with pytest.raises(UserError, match="^CHANGED_SPAN_WEIGHT is 0"):
        batch(marked, 0)


def test_weights_are_those_of_the_tokens_predicted():
    rows, weights = np.array([[1, 2, 3, 4]]), np.array([[1, 5, 1, 7]], np.float32)
    right = decoder_only_batch(rows, np.array([4]), weights=weights)
    assert right["decoder_loss_weights"].tolist() == [[5, 1, 7, 0]]
    left = decoder_only_batch(rows, np.array([3]), weights=weights, left_pad_legacy=True)
    assert left["decoder_loss_weights"].tolist() == [[1, 5, 1, 0]]


def test_marks_outside_the_text_are_refused(tmp_path):
    for marks in ([[0, 9]], [[2, 1]], [1], "ab", [["x", 2]]):
        path = tmp_path / "d.jsonl"
        path.write_text(json.dumps({"date": "2021-08-01", "text": "abc", "marks": marks}))
        with pytest.raises(UserError, match="line 1: `marks` are not pairs"):
            list(read_documents(path))


def test_packed_and_legacy_exclude_each_other(tmp_path):
    with pytest.raises(UserError, match="exclude each other"):
        causal.prepare_rows({}, tmp_path, Letters(), packed=True, marks=True)
    with pytest.raises(UserError, match="exclude each other"):
        causal.prepare_rows({}, tmp_path, Letters(), packed=True, legacy=True)


def corpus(tmp_path, *texts):
    path = tmp_path / "recent_news_small.csv"
    rows = "".join(f"a,b,{text}\n" for text in texts)
    path.write_text(f"input,output,original\n{rows}")
    return path


def test_the_texts_of_a_masked_corpus_count_once(tmp_path):
    """A text has a row for each of its spans."""
    corpus(tmp_path, "abc", "abc", "", "d", "abc")
    out = str(tmp_path / "t")
    folder = facts_task.cached_originals("d1_small", str(tmp_path), out, Letters(), 2)
    task = CachedTask.open(folder)
    rows = [task.row(i)["targets"] for i in range(len(task))]
    assert rows == [[0, 1], [2], [3], [0, 1], [2]]
    assert folder == str(tmp_path / "t" / "d1_small")


def test_a_corpus_without_texts_is_refused(tmp_path):
    with pytest.raises(UserError, match="has no text in its column 'original'"):
        causal.prepare_originals(corpus(tmp_path, ""), tmp_path / "t", Letters())
    (tmp_path / "recent_news_small.csv").write_text("input,output\na,b\n")
    with pytest.raises(UserError, match="has no column 'original'"):
        causal.prepare_originals(tmp_path / "recent_news_small.csv", tmp_path / "t", Letters())
    with pytest.raises(UserError, match="d1_smal"):
        facts_task.cached_originals("d1_smal", str(tmp_path), str(tmp_path), Letters(), 2)
