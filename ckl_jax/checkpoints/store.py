"""Checkpoints of a run: `MODEL_DIR/checkpoint_<step>`, written by orbax in the background.

On disk they have T5X's form: an item `state` with the tree
{"target": params, "state": {"step", "param_states"}} and an item `dataset` (JSON); `metadata`
(JSON, readable without the arrays) is ours. A folder gets its final name by one rename, after
everything in it is written, so a folder of that name is complete.
"""

import contextlib
import dataclasses
import errno
import json
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from jax.experimental import multihost_utils
from orbax.checkpoint import type_handlers

from ckl_jax import __version__, checks
from ckl_jax.checkpoints.layout import (
    checkpoint_names,
    leaf_digest,
    to_t5x_tree,
)
from ckl_jax.checkpoints.restore import (
    CHECKSUMS,
    INSTEAD,
    PREFIX,
    UnreadableCheckpoint,
    absolute,
    complete_steps,
    hide_what_is_raised,
    is_remote,
    read_json_item,
    restore_state,
    step_of,
)
from ckl_jax.errors import UserError

METRICS = "metrics"
_UNTIL_NEXT = "until_next"
_SLICE_BYTES = 1 << 20
_LEFTOVER = re.compile(rf"(\.deleted-)?{PREFIX}\d+(\.orbax-checkpoint-tmp.*)?")
# What texts of errors mean, by a part of them.
_STORAGE_REASONS = {
    **dict.fromkeys(
        ("No space left", "RESOURCE_EXHAUSTED", "Disk quota"), "no space left on the device"
    ),
    "File too large": "a file would be larger than the system allows (see `ulimit -f`)",
    **dict.fromkeys(
        ("Permission denied", "PERMISSION_DENIED", "Read-only file system", "Not a directory"),
        "the folder is not writable",
    ),
}


@dataclasses.dataclass(frozen=True)
class KeepBest:
    """Chooses the checkpoints to keep along with the newest, and says when none better comes.

    Attributes:
      metric: name of a number that `CheckpointStore.save` is given.
      mode: "max" if more is better, else "min".
      count: how many of the best stay; of equal ones the newer.
      patience: evaluations in a row that are not better than the best, after which a training
        stops; None never stops it.
      threshold: how much better than the best an evaluation must be to count as better.
    """

    metric: str
    mode: str = "max"
    count: int = 1
    patience: int | None = None
    threshold: float = 0.0

    def __post_init__(self) -> None:
        if self.mode not in ("max", "min"):
            raise UserError(f"KeepBest.mode is {self.mode!r}; choose 'max' or 'min'.")
        checks.require_int(1, **{"KeepBest.count": self.count, "KeepBest.patience": self.patience})
        if not self.threshold >= 0:
            raise UserError(f"KeepBest.threshold is {self.threshold!r}; give 0 or more.")

    def is_over(self, values: Iterable[float]) -> bool:
        """Whether the last `patience` evaluations were not better; the rule is transformers'.

        Args:
          values: of the metric at each evaluation, in their order; NaN is never better.
        """
        sign, best, worse = 1.0 if self.mode == "max" else -1.0, -math.inf, 0
        for value in values:
            gain = sign * value - best
            worse = 0 if gain > self.threshold else worse + 1
            best = max(best, sign * value) if gain > 0 else best
        return self.patience is not None and worse >= self.patience

    def stay(self, values: Mapping[int, float | None]) -> list[int]:
        """The steps to keep along with the newest, out of all complete ones and their metrics."""
        return self.choose(values)

    def choose(self, values: Mapping[int, float | None]) -> list[int]:
        """The best of the steps of `values`; those without a finite value are never among them."""
        sign = 1.0 if self.mode == "max" else -1.0
        # Ties: sorted by value, then step, so that the newer one stays.
        scored = [
            (sign * value, step)
            for step, value in values.items()
            if value is not None and math.isfinite(value)
        ]
        return [step for _, step in sorted(scored)[-self.count :]]


