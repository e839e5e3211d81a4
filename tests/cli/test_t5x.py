"""The command's flags, help and errors, most of them without importing anything heavy."""

import importlib.util
import os
import resource
import subprocess
import sys

import pytest

from ckl_jax.cli import t5x
from tests.cli import example_job

HEAVY = {"jax", "flax", "gin", "tensorflow", "seqio", "orbax", "rich", "numpy"}


def command(*argv):
    return subprocess.run([sys.executable, "-m", "ckl_jax", *argv], capture_output=True, text=True)


@pytest.fixture
def job(monkeypatch, tmp_path):
    """A job in place of the real ones; returns what it was called with."""
    entry = "tests.cli.example_job:train"
    monkeypatch.setitem(t5x.MODES, "train", t5x.Mode(entry, "train", upstream="t5x.train"))
    monkeypatch.setitem(t5x.MODES, "infer", t5x.Mode(entry, "infer"))
    (tmp_path / "job.gin").write_text(
        "from __gin__ import dynamic_registration\nfrom tests.cli import example_job\n"
        "TRAIN_STEPS = 5\nMODEL_DIR = %gin.REQUIRED\n"
        "example_job.train.model_dir = %MODEL_DIR\nexample_job.train.total_steps = %TRAIN_STEPS\n"
    )
    monkeypatch.chdir(tmp_path)
    example_job.calls.clear()
    return example_job.calls


def error(capsys, *argv) -> str:
    assert t5x.main(argv) == 2
    err = capsys.readouterr().err
    assert err.startswith("t5x: ") and err.count("\n") == 1
    return err


@pytest.mark.parametrize("argv", [["--help"], ["train", "--help"], ["--version"], ["train", "-x"]])
def test_help_version_and_wrong_flags_import_nothing_heavy(argv):
    code = (
        f"import sys; from ckl_jax.cli.t5x import main; main({argv!r})\n"
        f"bad = {HEAVY!r} & set(sys.modules); assert not bad, bad"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)  # other processes take no part in it
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0


def test_module_and_script_are_one_command():
    done = command("--version")
    assert done.stdout.startswith("ckl_jax ") and done.returncode == 0
    done = command("trian")
    assert done.returncode == 2 and "Did you mean 'train'?" in done.stderr


def test_help_lists_modes_flags_macros_and_files(capsys, monkeypatch):
    from ckl_jax.config import gin_files

    monkeypatch.setattr(gin_files, "bundled_files", lambda: ["models/a.gin", "models/b.gin"])
    assert t5x.main(["train", "--help"]) == 0
    out = capsys.readouterr().out
    for text in (
        "t5x/configs/runs/.",
        "--gin_file",
        "--gin.MODEL_DIR=",
        "models/\n    a.gin  b.gin",
        "--process_index",
    ):
        assert text in out
    assert t5x.main([]) == 2


def test_help_has_no_long_lines(capsys):
    for mode in t5x.MODES:
        assert t5x.main([mode, "--help"]) == 0
        assert max(map(len, capsys.readouterr().out.splitlines())) <= 100


def test_flags_reach_the_job_in_t5x_order(job):
    assert t5x.main(["train", "--gin_file=job.gin", "--gin.MODEL_DIR='x'"]) == 0
    argv = ["--gin_file", "job.gin", "--gin_bindings=MODEL_DIR = 'y'", "--gin.TRAIN_STEPS=7"]
    assert t5x.main(["--run_mode=train", *argv, "--alsologtostderr", "--nodry_run"]) == 0
    assert t5x.main(["infer", *argv, "--shard_id=3", "--gin.example_job.train.total_steps=9"]) == 0
    assert job == [("x", 5, 0), ("y", 7, 0), ("y", 9, 3)]


