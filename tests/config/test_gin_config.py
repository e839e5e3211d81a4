"""Gin files are found, bound at a plain function, and explained when they are wrong."""

import ast
import gc
import importlib.util
import re

import gin
import pytest

from ckl_jax.config import gin_config, gin_files
from ckl_jax.errors import UserError
from tests.config import gin_example

MODEL = """
from __gin__ import dynamic_registration
from tests.config import gin_example
MODEL = @gin_example.Model()
DROPOUT_RATE = 0.1
gin_example.Model.width = 8
gin_example.Model.dropout = %DROPOUT_RATE
"""
JOB = """
from __gin__ import dynamic_registration
from tests.config import gin_example
include 'models/small.gin'
MODEL_DIR = %gin.REQUIRED
TRAIN_STEPS = 5
gin_example.train:
  model = %MODEL
  model_dir = %MODEL_DIR
  total_steps = %TRAIN_STEPS
"""
SET_DIR = "MODEL_DIR = '/x'"


@pytest.fixture(autouse=True)
def bundled(tmp_path, monkeypatch):
    root = tmp_path / "gin_configs"
    (root / "models").mkdir(parents=True)
    (root / "experiments").mkdir()
    (root / "models/small.gin").write_text(MODEL)
    (root / "job.gin").write_text(JOB)
    (root / "experiments/ckl_lora.gin").write_text("include 'job.gin'\nTRAIN_STEPS = 7\n")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(gin_files, "BUNDLED", root)
    yield root
    gin.clear_config()


def run(file="job.gin", *bindings, **kwargs):
    files = [file] if isinstance(file, str) else file
    return gin_config.run_job(gin_example.train, files=files, bindings=bindings, **kwargs)


def error(file="job.gin", *bindings, **kwargs) -> str:
    with pytest.raises(UserError) as e:
        run(file, *bindings, **kwargs)
    assert "\n" not in str(e.value)
    return str(e.value)


def write(bundled, text, name="mine.gin"):
    header = "from __gin__ import dynamic_registration\nfrom tests.config import gin_example\n"
    (bundled / name).write_text(header + text)
    return ["job.gin", name]


def test_macros_includes_and_overrides():
    assert run("job.gin", SET_DIR) == (8, 0.1, "/x", 5, "none")
    assert run("job.gin", SET_DIR, "TRAIN_STEPS = 9", "DROPOUT_RATE = 0.0")[1:4] == (0.0, "/x", 9)
    assert run("job.gin", SET_DIR, "gin_example.train.note = 'hi'")[-1] == "hi"
    assert run("job.gin", SET_DIR, note="caller")[-1] == "caller"
    assert gin_example.train(model=gin_example.Model(1), model_dir="", total_steps=0)[0] == 1


def test_a_second_run_remembers_nothing_of_the_first():
    run("job.gin", SET_DIR, "gin_example.train.note = 'hi'")
    assert run("job.gin", SET_DIR)[-1] == "none"
    assert "MODEL_DIR is not set" in error()


def test_files_by_bare_name_below_the_bundled_folder_and_by_search_path(tmp_path):
    assert run("ckl_lora.gin", SET_DIR)[3] == 7
    assert run("experiments/ckl_lora.gin", SET_DIR)[3] == 7
    mine = tmp_path / "mine"
    (mine / "models").mkdir(parents=True)
    (mine / "models/small.gin").write_text(MODEL.replace("= 8", "= 16"))
    assert run("job.gin", SET_DIR, search_paths=[str(mine)])[0] == 16
    assert run("job.gin", SET_DIR)[0] == 8
    (tmp_path / "work/job.gin").write_text(JOB.replace("= 5", "= 6"))
    assert run("job.gin", SET_DIR)[3] == 6
    (mine / "local.gin").write_text("include 'job.gin'\ninclude 'beside.gin'\n")
    (mine / "beside.gin").write_text("TRAIN_STEPS = 3\n")
    assert run(str(mine / "local.gin"), SET_DIR)[3] == 3


def test_t5x_script_modules_resolve_to_the_job(bundled):
    (bundled / "script.gin").write_text(
        "from __gin__ import dynamic_registration\nimport __main__ as train_script\n"
        "include 'job.gin'\ntrain_script.train.note = 'script'\n"
    )
    assert run("script.gin", SET_DIR)[-1] == "script"


def test_another_function_gets_the_arguments_of_the_job():
    given = run("job.gin", SET_DIR, instead=lambda **kw: kw, note="n")
    assert given["model"].width == 8
    assert {**given, "model": 0} == {
        "model": 0,
        "model_dir": "/x",
        "total_steps": 5,
        "note": "n",
    }


