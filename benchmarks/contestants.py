"""The training steps that are compared: ours, Hugging Face's in PyTorch, T5X's own network.

All train T5 v1.0 of one shape with dropout 0.1, a clip of the gradient norm at 0.5, and Adafactor
without parameter scaling, in float32, on the same random tokens.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from ckl_jax.errors import UserError

LEARNING_RATE, CLIP_NORM = 1e-3, 0.5


@dataclasses.dataclass(frozen=True)
class Shape:
    """A T5 v1.0 and its batch."""

    vocab_size: int = 32128
    emb_dim: int = 512
    num_heads: int = 8
    head_dim: int = 64
    mlp_dim: int = 2048
    encoder_layers: int = 6
    decoder_layers: int = 6
    batch: int = 8
    inputs: int = 350
    targets: int = 114

    def model(self, **changes: Any) -> Any:
        """Our model of this shape."""
        from ckl_jax.models.encoder_decoder import EncoderDecoderModel
        from ckl_jax.models.t5 import Transformer

        return EncoderDecoderModel(Transformer(t5_config(self, **changes)))

    def tokens(self) -> dict[str, np.ndarray]:
        """A batch without padding, in the form that our models take."""
        return tokens(self)

    def optimizer(self) -> Any:
        """Our optimizer, by its learning rate."""
        from ckl_jax.optim.adafactor import adafactor_hf

        return adafactor_hf

    def matmul_flops(self) -> int:
        """Floating point operations of the matrix products of one step of plain training.

        2 m n k for each product, forward; backward is twice that. Attention counts the whole
        [T, S] square.
        """
        d, width = self.emb_dim, self.num_heads * self.head_dim
        sources, targets = self.batch * self.inputs, self.batch * self.targets
        mlp = 2 * d * self.mlp_dim
        per_source = self.encoder_layers * (4 * d * width + mlp)
        per_source += self.decoder_layers * 2 * d * width  # keys and values of cross-attention
        per_target = self.decoder_layers * (6 * d * width + mlp) + d * self.vocab_size
        pairs = self.encoder_layers * self.inputs * self.inputs
        pairs += self.decoder_layers * self.targets * (self.targets + self.inputs)
        attention = 2 * self.batch * pairs * width
        return 6 * (sources * per_source + targets * per_target + attention)


SMALL = Shape()
DEMO = Shape(
    vocab_size=2048,
    emb_dim=128,
    num_heads=4,
    head_dim=32,
    mlp_dim=512,
    encoder_layers=3,
    decoder_layers=2,
    batch=128,
    inputs=12,
    targets=6,
)


def tokens(shape: Shape) -> dict[str, np.ndarray]:
    """A batch without padding, in the form our models take."""
    rng = np.random.RandomState(0)
    source = rng.randint(2, shape.vocab_size, (shape.batch, shape.inputs))
    target = rng.randint(2, shape.vocab_size, (shape.batch, shape.targets))
    return {
        "encoder_input_tokens": source.astype(np.int32),
        "decoder_input_tokens": np.pad(target, ((0, 0), (1, 0)))[:, :-1].astype(np.int32),
        "decoder_target_tokens": target.astype(np.int32),
        "decoder_loss_weights": np.ones(target.shape, np.float32),
    }


def t5_config(shape: Shape, **changes: Any) -> Any:
    """Our configuration of a shape."""
    from ckl_jax.models.t5 import T5Config

    return T5Config(
        vocab_size=shape.vocab_size,
        emb_dim=shape.emb_dim,
        num_heads=shape.num_heads,
        head_dim=shape.head_dim,
        mlp_dim=shape.mlp_dim,
        num_encoder_layers=shape.encoder_layers,
        num_decoder_layers=shape.decoder_layers,
        logits_via_embedding=True,
        **changes,
    )


class Ours:
    """Our step under a method, of a `Shape` or its like; call it to train one step.

    Attributes:
      compiled: the compiled step.
      report: its cost (see `train.precompile.compile_report`).
      traces: how often the step was traced; 1 however often it runs.
    """

    def __init__(self, shape: Any, method: Any = None, hardware_rng: bool = False, **changes: Any):
        import jax

        from ckl_jax.methods.method import vanilla
        from ckl_jax.parallel.mesh import Partitioner
        from ckl_jax.train.compile_cache import keep_freed_memory
        from ckl_jax.train.precompile import compile_report
        from ckl_jax.train.setup import for_gradients, make_optimizer, param_shapes
        from ckl_jax.train.state import TrainState
        from ckl_jax.train.step import make_train_step
        from ckl_jax.trees.partition import split

        keep_freed_memory()  # as a training does; it serves the peers too
        method = method or vanilla()
        model = shape.model(**changes).with_method(method)
        optimizer = shape.optimizer()
        tx = make_optimizer(model, method, optimizer, lambda step: LEARNING_RATE, CLIP_NORM)
        params = jax.jit(lambda key: model.init(key)["params"])(jax.random.key(0))
        trainable, self.frozen = split(params, method.trainable)
        self.state = jax.jit(lambda p: TrainState.create(p, tx))(trainable)
        self.batch = jax.device_put(shape.tokens())
        self.key = jax.random.key(1, impl="unsafe_rbg" if hardware_rng else None)
        self.traces = 0
        step = make_train_step(for_gradients(model, trainable).loss_fn, tx)

        def counted(*args):
            self.traces += 1
            return step(*args)

        self._jitted = jax.jit(counted, donate_argnums=0)
        shapes = param_shapes(model, method, Partitioner())
        lowered = self._jitted.lower(self.state, self.frozen, self.batch, self.key)
        self.compiled = lowered.compile()
        self.report = compile_report(
            lowered,
            self.compiled,
            params=shapes.params,
            trainable=shapes.trainable,
            opt_state=self.state.opt_state,
        )

    def __call__(self) -> float:
        self.state, metrics = self.compiled(self.state, self.frozen, self.batch, self.key)
        return float(metrics["loss"])


def torch_step(
    shape: Shape, cores: int, device: str = "cpu", bfloat16: bool = False
) -> Callable[[], Any]:
    """The step of transformers' T5ForConditionalGeneration; see `torch_training`."""
    import torch
    import transformers
    from transformers.optimization import Adafactor

    torch.set_num_threads(cores)
    config = transformers.T5Config(
        vocab_size=shape.vocab_size,
        d_model=shape.emb_dim,
        d_kv=shape.head_dim,
        d_ff=shape.mlp_dim,
        num_layers=shape.encoder_layers,
        num_heads=shape.num_heads,
        num_decoder_layers=shape.decoder_layers,
        dropout_rate=0.1,
        decoder_start_token_id=0,
    )
    with torch.device(device):  # where its weights are drawn, too
        model = transformers.T5ForConditionalGeneration(config).train()
    if device == "cpu":
        optimizer = Adafactor(
            model.parameters(), lr=LEARNING_RATE, scale_parameter=False, relative_step=False
        )
    else:  # transformers' takes one parameter after the other, a kernel for each of its lines
        optimizer = torch.optim.Adafactor(model.parameters(), lr=LEARNING_RATE, foreach=True)
    layers = [*model.encoder.block, *model.decoder.block]
    return torch_training(model, layers, optimizer, shape.tokens(), device, bfloat16)


