import pytest

from tests.parity.ranked import unpack


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    return unpack("lm_pub_quiz.zip", tmp_path_factory.mktemp("golden"))
