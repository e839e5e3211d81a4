"""The report of a compiled step counts what the step really holds."""

import json
import types

import jax
import jax.numpy as jnp
import optax
import pytest

from ckl_jax.cli import t5x
from ckl_jax.train import artifacts
from ckl_jax.train.precompile import compile_report, format_report
from ckl_jax.train.state import TrainState


def test_report_of_a_small_step():
    params = {"w": jnp.ones((64, 128)), "b": jnp.ones(128)}
    tx = optax.adam(1e-3)

    def step(params, opt_state, x):
        grads = jax.grad(lambda p: ((x @ p["w"] + p["b"][None]) ** 2).mean())(params)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state

    opt_state = tx.init(params)
    lowered = jax.jit(step, donate_argnums=(0, 1)).lower(params, opt_state, jnp.ones((32, 64)))
    trainable = {"b": params["b"]}
    report = compile_report(lowered, params=params, trainable=trainable, opt_state=opt_state)
    assert report["params_count"] == 64 * 128 + 128
    assert report["trainable_bytes"] == 128 * 4
    assert report["opt_state_bytes"] == 2 * report["params_bytes"] + 4
    inputs = report["params_bytes"] + report["opt_state_bytes"] + 32 * 64 * 4
    assert report["argument_bytes"] == inputs
    assert report["alias_bytes"] == report["params_bytes"] + report["opt_state_bytes"]
    assert report["peak_bytes"] >= inputs
    assert report["flops"] > 2 * 2 * 32 * 64 * 128
    assert report["collectives"] == [] and report["devices"] == 1
    lines = format_report(report).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[0].split() == ["parameters", "8,320"]
    assert lines[2].endswith("32.5 KiB")


def test_model_info_lists_parameters_and_optimizer(tmp_path):
    params = {"dense": {"kernel": jnp.ones((2, 3))}, "norm": {"scale": jnp.ones(2)}}
    shapes = types.SimpleNamespace(params=params, trainable={"norm": params["norm"]})
    state = TrainState.create(shapes.trainable, optax.adam(1e-3))
    axes = {"dense": {"kernel": ("embed", "mlp")}, "norm": {"scale": ("embed",)}}
    artifacts.write_model_info(tmp_path, shapes, state, axes)
    lines = (tmp_path / "model-info.txt").read_text().splitlines()
    assert lines[0].split()[:7] == "Variable dense/kernel size 6 shape (embed=2, mlp=3)".split()
    assert "partition spec" in lines[0]
    assert lines[2] == "Total number of parameters: 8"
    assert lines[3] == "Number of trainable parameters: 2"
    assert lines[4] == ""
    assert [line.split()[1] for line in lines[5:]] == [
        "step",
        "param_states/0/count",
        "param_states/0/mu/norm/scale",
        "param_states/0/nu/norm/scale",
    ]
    text = artifacts.model_info(shapes)
    assert "shape (2, 3)" in text and "State" not in text


# The published batch of 60 rows does not divide into 8 parts.
MESH = "--gin.MESH_SHAPE={'data': 4, 'model': 2}"


def reported(capsys, *argv):
    """The table of a `t5x precompile` as {label: number}."""
    assert t5x.main(["precompile", *argv]) == 0
    lines = [line.rsplit("  ", 1) for line in capsys.readouterr().out.splitlines()]
    return {label.strip(): value.strip() for label, *values in lines for value in values}


@pytest.mark.slow
def test_an_empty_folder_stays_empty(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    report = reported(capsys, "--gin_file=ckl_mix_review.gin", "--gin_file=tiny.gin")
    assert report["trainable"].endswith("KiB") and "FLOPs per step, per device" in report
    assert not list(tmp_path.iterdir())


MODULAR = ("modular", "773,526,208", "438,586,560")


@pytest.mark.parametrize(
    "method, total, trainable",
    [("vanilla", "737,668,096", "737,668,096"), pytest.param(*MODULAR, marks=pytest.mark.slow)],
)
def test_the_published_size_is_counted_without_allocating_it(
    method, total, trainable, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    files = (f"--gin_file=ckl_{method}.gin", "--gin_file=ckl_full.gin")
    assert t5x.main(["precompile", *files, "--gin.COMPILE=False", MESH]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines[:2]] == [total, trainable]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "method, size, total, trainable",
    [
        ("lora", "large", "774,767,360", "737,280"),
        ("vanilla", "xl", "1,557,611,200", "1,557,611,200"),
    ],
)
def test_a_published_gpt2_is_counted_with_no_vocabulary_at_hand(
    method, size, total, trainable, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    files = (f"temporalwiki_{method}", "temporalwiki_paper", f"gpt2_{size}")
    argv = [*(f"--gin_file={name}.gin" for name in files), "--gin.SCAN_LAYERS=True"]
    assert t5x.main(["precompile", *argv, "--gin.COMPILE=False", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [line.split()[-1] for line in found["output"][:2]] == [total, trainable]
    assert f"{found['params_count']:,}" == total and f"{found['trainable_count']:,}" == trainable
    assert not list(tmp_path.iterdir())
