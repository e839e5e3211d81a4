"""One device = 2, 4 and 8, on many meshes."""

import pytest

from tests.helpers import METHODS
from tests.train import devices


@pytest.fixture
def run(capsys):
    """Compares the methods named, and returns what was found equal, a line each."""

    def compare(names):
        devices.main(names)
        return capsys.readouterr().out

    return compare


@pytest.mark.slow
def test_one_device_equals_four_and_eight(run):
    assert run(["lora", "--quick"]).count("equal to one device") == 2


@pytest.mark.slow
def test_a_decoder_alone_on_one_device_equals_eight(run):
    names = [f"gpt2/{name}" for name in ("vanilla", "lora", "k_adapter_k2")]
    assert run(names).count("equal to one device") == 3 * len(names)


@pytest.mark.slow
def test_every_mesh_of_two_four_and_eight_devices_equals_one(run):
    assert run(["vanilla", "--grid"]).count("equal to one device") == 3 + 6 + 10


@pytest.mark.slow
def test_one_device_equals_eight_for_every_method(run):
    found = run(METHODS)
    again = found.count("its step has been compared")
    assert again < 6 and found.count("equal to one device") == 3 * (len(METHODS) - again)
