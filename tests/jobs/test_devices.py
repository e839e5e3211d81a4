"""One device = eight, for every method; in a process of its own, which has eight CPU devices."""

import subprocess
import sys

import pytest

from tests.helpers import METHODS


def run(names):
    done = subprocess.run(
        [sys.executable, "-m", "tests.jobs.devices_script", *names],
        capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


def test_one_device_equals_eight():
    assert run(["lora", "--quick"]).count("equal to one device") == 1


@pytest.mark.slow
def test_one_device_equals_eight_for_every_method():
    assert run(METHODS).count("equal to one device") == 4 * len(METHODS)
