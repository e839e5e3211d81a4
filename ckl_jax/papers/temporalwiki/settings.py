"""The settings of `ckl temporalwiki`, and the gin files that they choose."""

import dataclasses
import functools
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

from ckl_jax import checks
from ckl_jax.errors import UserError
from ckl_jax.options import Names
from ckl_jax.papers.temporalwiki.analysis.published import TITLES
from ckl_jax.papers.temporalwiki.analysis.results import INITIAL
from ckl_jax.papers.temporalwiki.data.probe_filters import (
    MAX_RELATION_FRACTION,
    MAX_SUBJECT_FRACTION,
)
from ckl_jax.papers.temporalwiki.data.snapshots import Interval
from ckl_jax.train.studies import Experiments, StudySettings, gin_values, own_macros
from ckl_jax.world.facts import World
from ckl_jax.world.timeline import make_world

METHODS = ("full", "vanilla", "recadam", "mix_review", "lora", "k_adapter_k2")
ALIASES = {"diff": "vanilla"}  # the paper's name
SIZES = {"tiny": ("temporalwiki_tiny.gin",), "small": ()}  # gin files of the model
_WORLD = "small"  # of the simulated worlds the smallest in which a month has some news
PAPER = "temporalwiki_paper.gin"  # of an imported model
GPT2 = "gpt2"  # the paper's architecture, that of the gin files
_LEFT_OUT = ("out", "jobs", "methods", "bindings")  # of `Updates.options`
_TUNING = "LIGHT_TUNE_"  # how gin macros of light-tuning begin


@dataclasses.dataclass(frozen=True)
class Model:
    """The Initial model, or that of a method after an interval.

    Attributes:
      method: of `temporalwiki_<method>.gin`, "initial" for the Initial model.
      interval: that it is updated on; None for the Initial model.
      base: the model that it is updated from.
    """

    method: str
    interval: Interval | None = None
    base: "Model | None" = None

    @property
    def name(self) -> str:
        return f"{self.interval.name} {self.method}" if self.interval else self.method


