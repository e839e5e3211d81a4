"""The state of a training before its first step: settings checked, shapes derived, nothing
allocated.

`t5x precompile` stops here.
"""

import dataclasses
import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import multihost_utils

from ckl_jax import checks
from ckl_jax.analysis.rows import METRICS_FILE, read_metrics
from ckl_jax.checkpoints.restore import (
    absolute,
    holds_optimizer,
    is_remote,
)
from ckl_jax.errors import UserError, nearest
from ckl_jax.files import os_errors
from ckl_jax.methods.method import Method, Start
from ckl_jax.models.base import BaseTransformerModel
from ckl_jax.parallel.mesh import Partitioner, check_batch, known_parts
from ckl_jax.train import setup
from ckl_jax.train.configs import CheckpointConfig, DatasetConfig
from ckl_jax.train.evaluations import Evaluations, MakeEvaluation, check_best
from ckl_jax.train.resume_check import digest_inputs, refuse_foreign
from ckl_jax.train.state import TrainState
from ckl_jax.train.step import SUMS, make_train_step
from ckl_jax.train.step_metrics import StepMetrics
from ckl_jax.trees.partition import merge
from ckl_jax.trees.paths import flatten, unflatten

_MAX_EPOCHS = 1_000_000  # each is planned before the first
BEFORE = "before_the_update"  # the base model's parameters, beside the frozen ones


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """A validated run with its shapes; see `prepare`.

    Attributes:
      model, base_model: with and without the method.
      model_dir, method, dataset, checkpoint_cfg, partitioner, seed, use_hardware_rng: as given.
      source: of batches; `source.plan` says which rows come when.
      shapes: of the parameters, see `setup.Shapes`.
      tx: the optimizer of the trainable leaves.
      rate: step -> learning rate.
      first_step, total_steps: numbers of the steps that a new run starts and ends at.
      restores_optimizer: whether the base checkpoint's optimizer state is taken too.
      num_microbatches, legacy_microbatch_means: see `step.make_train_step`.
      metrics: makes the rows of training metrics.
    """

    model_dir: str
    model: BaseTransformerModel
    base_model: BaseTransformerModel
    method: Method
    dataset: DatasetConfig
    checkpoint_cfg: CheckpointConfig
    partitioner: Partitioner
    seed: int
    use_hardware_rng: bool
    source: Any
    shapes: setup.Shapes
    tx: optax.GradientTransformation
    rate: optax.Schedule
    first_step: int
    total_steps: int
    restores_optimizer: bool
    num_microbatches: int
    legacy_microbatch_means: bool
    metrics: StepMetrics

    @functools.cached_property
    def inputs_digest(self) -> str | None:
        """Of the rows that are read, the vocabulary and the base; see `digest_inputs`."""
        tasks = [*getattr(self.source, "tasks", ())]
        if tasks and self.method.reads_earlier_data:
            tasks.append(self.dataset.open(self.dataset.replay_task_name))
        return digest_inputs(tasks, self.model.output_vocabulary, self.checkpoint_cfg.restore.path)

    @property
    def last_step(self) -> int:
        """The final step of training; 0 for a method that trains nothing."""
        # "initial" only writes its checkpoint, before any step.
        return self.total_steps if self.method.trains else 0

    def epoch(self, step: int) -> int:
        """The epoch, from 1, of the update that made `step`; 0 before the first."""
        # Steps count on from the base checkpoint's where the run continues it; the plan of batches
        # always counts from 0.
        done = step - self.first_step
        return self.source.plan.epoch_of(done - 1) + 1 if done else 0

    def ends_early(self, step: int) -> bool:
        """Whether training stops after the evaluations up to `step`: see `KeepBest.patience`.

        Raises:
          UserError: there were evaluations, but none of the metric.
        """
        best = self.checkpoint_cfg.save.keep_best
        if best is None or best.patience is None:
            return False
        # Of what the run has written, so that it stops where it would have without a restart. The
        # parameters that it started from are no checkpoint of it.
        path, values, others = Path(self.model_dir) / METRICS_FILE, {}, set()
        for row in read_metrics(path) if path.exists() else ():
            if self.first_step < row["step"] <= step and row["split"] != "train":
                named = {f"{row['split']}/{name}": value for name, value in row.items()}
                others |= named.keys()
                if best.metric in named:
                    values[row["step"]] = named[best.metric]
        if others and not values:
            raise UserError(
                f"KeepBest.metric is {best.metric!r}, which no evaluation has, up to step {step}."
                f"{nearest(best.metric, sorted(others))}"
            )
        over = best.is_over(values.values())
        if jax.process_count() > 1:  # the first alone writes rows
            over = multihost_utils.broadcast_one_to_all(np.asarray(over))
        return bool(over)

    def epochs_done(self, step: int) -> float:
        """Passes over the corpus up to `step`, such as 2 or 0.25; an endless stream counts as one
        epoch.
        """
        done, epochs = step - self.first_step, 0
        for steps in self.source.plan.steps_per_epoch:
            if done < steps:
                return round(epochs + done / steps, 4) if done else epochs
            done, epochs = done - steps, epochs + 1
        return epochs

    def ends_epoch(self, step: int) -> bool:
        """Whether the update that made `step` is the last of its epoch."""
        return self.source.plan.is_last_of_epoch(step - 1 - self.first_step)

    def batches(self, step: int) -> Iterator[Any]:
        """The batches of the steps after `step`, of this process's rows."""
        done = step - self.first_step
        place = (self.model_dir, step) if hasattr(self.source, "save_position") else ()
        return map(self._checked, self.source.iterate(done, *place))

    def _checked(self, batch: Any) -> Any:
        """The batch; `UserError` for ids without a row of the embedding, which would be NaN."""
        rows = getattr(self.model.config, "vocab_size", None)
        for name, ids in batch.items():
            if rows and name.endswith("_tokens") and ids.size and ids.max() >= rows:
                raise UserError(
                    f"A row of the training text has the token {ids.max()}, and the model rows for "
                    f"{rows} tokens: the text holds a special token that this model does not have, "
                    "or is of another vocabulary; prepare it again without."
                )
        return batch

    def constants(self, frozen: Any, trainable: Any) -> Any:
        """Arguments that are the same at every step: the frozen leaves and the base model's.

        Args:
          frozen, trainable: the parameters before the first step, or their shapes.
        """
        if self.method.loss is None:
            return frozen
        # What regularisation towards the old parameters, or distillation from them, compares with.
        before = flatten(merge(frozen, trainable))
        # The base model, which these parameters are for, has no added leaves.
        before = {p: x for p, x in before.items() if p not in self.shapes.added}
        # Copies of those that train, because they are donated to the step.
        before |= {p: _copy(x) for p, x in flatten(trainable).items() if p in before}
        return {**frozen, BEFORE: unflatten(before)}

    def initial_state(self, trainable: Any) -> TrainState:
        """The state before the first step, of the trainable leaves; the recurrent memory is
        empty.
        """
        memory, slots = (), getattr(self.model, "train_memory_length", None)
        if getattr(self.dataset, "contiguous", False):
            # One memory for each row of the batch: rows of contiguous batches go on where the row
            # of the last batch ended.
            memory = self.model.initial_memory(self.source.plan.batch_size, slots)
        return TrainState.create(trainable, self.tx, self.first_step, memory)

    def method_state(self, state: TrainState, frozen: Any) -> TrainState:
        """`initial_state` with the method's own initial optimizer state."""
        # EWC has one: its importances need passes over earlier text.
        if self.method.init_opt_state is None:
            return state

        def examples(count: int) -> Iterator[Any]:
            rows = self.dataset.earlier(self.method, self.model, count, self.partitioner)
            return map(self.partitioner.put_batch, rows)

        if jax.process_index() == 0 and self.method.reads_earlier_data:
            print(f"Reading earlier text for the initial state of {self.method.name} ...")
        start = Start(model=self.model, trainable=state.params, frozen=frozen, examples=examples)
        made = self.method.init_opt_state(state.opt_state, start)
        if _form(made) != _form(state.opt_state):
            raise UserError(
                f"init_opt_state of method {self.method.name!r} returned a state of another form; "
                "give the one that it gets, with other values of the same shapes and dtypes."
            )
        return state.replace(opt_state=made)

    @functools.cached_property
    def state_shapes(self) -> TrainState:
        """Shapes and shardings of the train state."""
        # Shapes without arrays: large models must not be allocated here on one device.
        abstract = jax.eval_shape(self.initial_state, self.shapes.trainable)
        shardings = jax.tree.map(lambda x: x.sharding, self.shapes.trainable)
        tree = TrainState(
            self.partitioner.replicated,
            shardings,
            # Moments are sharded as their parameters, see `optimizer_state.like_params`.
            self.partitioner.state_shardings(abstract.opt_state, self.shapes.trainable, shardings),
            jax.tree.map(lambda _: self.partitioner.batch_sharding, abstract.memory),
        )
        return jax.tree.map(
            lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), abstract, tree
        )

    def batch_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes of a global batch."""
        rows, sharding = self.source.plan.batch_size, self.partitioner.batch_sharding
        return {
            name: jax.ShapeDtypeStruct((rows, *x.shape[1:]), x.dtype, sharding=sharding)
            for name, x in self.source.shapes().items()
        }

    def dropout_key(self) -> jax.Array:
        """The key of the run's dropout masks; each step folds its number in."""
        return jax.random.key(self.seed + 1, impl="unsafe_rbg" if self.use_hardware_rng else None)

    def trace(self) -> jax.stages.Traced:
        """The train step, traced for the shapes of this run; allocates nothing."""
        model = setup.for_gradients(self.model, self.shapes.trainable)
        update = make_train_step(
            loss_of(self.method, model, self.base_model),
            self.tx,
            num_microbatches=self.num_microbatches,
            dropout=self.model.draws,
            legacy_microbatch_means=self.legacy_microbatch_means,
        )
        state = self.state_shapes
        key = jax.eval_shape(self.dropout_key)
        # Outputs get the shardings of inputs: otherwise the second step could have other ones, and
        # be compiled again.
        out = jax.tree.map(lambda x: x.sharding, state)

        def step(state, constants, batch, key):
            # Before the update: the rate that this step uses is that of the state's step number.
            more = self.metrics.of_step(batch, self.rate(state.step))
            state, metrics = update(state, constants, batch, key)
            return state, {**metrics, **more}

        # The old state's memory is reused for the new one; constants are not donated, for every
        # step reads them.
        jitted = jax.jit(step, donate_argnums=0, out_shardings=(out, None))
        constants = self.constants(self.shapes.frozen, self.shapes.trainable)
        return jitted.trace(state, constants, self.batch_shapes(), key)


