"""A row of the tables that join Hugging Face's names to ours."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Entry:
    """One parameter: its name there, its path here, and whether the matrix is transposed."""

    name: str
    path: str
    transposed: bool
    shape: tuple[int, ...]  # here
