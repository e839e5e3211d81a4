"""The training loop: steps, metrics, evaluations, checkpoints, and how it ends and goes on."""

import dataclasses
import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from ckl_jax import __version__, checks, files
from ckl_jax.checkpoints.layout import tree_digest
from ckl_jax.checkpoints.restore import is_remote, restore_optimizer
from ckl_jax.checkpoints.store import METRICS, CheckpointStore
from ckl_jax.data.vocabularies import digest_of
from ckl_jax.errors import UserError
from ckl_jax.parallel import flops
from ckl_jax.parallel.processes import FolderLock, Stopped, StopSignal
from ckl_jax.train import adapters, artifacts, setup
from ckl_jax.train.evaluations import forget_later_steps, rows_file, write_evaluation
from ckl_jax.train.job import Run
from ckl_jax.train.metrics_log import Fetched, LateFetcher, MetricWriter
from ckl_jax.train.progress import ProgressBar
from ckl_jax.train.remote_sync import Mirror
from ckl_jax.train.state import TrainState, swapped
from ckl_jax.train.step_metrics import speed
from ckl_jax.trees.partition import merge
from ckl_jax.trees.paths import flatten

_FIRST = ("score", "em", "perplexity", "accuracy")  # what is told of an evaluation
_METRICS_BEHIND = 8  # steps that the host reads behind the device, so that neither waits


