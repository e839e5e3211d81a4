"""Every overlay of gin_configs/experiments: its header's command parses, and runs two steps."""

import json
import re
import shlex

import pytest

from ckl_jax.cli import t5x
from ckl_jax.config.gin_files import BUNDLED
from ckl_jax.papers.ckl.data.simulated_kilt import write_kilt
from ckl_jax.papers.ckl.scenarios import EXPERIMENTS
from ckl_jax.world.timeline import make_world

FILES = sorted(str(p.relative_to(BUNDLED)) for p in (BUNDLED / "experiments").rglob("*.gin"))
# What comes before a file, in place of the config.gin of a run that is not there.
_RUNS = {"ckl_lora": ["ckl_lora.gin"], "temporalwiki_lora": ["temporalwiki_lora.gin"]}


MODEL_GIN = """from __gin__ import dynamic_registration
include 'models/gpt2_large.gin'
VOCABULARY = None
"""


def header_command(name):
    """The arguments of the `t5x train` of a header that names the file, else of the first."""
    lines = (BUNDLED / name).read_text().splitlines()
    comment = "\n".join(line[1:].strip() for line in lines if line.startswith("#"))
    found = re.findall(r"t5x train (--.*)", comment.replace("\\\n", " "))
    commands = [shlex.split(text) for text in found]
    return next((argv for argv in commands if f"--gin_file={name}" in argv), commands[0])


def without_runs(argv, tmp_path):
    """The command on the gin files of a run in place of its config.gin."""
    model = tmp_path / "model.gin"
    model.write_text(MODEL_GIN)
    found = []
    for a in argv:
        if run := re.fullmatch(r"--gin_file=runs/(\w+)/config.gin", a):
            found += [f"--gin_file={file}" for file in _RUNS[run[1]]]
        else:
            found.append(a.replace("/data/ckl/gpt2/model.gin", str(model)))
    return found


@pytest.mark.parametrize("name", FILES)
def test_the_command_of_the_header_parses(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    argv = without_runs(header_command(name), tmp_path)
    assert t5x.main(["train", *argv, "--dry_run"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_has_a_file_of_its_name(name):
    """Whose header tells command, hours, hardware; CKL's, the paper's own."""
    header = (BUNDLED / f"experiments/{name}.gin").read_text()
    assert f"ckl experiment {name} --size" in header
    assert "# Expected" in header and "# The paper" in header


# Their data are not the simulated world's: the published size, and what GPT-2 reads before.
PUBLISHED = ("experiments/ckl/gpt2_full.gin", "experiments/ckl/gpt2_initial.gin")


@pytest.fixture(scope="module")
def gpt2(tiny, tmp_path_factory):
    """An Initial GPT-2 of the world of `tiny`."""
    folder = tmp_path_factory.mktemp("gpt2") / "initial"
    files = ("temporalwiki_initial.gin", "temporalwiki_tiny.gin")
    assert train(files, tiny, MODEL_DIR=str(folder)) == 0
    return folder


def train(files, tiny, **macros):
    macros = {"DATA_DIR": str(tiny.root / "world"), "TRAIN_STEPS": 2, **macros}
    argv = [*(f"--gin_file={f}" for f in files), *(f"--gin.{k}={v!r}" for k, v in macros.items())]
    return t5x.main(["train", *argv])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FILES if name not in PUBLISHED])
def test_two_steps_at_the_smallest_size(name, tiny, gpt2, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    argv = without_runs(header_command(name), tmp_path)
    first, *overlays = [a.split("=")[1] for a in argv if a.startswith("--gin_file=")]
    if "light_tuning" in name:
        overlays.append("experiments/ckl/gpt2_world.gin")
    if any(part in name for part in ("table8", "table9", "kilt")):
        write_kilt(make_world(0, "tiny"), tmp_path / "kilt")
        overlays += ["experiments/ckl/kilt_world.gin", "kilt_here.gin"]
        (tmp_path / "kilt_here.gin").write_text("KILT_DIR = 'kilt'\nKILT_TASKS = 'tasks'\n")
    decoder = first.startswith("temporalwiki_")
    # What is tuned afterwards has the small model in its config.gin.
    shrunk = ["temporalwiki_tiny.gin", *overlays] if decoder else [*overlays, "tiny.gin"]
    base = str(gpt2 if decoder else tiny.root / "initial")
    if first == "temporalwiki_initial.gin":
        base = None  # it is the first of all
    macros = {"MODEL_DIR": str(tmp_path / "run"), "INITIAL_CHECKPOINT_PATH": base}
    if "experiments/ckl/gpt2_world.gin" in overlays:
        macros["MESH_SHAPE"] = {"data": 4, "model": 2}  # its batches have 4 rows
    assert train([first, *shrunk], tiny, **macros) == 0, capsys.readouterr().err
    (summary,) = (tmp_path / "run").rglob("summary.json")
    assert json.loads(summary.read_text())["steps"] == 2
