"""Functions of a user's own, found in the working directory."""

import sys

from ckl_jax.data import plugins
from tests.tiny import ROOT


def test_the_working_directory_comes_before_what_is_installed(tmp_path, monkeypatch):
    """Also where a package of the same name, such as this repository's tasks/, is on the path."""
    for name in [n for n in sys.modules if n.split(".")[0] == "tasks"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "mine.py").write_text("def ask(texts):\n    return texts\n")
    try:
        assert plugins.load("tasks.mine:ask", "--ask")(["a"]) == ["a"]
    finally:
        for name in [n for n in sys.modules if n.split(".")[0] == "tasks"]:
            del sys.modules[name]
