"""A study of successive updates: the models after each interval, and their losses on facts.

Reads the folder that `ckl temporalwiki` fills: its record, summaries, probe rows and manifests. No
model is run.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ckl_jax import checks
from ckl_jax.analysis import labels
from ckl_jax.analysis.perplexity import Losses
from ckl_jax.analysis.rows import EVAL, ProbedRun, read_rows
from ckl_jax.data.tasks.word_marks import CHANGED_SPANS
from ckl_jax.errors import UserError
from ckl_jax.files import ANY_NUMBER, read_json, read_json_object
from ckl_jax.papers.temporalwiki.analysis.text_losses import Texts, losses_if_any

OVERLAP = "data/overlap.json"  # of the probes with the text, in the folder of a study
RECORD = "temporalwiki.json"
INITIAL = "initial"
LATER = "later"  # in a run's folder: its rows for the probes of later intervals
LIGHT_TUNED = "light_tuned"  # in a run's folder: the model, tuned on a class of facts
NEW_TEXT, OLD_TEXT = "new", "rest"  # of an interval: its diffset, and the rest of its new snapshot
KINDS_OF_TEXT = (NEW_TEXT, OLD_TEXT)
# What is measured in running text, relative to Initial.
TEXT_MEASURES = {
    NEW_TEXT: "Proper nouns, new text",
    OLD_TEXT: "Proper nouns, rest",
    CHANGED_SPANS: "Changed spans",
}
NAMES = {"vanilla": "Diff", "full": "Full", "k_adapter_k2": "K-Adapter"}
_ORDER = (INITIAL, "full", "vanilla", "recadam", "mix_review", "lora", "k_adapter_k2")
Key = tuple[str, str]  # interval and class, or kind, of facts


@dataclasses.dataclass(frozen=True)
class Model:
    """One model.

    Attributes:
      method: how it was made; "initial" for the one before any update.
      interval: the last that it was updated by; "" for Initial.
      losses: {(interval, class): losses of the facts}, and of the kinds of changed facts; of a
        study without facts, {(interval, CHANGED_SPANS): losses of the rows of its new text}.
    """

    method: str
    interval: str
    path: Path
    summary: Mapping[str, Any]
    losses: Mapping[Key, Losses]


@dataclasses.dataclass(frozen=True)
class Study:
    """All models of a folder."""

    root: Path
    settings: Mapping[str, Any]  # what its record says
    intervals: tuple[str, ...]  # names, "20210801-20210901", in order
    initial: Model  # the model before any update
    # {method: {interval: model}}, of those that are trained and probed
    models: Mapping[str, Mapping[str, Model]]

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(self.models)

    def all_models(self) -> Iterator[Model]:
        yield self.initial
        for after in self.models.values():
            yield from after.values()

    @property
    def has_facts(self) -> bool:
        return any(name != CHANGED_SPANS for _, name in self.initial.losses)

    @property
    def changed(self) -> str:
        """What misalignment in time is measured on."""
        return "changed facts" if self.has_facts else "changed spans"

    def before(self, model: Model) -> Model:
        """The model from which `model` was trained: its method's previous one, or Initial."""
        after = self.models[model.method]
        earlier = self.intervals[: self.intervals.index(model.interval)]
        # Text of an interval may have been too little to train on.
        return next((after[i] for i in reversed(earlier) if i in after), self.initial)

    def label(self, interval: str) -> str:
        """The interval by month and day as in the paper, or by year and month over years."""
        # "20210801-20210901" -> "0801-0901"; "20151129-20201127" -> "2015-11 to 2020-11".
        first, last = self.intervals[0], self.intervals[-1]
        if int(last.split("-")[1]) - int(first.split("-")[0]) < 10_000:  # a year
            return "-".join(date[4:] for date in interval.split("-"))
        months = [date[:4] + "-" + date[4:6] for date in interval.split("-")]
        return " to ".join(months) if months[0] != months[1] else interval


def method_label(method: str) -> str:
    return NAMES.get(method, labels.method_label(method))


