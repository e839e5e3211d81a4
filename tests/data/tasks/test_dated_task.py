"""Dated documents as a cached task: words are kept apart, whatever they are made of."""

import json

import pytest

from ckl_jax.cli.ckl import main
from ckl_jax.data.tasks.dated_task import (
    SIDE_FILE,
    DatedTask,
    WordEncoder,
    in_canonical_order,
    prepare_dated,
)
from ckl_jax.data.text.byte_level import ByteLevelVocabulary, open_vocabulary
from ckl_jax.data.text.documents import Document, canonical_key, write_documents
from ckl_jax.data.text.vocabularies import Vocabulary, train_vocabulary
from ckl_jax.errors import UserError
from ckl_jax.papers.mind_the_gap.data.dated_vocabulary import DatedVocabulary, sampled_lines
from tests.llama_tokenizer import train_tokenizer
from tests.real_data import shared_data

LINES = [f"Anna Brel , {n} , was n't born in {c} ." for c in ("Oslo", "Lima") for n in range(40)]
# What makes the count of word boundaries in a whole sentence wrong; and what is spelled as an end.
ODD = [
    "\u00b4 x",
    "\u00bd \ufb01ne",
    "\u2581 a \u2581\u2581",
    "\u200b z",
    "\U0001f984 ok",
    "</s> <s> <unk>",
    "<extra_id_0> x<extra_id_1>y",
    "a\x00b c",
    "\ufeff \ufdfa",
    "e\u0301 \u0301",
    "<|endoftext|> a<|endoftext|>b",
    "0000000 ------ \u3000 x",
    "\u4e2d\u6587 \u0f0b",
    "",
]


def documents():
    texts = ["Anna Brel was born in Oslo .\nShe \u2581 left \u00bd .", "Lima , 7 ."]
    rows = [("2018-02-01", "b", texts[0]), ("2018-02-01", "a", texts[1]), ("2017-12-31", "z", "7")]
    return [Document(id, date, "", text) for date, id, text in rows]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    folder = tmp_path_factory.mktemp("v")
    return train_vocabulary(LINES, folder / "v.model", 330, byte_fallback=True)


@pytest.mark.parametrize("kind", ("unigram", "bpe"))
@pytest.mark.parametrize("normalizer", ("identity", "nmt_nfkc"))
def test_every_word_has_its_tokens(tmp_path, kind, normalizer):
    made = train_vocabulary(
        LINES, tmp_path / "v.model", 320, model_type=kind, byte_fallback=True, normalizer=normalizer
    )
    _check_words(made)
    for text in LINES[:5]:  # whole sentences of known characters give the same tokens
        [encoded] = WordEncoder(made)([text])
        assert encoded.tokens == made.encode(text)


def test_every_word_has_its_tokens_in_other_vocabularies(tmp_path):
    _check_words(train_vocabulary(LINES, tmp_path / "t5.model", 60))  # no bytes, with sentinels
    folder = shared_data("tokenizers", "gpt2")
    gpt2 = ByteLevelVocabulary(folder)
    _check_words(gpt2)
    [encoded] = WordEncoder(gpt2)(["Anna Brel left Oslo ."])
    assert encoded.tokens == gpt2.encode(" Anna Brel left Oslo .")


def _check_words(vocabulary):
    for text, encoded in zip(ODD, WordEncoder(vocabulary)(ODD), strict=True):
        assert len(encoded.counts) == len(text.split())
        assert all(count >= 1 for count in encoded.counts)
        assert sum(encoded.counts) == len(encoded.tokens)
        assert vocabulary.eos_id not in encoded.tokens


def test_the_blank_before_a_word_is_put_once(tmp_path):
    pytest.importorskip("tokenizers")
    train_tokenizer(tmp_path, doubled=True)
    vocabulary = open_vocabulary(tmp_path)
    (encoded,) = WordEncoder(vocabulary)(["Rome is a city"])
    assert list(encoded.tokens) == vocabulary.encode("Rome is a city")


def test_a_bounded_memory_of_words_changes_nothing(vocabulary):
    texts = LINES + ODD
    encode = WordEncoder(vocabulary, kept_words=3)
    assert [encode([t])[0] for t in texts] == WordEncoder(vocabulary)(texts)


def test_a_word_of_too_many_tokens_is_refused(vocabulary):
    with pytest.raises(UserError, match="A word of 70,000 characters"):
        WordEncoder(vocabulary)(["\u4e2d" * 70_000])


def test_vocabularies_of_running_text_have_no_sentinels(vocabulary):
    again = Vocabulary(vocabulary.path)
    assert again.extra_ids == 0 and again.digest == vocabulary.digest
    assert vocabulary.vocab_size == 330
    assert Vocabulary(vocabulary.path, extra_ids=100).extra_ids == 100
    with pytest.raises(UserError, match="no sentinels"):
        Vocabulary(vocabulary.path, extra_ids=0)
    ids = vocabulary.encode("\u4e2d\u6587")
    assert vocabulary.unk_id not in ids and vocabulary.decode(ids) == "\u4e2d\u6587"


