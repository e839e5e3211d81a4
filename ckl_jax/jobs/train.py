"""`t5x train`: update a model on a corpus by a method, and probe it as it learns."""

import collections
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ckl_jax import __version__, checks, files
from ckl_jax.checkpoints.layout import tree_digest
from ckl_jax.checkpoints.restore import is_remote
from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.data.pipeline import iterate
from ckl_jax.errors import UserError
from ckl_jax.jobs import artifacts, setup
from ckl_jax.jobs.configs import CheckpointConfig, DatasetConfig
from ckl_jax.jobs.evaluations import forget_later_steps, write_evaluation
from ckl_jax.jobs.mesh import Partitioner
from ckl_jax.jobs.metrics_log import MetricWriter
from ckl_jax.jobs.processes import FolderLock, StopSignal
from ckl_jax.jobs.progress import ProgressBar
from ckl_jax.jobs.same_run import check_same_run
from ckl_jax.jobs.state import TrainState
from ckl_jax.jobs.step import make_train_step
from ckl_jax.methods.method import Method, vanilla
from ckl_jax.models.encoder_decoder import EncoderDecoderModel
from ckl_jax.probes.closed_book import ClosedBook, ClosedBookEvaluator
from ckl_jax.trees.partition import merge
from ckl_jax.trees.paths import flatten

_METRICS_BEHIND = 8  # steps that the host reads behind the device, so that neither waits


def train(
    *,
    model: EncoderDecoderModel,
    train_dataset_cfg: DatasetConfig,
    model_dir: str,
    method: Method = vanilla(),  # noqa: B008 (a frozen record)
    optimizer: Callable[..., optax.GradientTransformation],
    learning_rate: Callable[..., optax.Schedule],
    clip_norm: float | None = 0.5,
    epochs: int | None = None,
    total_steps: int | None = None,
    probes: ClosedBook | None = None,
    eval_period: int | None = None,
    checkpoint_cfg: CheckpointConfig = CheckpointConfig(),  # noqa: B008
    partitioner: Partitioner | None = None,
    num_microbatches: int = 1,
    random_seed: int = 0,
    run_name: str | None = None,
    phase: int = 1,
    log_period: int = 10,
    progress: str = "auto",
) -> tuple[int, TrainState]:
    """Trains a model, resuming from the newest checkpoint in `model_dir` if there is one.

    Args:
      model: the base model; the method is put into it here.
      train_dataset_cfg: the corpus.
      model_dir: everything the run writes goes here.
      method: how to update the model.
      optimizer: `schedule -> optax transformation`, where the method has none of its own.
      learning_rate: `total_steps=n -> schedule`.
      clip_norm: bound of the global gradient norm, or None.
      epochs: passes over the corpus.
      total_steps: ends the run at this step instead, within as many epochs as it takes.
      probes: closed-book probes, put after every epoch, and before the first
        step where training starts from a checkpoint.
      eval_period: probe every so many steps instead of every epoch.
      checkpoint_cfg: what to start from; when to save.
      partitioner: mesh and rules.
      num_microbatches: gradient accumulation within a step.
      random_seed: of new parameters and dropout.
      run_name: for rows; default, the folder's name.
      phase: number of this update in a sequence of corpora, for rows.
      log_period: steps between rows of training metrics.
      progress: "auto", "rich", "plain" or "silent".

    Returns:
      The last step and state.

    Raises:
      UserError: something in the configuration or the files does not fit.
    """
    run = Run(
        model, train_dataset_cfg, model_dir, method, optimizer, learning_rate, clip_norm, epochs,
        total_steps, checkpoint_cfg, partitioner or Partitioner(), num_microbatches, random_seed,
    )  # fmt: skip
    check_same_run(model_dir, method.name)
    context = {"run": run_name or Path(model_dir).name, "method": method.name, "phase": phase}
    evaluator = None
    if probes is not None:
        run.partitioner.check_batch_size(probes.batch_size, "PROBE_BATCH_SIZE")
        evaluator = ClosedBookEvaluator(probes, run.model, run.partitioner.put_batch)
    with jax.set_mesh(run.partitioner.mesh), run.partitioner.axis_rules(), FolderLock() as lock:
        loop = Loop(run, evaluator, context, eval_period, log_period, progress)
        return loop.run(lock)


