import pytest

from tests.analysis.helpers import make_demo


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    """A demo folder of all methods. Tests must not write into it."""
    return make_demo(tmp_path_factory.mktemp("demo"))
