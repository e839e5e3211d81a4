"""Each folder of examples/ works from an empty folder, on an imported Hugging Face model."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from ckl_jax.checkpoints.to_hf import save_hf
from ckl_jax.cli import ckl
from ckl_jax.models.t5 import T5Config
from tests.helpers import random_params
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


@pytest.mark.usefixtures("undrawn")
def test_a_strangers_method_trains_from_hugging_face_and_is_reported(tiny, imported, tmp_path):
    run = train("ia3_method", tiny, imported, tmp_path, "--gin_file=ckl_ia3.gin")
    assert ckl.main(["report", str(run), "--out", str(tmp_path / "report")]) == 0
    table = json.loads((tmp_path / "report" / "table.json").read_text())["em"]
    assert [row["key"] for row in table["rows"]] == ["initial", "ia3"]
    assert {"invariant_lama", "updated_lama"} <= table["rows"][1]["scores"].keys()


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
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
