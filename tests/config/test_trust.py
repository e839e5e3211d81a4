"""Gin files that come with a model run no code but this package's, whatever command opens them."""

import contextlib
import importlib
import json
import os
import shutil
import sys

import pytest

from ckl_jax.cli import ckl, t5x
from ckl_jax.config import gin_config, gin_files
from ckl_jax.data import plugins
from ckl_jax.data.facts.questions import Question, write_questions
from ckl_jax.errors import UserError
from ckl_jax.train.opening import open_model

IMPORTS = "from __gin__ import dynamic_registration\nfrom ckl_jax.models import t5\n"
ATTACKS = {
    "a module of the system": "import os\nt5.T5Config.dropout_rate = @os.system()",
    "from a package": "from os import path\nt5.T5Config.dropout_rate = @path.abspath()",
    "under another name": "import subprocess as t6\nt5.T5Config.dropout_rate = @t6.run()",
    "a module of the folder": "import evil\nt5.T5Config.dropout_rate = @evil.run()",
    "through a module of ours": "t5.T5Config.dropout_rate = @t5.dataclasses.sys.exit()",
    "in a list": "import os\nt5.T5Config.mlp_activations = ('relu', [{'a': @os.system()}])",
    "in a scope": "import os\nt5.T5Config.dropout_rate = @a/os.system()",
    "of ours, but no part of a model": "from ckl_jax import files\nA = @files.write_file()",
    "a job": "from ckl_jax.train import train\nt5.T5Config.dropout_rate = @train.train()",
    "tasks": "from t5x import utils\nutils.DatasetConfig.module = 'evil'",
    "tasks by a macro": "from t5x import utils\nA = 'evil'\nutils.DatasetConfig.module = %A",
    "gin files of the Initial model": "from ckl_jax.papers.ckl import simulated\n"
    "A = 'run/evil.gin'\nsimulated.make_inputs.initial_gin_files = ('ckl_initial.gin', %A)",
    "included": "include 'more.gin'",
    "included through the bundled folder": "include '{up}/run/more.gin'",
    "hidden by another import of its name": "from evil import run as t5\n" + IMPORTS,
    "of the name of one that is allowed": "import seqio",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A run folder of a stranger, with code that must not run."""
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    (run / "checkpoint_1").mkdir(parents=True)
    for place in (tmp_path, run):
        (place / "evil.py").write_text(
            "from pathlib import Path\nPath('ran').touch()\n\ndef run():\n    return 0.0\n"
        )
        monkeypatch.syspath_prepend(str(place))
    (run / "more.gin").write_text(f"{IMPORTS}{ATTACKS['a module of the folder']}\n")
    return run


@pytest.mark.parametrize("name", ["config.gin", "model.gin"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_what_is_not_trusted_is_listed(folder, name, attack, monkeypatch):
    if "seqio" in ATTACKS[attack]:  # a file of the folder in place of the package
        shutil.copy(folder / "evil.py", folder / "seqio.py")
        monkeypatch.delitem(sys.modules, "seqio", raising=False)
    up = os.path.join("../gin_configs", *[".."] * 20, os.path.relpath(folder.parent, "/"))
    (folder / name).write_text(f"{IMPORTS}{ATTACKS[attack].replace('{up}', up)}\n")
    with pytest.raises(UserError, match="could run a stranger's code") as e:
        gin_config.load([str(folder / name)])
    assert f"{folder}/" in str(e.value) and "add --trust-imports=" in str(e.value)
    assert not (folder.parent / "ran").exists()


@pytest.mark.parametrize(
    "line, name",
    [
        ("import ckl_jax.jobs.slow_training", "ckl_jax.jobs.slow_training"),
        ("from ckl_jax.train import slow_training", "ckl_jax.train.slow_training"),
        ("t5.T5Config.dropout_rate = @t5.SlowDropout()", "ckl_jax.models.t5.SlowDropout"),
    ],
)
def test_what_another_version_had_is_no_matter_of_trust(folder, line, name):
    (folder / "config.gin").write_text(f"{IMPORTS}{line}\n")
    with pytest.raises(UserError, match=f"line 3 names {name}, which ckl_jax .* another version"):
        gin_config.load([str(folder / "config.gin")])


def test_an_environment_within_the_folder_is_none_of_its_modules(folder, monkeypatch):
    packages = folder / ".venv" / "site-packages"
    (packages / "seqio").mkdir(parents=True)
    (packages / "seqio" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.delitem(sys.modules, "seqio", raising=False)
    (folder / "config.gin").write_text(f"{IMPORTS}import seqio\n")
    gin_config.read([str(folder / "config.gin")])


def test_what_the_user_names_is_imported(folder):
    (folder / "config.gin").write_text(f"{IMPORTS}{ATTACKS['a module of the folder']}\n")
    for trusted in ("evil", "all"):
        gin_config.load([str(folder / "config.gin")], trusted=[trusted])
    assert (folder.parent / "ran").exists()
    with pytest.raises(UserError, match="--trust-imports=evil"):
        gin_config.load([str(folder / "config.gin")], trusted=["evi", "evil.more"])


def test_what_the_user_names_may_lie_where_the_command_runs(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    run = tmp_path / "run"
    shutil.copytree(tiny.root / "initial", run)
    (tmp_path / "mine_alone.py").touch()
    first, _, rest = (run / "config.gin").read_text().partition("\n")
    (run / "config.gin").write_text(f"{first}\nimport mine_alone\n{rest}")
    monkeypatch.chdir(tmp_path)
    open_model(str(run), trusted=["mine_alone"])
    assert sys.modules.pop("mine_alone").__file__ == str(tmp_path / "mine_alone.py")


@pytest.mark.parametrize(
    ("lines", "trusted", "allowed"),
    [
        ("import mine\nA = @mine.os.system()", "mine", False),
        ("import mine\nA = @mine.os.system()", "mine,mine.os", True),
        ("import mine.part\nA = @mine.part.make()", "mine", True),
        ("import mine.part\nA = @mine.part.os.system()", "mine", False),
        ("from mine import part\nA = @part.make()", "mine", True),
        ("from mine import part as other\nA = @other.os.system()", "mine.part", False),
    ],
)
def test_what_a_trusted_module_imports_whole_is_not_given(folder, lines, trusted, allowed):
    (folder / "config.gin").write_text(f"from __gin__ import dynamic_registration\n{lines}\n")
    refused = contextlib.nullcontext() if allowed else pytest.raises(UserError, match="Untrusted")
    with refused:
        gin_config.read([str(folder / "config.gin")], trusted=trusted.split(","))


def test_a_stranger_s_folder_takes_no_installed_module_s_place(tmp_path, monkeypatch):
    """Named like a package that is imported late, in the folder where the command runs."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    for name in ("mine_named", "this", "unheard_of"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("here = True\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    plugins.find_here(["mine_named.part"])
    assert importlib.import_module("mine_named").here
    assert importlib.util.find_spec("this").origin != str(tmp_path / "this" / "__init__.py")
    assert importlib.util.find_spec("unheard_of") is None
    monkeypatch.delitem(sys.modules, "mine_named")


def test_files_of_the_folder_take_no_bundled_file_s_place(folder):
    """A name that is looked up finds the folder's files before the bundled ones."""
    (folder / "config.gin").write_text(IMPORTS)
    attack = f"{IMPORTS}{ATTACKS['a module of the folder']}\n"
    for name in ("jobs/ckl_eval.gin", "models/t5.gin"):
        (folder / name).parent.mkdir()
        (folder / name).write_text(attack)
        with pytest.raises(UserError, match=f"run/{name}, line 3 imports"):
            gin_config.load([str(folder / "config.gin"), name])
    (folder.parent / "mine.gin").write_text("include 'models/t5.gin'\n")
    with pytest.raises(UserError, match="run/models/t5.gin, line 3 imports"):
        gin_config.load([str(folder / "config.gin"), "mine.gin"])


@pytest.mark.parametrize("linked", ["jobs", "jobs/ckl_eval.gin", "config.gin"])
def test_what_links_of_the_folder_lead_to_is_its_own(folder, linked):
    attack = f"{IMPORTS}{ATTACKS['a module of the folder']}\n"
    elsewhere = folder.parent / "elsewhere"
    (elsewhere / "jobs").mkdir(parents=True)
    (elsewhere / "config.gin").write_text(IMPORTS)
    (elsewhere / "jobs" / "ckl_eval.gin").write_text(attack)
    (folder / linked).parent.mkdir(exist_ok=True)
    (folder / linked).symlink_to(elsewhere / linked)
    if linked == "config.gin":
        (folder / "jobs").mkdir()
        (folder / "jobs" / "ckl_eval.gin").write_text(attack)
    else:
        (folder / "config.gin").write_text(IMPORTS)
    with pytest.raises(UserError, match=r"run/jobs/ckl_eval.gin, line 3 imports"):
        gin_config.load([str(folder / "config.gin"), "jobs/ckl_eval.gin"])


def test_a_linked_package_of_the_folder_is_its_own(folder, monkeypatch):
    package = folder.parent / "elsewhere" / "seqio"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (folder / "seqio").symlink_to(package)
    monkeypatch.delitem(sys.modules, "seqio", raising=False)
    (folder / "config.gin").write_text(f"{IMPORTS}import seqio\n")
    with pytest.raises(UserError, match="imports it, and it lies in .*/run"):
        gin_config.read([str(folder / "config.gin")])


@pytest.mark.parametrize(
    "parameter", ["utils.DatasetConfig.module", "simulated.make_inputs.initial_gin_files"]
)
@pytest.mark.parametrize(
    "more", ["", "encoder_decoder.EncoderDecoderModel.module = %A\n"], ids=["alone", "shared"]
)
def test_no_function_makes_the_name_of_what_is_run(folder, parameter, more):
    """Nor where a model's module, which a function makes, has the same macro."""
    (folder / "config.gin").write_text(
        "from __gin__ import dynamic_registration\nfrom ckl_jax.train import configs\n"
        "from t5x import utils\nfrom ckl_jax.papers.ckl import simulated\n"
        f"{parameter} = (%A,)\nA = @evil/configs.path()\n"
        f"from ckl_jax.models import encoder_decoder\n{more}"
        "evil/configs.path.folder = '.'\nevil/configs.path.name = 'evil'\n"
    )
    with pytest.raises(UserError, match="config.gin, line 6: what A names is run, so its name"):
        gin_config.read([str(folder / "config.gin")])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("MODEL = None", "MODEL is None; give one such as"),
        ("METHOD = @method.vanilla", "METHOD is <function vanilla.*; give one such as"),
        ("t5.T5Config.emb_dim = 1000000000000", "T5Config.emb_dim is 1000000000000; give "),
    ],
)
def test_a_run_folder_of_wrong_values_is_refused(folder, line, said):
    model = (gin_files.BUNDLED / "models" / "t5.gin").read_text()
    (folder / "config.gin").write_text(
        f"{model}\nfrom ckl_jax.methods import method\nMETHOD = @method.vanilla()\n"
        f"VOCABULARY = None\n{line}\n"
    )
    (folder / "checkpoint_1" / "state").mkdir()
    with pytest.raises(UserError, match=said):
        open_model(str(folder))


