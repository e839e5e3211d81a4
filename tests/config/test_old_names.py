"""Gin files of earlier versions: the names of modules that have moved."""

import importlib.util

from ckl_jax.config import gin_config, old_names

# As a run folder of before has it; what a run binds besides is left out.
OLD = """from __gin__ import dynamic_registration
from ckl_jax.jobs import configs
from ckl_jax.jobs import ranking
from ckl_jax.jobs import simulated
from ckl_jax.models import t5
INITIAL_CHECKPOINT_PATH = @simulated.initial_checkpoint()
INITIAL_DIR = 'runs/initial'
VOCABULARY = @simulated.vocabulary_and_rows()
simulated.initial_checkpoint.gin_files = \\
    ('ckl_initial.gin',
     'tiny.gin')
simulated.vocabulary_and_rows.data_dir = 'data'
simulated.vocabulary_and_rows.length = 64
ranking.Settings.dataset = 'BEAR'
t5.T5Config.emb_dim = 32
"""


def test_every_module_that_has_moved_is_there():
    for new in old_names.MODULES.values():
        assert importlib.util.find_spec(f"ckl_jax.{new}"), new


def test_a_text_of_before_says_the_same_in_todays_names():
    new = old_names.translate(OLD)
    assert new.count("\n") == OLD.count("\n")
    lines = [line for line in new.split("\n") if line]
    assert lines[1:4] == [
        "from ckl_jax.train import configs",
        "from ckl_jax.papers.lm_pub_quiz import probe as ranking",
        "from ckl_jax.papers.ckl import simulated",
    ]
    assert lines[5:] == [
        "INITIAL_CHECKPOINT_PATH = %INITIAL_DIR",
        "INITIAL_DIR = 'runs/initial'",
        "VOCABULARY = @simulated.vocabulary()",
        "simulated.vocabulary.data_dir = 'data'",
        "ranking.Settings.dataset = 'BEAR'",
        "t5.T5Config.emb_dim = 32",
    ]
    assert old_names.translate(new) == new
    line = "from ckl_jax.data import masked_vocabulary\n"  # of an imported BERT
    assert old_names.translate(line) == line.replace("data", "data.text")


def test_such_a_file_is_read_and_bound(tmp_path):
    path = tmp_path / "config.gin"
    path.write_text(OLD.replace("ranking.Settings.dataset = 'BEAR'\n", ""))
    scan = gin_config.load([str(path)])
    assert scan.macros()["INITIAL_DIR"].value == "runs/initial"
    assert "from ckl_jax.papers.ckl import simulated" in gin_config.config_text()


def test_renamed_macros_and_parameters_are_read_by_their_old_names():
    old = (
        "INIT_DEVIATION = 0.02\n"
        "INIT_DEVIATIONS = 'INIT_DEVIATION'\n"
        "a/transformer_xl.TransformerXLConfig:\n"
        "    # of a run\n"
        "    num_layers = 2\n\n"
        "    init_deviation = %INIT_DEVIATION\n"
        "mine.Config:\n"
        "    init_deviation = 1\n"
        "transformer_xl.TransformerXLConfig.init_deviation = 0.02\n"
    )
    new = old_names.translate(old)
    assert new.split("\n") == [
        "INIT_STDDEV = 0.02",
        "INIT_DEVIATIONS = 'INIT_DEVIATION'",
        "a/transformer_xl.TransformerXLConfig:",
        "    # of a run",
        "    num_layers = 2",
        "",
        "    init_stddev = %INIT_STDDEV",
        "mine.Config:",
        "    init_deviation = 1",
        "transformer_xl.TransformerXLConfig.init_stddev = 0.02",
        "",
    ]
    assert old_names.translate(new) == new


def test_old_macros_are_read_on_the_command_line(tmp_path):
    path = tmp_path / "tiny.gin"
    path.write_text("INIT_STDDEV = None\nmodule.width = %INIT_STDDEV\n")
    source = gin_config.read([str(path)], ["INIT_DEVIATION = 0.5"])
    assert source.bindings == ["INIT_STDDEV = 0.5"]
    assert source.scan.macros()["INIT_STDDEV"].value == 0.5