class CheckpointStore:
    """Saves and restores the checkpoints of one model folder.

    Args:
      model_dir: the folder; made by the first save. May be a `gs://` address.
      keep: how many newest checkpoints stay; None is all. One more exists while a save runs.
      keep_best: which others stay too, however old.
      checksum: also store a digest of every array and compare it at restore, which finds flipped
        bits that the file format does not notice. Blocks a save for about 1.5 s per GB; several
        processes store none.
    """

    def __init__(
        self,
        model_dir: str,
        *,
        keep: int | None = None,
        checksum: bool = True,
        keep_best: KeepBest | None = None,
    ):
        if keep is not None and keep < 1:
            raise UserError(f"keep={keep} would leave no checkpoint; use None for all of them.")
        self.model_dir = absolute(model_dir)
        self.keep = keep
        self.keep_best = keep_best
        self.checksum = checksum
        # Made by the first save: a run that only reads starts no threads and clears nothing.
        self._checkpointer = None
        self._until_next: set[int] = set()  # steps of checkpoints that the next one replaces

    def __enter__(self) -> "CheckpointStore":
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def all_steps(self) -> list[int]:
        """Returns the steps of the complete checkpoints, ascending."""
        return complete_steps(self.model_dir)

    def latest_step(self) -> int | None:
        """Returns the newest complete step, None if there is no checkpoint."""
        return (self.all_steps() or [None])[-1]

    def require_empty(self) -> None:
        """Raises `UserError` if there is a checkpoint already."""
        if self.all_steps():
            raise UserError(f"{self.model_dir} already holds a checkpoint; choose another --out.")

    def save(
        self,
        step: int,
        state: Any,
        metadata: Mapping[str, Any] | None = None,
        dataset: Mapping[str, Any] | None = None,
        metrics: Mapping[str, float] | None = None,
        *,
        until_next: bool = False,
        copy: bool = True,
    ) -> None:
        """Starts to write a checkpoint and returns once the arrays are copied to the host.

        The caller may donate or overwrite the arrays afterwards. An unfinished earlier save is
        waited for first. A checkpoint of the same step is replaced.

        Args:
          step: names the folder.
          state: a dict or dataclass of pytrees named "params", "opt_state", "step", "rng", ...
          metadata: JSON: package versions, scan_layers, vocabulary digest, hash of frozen leaves.
          dataset: JSON: the position in the data.
          metrics: numbers by which `keep_best` may choose; kept in the metadata.
          until_next: delete it when the next one is complete, whatever `keep` says.
          copy: False writes numpy arrays from where they lie, so that a model is in memory once;
            the caller leaves them as they are until `wait` returns.

        Raises:
          UserError: the folder cannot be written, also if an earlier save failed.
        """
        path = self.model_dir / f"{PREFIX}{step}"
        with self._errors(path):
            self._wait_and_prune()
            if self._checkpointer is None:
                self._start()
            if path.exists() and jax.process_index() == 0:
                _remove(path)
            if jax.process_count() > 1:  # none looks before the first has cleared the place
                multihost_utils.sync_global_devices(f"ready for {path.name}")
            metadata = {"ckl_jax": __version__, **(metadata or {})}
            if until_next:
                metadata[_UNTIL_NEXT] = True
                self._until_next.add(step)
            if metrics:
                metadata[METRICS] = _floats(metrics)
            # Digests need the whole array in one process.
            if self.checksum and jax.process_count() == 1:
                named = checkpoint_names(state)
                metadata[CHECKSUMS] = {name: leaf_digest(leaf) for name, leaf in named}
            args = ocp.args.Composite(
                state=ocp.args.PyTreeSave(to_t5x_tree(state, copy)),
                dataset=ocp.args.JsonSave(dict(dataset or {})),
                metadata=ocp.args.JsonSave(metadata),
            )
            # Returns when the arrays are copied; a thread writes them and renames the folder.
            self._checkpointer.save(path, args=args)

    def amend(self, step: int, metrics: Mapping[str, float], dataset: Mapping[str, Any]) -> None:
        """Gives a complete checkpoint other metrics and another data position; its arrays stay.

        Args:
          step: of the checkpoint.
          metrics, dataset: see `save`.

        Raises:
          UserError: the folder cannot be written.
        """
        path = self._path(step)
        with self._errors(path):
            self.wait()
            if self._checkpointer is None:
                self._start()  # with other metrics, `keep_best` may delete others
            if jax.process_index() == 0:
                # The position last: until then the checkpoint is what it was.
                metadata = self.metadata(step) | {METRICS: _floats(metrics)}
                for item, value in (("metadata", metadata), ("dataset", dict(dataset))):
                    part = path / item / "metadata.part"
                    part.write_text(json.dumps(value))
                    part.replace(path / item / "metadata")

    def discard(self, step: int) -> None:
        """Deletes the checkpoint of `step`, if there is one, such that an older one counts."""
        path = self.model_dir / f"{PREFIX}{step}"
        with self._errors(path):
            if self._checkpointer is not None:
                self._checkpointer.wait_until_finished()
            if path.exists() and jax.process_index() == 0:
                _remove(path)

    def restore(self, like: Any, step: int | None = None) -> tuple[int, Any] | None:
        """Restores the newest readable checkpoint, or that of `step`.

        Args:
          like: the state's structure: arrays or `jax.ShapeDtypeStruct`s; a leaf with a sharding
            is restored on it, one without as a numpy array.
          step: this one only.

        Returns:
          (step, state) with the structure of `like`, bit for bit what was saved; None if the
          folder has no checkpoint and `step` is None.

        Raises:
          UserError: names, shapes or dtypes differ from `like`, or nothing is readable.
        """
        self.wait()
        steps = self.all_steps() if step is None else [step]
        failure = None
        # Newest first; an unreadable one is reported and the one before it is taken.
        for candidate in reversed(steps):
            path = self.model_dir / f"{PREFIX}{candidate}"
            try:
                return candidate, restore_state(path, like)
            except UnreadableCheckpoint as e:
                failure = e
                if candidate != steps[0]:
                    warnings.warn(f"{e} {INSTEAD}", stacklevel=2)
        if failure:
            raise failure
        return None

    def metadata(self, step: int | None = None) -> dict[str, Any]:
        """Returns the JSON saved with `step` (default: the newest), checksums and all."""
        return read_json_item(self._path(step), "metadata")

    def dataset(self, step: int | None = None) -> dict[str, Any]:
        """Returns the JSON data position saved with `step` (default: the newest)."""
        return read_json_item(self._path(step), "dataset")

    def wait(self) -> None:
        """Waits until the last save is complete; raises `UserError` if it failed."""
        if self._checkpointer is not None:
            with self._errors(self.model_dir):
                self._checkpointer.wait_until_finished()

    def close(self) -> None:
        """Finishes the last save and applies `keep`."""
        if self._checkpointer is None:
            return
        with self._errors(self.model_dir):
            try:
                self._wait_and_prune()
            finally:
                checkpointer, self._checkpointer = self._checkpointer, None
                checkpointer.close()

    def _path(self, step: int | None) -> epath.Path:
        step = self.latest_step() if step is None else step
        if step is None:
            raise UserError(f"{self.model_dir} holds no checkpoint.")
        return self.model_dir / f"{PREFIX}{step}"

    def _start(self) -> None:
        """Makes the folder and clears what killed runs left; only a run that writes does so."""
        hide_what_is_raised()
        handlers = ocp.CompositeCheckpointHandler(
            state=ocp.PyTreeCheckpointHandler(type_handler_registry=_type_handlers()),
            dataset=ocp.JsonCheckpointHandler(),
            metadata=ocp.JsonCheckpointHandler(),
        )
        self._checkpointer = ocp.AsyncCheckpointer(handlers)
        self.model_dir.mkdir(parents=True, exist_ok=True)
        if jax.process_index() == 0:
            # A killed run leaves temporary folders of orbax and half-deleted checkpoints.
            for path in self.model_dir.iterdir():
                if _LEFTOVER.fullmatch(path.name) and step_of(path) is None:
                    path.rmtree(missing_ok=True)
            # Only the newest can be one: a save deletes those before it.
            with contextlib.suppress(UserError):
                if self.metadata().get(_UNTIL_NEXT):
                    self._until_next.add(self.latest_step())

    def _wait_and_prune(self) -> None:
        self.wait()
        if self._checkpointer is not None and jax.process_index() == 0:
            steps = self.all_steps()
            for step in set(steps) - set(self._kept(steps)):
                _remove(self.model_dir / f"{PREFIX}{step}")

    def _kept(self, steps: list[int]) -> list[int]:
        steps = [s for s in steps if s == steps[-1] or s not in self._until_next]
        newest = steps[-(self.keep or 0) :]
        if self.keep_best is None or len(newest) == len(steps):
            return newest
        return newest + self.keep_best.stay(self._metrics(steps))

    def best_step(self) -> int | None:
        """The best of the complete checkpoints by `keep_best`; None if none has its metric."""
        return (self.keep_best.choose(self._metrics(self.all_steps())) or [None])[-1]

    def _metrics(self, steps: Iterable[int]) -> dict[int, float | None]:
        return {step: self._metric(step) for step in steps}

    def _metric(self, step: int) -> float | None:
        try:
            return self.metadata(step).get(METRICS, {}).get(self.keep_best.metric)
        except UnreadableCheckpoint:
            return None

    @contextlib.contextmanager
    def _errors(self, path: epath.Path) -> Iterator[None]:
        try:
            yield
        except Exception as e:
            reason = _storage_reason(e)
            if reason is None:
                raise
            raise UserError(
                f"Cannot write the checkpoint {path}: {reason}; free space or choose another "
                "MODEL_DIR, then restart: the run goes on from its newest whole checkpoint, if any."
            ) from e


