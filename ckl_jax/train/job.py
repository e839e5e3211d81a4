"""A training before its first step: model, method, data, mesh, and the step that they make."""

from typing import Any

import jax
import jax.numpy as jnp

from ckl_jax import checks
from ckl_jax.checkpoints.restore import holds_optimizer
from ckl_jax.errors import UserError
from ckl_jax.methods.method import Method
from ckl_jax.models.distillation import TEACHER, taught
from ckl_jax.optim.gradient_squares import with_statistics
from ckl_jax.train import fisher, setup
from ckl_jax.train.adapters import is_added
from ckl_jax.train.state import TrainState
from ckl_jax.train.step import LossFn, make_train_step
from ckl_jax.train.step_metrics import StepMetrics
from ckl_jax.trees.partition import merge
from ckl_jax.trees.paths import flatten, unflatten


class Run:
    """A configured run: model, data, shapes, optimizer; nothing is allocated yet."""

    def __init__(
        self,
        model,
        dataset,
        model_dir,
        method,
        optimizer,
        learning_rate,
        clip_norm,
        epochs,
        total_steps,
        checkpoint_cfg,
        partitioner,
        num_microbatches,
        random_seed,
        first_step=0,
        metrics=None,
        legacy_microbatch_means=False,
    ):
        if total_steps is not None:
            epochs = None
        elif epochs is None:
            raise UserError("Neither EPOCHS nor TRAIN_STEPS is set; give one of them.")
        checks.require_text(MODEL_DIR=model_dir)
        if not callable(optimizer):
            raise UserError(
                f"OPTIMIZER is {optimizer!r}; give a function, such as @adafactor.adafactor_hf "
                "(without parentheses)."
            )
        if not isinstance(method, Method):
            raise UserError(f"METHOD is {method!r}; give one such as @lora.lora().")
        checks.require_int(
            EPOCHS=epochs, TRAIN_STEPS=total_steps, NUM_MICROBATCHES=num_microbatches
        )
        checks.require_int(0, RANDOM_SEED=random_seed, first_step=first_step)
        checks.require_positive(CLIP_NORM=clip_norm)
        self.model_dir, self.method, self.partitioner = str(model_dir), method, partitioner
        self.checkpoint_cfg, self.seed = checkpoint_cfg, random_seed
        self.model, self.base_model = model.with_method(method), model
        setup.check_vocabulary(self.model)
        partitioner.check_batch_size(dataset.batch_size)
        if dataset.batch_size % num_microbatches:
            raise UserError(
                f"NUM_MICROBATCHES={num_microbatches} does not divide BATCH_SIZE="
                f"{dataset.batch_size}; choose one that does."
            )
        partitioner.check_batch_size(
            dataset.batch_size // num_microbatches, "BATCH_SIZE / NUM_MICROBATCHES ="
        )
        if total_steps is not None and total_steps <= first_step:
            raise UserError(
                f"TRAIN_STEPS is {total_steps}, but the checkpoint that training starts from is at "
                f"step {first_step}: it counts from 0; give more, or TRAIN_STEPS_RELATIVE."
            )
        self.first_step, self.dataset = first_step, dataset
        self.source = dataset.make_source(
            method,
            epochs=epochs,
            total_steps=None if total_steps is None else total_steps - first_step,
            seed=random_seed,
            model=model,
        )
        self.plan = self.source.plan
        self._remembers = getattr(dataset, "contiguous", False)
        if total_steps is None:
            total_steps = first_step + self.plan.total_steps
        self.total_steps = total_steps
        self.rate = learning_rate(total_steps=total_steps)
        # The optimizer counts its own updates: from 0 unless its state is restored.
        self.shift = first_step
        self.shapes = setup.param_shapes(self.model, method, partitioner)
        self.tx = setup.make_optimizer(
            self.model, method, optimizer, lambda step: self.rate(step + self.shift), clip_norm
        )
        restore = checkpoint_cfg.restore
        self.restores_optimizer = bool(
            restore.optimizer
            and restore.path
            and holds_optimizer(restore.path, self.state_shapes().opt_state)
        )
        if self.restores_optimizer:
            self.shift = 0
        self.metrics = metrics or StepMetrics()
        self._update = make_train_step(
            self._loss_fn(),
            self.tx,
            num_microbatches=num_microbatches,
            dropout=self.model.draws,
            legacy_microbatch_means=legacy_microbatch_means,
        )

    def _loss_fn(self) -> LossFn:
        if self.method.teacher is None:
            return self.model.loss_fn
        return taught(self.model, self.base_model, self.method.teacher)

    def constants(self, frozen: Any, trainable: Any) -> Any:
        """What a step reads and does not change: frozen leaves, and the teacher's if there is one.

        Args:
          frozen, trainable: the two parts of the parameters before the first step, or their shapes.
        """
        if self.method.teacher is None:
            return frozen
        before = {p: x for p, x in flatten(merge(frozen, trainable)).items() if not is_added(p)}
        # Copies of those that train, because they are donated to the step.
        before |= {p: _copy(x) for p, x in flatten(trainable).items() if p in before}
        return {**frozen, TEACHER: unflatten(before)}

    def with_statistics(self, state: TrainState, frozen: Any) -> TrainState:
        """The state before the first step, with the size of gradients on earlier text in it."""
        batches = self.dataset.earlier(self.method, self.model, self.method.statistics_examples)
        if jax.process_index() == 0:
            print(f"Gradients of {self.method.statistics_examples:,} examples of earlier text ...")
        found = fisher.of_examples(
            self.model, state.params, frozen, batches, self.partitioner.put_batch
        )
        return state.replace(opt_state=with_statistics(state.opt_state, *found))

    def initial_state(self, params: Any) -> TrainState:
        """The state before the first step, of the leaves that train; its memory is empty."""
        memory, slots = (), getattr(self.model, "train_memory_length", None)
        if self._remembers:
            memory = self.model.initial_memory(self.plan.batch_size, slots)
        return TrainState.create(params, self.tx, self.first_step, memory)

    def state_shapes(self) -> TrainState:
        """Shapes and shardings of the train state."""
        abstract = jax.eval_shape(self.initial_state, self.shapes.trainable)
        shardings = jax.tree.map(lambda x: x.sharding, self.shapes.trainable)
        replicated = self.partitioner.replicated
        tree = TrainState(
            replicated,
            shardings,
            self.partitioner.state_shardings(abstract.opt_state, self.shapes.trainable, shardings),
            jax.tree.map(lambda _: self.partitioner.batch_sharding, abstract.memory),
        )
        return jax.tree.map(
            lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), abstract, tree
        )

    def batch_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes of a global batch."""
        local = self.source.shapes()
        rows = self.plan.batch_size
        sharding = self.partitioner.batch_sharding
        return {
            name: jax.ShapeDtypeStruct((rows, *x.shape[1:]), x.dtype, sharding=sharding)
            for name, x in local.items()
        }

    def trace(self) -> jax.stages.Traced:
        """The train step, traced for the shapes of this run; allocates nothing."""
        state = self.state_shapes()
        key = jax.eval_shape(lambda: jax.random.key(0))
        out = jax.tree.map(lambda x: x.sharding, state)

        def step(state, frozen, batch, key):
            more = self.metrics.of_step(batch, self.rate(state.step))
            state, metrics = self._update(state, frozen, batch, key)
            return state, {**metrics, **more}

        jitted = jax.jit(step, donate_argnums=0, out_shardings=(out, None))
        constants = self.constants(self.shapes.frozen, self.shapes.trainable)
        return jitted.trace(state, constants, self.batch_shapes(), key)


def _copy(x: Any) -> Any:
    return x if isinstance(x, jax.ShapeDtypeStruct) else jnp.copy(x)
