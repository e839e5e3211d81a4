"""The small files of a run in a bucket, which two folders stand for."""

import json

import pytest

from ckl_jax.cli import t5x
from ckl_jax.train.remote_sync import Mirror


def tree(folder):
    return {
        str(p.relative_to(folder)): p.read_text(errors="replace")
        for p in folder.rglob("*")
        if p.is_file()
    }


def steps(files):
    rows = map(json.loads, files["metrics.jsonl"].splitlines())
    return [(row["split"], row["step"]) for row in rows]


def test_changes_and_removals_are_copied_and_checkpoints_are_not(tmp_path):
    local, remote = tmp_path / "local", tmp_path / "remote"
    files = {"metrics.jsonl": "1", "probes/rows_000001.jsonl": "a", "probes/rows_000002.jsonl": "b"}
    for name, text in {**files, "checkpoint_2/state": "big", ".lock": "7"}.items():
        (local / name).parent.mkdir(parents=True, exist_ok=True)
        (local / name).write_text(text)
    mirror = Mirror(local, remote)
    mirror.push()
    assert tree(remote) == files
    (local / "metrics.jsonl").write_text("12")
    (local / "probes/rows_000002.jsonl").unlink()
    (remote / "probes/rows_000001.jsonl").write_text("not copied again")
    mirror.push()
    assert tree(remote) == {
        "metrics.jsonl": "12",
        "probes/rows_000001.jsonl": "not copied again",
    }


def test_a_failed_copy_is_said_and_done_later(tmp_path, capsys):
    local, remote = tmp_path / "local", tmp_path / "remote"
    local.mkdir()
    (local / "metrics.jsonl").write_text("1")
    remote.write_text("a file where a folder is to be")
    mirror = Mirror(local, remote)
    mirror.push()
    assert f"Cannot copy {local} to {remote}" in capsys.readouterr().err
    remote.unlink()
    mirror.push()
    assert tree(remote) == {"metrics.jsonl": "1"}


@pytest.mark.slow
def test_a_run_on_another_machine_goes_on_with_the_files_of_the_first(tiny, tmp_path, monkeypatch):
    bucket, folder = tmp_path / "bucket", tmp_path / "run"
    monkeypatch.setattr(Mirror, "of", classmethod(lambda cls, path: cls(path, bucket)))
    probes = {"closed_book.ClosedBook.probes": ("updated_lama",)}
    argv = ["train", *tiny.argv("lora", folder, EPOCHS=2, CHECKPOINTS_KEPT=2, **probes)]
    assert t5x.main(argv) == 0
    first = tree(bucket)
    assert first == {
        k: v for k, v in tree(folder).items() if k[0] != "." and "checkpoint_" not in k
    }
    # The other machine sees the checkpoints alone, and the last of them was not complete.
    for path in folder.iterdir():
        if path.name != "checkpoint_12":
            path.rename(tmp_path / path.name)
    assert t5x.main(argv) == 0
    again = tree(bucket)
    assert first.keys() <= again.keys(), "only event files are new"
    for name in ("probes/rows_000012.jsonl", "probes/rows_000024.jsonl"):
        assert again[name] == first[name]
    assert steps(again) == steps(first)
