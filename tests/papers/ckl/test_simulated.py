"""Trainings that begin together make one world."""

import shlex
import subprocess
import sys
import threading

import pytest

from ckl_jax import files
from ckl_jax.cli import t5x
from ckl_jax.errors import UserError
from ckl_jax.papers.ckl import simulated
from ckl_jax.parallel import processes
from ckl_jax.world.ckl import build_world, read_world


def test_who_makes_data_alone_does_not_wait_for_jax():
    code = "import sys; from ckl_jax.papers.ckl import simulated; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_training_waits_for_the_world_that_another_process_makes(tmp_path):
    vocabulary, found = simulated.vocabulary(str(tmp_path)), []

    def other():
        with pytest.raises(UserError) as e:
            simulated.make_inputs(
                data_dir=str(tmp_path), seed=2, size="tiny", vocabulary=vocabulary
            )
        found.append(str(e.value))

    thread = threading.Thread(target=other)
    with files.locked(tmp_path):
        thread.start()
        thread.join(0.3)
        build_world(tmp_path / "ckl", 1, "tiny")
    thread.join(60)
    assert "world of seed 1, size 'tiny', not the disjoint one of seed 2" in found[0]
    assert read_world(tmp_path / "ckl")["seed"] == 1


def test_several_processes_name_the_command_that_trains_the_initial_model(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "are_several", lambda: True)
    data_dir, initial = str(tmp_path / "world"), str(tmp_path / "my initial")
    settings = {
        "data_dir": data_dir,
        "size": "tiny",
        "vocabulary": simulated.vocabulary(data_dir),
        "initial": initial,
        "initial_dir": initial,
        "initial_gin_files": ("ckl_initial.gin", "tiny.gin"),
    }
    with pytest.raises(UserError, match="several processes does not train it") as e:
        simulated.make_inputs(**settings)
    assert not any(tmp_path.iterdir())
    tool, *argv = shlex.split(str(e.value).split("one process: ")[1])
    assert tool == "t5x" and t5x.main([*argv, "--dry_run"]) == 0  # as it is printed
    monkeypatch.setattr(processes, "are_several", lambda: False)
    assert simulated.make_inputs(**settings).args[1]["MODEL_DIR"] == initial
