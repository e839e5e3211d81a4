"""The configuration records that gin files bind, with T5X's names."""

import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ckl_jax import checks
from ckl_jax.checkpoints.assignment import compile_rule
from ckl_jax.checkpoints.restore import PREFIX, complete_steps, find_checkpoint, is_checkpoint
from ckl_jax.checkpoints.store import KeepBest
from ckl_jax.data.tasks.cached import CachedTask, find_task
from ckl_jax.data.tasks.contiguous_batches import ContiguousSource, contiguous_source
from ckl_jax.data.tasks.converters import Converter, Masking, converter_of
from ckl_jax.data.tasks.epochs import EpochPlan
from ckl_jax.data.tasks.packing import SEGMENTS, row_features
from ckl_jax.data.tasks.pipeline import Batch, BatchSource
from ckl_jax.errors import UserError, nearest
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.train.vocabulary_check import check_task_vocabulary

_DTYPES = ("float32", "bfloat16", "float16")
_CUT = 0.1  # of the tokens of a task: more are not left out without a word
RESTORE_MODES = ("latest", "specific", "all")


def path(folder: str, name: str) -> str:
    """Joins a path to a folder, for gin files that derive one path from another."""
    checks.require_text(**{"path.folder": folder, "path.name": name})
    return str(Path(folder) / name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetConfig:
    """A cached task, and how to read it.

    Attributes:
      mixture_or_task_name: the new corpus: a cached task's folder, or its name in `cache_dirs`.
      task_feature_lengths: {"inputs": S, "targets": T}, of a decoder-only model {"targets": T};
        longer rows are cut, packed ones refused, shorter padded.
      batch_size: examples of a global batch.
      replay_task_name: the earlier corpus, for methods that review it.
      review_task_name: that of the update before, for methods that review the whole of it.
      cache_dirs: folders of cached tasks.
      seed: of the order of examples.
      use_cached: must be true: this runner reads cached tasks.
      contiguous: rows of the task are documents, and row b of a batch goes on where row b of the
        batch before ended (`data.tasks.contiguous_batches`); a model with a memory carries it from
        step to step.
      marked_weight: of the marked tokens of a task (`data.tasks.causal`) in the loss, relative to
        others, or of a masked model how many times as often they are hidden; 1 reads no marks.
    """

    mixture_or_task_name: str
    task_feature_lengths: Mapping[str, int]
    batch_size: int
    replay_task_name: str | None = None
    cache_dirs: Sequence[str] = ()
    seed: int = 0
    use_cached: bool = True
    contiguous: bool = False
    review_task_name: str | None = None
    marked_weight: float = 1.0

    def __post_init__(self) -> None:
        checks.require_bool(CONTIGUOUS_ROWS=self.contiguous, USE_CACHED_TASKS=self.use_cached)
        for name in ("replay_task_name", "review_task_name"):
            if (task := getattr(self, name)) is not None:
                checks.require_text(**{name.upper(): task})
        if not self.use_cached:
            raise UserError(
                "USE_CACHED_TASKS = False: this runner reads cached tasks only; make them with "
                "'ckl data prepare' and leave USE_CACHED_TASKS at True."
            )
        rows = self.task_feature_lengths
        alone = isinstance(rows, Mapping) and list(rows) == ["targets"]
        checks.require_lengths(rows, features=("targets",) if alone else ("inputs", "targets"))
        checks.require_int(BATCH_SIZE=self.batch_size)
        checks.require_int(0, RANDOM_SEED=self.seed)
        checks.require_positive(CHANGED_SPAN_WEIGHT=self.marked_weight)

    def make_source(
        self,
        method: Any,
        *,
        epochs: int | None,
        total_steps: int | None,
        seed: int,
        model: Any,
        partitioner: Partitioner | None = None,
    ) -> BatchSource | ContiguousSource:
        """Opens the tasks and plans the order of their rows.

        Args:
          method: whose mixture says what is reviewed.
          epochs: passes over the corpus; None takes as many as `total_steps` need.
          total_steps: where `epochs` is None.
          seed: not used: the order is that of this record's own seed.
          model: whose vocabulary must be the tasks'.
          partitioner: says which rows of a batch this process reads; None is all.

        Raises:
          UserError: a task is missing, empty, was made with another vocabulary or for another
            kind of model; the method reviews earlier data and none is named; the batch is larger
            than an epoch.
        """
        del seed
        self.check_method(method)
        if self._in_order:
            return self._contiguous(model, epochs, total_steps, partitioner)
        tasks = [self.open(self.mixture_or_task_name)]
        if epochs is None:  # review only adds to the rows of an epoch
            epochs = -(-total_steps // max(1, -(-len(tasks[0]) // self.batch_size)))
        replay = review = 0
        if method.mixture is not None:
            tasks.append(self.open(self.replay_task_name))
            replay = len(tasks[1])
            if method.mixture.review_phases and self.review_task_name is not None:
                tasks.append(self.open(self.review_task_name))
                review = len(tasks[2])
        elif method.reads_earlier_data:
            self.open(self.replay_task_name)  # it is there
        for task in tasks:
            check_task_vocabulary(task, self.mixture_or_task_name, model.output_vocabulary)
        plan = EpochPlan(
            len(tasks[0]), replay, method.mixture, self.batch_size, epochs, self.seed, review
        )
        plan.refuse_padding(self.mixture_or_task_name)
        if (shortage := plan.shortage()) and jax.process_index() == 0:
            print(shortage, file=sys.stderr, flush=True)
        return self._source(plan, tasks, model, partitioner)

    def _source(
        self,
        plan: EpochPlan,
        tasks: list[CachedTask],
        model: Any,
        partitioner: Partitioner | None,
    ) -> BatchSource:
        convert, lengths = self.reading(model, tasks)
        return BatchSource(
            plan,
            tasks,
            lengths,
            convert=convert,
            rows=self._rows(partitioner),
        )

    def _rows(self, partitioner: Partitioner | None) -> np.ndarray | None:
        return None if partitioner is None else partitioner.process_rows(self.batch_size)

    def earlier(
        self, method: Any, model: Any, examples: int, partitioner: Partitioner | None = None
    ) -> Iterator[Batch]:
        """Batches of `examples` rows of the earlier corpus (all rows if it has fewer), drawn by
        `seed`.

        Args:
          method: that wants them, for the complaint.
          model: whose vocabulary must be the task's.
          examples: how many; whole batches are drawn.
          partitioner: says which rows of a batch this process reads; None is all.

        Raises:
          UserError: no earlier corpus is named, or it is missing, empty or of another vocabulary.
        """
        self.check_method(method)
        task = self.open(self.replay_task_name)
        check_task_vocabulary(task, self.replay_task_name, model.output_vocabulary)
        plan = EpochPlan(len(task), 0, None, self.batch_size, 1, self.seed)
        source = self._source(plan, [task], model, partitioner)
        return (source[step] for step in range(min(len(source), -(-examples // self.batch_size))))

    @property
    def _in_order(self) -> bool:
        """Whether rows are read as running text."""
        return self.contiguous and self.marked_weight == 1

    def check_method(self, method: Any) -> None:
        """Raises `UserError` if the method reads earlier data, and there are none for it."""
        reads = method.mixture is not None or method.reads_earlier_data
        if self._in_order and method.reads_earlier_data:
            raise UserError(
                f"Method {method.name!r} reads rows of an earlier corpus before its first step, "
                "and CONTIGUOUS_ROWS reads running text; choose another method."
            )
        if self._in_order and reads:
            raise UserError(
                f"Method {method.name!r} mixes rows of an earlier corpus into every epoch, which "
                "would interrupt the running text of CONTIGUOUS_ROWS; choose another method, or "
                "mix the documents before they are tokenised."
            )
        if reads and self.replay_task_name is None:
            raise UserError(
                f"Method {method.name!r} needs earlier data; bind DatasetConfig.replay_task_name "
                "(REPLAY_TASK_NAME) to the cached task of D0."
            )

    def _contiguous(
        self,
        model: Any,
        epochs: int | None,
        total_steps: int | None,
        partitioner: Partitioner | None,
    ) -> ContiguousSource:
        name = type(model).__name__
        if tuple(model.task_features) != ("targets",) or hasattr(model, "masking"):
            raise UserError(f"CONTIGUOUS_ROWS is for decoder-only models, not a {name}.")
        if getattr(model, "left_pad_legacy", False):
            raise UserError("CONTIGUOUS_ROWS and LEFT_PAD_LEGACY exclude each other; choose one.")
        if model.loss_normalizing_factor == "AVERAGE_PER_SEQUENCE":
            raise UserError(
                "LOSS_NORMALIZING_FACTOR = 'AVERAGE_PER_SEQUENCE' needs whole sequences, and rows "
                "of CONTIGUOUS_ROWS cut them; take 'NUM_REAL_TARGET_TOKENS'."
            )
        checks.require_lengths(self.task_feature_lengths, features=("targets",))
        task = self.open(self.mixture_or_task_name)
        check_task_vocabulary(task, self.mixture_or_task_name, model.output_vocabulary)
        return contiguous_source(
            task,
            getattr(model.output_vocabulary, "eos_id", 1),
            self.batch_size,
            self.task_feature_lengths["targets"],
            epochs=epochs,
            total_steps=total_steps,
            seed=self.seed,
            batch_rows=self._rows(partitioner),
        )

    def reading(self, model: Any, tasks: Sequence[CachedTask]) -> tuple[Converter, dict[str, int]]:
        """How rows of `tasks` become batches of `model`, and the feature lengths that are read.

        Raises:
          UserError: the tasks have other features than the model reads, or longer packed rows.
        """
        unmarked = self.contiguous or any("marks" not in t.features for t in tasks[:1])
        if self.marked_weight != 1 and unmarked:
            raise UserError(
                f"The weight of marked tokens is {self.marked_weight}, but the rows of "
                f"{self.mixture_or_task_name!r} have no marks, or cannot be weighed by them; make "
                "them for a decoder-only or masked model by 'ckl data rows --marks' of marked "
                "documents, without CONTIGUOUS_ROWS, or leave the weight at 1."
            )
        convert = converter_of(
            model.task_features,
            getattr(model.output_vocabulary, "pad_id", 0),
            getattr(model, "left_pad_legacy", False),
            Masking(**model.masking) if hasattr(model, "masking") else None,
            self.marked_weight,
        )
        return convert, self._lengths(model.task_features, tasks)

    def _lengths(self, wanted: Sequence[str], tasks: Sequence[CachedTask]) -> dict[str, int]:
        """The lengths of the features that are read, with segments for packed rows."""
        checks.require_lengths(self.task_feature_lengths, features=wanted)
        # Marks only weigh tokens; no model reads them.
        have = {tuple(n for n in task.features if n != "marks") for task in tasks}
        packed = have == {row_features(wanted, True)}
        if not packed and have != {tuple(wanted)}:
            raise UserError(
                f"Task {self.mixture_or_task_name!r} has the features {sorted(have)}, but the "
                f"model reads {tuple(wanted)}: rows of text for a decoder-only model are made by "
                "'ckl data rows', an encoder-decoder's by 'ckl data prepare', all with or all "
                "without --pack."
            )
        lengths = {name: self.task_feature_lengths[name] for name in wanted}
        for task in tasks:
            sizes = task.row_lengths(np.arange(len(task)), lengths)
            cut = {
                name: np.maximum(size - lengths[name], 0).sum() / max(1, size.sum())
                for name, size in sizes.items()
            }
            # Whole examples would be lost, or targets be predicted from inputs that are.
            if packed and any(cut.values()):
                raise UserError(
                    f"{task.directory} has packed rows that are longer than {lengths}; read them "
                    "whole (TASK_FEATURE_LENGTHS, ROW_LENGTH), or pack shorter ones."
                )
            for name, fraction in cut.items():
                if fraction > _CUT and jax.process_index() == 0:
                    print(
                        f"Warning: {fraction:.0%} of the tokens of {name!r} in {task.directory} "
                        f"stand behind the {lengths[name]} of a row that are read "
                        "(TASK_FEATURE_LENGTHS, ROW_LENGTH), and are left out.",
                        file=sys.stderr,
                        flush=True,
                    )
        segments = {SEGMENTS[name]: lengths[name] for name in wanted if packed}
        marks = {"marks": lengths["targets"]} if self.marked_weight != 1 else {}
        return lengths | segments | marks

    def open(self, name: str) -> CachedTask:
        """Opens a cached task by folder or by name.

        Raises:
          UserError: there is none of that name.
        """
        if (folder := find_task(name, self.cache_dirs)) is not None:
            return CachedTask.open(folder)
        manifests = (p for root in self.cache_dirs for p in Path(root).glob("*/manifest.json"))
        known = sorted({path.parent.name for path in manifests})
        raise UserError(
            f"Task {name!r} does not exist in any of the task cache directories "
            f"{list(self.cache_dirs)}, which hold {', '.join(known) or 'none'}; give its own by "
            f"CACHE_DIRS, or make it with 'ckl data prepare'.{nearest(name, known)}"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SaveCheckpointConfig:
    """When checkpoints are written and how many stay.

    Attributes:
      period: steps between them; None is once an epoch. The last step is always saved.
      keep: how many of the newest stay; None is all.
      minutes: also save where the last checkpoint is so old, so that a crash costs no more; such a
        checkpoint stays until the next. None is never.
      checkpoint_steps: further steps at which to save.
      first: also save what training starts from, as T5X does.
      keep_best: which others stay too, by a metric "<split>/<name>" of the run's metrics such as
        "inference_eval/updated_lama/em" or "training_eval/<task>/loss", where it is evaluated at
        the steps that are saved; and when training stops because none better comes.
    """

    period: int | None = None
    keep: int | None = 1
    minutes: float | None = 10.0
    checkpoint_steps: Sequence[int] = ()
    first: bool = False
    keep_best: KeepBest | None = None

    def __post_init__(self) -> None:
        checks.require_int(CHECKPOINT_PERIOD=self.period, CHECKPOINTS_KEPT=self.keep)
        checks.require_positive(CHECKPOINT_MINUTES=self.minutes)
        if not isinstance(self.keep_best, KeepBest | None):
            raise UserError(f"keep_best is {self.keep_best!r}; give @store.KeepBest() or None.")

    def is_due(self, step: int, end_of_epoch: bool) -> bool:
        """Whether to save after `step`."""
        due = end_of_epoch if self.period is None else step % self.period == 0
        return due or step in self.checkpoint_steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class RestoreCheckpointConfig:
    """The parameters to start from, or to evaluate.

    Attributes:
      path: a MODEL_DIR or a `checkpoint_<step>` in one; None starts from random parameters.
      mode: "latest" takes the newest of a MODEL_DIR, or the one that `path` names; "specific"
        insists on the latter; "all" takes every one of a MODEL_DIR (evaluation only).
      assignment_map, strict, fallback_to_scratch: see `checkpoints.assignment.assign`.
      optimizer: also start from its optimizer state, where it has one that fits.
      dtype: of the parameters that are evaluated: "float32", "bfloat16" or "float16"; None is
        float32. What trains is always float32.
      frozen_dtype: of the parameters that a method freezes, in training: "bfloat16" holds the base
        of a LoRA update in half of the memory, rounded if its checkpoint is of a finer type.
    """

    path: str | None = None
    mode: str = "latest"
    assignment_map: Sequence[tuple[str, str | None]] = ()
    strict: bool = True
    fallback_to_scratch: bool = False
    optimizer: bool = False
    dtype: str | None = None
    frozen_dtype: str = "float32"

    @property
    def assignment(self) -> dict[str, Any]:
        """The mapping from stored to model arrays: arguments of `train.setup.initial_params`."""
        return {
            "assignment_map": tuple(map(tuple, self.assignment_map or ())),
            "strict": self.strict,
            "fallback_to_scratch": self.fallback_to_scratch,
        }

    def __post_init__(self) -> None:
        checks.require_choice((*_DTYPES, None), **{"RestoreCheckpointConfig.dtype": self.dtype})
        checks.require_choice(_DTYPES, FROZEN_DTYPE=self.frozen_dtype)
        for pattern, _ in self.assignment["assignment_map"]:
            compile_rule(pattern)
        if self.mode not in RESTORE_MODES:
            raise UserError(
                f"RestoreCheckpointConfig.mode is {self.mode!r}; choose from "
                f"{', '.join(RESTORE_MODES)}.{nearest(self.mode, RESTORE_MODES)}"
            )

    def checkpoints(self) -> list[str]:
        """The `checkpoint_<step>` folders selected by path and mode, in order of step.

        Raises:
          UserError: there is none.
        """
        if self.path is None:
            raise UserError("CHECKPOINT_PATH is None; give a MODEL_DIR or a checkpoint in one.")
        checkpoint = find_checkpoint(self.path)
        single = is_checkpoint(self.path)
        if self.mode == "specific" and not single:
            raise UserError(
                f"{self.path} is not a checkpoint, but the mode is 'specific'; give "
                f"{self.path}/{checkpoint.name} or the mode 'latest'."
            )
        if self.mode == "all" and not single:
            return [str(checkpoint.parent / f"{PREFIX}{n}") for n in complete_steps(self.path)]
        return [str(checkpoint)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """Saving and restoring."""

    save: SaveCheckpointConfig = SaveCheckpointConfig()
    restore: RestoreCheckpointConfig = RestoreCheckpointConfig()