def prepare(
    *,
    model: BaseTransformerModel,
    dataset: DatasetConfig,
    model_dir: str,
    method: Method,
    optimizer: Callable[..., optax.GradientTransformation],
    learning_rate: Callable[..., optax.Schedule],
    clip_norm: float | None,
    epochs: int | None,
    total_steps: int | None,
    checkpoint_cfg: CheckpointConfig,
    partitioner: Partitioner,
    num_microbatches: int,
    random_seed: int,
    use_hardware_rng: bool,
    first_step: int = 0,
    metrics: StepMetrics | None = None,
    legacy_microbatch_means: bool = False,
    make_inputs: Callable[[], Any] | None = None,
    evaluations: Sequence[MakeEvaluation] = (),
) -> Prepared:
    """Checks the settings of `train.train` and derives what follows from shapes alone.

    Nothing of vocabulary, corpus or probes is read before `make_inputs` was called, nothing of the
    base checkpoint before what that returns was called. The latter may train for long: evaluations
    are made before it, to see that they fit.

    Raises:
      UserError: something in the configuration, the corpus or the base checkpoint does not fit.
    """
    check_settings(**locals())
    check_batch(dataset.batch_size, num_microbatches, partitioner.batch_parts)
    extended, metrics = model.with_method(method), metrics or StepMetrics()
    make_base = None
    if make_inputs is not None:
        if not is_remote(model_dir):  # what it makes may take long
            folders = (Path(model_dir).absolute(), *Path(model_dir).absolute().parents)
            with os_errors(model_dir):
                tempfile.TemporaryDirectory(dir=next(p for p in folders if p.exists())).cleanup()
        make_base = make_inputs()
    setup.check_vocabulary(extended)
    source = dataset.make_source(
        method,
        epochs=epochs if total_steps is None else None,
        total_steps=None if total_steps is None else total_steps - first_step,
        seed=random_seed,
        model=model,
        partitioner=partitioner,
    )
    if total_steps is None:
        # Only now is it known how many batches EPOCHS are.
        total_steps = first_step + source.plan.total_steps
    rate = learning_rate(total_steps=total_steps)
    frozen_dtype = checkpoint_cfg.restore.frozen_dtype
    shapes = setup.param_shapes(model, method, partitioner, frozen_dtype)

    def optimizer_from(shift: int) -> optax.GradientTransformation:
        return setup.make_optimizer(
            extended, method, optimizer, lambda step: rate(step + shift), clip_norm
        )

    # The optimizer counts its own updates: from 0 unless its state is restored.
    tx, restore = optimizer_from(first_step), checkpoint_cfg.restore
    if make_base is not None:
        setup.check_first_phase(shapes, restore.path)
        Evaluations(evaluations, extended, partitioner)
        make_base()
    restores_optimizer = bool(
        restore.optimizer
        and restore.path
        and holds_optimizer(restore.path, jax.eval_shape(tx.init, shapes.trainable))
    )
    return Prepared(
        model_dir=str(model_dir),
        model=extended,
        base_model=model,
        method=method,
        dataset=dataset,
        checkpoint_cfg=checkpoint_cfg,
        partitioner=partitioner,
        seed=random_seed,
        use_hardware_rng=use_hardware_rng,
        source=source,
        shapes=shapes,
        tx=optimizer_from(0) if restores_optimizer else tx,
        rate=rate,
        first_step=first_step,
        total_steps=total_steps,
        restores_optimizer=restores_optimizer,
        num_microbatches=num_microbatches,
        legacy_microbatch_means=legacy_microbatch_means,
        metrics=metrics,
    )


