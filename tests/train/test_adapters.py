"""What updates added, in the checkpoints of later ones: settings that no shape tells, phases."""

import json

import numpy as np
import pytest

from ckl_jax.analysis.rows import ProbedRun
from ckl_jax.api import Model
from ckl_jax.cli import ckl, t5x
from ckl_jax.errors import UserError
from ckl_jax.methods.k_adapter import k_adapter
from ckl_jax.methods.lora import lora
from ckl_jax.methods.method import vanilla
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.train import adapters
from ckl_jax.train.setup import load_params, param_shapes
from ckl_jax.trees.paths import flatten
from tests.helpers import TINY, assert_trees_close, model_of
from tests.tiny import read_rows


@pytest.fixture(scope="module")
def first(tiny, tmp_path_factory):
    """A first update by K-Adapter, of two steps."""
    folder = tmp_path_factory.mktemp("phases") / "p1"
    argv = tiny.argv("k_adapter_k2", folder, "experiments/ckl/p1.gin", TRAIN_STEPS=2)
    assert t5x.main(["train", *argv, "--gin.K2_TAPS=(0,1)"]) == 0
    return folder


def second(tiny, first, folder, *bindings):
    macros = {"TRAIN_STEPS": 2, "INITIAL_CHECKPOINT_PATH": str(first), "PROBES": None}
    argv = tiny.argv("k_adapter_k2", folder, "experiments/ckl/p1_p2.gin", **macros)
    return t5x.main(["train", *argv, *(f"--gin.{binding}" for binding in bindings)])


@pytest.mark.slow
def test_an_earlier_update_keeps_its_scale_and_taps(first, tiny, tmp_path, capsys):
    phase = "k_adapter.k_adapter.phase=1"
    bindings = {
        "k_adapter.k_adapter.scale=1.0": "k_adapter_0.scale = 0.1, and this run has 1.0",
        "K2_TAPS=(1,1)": "k_adapter_0.taps = [0, 1], and this run has [1, 1]",
    }
    for binding, told in bindings.items():
        assert second(tiny, first, tmp_path / "p2", phase, binding) == 2
        assert f"{first} was trained with {told}" in capsys.readouterr().err
        assert not (tmp_path / "p2" / "checkpoint_2").exists()
    loose = "configs.RestoreCheckpointConfig.strict=False"
    assert second(tiny, first, tmp_path / "p2", phase, *bindings, loose) == 0


@pytest.mark.slow
def test_a_forgotten_phase_is_told_and_a_lower_one_refused(first, tiny, tmp_path, capsys):
    assert second(tiny, first, tmp_path / "same") == 0
    told = (
        f"{first} holds k_adapter_0, which this run trains further; for an update with parameters "
        "of its own give k_adapter.k_adapter.phase = 1."
    )
    assert told in capsys.readouterr().out
    assert second(tiny, first, tmp_path / "p2", "k_adapter.k_adapter.phase=1") == 0
    assert "trains further" not in capsys.readouterr().out
    assert second(tiny, tmp_path / "p2", tmp_path / "p3") == 2
    told = capsys.readouterr().err
    assert f"{tmp_path / 'p2'} holds k_adapter_1 and this run's phase is 0; give " in told
    assert "k_adapter.k_adapter.phase = 1 as it was trained with, or 2 for another" in told


@pytest.mark.slow
def test_rows_that_were_removed_are_missed_and_made_again(first, tiny):
    rows, summary = first / "probes" / "rows_000002.jsonl", first / "summary.json"
    before, held = read_rows(rows), summary.read_text()
    rows.unlink()
    with pytest.raises(UserError, match="to step 2, and its last probe rows are of step 0"):
        ProbedRun.open(first)
    summary.unlink()
    argv = tiny.argv("k_adapter_k2", first, "experiments/ckl/p1.gin", TRAIN_STEPS=2)
    assert t5x.main(["train", *argv, "--gin.K2_TAPS=(0,1)"]) == 0
    assert read_rows(rows) == before
    assert json.loads(summary.read_text()) == json.loads(held)
    assert ProbedRun.open(first).steps == (0, 2)


@pytest.mark.slow
def test_no_mean_of_models_whose_settings_differ(first, tiny, tmp_path, capsys):
    other = tmp_path / "p1"
    argv = tiny.argv("k_adapter_k2", other, "experiments/ckl/p1.gin", TRAIN_STEPS=1, PROBES=None)
    settings = ("--gin.K2_TAPS=(0,1)", "--gin.k_adapter.k_adapter.scale=1.0")
    assert t5x.main(["train", *argv, *settings]) == 0
    assert ckl.main(["average", str(first), str(other), "--out", str(tmp_path / "m")]) == 2
    assert "were trained with different k_adapter_0.scale; a mean" in capsys.readouterr().err
    assert not (tmp_path / "m" / "checkpoint_0").exists()


