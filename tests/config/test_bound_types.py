"""Values of gin files are compared with the types of parameters before anything runs."""

import re

import gin
import pytest

from ckl_jax.config import gin_config
from ckl_jax.errors import UserError
from ckl_jax.train.train import train

HEADER = """
from __gin__ import dynamic_registration
from ckl_jax.data.text import vocabularies
from ckl_jax.models import t5
from ckl_jax.parallel import mesh
from ckl_jax.train import configs
from ckl_jax.train import train
"""


@pytest.fixture
def load(tmp_path):
    """Reads a gin file of these lines, and bindings of the command line."""

    def read(lines, *bindings):
        (tmp_path / "mine.gin").write_text(f"{HEADER}{lines}\n")
        gin_config.load([str(tmp_path / "mine.gin")], bindings)

    yield read
    gin.clear_config()


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("train.train.epochs = 'x'", "train.train.epochs is 'x'; give a whole number or None (F)"),
        ("EPOCHS = 1.5\ntrain.train.epochs = %EPOCHS", "EPOCHS is 1.5; give a whole number or None "
         "(F, for train.train.epochs)"),
        ("A = %B\nB = 'x'\ntrain/train.train.eval_period = %A", "B is 'x'; give a whole number or "
         "None (F, for train/train.train.eval_period)"),
        ("configs.DatasetConfig.cache_dirs = 'data'", "is 'data'; give a list of names, such as "
         "('data',) (F)"),
        ("B = 'x'\nconfigs.DatasetConfig.task_feature_lengths = {'targets': %B}",
         "lengths is {'targets': 'x'}; give {text: a whole number} (F)"),
        ("configs.DatasetConfig.use_cached = 'yes'", "is 'yes'; give True or False (F)"),
        ("train.train.method = @vocabularies.Vocabulary()\ntrain.train.method = 3",
         "is 3; give one such as @vocabularies.Vocabulary() (F)"),
        ("train.train.optimizer = 'adam'", "is 'adam'; give a function, such as @module.function"),
        ("mesh.Partitioner.mesh_shape = 3", "is 3; give {text: a whole number} or a list of whole "
         "numbers, such as (3,) or None (F)"),
        ("configs.RestoreCheckpointConfig.assignment_map = [('a',)]", "is [('a',)]; give a list, "
         "each (text, text or None) (F)"),
        ("train.train.epochs = True", "is True; give a whole number or None (F)"),
        ("train.train.clip_norm = True", "is True; give a number or None (F)"),
        ("train.train.eval_first = " + repr("x" * 99), "train.train.eval_first is a str; give"),
        ("configs.SaveCheckpointConfig.keep_best = {}", "is {}; give one such as @store.KeepBest"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused_with_its_place(load, tmp_path, lines, said):
    with pytest.raises(UserError) as e:
        load(lines)
    assert "\n" not in str(e.value) and not gin.config_is_locked()
    text = re.sub(rf"{tmp_path}/mine.gin, line \d+", "F", str(e.value))
    assert said in text and "F" in text


def test_the_line_is_that_of_the_value(load):
    with pytest.raises(UserError, match=r"mine.gin, line 9, for train.train.epochs\)\.$"):
        load("A = 1\nEPOCHS = 'x'\ntrain.train.epochs = %EPOCHS")


def test_the_command_line_is_a_place_too(load):
    load("train.train.epochs = 3")
    with pytest.raises(UserError, match=r"epochs is 'x'; .* \(the command line\)\.$"):
        load("train.train.epochs = 3", "train.train.epochs = 'x'")
    with pytest.raises(UserError, match=r"E is 'x'; .* \(the command line, for train.train.ep"):
        load("E = 3\ntrain.train.epochs = %E", "E = 'x'")


@pytest.mark.parametrize(
    "lines",
    [
        "train.train.epochs = 'x'\ntrain.train.epochs = 3",  # what holds at the end counts
        "train.train.epochs = None",
        "train.train.clip_norm = 1",
        "train.train.evaluations = []",
        "configs.DatasetConfig.cache_dirs = ['a', 'b']",
        "configs.DatasetConfig.cache_dirs = (@vocabularies.Vocabulary(), 3)",
        "configs.RestoreCheckpointConfig.assignment_map = [['a', None], ('b', 'c')]",
        "mesh.Partitioner.mesh_shape = [1, 8]",
        "train.train.epochs = %LATER\nLATER = @vocabularies.Vocabulary()",
        "t5.T5Config.dtype = 'bfloat16'",
    ],
)
def test_values_that_may_be_right_pass(load, lines):
    load(lines)


def test_functions_of_others_are_left_alone(load, tmp_path, monkeypatch):
    (tmp_path / "my_method.py").write_text("def mine(rank: int):\n    return rank\n")
    monkeypatch.syspath_prepend(tmp_path)
    load("import my_method\nmy_method.mine.rank = 'x'")


def test_what_the_caller_sets_to_none_is_not_compared(tmp_path):
    (tmp_path / "mine.gin").write_text(f"{HEADER}METHOD = 3\ntrain.train.method = %METHOD\n")
    given = {"files": [str(tmp_path / "mine.gin")], "instead": lambda **given: sorted(given)}
    given |= {name: None for name in gin_config.missing_arguments(train, {})}
    with pytest.raises(UserError, match="METHOD is 3; give one such as @method.Method"):
        gin_config.run_job(train, **given)
    assert "method" in gin_config.run_job(train, **given, overrides=["METHOD = None"])
