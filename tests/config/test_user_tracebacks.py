"""Which line of a user's code an error is blamed on."""

import functools
import os
import sys
import types

import pytest

from ckl_jax.cli import endings, t5x
from ckl_jax.config import user_tracebacks


def raised(path, code, **names):
    path.write_text(code)
    with pytest.raises(Exception) as info:
        exec(compile(code, str(path), "exec"), names)
    return info.value


def test_the_users_line_is_found_below_a_library(tmp_path):
    import json

    path = tmp_path / "mine.py"
    error = raised(path, "def row(x):\n    return json.loads(x)\n\nrow('{')", json=json)
    assert user_tracebacks.place(error) == f"row ({path}, line 2)"
    assert user_tracebacks.described(error).startswith("JSONDecodeError: Expecting property name")


def test_the_first_error_of_a_chain_counts(tmp_path):
    path = tmp_path / "mine.py"
    code = "try:\n    1 / 0\nexcept Exception as e:\n    raise ValueError('Failed') from e"
    error = raised(path, code)
    assert user_tracebacks.described(error) == "ZeroDivisionError: division by zero"
    assert user_tracebacks.place(error) == f"{path}, line 2"


def test_a_traceback_in_the_text_is_read(tmp_path):
    text = (
        "{{function_node __wrapped__IteratorGetNext}} KeyError: 'x'\n"
        "Traceback (most recent call last):\n"
        f'\n  File "{user_tracebacks.__file__}", line 3, in call\n'
        f'\n  File "{tmp_path}/mine.py", line 7, in f\n    return d["x"]\n\nKeyError: \'x\'\n'
        "\n\n\t [[{{node EagerPyFunc}}]]"
    )
    assert user_tracebacks.described(RuntimeError(text)) == "KeyError: 'x'"
    assert user_tracebacks.place(RuntimeError(text)) == f"f ({tmp_path}/mine.py, line 7)"
    assert user_tracebacks.place(RuntimeError("no place")) is None
    assert (
        user_tracebacks.described(RuntimeError("{{node}} no place.\nmore"))
        == "RuntimeError: no place"
    )


def test_a_use_is_found_in_the_functions_of_a_task_and_of_their_file(tmp_path):
    path, names = tmp_path / "mine.py", {}
    code = """
def row(x):
    return x.upper()

def step(ds):
    def checked(x):
        y = row(x)
        return y.lower()
    return checked
"""
    exec(compile(code, str(path), "exec"), names)
    steps = [os.path.join, functools.partial(names["step"])]
    assert user_tracebacks.use("lower", steps) == f"checked ({path}, line 8)"
    assert user_tracebacks.use("upper", steps) == f"row ({path}, line 3)"
    assert user_tracebacks.use("fspath", steps) is None  # a library's
    assert user_tracebacks.definitions(steps) == [f"step ({path}, line 5)"]


def test_the_iterators_of_tensorflow_are_left_out():
    text = (
        "{{function_node __wrapped__IteratorGetNext}} Error in user-defined function passed to "
        "MapDataset:1 transformation with iterator: Iterator::Root::ParallelMapV2: assertion failed"
    )
    assert user_tracebacks.described(RuntimeError(text)) == "RuntimeError: assertion failed"


def test_the_command_line_ends_with_a_sentence_that_names_the_users_function(tmp_path, capsys):
    path = tmp_path / "mine.py"
    error = raised(path, "def metric(x):\n    return x['em']\n\nmetric({})")

    def job():
        raise error

    assert endings.run_command("t5x", job) == 1
    *trace, sentence = capsys.readouterr().err.splitlines()
    assert sentence == f"t5x: metric ({path}, line 2) failed: KeyError: 'em'."
    assert f'  File "{path}", line 4, in <module>' in trace
    with pytest.raises(ZeroDivisionError):  # an error of ours goes on
        endings.run_command("t5x", functools.partial(eval, "1 / 0"))


def test_a_function_that_does_not_take_what_it_is_given_is_named(tmp_path, capsys):
    """Of such a call there is no frame of the user's."""
    path, made = tmp_path / "mine.py", {}
    own = "def loss(x):\n    return x\n\nclass Probe:\n    def loss(self):\n        return 1\n"
    exec(compile(own, str(path), "exec"), made)
    ours = "def plain(loss):\n    loss()\n\ndef held(by):\n    by.loss(1, 2)\n"
    ours += "def of(by):\n    by.metrics['mine']()\n"
    exec(compile(ours, user_tracebacks.__file__, "exec"), made)
    for call, held, line in [
        ("plain", made["loss"], 1),
        ("held", types.SimpleNamespace(loss=made["loss"]), 1),
        ("held", made["Probe"](), 5),
        ("of", types.SimpleNamespace(metrics={"mine": made["loss"]}), 1),
    ]:
        assert endings.run_command("t5x", functools.partial(made[call], held)) == 1
        said = capsys.readouterr().err
        assert said.startswith(f"t5x: loss ({path}, line {line}) failed: TypeError: ")
        assert "loss() " in said and said.count("\n") == 1


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("x = undefined\n", "line 2: NameError: name 'undefined' is not defined, in {}, line 1."),
        ("import nothing_there\n", "No module named 'nothing_there', in {}, line 1."),
        ("x = (\n", "{}, line 1: SyntaxError: '(' was never closed."),
    ],
)
def test_a_module_that_a_gin_file_imports_fails(tmp_path, monkeypatch, capsys, module, said):
    name = f"tasks_{abs(hash(said))}"
    path = tmp_path / f"{name}.py"
    path.write_text(module)
    (tmp_path / "my.gin").write_text(f"from __gin__ import dynamic_registration\nimport {name}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert t5x.main(["train", f"--gin_file={tmp_path / 'my.gin'}"]) == 2
    assert said.format(path) in capsys.readouterr().err
