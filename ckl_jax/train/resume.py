"""Starts a run from its own newest checkpoint or from the parameters of its base model."""

import dataclasses
from pathlib import Path
from typing import Any

import jax

from ckl_jax import files
from ckl_jax.checkpoints.layout import tree_digest
from ckl_jax.checkpoints.restore import is_remote, restore_optimizer
from ckl_jax.checkpoints.store import METRICS, CheckpointStore
from ckl_jax.errors import UserError
from ckl_jax.files import ANY_NUMBER, parse_json
from ckl_jax.parallel.processes import FolderLock
from ckl_jax.train import artifacts, setup
from ckl_jax.train.evaluations import forget_later_steps, rows_file
from ckl_jax.train.prepare import Prepared
from ckl_jax.train.state import TrainState, as_dict, swapped
from ckl_jax.trees.partition import merge
from ckl_jax.trees.paths import flatten, unflatten


@dataclasses.dataclass(frozen=True, kw_only=True)
class Begun:
    """A run with its parameters loaded.

    Attributes:
      state: to go on from.
      frozen: the parameters that do not train.
      frozen_digest: of those that the base has, for the metadata of checkpoints.
      constants: what every step is given beside the state.
      seconds, cpu_seconds: of training before this start.
      owes_evaluation: whether the checkpoint was saved without the evaluation that is due there.
      metrics: of that checkpoint's step.
      finished: whether nothing is left to do.
      config_text: the gin configuration; "" without gin.
    """

    state: TrainState
    frozen: Any
    frozen_digest: str
    constants: Any
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    owes_evaluation: bool = False
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    finished: bool = False
    config_text: str = ""


def begin(run: Prepared, store: CheckpointStore, lock: FolderLock, *, probed: bool) -> Begun:
    """Restores the newest checkpoint of this run, or starts from the base parameters.

    Args:
      run: what to train.
      store: the checkpoints of its MODEL_DIR.
      lock: taken of that folder for as long as the run goes on.
      probed: whether the run writes rows of probes.

    Raises:
      UserError: the folder belongs to another base model or is in use, or parameters do not fit.
    """
    folder, restore, method = Path(run.model_dir), run.checkpoint_cfg.restore, run.method
    # A method's own initial values are for a new run; when resuming, the checkpoint has them.
    is_new = store.latest_step() is None
    # Also when resuming: frozen parameters are not in the run's checkpoints but in its base.
    params = setup.initial_params(
        run.model,
        run.shapes,
        jax.random.key(run.seed),
        restore.path,
        init=method.init_params if is_new else None,
        **restore.assignment,
    )
    trainable, frozen = setup.split(params, method.trainable)
    with files.os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if jax.process_index() == 0 and not is_remote(run.model_dir):
        # Two runs in one folder would overwrite each other's checkpoints.
        lock.acquire(folder, "trained", "MODEL_DIR")
    inherited = run.shapes.split_frozen(frozen)[1]
    begun = Begun(state=None, frozen=frozen, frozen_digest=tree_digest(inherited), constants=None)
    # Asked again under the lock: another run may have finished in this folder meanwhile.
    latest = store.latest_step()
    if latest is None:
        begun = dataclasses.replace(begun, state=_first_state(run, trainable, frozen))
    else:
        latest, begun = _restored(run, store, begun, probed)
    begun = dataclasses.replace(begun, constants=run.constants(begun.frozen, trainable))
    if begun.finished:  # its record stays as it is
        return begun
    if jax.process_index() == 0:
        # Halves of files that a killed run left behind.
        files.remove_parts(folder)
        forget_later_steps(folder, run.first_step if latest is None else latest)
        if latest is None:
            setup.keep_origin(folder, restore.path, run.base_model.config)
            if restore.path and flatten(inherited):
                setup.link_base(folder, restore.path)
    artifacts.copy_vocabulary(folder, run.model.output_vocabulary)
    artifacts.write_model_info(folder, run.shapes, run.state_shapes)
    return dataclasses.replace(begun, config_text=artifacts.write_config(folder))