def test_search_paths_are_searched(job, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/extra.gin").write_text("include 'job.gin'\nMODEL_DIR = 'from a'\n")
    assert t5x.main(["train", "--gin_file=extra.gin", "--gin_search_paths=b,a"]) == 0
    assert job[0][0] == "from a"


def test_dry_run_prints_the_configuration_and_calls_nothing(job, capsys):
    argv = ["train", "--gin_file=job.gin", "--gin.MODEL_DIR='x'", "--dry_run"]
    assert t5x.main(argv) == 0
    out = capsys.readouterr().out
    assert "MODEL_DIR = 'x'" in out and "example_job.train.total_steps = %TRAIN_STEPS" in out
    assert not job


def test_exit_codes_of_the_job(job, capsys):
    assert error(capsys, "train", "--gin_file=job.gin", "--gin.MODEL_DIR='bad'") == (
        "t5x: The disk is full.\n"
    )
    assert t5x.main(["train", "--gin_file=job.gin", "--gin.MODEL_DIR='stop'"]) == 130


SEVERAL = ("train", "--gin_file=job.gin", "--gin.MODEL_DIR='x'", "--process_count=2")


@pytest.mark.parametrize(
    "argv, expected",
    [
        (["train"], "needs --gin_file"),
        (["train", "--gin_fil=a"], "Unknown flag --gin_fil. Did you mean '--gin_file'?"),
        (["train", "--MODEL_DIR=a"], "--gin.MODEL_DIR=VALUE"),
        (["train", "--gin.MODEL_DIR", "a"], "needs its value after `=`"),
        (["train", "a.gin"], "'a.gin' is not a flag"),
        (["train", "--gin_file"], "--gin_file: expected one argument"),
        (["train", "--dry_run=maybe", "--gin_file=a"], "neither true nor false"),
        (["train", "--run_mode=eval"], "two modes"),
        (["train", "--gin_file=job.gin"], "The macro MODEL_DIR is not set"),
        (["train", "--gin_file=job.gin", "--gin.MODEL_DIR=/x/y"], "inner quotes: --gin.MODEL_DIR="),
        (["train", "--gin_file=jbo.gin"], "There is no gin file 'jbo.gin'"),
        (["train", "--gin_file=job.gin", "--shard_id=1"], "--shard_id is a flag of `t5x infer`"),
        (["train", "--gin_file=job.gin", "--process_count=2"], "give all three or none"),
        ([*SEVERAL, "--process_index=1", "--coordinator_address=h"], "is 'h'; give HOST:PORT"),
        ([*SEVERAL, "--process_index=1", "--coordinator_address=h:99999"], "give HOST:PORT"),
        ([*SEVERAL, "--process_index=2", "--coordinator_address=h:1"], "is 2 of --process_count 2"),
        (["train", "--gin_file=t5x/configs/runs/export.gin"], "export.gin is not offered by the"),
        (["train", "--gin_file=job.gin", "--process_count=two"], "--process_count: invalid int"),
        (["dynamic_eval", "--runner=upstream"], "T5X has no mode 'dynamic_eval'"),
    ],
)
def test_each_mistake_is_one_sentence(job, capsys, argv, expected):
    assert expected in error(capsys, *argv)


def test_upstream_runner_is_explained_or_executed(job, capsys, monkeypatch):
    argv = ["train", "--runner=upstream", "--gin_file=job.gin", "--gin.MODEL_DIR='x'"]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "not installed here" in error(capsys, *argv)
    executed = []
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(os, "execv", lambda program, args: executed.append(args))
    t5x.main(argv)
    assert executed[0][1:5] == ["-m", "t5x.train", "--gin_file=job.gin", "--gin.MODEL_DIR='x'"]
    words = ["--run_mode", "train", "--runner", "upstream", *argv[2:], "--dry_run"]
    t5x.main(words)  # T5X's train.py has no --dry_run, its main.py does
    assert executed[1][1:6] == ["-m", "t5x.main", *argv[2:], "--dry_run"]
    assert executed[1][6] == "--run_mode=train"


def test_jax_flags_go_to_the_environment(monkeypatch):
    monkeypatch.setenv("JAX_DEBUG_NANS", "")
    assert t5x._rewrite(["--jax_debug_nans=true", "--gin.A=1"]) == ["--gin_bindings=A = 1"]
    assert os.environ["JAX_DEBUG_NANS"] == "true"