def test_a_run_inside_a_run_would_forget_its_configuration():
    def nested(**kwargs):
        return run("job.gin", SET_DIR)

    with pytest.raises(RuntimeError, match="one configuration only"):
        run("job.gin", SET_DIR, instead=nested)
    assert run("job.gin", SET_DIR)[-1] == "none"


def test_config_text_parses_again(tmp_path):
    text = run("job.gin", SET_DIR, dry_run=True)
    assert "TRAIN_STEPS = 5" in text and "from tests.config import gin_example" in text
    (tmp_path / "work/again.gin").write_text(text)
    assert run("again.gin") == (8, 0.1, "/x", 5, "none")
    assert "gin_example.Model.dropout = %DROPOUT_RATE" in gin.operative_config_str()


def test_unknown_files_and_macros_name_the_nearest():
    assert "Did you mean 'job.gin'" in error("jobs.gin")
    assert "Did you mean 'experiments/ckl_lora.gin'" in error("ckl_lora_.gin")
    assert "Bind gin_example.train.total_steps" in error("job.gin", SET_DIR, "TOTAL_STEPS = 3")
    assert "mean 'MODEL'" not in error("job.gin", SET_DIR, "MODEL_DIRECTORY_ = 3")
    message = error("job.gin", SET_DIR, "TRAIN_STEP = 3")
    assert "--gin.TRAIN_STEP" in message and "Did you mean 'TRAIN_STEPS'" in message
    assert "They use DROPOUT_RATE, MODEL, MODEL_DIR" in error("job.gin", SET_DIR, "ZZZ = 3")
    message = error("job.gin", SET_DIR, "MODEL = @models.Model()")
    assert "'@models.Model()'. A gin file of your own can import its module" in message


def test_a_macro_of_a_file_that_nothing_uses_is_told(bundled, tmp_path):
    text = "include 'job.gin'\nTRAIN_STEP = 3\nTOTAL_STEPS = 4\nMODEL_DI = 'x'\nZZZ = 1\n"
    own = tmp_path / "work" / "own.gin"
    own.write_text(text)
    with pytest.warns(UserWarning) as told:
        assert run("own.gin", SET_DIR)[3] == 5
    messages = [str(w.message).removeprefix(f"{own}, ") for w in told]
    assert messages == [
        "line 2: no gin file uses the macro TRAIN_STEP. Did you mean 'TRAIN_STEPS'?",
        "line 3: no gin file uses the macro TOTAL_STEPS. Bind gin_example.train.total_steps in its "
        "place.",
        "line 4: no gin file uses the macro MODEL_DI. Did you mean 'MODEL_DIR'?",
        "line 5: no gin file uses the macro ZZZ.",
    ]
    # What a run wrote has the macros of bundled files, which some methods do not use.
    (tmp_path / "work/config.gin").write_text(text)
    (bundled / "ours.gin").write_text(text)
    assert run("config.gin", SET_DIR) == run("ours.gin", SET_DIR)  # warnings are errors


def test_an_unset_macro_is_named_with_its_file(bundled):
    message = error("job.gin")
    assert re.search(r"The macro MODEL_DIR is not set \(.*job.gin, line 5 needs it\)", message)
    assert "--gin.MODEL_DIR=\"'text'\"" in message
    (bundled / "models/small.gin").write_text("")
    assert "include a model's gin file, such as 'models/" in error("job.gin", SET_DIR)
    (bundled / "models/small.gin").write_text(MODEL)
    message = error(write(bundled, "gin_example.train.note = %NOTE\n"), SET_DIR)
    assert "NOTE is not set" in message and "mine.gin, line 3" in message
    message = error(write(bundled, "gin_example.train.note = %gin.REQUIRED\n"), SET_DIR)
    assert "gin_example.train.note is required" in message


def test_a_macro_that_a_mode_does_without_need_not_be_set(bundled):
    assert run("job.gin", overrides=["MODEL_DIR = None"])[2] is None
    open_only = {"overrides": ["MODEL_DIR = 'y'", "TRAIN_STEPS = 1"]}  # the file sets the other
    assert run("job.gin", **open_only)[2:4] == ("y", 5)
    assert run("job.gin", SET_DIR, **open_only)[2:4] == ("/x", 5)
    files = write(bundled, "MODEL_DIR = %gin.REQUIRED\nTRAIN_STEPS = %gin.REQUIRED\n")
    assert "TRAIN_STEPS is not set" in error(files, overrides=["MODEL_DIR = None"])


