"""How `ckl experiment` is run, and where its cells go."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ckl_jax import checks
from ckl_jax.errors import UserError
from ckl_jax.papers.ckl.demo import METHODS, SOURCES
from ckl_jax.papers.ckl.scenarios import INITIAL, Cell, Scenario

SIZES = ("tiny", "small", "full")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Running:
    """How experiments are run, and where.

    Attributes:
      out: folder of all of them; the data and the Initial model too, but at size "full".
      size: "tiny" (seconds a cell; its numbers mean nothing), "small" (the demo's), or "full".
      data: for "full", folder of the published files and the Initial model; else of the real facts.
      seed: of world, parameters and data order.
      methods: which rows; () is all.
      jobs: trainings at once; 0 is one for each core.
      bindings: gin bindings for every training.
      tuning_seeds: light-tunings of each kind, of GPT-2; their scores are averaged.
      source: of the data that are made here: "simulated", or "wikidata" for real facts.
      keep_light_tuned: keep the checkpoints of light-tunings, from which nothing starts.
    """

    out: str = "runs/experiments"
    size: str = "small"
    data: str | None = None
    seed: int = 0
    methods: Sequence[str] = ()
    jobs: int = 0
    bindings: Sequence[str] = ()
    tuning_seeds: int = 5
    source: str = "simulated"
    keep_light_tuned: bool = False

    def __post_init__(self) -> None:
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
        """What is set in every training."""
        macros: dict[str, Any] = {
            "MODEL_DIR": str(target),
            "RANDOM_SEED": self.seed,
            "DATA_DIR": str(self.data_dir),
        }
        if self.is_full:
            return macros
        return {**macros, "WORLD_SIZE": self.size, "WORLD_SEED": self.seed}
