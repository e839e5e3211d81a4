"""`t5x.utils`: the records that T5X's gin files bind, each with T5X's fields and defaults."""

import dataclasses
import importlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ckl_jax import checks
from ckl_jax.checkpoints.assignment import compile_rule
from ckl_jax.checkpoints.layout import T5X_NAMES
from ckl_jax.checkpoints.restore import stored_step
from ckl_jax.config import missing_modules
from ckl_jax.errors import UserError
from ckl_jax.optim import schedules
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.t5x_api import checkpoints, names
from ckl_jax.train import configs

create_learning_rate_scheduler = schedules.t5x_factors
_NEVER = 2**31


@dataclasses.dataclass(frozen=True)
class DatasetConfig:
    """A SeqIO task or mixture, or a cached task of this project, and how to read it.

    Attributes:
      mixture_or_task_name: of SeqIO's registry, a SeqIO Task or Mixture; or the folder of a cached
        task, which is read without SeqIO and TensorFlow.
      task_feature_lengths: {"inputs": S, "targets": T}; None takes the longest of the data.
      split: such as "train".
      batch_size: examples of a global batch.
      shuffle: whether the order is shuffled.
      seed: of that order; None is the run's. An equal seed gives an equal order, so a run that is
        started again goes on where it was.
      use_cached: read SeqIO's cache of the task.
      pack: put several examples in a row.
      use_custom_packing_ops: pack by the C++ operations of T5X.
      module: deprecated: a module to import, in which the task is registered.
      use_memory_cache: keep an evaluation's data in memory.
      trim_output_features: cut what is longer than the lengths; must be true.
    """

    mixture_or_task_name: Any
    task_feature_lengths: Mapping[str, int] | None
    split: str
    batch_size: int
    shuffle: bool
    seed: int | None
    use_cached: bool = False
    pack: bool = False
    use_custom_packing_ops: bool = False
    module: str | None = None
    use_memory_cache: bool = True
    trim_output_features: bool = True

    def __post_init__(self) -> None:
        if self.task_feature_lengths is not None:
            checks.require_lengths(self.task_feature_lengths)
        checks.require_int(BATCH_SIZE=self.batch_size)
        names.not_offered(
            "utils.DatasetConfig",
            trim_output_features=None if self.trim_output_features else "False",
        )
        if self.module:
            try:
                # Registers the task by being imported.
                importlib.import_module(self.module)
            except ModuleNotFoundError as e:
                raise UserError(
                    f"MIXTURE_OR_TASK_MODULE is {self.module!r}: {e}."
                    + missing_modules.how_to_get(e.name or "")
                ) from e

    @property
    def task_name(self) -> str:
        """A name for files."""
        return str(getattr(self.mixture_or_task_name, "name", self.mixture_or_task_name))

    @property
    def is_cached_folder(self) -> bool:
        """Whether it names a cached task of this project."""
        name = self.mixture_or_task_name
        return isinstance(name, str) and os.path.exists(os.path.join(name, "manifest.json"))

    def check_method(self, method: Any) -> None:
        """Raises `UserError` if the method reads earlier data, which SeqIO's tasks do not offer."""
        if method.mixture is not None or method.reads_earlier_data:
            raise UserError(
                f"Method {method.name!r} wants earlier data, which needs cached tasks: bind "
                "train.configs.DatasetConfig as the train_dataset_cfg, or give a SeqIO mixture."
            )

    def make_source(
        self,
        method: Any,
        *,
        epochs: int | None,
        total_steps: int | None,
        seed: int,
        model: Any,
        partitioner: Any = None,
    ) -> Any:
        """The batches of training, see `train.configs.DatasetConfig.make_source`."""
        self.check_method(method)
        seed = seed if self.seed is None else self.seed
        if self.is_cached_folder:
            # A cached task has one split and one order; packing and shuffling are those of the
            # cache.
            native = configs.DatasetConfig(
                mixture_or_task_name=self.mixture_or_task_name,
                task_feature_lengths=self.task_feature_lengths,
                batch_size=self.batch_size,
                seed=seed,
            )
            return native.make_source(
                method,
                epochs=epochs,
                total_steps=total_steps,
                seed=seed,
                model=model,
                partitioner=partitioner,
            )
        from ckl_jax.t5x_api import seqio_data

        return seqio_data.TaskStream(self, total_steps, seed, model, partitioner or Partitioner())


@dataclasses.dataclass(frozen=True)
class SaveCheckpointConfig(configs.SaveCheckpointConfig):
    """When checkpoints are written and how many stay: the native record with T5X's defaults.

    Attributes:
      dtype: of the parameters; they are written as they are, in float32.
      period: steps between checkpoints; None or 0 is none but the last.
      keep: how many of the newest stay; None is all.
      keep_dataset_checkpoints, save_dataset: not needed: the position in the data is saved with
        every checkpoint.
      checkpointer_cls, checkpoint_manager_cls: of `checkpoints`; `SaveBestCheckpointer`, or the
        manager with a metric_name_to_monitor, keeps the `keep` best and the newest.
    """

    keep: int | None = None
    checkpoint_steps: Sequence[int] | None = ()
    first: bool = True
    dtype: str | None = "float32"
    keep_dataset_checkpoints: int | None = None
    save_dataset: bool = False
    checkpointer_cls: Any = None
    state_transformation_fns: Sequence[Any] = ()
    checkpoint_manager_cls: Any = None

    def __post_init__(self) -> None:
        record = "utils.SaveCheckpointConfig"
        names.not_offered(
            record,
            state_transformation_fns=list(self.state_transformation_fns) or None,
            dtype=None if self.dtype in (None, "float32") else self.dtype,
        )
        checks.require_int(0, **{f"{record}.period": self.period})
        checks.require_int(**{f"{record}.keep": self.keep})
        best = checkpoints.best_of(record, self.keep, **_classes(self))
        if best is not None:
            # The best are kept by `keep_best`; of the newest, one.
            _set(self, keep=1, keep_best=best)
        # The native loop saves at multiples of the period; no run reaches this one.
        _set(self, period=self.period or _NEVER, checkpoint_steps=self.checkpoint_steps or ())


