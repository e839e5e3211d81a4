"""Cleaning as a Beam pipeline gives what it gives without."""

import random

import pytest

pytest.importorskip("apache_beam", reason="needs the extra 'beam'")

from ckl_jax.cli.ckl import main
from ckl_jax.data.text.documents import read_documents
from ckl_jax.papers.mind_the_gap.data import beam_clean
from ckl_jax.papers.mind_the_gap.data.clean import Options, clean
from tests.papers.mind_the_gap.data.test_clean import GERMAN, many, write_jsonl

pytestmark = pytest.mark.slow


def test_the_same_documents(tmp_path):
    rows = list(many(300))
    rng = random.Random(1)
    for i in range(0, 300, 10):  # copies, of which some are earlier
        text = rows[i]["text"].replace("planet", "planets", 1)
        rows.append({"id": f"copy{i}", "date": rows[rng.randrange(300)]["date"], "text": text})
    rows.append({"id": "d7", "date": "2018-01-01", "text": "Another text of the same id is here."})
    rows.append({"id": "de", "date": "2018-01-01", "text": GERMAN})
    rng.shuffle(rows)
    half = [write_jsonl(tmp_path / f"{i}.jsonl", rows[i::2]) for i in range(2)]
    options = Options(shard_bytes=9000)
    wanted = clean(half, tmp_path / "x.jsonl", options)
    report = beam_clean.clean_with_beam(half, tmp_path / "beam", options)
    files = sorted((tmp_path / "beam").glob("*.jsonl.gz"))
    found = [document for path in files for document in read_documents(path)]
    assert found == list(read_documents(tmp_path / "x.jsonl"))
    counts = wanted["documents"]
    assert counts.pop("near-duplicates") > 10
    assert report["documents"] == counts and report["backends"] == wanted["backends"]


def test_bad_input_is_one_sentence(tmp_path, capsys):
    file = write_jsonl(tmp_path / "x.jsonl", [{"id": "a", "text": "no date"}])
    command = [
        "data",
        "clean",
        "--documents",
        str(file),
        "--out",
        str(tmp_path / "out"),
        "--beam",
        "",
    ]
    assert main(command) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("ckl: ") and "line 1: it has no 'date'" in error
    assert "while running" not in error