class Run:
    """A configured run: model, data, shapes, optimizer; nothing is allocated yet."""

    def __init__(
        self, model, dataset, model_dir, method, optimizer, learning_rate, clip_norm, epochs,
        total_steps, checkpoint_cfg, partitioner, num_microbatches, random_seed,
    ):  # fmt: skip
        if total_steps is not None:
            epochs = None
        elif epochs is None:
            raise UserError("Neither EPOCHS nor TRAIN_STEPS is set; give one of them.")
        checks.require_text(MODEL_DIR=model_dir)
        checks.require_int(
            EPOCHS=epochs, TRAIN_STEPS=total_steps, NUM_MICROBATCHES=num_microbatches
        )
        checks.require_int(0, RANDOM_SEED=random_seed)
        checks.require_positive(CLIP_NORM=clip_norm)
        self.model_dir, self.method, self.partitioner = str(model_dir), method, partitioner
        self.checkpoint_cfg, self.seed = checkpoint_cfg, random_seed
        self.model = model.with_method(method)
        setup.check_vocabulary(self.model)
        partitioner.check_batch_size(dataset.batch_size)
        if dataset.batch_size % num_microbatches:
            raise UserError(
                f"NUM_MICROBATCHES={num_microbatches} does not divide BATCH_SIZE="
                f"{dataset.batch_size}; choose one that does."
            )
        passes = epochs if epochs is not None else _enough_epochs(dataset, method, total_steps)
        self.source = setup.make_source(dataset, method, passes, model.output_vocabulary)
        self.plan = self.source.plan
        self.total_steps = total_steps if epochs is None else self.plan.total_steps
        self.schedule = learning_rate(total_steps=self.total_steps)
        self.shapes = setup.param_shapes(self.model, method, partitioner)
        self.tx = setup.make_optimizer(self.model, method, optimizer, self.schedule, clip_norm)
        self.step_fn = make_train_step(
            self.model.loss_fn, self.tx, num_microbatches=num_microbatches,
            dropout=self.model.config.dropout_rate > 0,
        )  # fmt: skip

    def state_shapes(self) -> TrainState:
        """Shapes and shardings of the train state."""
        abstract = jax.eval_shape(lambda p: TrainState.create(p, self.tx), self.shapes.trainable)
        shardings = jax.tree.map(lambda x: x.sharding, self.shapes.trainable)
        replicated = self.partitioner.replicated
        tree = TrainState(
            replicated,
            shardings,
            self.partitioner.state_shardings(
                abstract.opt_state, self.shapes.trainable, shardings
            ),
        )
        return jax.tree.map(
            lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), abstract, tree
        )

    def batch_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes of a global batch."""
        local = self.source[0]
        rows = self.plan.batch_size
        sharding = self.partitioner.batch_sharding
        return {
            name: jax.ShapeDtypeStruct((rows, *x.shape[1:]), x.dtype, sharding=sharding)
            for name, x in local.items()
        }

    def lower(self) -> jax.stages.Lowered:
        """The train step, lowered for the shapes of this run; allocates nothing."""
        state = self.state_shapes()
        key = jax.eval_shape(lambda: jax.random.key(0))
        out = jax.tree.map(lambda x: x.sharding, state)
        jitted = jax.jit(self.step_fn, donate_argnums=0, out_shardings=(out, None))
        return jitted.lower(state, self.shapes.frozen, self.batch_shapes(), key)


def _enough_epochs(dataset: DatasetConfig, method: Method, steps: int) -> int:
    """Epochs that hold at least `steps` steps; review only adds to them."""
    rows = len(dataset.open(dataset.mixture_or_task_name))
    return -(-steps // max(1, -(-rows // dataset.batch_size)))


class Loop:
    """The training loop: step, log, probe, save."""

    def __init__(self, run: Run, evaluator, context, eval_period, log_period, progress):
        checks.require_int(EVAL_PERIOD=eval_period, log_period=log_period)
        self.job, self.evaluator, self.context = run, evaluator, context
        self.eval_period, self.log_period, self.progress = eval_period, log_period, progress
        save = run.checkpoint_cfg.save
        self.store = CheckpointStore(run.model_dir, keep=save.keep, period=save.period)
        self.dir = Path(run.model_dir)
        self.seconds = 0.0

    def run(self, lock: FolderLock) -> tuple[int, TrainState]:
        job = self.job
        state = self._start(lock)
        step = int(state.step)
        if self.finished:
            if jax.process_index() == 0:
                print(f"{self.dir} is already trained to step {step}; nothing to do.")
            self.store.close()
            return step, state
        frozen = self.frozen
        key = jax.random.key(job.seed + 1)
        if job.method.trains and step < job.total_steps:
            compiled = job.lower().compile()
        pending: collections.deque = collections.deque()
        total = job.total_steps if job.method.trains else 0
        with (
            MetricWriter(self.dir, resume_step=step, enabled=jax.process_index() == 0) as writer,
            ProgressBar(
                total, f"train {self.context['run']}", start=step, mode=self.progress
            ) as bar,
            StopSignal() as stop,
        ):
            self.writer, self.bar = writer, bar
            writer.text("train", step, "gin_config", _as_markdown(self.config_text))
            if step == 0 and self.evaluator and job.checkpoint_cfg.restore.path:
                self._probe(state, 0, last=total == 0)
            bar.pause()
            clock = time.monotonic()
            batches = iterate(job.source, step) if step < total else ()
            for batch in batches:
                if step >= total:
                    break
                state, metrics = compiled(state, frozen, job.partitioner.put_batch(batch), key)
                step += 1
                pending.append((step, metrics))
                while len(pending) > _METRICS_BEHIND:
                    self._log(*pending.popleft())
                evaluate, save = self._due(step)
                if not (evaluate or save or stop.received):
                    continue
                while pending:
                    self._log(*pending.popleft())
                self.seconds += time.monotonic() - clock
                self._check_finite(state, step)
                if evaluate and self.evaluator:
                    self._probe(state, step, last=step == total)
                # Rows first: a run killed in between probes again and writes the same rows.
                if save or stop.received:
                    self._save(state, step)
                if stop.received and step < total:
                    self.store.close()
                    raise SystemExit(143)
                bar.pause()
                clock = time.monotonic()
            if total == 0 and self.store.latest_step() is None:
                self._save(state, 0)
            self.store.close()
        self._write_summary(state)
        return step, state

    def _start(self, lock: FolderLock) -> TrainState:
        """Restores the newest checkpoint of this run, or starts from the base parameters."""
        job, restore = self.job, self.job.checkpoint_cfg.restore
        params = setup.initial_params(
            job.model, job.shapes, jax.random.key(job.seed), restore.path
        )
        trainable, self.frozen = setup.split(params, job.method.trainable)
        with files.os_errors(self.dir):
            self.dir.mkdir(parents=True, exist_ok=True)
        if jax.process_index() == 0 and not is_remote(self.job.model_dir):
            lock.acquire(self.dir, "trained", "MODEL_DIR")
        latest = self.store.latest_step()
        self.frozen_digest = tree_digest(self.frozen)
        if latest is None:
            state = jax.jit(
                lambda p: TrainState.create(p, job.tx),
                out_shardings=jax.tree.map(lambda x: x.sharding, job.state_shapes()),
            )(trainable)
        else:
            if restore.path and not self._is_finished(latest):
                print(f"Resuming from {self.dir}/checkpoint_{latest}; {restore.path} is its base.")
            # The newest checkpoint may be damaged: what counts is the one that was restored.
            latest, restored = self.store.restore(_as_dict(job.state_shapes()))
            state = TrainState(**restored)
            saved = self.store.metadata(latest).get("frozen_digest")
            if saved and saved != self.frozen_digest:
                raise UserError(
                    f"{self.dir} was trained on another base model than {restore.path}: the "
                    "frozen parameters differ; use another MODEL_DIR."
                )
            self.seconds = float(self.store.dataset(latest).get("train_seconds", 0.0))
        self.finished = latest is not None and self._is_finished(latest)
        if self.finished:  # its record stays as it is
            return state
        if jax.process_index() == 0:
            forget_later_steps(self.dir, latest or 0)
        artifacts.write_model_info(self.dir, job.shapes, job.state_shapes())
        self.config_text = artifacts.write_config(self.dir)
        return state

    def _is_finished(self, step: int) -> bool:
        """Whether a run of this length ended at `step` and wrote its summary, the last file."""
        total = self.job.total_steps if self.job.method.trains else 0
        try:
            summary = json.loads((self.dir / "summary.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return step >= total and isinstance(summary, dict) and summary.get("steps") == step

    def _due(self, step: int) -> tuple[bool, bool]:
        job = self.job
        last = step == job.total_steps
        boundary = job.plan.is_last_of_epoch(step - 1)
        evaluate = boundary if self.eval_period is None else step % self.eval_period == 0
        period = job.checkpoint_cfg.save.period
        save = boundary if period is None else step % period == 0
        return evaluate or last, save or last

    def _log(self, step: int, metrics: dict[str, jax.Array]) -> None:
        values = jax.device_get(metrics)
        epoch = self.job.plan.epoch_of(step - 1) + 1
        self.bar.update(step, epoch=epoch, loss=values["loss"], tokens=int(values["tokens"]))
        if not np.isfinite(values["loss"]) or not np.isfinite(values["gradient_norm"]):
            self.store.discard(step - 1)  # a run that resumed there would stop here again
            self._stop_diverged(
                f"The loss is {float(values['loss'])} and its gradient norm "
                f"{float(values['gradient_norm'])} at step {step}"
            )
        if step % self.log_period == 0 or step == self.job.total_steps:
            row = {"learning_rate": float(self.job.schedule(step - 1)), "epoch": epoch, **values}
            if self.bar.seconds_per_step:
                row["timing/seconds_per_step"] = self.bar.seconds_per_step
                row["timing/target_tokens_per_second"] = self.bar.tokens_per_second or 0.0
            self.writer.write("train", step, row)

    def _check_finite(self, state: TrainState, step: int) -> None:
        """Stops the run rather than probing or saving parameters that are not finite."""
        if not _all_finite(state.params):
            self._stop_diverged(f"The update of step {step} left parameters that are not finite")

    def _stop_diverged(self, what: str) -> None:
        self.store.close()
        latest = self.store.latest_step()
        kept = f"checkpoint_{latest} is kept" if latest is not None else "nothing was saved yet"
        raise UserError(
            f"{what}: training stopped, {kept} in {self.dir}; lower the learning rate or check "
            "the data."
        )

    def _probe(self, state: TrainState, step: int, last: bool) -> None:
        params = merge(state.params, self.frozen)
        epoch = self.job.plan.epoch_of(step - 1) + 1 if step else 0
        context = {**self.context, "epoch": epoch, "step": step}
        rows = list(self.evaluator.rows(params, context, last=last))
        if jax.process_index() != 0:
            return
        for probe, scores in write_evaluation(self.dir, step, rows).items():
            self.writer.write(f"inference_eval/{probe}", step, {"epoch": epoch, **scores})

    def _save(self, state: TrainState, step: int) -> None:
        metadata = {
            "ckl_jax": __version__,
            "jax": jax.__version__,
            "method": self.job.method.name,
            "scan_layers": self.job.model.config.scan_layers,
            "vocabulary_digest": getattr(self.job.model.output_vocabulary, "digest", None),
            "base_checkpoint": self._base(),
            "frozen_digest": self.frozen_digest,
            "frozen_paths": sorted(flatten(self.frozen)),
        }
        epoch = self.job.plan.epoch_of(step - 1) + 1 if step else 0
        dataset = {"next_step": step, "epoch": epoch, "train_seconds": self.seconds}
        self.store.save(step, _as_dict(state), metadata, dataset)

    def _base(self) -> str | None:
        path = self.job.checkpoint_cfg.restore.path
        return str(Path(path).absolute()) if path else None

    def _write_summary(self, state: TrainState) -> None:
        shapes = self.job.shapes
        trainable = shapes.trainable if self.job.method.trains else {}
        files.write_json(
            self.dir / "summary.json",
            {
                **self.context,
                "steps": int(state.step),
                "epochs": self.job.plan.epochs if self.job.method.trains else 0,
                "steps_per_epoch": self.job.plan.steps_per_epoch,
                "trainable_parameters": _count(trainable),
                "total_parameters": _count(shapes.params),
                "train_seconds": self.seconds,
                "device": jax.devices()[0].device_kind,
                "base_checkpoint": self._base(),
            },
        )


@jax.jit
def _all_finite(tree: Any) -> jax.Array:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(tree)]))


def _count(tree: Any) -> int:
    return sum(int(np.prod(x.shape)) for x in jax.tree.leaves(tree))


def _as_markdown(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _as_dict(state: TrainState) -> dict[str, Any]:
    return {"step": state.step, "params": state.params, "opt_state": state.opt_state}
