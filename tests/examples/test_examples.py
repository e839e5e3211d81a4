"""Each folder of examples/ works from an empty folder, on an imported Hugging Face model."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ckl_jax.checkpoints.to_hf import save_hf
from ckl_jax.cli import ckl
from ckl_jax.models.t5 import T5Config
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.train import setup
from tests.helpers import (
    TINY,
    TINY_GPT2,
    model_of,
    random_batch,
    random_params,
)
from tests.tiny import ROOT
from tests.xla_flags import xla_flags

EXAMPLES = ROOT / "examples"
# The model of gin_configs/tiny.gin.
SMALL = T5Config(
    vocab_size=1024,
    emb_dim=32,
    num_heads=2,
    head_dim=16,
    mlp_dim=64,
    num_encoder_layers=1,
    num_decoder_layers=1,
    logits_via_embedding=True,
)


@pytest.fixture(scope="module")
def imported(tiny, tmp_path_factory):
    """A Hugging Face T5 that reads by the tiny world's vocabulary, imported."""
    root = tmp_path_factory.mktemp("hf")
    save_hf(root / "hf", random_params(SMALL), SMALL)
    vocabulary = tiny.root / "world" / "prepared" / "vocabulary.model"
    shutil.copy(vocabulary, root / "hf" / "spiece.model")
    ours = root / "ours"
    assert ckl.main(["import-hf", "--model", str(root / "hf"), "--out", str(ours)]) == 0
    return ours


def train(example, tiny, imported, folder, *argv):
    """Copies an example to `folder` and runs `t5x train` there, as a user would."""
    shutil.copytree(EXAMPLES / example, folder, dirs_exist_ok=True)
    macros = {
        "INITIAL_CHECKPOINT_PATH": str(imported),
        "DATA_DIR": str(tiny.root / "world"),
        "MODEL_DIR": str(folder / example.split("_")[0]),
        "TRAIN_STEPS": 2,
    }
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ckl_jax", "train", *argv),
            *("--gin_file=tiny.gin", f"--gin_file={imported}/model.gin"),
            *(f"--gin_bindings={name} = {value!r}" for name, value in macros.items()),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XLA_FLAGS": xla_flags(devices=1)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / example.split("_")[0]


def test_a_strangers_method_trains_from_hugging_face_and_is_reported(tiny, imported, tmp_path):
    run = train("dora_method", tiny, imported, tmp_path, "--gin_file=ckl_dora.gin")
    assert ckl.main(["report", str(run), "--out", str(tmp_path / "report")]) == 0
    table = json.loads((tmp_path / "report" / "table.json").read_text())["em"]
    assert [row["key"] for row in table["rows"]] == ["initial", "dora"]
    assert {"invariant_lama", "updated_lama"} <= table["rows"][1]["scores"].keys()


def test_a_strangers_evaluation_has_its_column_in_the_report(tiny, imported, tmp_path):
    files = ("--gin_file=ckl_lora.gin", "--gin_file=ckl_distance.gin")
    run = train("distance_evaluation", tiny, imported, tmp_path, *files)
    assert ckl.main(["report", str(run), "--out", str(tmp_path / "report")]) == 0
    scores = json.loads((tmp_path / "report" / "table.json").read_text())["evaluations"]["distance"]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    moved = [row["l2"] for row in rows if row["split"] == "distance/parameters"]
    assert moved[0] == 0 < moved[-1] == scores["distance/parameters/l2"]
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Other evaluations" in page and "distance/parameters/relative_percent" in page


@pytest.fixture
def dora(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES / "dora_method"))
    import dora

    return dora


@pytest.mark.parametrize("scan", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize(("base", "trunk"), [(TINY, ("^decoder/",)), (TINY_GPT2, ())])
def test_dora_starts_at_the_base_model(dora, base, trunk, scan, tmp_path):
    from ckl_jax.checkpoints.store import CheckpointStore

    base = dataclasses.replace(base, scan_layers=scan)
    model, method, params = model_of(base), dora.dora(trunk=trunk), random_params(base)
    with CheckpointStore(str(tmp_path)) as store:
        store.save(0, {"params": params, "step": jnp.int32(0)}, {"scan_layers": scan})
    shapes = setup.param_shapes(model, method, Partitioner())
    assert all(path.rpartition("/")[2].startswith("dora_") for path in shapes.added)
    adapted = model.with_method(method)
    started = setup.initial_params(
        adapted, shapes, jax.random.key(0), str(tmp_path), init=method.init_params
    )
    batch = random_batch(base)
    plain, logits = np.asarray(jax.jit(model.logits)(params, batch)), jax.jit(adapted.logits)
    np.testing.assert_allclose(logits(started, batch), plain, rtol=1e-4, atol=1e-4)
    without = setup.initial_params(adapted, shapes, jax.random.key(0), str(tmp_path))
    assert np.abs(np.asarray(logits(without, batch)) - plain).max() > 1e-2
