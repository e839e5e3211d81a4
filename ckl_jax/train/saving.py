"""The files of a run other than its metrics: checkpoints with metadata, and a summary."""

import contextlib
import importlib.metadata
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np
from jax.experimental import multihost_utils

from ckl_jax import __version__, files
from ckl_jax.checkpoints.restore import find_checkpoint, is_remote
from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.data import plugins
from ckl_jax.data.text.vocabularies import digest_of
from ckl_jax.errors import UserError
from ckl_jax.models.base import BaseTransformerModel
from ckl_jax.train import adapters
from ckl_jax.train.artifacts import count
from ckl_jax.train.prepare import Prepared
from ckl_jax.train.remote_sync import Mirror
from ckl_jax.train.resume import Begun
from ckl_jax.train.state import TrainState, all_finite, as_dict, swapped
from ckl_jax.train.telemetry import Telemetry, say
from ckl_jax.trees.partition import merge
from ckl_jax.trees.paths import flatten

_STEPS_TO_ASK = 20  # after so many, several processes agree on whether a checkpoint is overdue


class Saver:
    """Saves checkpoints and the summary of a run.

    Args:
      run: what trains.
      store: the checkpoints of its MODEL_DIR.
      begun: how it began.
      telemetry: has the seconds of training and the metrics that go with a checkpoint.
      context: "run", "method" and "phase", for metadata and summary.
      mirror: of a MODEL_DIR that is an address; its small files go there before a checkpoint.
    """

    def __init__(
        self,
        run: Prepared,
        store: CheckpointStore,
        begun: Begun,
        telemetry: Telemetry,
        *,
        context: Mapping[str, Any],
        mirror: Mirror,
    ):
        self._run, self._store, self._begun = run, store, begun
        self._telemetry, self._context, self._mirror = telemetry, context, mirror
        # As they were imported: a file may change while the run goes on.
        self._modules = plugins.modules_here()
        self._saved = time.monotonic()  # or begun

    def save(
        self, state: TrainState, *, owes_evaluation: bool = False, until_next: bool = False
    ) -> None:
        """Writes a checkpoint of `state`.

        Args:
          state: what is saved.
          owes_evaluation: whether a run that resumes there evaluates first.
          until_next: whether the next checkpoint takes its place, whatever is to be kept.

        Raises:
          UserError: the folder cannot be written.
        """
        run, begun, step = self._run, self._begun, int(state.step)
        own, inherited = run.shapes.split_frozen(begun.frozen)
        metadata = {
            "ckl_jax": __version__,
            **_versions(),
            "phase": self._context["phase"],
            "inputs_digest": run.inputs_digest,
            "modules": self._modules,
            **describe(
                run.model,
                run.method.name,
                run.model_dir,
                run.checkpoint_cfg.restore.path,
                inherited,
                begun.frozen_digest,
            ),
        }
        dataset = {
            "next_step": step,
            "epoch": run.epoch(step),
            **self._times(),
        }
        if owes_evaluation:
            dataset["owes_evaluation"] = True
        self._mirror.push()
        metrics = self._telemetry.metrics_at(step)
        if save_position := getattr(run.source, "save_position", None):
            save_position(run.model_dir, step)  # before the checkpoint that it belongs to
        held = as_dict(swapped(state))
        held["params"] = merge(held["params"], own)
        self._store.save(step, held, metadata, dataset, metrics, until_next=until_next)
        self._saved = time.monotonic()

    def amend_evaluated(self, step: int) -> None:
        """Rewrites the metadata of a checkpoint that was saved before its evaluation.

        Raises:
          UserError: the folder cannot be written.
        """
        dataset = self._store.dataset(step)
        dataset.pop("owes_evaluation", None)
        self._store.amend(step, self._telemetry.metrics_at(step), dataset)

    def is_overdue(self, step: int) -> bool:
        """Whether CHECKPOINT_MINUTES have passed since the last checkpoint; the same in all
        processes.
        """
        minutes = self._run.checkpoint_cfg.save.minutes
        if minutes is None:
            return False
        overdue = time.monotonic() - self._saved > 60 * minutes
        if jax.process_count() == 1:
            return overdue
        # Clocks differ, so the first decides, which costs a round of the network.
        if step % _STEPS_TO_ASK:
            return False
        return bool(multihost_utils.broadcast_one_to_all(np.asarray(overdue)))

    def _times(self) -> dict[str, float]:
        timing = self._telemetry
        return {"train_seconds": timing.seconds, "train_cpu_seconds": timing.cpu_seconds}

    def check_finite(self, state: TrainState) -> None:
        """Stops the run if parameters are not finite, before they are probed or saved."""
        if not all_finite(state.params):
            stop_training(
                self._run,
                self._store,
                f"The update of step {int(state.step)} left parameters that are not finite",
            )

    def write_summary(self, state: TrainState, *, flops: int | None) -> None:
        """Writes `summary.json`, the last file of a run, and uploads it to a remote MODEL_DIR.

        Args:
          state: the last one.
          flops: of the matrix products of a step.
        """
        run, step = self._run, int(state.step)
        chosen = run.checkpoint_cfg.save.keep_best
        best_step = self._store.best_step() if chosen else None
        if jax.process_index() == 0:
            trainable = run.shapes.trainable if run.method.trains else {}
            leaves = flatten(run.shapes.params)
            files.write_json(
                Path(self._run.model_dir) / "summary.json",
                {
                    "ckl_jax": __version__,
                    **self._context,
                    "steps": step,
                    "epochs": run.epochs_done(step) if run.method.trains else 0,
                    "steps_per_epoch": run.source.plan.steps_per_epoch,
                    "trainable_parameters": count(trainable),
                    "total_parameters": count(run.shapes.params),
                    "added_parameters": count([leaves[path] for path in run.shapes.added]),
                    **self._times(),
                    "matmul_flops_per_step": flops,
                    "device": jax.devices()[0].device_kind,
                    "modules": self._modules,
                    **_base(run.checkpoint_cfg.restore.path),
                    **({"best_step": best_step} if chosen else {}),
                },
            )
        if chosen and best_step is None and run.method.trains:
            say(
                f"No checkpoint has {chosen.metric!r}, so none is the best: a step that is saved "
                "has the numbers of evaluations after it, and those of training each LOG_PERIOD "
                "steps."
            )
        self._mirror.push()


