"""A row of the tables that join Hugging Face's names to ours, and state dicts by other names."""

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np


@dataclasses.dataclass(frozen=True)
class Entry:
    """One parameter: its name there, its path here, and whether the matrix is transposed."""

    name: str
    path: str
    transposed: bool
    shape: tuple[int, ...]  # here


class Renamed(Mapping):
    """A state dict under other names: {name: the one in `state`}. Arrays are read when wanted."""

    def __init__(self, state: Mapping[str, np.ndarray], source: Mapping[str, str]) -> None:
        self._state, self._source = state, source

    def __getitem__(self, name: str) -> np.ndarray:
        return np.asarray(self._state[self._source[name]])

    def __iter__(self) -> Iterator[str]:
        return iter(self._source)

    def __len__(self) -> int:
        return len(self._source)
