"""Reads and writes safetensors files, tensor by tensor."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.errors import UserError
from ckl_jax.files import os_errors


class SafetensorsState(Mapping):
    """{tensor name: array} over one or more safetensors files; nothing is kept in memory."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = dict(files)

    def __getitem__(self, name: str) -> np.ndarray:
        path = self._files[name]
        with open_safetensors(path) as f:
            # Opened for each tensor: an index of a large model spans many files.
            try:
                return f.get_tensor(name)
            except AttributeError as e:  # of a dtype that NumPy has not
                kind = f.get_slice(name).get_dtype()
                raise UserError(
                    f"{path} holds {name} as {kind}: only floating-point weights of 16 bits and "
                    "more can be read; give the model before it was quantised."
                ) from e

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def safetensors_names(path: Path) -> list[str]:
    """The names of a file's tensors; raises `UserError` if it is missing or damaged."""
    with open_safetensors(path) as f:
        return list(f.keys())


def open_safetensors(path: Path) -> Any:
    """Opens a file, for `with`; raises `UserError` if it is missing or damaged."""
    import ml_dtypes  # noqa: F401  (registers bfloat16 with numpy)
    import safetensors

    try:
        with os_errors(path, "read"):
            return safetensors.safe_open(str(path), framework="numpy")
    except safetensors.SafetensorError as e:
        raise UserError(f"{path} cannot be read as safetensors: {e}.") from e


def write_safetensors(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes a file that Hugging Face's loaders accept, whole or not at all; makes its folder.

    Raises:
      UserError: the disk is full, or the folder cannot be written.
    """
    from safetensors.numpy import save_file

    with os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # On the same file system, so that `os.replace` is atomic.
        with tempfile.TemporaryDirectory(dir=path.parent) as temporary:
            part = Path(temporary) / path.name
            # Hugging Face's loader refuses files without this entry.
            save_file(dict(arrays), part, metadata={"format": "pt"})
            os.replace(part, path)