def describe(
    model: BaseTransformerModel, method: str, folder: Any, base: Any, frozen: Any, digest: str
) -> dict[str, Any]:
    """Metadata of a checkpoint in `folder` that started from `base`, which alone holds the
    `frozen` leaves.
    """
    base, relative = _absolute(base), None
    if base is not None and not is_remote(base) and not is_remote(folder):
        # Still leads there when both are moved together.
        relative = os.path.relpath(base, Path(folder).absolute())
    return {
        "method": method,
        **adapters.record(model.config),
        "scan_layers": model.config.scan_layers,
        "vocabulary_digest": digest_of(model.output_vocabulary),
        "base_checkpoint": base,
        "base_from_model_dir": relative,
        "frozen_digest": digest,
        "frozen_paths": sorted(flatten(frozen)),
        "frozen_dtype": next((x.dtype.name for x in jax.tree.leaves(frozen)), "float32"),
    }


def _base(path: str | None) -> dict[str, str | None]:
    """What a run started from: its path, and a digest that knows it when the path is gone."""
    digest = None
    if path and not is_remote(path):
        with contextlib.suppress(UserError, OSError):  # gone since, which is no matter by now
            digest = files.checkpoint_digest(find_checkpoint(path))
    return {"base_checkpoint": _absolute(path), "base_digest": digest}


def _absolute(path: str | None) -> str | None:
    return str(Path(path).absolute()) if path else None


def stop_training(run: Prepared, store: CheckpointStore, what: str) -> NoReturn:
    """Ends a run that cannot continue: raises `UserError` with the reason and what was kept."""
    store.close()
    latest = store.latest_step()
    kept = f"checkpoint_{latest} is kept" if latest is not None else "nothing was saved yet"
    raise UserError(
        f"{what}: training stopped, {kept} in {Path(run.model_dir)}; lower the learning rate or "
        "check the data."
    )


def _versions() -> dict[str, str]:
    """Versions of the packages that write a checkpoint."""
    packages = ("jax", "flax", "optax", "orbax-checkpoint")
    versions = {name: importlib.metadata.version(name) for name in packages}
    return {"python": platform.python_version(), **versions}
