"""KILT's files: what is read of a record, what is refused and where, and what lengths cut."""

import gzip
import json

import numpy as np
import pytest

from ckl_jax.data.facts.probe import Probe
from ckl_jax.data.tasks.cached import CachedTask
from ckl_jax.data.text.vocabularies import train_vocabulary
from ckl_jax.errors import UserError
from ckl_jax.papers.ckl.data import kilt
from ckl_jax.papers.ckl.kilt import KiltProbes
from ckl_jax.papers.ckl.kilt_task import cached_kilt
from tests.real_data import shared_data

GOOD = {
    "id": 7,
    "input": "Who\nwas  it?",
    "output": [
        {"answer": "Smith; Wesson", "provenance": [{"wikipedia_id": "1"}]},
        {"provenance": [{"wikipedia_id": "2"}]},
        {"answer": " Smith, Wesson & Co "},
        {"answer": "Smith; Wesson"},
        {"answer": ""},
    ],
}


def write(folder, *rows, name="nq", split="dev"):
    path = folder / kilt.file_name(name, split)
    path.write_text("".join(f"{r if isinstance(r, str) else json.dumps(r)}\n" for r in rows))
    return path


def test_answers_stay_whole_and_the_first_is_first(tmp_path):
    path = write(tmp_path, GOOD, "")
    (record,) = kilt.read_kilt(path)
    assert record.id == "7" and record.input == "Who was it?"
    assert record.answers == ("Smith; Wesson", "Smith, Wesson & Co")
    with gzip.open(f"{path}.gz", "wt") as f:
        f.write(path.read_text())
    path.unlink()
    assert kilt.read_dev(tmp_path, "nq") == [record]


def test_a_data_set_of_a_strangers_own_is_read_and_put(tmp_path):
    (tmp_path / "mine.jsonl").write_text(json.dumps(GOOD) + "\n")
    mine = kilt.KiltSet(name="mine", file="mine.jsonl", metric="accuracy", input_length=30)
    assert [record.id for record in kilt.read_dev(tmp_path, mine)] == ["7"]
    probes = KiltProbes(str(tmp_path), ("nq", mine), target_lengths={"mine": 7})
    assert probes.names == ("nq", "mine") and probes.lengths("mine") == (30, 7)
    assert mine.as_json()["columns"] == ["accuracy"]
    with pytest.raises(UserError, match="KiltSet.metric of 'x' is None; choose from accuracy"):
        KiltProbes(str(tmp_path), (Probe(name="x"),))


def test_the_published_fixture_is_read():
    records = list(kilt.read_kilt(shared_data("qa", "kilt-eval-fixtures", "gold1.jsonl")))
    assert [r.answers for r in records] == [("suicide",), ("suicide",), ("it was suicide",)]
    assert records[0].input == "In one word, how did Chen Yi-hsiung die?"
    with pytest.raises(UserError, match=r"gold2.jsonl, line 1, field 'input': None is not text"):
        list(kilt.read_kilt(shared_data("qa", "kilt-eval-fixtures", "gold2.jsonl")))


@pytest.mark.parametrize(
    "row, sentence",
    [
        ({k: GOOD[k] for k in ("id", "input")}, "the record has no 'output'"),
        (GOOD | {"output": {"answer": "x"}}, "field 'output': it must be a list"),
        (GOOD | {"output": ["x"]}, "field 'output': it must be a list"),
        (GOOD | {"output": [{"provenance": []}, {"answer": " "}]}, "the record has no answer"),
        (GOOD | {"output": [{"answer": 3}]}, "the answer 3 is not text"),
        (GOOD | {"input": " "}, "field 'input'"),
        (GOOD | {"id": None}, "no 'id'"),
        ([GOOD], "is a JSON object"),
        ("{", "not JSON"),
    ],
)
def test_a_bad_record_is_one_sentence_with_its_line(tmp_path, row, sentence):
    path = write(tmp_path, GOOD | {"id": "a"}, "", row)
    with pytest.raises(UserError, match=sentence) as told:
        list(kilt.read_kilt(path))
    assert str(told.value).startswith(f"{path}, line 3") and "\n" not in str(told.value)


