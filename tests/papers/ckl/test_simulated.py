"""Trainings that begin together make one world."""

import threading

import pytest

from ckl_jax import files
from ckl_jax.errors import UserError
from ckl_jax.papers.ckl import simulated
from ckl_jax.world.ckl import build_world, read_world


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
