"""Compares results of ranking with those of lm-pub-quiz: scores, rows of the files, metadata."""

import json
import zipfile
from pathlib import Path

import numpy as np

from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults

GOLDEN = Path(__file__).parent / "golden"
_KNOWN = {"metric_values", "lm_pub_quiz_version", "time_start", "time_end", "dataset_path"}


def unpack(name, folder):
    with zipfile.ZipFile(GOLDEN / name) as archive:
        archive.extractall(folder)
    return folder


def assert_same(dataset, ours, written, theirs, atol=2e-4):
    """`ours` are results, `written` their folder, `theirs` a folder of lm-pub-quiz's."""
    expected = DatasetResults.from_path(theirs)
    for relation in dataset:
        mine, other = ours[relation.code], expected[relation.code]
        raw = other.metadata["reduction"] is None
        assert mine.answer_space == other.answer_space
        lines = [
            (folder / f"{relation.code}_results.jsonl").read_text().splitlines()
            for folder in (written, theirs)
        ]
        for line, want in zip(*(map(json.loads, some) for some in lines), strict=True):
            assert line.keys() == want.keys() if raw else list(line) == list(want)
            for one, wanted in zip(line.pop("pll_scores"), want.pop("pll_scores"), strict=True):
                np.testing.assert_allclose(one, wanted, atol=atol)
            if raw:
                _assert_roles(line, want)
            assert line == want
        for key in other.metadata.keys() - _KNOWN - {"relation_info"}:
            assert mine.metadata[key] == other.metadata[key], key
        assert mine.relation_info["domains"] == other.relation_info["domains"]


def _assert_roles(ours, theirs):
    """The library leaves the first token of a statement out of its roles; we do not."""
    found = 0
    for name in ("sub_indices", "obj_indices", "template_indices"):
        mine, other = ours.pop(name), theirs.pop(name)
        assert [[i for i in option if i > 0] for option in mine] == other
        found += sum(map(len, mine))
    assert found == sum(map(len, ours["tokens"]))