def check_settings(
    *,
    model: BaseTransformerModel,
    dataset: DatasetConfig,
    model_dir: str,
    method: Method,
    optimizer: Any,
    learning_rate: Callable[..., optax.Schedule],
    clip_norm: float | None,
    epochs: int | None,
    total_steps: int | None,
    checkpoint_cfg: CheckpointConfig,
    partitioner: Partitioner,
    num_microbatches: int,
    random_seed: int,
    use_hardware_rng: bool,
    first_step: int,
    metrics: StepMetrics | None,
    make_inputs: Any,
    evaluations: Sequence[MakeEvaluation],
    **_: Any,
) -> None:
    """Checks those arguments of `prepare` that need no data, no checkpoint and no device.

    Raises:
      UserError: a setting cannot work.
    """
    refuse_foreign(model_dir)
    if checkpoint_cfg.restore.path is not None:
        checks.require_text(INITIAL_CHECKPOINT_PATH=checkpoint_cfg.restore.path)
        if absolute(checkpoint_cfg.restore.path) == absolute(model_dir):
            raise UserError(
                f"{model_dir} is INITIAL_CHECKPOINT_PATH too; choose another MODEL_DIR."
            )
    _check_length(epochs, total_steps, first_step)
    _check_objects(model, method, optimizer, make_inputs)
    checks.require_int(0, RANDOM_SEED=random_seed, first_step=first_step)
    checks.require_bool(use_hardware_rng=use_hardware_rng)
    checks.require_positive(CLIP_NORM=clip_norm)
    model.with_method(method)
    dataset.check_method(method)
    # As far as the mesh shape says so: devices are asked for later.
    check_batch(dataset.batch_size, num_microbatches, known_parts(partitioner.mesh_shape))
    # Raises for a rate that is none. How long EPOCHS are is not known yet: long enough for a cycle.
    learning_rate(total_steps=total_steps or 10**6)
    check_best(checkpoint_cfg.save.keep_best, evaluations, metrics or StepMetrics())


