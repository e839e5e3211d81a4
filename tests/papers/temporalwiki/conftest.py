"""Dumps that tests of whole studies share."""

import pytest

from ckl_jax.world.dump_files import write_dumps
from ckl_jax.world.timeline import make_world

DATES = ("20200501", "20200601", "20200701")


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dumps")
    write_dumps(make_world(0, "tiny", "legacy"), folder, 3)
    return folder
