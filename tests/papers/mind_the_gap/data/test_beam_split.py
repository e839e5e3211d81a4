"""Splitting as a Beam pipeline gives what it gives without."""

import gzip
import json

import pytest

pytest.importorskip("apache_beam", reason="needs the extra 'beam'")

from ckl_jax.cli.ckl import main
from ckl_jax.data.text.documents import Document, canonical_key, read_documents, write_documents
from ckl_jax.papers.mind_the_gap.data import beam_split, split_files
from ckl_jax.papers.mind_the_gap.data.time_splits import NAMES, Options

pytestmark = pytest.mark.slow


def _corpus(path, count=900):
    days = [(i * 7919) % (6 * 360) for i in range(count)]
    documents = [
        Document(
            f"d{i}",
            f"{2012 + d // 360}-{d % 360 // 30 + 1:02d}-{d % 30 % 28 + 1:02d}",
            "",
            f"word {i} " * (1 + i % 5),
        )
        for i, d in enumerate(days)
    ]
    documents.sort(key=canonical_key)
    write_documents(path, documents)
    return documents


def _lines(*paths):
    return [line for path in paths for line in gzip.open(path).read().splitlines()]


@pytest.mark.parametrize("variant", split_files.VARIANTS)
def test_the_same_splits(tmp_path, variant):
    documents = _corpus(tmp_path / "all.jsonl")
    halves = [tmp_path / "0.jsonl.gz", tmp_path / "1.jsonl"]
    for i, half in enumerate(halves):
        write_documents(half, documents[i::2])
    options = Options(test_period=1, per_month=2, seed=3)
    wanted = split_files.split(tmp_path / "all.jsonl", tmp_path / "x", options, variant, 2)
    found = beam_split.split_with_beam(
        halves, tmp_path / "beam", options, variant, 2, part_bytes=2000
    )
    assert found == wanted
    folders = [path.parent for path in (tmp_path / "x").rglob("*.jsonl.gz")]
    assert len(folders) >= len(NAMES)
    for path in (tmp_path / "x").rglob("*.jsonl.gz"):
        folder = tmp_path / "beam" / path.relative_to(tmp_path / "x").parent
        months = sorted((folder / path.name.split(".")[0]).glob("*.jsonl.gz"))
        assert _lines(*months) == _lines(path)
    assert not list((tmp_path / "beam").glob(".*"))


def test_bad_input_is_one_sentence(tmp_path, capsys):
    twice = [*_corpus(tmp_path / "all.jsonl"), Document("d7", "2012-01-01", "", "again")]
    write_documents(tmp_path / "twice.jsonl", twice)
    (tmp_path / "bad.jsonl").write_text(json.dumps({"id": "a", "text": "no date"}) + "\n")
    (tmp_path / "none.jsonl").write_text("")
    for name, message in (
        ("twice", "Two documents"),
        ("bad", "line 1: the field 'date'"),
        ("none", "There are no documents in"),
    ):
        command = ["data", "split", "--documents", str(tmp_path / f"{name}.jsonl"), "--beam", ""]
        assert main([*command, "--out", str(tmp_path / "out")]) == 2
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert error.startswith("ckl: ") and message in error
        assert not list((tmp_path / "out").iterdir())


def test_files_can_be_joined(tmp_path):
    documents = _corpus(tmp_path / "all.jsonl")
    beam_split.split_with_beam(
        [tmp_path / "all.jsonl"], tmp_path / "beam", Options(test_period=1, per_month=2)
    )
    joined = tmp_path / "test.jsonl.gz"
    months = sorted((tmp_path / "beam" / "test").iterdir())
    joined.write_bytes(b"".join(path.read_bytes() for path in months))
    found = list(read_documents(joined))
    assert len(found) == 24 and set(found) <= set(documents)
