"""How `ckl stream` is run, and where."""

import dataclasses
from typing import Annotated, Literal

from tyro.conf import Suppress

from ckl_jax import checks
from ckl_jax.errors import UserError
from ckl_jax.train.studies import StudySettings
from ckl_jax.world.timeline import SIZES


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stream(StudySettings):
    """What is made, and where.

    Attributes:
      out: Folder of everything.
      size: Size of the simulated world, whose old pages the first model is trained on.
      documents: JSONL(.gz) file of documents with date, title and text; by default the news of the
        simulated world.
      model: Folder of `ckl import-hf` (needs --documents and --dataset); by default a small new
        model.
      dataset: Folder of the facts to rank, in BEAR's layout; by default the simulated world's.
      experiences: Parts of the stream, by date, with equally many documents each.
      epochs: Passes over each part.
      initial_epochs: Passes over the old pages.
      jobs: One: each training starts from the one before.
    """

    out: str = "runs/stream"
    size: Literal[*SIZES] = "small"
    documents: str | None = None
    model: str | None = None
    dataset: str | None = None
    experiences: int = 5
    epochs: int = 6
    initial_epochs: int = 20
    jobs: Annotated[int, Suppress] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.require_int(
            1,
            **{
                "--experiences": self.experiences,
                "--epochs": self.epochs,
                "--initial-epochs": self.initial_epochs,
            },
        )
        given = [bool(x) for x in (self.model, self.documents, self.dataset)]
        if any(given) and not all(given):
            raise UserError(
                "--model, --documents and --dataset belong together: a model that is not the "
                "simulated world's knows none of its facts. Give all three, or none."
            )

    @property
    def names(self) -> list[str]:
        """Of the experiences."""
        return [f"experience_{i + 1}" for i in range(self.experiences)]
