"""The folder of a study: which settings may change in it, and what its trainings are told."""

import contextlib
import dataclasses
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM

import pytest

from ckl_jax.errors import UserError
from ckl_jax.train import studies, subprocess_runs
from ckl_jax.train.subprocess_runs import SUMMARY, Training
from tests.tiny import ROOT, newest_step
from tests.xla_flags import xla_flags


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(studies.StudySettings):
    methods: tuple[str, ...] = ("a",)
    months: int = 2


def test_only_some_settings_may_change(tmp_path, capsys):
    def run(**changes):
        settings = Settings(**{"out": str(tmp_path), **changes})
        may_become = lambda name, before, now: name == "months" and now > before  # noqa: E731
        with studies.open_study(
            settings, "study.json", "study", free=("methods",), may_become=may_become
        ) as study:
            study.step("Data")
            study.step("Report")
            return study.done(tmp_path / "report.html")

    run(seed=1)  # nothing was made
    assert run() == tmp_path / "report.html"
    (tmp_path / "data").mkdir()
    assert run(methods=("b",), jobs=3) == run(months=3) == tmp_path / "report.html"
    assert capsys.readouterr().out.startswith("1. Data\n2. Report\nDone in 0 s: ")
    run(months=3, bindings=("EPOCHS = 2",))  # nothing is trained yet
    (tmp_path / "model" / "checkpoint_1").mkdir(parents=True)
    kept = {"months": 3, "bindings": ("EPOCHS = 2",)}
    for name, value in {"seed": 1, "months": 2, "bindings": ()}.items():
        with pytest.raises(UserError, match=f"holds a study with (an)?other {name} "):
            run(**{**kept, name: value})
    with pytest.raises(UserError, match="--seed is -1; give 0 or more"):
        run(seed=-1)
    with pytest.raises(UserError, match="gs://a/b is an address"):
        Settings(out="gs://a/b")  # a plan makes nothing, and would not find out
    for record in ("[]", "3", '"a"', "null"):
        (tmp_path / "study.json").write_text(record)
        with pytest.raises(UserError, match=re.escape(f"study.json holds {record}, which is not")):
            run(**kept)


@pytest.mark.parametrize("made", [False, True])
def test_a_study_that_is_refused_before_it_makes_anything_leaves_nothing(made, tmp_path):
    settings = Settings(out=str(tmp_path / "runs" / "study"))
    with pytest.raises(UserError, match="line 3"):
        with studies.open_study(settings, "study.json", "study"):
            if made:
                (settings.root / "data").mkdir()
            raise UserError("corpus.jsonl, line 3: no JSON; mend it.")
    assert (tmp_path / "runs").exists() == made == (settings.root / "study.json").exists()


def test_a_training_says_where_its_files_go_and_paths_as_text(tmp_path):
    macros = {"CACHE_DIRS": (tmp_path / "rows",), "EPOCHS": 2}
    trained = Training.of("a", tmp_path / "a", ["a.gin"], macros, ["X = 1"])
    rows = f"--gin.CACHE_DIRS={(str(tmp_path / 'rows'),)!r}"
    assert trained.command[4:] == (
        *("train", "--gin_file=a.gin", f"--gin.MODEL_DIR={str(tmp_path / 'a')!r}", rows),
        *("--gin.EPOCHS=2", "--gin_bindings=X = 1"),
    )
    evaluated = Training.of("b", tmp_path / "b", [], {"MODEL_DIR": Path("a")}, job="eval")
    assert f"--gin.EVAL_OUTPUT_DIR={str(tmp_path / 'b')!r}" in evaluated.command
    assert "--gin.MODEL_DIR='a'" in evaluated.command
    assert trained.trains and not evaluated.trains


