"""Settings of `ckl experiment`, and the folders of its cells."""

import dataclasses
import functools
from pathlib import Path
from typing import Any, Literal

from ckl_jax import checks
from ckl_jax.errors import UserError
from ckl_jax.options import Floats, SomeNames
from ckl_jax.papers.ckl.imported import Imported
from ckl_jax.papers.ckl.methods import PAPER, expand, in_order
from ckl_jax.papers.ckl.scenarios import EXPERIMENTS, INITIAL, Cell, Scenario, sweep
from ckl_jax.train.studies import Experiments, StudySettings
from ckl_jax.world.facts import SOURCES
from ckl_jax.world.timeline import SIZES as WORLD_SIZES
from ckl_jax.world.timeline import VARIANTS

SIZES = (*WORLD_SIZES, "full")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Running(StudySettings):
    """Settings of `ckl experiment`.

    Attributes:
      out: Folder of all experiments; by default runs/experiments-SIZE.
      size: Size of models and data: tiny takes seconds a cell and its numbers mean nothing, small
        is the demo's, wide, medium and large have 2, 4 and 14 times its facts, full is the
        paper's.
      data: For full, folder of the published files; for wikidata and factbook, of the real facts
        (docs/real_facts.md).
      model: Folder of `ckl import-hf`: its model and vocabulary in place of the size's.
      methods: Rows of the table, by default the paper's; "all" stands for these, "newer" for
        replay, lora_mix_review, ewc, lwf and ema; and gin files of your own methods, such as
        ckl_mine.gin.
      rates: Learning rates of ckl/pareto; by default an eighth, a quarter, a half and all of the
        usual one.
      strengths: Try several strengths of each method that has one in ckl/pareto, at each rate.
      tuning_seeds: Light-tunings of each GPT-2, whose scores are averaged; by default 5, or 2 for
        tiny.
      source: Facts of the data: simulated, or real ones of Wikidata or the World Factbook.
      world: Simulated world: disjoint, whose texts never state a probed fact in a probe's wording,
        or legacy, whose probes are rows of the training text.
      keep_light_tuned: Keep the checkpoints of light-tuned GPT-2s as well as their scores.
    """

    out: str | None = None
    size: Literal[*SIZES] = "small"
    data: str | None = None
    model: str | None = None
    methods: SomeNames = ()
    rates: Floats = ()
    strengths: bool = False
    tuning_seeds: int | None = None
    source: Literal[*SOURCES] = "simulated"
    world: Literal[*VARIANTS] | None = None
    keep_light_tuned: bool = False

    def __post_init__(self) -> None:
        self._set(out=self.out or f"runs/experiments-{self.size}")
        super().__post_init__()
        if self.methods:
            named = expand(self.methods)
            # The paper's alone are no choice: each table has those that it shows.
            self._set(methods=() if tuple(self.methods) == ("all",) else named)
        checks.require_choice(SIZES, **{"--size": self.size})
        checks.require_choice(SOURCES, **{"--source": self.source})
        self._set(world=self.world or VARIANTS[0])
        checks.require_int(**{"--tuning-seeds": self.tuning_seeds})
        for rate in self.rates:
            checks.require_positive(**{"A rate of --rates": rate})
        self._set(rates=tuple(dict.fromkeys(self.rates)))
        if self.is_full and (self.data is None or self.source != "simulated"):
            raise UserError(
                "--size full needs --data, a folder of the published files, and has no --source."
            )
        if not self.is_full and self.source == "simulated" and self.data is not None:
            raise UserError(
                "--data is a folder of the published files, for --size full, or of real facts, for "
                "--source wikidata or factbook: give one of these too, or leave --data out."
            )

    @property
    def tunings(self) -> int:
        """Light-tunings of each GPT-2."""
        default = 2 if self.size == "tiny" else 5
        return default if self.tuning_seeds is None else self.tuning_seeds

    @property
    def is_full(self) -> bool:
        return self.size == "full"

    @functools.cached_property
    def imported(self) -> Imported | None:
        """The imported model used instead of the size's own; at full size also that of an imported
        Initial model.

        Raises:
          UserError: `--model` is of no imported model.
        """
        if self.model is not None:
            return Imported.open(self.model)
        given = Path(self.data) / INITIAL if self.is_full else None
        return Imported.open(given) if given and (given / "model.gin").is_file() else None

    @property
    def given(self) -> Path | None:
        """The checkpoint that is the Initial model or that it is trained from; None for neither."""
        if self.model is not None:
            return Path(self.model)
        return Path(self.data) / INITIAL if self.is_full else None

    @property
    def data_dir(self) -> Path:
        """DATA_DIR: given, or of data that are made here."""
        return Path(self.data) if self.is_full else self.root / "data"

    @property
    def probe_dir(self) -> Path:
        """The folder in CKL's published layout."""
        return self.data_dir if self.is_full else self.data_dir / "ckl"

    @property
    def prepared(self) -> Path:
        """The folder of the cached tasks, which are made here unless they are published ones."""
        return (self.data_dir if self.model is None else self.root / "data") / "prepared"

    def of(self, tuned: bool) -> list[str]:
        """The bindings; those of KILT's and of light-tuning's macros are for these alone."""
        others = ("LIGHT_TUNE_",) if tuned else ("LIGHT_TUNE_", "KILT_")
        return [b for b in self.bindings if not b.strip().startswith(others)]

    @property
    def of_tunings(self) -> list[str]:
        """The bindings of light-tuning's macros."""
        return [b for b in self.bindings if b.strip().startswith("LIGHT_TUNE_")]

    def chosen(self, scenario: Scenario) -> list[Cell]:
        """The requested cells, and always the Initial model's."""
        if scenario.is_swept:
            methods = self.methods or PAPER
            return [c for m in methods for c in sweep(m, self.swept_rates, self.strengths)]
        if not self.methods:
            return list(scenario.cells)
        before = [c for c in scenario.cells if c.name == INITIAL]
        # In the order of the table, whatever that of --methods is.
        return before + [c for m in in_order(self.methods) for c in scenario.cells_of(m)]

    @property
    def swept_rates(self) -> tuple[float, ...]:
        """The rates of `ckl/pareto`."""
        usual = 1e-3 if self.is_full else 2e-3
        return self.rates or tuple(usual * factor for factor in (0.125, 0.25, 0.5, 1.0))

    def folder(self, scenario: Scenario | str, cell: Cell) -> Path:
        """The MODEL_DIR of a cell."""
        name = scenario if isinstance(scenario, str) else scenario.name
        return self.root / name / cell.name

    def reviewed(self, macro: str) -> dict[str, str]:
        """The macro for the text that methods review: a part of D0 in the disjoint world."""
        is_whole = self.is_full or self.world == "legacy"
        return {} if is_whole else {macro: "d0_review"}

    @property
    def macros(self) -> dict[str, Any]:
        """The gin macros of every training."""
        macros = {"RANDOM_SEED": self.seed, "DATA_DIR": self.data_dir}
        if not self.is_full:
            macros |= {"WORLD": self.world, "WORLD_SIZE": self.size, "WORLD_SEED": self.seed}
        return macros


PAPER_EXPERIMENTS = Experiments(
    titles={name: experiment.title for name, experiment in EXPERIMENTS.items()},
    settings=Running,
    module="ckl_jax.papers.ckl.experiments",
)
