"""Means of checkpoints, number by number."""

import numpy as np
import pytest

from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.cli.ckl import main
from ckl_jax.train.setup import load_params
from ckl_jax.trees.paths import flatten, loop_to_scan
from tests.helpers import TINY, TINY_V1_1, assert_trees_close, random_params


def _save(folder, params, **metadata):
    with CheckpointStore(str(folder)) as store:
        store.save(3, {"params": params, "step": np.full((), 3, np.int32)}, metadata)
    return str(folder)


@pytest.fixture
def pair(tmp_path):
    params = [random_params(TINY, seed) for seed in (0, 1)]
    return params, [
        _save(tmp_path / "before", params[0], vocabulary_digest="v", method="initial"),
        _save(tmp_path / "after", loop_to_scan(params[1]), vocabulary_digest="v", method="vanilla"),
    ]


def test_a_mean_lies_between_its_models(pair, tmp_path, capsys):
    (before, after), folders = pair
    out = str(tmp_path / "out")
    assert main(["average", *folders, "--weights", "0.25", "0.75", "--out", out]) == 0
    assert "0.25 of" in capsys.readouterr().out
    mean, after = load_params(out), loop_to_scan(after)  # in the layout of the last model
    ours, a, b = (flatten(t) for t in (mean, loop_to_scan(before), after))
    assert_trees_close(ours, {k: 0.25 * a[k] + 0.75 * b[k] for k in a}, rtol=1e-6)
    for end, weights in ((0, ("1", "0")), (1, ("0", "1"))):
        out = str(tmp_path / f"end{end}")
        assert main(["average", *folders, "--weights", *weights, "--out", out]) == 0
        assert_trees_close(load_params(out), (loop_to_scan(before), after)[end], rtol=0, atol=0)


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["{0}"], "two models or more"),
        (["{0}", "{1}", "--weights", "0.5", "0.6"], "sum to 1"),
        (["{0}", "{1}", "--weights", "-1", "2"], "0 or more"),
        (["{0}", "{other}"], "only one has"),
        (["{0}", "{words}"], "different vocabularies"),
        (["{0}", "{0}", "--out", "{1}"], "already holds a checkpoint"),
    ],
)
def test_bad_input_is_one_sentence(pair, tmp_path, capsys, arguments, sentence):
    _, folders = pair
    other = _save(tmp_path / "other", random_params(TINY_V1_1), vocabulary_digest="v")
    words = _save(tmp_path / "words", random_params(TINY), vocabulary_digest="w")
    given = [a.format(*folders, other=other, words=words) for a in arguments]
    assert main(["average", "--out", str(tmp_path / "out"), *given]) == 2
    told = capsys.readouterr().err
    assert sentence in told and told.count("\n") == 1
