"""Files are whole or absent, also when their writer is killed."""

import gzip
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from ckl_jax import files
from ckl_jax.cli import ckl
from ckl_jax.data.json_rows import numbered_rows
from ckl_jax.errors import UserError

KILLED = """
import os, signal, sys
from ckl_jax import files
from ckl_jax.cli import ckl

with files.atomic_write(sys.argv[1]) as f:
    f.write("half")
    f.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_compressed_file_that_is_cut_off_is_named(tmp_path):
    text = "".join(f'{{"number": {i}}}\n' for i in range(9999)).encode()
    whole, cut = tmp_path / "whole.jsonl.gz", tmp_path / "cut.jsonl.gz"
    whole.write_bytes(gzip.compress(text))
    cut.write_bytes(whole.read_bytes()[:-2000])
    assert sum(1 for _ in numbered_rows(whole)) == 9999
    with pytest.raises(
        UserError, match="cut.jsonl.gz: the compressed data stop at byte .* truncated"
    ):
        list(numbered_rows(cut))


NAMED = KILLED.replace(
    "with files", "vars(os).pop('O_TMPFILE', None)  # as on macOS, and on NFS\nwith files", 1
)


@pytest.mark.parametrize("name", ["rows.jsonl", "probes/rows.jsonl"])
@pytest.mark.parametrize(
    ("program", "left"),
    [
        pytest.param(
            KILLED, 0, marks=pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="Linux only")
        ),
        (NAMED, 1),
    ],
)
def test_a_killed_writer_leaves_the_old_file(tmp_path, name, program, left):
    path = tmp_path / name
    files.write_file(path, "whole")
    done = subprocess.run([sys.executable, "-c", program, path], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == "whole"
    assert len(os.listdir(path.parent)) == 1 + left
    files.remove_parts(tmp_path)  # what the folder's owner does
    assert os.listdir(path.parent) == [path.name]


def test_a_folder_takes_the_place_of_another_whole_or_not_at_all(tmp_path):
    path = tmp_path / "out"
    for name in ("first", "second"):
        with files.atomic_folder(path) as work:
            (work / name).write_text(name)
            assert work.parent == path.parent and (name == "first") != path.exists()
        assert os.listdir(tmp_path) == ["out"] and os.listdir(path) == [name]
    with pytest.raises(ValueError, match="half"), files.atomic_folder(path) as work:
        (work / "third").write_text("half")
        raise ValueError("half")
    assert os.listdir(tmp_path) == ["out"] and os.listdir(path) == ["second"]


def test_a_writer_that_raises_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="half"), files.atomic_write(tmp_path / "rows.jsonl") as f:
        f.write("half")
        raise ValueError("half")
    assert not os.listdir(tmp_path)


def test_text_that_is_no_unicode_is_refused_and_leaves_nothing(tmp_path):
    """Such as an option of the command line whose bytes are not UTF-8."""
    with pytest.raises(UserError, match=r"'\\udcff' in it is no character"):
        files.write_file(tmp_path / "x", "a\udcff")
    assert not list(tmp_path.iterdir())


def test_what_a_command_does_not_write_again_goes(tmp_path):
    """With --overwrite; but for others' files and what lies elsewhere, whatever the mark says."""
    out, outside = tmp_path / "out", tmp_path / "outside"
    outside.write_text("mine")

    def fill(*names, command="ckl data quiz", overwrite=True):
        with files.claimed_folder(out, command, overwrite):
            for name in names:
                files.write_file(out / name, command)
        return sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())

    assert fill("a", "b", "in/c") == [".made_by", "a", "b", "in/c"]
    (out / "notes").write_text("mine")
    (out / "link").symlink_to(outside)
    assert fill("a", overwrite=False) == [".made_by", "a", "b", "in/c", "link", "notes"]
    assert fill("a", "b", "in/c") == [".made_by", "a", "b", "in/c", "link", "notes"]
    assert fill("a") == [".made_by", "a", "link", "notes"]
    assert fill() == [".made_by", "a", "link", "notes"]  # it wrote nothing: all was there
    with open(out / ".made_by", "a") as mark:
        mark.write(f"../outside\n{outside}\nlink\n.\nnowhere\n")
    assert fill("b") == [".made_by", "b", "link", "notes"]
    assert fill("c", command="ckl world --seed 1") == [".made_by", "b", "c", "link", "notes"]
    assert outside.read_text() == (out / "notes").read_text() == "mine"
    with pytest.raises(ValueError), files.claimed_folder(out, "ckl world --seed 1"):
        files.write_file(out / "d", "")
        raise ValueError
    assert (out / "c").exists()  # a failure removes nothing
    mark = (out / ".made_by").read_bytes()
    with pytest.raises(ValueError), files.claimed_folder(out, "ckl data kilt", True):
        raise ValueError  # as a refusal does
    assert (out / ".made_by").read_bytes() == mark
    assert fill("d", command="ckl world --seed 2") == [".made_by", "b", "d", "link", "notes"]


