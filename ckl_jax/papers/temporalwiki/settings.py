"""The settings of `ckl temporalwiki`, and the gin files that they choose."""

import dataclasses
from pathlib import Path
from typing import Literal

from ckl_jax.errors import UserError, nearest
from ckl_jax.options import Bindings, Names
from ckl_jax.papers.temporalwiki.study_data import Interval
from ckl_jax.world.facts import World
from ckl_jax.world.timeline import make_world

METHODS = ("full", "vanilla", "recadam", "mix_review", "lora", "k_adapter_k2")
ALIASES = {"diff": "vanilla"}  # the paper's name
SIZES = {"tiny": ("temporalwiki_tiny.gin",), "small": ()}  # gin files of the model
_WORLD = "small"  # of the simulated worlds the smallest in which a month has some news
PAPER = "temporalwiki_paper.gin"  # of an imported model
INITIAL = "initial"
_TUNING = "LIGHT_TUNE_"  # how gin macros of light-tuning begin


@dataclasses.dataclass(frozen=True, kw_only=True)
class Updates:
    """What is made, and where.

    Attributes:
      out: Folder of everything.
      snapshots: Dumps in order of time: folders with a Wikipedia and a Wikidata dump, or
        FOLDER/YYYYMMDD; by default the simulated world's.
      methods: Methods, each a gin file temporalwiki_METHOD.gin; "all" is the paper's.
      size: Size of a new model.
      seed: Random seed for the simulated world, sampled probes, initialisation and data order.
      months: Dumps of the simulated world.
      model: Folder of `ckl import-hf` to start from; by default a new model is trained.
      initial_epochs: Passes over the first snapshot; by default the gin files', and 4 with --model;
        0 takes --model as it is.
      unchanged_share: Fraction of the unchanged facts to probe; by default 0.001, and 1 of the
        simulated world.
      jobs: Processes that run at once; 0 is one for each core.
      bindings: Gin bindings for every training; those of LIGHT_TUNE_... for light-tuning alone.
      light_tuning: Facts of each class on which to tune each model before probing it again (500 in
        the paper); 0 tunes none.
      proper_nouns: Rows of new and of old text in which to measure the loss on proper nouns (10000
        in the paper); 0 measures none.
    """

    out: str = "runs/temporalwiki"
    snapshots: tuple[str, ...] = ()
    methods: Names = METHODS
    size: Literal[*SIZES] = "small"
    seed: int = 0
    months: int = 4
    model: str | None = None
    initial_epochs: int | None = None
    unchanged_share: float | None = None
    jobs: int = 0
    bindings: Bindings = ()
    light_tuning: int = 0
    proper_nouns: int = 0

    def __post_init__(self) -> None:
        if tuple(self.methods) == ("all",):
            object.__setattr__(self, "methods", METHODS)
        methods = tuple(dict.fromkeys(ALIASES.get(m, m) for m in self.methods))
        object.__setattr__(self, "methods", methods)
        if INITIAL in self.methods:
            raise UserError("The Initial model is always made; leave it out of --methods.")
        if not self.methods:
            raise UserError(f"No methods are given; choose from {', '.join(METHODS)}.")
        if self.size not in SIZES:
            raise UserError(
                f"--size is {self.size!r}; choose from {', '.join(SIZES)}."
                f"{nearest(self.size, SIZES)}"
            )
        epochs = 1 if self.initial_epochs is None else self.initial_epochs
        counts = {
            "seed": self.seed,
            "jobs": self.jobs,
            "initial-epochs": epochs,
            "light-tuning": self.light_tuning,
            "proper-nouns": self.proper_nouns,
        }
        for name, value in counts.items():
            if value < 0:
                raise UserError(f"--{name} is {value}; give 0 or more.")
        if epochs == 0 and not self.model:
            raise UserError("--initial-epochs is 0 but no --model is given; give 1 or more.")
        if not 0 < self.share <= 1:
            raise UserError(f"--unchanged-share is {self.share}; give a number in (0, 1].")

    @property
    def root(self) -> Path:
        return Path(self.out)

    @property
    def share(self) -> float:
        if self.unchanged_share is None:
            return 0.001 if self.snapshots else 1.0
        return self.unchanged_share

    @property
    def training_bindings(self) -> list[str]:
        return [b for b in self.bindings if not b.startswith(_TUNING)]

    @property
    def tuning_bindings(self) -> list[str]:
        """Of light-tuning, whose rate and length are not those of trainings."""
        return [b for b in self.bindings if b.startswith(_TUNING)]

    def world(self) -> World:
        """The simulated world."""
        return make_world(self.seed, _WORLD)

    def model_dir(self, method: str, interval: Interval | None = None) -> Path:
        """The folder of a model: Initial, or of a method after an interval."""
        return self.root / interval.name / method if interval else self.root / INITIAL

    def gin_files(self, method: str) -> list[str]:
        """Of a method, or of the Initial model, from the general to the particular."""
        names = [f"temporalwiki_{method}.gin", "data/temporalwiki_snapshots.gin"]
        if not self.model:
            return [*names, *SIZES[self.size]]
        names += [PAPER, str(Path(self.model) / "model.gin")]
        return [*names, "methods/initial.gin"] if self.is_untrained(method) else names

    def is_untrained(self, method: str) -> bool:
        """Whether the Initial model is --model as it is."""
        return method == INITIAL and self.initial_epochs == 0
