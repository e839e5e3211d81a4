"""A cloud that is not there, and pods in it."""

import pytest

from tests.tpu_scripts.stub import FULL, Cloud, Host


@pytest.fixture
def cloud(tmp_path):
    cloud = Cloud(tmp_path)
    cloud.gcloud()
    return cloud


@pytest.fixture
def pod(cloud):
    """A pod whose hosts run what they are told; `pod(script)` makes two with this `t5x`."""

    def make(script, count=2):
        cloud.gcloud(queued=["ACTIVE"])
        return [Host(cloud.root / "hosts" / str(i), script) for i in range(count)]

    yield make
    cloud.run("run.sh", *FULL, "--stop")