def torch_training(
    model: Any,
    layers: list,
    optimizer: Any,
    batch: dict[str, np.ndarray],
    device: str,
    bfloat16: bool,
) -> Callable[[], Any]:
    """A training step in PyTorch: eager on a CPU; on a GPU its layers and its loss are compiled.

    Args:
      model: of transformers, on its device.
      layers: of the model, compiled each for itself, which takes the time of one.
      optimizer: of what trains.
      batch: as our models take it.
      device: "cpu" or "cuda".
      bfloat16: computes under autocast.

    Returns:
      Does one step; on a CPU its loss is a float, on a GPU an array that is not waited for.
    """
    import torch

    def loss_of(logits: Any) -> Any:
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels)

    if device == "cuda":
        loss_of = torch.compile(loss_of)
        for layer in layers:
            layer.compile()
    arrays = {k: torch.from_numpy(v).long().to(device) for k, v in batch.items() if "tokens" in k}
    labels = arrays.pop("decoder_target_tokens").flatten()
    given = {"input_ids": arrays["decoder_input_tokens"]}
    if "encoder_input_tokens" in arrays:
        source = arrays["encoder_input_tokens"]
        given = {"input_ids": source, "decoder_input_ids": given["input_ids"]}
        given["attention_mask"] = torch.ones_like(source)
    trained = [p for group in optimizer.param_groups for p in group["params"]]

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=bfloat16):
            loss = loss_of(model(**given, use_cache=False).logits)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, CLIP_NORM)
        optimizer.step()
        return loss.item() if device == "cpu" else loss.detach()

    return step


def t5x_module(network: Any, shape: Shape) -> Any:
    """T5X's example network, of its module `network`, of a shape."""
    return network.Transformer(
        network.T5Config(
            vocab_size=shape.vocab_size,
            emb_dim=shape.emb_dim,
            num_heads=shape.num_heads,
            num_encoder_layers=shape.encoder_layers,
            num_decoder_layers=shape.decoder_layers,
            head_dim=shape.head_dim,
            mlp_dim=shape.mlp_dim,
            mlp_activations=("relu",),
            dropout_rate=0.1,
            logits_via_embedding=True,
        )
    )


def t5x_step(shape: Shape) -> Callable[[], float]:
    """The step of T5X's example network and loss, with our optimizer (T5X's own has no HF mode).

    Raises:
      UserError: T5X cannot be imported.
    """
    import jax
    import optax

    from ckl_jax.optim.adafactor import adafactor_hf
    from ckl_jax.optim.clipping import clip_by_global_norm

    try:
        from t5x import losses
        from t5x.examples.t5 import network
    except ImportError as e:
        raise UserError(
            f"The peer t5x needs google-research/t5x on the Python path ({e}); see "
            "benchmarks/README.md, or choose --peer torch."
        ) from e
    module = t5x_module(network, shape)
    batch = jax.device_put(tokens(shape))
    names = ("encoder_input_tokens", "decoder_input_tokens", "decoder_target_tokens")
    arrays = [batch[name] for name in names]
    init = jax.jit(lambda key: module.init(key, *arrays, enable_dropout=False)["params"])
    tx = optax.chain(clip_by_global_norm(CLIP_NORM), adafactor_hf(LEARNING_RATE))

    def loss_fn(params, key):
        logits = module.apply({"params": params}, *arrays, rngs={"dropout": key})
        loss, _, total = losses.compute_weighted_cross_entropy(
            logits, batch["decoder_target_tokens"], weights=batch["decoder_loss_weights"]
        )
        correct = (logits.argmax(-1) == batch["decoder_target_tokens"]).sum()
        return loss / total, correct

    def step(params, opt_state, key):
        (loss, correct), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, key)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss, correct

    jitted = jax.jit(step, donate_argnums=(0, 1))
    params = init(jax.random.key(0))
    state = [params, jax.jit(tx.init)(params)]
    key = jax.random.key(1)

    def call() -> float:
        state[0], state[1], loss, _ = jitted(state[0], state[1], key)
        return float(loss)

    return call
