import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckl_jax.data.tasks import cached
from ckl_jax.data.tasks.cached import CachedTask, find_task, read_manifest, write_cached
from ckl_jax.data.tasks.converters import encoder_decoder_batch, pad_rows
from ckl_jax.data.tasks.epochs import EpochPlan, Mixture
from ckl_jax.data.tasks.pipeline import BatchSource, iterate
from ckl_jax.errors import UserError

ids = st.lists(st.integers(2, 60_000), max_size=12)


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.tuples(ids, ids, st.booleans()), min_size=1, max_size=20), data=st.data())
def test_a_batch_is_what_padding_each_row_gives(tmp_path_factory, rows, data):
    directory = tmp_path_factory.mktemp("cache") / "task"
    examples = [{"inputs": a + [1] * eos, "targets": b + [1]} for a, b, eos in rows]
    write_cached(directory, examples)
    task = CachedTask.open(directory)
    assert len(task) == len(rows)
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=8))
    lengths = {"inputs": data.draw(st.integers(1, 15)), "targets": 5}
    batch = task.batch(np.array(chosen, np.int64), lengths)
    for name, length in lengths.items():
        expected = pad_rows([examples[i][name] for i in chosen], length)
        assert batch[name].dtype == np.int32
        np.testing.assert_array_equal(batch[name], expected)
    assert all(task.row(i) == examples[i] for i in chosen)


def test_large_vocabularies_take_four_bytes(tmp_path):
    write_cached(tmp_path / "t", [{"inputs": [250_000, 1], "targets": [1]}], vocab_size=256_000)
    task = CachedTask.open(tmp_path / "t")
    assert task.manifest["features"]["inputs"]["dtype"] == "<u4"
    assert task.batch(np.array([0]), {"inputs": 3})["inputs"].tolist() == [[250_000, 1, 0]]


def test_an_id_outside_the_vocabulary_is_refused(tmp_path):
    with pytest.raises(ValueError, match="does not fit"):
        write_cached(tmp_path / "t", [{"inputs": [70_000], "targets": [1]}], vocab_size=1000)
    assert not (tmp_path / "t").exists() and list(tmp_path.iterdir()) == []


def _write(directory, rows=5):
    return write_cached(
        directory, ({"inputs": [5, i + 2, 1], "targets": [i + 2, 1]} for i in range(rows))
    )


def test_a_truncated_file_is_refused(tmp_path):
    _write(tmp_path / "t")
    path = tmp_path / "t" / "inputs.tokens"
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(UserError, match="inputs.tokens has 28 bytes where its manifest says 30"):
        CachedTask.open(tmp_path / "t")


def test_a_changed_file_is_found_by_its_hash(tmp_path, monkeypatch):
    _write(tmp_path / "t")
    for kind in ("tokens", "offsets"):
        path = tmp_path / "t" / f"targets.{kind}"
        path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
        with pytest.raises(UserError, match=f"targets.{kind} differs from the hash"):
            CachedTask.open(tmp_path / "t")
        monkeypatch.setattr(cached, "_HASHED_BYTES", 1)  # of tokens alone, if they are many


def test_an_interrupted_write_leaves_the_old_task_or_none(tmp_path):
    def broken():
        yield {"inputs": [1], "targets": [1]}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_cached(tmp_path / "t", broken())
    assert read_manifest(tmp_path / "t") is None
    with pytest.raises(UserError, match="no complete cached task"):
        CachedTask.open(tmp_path / "t")
    _write(tmp_path / "t", rows=3)
    with pytest.raises(KeyboardInterrupt):
        write_cached(tmp_path / "t", broken())
    assert len(CachedTask.open(tmp_path / "t")) == 3
    assert [p.name for p in tmp_path.iterdir()] == ["t"]


def test_an_empty_task_and_a_foreign_manifest_are_refused(tmp_path):
    with pytest.raises(UserError, match="its corpus is empty, or the vocabulary makes no tok"):
        write_cached(tmp_path / "t", [])
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "manifest.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(UserError, match="not a manifest of format 1"):
        CachedTask.open(tmp_path / "t")


# --- batches


def _source(tmp_path, **kwargs):
    for name, rows in (("main", 21), ("old", 150)):
        if not (tmp_path / name).exists():
            _write(tmp_path / name, rows)
    tasks = [CachedTask.open(tmp_path / n) for n in ("main", "old")]
    plan = EpochPlan(21, 150, Mixture(), batch_size=8, epochs=2, seed=3)
    return BatchSource(plan, tasks, {"inputs": 4, "targets": 3}, **kwargs)


