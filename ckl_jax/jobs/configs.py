"""The configuration records that gin files bind, with T5X's names."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ckl_jax import checks
from ckl_jax.checkpoints.restore import PREFIX, complete_steps, find_checkpoint
from ckl_jax.data.cached import CachedTask
from ckl_jax.errors import UserError, nearest

RESTORE_MODES = ("latest", "specific", "all")


def path(folder: str, name: str) -> str:
    """A path below a folder: gin files derive one from another by it."""
    return str(Path(folder) / name)


@dataclasses.dataclass(frozen=True)
class DatasetConfig:
    """A cached task, and how to read it.

    Attributes:
      mixture_or_task_name: the new corpus: a cached task's folder, or its name in `cache_dirs`.
      task_feature_lengths: {"inputs": S, "targets": T}; longer rows are cut, shorter padded.
      batch_size: examples of a global batch.
      replay_task_name: the earlier corpus, for methods that review it.
      cache_dirs: folders of cached tasks.
      seed: of the order of examples.
      use_cached: must be true: this runner reads cached tasks.
    """

    mixture_or_task_name: str
    task_feature_lengths: Mapping[str, int]
    batch_size: int
    replay_task_name: str | None = None
    cache_dirs: Sequence[str] = ()
    seed: int = 0
    use_cached: bool = True

    def __post_init__(self) -> None:
        if not self.use_cached:
            raise UserError(
                "USE_CACHED_TASKS = False: this runner reads cached tasks only; make them with "
                "'ckl data prepare' and leave USE_CACHED_TASKS at True."
            )
        checks.require_lengths(self.task_feature_lengths)
        checks.require_int(BATCH_SIZE=self.batch_size)
        checks.require_int(0, RANDOM_SEED=self.seed)

    def open(self, name: str) -> CachedTask:
        """Opens a cached task by folder or by name.

        Raises:
          UserError: there is none of that name.
        """
        candidates = [Path(name), *(Path(root) / name for root in self.cache_dirs)]
        for path in candidates:
            if (path / "manifest.json").exists():
                return CachedTask.open(path)
        known = sorted(
            p.name for root in self.cache_dirs if os.path.isdir(root) for p in Path(root).iterdir()
        )
        raise UserError(
            f"Task {name!r} does not exist in any of the task cache directories "
            f"{list(self.cache_dirs)}; make it with 'ckl data prepare'.{nearest(name, known)}"
        )


@dataclasses.dataclass(frozen=True)
class SaveCheckpointConfig:
    """When checkpoints are written and how many stay.

    Attributes:
      period: steps between them; None is once an epoch. The last step is always saved.
      keep: how many of the newest stay; None is all.
    """

    period: int | None = None
    keep: int | None = 1

    def __post_init__(self) -> None:
        checks.require_int(CHECKPOINT_PERIOD=self.period, CHECKPOINTS_KEPT=self.keep)


@dataclasses.dataclass(frozen=True)
class RestoreCheckpointConfig:
    """The parameters to start from, or to evaluate.

    Attributes:
      path: a MODEL_DIR or a `checkpoint_<step>` in one; None starts from random parameters.
      mode: "latest" takes the newest of a MODEL_DIR, or the one that `path` names; "specific"
        insists on the latter; "all" takes every one of a MODEL_DIR (evaluation only).
    """

    path: str | None = None
    mode: str = "latest"

    def __post_init__(self) -> None:
        if self.mode not in RESTORE_MODES:
            raise UserError(
                f"RestoreCheckpointConfig.mode is {self.mode!r}; choose from "
                f"{', '.join(RESTORE_MODES)}.{nearest(self.mode, RESTORE_MODES)}"
            )

    def checkpoints(self) -> list[str]:
        """The `checkpoint_<step>` folders that path and mode mean, in the order of their steps.

        Raises:
          UserError: there is none.
        """
        if self.path is None:
            raise UserError("CHECKPOINT_PATH is None; give a MODEL_DIR or a checkpoint in one.")
        found = find_checkpoint(self.path)
        single = (Path(self.path) / "state").is_dir()
        if self.mode == "specific" and not single:
            raise UserError(
                f"{self.path} is no checkpoint but the mode is 'specific'; give "
                f"{self.path}/{found.name} or the mode 'latest'."
            )
        if self.mode == "all" and not single:
            return [str(found.parent / f"{PREFIX}{n}") for n in complete_steps(self.path)]
        return [str(found)]


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """Saving and restoring."""

    save: SaveCheckpointConfig = SaveCheckpointConfig()
    restore: RestoreCheckpointConfig = RestoreCheckpointConfig()
