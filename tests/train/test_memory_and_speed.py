"""Frozen parameters of a shorter type, traces, and how much of a device a step takes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ckl_jax.checkpoints.restore import find_checkpoint, read_json_item
from ckl_jax.cli import t5x
from ckl_jax.parallel import flops
from ckl_jax.train import step_metrics
from ckl_jax.train.setup import load_params
from ckl_jax.trees.paths import flatten
from tests.tiny import read_rows


@pytest.mark.slow
def test_frozen_parameters_may_be_bfloat16(tiny, tmp_path, capsys):
    run = tmp_path / "lora"
    macros = {"PROBES": None, "EPOCHS": 1, "FROZEN_DTYPE": "bfloat16"}
    best = {"BEST_METRIC": "train/memory/x", "PATIENCE": None}
    argv = tiny.argv("lora", run, "ckl_best.gin", **macros, **best)
    assert t5x.main(["train", *argv, "--profile=1"]) == 0
    out = capsys.readouterr().out
    assert "A trace of the steps from 4 on" in out and "No checkpoint has 'train/memory/x'" in out
    assert list((run / "plugins" / "profile").glob("*/*.xplane.pb"))
    [row] = [r for r in read_rows(run / "metrics.jsonl") if r["split"] == "train"][-1:]
    assert row["timing/matmul_tflops_per_second_per_device"] > 0
    named = {name.split("/")[0] for name in row.keys() - {"step", "split"}}
    assert named <= {name.rstrip("/") for name in step_metrics.StepMetrics.names}

    metadata = read_json_item(find_checkpoint(run), "metadata")
    assert metadata["frozen_dtype"] == "bfloat16" and metadata["frozen_paths"]
    base, updated = flatten(load_params(tiny.root / "initial")), flatten(load_params(run))
    for name in metadata["frozen_paths"]:
        assert updated[name].dtype == np.float32
        np.testing.assert_array_equal(updated[name], base[name].astype(jnp.bfloat16), err_msg=name)
    other = tiny.argv("lora", run, **{**macros, "FROZEN_DTYPE": "float16x"})
    assert t5x.main(["train", *other]) == 2
    assert "FROZEN_DTYPE is 'float16x'; choose from" in capsys.readouterr().err


@pytest.mark.slow
def test_dropout_by_the_hardwares_generator(tiny, tmp_path, capsys):
    """Other masks, and the same ones again in another run; what is no bool is refused."""
    macros = {"PROBES": None, "TRAIN_STEPS": 2, "t5.T5Config.dropout_rate": 0.1}
    losses = []
    for name, hardware in (("jax", False), ("bits", True), ("again", True)):
        given = {"train.train.use_hardware_rng": hardware, "train.train.log_period": 1}
        assert t5x.main(["train", *tiny.argv("vanilla", tmp_path / name, **macros, **given)]) == 0
        rows = read_rows(tmp_path / name / "metrics.jsonl")
        losses.append([row["loss"] for row in rows if row["split"] == "train"])
    assert losses[1] == losses[2] and len(losses[0]) == 2
    assert (np.array(losses[0]) != losses[1]).all()
    np.testing.assert_allclose(losses[0], losses[1], rtol=0.1)
    given = {"train.train.use_hardware_rng": "yes"}
    assert t5x.main(["train", *tiny.argv("vanilla", tmp_path / "text", **macros, **given)]) == 2
    assert "use_hardware_rng is 'yes'" in capsys.readouterr().err


def test_a_profile_is_of_training(capsys):
    assert t5x.main(["eval", "--gin_file=ckl_lora.gin", "--profile"]) == 2
    assert "--profile is a flag of `t5x train`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "tera"),
    [
        ("NVIDIA H100 80GB HBM3", 989),
        ("TPU v5 lite", 197),
        ("TPU v5p", 459),
        ("TPU v4", 275),
        ("cpu", None),
    ],
)
def test_peaks_are_by_the_kind_of_a_device(kind, tera):
    assert flops.peak(kind) == (None if tera is None else tera * 1e12)


def test_utilization_is_of_all_devices(monkeypatch):
    monkeypatch.setattr(flops, "peak", lambda kind: 1e12)
    row = step_metrics.speed(0.5, 8, 100.0, step_flops=10**11 * jax.device_count())
    assert row["timing/matmul_tflops_per_second_per_device"] == pytest.approx(0.2)
    assert row["timing/flops_utilization"] == pytest.approx(0.2)
    assert "memory/peak_gib_per_device" not in row  # a CPU does not say