def load(root: str | Path, trained: bool = True) -> Study:
    """Reads a folder of `ckl temporalwiki`, finished or not.

    Args:
      trained: whether its Initial model must be there; else `initial` may be None.

    Raises:
      UserError: it is none, or its Initial model is not there yet.
    """
    root = Path(root)
    if not (root / RECORD).is_file():
        raise UserError(f"{root} has no {RECORD}; give the --out folder of `ckl temporalwiki`.")
    settings = read_json(root / RECORD)
    checks.require_fields(
        str(root / RECORD), settings, {"snapshots": [str]}, "start `ckl temporalwiki` again"
    )
    dates = [text.partition(":")[0] for text in settings["snapshots"]]
    intervals = tuple(f"{old}-{new}" for old, new in zip(dates, dates[1:], strict=False))
    initial = _model(root / INITIAL, INITIAL, "")
    if initial is None and trained:
        raise UserError(f"{root} has no Initial model yet; start `ckl temporalwiki` again.")
    models: dict[str, dict[str, Model]] = {}
    for interval in intervals:
        # Any folder with a finished run counts, also of a method that is not in the settings any
        # more.
        for folder in (root / interval).glob("*"):
            if model := _model(folder, folder.name, interval):
                models.setdefault(folder.name, {})[interval] = model
    rank = {name: i for i, name in enumerate(_ORDER)}
    methods = sorted(models, key=lambda name: (rank.get(name, len(rank)), name))
    return Study(root, settings, intervals, initial, {m: models[m] for m in methods})


def _model(folder: Path, method: str, interval: str) -> Model | None:
    """The model of a run; None until it is trained, and measured on facts or on running text."""
    on_facts = bool(probed(folder))
    if not (folder / "summary.json").is_file() or not (on_facts or texts_of(folder)):
        return None
    summary = read_json_object(folder / "summary.json", ANY_NUMBER)
    losses = losses_of(folder) if on_facts else _losses_of_text(folder)
    return Model(method, interval, folder, summary, losses)


def _losses_of_text(folder: Path) -> dict[Key, Losses]:
    """Losses on the changed spans of each interval's new text, {(interval, CHANGED_SPANS): ...}."""
    spans = {
        task.removesuffix(f"_{NEW_TEXT}"): groups[CHANGED_SPANS]
        for task, groups in texts_of(folder).items()
        if task.endswith(f"_{NEW_TEXT}") and CHANGED_SPANS in groups
    }
    return {(i, CHANGED_SPANS): losses for i, losses in spans.items() if losses.tokens.any()}


def texts_of(folder: Path) -> Texts:
    """The losses of a run's model on running text, by task; those of later intervals too."""
    texts: Texts = {}
    for place in (folder / EVAL, *sorted((folder / LATER).glob("*"))):
        texts |= losses_if_any(place)
    return texts


def losses_of(folder: str | Path) -> dict[Key, Losses]:
    """Losses on facts at the end of a run, by interval and class, and by kind of changed fact.

    Raises:
      UserError: the folder has no rows of facts.
    """
    losses: dict[Key, Losses] = {}
    for run in probed(Path(folder)):
        for probe, scored in run.last.items():
            interval, _, name = probe.rpartition("_")
            if scored.losses is not None:
                losses[interval, name] = scored.losses
                # Changed facts are updated or new ones: their losses are kept apart too.
                for kind in sorted(set(scored.losses.kinds) - {"", name}):
                    losses[interval, kind] = scored.losses.only(kind)
    if not losses:
        if not Path(folder).is_dir():
            raise UserError(f"There is no folder {folder}; give the MODEL_DIR of a run.")
        raise UserError(
            f"{folder} has no rows of facts (probes/rows_<step>.jsonl); train it with FACT_PROBES."
        )
    return losses


def probed(folder: Path) -> list[ProbedRun]:
    """The run and its later evaluations."""
    # Later evaluations hold the probes of intervals that came after the training.
    study_folders = (folder, *sorted((folder / LATER).glob("*")))
    return [ProbedRun.open(path) for path in study_folders if any(path.glob("probes/rows_*.jsonl"))]


def probes_of(folder: str | Path) -> set[str]:
    """The names of the probes that a folder's model was evaluated on, at its end and later."""
    names: set[str] = set()
    for run in probed(Path(folder)):
        names |= {row["probe"] for row in read_rows(run.files[run.steps[-1]])}
    return names


def manifests(study: Study, kind: str) -> dict[str, dict[str, Any]]:
    """{interval: manifest} of the diffsets or probes that exist."""
    return _manifests({i: study.root / "data" / i / kind for i in study.intervals})


def untuned(interval: str, kind: str) -> str:
    """Says that there are no facts of a class to tune on."""
    return (
        f"There are no {kind} facts of {interval} to tune on, so no model is light-tuned on "
        f"{kind} facts of it."
    )


def text_of(study: Study) -> dict[str, dict[str, Any]]:
    """{date: manifest} of the snapshots whose whole text was made."""
    dates = dict.fromkeys(date for i in study.intervals for date in i.split("-"))
    return _manifests({date: study.root / "data" / date for date in dates})


def _manifests(folders: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    paths = {name: folder / "manifest.json" for name, folder in folders.items()}
    return {
        name: read_json_object(path, ANY_NUMBER) for name, path in paths.items() if path.is_file()
    }