def _floats(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}


def _type_handlers() -> type_handlers.TypeHandlerRegistry:
    """Orbax's, but a device writes its slice of a replicated array only where that is large.

    It compiles a program for each shape that it slices, which takes longer than to write the whole
    of a small one.
    """
    scalars = type_handlers.ScalarHandler()
    return type_handlers.create_type_handler_registry(
        (jax.Array, type_handlers.ArrayHandler(min_slice_bytes_for_replica_parallel=_SLICE_BYTES)),
        (np.ndarray, type_handlers.NumpyHandler()),
        *((kind, scalars) for kind in (int, float, np.number)),
    )


def _storage_reason(e: Exception) -> str | None:
    """Describes why storage refused; None if `e` is about something else."""
    # orbax and TensorStore wrap errors of the disk in kinds of their own: the text decides.
    if isinstance(e, OSError) and e.errno is not None:
        return e.strerror or errno.errorcode.get(e.errno, str(e))
    text = str(e)
    return next((reason for sign, reason in _STORAGE_REASONS.items() if sign in text), None)


def _remove(path: epath.Path) -> None:
    """Deletes a checkpoint such that a kill midway leaves no half of it under its name."""
    if is_remote(path):
        path.rmtree()
        return
    # A rename is atomic, a deletion of many files is not.
    trash = path.parent / f".deleted-{path.name}"
    trash.rmtree(missing_ok=True)
    path.rename(trash)
    trash.rmtree()
