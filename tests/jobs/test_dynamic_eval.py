"""Dynamic evaluation: what is scored before what is learned, masks, and runs that are stopped."""

import jax
import numpy as np
import optax
import pytest

from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.data.dated_task import DatedTask
from ckl_jax.jobs import setup
from tests.jobs.dated_world import World, by_hand, losses


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World.make(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def static(world):
    return losses(world.run("static", mask="none"))


def test_a_step_of_sgd_is_the_one_made_by_hand(world):
    found = losses(world.run("sgd"))
    task = DatedTask.open(world.root / "test")
    np.testing.assert_allclose(found, by_hand(world, task, 1, 0.1, 8), rtol=2e-5)