class Loop:
    """The training loop: step, log, probe, save."""

    def __init__(
        self,
        run: Run,
        evaluator,
        evaluations,
        context,
        eval_period,
        eval_first,
        log_period,
        progress,
        mirror: Mirror,
        stop: StopSignal,
    ):
        checks.require_int(EVAL_PERIOD=eval_period, log_period=log_period)
        self.job, self.evaluator, self.evaluations = run, evaluator, evaluations
        self.context, self.eval_period, self.eval_first = context, eval_period, eval_first
        self.log_period, self.progress, self.mirror = log_period, progress, mirror
        save = run.checkpoint_cfg.save
        self.store = CheckpointStore(run.model_dir, keep=save.keep, keep_best=save.keep_best)
        self.scores: tuple[int, dict[str, float]] = (-1, {})  # of the newest evaluation
        self.newest_row: tuple[int, dict[str, float]] = (-1, {})
        self.dir = Path(run.model_dir)
        self.seconds = 0.0
        self.step_flops: int | None = None  # of matrix products; None before it is compiled
        self.stop, stop.reply = stop, self._reply
        self.evaluating: int | None = None  # the step, while it is evaluated
        self.owed = False  # whether the step to begin with was saved without its evaluation

    def run(self, lock: FolderLock, difference: str | None = None) -> tuple[int, TrainState]:
        """Trains.

        Args:
          lock: of the folder.
          difference: with what the run in the folder was trained that is now otherwise.
        """
        job = self.job
        began = time.monotonic()
        state = self._start(lock)
        step = int(state.step)
        if self.finished:
            if jax.process_index() == 0:
                print(self._why_finished(step, difference))
            self.store.close()
            return step, state
        if difference and jax.process_index() == 0:
            print(f"{self.dir} was trained {difference}: training goes on with the new settings.")
        key = jax.random.key(job.seed + 1)
        self.start_times = {"timing/init_or_restore_seconds": time.monotonic() - began}
        if job.method.trains:
            began = time.monotonic()
            traced = job.trace()
            self.step_flops = flops.of_jaxpr(traced.jaxpr)
        if job.method.trains and step < job.total_steps:
            compiled = traced.lower().compile()
            self.start_times["timing/compilation_seconds"] = time.monotonic() - began
        self._steps: list[Fetched] = []  # since the last row of metrics
        late = LateFetcher(_METRICS_BEHIND)
        total = self._total()
        with (
            MetricWriter(self.dir, resume_step=step, enabled=jax.process_index() == 0) as writer,
            ProgressBar(
                total,
                f"train {self.context['run']}",
                start=step,
                mode=self.progress if jax.process_index() == 0 else "silent",
            ) as bar,
            self.stop,
        ):
            self.writer, self.bar = writer, bar
            writer.text("train", step, "gin_config", _as_markdown(self.config_text))
            if self.owed or (step == job.first_step and self.eval_first):
                if not self._evaluate(state, step, last=step == total):
                    self._end_early(step)
                if self.owed and self.store.keep_best:  # the metric that it may be chosen by
                    self._save(state, step)
            if job.checkpoint_cfg.save.first and self.store.latest_step() is None:
                self._save(state, step)
            clock = time.monotonic()
            batches = job.source.iterate(step - job.first_step) if step < total else ()
            waits = True  # for its first batch, or after a pause
            for batch in batches:
                if step >= total:
                    break
                if waits:
                    late.start()
                    waits = False
                on_device = job.partitioner.put_batch(batch)
                state, metrics = compiled(state, self.constants, on_device, key)
                step += 1
                for fetched in late.push(step, metrics):
                    self._log(fetched)
                evaluate, save = self._due(step)
                stopping = self.stop.asked()
                if not (evaluate or save or stopping):
                    continue
                for fetched in late.flush():
                    self._log(fetched)
                self.seconds += time.monotonic() - clock
                self._check_finite(state, step)
                # Rows first: a run killed in between probes again and writes the same rows.
                owed = evaluate and not self._evaluate(state, step, last=step == total)
                if save or stopping or owed:
                    self._save(state, step, owed)
                if owed or (stopping and step < total):
                    self._end_early(step)
                waits = True
                clock = time.monotonic()
            if total == 0 and self.store.latest_step() is None:
                self._save(state, 0)
            self.store.close()
        self._write_summary(state)
        self.mirror.push()
        return step, state

    def _why_finished(self, step: int, difference: str | None) -> str:
        total = self._total()
        if step > total:
            return (
                f"{self.dir} is at step {step} and this run ends at step {total}: there is nothing "
                "to do; give more TRAIN_STEPS or EPOCHS, or another MODEL_DIR."
            )
        was = f" It was trained {difference}." if difference else ""
        return f"{self.dir} is already trained to step {step}; nothing to do.{was}"

    def _total(self) -> int:
        """The last step; 0 for a method that trains nothing."""
        return self.job.total_steps if self.job.method.trains else 0

    def _reply(self) -> str:
        """What is said when SIGTERM comes."""
        if self.evaluating is None:
            return "SIGTERM: stopping; steps that were sent ahead end first, the last is saved."
        saved = f", saving step {self.evaluating}" if self.evaluating > self.job.first_step else ""
        return f"SIGTERM: stopping after this batch of the evaluation{saved}."

    def _end_early(self, step: int) -> NoReturn:
        self.store.close()
        if jax.process_index() == 0:
            saved = self.store.latest_step() == step
            print(f"Stopped at step {step}{', which is saved' * saved}: start again to go on.")
        raise SystemExit(143)

    def _start(self, lock: FolderLock) -> TrainState:
        """Restores the newest checkpoint of this run, or starts from the base parameters."""
        job, restore = self.job, self.job.checkpoint_cfg.restore
        params = setup.initial_params(
            job.model, job.shapes, jax.random.key(job.seed), restore.path, **restore.assignment
        )
        trainable, self.frozen = setup.split(params, job.method.trainable)
        with files.os_errors(self.dir):
            self.dir.mkdir(parents=True, exist_ok=True)
        if jax.process_index() == 0 and not is_remote(self.job.model_dir):
            lock.acquire(self.dir, "trained", "MODEL_DIR")
        self.constants = job.constants(self.frozen, trainable)
        latest = self.store.latest_step()
        self.frozen_digest = tree_digest(self.frozen)
        if latest is None:
            state = jax.jit(
                job.initial_state,
                out_shardings=jax.tree.map(lambda x: x.sharding, job.state_shapes()),
            )(trainable)
            if job.restores_optimizer:
                like = job.state_shapes().opt_state
                state = state.replace(opt_state=restore_optimizer(restore.path, like))
            elif job.method.statistics_examples:
                state = job.with_statistics(state, self.frozen)
        else:
            # The newest checkpoint may be damaged: what counts is the one that was restored.
            latest, restored = self.store.restore(_as_dict(job.state_shapes()))
            state = swapped(TrainState(**restored))
            if restore.path and not self._is_finished(latest):
                print(f"Resuming from {self.dir}/checkpoint_{latest}; {restore.path} is its base.")
            saved = self.store.metadata(latest).get("frozen_digest")
            if saved and saved != self.frozen_digest:
                raise UserError(
                    f"{self.dir} was trained on another base model than {restore.path}: the "
                    "frozen parameters differ; use another MODEL_DIR."
                )
            dataset = self.store.dataset(latest)
            self.seconds = float(dataset.get("train_seconds", 0.0))
            self.owed = bool(dataset.get("owes_evaluation")) or self._lost_the_last_rows(latest)
            if self.owed:
                self.newest_row = (latest, self.store.metadata(latest).get(METRICS, {}))
        self.finished = latest is not None and self._is_finished(latest)
        if self.finished:  # its record stays as it is
            return state
        if jax.process_index() == 0:
            files.remove_parts(self.dir)
            forget_later_steps(self.dir, job.first_step if latest is None else latest)
        artifacts.write_model_info(self.dir, job.shapes, job.state_shapes())
        self.config_text = artifacts.write_config(self.dir)
        return state

    def _is_finished(self, step: int) -> bool:
        """Whether a run of this length ended at `step` and wrote its summary, the last file.

        A longer run that is not at its end is finished too, for one that ends before `step`.
        """
        if step > self._total():
            return True
        try:
            summary = json.loads((self.dir / "summary.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return step == self._total() and isinstance(summary, dict) and summary.get("steps") == step

    def _lost_the_last_rows(self, step: int) -> bool:
        """Whether a run is at its end without the rows that are written before its checkpoint."""
        here = jax.process_count() == 1 and not is_remote(self.job.model_dir)
        return bool(
            here
            and self.evaluator
            and step == self._total()
            and not self._is_finished(step)
            and not rows_file(self.dir, step).exists()
        )

    def _due(self, step: int) -> tuple[bool, bool]:
        job = self.job
        last = step == job.total_steps
        boundary = job.plan.is_last_of_epoch(step - 1 - job.first_step)
        evaluate = boundary if self.eval_period is None else step % self.eval_period == 0
        save = job.checkpoint_cfg.save.is_due(step, boundary)
        return evaluate or last, save or last

    def _log(self, fetched: Fetched) -> None:
        step, values, seconds = fetched
        epoch = self._epoch(step)
        self.bar.update(
            step, seconds=seconds, epoch=epoch, loss=values["loss"], tokens=int(values["tokens"])
        )
        if not np.isfinite(values["loss"]) or not np.isfinite(values["gradient_norm"]):
            self.store.discard(step - 1)  # a run that resumed there would stop here again
            self._stop_diverged(
                f"The loss is {values['loss']} and its gradient norm "
                f"{values['gradient_norm']} at step {step}"
            )
        self._steps.append(fetched)
        due = step % self.log_period == 0 or step == self.job.total_steps
        if due or (self.job.metrics.at_boundaries and any(self._due(step))):
            row = {"learning_rate": float(self.job.rate(step - 1)), "epoch": epoch}
            row |= self._timing() | self.job.metrics.row(self._steps, self.job.plan.batch_size)
            self.writer.write("train", step, row | self.start_times)
            self.newest_row = (step, {f"train/{name}": value for name, value in row.items()})
            self.start_times = {}  # once, in the first row
            self._steps = []

    def _timing(self) -> dict[str, float]:
        seconds = self.bar.seconds_per_step
        rows, tokens = self.job.plan.batch_size, self.bar.tokens_per_second or 0.0
        return speed(seconds, rows, tokens) if seconds else {}

    def _epoch(self, step: int) -> int:
        """The epoch, from 1, of the update that made `step`; 0 before the first."""
        done = step - self.job.first_step
        return self.job.plan.epoch_of(done - 1) + 1 if done else 0

    def _epochs_done(self, step: int) -> float:
        """Passes over the corpus until `step`: 2 or 0.25; a stream without ends is one epoch."""
        done, epochs = step - self.job.first_step, 0
        for steps in self.job.plan.steps_per_epoch:
            if done < steps:
                return round(epochs + done / steps, 4) if done else epochs
            done, epochs = done - steps, epochs + 1
        return epochs

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

    def _evaluate(self, state: TrainState, step: int, last: bool) -> bool:
        """Evaluates, and writes the scores; False: it is to stop, and has written none."""
        if not self.evaluator and not self.evaluations:
            return True
        if self.stop.received:
            return False
        params = merge(swapped(state).params, self.frozen)
        self.evaluating = step
        try:
            found = self._probe(params, step, last) if self.evaluator else {}
            for evaluation in self.evaluations:
                found |= evaluation(params, step, last)
        except Stopped:
            return False
        self.evaluating = None
        for split, scores in found.items():
            self.writer.write(split, step, {"epoch": self._epoch(step), **scores})
        if found:
            self.bar.say(_told(step, self._epoch(step), found))
        named = ((f"{split}/{n}", x) for split, scores in found.items() for n, x in scores.items())
        self.scores = (step, dict(named))
        return True

    def _probe(self, params: Any, step: int, last: bool) -> dict[str, dict[str, float]]:
        context = {**self.context, "epoch": self._epoch(step), "step": step}
        rows = list(self.evaluator.rows(params, context, last=last))
        if jax.process_index() != 0:
            return {}
        scores = write_evaluation(self.dir, step, rows)
        return {f"inference_eval/{probe}": values for probe, values in scores.items()}

    def _save(self, state: TrainState, step: int, owed: bool = False) -> None:
        metadata = {
            "ckl_jax": __version__,
            **_versions(),
            "method": self.job.method.name,
            "phase": self.context["phase"],
            **adapters.record(self.job.model.config),
            "scan_layers": self.job.model.config.scan_layers,
            "vocabulary_digest": digest_of(self.job.model.output_vocabulary),
            "base_checkpoint": self._base(),
            "base_from_model_dir": self._base_from_model_dir(),
            "frozen_digest": self.frozen_digest,
            "frozen_paths": sorted(flatten(self.frozen)),
        }
        epoch = self._epoch(step)
        dataset = {"next_step": step, "epoch": epoch, "train_seconds": self.seconds}
        if owed:  # whoever goes on from here evaluates first
            dataset["owes_evaluation"] = True
        metrics = {}
        for written, values in (self.newest_row, self.scores):
            metrics |= values if written == step else {}
        self.mirror.push()
        self.store.save(step, _as_dict(swapped(state)), metadata, dataset, metrics)

    def _base(self) -> str | None:
        path = self.job.checkpoint_cfg.restore.path
        return str(Path(path).absolute()) if path else None

    def _base_from_model_dir(self) -> str | None:
        """The way to the base from here, which still leads there when both are moved together."""
        base = self._base()
        if base is None or is_remote(base) or is_remote(self.job.model_dir):
            return None
        return os.path.relpath(base, self.dir.absolute())

    def _write_summary(self, state: TrainState) -> None:
        if jax.process_index() != 0:
            return
        shapes = self.job.shapes
        trainable = shapes.trainable if self.job.method.trains else {}
        files.write_json(
            self.dir / "summary.json",
            {
                **self.context,
                "steps": int(state.step),
                "epochs": self._epochs_done(int(state.step)) if self.job.method.trains else 0,
                "steps_per_epoch": self.job.plan.steps_per_epoch,
                "trainable_parameters": _count(trainable),
                "total_parameters": _count(shapes.params),
                "train_seconds": self.seconds,
                "matmul_flops_per_step": self.step_flops,
                "device": jax.devices()[0].device_kind,
                "base_checkpoint": self._base(),
            },
        )


def _told(step: int, epoch: int, found: Mapping[str, Mapping[str, float]]) -> str:
    """An evaluation in a line: of each split what counts most."""
    parts = []
    for split, scores in found.items():
        name = next((n for n in _FIRST if n in scores), next(iter(scores), None))
        if name is not None:
            parts.append(f"{split.rpartition('/')[2]} {name} {scores[name]:.2f}")
    return f"after step {step}, epoch {epoch}: {', '.join(parts)}"


def _versions() -> dict[str, str]:
    """Of what wrote a checkpoint."""
    packages = ("jax", "flax", "optax", "orbax-checkpoint")
    found = {name: importlib.metadata.version(name) for name in packages}
    return {"python": platform.python_version(), **found}


@jax.jit
def _all_finite(tree: Any) -> jax.Array:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(tree)]))


def _count(tree: Any) -> int:
    return sum(int(np.prod(x.shape)) for x in jax.tree.leaves(tree))


def _as_markdown(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _as_dict(state: TrainState) -> dict[str, Any]:
    return {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