def test_two_cannot_fill_a_folder_at_once(tmp_path):
    """The second is refused, and what the first has written stays."""
    out = tmp_path / "new" / "out"
    with files.claimed_folder(out, "ckl world"):
        files.write_file(out / "a", "of the first")
        with (
            pytest.raises(UserError, match=r"out is being filled by another process; wait"),
            files.claimed_folder(out, "ckl world"),
        ):
            files.write_file(out / "a", "of the second")
    assert (out / "a").read_text() == "of the first"
    with files.claimed_folder(out, "ckl world"):
        pass
    held = os.open(out, os.O_RDONLY)
    assert files.lock(held)
    os.close(held)


@pytest.mark.parametrize(
    "command",
    [
        ["world", "--size", "tiny", "--out"],
        ["data", "prepare", "--dir", ".", "--out"],
        ["data", "kilt", "--size", "tiny", "--out"],
        ["proper-nouns", "a", "--initial", "b", "--out"],
    ],
)
def test_commands_refuse_a_folder_that_is_being_filled(tmp_path, capsys, command):
    with files.locked(tmp_path / "out"):
        assert ckl.main([*command, str(tmp_path / "out")]) == 2
        assert "out is being filled by another process" in capsys.readouterr().err
        assert not any((tmp_path / "out").iterdir())


def test_a_lock_is_waited_for(tmp_path):
    order = []

    def second():
        with files.locked(tmp_path, wait=True):
            order.append("second")

    with files.locked(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.1)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]


def test_json_for_every_reader_has_no_nan():
    value = {"a": [float("nan"), -float("inf"), 0.1, "é"], "b": {"c": ValueError("x")}}
    assert files.without_nan(value, str) == {"a": [None, None, 0.1, "é"], "b": {"c": "x"}}


@pytest.mark.parametrize(
    "wrong, said",
    [
        (r'"a \ud83d\ude00 b", "\ud83d"', r"\ud83d is half of a surrogate pair"),
        (r'"\ude00"', r"\ude00 is half of a surrogate pair"),
        ("[" * 100_000 + "]" * 100_000, "too deep"),
        ("[" * 100_000 + '"' + r"\"" * 1_000_000, "too deep"),
        ("1" * 5000, "a number of more than 4,300 digits"),
        ("NaN", "NaN is not a number"),
        ("1e999", "1e999 is too large"),
        ("?", "Expecting value"),
    ],
    ids=["half", "other half", "deep", "deep, then a text", "digits", "nan", "large", "syntax"],
)
def test_the_line_of_what_is_wrong_is_told(wrong, said):
    text = f'{{"fine": ["[[", "\\ud83d\\ude00", 1],\n"wrong": [{wrong}],\n"more": 1}}'
    for given in (text, text.encode()):
        with pytest.raises(UserError, match=re.escape(f"f.json, line 2: not JSON ({said}")):
            files.json_value(given, "f.json")
