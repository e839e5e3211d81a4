"""What updates added, in the checkpoints of later ones: settings that no shape tells, phases."""

import json

import pytest

from ckl_jax.analysis.rows import Run
from ckl_jax.cli import ckl, t5x
from ckl_jax.errors import UserError
from ckl_jax.methods.k_adapter import k_adapter
from ckl_jax.methods.lora import lora
from ckl_jax.methods.method import vanilla
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.train import adapters
from ckl_jax.train.setup import param_shapes
from ckl_jax.trees.paths import flatten
from tests.helpers import TINY, model_of
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
        Run.open(first)
    summary.unlink()
    argv = tiny.argv("k_adapter_k2", first, "experiments/ckl/p1.gin", TRAIN_STEPS=2)
    assert t5x.main(["train", *argv, "--gin.K2_TAPS=(0,1)"]) == 0
    assert read_rows(rows) == before
    assert json.loads(summary.read_text()) == json.loads(held)
    assert Run.open(first).steps == (0, 2)


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
