"""Dumps of word losses: what is written comes back, and a stopped run goes on."""

import numpy as np
import pytest

from ckl_jax.data.tasks.word_losses import DumpWriter, WordLosses, read_about, read_dump
from ckl_jax.errors import UserError


def _document(i: int, date: str) -> WordLosses:
    words = [f"wort{i}", "ä b".replace(" ", "\u00a0"), "."][: 1 + i % 3]
    n = len(words)
    return WordLosses(
        f"id{i}",
        date,
        words,
        np.arange(n, dtype=np.float32) + i,
        np.full(n, 2, np.int32),
        np.zeros(n, np.int32),
    )


_STREAM = [_document(i, f"2019-0{1 + i // 4}-1{i % 4}") for i in range(10)]


def _write(folder, documents, **kwargs):
    writer = DumpWriter(folder, {"model": "m"}, **kwargs)
    for document in documents:
        writer.add(document)
    writer.flush()


def test_what_is_written_comes_back_by_month(tmp_path):
    _write(tmp_path, _STREAM, most=3)
    shards = list(read_dump(tmp_path))
    assert [(s.month, len(s)) for s in shards] == [
        ("2019-01", 3),
        ("2019-01", 1),
        ("2019-02", 3),
        ("2019-02", 1),
        ("2019-03", 2),
    ]
    for found, given in zip((d for s in shards for d in s.documents()), _STREAM, strict=True):
        assert (found.id, found.date, list(found.words)) == (given.id, given.date, given.words)
        np.testing.assert_array_equal(found.nll, given.nll)
        np.testing.assert_array_equal(found.first_token, 2 * np.arange(len(given.words)))
    assert read_about(tmp_path)["model"] == "m"


def test_a_stopped_run_goes_on_behind_what_it_kept(tmp_path):
    _write(tmp_path / "a", _STREAM)
    _write(tmp_path / "b", _STREAM[:7], most=2)  # documents 6 .. are lost
    _write(tmp_path / "b", _STREAM[6:], resume_at=6)
    a, b = (
        [(d.id, d.nll.tolist()) for s in read_dump(tmp_path / x) for d in s.documents()]
        for x in "ab"
    )
    assert a == b
    with pytest.raises(UserError, match="other settings .model"):
        DumpWriter(tmp_path / "b", {"model": "n"}, resume_at=10)


@pytest.mark.parametrize("theirs", ["mine", '{"format": "mine"}', "[]"])
def test_a_file_of_others_in_place_of_the_record_stays(theirs, tmp_path):
    (tmp_path / "dump.json").write_text(theirs)
    with pytest.raises(UserError, match="dump.json.* It is kept: choose another folder"):
        DumpWriter(tmp_path, {"model": "m"})
    assert (tmp_path / "dump.json").read_text() == theirs


def test_a_gap_and_damage_are_found(tmp_path):
    with pytest.raises(UserError, match="holds no dump"):
        next(read_dump(tmp_path))
    _write(tmp_path, _STREAM, most=2)
    paths = sorted(tmp_path.glob("*.npz"))
    content = paths[1].read_bytes()
    paths[1].unlink()
    with pytest.raises(UserError, match="lacks the documents 2 to 3"):
        list(read_dump(tmp_path))
    paths[1].write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match="damaged"):
        list(read_dump(tmp_path))


@pytest.mark.parametrize(
    "name, change",
    [
        ("ends", lambda x: x.astype(float)),
        ("ends", lambda x: x[:0]),
        ("ends", lambda x: x[::-1]),
        ("nll", lambda x: x.astype(str)),
        ("tokens", lambda x: x[1:]),
        ("tokens", lambda x: x - 9),
        ("dates", lambda x: np.full_like(x, "x")),
        ("dates", lambda x: np.full_like(x, "2020-01-01")),
        ("dates", lambda x: np.full_like(x, "2019-01-41")),
    ],
)
def test_arrays_of_another_kind_are_damage(name, change, tmp_path):
    _write(tmp_path, _STREAM[:4])
    (path,) = tmp_path.glob("*.npz")
    arrays = dict(np.load(path))
    np.savez(path, **arrays | {name: change(arrays[name])})
    with pytest.raises(UserError, match="is damaged"):
        list(read_dump(tmp_path))
