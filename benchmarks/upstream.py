"""The train step of this runner against that of T5X's own Trainer: same model, loss, optimizer.

Run it as `python -m benchmarks.upstream`, where T5X can be imported. Both train T5 v1.0 with
dropout 0.1, the summed loss with a z-loss of 1e-4, and T5X's Adafactor with parameter scaling, in
float32, on the same tokens; T5X by `trainer.Trainer.train`, with its metrics.
"""

import argparse
import sys
from collections.abc import Callable

from benchmarks import measure
from benchmarks.contestants import DEMO, SMALL, Shape, t5_config, t5x_module, tokens
from ckl_jax.errors import UserError

SHAPES = {"small": SMALL, "demo": DEMO}
LEARNING_RATE, Z_LOSS = 1e-3, 1e-4


def ours(shape: Shape) -> Callable[[], float]:
    """The step that `t5x train` compiles for T5X's gin files."""
    import jax

    from ckl_jax.methods.method import vanilla
    from ckl_jax.models.t5 import Transformer
    from ckl_jax.t5x_api.adafactor import Adafactor
    from ckl_jax.t5x_api.models import EncoderDecoderModel
    from ckl_jax.train.setup import make_optimizer
    from ckl_jax.train.state import TrainState
    from ckl_jax.train.step import make_train_step

    module = Transformer(t5_config(shape))
    model = EncoderDecoderModel(module, z_loss=Z_LOSS, optimizer_def=Adafactor())
    tx = make_optimizer(model, vanilla(), model.optimizer_def, lambda step: LEARNING_RATE, None)
    params = jax.jit(lambda key: model.init(key)["params"])(jax.random.key(0))
    state = [jax.jit(lambda p: TrainState.create(p, tx))(params)]
    batch, key = jax.device_put(tokens(shape)), jax.random.key(1)
    step = jax.jit(make_train_step(model.loss_fn, tx), donate_argnums=0)

    def call() -> float:
        state[0], metrics = step(state[0], {}, batch, key)
        return float(metrics["loss"])

    return call


def t5x_trainer(shape: Shape) -> Callable[[], float]:
    """The step of T5X's Trainer.

    Raises:
      UserError: T5X cannot be imported.
    """
    try:
        import seqio
        from t5x import adafactor, models, partitioning, trainer, utils
        from t5x.examples.t5 import network
    except ImportError as e:
        raise UserError(f"T5X and what it needs must be importable here ({e}).") from e
    import jax

    vocabulary = seqio.PassThroughVocabulary(shape.vocab_size, eos_id=1)
    module = t5x_module(network, shape)
    rules = adafactor.standard_logical_factor_rules()
    model = models.EncoderDecoderModel(
        module,
        vocabulary,
        vocabulary,
        adafactor.Adafactor(logical_factor_rules=rules),
        z_loss=Z_LOSS,
    )
    batch = tokens(shape)
    partitioner = partitioning.PjitPartitioner(num_partitions=1)
    initializer = utils.TrainStateInitializer(
        optimizer_def=model.optimizer_def,
        init_fn=model.get_initial_variables,
        input_shapes={name: x.shape for name, x in batch.items()},
        input_types={name: x.dtype for name, x in batch.items()},
        partitioner=partitioner,
    )
    state = initializer.from_scratch(jax.random.PRNGKey(0))
    training = trainer.Trainer(
        model,
        state,
        partitioner,
        eval_names=[],
        summary_dir=None,
        train_state_axes=initializer.train_state_axes,
        rng=jax.random.PRNGKey(1),
        learning_rate_fn=lambda step: LEARNING_RATE,
        num_microbatches=None,
    )
    training.compile_train(batch)

    def call() -> float:
        metrics = training.train(iter([batch]), num_steps=1).result()
        jax.block_until_ready(training.train_state.params)
        loss = metrics["loss"]
        return float(getattr(loss, "value", loss))

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--steps", type=int, default=5, help="rounds that count")
    parser.add_argument("--cores", type=int, default=1)
    args = parser.parse_args()
    measure.use_cores(args.cores)
    size = SHAPES[args.shape]
    try:
        contestants = {"ours": ours(size), "t5x": t5x_trainer(size)}
    except UserError as e:
        sys.exit(str(e))
    times = measure.take_turns(contestants, args.steps)
    measure.add_ratios(times, "t5x")
    shape = vars(size) | {"name": args.shape}
    result = {"shape": shape, "machine": measure.machine(args.cores), "times": times}
    path = measure.save(f"upstream_{args.shape}", result)
    for name, entry in times.items():
        print(f"{name:6} {entry['cpu_seconds']:8.3f} CPU s  {entry['ratio']:6.3f} of T5X's")
    print(f"{path.name} written")


if __name__ == "__main__":
    main()
