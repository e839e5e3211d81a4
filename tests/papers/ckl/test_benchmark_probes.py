"""Probes that `ckl data benchmark` built and a review changed are asked of a model in training."""

import collections

import pytest

pytest.importorskip("sentencex", reason="needs the extra `data`")

from ckl_jax.cli import ckl, t5x
from ckl_jax.files import read_json, read_jsonl, write_json
from ckl_jax.papers.ckl.data.benchmark import PROBES
from ckl_jax.papers.ckl.data.review import read_reviewable


@pytest.mark.slow
def test_a_model_is_asked_what_was_built_and_reviewed(tiny, tmp_path):
    world, built, reviewed = tiny.probes, tmp_path / "built", tmp_path / "reviewed"
    corpora = [str(world / f"documents_{side}.jsonl") for side in ("d0", "d1")]
    argv = ["data", "benchmark", "--facts", str(world / "facts.jsonl"), "--documents", *corpora]
    dates = ["--dates", "2020-04-30", "2021-04-30", "--templates", str(world / "relations.jsonl")]
    assert ckl.main([*argv, *dates, "--out", str(built)]) == 0
    edit = {"action": "edit", "answers": ["nobody"]}
    write_json(
        tmp_path / "decisions.json",
        {
            "format": "ckl-review-1",
            "benchmark": read_reviewable(built).digest,
            "decisions": {"new_lama/0": {"action": "drop"}, "new_lama/1": edit},
        },
    )
    argv = ["data", "review", str(built), "--apply", str(tmp_path / "decisions.json")]
    assert ckl.main([*argv, "--out", str(reviewed)]) == 0

    run = tmp_path / "run"
    four = {"closed_book.ClosedBook.probes": PROBES}
    argv = tiny.argv("vanilla", run, PROBE_DIR=str(reviewed), EPOCHS=1, **four)
    assert t5x.main(["train", *argv]) == 0
    rows = list(read_jsonl(max((run / "probes").glob("rows_*.jsonl"))))
    rows = [row for row in rows if "predictions" in row]
    items = read_json(built / "manifest.json")["items"]
    asked = collections.Counter(row["probe"] for row in rows)
    assert asked == items | {"new_lama": items["new_lama"] - 1}
    (row,) = [row for row in rows if (row["probe"], row["item"]) == ("new_lama", "1")]
    assert row["answers"] == ["nobody"]