def test_an_unset_argument_of_the_job_is_named(bundled):
    (bundled / "bare.gin").write_text("")
    message = error("bare.gin")
    assert "gin_example.train.model, gin_example.train.model_dir" in message
    files = write(bundled, "MODEL = @b/gin_example.Model()\n")
    (bundled / "models/small.gin").write_text(MODEL.replace("gin_example.Model.width = 8", ""))
    assert "'width' of Model unset" in error(files, SET_DIR)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("gin_example.train.totl_steps = 3", "named 'totl_steps'. Did you mean 'total_steps'?"),
        ("gin_example.trian.note = 'a'", "no attribute trian. Did you mean 'train'?"),
        ("gin_exampel.train.note = 'a'", "import statement. Did you mean 'gin_example'?"),
        ("gin_example.train.note = @gin_example.Modle()", "Did you mean 'Model'?"),
        ("from tests.config import gin_exampel", "Did you mean 'gin_example'?"),
    ],
)
def test_wrong_names_in_files_have_file_line_and_the_nearest(bundled, text, expected):
    message = error(write(bundled, text + "\n"), SET_DIR)
    assert "mine.gin, line 3: " in message
    assert expected in message and "<" not in message and "\n" not in message


@pytest.mark.parametrize(
    "text, expected",
    [
        (
            "import t5.data.mixtures",
            "No module named 't5'. The package t5 is not installed: pip install --no-deps t5, ",
        ),
        (
            "from no_such_tasks import news",
            "No module named 'no_such_tasks'. no_such_tasks is neither installed nor in the folder",
        ),
    ],
)
def test_a_package_that_a_file_imports_is_said_with_the_way_to_get_it(bundled, text, expected):
    if importlib.util.find_spec(text.split()[1].split(".")[0]):
        pytest.skip("it is installed here")
    message = error(write(bundled, text + "\n"), SET_DIR)
    assert f"mine.gin, line 3: `{text}`: {expected}" in message


def test_wrong_names_on_the_command_line_have_the_nearest():
    message = error("job.gin", SET_DIR, "gin_example.train.totl_steps = 3")
    assert message.startswith("the command line") and "Did you mean 'total_steps'?" in message
    assert "Did you mean 'gin_example.train'?" in error(
        "job.gin", SET_DIR, "gin_example.tran.note = 3"
    )


def test_files_that_are_cut_off_or_no_text_say_so(tmp_path):
    path = tmp_path / "a.gin"
    for content, told in (
        (b"A = (1,\n", "a bracket or a quote is open"),
        (b"\xff\xfe=1\n", "line 1: not UTF-8"),
    ):
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"a.gin.* {told}"):
            gin_config.load([str(path)])


def test_syntax_errors_have_file_and_line_and_a_hint_about_quotes(bundled):
    message = error(write(bundled, "\nA = foo bar\n"), SET_DIR)
    assert "mine.gin, line 4: cannot read the value 'foo'" in message
    assert "mine.gin, line 3" in error(write(bundled, "A 3\n"), SET_DIR)
    assert "mine.gin" in error(write(bundled, "A = (1,\n"), SET_DIR)
    message = error(write(bundled, "from tests.config import gin_example, other\n"), SET_DIR)
    assert "mine.gin, line 3: Expected newline. An import of gin names one thing; give" in message
    assert r"cannot read the value '\x' in" in error("job.gin", r"MODEL_DIR = '\x'")
    for value in ("/tmp/run", "gs://b/run", "run", "3rd"):
        message = error("job.gin", f"MODEL_DIR = {value}")
        assert f"--gin.MODEL_DIR=\"'{value}'\"" in message


def test_a_finalizer_that_parses_does_not_disturb_the_reading_of_values():
    class Garbage:
        made = True

        def __init__(self):
            self.itself = self

        def __del__(self):
            ast.parse("x = 1")
            if Garbage.made:
                Garbage()

    thresholds = gc.get_threshold()
    try:
        for often in range(5, 40):
            gc.set_threshold(often)
            Garbage()
            gin_config.load(["job.gin"], [SET_DIR, "gin_example.train.note = ['a', (1, 'b')]"])
    finally:
        Garbage.made = False
        gc.set_threshold(*thresholds)
        gc.collect()
    assert gc.isenabled()


def test_includes_that_are_missing_or_endless(bundled):
    message = error(write(bundled, "include 'models/smal.gin'\n"), SET_DIR)
    assert "mine.gin, line 3: There is no gin file" in message
    assert "Did you mean 'models/small.gin'?" in message
    assert "includes itself" in error(write(bundled, "include 'mine.gin'\n"), SET_DIR)


def test_an_error_of_the_system_keeps_its_number_and_file(bundled, tmp_path):
    """Gin repeats errors at each function that it calls, without these."""
    with pytest.raises(FileNotFoundError) as e:
        run(write(bundled, "gin_example.train.model = @gin_example.opened()"), SET_DIR)
    assert e.value.filename == "/no/such/file" and "In call" not in str(e.value)


def test_a_user_error_of_the_job_comes_out_as_it_was():
    message = error("job.gin", SET_DIR, "TRAIN_STEPS = -1")
    assert message == "total_steps is -1; it must be positive."
