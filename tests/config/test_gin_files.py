"""Every bundled gin file, alone and with every overlay, binds to its job."""

import pytest

from ckl_jax.cli import t5x
from ckl_jax.config import gin_config
from ckl_jax.config.gin_files import bundled_files
from ckl_jax.papers.ckl.methods import METHODS
from ckl_jax.probes.closed_book import ClosedBook
from ckl_jax.train import configs

OVERLAYS = (
    (),
    ("tiny.gin",),
    ("large.gin",),
    ("ckl_full.gin",),
    ("ckl_full_small.gin",),
    ("ckl_onecycle.gin",),
)
JOBS = {
    "train": (),
    "precompile": (),
    "eval": ("--gin_file=ckl_eval.gin",),
    "infer": ("--gin_file=ckl_infer.gin", "--gin.INFER_INPUTS='new_lama'"),
}


def _marks(job, overlay):
    """Overlays bind in trainings, and with every job in the slow part."""
    return [pytest.mark.slow] if overlay and job != "train" else []


@pytest.mark.parametrize(
    ("overlay", "job"),
    [
        pytest.param(o, j, id=f"{''.join(o) or 'alone'}-{j}", marks=_marks(j, o))
        for o in OVERLAYS
        for j in JOBS
    ],
)
def test_every_method_with_every_overlay(job, overlay, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for method in ("initial", *METHODS):
        files = [f"--gin_file={name}" for name in (f"ckl_{method}.gin", *overlay)]
        assert t5x.main([job, *files, *JOBS[job], "--dry_run"]) == 0, capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_macro_that_is_missing_is_explained(capsys):
    assert t5x.main(["infer", "--gin_file=ckl_lora.gin", "--gin_file=ckl_infer.gin"]) == 2
    err = capsys.readouterr().err
    assert "The macro INFER_INPUTS is not set" in err
    assert "It takes: 'name' of a probe or cached task, or a .txt or .jsonl file." in err


def test_every_model_file_is_an_overlay(capsys):
    models = [name for name in bundled_files() if name.startswith("models/t5_")]
    assert len(models) >= 10
    for name in models:
        argv = ["--gin_file=ckl_vanilla.gin", f"--gin_file={name}", "--gin.VOCABULARY=None"]
        assert t5x.main(["precompile", *argv, "--dry_run"]) == 0, capsys.readouterr().err


def test_paths_follow_the_data_folder(capsys):
    """Whatever lies below DATA_DIR moves with it, in the embedded and the published layout."""
    for overlay, tasks, probes in (
        ((), "/d/prepared/tasks", "/d/ckl"),
        (("ckl_full.gin",), "/d/prepared/tasks", "/d"),
    ):
        gin_config.load(["ckl_lora.gin", *overlay], ["DATA_DIR = '/d'"])
        with gin_config.gin.config_scope("train"):
            dataset = gin_config.configurable(configs.DatasetConfig)()
        assert list(dataset.cache_dirs) == [tasks]
        assert gin_config.configurable(ClosedBook)().data_dir == probes


@pytest.mark.parametrize(
    "job", [pytest.param(j, marks=() if j == "train" else pytest.mark.slow) for j in JOBS]
)
def test_every_temporalwiki_file_with_its_overlays(job, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {name for name in bundled_files() if name.startswith("temporalwiki_")}
    overlays = ["temporalwiki_released.gin", "temporalwiki_paper.gin", "temporalwiki_tiny.gin"]
    jobs, tuned = {"temporalwiki_eval.gin", "temporalwiki_infer.gin"}, "temporalwiki_light_tune.gin"
    sizes = [f"temporalwiki_{size}.gin" for size in ("wide", "medium", "large")]
    methods = sorted(names - {*overlays, *jobs, *sizes, tuned})
    assert len(methods) == 8
    own = [f"temporalwiki_{job}.gin"] if f"temporalwiki_{job}.gin" in jobs else []
    inputs = ["--gin.INFER_INPUTS='prompts.txt'"] if job == "infer" else []
    models = [name for name in bundled_files() if name.startswith("models/gpt2_")]
    assert len(models) == 5
    alone_and_over = [[m, *o] for m in methods for o in ([], overlays)]
    alone_and_over += [[m, tuned] for m in methods] + [[methods[0], size] for size in sizes]
    for files in (*alone_and_over, *zip(methods, models, strict=False)):
        argv = [f"--gin_file={name}" for name in (*files, *own)]
        quiet = ["--gin.VOCABULARY=None"] if files[-1] in models else []
        assert t5x.main([job, *argv, *inputs, *quiet, "--dry_run"]) == 0, capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("job", ["train", pytest.param("precompile", marks=pytest.mark.slow)])
def test_mind_the_gap_with_its_models_and_methods(job, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    models = [name for name in bundled_files() if name.startswith("models/transformer_xl_")]
    assert len(models) == 3
    overlays = [[], ["mind_the_gap_demo.gin"], ["methods/gpt2_lora.gin"], ["methods/recadam.gin"]]
    overlays += [[model, "data/dated.gin"] for model in (*models, "models/gpt2_small.gin")]
    macros = {"MODEL_DIR": "run", "MIXTURE_OR_TASK_NAME": "task", "VOCABULARY_PATH": "v.model"}
    bindings = [f"--gin.{name}='{value}'" for name, value in macros.items()]
    for overlay in overlays:
        files = [f"--gin_file={name}" for name in ("mind_the_gap_train.gin", *overlay)]
        assert t5x.main([job, *files, *bindings, "--dry_run"]) == 0, capsys.readouterr().err