def test_shapes_tell_what_was_added():
    model = model_of(TINY)
    for method, part in ((lora(), "lora"), (k_adapter(taps=(1, 2)), "k_adapter")):
        shapes = param_shapes(model, method, Partitioner())
        base = flatten(param_shapes(model, vanilla(), Partitioner()).params)
        assert shapes.added == flatten(shapes.params).keys() - base.keys()
        assert adapters.last_phases(shapes.added, base) == {part: 0}
    assert not param_shapes(model, vanilla(), Partitioner()).added


def test_a_run_that_adds_nothing_goes_on_with_what_there_is():
    def continued(trainable, frozen, fresh=()):
        added = {p for p in (*trainable, *frozen) if "_" in p}
        return adapters.continued_phase(trainable, frozen, fresh, added)

    assert continued(["k_adapter_1/x"], ["k_adapter_0/x"]) == ("k_adapter", 1)
    assert continued(["mine_12/x"], ["decoder/x"]) == ("mine", 12)  # of whatever name
    assert continued(["k_adapter_1/x"], []) is None  # a fine-tuning of everything
    assert continued(["decoder/x", "a/lora_1/b"], ["x"], ["a/lora_1/b"]) is None


VERA = '''
"""VeRA (Kopiczko et al. 2024): vectors train, and the random matrices that they scale do not."""

import dataclasses

from flax import linen as nn

from ckl_jax.methods.method import Method
from ckl_jax.models.layers import Dense, DenseFactory, over_last_axis, param


class VeraDense(Dense):
    def product(self, x):
        y, (inputs, outputs) = super().product(x), self.kernel_axes
        a = param("vera_A", nn.initializers.normal(0.1), (x.shape[-1], 4), (inputs, "lora_rank"))
        b = param("vera_B", nn.initializers.normal(0.1), (4, self.features), ("lora_rank", outputs))
        d = param("vera_d", nn.initializers.constant(0.1), (4,), ("lora_rank",))
        v = param("vera_b", nn.initializers.constant(0.1), (self.features,), (outputs,))
        h = x @ a.astype(x.dtype)
        h = (h * over_last_axis(d.astype(h.dtype), h)) @ b.astype(h.dtype)
        return y + h * over_last_axis(v.astype(h.dtype), h)


@dataclasses.dataclass(frozen=True)
class VeraFactory(DenseFactory):
    def __call__(self, features, kernel_axes, *, name, **kw):
        cls = VeraDense if name == "query" else Dense
        return cls(features, kernel_axes, name=name, **kw)


def vera():
    return Method(name="vera", dense=VeraFactory(), trainable=("/vera_[bd]$",))
'''
VERA_GIN = """
from __gin__ import dynamic_registration
import vera_of_a_stranger as vera
include 'jobs/ckl_train.gin'
include 'data/ckl_world.gin'
METHOD = @vera.vera()
"""


@pytest.fixture
def vera(tiny, tmp_path, monkeypatch):
    """Trains by VeRA, a method in a file of a user's own, and returns all parameters."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "vera_of_a_stranger.py").write_text(VERA)
    (tmp_path / "ckl_vera.gin").write_text(VERA_GIN)

    def train(name, steps, **macros):
        macros = {"TRAIN_STEPS": steps, "PROBES": None, **macros}
        assert t5x.main(["train", *tiny.argv("vera", tmp_path / name, **macros)]) == 0
        return flatten(load_params(str(tmp_path / name)))

    return train


def random_matrices(params):
    return {p: x for p, x in params.items() if p.endswith(("/vera_A", "/vera_B"))}


@pytest.mark.slow
def test_frozen_parameters_that_no_base_has_are_in_the_runs_checkpoints(tiny, vera):
    straight, short = vera("straight", 2), vera("resumed", 1)
    resumed = vera("resumed", 2, **{"train.train.may_change": True})
    assert_trees_close(resumed, straight, rtol=0, atol=0)
    base = flatten(load_params(str(tiny.root / "initial")))
    assert random_matrices(straight) and not random_matrices(base)
    assert_trees_close(random_matrices(short), random_matrices(straight), rtol=0, atol=0)


@pytest.mark.slow
def test_a_run_with_frozen_parameters_of_its_own_is_updated_evaluated_and_opened(
    tiny, vera, tmp_path
):
    first = random_matrices(vera("first", 1))
    before = {"INITIAL_CHECKPOINT_PATH": str(tmp_path / "first")}
    # The random matrices of an earlier update stay, although another seed would draw others.
    second = random_matrices(vera("second", 1, RANDOM_SEED=1, **before))
    assert_trees_close(second, first, rtol=0, atol=0)
    other = random_matrices(vera("other", 1, RANDOM_SEED=1))
    assert all(np.any(other[p] != first[p]) for p in first)
    evaluation = {"CHECKPOINT_PATH": str(tmp_path / "second"), "EVAL_OUTPUT_DIR": "scores"}
    assert t5x.main(["eval", *tiny.argv("vera", tmp_path / "x", "ckl_eval.gin", **evaluation)]) == 0
    assert list((tmp_path / "scores").rglob("rows_000001.jsonl"))
    opened = Model(str(tmp_path / "second"), trusted=("vera_of_a_stranger",))
    assert np.isfinite(opened.log_prob("Who?"))
