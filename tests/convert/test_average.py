"""Means of checkpoints, number by number."""

import numpy as np
import pytest

from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.cli.ckl import main
from ckl_jax.methods.lora import lora, merge_lora
from ckl_jax.train.opening import identity, open_model
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


@pytest.mark.parametrize("how", ["mean", "merged"])
def test_what_is_written_is_opened_and_exported_like_its_models(tiny, tmp_path, how):
    initial, out = str(tiny.root / "initial"), tmp_path / "out"
    base = ["--base", initial] if how == "merged" else []
    assert main(["average", initial, initial, *base, "--out", str(out)]) == 0
    assert not (out / "metrics.jsonl").exists()
    ours, theirs = open_model(str(out)), open_model(initial)
    assert_trees_close(ours.params, theirs.params, rtol=0, atol=0)
    assert identity(ours.model, ours.params) == identity(theirs.model, theirs.params)
    assert main(["export-hf", "--model", str(out), "--out", str(tmp_path / "hf")]) == 0


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["{0}"], "two models or more"),
        (["{0}", "{1}", "--weights", "0.5", "0.6"], "sum to 1"),
        (["{0}", "{1}", "--weights", "-1", "2"], "0 or more"),
        (["{0}", "{other}"], "only one has"),
        (["{0}", "{words}"], "different vocabularies"),
        (["{0}", "{0}", "--out", "{1}"], "is there already; choose another --out."),
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


def _oracle(base, updates, weights, rule, density, scale):
    """TIES and the sum of task vectors in float64, over all parameters as one vector."""
    base, *updates = (
        np.concatenate([np.float64(flatten(tree)[p]).ravel() for p in sorted(flatten(base))])
        for tree in (base, *updates)
    )
    vectors = np.stack([update - base for update in updates])
    if rule == "sum":
        return base + scale * np.einsum("i,ij->j", weights, vectors)
    for vector in vectors:
        order = np.argsort(-np.abs(vector))
        vector[order[int(np.ceil(density * len(vector))) :]] = 0
    merged = np.zeros_like(base)
    for j, column in enumerate(vectors.T):
        mass = sum(w * x for w, x in zip(weights, column, strict=True))
        agree = [(w, x) for w, x in zip(weights, column, strict=True) if x * mass > 0]
        if agree:
            merged[j] = sum(w * x for w, x in agree) / sum(w for w, _ in agree)
    return base + scale * merged


def _vector(params):
    flat = flatten(params)
    return np.concatenate([np.asarray(flat[p], np.float64).ravel() for p in sorted(flat)])


@pytest.mark.parametrize(("rule", "density"), [("sum", 0.2), ("ties", 0.2), ("ties", 1.0)])
def test_updates_are_merged_as_a_float64_oracle_merges_them(tmp_path, rule, density):
    """Three updates in both layouts, one of them a LoRA run, over their base."""
    base, weights = random_params(TINY), (0.5, 0.3, 0.2)
    method = lora(scale=0.7)
    adapted = random_params(method.extend(TINY), 3)
    updates = [random_params(TINY, 1), random_params(TINY, 2), merge_lora(adapted, 0.7)]
    folders = [
        _save(tmp_path / "one", updates[0]),
        _save(tmp_path / "two", loop_to_scan(updates[1])),
        _save(tmp_path / "lora", adapted, method="lora", dense=method.dense.settings()),
    ]
    argv = ["--base", _save(tmp_path / "base", base), "--rule", rule, "--density", str(density)]
    argv += ["--scale", "0.8", "--weights", *map(str, weights), "--out", str(tmp_path / "out")]
    assert main(["average", *folders, *argv]) == 0
    expected = _oracle(base, updates, weights, rule, density, 0.8)
    np.testing.assert_allclose(_vector(load_params(str(tmp_path / "out"))), expected, atol=1e-5)


def test_dare_drops_at_random_and_keeps_the_sum_on_average(tmp_path):
    base, update = random_params(TINY), random_params(TINY, 1)
    argv = ["average", _save(tmp_path / "one", update), "--base", _save(tmp_path / "base", base)]
    argv += ["--rule", "dare", "--density", "0.25"]
    for seed in ("0", "0", "1"):
        again = str(tmp_path / f"out{len(list(tmp_path.glob('out*')))}")
        assert main([*argv, "--seed", seed, "--out", again]) == 0
    same, twice, other = (_vector(load_params(str(tmp_path / f"out{i}"))) for i in range(3))
    np.testing.assert_array_equal(same, twice)
    assert np.abs(same - other).max() > 0
    moved, whole = same - _vector(base), _vector(update) - _vector(base)
    kept = np.abs(moved) > 1e-7
    np.testing.assert_allclose(moved[kept], 4 * whole[kept], atol=1e-5)
    # Of n entries n / 4 are kept, with a standard deviation of sqrt(3 n / 16).
    assert abs(kept.mean() - 0.25) < 4 * np.sqrt(3 / 16 / len(kept))


def test_a_merge_needs_models_of_one_kind(pair, tmp_path, capsys):
    _, folders = pair
    argv = ["average", folders[1], "--base", folders[0], "--out", str(tmp_path / "out")]
    for more, sentence in (
        (["--density", "0"], "density is 0.0; give a number above 0, up to 1"),
        (["--seed", "-1"], "--seed is -1"),
        (["--base", _save(tmp_path / "other", random_params(TINY_V1_1))], "only one has"),
    ):
        assert main([*argv, *more]) == 2
        told = capsys.readouterr().err
        assert sentence in told and told.count("\n") == 1