def test_rows_are_in_the_order_of_the_stream(tmp_path, vocabulary):
    empty = Document("e", "2018-01-01", "", " \n")
    task = prepare_dated([*documents(), empty], tmp_path, vocabulary)
    side = list(task.documents())
    assert [d["id"] for d in side] == ["z", "a", "b"]
    assert list(task.documents(start=1)) == side[1:]
    for i, document in enumerate(side):
        row = task.task.row(i)
        assert len(row["tokens_per_word"]) == len(document["text"].split())
        assert sum(row["tokens_per_word"]) == len(row["targets"])
    assert task.words == sum(len(d["text"].split()) for d in side)
    assert DatedTask.open(tmp_path).tokens == task.tokens


def test_sorting_goes_through_files_where_memory_is_short():
    wanted = sorted(documents(), key=canonical_key)
    assert list(in_canonical_order(documents(), run_characters=1)) == wanted
    assert list(in_canonical_order(iter(documents()))) == wanted
    assert list(in_canonical_order([])) == []


def test_canonical_keys_are_the_published_ones():
    # The date down to microseconds, the id, nothing; \0\1 between them.
    document = Document("0f" * 32, "2019-07-04", "", "x")
    assert canonical_key(document) == "20190704000000000000\x00\x01" + "0f" * 32 + "\x00\x01"


def test_a_task_is_made_once_and_not_of_other_text(tmp_path, vocabulary):
    file, folder = tmp_path / "x.jsonl.gz", tmp_path / "task"
    write_documents(file, documents())
    prepare_dated(file, folder, vocabulary)
    before = (folder / "manifest.json").stat().st_mtime_ns
    prepare_dated(file, folder, vocabulary)
    assert (folder / "manifest.json").stat().st_mtime_ns == before
    write_documents(file, documents()[:1])
    with pytest.raises(UserError, match="made with other corpora"):
        prepare_dated(file, folder, vocabulary)
    assert len(prepare_dated(file, folder, vocabulary, replace=True)) == 1


def test_a_damaged_task_is_made_again_and_what_is_none_stays(tmp_path, vocabulary):
    file, folder = tmp_path / SIDE_FILE, tmp_path / "task"
    write_documents(file, documents())
    whole = prepare_dated(file, folder, vocabulary).task.manifest
    (folder / "manifest.json").write_text("{")
    assert prepare_dated(file, folder, vocabulary).task.manifest == whole
    (folder / "manifest.json").unlink()  # as a kill leaves it
    assert prepare_dated(file, folder, vocabulary).task.manifest == whole
    before = file.read_bytes()
    with pytest.raises(UserError, match="is read and would be written over"):
        prepare_dated(file, tmp_path, vocabulary, replace=True)
    with pytest.raises(UserError, match="holds something that is not a cached task"):
        prepare_dated(folder / SIDE_FILE, tmp_path, vocabulary)
    assert file.read_bytes() == before


def test_two_documents_of_one_id_are_refused(tmp_path, vocabulary):
    with pytest.raises(UserError, match="of 2017-12-31 have the id 'z'"):
        prepare_dated(documents() + documents()[2:], tmp_path / "task", vocabulary)


def test_what_fails_leaves_what_was_there(tmp_path, vocabulary):
    folder = tmp_path / "task"
    for bad in ([], documents() + documents()[2:]):
        with pytest.raises(UserError):
            prepare_dated(bad, folder, vocabulary)
        assert not folder.exists()
    prepare_dated(documents(), folder, vocabulary)
    for bad in ([], documents() + documents()[2:]):
        with pytest.raises(UserError):
            prepare_dated(bad, folder, vocabulary)
        assert len(DatedTask.open(folder)) == len(list(DatedTask.open(folder).documents())) == 3


def test_a_vocabulary_is_trained_on_a_part_of_all_dates(tmp_path):
    file = tmp_path / "x.jsonl"
    dated = [Document(str(i), f"20{i // 10:02d}-01-01", "", f"w{i} " * 20) for i in range(200)]
    write_documents(file, dated)
    lines = list(sampled_lines(file, 4000, seed=1))
    assert lines == list(sampled_lines(file, 4000, seed=1))
    assert 20 <= len(lines) <= 80 and lines[0] < "w50" and int(lines[-1].split()[0][1:]) > 150
    assert DatedVocabulary(size=320).train(file, tmp_path / "v.model").vocab_size <= 320


def test_the_commands(tmp_path, capsys):
    file = tmp_path / "x.jsonl"
    write_documents(file, documents() + [Document("q", "2016-01-01", "", "\n".join(LINES))])
    model, folder = str(tmp_path / "v.model"), str(tmp_path / "task")
    made = ["data", "vocabulary", "--documents", str(file), "--out", model, "--vocab-size", "320"]
    assert main(made) == 0
    made = ["data", "dated", "--documents", str(file), "--vocabulary", model, "--out", folder]
    assert main(made) == 0
    assert "4  documents" in capsys.readouterr().out
    assert json.loads((tmp_path / "task" / "documents.jsonl").open().readline())["id"] == "q"
    command = [
        "data",
        "vocabulary",
        "--documents",
        str(file),
        "--out",
        model,
        "--type",
        "wordpiece",
        "--overwrite",
    ]
    assert main(command) == 2
    assert "model_type is 'wordpiece'" in capsys.readouterr().err