@pytest.mark.parametrize("name", gin_files.bundled_files())
def test_what_this_package_writes_is_trusted(folder, name):
    shutil.copy(gin_files.BUNDLED / name, folder / "config.gin")
    try:
        gin_config.read([str(folder / "config.gin")])
    except UserError as e:
        assert "stranger" not in str(e)


@pytest.mark.parametrize(
    "command",
    [
        (t5x, "train", "--gin_file=run/config.gin"),
        (t5x, "train", "--dry_run", "--gin_file=run/config.gin"),
        (t5x, "eval", "--gin_file=run/config.gin", "--gin_file=ckl_eval.gin"),
        (t5x, "infer", "--gin_file=run/config.gin", "--gin_file=ckl_infer.gin"),
        (t5x, "precompile", "--gin_file=run/config.gin"),
        (t5x, "dynamic_eval", "--gin_file=run/config.gin"),
        (ckl, "probe", "bear", "--model=run", "--dataset=quiz"),
        (ckl, "probe", "fill", "--model=run", "--dataset=quiz"),
        (ckl, "ask", "--model", "a=run", "--questions=questions.jsonl"),
    ],
    ids=lambda command: " ".join(command[1:3]),
)
def test_every_command_that_opens_a_folder_refuses(folder, command, capsys):
    attack = "import os\nt5.T5Config.dropout_rate = @os.system()\nos.system.command = 'touch ran'\n"
    (folder / "config.gin").write_text(f"{IMPORTS}{attack}")
    (folder / "checkpoint_1" / "state").mkdir()
    questions = [Question("q", "who", ("x",), "2019-05")]
    write_questions(folder.parent / "questions.jsonl", questions)
    (folder.parent / "quiz").mkdir()
    (folder.parent / "quiz" / "P36.jsonl").write_text(
        '{"sub_id": "a", "sub_label": "A", "obj_id": "b", "obj_label": "B"}\n'
    )
    relation = {
        "P36": {
            "templates": ["[X] is [Y]."],
            "answer_space_ids": ["b"],
            "answer_space_labels": ["B"],
        }
    }
    (folder.parent / "quiz" / "metadata_relations.json").write_text(json.dumps(relation))
    program, *argv = command
    assert program.main(argv) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "--trust-imports=os" in err, err
    assert not (folder.parent / "ran").exists()
    # The cure is taken. What then stops it is that nothing else is in the file.
    assert program.main([*argv, "--trust-imports=os"]) == 2
    assert "imports" not in capsys.readouterr().err


def test_what_is_bound_is_what_was_checked(folder, monkeypatch):
    # Gin's own `include` knows no home folder: it would take the file below "~".
    home = folder.parent / "home"
    monkeypatch.setenv("HOME", str(home))
    for place in (home, folder / "~"):
        place.mkdir()
        (place / "more.gin").write_text(f"{IMPORTS}t5.T5Config.dropout_rate = 0.25\n")
    shutil.copy(folder / "more.gin", folder / "~" / "more.gin")
    (folder / "config.gin").write_text("include '~/more.gin'\n")
    scan = gin_config.load([str(folder / "config.gin")])
    assert scan.files == [str(folder / "config.gin"), str(home / "more.gin")]
    assert "dropout_rate = 0.25" in gin_config.config_text()
    assert not (folder.parent / "ran").exists()


def test_a_file_that_changes_after_it_was_checked(folder):
    (folder / "config.gin").write_text(f"{IMPORTS}t5.T5Config.dropout_rate = 0.25\n")
    source = gin_config.read([str(folder / "config.gin")])
    shutil.copy(folder / "more.gin", folder / "config.gin")
    gin_config.bind(source)
    assert "dropout_rate = 0.25" in gin_config.config_text()