@dataclasses.dataclass(frozen=True)
class RestoreCheckpointConfig(configs.RestoreCheckpointConfig):
    """What to start from, or to evaluate: the native record with T5X's further fields.

    The optimizer state of a checkpoint is taken over unless a rule of the assignment map drops it.

    Attributes:
      path: a `checkpoint_<step>` folder, or one that holds such, or a list with one; `[]` or None
        is none.
      assignment_map: (regular expression of names in this run, names in the checkpoint or None).
      dtype: of the parameters that are evaluated; what trains is float32. `T5Config.dtype` is that
        of the computation.
      restore_dataset: not needed: the position in the data is a function of the step.

    Raises:
      UserError: several paths, where one run starts from one checkpoint.
    """

    path: str | Sequence[str] | None = None
    assignment_map: Sequence[tuple[str, str | None]] | None = ()
    restore_dataset: bool = False
    checkpointer_cls: Any = None
    state_transformation_fns: Sequence[Any] = ()
    checkpoint_manager_cls: Any = None

    def __post_init__(self) -> None:
        record = "utils.RestoreCheckpointConfig"
        functions = list(self.state_transformation_fns) or None
        names.not_offered(record, state_transformation_fns=functions)
        checkpoints.best_of(record, **_classes(self))
        # T5X takes a list; its own run files bind one with a single path.
        paths = self.path if isinstance(self.path, (list, tuple)) else [self.path]
        if len(paths) > 1:
            raise UserError(
                f"RestoreCheckpointConfig.path names {len(paths)} checkpoints; give one, or a "
                "MODEL_DIR with mode = 'all'."
            )
        rules = tuple(self.assignment_map or ())
        _set(self, path=(paths[0] if paths else None) or None, assignment_map=rules)
        # Any name of an optimizer variable: rules that drop them match all, such as "state/.*".
        _set(self, optimizer=not self._drops("state/param_states/x"))
        super().__post_init__()

    def first_step(self) -> int:
        """The step from which a new run counts: the checkpoint's, unless a rule drops it."""
        dropped = self.path is None or self._drops(T5X_NAMES["step"])
        return 0 if dropped else stored_step(self.path)

    def _drops(self, name: str) -> bool:
        """Whether the first rule that matches a name drops it."""
        rules = self.assignment_map
        # T5X applies the first rule whose regular expression matches the whole name.
        return next((new is None for old, new in rules if compile_rule(old).fullmatch(name)), False)


def _classes(config: SaveCheckpointConfig | RestoreCheckpointConfig) -> dict[str, Any]:
    return {n: getattr(config, n) for n in ("checkpointer_cls", "checkpoint_manager_cls")}


def _set(config: Any, **values: Any) -> None:
    """Sets fields of a frozen record in the native record's form."""
    for name, value in values.items():
        object.__setattr__(config, name, value)


@dataclasses.dataclass(frozen=True)
class CheckpointConfig(configs.CheckpointConfig):
    """Saving and restoring; None is T5X's default."""

    save: SaveCheckpointConfig | None = None
    restore: RestoreCheckpointConfig | None = None

    def __post_init__(self) -> None:
        save, restore = self.save or SaveCheckpointConfig(), self.restore
        _set(self, save=save, restore=restore or RestoreCheckpointConfig())


def round_vocab_size_to_multiple(vocabulary: Any, divisor: int = 128) -> int:
    """The least multiple of `divisor` that holds all ids of a vocabulary."""
    return -(-vocabulary.vocab_size // divisor) * divisor


def override_params_axes_names(*unused: Any, **also_unused: Any) -> None:
    """Changing the axis names of parameters.

    Raises:
      UserError: always: rules by name are given as `standard_logical_axis_rules.additional_rules`.
    """
    names.not_offered("utils", override_params_axes_names="it")


# t5x.gin_utils


def summarize_gin_config(*unused: Any, **also_unused: Any) -> None:
    """Accepted for T5X's gin files; every run writes `config.gin` and shows it in TensorBoard."""


def sum_fn(var1: Any, var2: Any) -> Any:
    """var1 + var2."""
    return var1 + var2


def bool_fn(var1: Any) -> bool:
    """Whether `var1` counts as true."""
    return bool(var1)


def string_split_fn(text: str, separator: str, maxsplit: int = -1, index: int | None = None):
    """The parts of a text, or the one of number `index`."""
    parts: Sequence[str] = text.split(separator, maxsplit)
    return parts if index is None else parts[index]
