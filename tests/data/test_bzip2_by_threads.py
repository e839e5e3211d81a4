"""A whole bzip2 file decoded by several threads is what one decoder reads; so are its errors."""

import bz2
import io
import sys
import types

import numpy as np
import pytest

from ckl_jax.data.compressed import BLOCK_BYTES, read_blocks
from ckl_jax.errors import UserError

CONTENT = np.random.default_rng(0).integers(97, 105, 1 << 20, np.uint8).tobytes()  # 2 blocks


@pytest.fixture(params=["as installed", "fails midway", "not installed"])
def library(request, monkeypatch):
    """indexed_bzip2, one that fails after a block, or none."""
    if request.param == "as installed":
        pytest.importorskip("indexed_bzip2", reason="needs the extra `bzip2`")
    elif request.param == "not installed":
        monkeypatch.setitem(sys.modules, "indexed_bzip2", None)
    else:

        class Failing(io.BytesIO):
            def read(self, size):
                size = BLOCK_BYTES
                if self.tell() >= BLOCK_BYTES:
                    raise RuntimeError("std::exception")
                return super().read(size)

        def open_failing(path, parallelization):
            assert parallelization == 3
            return Failing(next(read_blocks(path)) * 2)

        fake = types.SimpleNamespace(open=open_failing)
        monkeypatch.setitem(sys.modules, "indexed_bzip2", fake)


@pytest.mark.parametrize("streams", [1, 3])
def test_content_is_the_same(library, tmp_path, streams):
    content = CONTENT
    cut = len(content) // streams + 1
    path = tmp_path / "a.bz2"
    parts = [content[i : i + cut] for i in range(0, len(content), cut)]
    path.write_bytes(b"".join(map(bz2.compress, parts)))
    assert b"".join(read_blocks(path, threads=3)) == content


@pytest.mark.parametrize("harm", ["cut", "damaged"])
def test_bad_files_are_named_as_by_one_decoder(library, tmp_path, harm):
    packed = bytearray(bz2.compress(CONTENT))
    if harm == "cut":
        del packed[len(packed) * 3 // 4 :]
    else:
        packed[len(packed) * 3 // 4 : len(packed) * 3 // 4 + 9] = b"?" * 9
    path = tmp_path / "a.bz2"
    path.write_bytes(packed)
    said = []
    for threads in (1, 3):
        with pytest.raises(UserError) as e:
            b"".join(read_blocks(path, threads=threads))
        said.append(str(e.value))
    assert said[0] == said[1] and "byte" in said[0]
