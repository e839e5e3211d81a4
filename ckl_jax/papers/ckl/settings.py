"""Settings of `ckl experiment`, and the folders of its cells."""

import dataclasses
from pathlib import Path
from typing import Any, Literal

from ckl_jax import checks
from ckl_jax.errors import UserError
from ckl_jax.options import Bindings, SomeNames
from ckl_jax.papers.ckl.demo import METHODS, SOURCES
from ckl_jax.papers.ckl.scenarios import INITIAL, Cell, Scenario

SIZES = ("tiny", "small", "full")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Running:
    """How experiments are run, and where.

    Attributes:
      out: Folder of all experiments; by default runs/experiments-SIZE.
      size: Size of models and data: tiny takes seconds a cell and its numbers mean nothing, small
        is the demo's, full the paper's.
      data: For full, folder of the published files; for wikidata, of the real facts
        (docs/wikidata.md).
      seed: Random seed for the simulated world, parameter initialisation and data order.
      methods: Rows of the table; by default all.
      jobs: Trainings that run at once; 0 is one for each core.
      bindings: Gin bindings for every training.
      tuning_seeds: Light-tunings of each GPT-2, whose scores are averaged; by default 5, or 2 for
        tiny.
      source: Facts of the data: simulated, or real ones of Wikidata.
      keep_light_tuned: Keep the checkpoints of light-tuned GPT-2s as well as their scores.
    """

    out: str | None = None
    size: Literal[*SIZES] = "small"
    data: str | None = None
    seed: int = 0
    methods: SomeNames = ()
    jobs: int = 0
    bindings: Bindings = ()
    tuning_seeds: int | None = None
    source: Literal[*SOURCES] = "simulated"
    keep_light_tuned: bool = False

    def __post_init__(self) -> None:
        if self.out is None:
            object.__setattr__(self, "out", f"runs/experiments-{self.size}")
        if tuple(self.methods) == ("all",):
            object.__setattr__(self, "methods", ())
        checks.require_choice(SIZES, **{"--size": self.size})
        checks.require_choice(SOURCES, **{"--source": self.source})
        checks.require_int(0, **{"--seed": self.seed, "--jobs": self.jobs})
        checks.require_int(**{"--tuning-seeds": self.tuning_seeds})
        if self.methods:
            checks.require_names(METHODS, **{"--methods": tuple(self.methods)})
        if self.is_full and (self.data is None or self.source != "simulated"):
            raise UserError(
                "--size full needs --data, a folder of the published files, and has no --source."
            )
        if not self.is_full and self.source == "simulated" and self.data is not None:
            raise UserError(
                "--data is a folder of the published files, for --size full, or of real facts, for "
                "--source wikidata: give one of these too, or leave --data out."
            )

    @property
    def root(self) -> Path:
        return Path(self.out)

    @property
    def tunings(self) -> int:
        """Light-tunings of each GPT-2."""
        if self.tuning_seeds is None:
            return 2 if self.size == "tiny" else 5
        return self.tuning_seeds

    @property
    def is_full(self) -> bool:
        return self.size == "full"

    @property
    def world(self) -> Path:
        """The folder of the data that are made here."""
        return self.root / "data"

    @property
    def data_dir(self) -> Path:
        """DATA_DIR."""
        return Path(self.data) if self.is_full else self.world

    @property
    def probe_dir(self) -> Path:
        """The folder in CKL's published layout."""
        return self.data_dir if self.is_full else self.world / "ckl"

    def of(self, tuned: bool) -> list[str]:
        """The bindings; those of KILT's and of light-tuning's macros are for these alone."""
        of_updates = [b for b in self.bindings if not b.strip().startswith("LIGHT_TUNE_")]
        return [b for b in of_updates if tuned or not b.strip().startswith("KILT_")]

    @property
    def of_tunings(self) -> list[str]:
        """The bindings of light-tuning's macros."""
        return [b for b in self.bindings if b.strip().startswith("LIGHT_TUNE_")]

    def chosen(self, scenario: Scenario) -> list[Cell]:
        """The cells that were asked for; the Initial model's always."""
        every = not self.methods
        return [c for c in scenario.cells if every or c.name == INITIAL or c.method in self.methods]

    def folder(self, scenario: Scenario | str, cell: Cell) -> Path:
        """The MODEL_DIR of a cell."""
        name = scenario if isinstance(scenario, str) else scenario.name
        return self.root / name / cell.name

    def macros(self, target: Path) -> dict[str, Any]:
        """The gin macros of every training."""
        macros: dict[str, Any] = {
            "MODEL_DIR": str(target),
            "RANDOM_SEED": self.seed,
            "DATA_DIR": str(self.data_dir),
        }
        if self.is_full:
            return macros
        return {**macros, "WORLD_SIZE": self.size, "WORLD_SEED": self.seed}