@dataclasses.dataclass(frozen=True, kw_only=True)
class Updates(StudySettings):
    """Settings of `ckl temporalwiki`.

    Attributes:
      out: Folder of everything.
      snapshots: Dumps in order of time: folders with a Wikipedia and a Wikidata dump, or
        FOLDER/YYYYMMDD, or one FOLDER for all its dates; by default the simulated world's.
      methods: Methods, each a gin file temporalwiki_METHOD.gin; "all" is the paper's.
      size: Size of a new model.
      architecture: Architecture of a new model, by its model_type at Hugging Face: gpt2, or that of
        another decoder, such as llama, qwen3 or gemma3_text.
      months: Dumps of the simulated world.
      model: Folder of `ckl import-hf` to start from; by default a new model is trained.
      initial_epochs: Passes over the first snapshot; by default the gin files', and 4 with --model;
        0 takes --model as it is.
      unchanged_fraction: Fraction of the unchanged facts to probe; by default 0.001, and 1 of the
        simulated world.
      facts: Which facts are probed: "current" are those that hold at each snapshot's date by rank,
        start and end; "paper" are all that a snapshot states, as the paper's.
      changed_span_weight: Weight in the loss of what is new in edited sentences, and of new ones,
        relative to the rest of the new text; 1 is the paper.
      subject_cap: Fraction of the probes that may have one subject.
      relation_cap: Fraction of the probes that may have one relation; give more for a table of few.
      fix_point: Repeat the caps of the probes until they hold of what is left.
      legacy: Compare texts as the paper's released function does.
      unsorted: The Wikipedia dumps are not in the order of page ids; sort them through files.
      templates: File of templates within sentences, NAME = PATTERN on each line, beside the known
        ones.
      page_map: File of pages and items, TSV or page_props.sql; by default the dumps' sitelinks.
      properties: Another Wikidata dump, with labels of properties.
      language: Language of labels.
      qualifiers: Also read the items in qualifiers as facts.
      aliases: A text that has another name of the object names it too.
      beam: Make diffsets and probes by Apache Beam pipelines with these options; "" are its own.
      bindings: Gin bindings for every training; those of LIGHT_TUNE_... are for light-tuning alone.
      light_tuning: Facts of each class on which to tune each model before probing it again (500 in
        the paper); 0 tunes none.
      proper_nouns: Rows of new and of old text in which to measure the loss on proper nouns and
        changed spans (10000 in the paper); 0 measures none.
    """

    out: str = "runs/temporalwiki"
    snapshots: tuple[str, ...] = ()
    methods: Names = METHODS
    size: Literal[*SIZES] = "small"
    architecture: str = GPT2
    months: int = 4
    model: str | None = None
    initial_epochs: int | None = None
    unchanged_fraction: float | None = None
    facts: Literal["current", "paper"] = "current"
    changed_span_weight: float = 1.0
    subject_cap: float = MAX_SUBJECT_FRACTION
    relation_cap: float = MAX_RELATION_FRACTION
    fix_point: bool = False
    legacy: bool = False
    unsorted: bool = False
    templates: str = ""
    page_map: str = ""
    properties: str = ""
    language: str = "en"
    qualifiers: bool = False
    aliases: bool = False
    beam: str | None = None
    light_tuning: int = 0
    proper_nouns: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        methods = METHODS if tuple(self.methods) == ("all",) else self.methods
        # In the order given, without repeats, by our names.
        self._set(methods=tuple(dict.fromkeys(ALIASES.get(m, m) for m in methods)))
        if INITIAL in self.methods:
            raise UserError("The Initial model is always made; leave it out of --methods.")
        if not self.methods:
            raise UserError(f"No methods are given; choose from {', '.join(METHODS)}.")
        checks.require_choice(SIZES, **{"--size": self.size})
        checks.require_positive(**{"--changed-span-weight": self.changed_span_weight})
        for name in ("unchanged_fraction", "subject_cap", "relation_cap"):
            checks.require_fraction(**{f"--{name.replace('_', '-')}": getattr(self, name)})
        epochs = {"--initial-epochs": self.initial_epochs}
        extra = {"--light-tuning": self.light_tuning, "--proper-nouns": self.proper_nouns}
        checks.require_int(0, **epochs, **extra)
        if self.model and self.architecture != GPT2:
            raise UserError("--model brings its architecture; leave --architecture out.")
        if self.initial_epochs == 0 and not self.model:
            raise UserError("--initial-epochs is 0 but no --model is given; give 1 or more.")
        if self.proper_nouns and self.legacy:
            raise UserError("--proper-nouns needs diffsets made without --legacy.")
        if self.changed_span_weight != 1 and self.legacy:
            raise UserError("--changed-span-weight needs diffsets made without --legacy.")

    @property
    def share(self) -> float:
        default = 0.001 if self.snapshots else 1.0
        return default if self.unchanged_fraction is None else self.unchanged_fraction

    @property
    def options(self) -> dict[str, Any]:
        """What `ckl temporalwiki` was given of the settings that all its models share."""
        defaults = {f.name: f.default for f in dataclasses.fields(self) if f.name not in _LEFT_OUT}
        return {k: getattr(self, k) for k, v in defaults.items() if getattr(self, k) != v}

    @property
    def vocabulary(self) -> Path:
        """The file of the vocabulary of a new model."""
        return self.root / "data" / "vocabulary.model"

    def bindings_of(self, method: str, macros: Collection[str]) -> list[str]:
        """The bindings of a method's trainings: of the user's file of it without `macros`, which
        the study sets, then of the command."""
        return [*own_macros(self.gin_files(method)[0], macros), *self.training_bindings]

    @property
    def training_bindings(self) -> list[str]:
        own = [b for b in self.bindings if not b.startswith(_TUNING)]
        return own if self.architecture == GPT2 else [*_of_family(self, tuple(own)), *own]

    @property
    def tuning_bindings(self) -> list[str]:
        """Of light-tuning, whose rate and length are not those of trainings."""
        return [b for b in self.bindings if b.startswith(_TUNING)]

    def world(self) -> World:
        """The simulated world."""
        return make_world(self.seed, _WORLD, "legacy")

    def model_dir(self, model: Model) -> Path:
        """The folder of a model."""
        return self.root / (model.interval.name if model.interval else "") / model.method

    def gin_files(self, method: str) -> list[str]:
        """The gin files of a method or of the Initial model, most general first."""
        names = [f"temporalwiki_{method}.gin", "data/temporalwiki_snapshots.gin"]
        if self.architecture != GPT2:
            from ckl_jax.checkpoints import architectures  # slow

            names.insert(1, architectures.decoder_of(self.architecture).gin_file)
        if not self.model:
            return [*names, *SIZES[self.size]]
        # Later files overlay earlier ones: the imported model's sizes come last.
        names += [PAPER, str(Path(self.model) / "model.gin")]
        return [*names, "methods/initial.gin"] if self.is_untrained(method) else names

    def is_untrained(self, method: str) -> bool:
        """Whether the Initial model is --model without further training."""
        return method == INITIAL and self.initial_epochs == 0


@functools.lru_cache(maxsize=1)
def _of_family(updates: Updates, bindings: tuple[str, ...]) -> tuple[str, ...]:
    """Gin bindings of a decoder of --architecture, of the size that the gin files give a GPT-2.

    Sizes that the user binds count, for other fields follow from them (Gemma's factor of the
    embedding).

    Raises:
      UserError: no decoder has the name, or it cannot have such sizes.
    """
    from ckl_jax.checkpoints import architectures  # slow
    from ckl_jax.checkpoints.architecture import RUN_FIELDS
    from ckl_jax.config import gin_scan

    macros = {"VOCABULARY_PATH": "", "CACHE_DIRS": (), "INITIAL_CHECKPOINT_PATH": None}
    of_size = dataclasses.replace(updates, architecture=GPT2, bindings=())
    usual = gin_scan.model_config(gin_values(of_size.gin_files(INITIAL), macros))
    values = gin_values(updates.gin_files(INITIAL), macros, bindings)
    name = architectures.decoder_of(updates.architecture).gin_name
    sizes = {f: values.get(f"{name}.{f}", values[f"{usual}.{f}"]) for f in architectures.SIZES}
    config = architectures.new_config(updates.architecture, sizes)
    fields = dataclasses.asdict(config).items()
    return tuple(f"{name}.{k} = {v!r}" for k, v in fields if k not in RUN_FIELDS)


PAPER_EXPERIMENTS = Experiments(
    titles={f"temporalwiki/{name}": title for name, title in TITLES.items()},
    settings=Updates,
    module="ckl_jax.papers.temporalwiki.experiments",
)