def _first_state(run: Prepared, trainable: Any, frozen: Any) -> TrainState:
    shardings = jax.tree.map(lambda x: x.sharding, run.state_shapes)
    # Under jit, so that moments are created sharded, never whole on one device.
    state = jax.jit(run.initial_state, out_shardings=shardings)(trainable)
    if run.restores_optimizer:
        path = run.checkpoint_cfg.restore.path
        return state.replace(opt_state=restore_optimizer(path, run.state_shapes.opt_state))
    return run.method_state(state, frozen)


def _restored(
    run: Prepared, store: CheckpointStore, begun: Begun, probed: bool
) -> tuple[int, Begun]:
    """The step that was restored, and the run there; the newest checkpoint may be damaged."""
    folder, base = Path(run.model_dir), run.checkpoint_cfg.restore.path
    # The shapes carry shardings: each device reads its own part. A damaged newest checkpoint is
    # left for the one before it, so the step may be smaller.
    own, _ = run.shapes.split_frozen(run.shapes.frozen)
    like = as_dict(run.state_shapes)
    step, restored = store.restore({**like, "params": merge(like["params"], own)})
    params = flatten(restored.pop("params"))
    frozen = flatten(run.shapes.frozen)
    own = {p: setup.put(params.pop(p), frozen[p]) for p in run.shapes.own}
    finished = _is_finished(run, step)
    if base and not finished:
        print(f"Resuming from {folder}/checkpoint_{step}; {base} is its base.")
    metadata, dataset = store.metadata(step), store.dataset(step)
    saved = metadata.get("frozen_digest")
    # The path of the base may be the same while the folder was trained again.
    if saved and saved != begun.frozen_digest:
        raise UserError(
            f"{folder} was trained on another base model than {base}: the frozen parameters "
            "differ; use another MODEL_DIR."
        )
    # A run that is stopped within an evaluation saves, and evaluates when it goes on.
    owes = bool(dataset.get("owes_evaluation")) or (probed and _lost_the_last_rows(run, step))
    return step, dataclasses.replace(
        begun,
        frozen=unflatten({**flatten(begun.frozen), **own}),
        # Saved with the moving average as parameters; swapped back, the trained ones go on.
        state=swapped(TrainState(params=unflatten(params), **restored)),
        seconds=float(dataset.get("train_seconds", 0.0)),
        cpu_seconds=float(dataset.get("train_cpu_seconds", 0.0)),
        owes_evaluation=owes,
        metrics=metadata.get(METRICS, {}) if owes else {},
        finished=finished,
    )


def _is_finished(run: Prepared, step: int) -> bool:
    """Whether a run of this length, or one that ends early, wrote its summary, the last file.

    A run that ends before `step` is finished too: a longer one in its folder has gone past its end.
    """
    if step > run.last_step:
        return True
    try:
        summary = parse_json((Path(run.model_dir) / "summary.json").read_bytes(), ANY_NUMBER)
    except (OSError, ValueError):
        return False
    if not isinstance(summary, dict) or summary.get("steps") != step:
        return False
    return step == run.last_step or run.ends_early(step)


def _lost_the_last_rows(run: Prepared, step: int) -> bool:
    """Whether a run is complete except for the rows written before its last checkpoint."""
    return bool(
        # With several processes, or a bucket, this process cannot see for all whether the file is
        # there.
        jax.process_count() == 1
        and not is_remote(run.model_dir)
        and step == run.last_step
        and not _is_finished(run, step)
        and not rows_file(Path(run.model_dir), step).exists()
    )


def why_finished(run: Prepared, step: int, difference: str | None) -> str:
    """The message for a run with nothing left to do."""
    folder = Path(run.model_dir)
    if step > run.last_step:
        return (
            f"{folder} is at step {step} and this run ends at step {run.last_step}: there is "
            "nothing to do; give more TRAIN_STEPS or EPOCHS, or another MODEL_DIR."
        )
    was = f" It was trained {difference}." if difference else ""
    return f"{folder} is already trained to step {step}; nothing to do.{was}"