def test_files_that_are_not_there_or_empty(tmp_path):
    for name, split, sentence in (
        ("nqq", "dev", "Did you mean 'nq'"),
        ("wned", "train", "fine-tune on aidayago2"),
        ("nq", "dev", "There is no .*nq-dev-kilt.jsonl; set KILT_DIR"),
    ):
        with pytest.raises(UserError, match=sentence):
            kilt.find_file(tmp_path, name, split)
    (tmp_path / "triviaqa-train_id-kilt.jsonl").write_text("{}")
    with pytest.raises(UserError, match="has no questions; KILT's scripts/get_triviaqa_input.py"):
        kilt.find_file(tmp_path, "triviaqa", "train")
    path = write(tmp_path)
    with pytest.raises(UserError, match="has no records"):
        list(kilt.read_kilt(path))
    write(tmp_path, GOOD, GOOD)
    with pytest.raises(UserError, match="line 2: the id '7' occurs twice"):
        kilt.read_dev(tmp_path, "nq")


def test_what_lengths_cut_is_counted_and_said(tmp_path, capsys):
    rows = [
        GOOD | {"id": str(i), "input": "b " * n, "output": [{"answer": "a " * m}, {"answer": "c"}]}
        for i, (n, m) in enumerate([(1, 1), (9, 1), (3, 4), (2, 9)])
    ]
    write(tmp_path, *rows, name="fever", split="train")
    vocabulary = train_vocabulary(["a b c a b c"] * 9, tmp_path / "v.model", size=110)
    sizes = [
        [len(vocabulary.encode(t)) + 1 for t in ("b " * n, "a " * m)]
        for n, m in [(1, 1), (9, 1), (3, 4), (2, 9)]
    ]
    lengths = {"inputs": 5, "targets": 5}
    out = tmp_path / "tasks"
    folder = cached_kilt("fever", str(tmp_path), str(out), vocabulary, lengths)
    task = CachedTask.open(folder)
    assert [len(task.row(i)["targets"]) for i in range(4)] == [t for _, t in sizes]
    expected = {"inputs": sum(i > 5 for i, _ in sizes), "targets": sum(t > 5 for _, t in sizes)}
    assert kilt.count_cut(task, lengths) == expected and min(expected.values()) > 0
    told = capsys.readouterr().err
    assert told.startswith("KILT fever, train: of 4 records") and told.count("\n") == 1
    assert kilt.cut_sentence(out / "fever") in told
    batch = task.batch(np.arange(4), lengths)
    assert (batch["targets"].max(axis=1) > 0).all() and batch["targets"][3, -1] == 1


def test_relations_that_are_trained_on_are_not_zero_shot(tmp_path, capsys):
    def record(i, relation):
        return GOOD | {"id": str(i), "input": f"Person {i} [SEP] {relation}"}

    name, vocabulary = (
        "structured_zeroshot",
        train_vocabulary(["Person [SEP] spouse birth place"] * 9, tmp_path / "v.model", size=110),
    )
    lengths = {"inputs": 99, "targets": 99}
    write(tmp_path, *(record(i, "place of birth") for i in range(4)), name=name, split="train")
    write(tmp_path, record(7, "spouse"), record(8, "place of death"), name=name)
    cached_kilt(name, str(tmp_path), str(tmp_path / "tasks"), vocabulary, lengths)
    assert capsys.readouterr().err == ""
    write(tmp_path, record(7, "spouse"), record(8, "place of birth"), name=name)
    cached_kilt(name, str(tmp_path), str(tmp_path / "tasks"), vocabulary, lengths)
    assert "1 of the dev file's 2 records ask a relation" in capsys.readouterr().err