def test_batches_hold_the_planned_rows(tmp_path):
    source = _source(tmp_path)
    for step in range(len(source)):
        which, index, valid = source.plan.rows(step)
        batch = source[step]
        expected = np.where(valid, index + 2, 0)
        np.testing.assert_array_equal(batch["encoder_input_tokens"][:, 1], expected)
        np.testing.assert_array_equal(batch["decoder_target_tokens"][:, 0], expected)
        np.testing.assert_array_equal(batch["decoder_loss_weights"].sum(1), 2 * valid)


@pytest.mark.parametrize("count", [2, 4])
def test_the_processes_share_the_batch(tmp_path, count):
    whole = _source(tmp_path)
    parts = [_source(tmp_path, rows=rows) for rows in np.split(np.arange(8), count)]
    for step in (0, 5, len(whole) - 1):
        for name, array in whole[step].items():
            joined = np.concatenate([part[step][name] for part in parts])
            np.testing.assert_array_equal(array, joined)


def test_wrong_corpora_are_refused(tmp_path):
    source = _source(tmp_path)
    with pytest.raises(UserError, match="corpus 'replay' has 150 rows and the cached task 0"):
        BatchSource(source.plan, source.tasks[:1], source.lengths)


@pytest.mark.parametrize("threads", [0, 2])
def test_resuming_gives_the_batches_of_an_uninterrupted_run(tmp_path, threads):
    source = _source(tmp_path)
    uninterrupted = list(iterate(source, threads=threads))
    assert len(uninterrupted) == len(source)
    resumed = list(iterate(source, 7, threads=threads))
    assert len(resumed) == len(source) - 7
    for a, b in zip(uninterrupted[7:], resumed, strict=True):
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])
    assert list(iterate(source, len(source), threads=threads)) == []


def test_decoder_inputs_are_the_targets_behind_a_start():
    batch = encoder_decoder_batch(
        np.array([[7, 1, 0], [8, 1, 0]]), np.array([[5, 6, 1, 0], [9, 1, 0, 0]]), np.array([1, 0])
    )
    assert batch["decoder_input_tokens"].tolist() == [[0, 5, 6, 1], [0, 9, 1, 0]]
    assert batch["decoder_loss_weights"].tolist() == [[1, 1, 1, 0], [0, 0, 0, 0]]
    assert {a.dtype.name for a in batch.values()} == {"int32", "float32"}


def test_a_folder_beside_does_not_stand_for_a_task(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"inputs": [1], "targets": [1]}]
    for folder in ("d1", "tasks/d1", "alone"):
        write_cached(tmp_path / folder, rows)
    assert find_task("d1", ["tasks"]) == Path("tasks/d1")
    assert find_task("d1", []) == find_task(str(Path("d1")), ["elsewhere"]) == Path("d1")
    assert find_task(str(tmp_path / "alone"), ["tasks"]) == tmp_path / "alone"
    for name, roots in ((b"d1", ["tasks"]), ("d1", "tasks"), ("d1", [b"tasks"])):
        with pytest.raises(UserError, match="CACHE_DIRS|name of a task"):
            find_task(name, roots)
    assert find_task("nothing", ["tasks"]) is None


def test_a_manifest_of_something_else_is_refused(tmp_path):
    (tmp_path / "manifest.json").write_text('{"format": 1, "facts": 3}')
    with pytest.raises(UserError, match="is not the manifest of a cached task"):
        CachedTask.open(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *itertools.product(("rows",), (4, 2, -1, "3", None, 10**30)),
        *itertools.product(("eos_id",), (None, "1", [1], -1, 10**30, 10**9)),
        ("meta", []),
        ("meta", {"vocabulary_digest": 3}),
        ("meta", {"vocabulary_digest": ["a"]}),
        ("meta", {"legacy_spacing": "no"}),
        ("meta", {"lengths": {"inputs": "9"}}),
        ("dtype", "<f4"),
        ("dtype", "x"),
        ("bytes", 3),
    ],
)
def test_a_damaged_manifest_is_named(tmp_path, field, value):
    manifest = write_cached(tmp_path, [{"inputs": [5, 1], "targets": [6, 1]}] * 3)
    (manifest if field in manifest else manifest["features"]["inputs"])[field] = value
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    said = r"manifest.json(, 'meta')?: (the field|a dtype is) .*; delete"
    with pytest.raises(UserError, match=said):
        CachedTask.open(tmp_path)