def test_a_file_of_the_working_folder_takes_no_standard_modules_place(tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')\n")
    command = (*subprocess_runs.t5x("train", [], {}), "--help")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, stdout=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.parametrize("together", [(SIGINT,), (SIGTERM,), (SIGINT, SIGTERM), (SIGHUP,)])
def test_signals_to_the_whole_process_group_lose_no_step(tmp_path, together, heard):
    """As a terminal sends them: to the command and to what it started, at random moments."""
    rng, names = random.Random(str(together)), ("initial", "vanilla", "lora")
    folders = [tmp_path / name for name in names]
    small = {"emb_dim": 32, "num_heads": 2, "head_dim": 16, "mlp_dim": 64}
    small |= {"num_encoder_layers": 1, "num_decoder_layers": 1}
    # Probed at the end alone: most moments are of training.
    macros = {"EVAL_PERIOD": 10**6, "TRAIN_STEPS": 2000, "CHECKPOINT_PERIOD": 10**6}
    macros |= {f"t5.T5Config.{name}": value for name, value in small.items()}
    flags = ["--size=tiny", "--methods=vanilla,lora", f"--out={tmp_path}"]
    flags += [f"--gin.{name}={value}" for name, value in macros.items()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XLA_FLAGS": xla_flags(devices=1)}
    codes, stopped = [], 0
    while codes[-1:] != [0] and len(codes) < 20:
        process = subprocess.Popen(
            [sys.executable, "-m", "ckl_jax.cli.ckl", "demo", *flags],
            env=environment,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        logs = [f / "log.txt" for f in folders]
        before = [len(log.read_text()) if log.exists() else 0 for log in logs]
        if len(codes) < 8:
            # At a random moment of the whole, or of a training.
            if len(codes) % 2:
                grown = before
                while process.poll() is None and grown == before:
                    time.sleep(0.1)
                    grown = [len(log.read_text()) if log.exists() else 0 for log in logs]
                time.sleep(rng.uniform(0.0, 8.0))
            else:
                time.sleep(rng.uniform(4.0, 20.0))
            with contextlib.suppress(ProcessLookupError):
                for number in together:
                    os.killpg(process.pid, number)
        codes.append(process.wait(timeout=300))
        for folder, log, start in zip(folders, logs, before, strict=True):
            text = log.read_text()[start:] if log.exists() else ""
            stopped += "which is saved" in text
            reached = map(int, re.findall(r"step (\d+)[/,]", text))
            assert newest_step(folder) >= max(reached, default=-1), text
    assert stopped and codes.pop() == 0 and set(codes) <= {130, 143}, codes
    assert all((folder / SUMMARY).exists() for folder in folders)
    assert not any("Traceback" in (f / "log.txt").read_text() for f in folders)


def test_processes_share_out_the_gpus(monkeypatch, tmp_path):
    plugin = "jax_cuda13_plugin"
    monkeypatch.setattr(subprocess_runs.importlib.util, "find_spec", {plugin: object()}.get)
    monkeypatch.setattr(subprocess_runs, "_DEVICES", tmp_path)
    for name in ("nvidia0", "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert subprocess_runs.gpus_of({}) == ["0", "2", "10"]
    assert subprocess_runs.gpus_of({"JAX_PLATFORMS": "cuda,cpu"}) == ["0", "2", "10"]
    assert subprocess_runs.gpus_of({"CUDA_VISIBLE_DEVICES": "3, 1"}) == ["3", "1"]
    assert subprocess_runs.gpus_of({"CUDA_VISIBLE_DEVICES": ""}) == []
    assert subprocess_runs.gpus_of({"JAX_PLATFORMS": "cpu"}) == []
    monkeypatch.setattr(subprocess_runs.importlib.util, "find_spec", {}.get)
    assert subprocess_runs.gpus_of({}) == []


def test_a_process_for_each_gpu(monkeypatch, tmp_path):
    """What three trainings see on two GPUs, by the number that may run at once."""
    monkeypatch.setattr(subprocess_runs, "gpus_of", lambda environment: ["4", "6"])
    say = "import os; print(*(os.environ.get(n) for n in ('CUDA_VISIBLE_DEVICES', 'NPROC',"
    say += " 'XLA_PYTHON_CLIENT_PREALLOCATE'))); open('{}/summary.json', 'w').write('{{}}')"

    def seen(jobs):
        root = tmp_path / str(jobs)
        folders = [root / name for name in "abc"]
        subprocess_runs.run_all(
            [Training(f.name, f, (sys.executable, "-c", say.format(f))) for f in folders], jobs
        )
        return [(f / "log.txt").read_text().strip() for f in folders]

    for name in ("CUDA_VISIBLE_DEVICES", "NPROC", "XLA_PYTHON_CLIENT_PREALLOCATE"):
        monkeypatch.delenv(name, raising=False)
    first, second, third = seen(0)
    assert (first, second) == ("4 None None", "6 None None") and third in (first, second)
    assert seen(1) == ["None None None"] * 3
    assert seen(3) == ["4 None false", "6 None false", "4 None false"]
