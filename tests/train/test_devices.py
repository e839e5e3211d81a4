"""One device = 2, 4 and 8, on many meshes; in a process of its own, which has 8 CPU devices."""

import subprocess
import sys

import pytest

from tests.helpers import METHODS


def run(names):
    done = subprocess.run(
        [sys.executable, "-m", "tests.train.devices_script", *names],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


def test_one_device_equals_four_and_eight():
    assert run(["lora", "--quick"]).count("equal to one device") == 2


@pytest.mark.slow
def test_a_decoder_alone_on_one_device_equals_eight():
    names = [f"gpt2/{name}" for name in ("vanilla", "lora", "k_adapter_k2")]
    assert run(names).count("equal to one device") == 4 * len(names)


@pytest.mark.slow
def test_every_mesh_of_two_four_and_eight_devices_equals_one():
    assert run(["vanilla", "--grid"]).count("equal to one device") == 3 + 6 + 10


@pytest.mark.slow
def test_one_device_equals_eight_for_every_method():
    assert run(METHODS).count("equal to one device") == 4 * len(METHODS)