def _check_length(epochs: int | None, total_steps: int | None, first_step: int) -> None:
    if epochs is None and total_steps is None:
        raise UserError("Neither EPOCHS nor TRAIN_STEPS is set; give one of them.")
    checks.require_int(TRAIN_STEPS=total_steps)
    if total_steps is None:
        checks.require_int(1, _MAX_EPOCHS, EPOCHS=epochs)
    if total_steps is not None and total_steps <= first_step:
        raise UserError(
            f"TRAIN_STEPS is {total_steps}, but the checkpoint that training starts from is at "
            f"step {first_step}: it counts from 0; give more, or TRAIN_STEPS_RELATIVE."
        )


def _check_objects(model: Any, method: Any, optimizer: Any, make_inputs: Any) -> None:
    setup.check_model(model, method)
    if make_inputs is not None and not callable(make_inputs):
        raise UserError(f"MAKE_INPUTS is {make_inputs!r}; give a function, or None.")
    if not callable(optimizer):
        raise UserError(
            f"OPTIMIZER is {optimizer!r}; give a function, such as @adafactor.adafactor_hf "
            "(without parentheses)."
        )


def loss_of(method: Method, model: BaseTransformerModel, base: BaseTransformerModel) -> Callable:
    """The loss of `make_train_step`: the model's own, or the method's."""
    if method.loss is None:
        return model.loss_fn
    own = method.loss(model, base)
    if not callable(own):
        raise UserError(f"loss of method {method.name!r} returned {own!r}; give a function.")

    def loss_fn(params, batch, dropout_rng):
        params = dict(params)
        # `constants` put them among the frozen parameters; no model knows a leaf of that name.
        before = jax.lax.stop_gradient(params.pop(BEFORE))
        made = own(params, before, batch, dropout_rng)
        is_pair = isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], Mapping)
        if not (is_pair and all(jnp.shape(x) == () for x in (made[0], *made[1].values()))):
            raise UserError(
                f"The loss of method {method.name!r} must return a sum and sums over the batch, "
                "each one number, as the model's loss_fn does."
            )
        if missing := [name for name in SUMS if name not in made[1]]:
            raise UserError(
                f"The sums that the loss of method {method.name!r} returns lack "
                f"{', '.join(missing)}; the model's loss_fn has them all."
            )
        return made

    return loss_fn


def _form(tree: Any) -> Any:
    """What two trees must have in common that one may take the other's place."""
    leaves, structure = jax.tree.flatten(tree)
    arrays = (leaf if isinstance(leaf, jax.Array | np.ndarray) else None for leaf in leaves)
    return structure, [a if a is None else (a.shape, a.dtype) for a in arrays]


def _copy(x: Any) -> Any:
    # `precompile` calls this with shapes.
    return x if isinstance(x, jax.ShapeDtypeStruct) else jnp.copy(x)
