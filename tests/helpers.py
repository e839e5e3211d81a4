"""Toy configurations and tree assertions shared by the tests."""

import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np

from ckl_jax.checkpoints import architectures
from ckl_jax.methods.method import combine, vanilla
from ckl_jax.models.bert import BertConfig
from ckl_jax.models.decoder import DecoderConfig
from ckl_jax.models.gpt2 import GPT2Config
from ckl_jax.models.masked import MaskedModel
from ckl_jax.models.modernbert import ModernBertConfig
from ckl_jax.models.t5 import T5Config
from ckl_jax.models.t5gemma import T5GemmaConfig
from ckl_jax.models.transformer_xl import TransformerXLConfig
from ckl_jax.trees.paths import flatten

TINY = T5Config(
    vocab_size=64,
    emb_dim=16,
    num_heads=2,
    head_dim=8,
    mlp_dim=32,
    num_encoder_layers=2,
    num_decoder_layers=2,
    logits_via_embedding=True,
    dropout_rate=0.1,
)
TINY_V1_1 = T5Config(
    vocab_size=64,
    emb_dim=16,
    num_heads=2,
    head_dim=8,
    mlp_dim=32,
    num_encoder_layers=2,
    num_decoder_layers=2,
    mlp_activations=("gelu", "linear"),
    dropout_rate=0.1,
)
TINY_GPT2 = GPT2Config(
    vocab_size=64,
    emb_dim=16,
    num_heads=2,
    head_dim=8,
    mlp_dim=32,
    num_layers=2,
    max_positions=16,
    dropout_rate=0.1,
)
# Gemma 3's parts: grouped queries, norms everywhere, two types of layers.
TINY_DECODER = DecoderConfig(
    vocab_size=64,
    emb_dim=16,
    num_heads=2,
    num_kv_heads=1,
    head_dim=8,
    mlp_dim=32,
    num_layers=2,
    max_positions=16,
    dropout_rate=0.1,
    norm_plus_one=True,
    norm_place="both",
    qk_norm="head",
    layer_types=("sliding", "full"),
    window=4,
    ropes={"full": {"rope_theta": 1e4}, "sliding": {"rope_theta": 1e2}},
    attention_softcap=20.0,
    logits_softcap=20.0,
)
TINY_XL = TransformerXLConfig(
    vocab_size=64,
    emb_dim=16,
    num_heads=2,
    head_dim=8,
    mlp_dim=32,
    num_layers=2,
    dropout_rate=0.1,
)


class MaskedTokens:
    """What a masked model asks of its vocabulary."""

    mask_id, bos_id, eos_id, vocab_size = 4, 2, 3, 64


# With ELECTRA's narrower embeddings.
TINY_BERT = BertConfig(
    vocab_size=64,
    table_dim=8,
    emb_dim=16,
    num_heads=2,
    head_dim=8,
    mlp_dim=32,
    num_layers=2,
    max_positions=16,
    dropout_rate=0.1,
)

TINY_MODERNBERT = ModernBertConfig(
    vocab_size=64,
    emb_dim=16,
    num_heads=2,
    head_dim=8,
    mlp_dim=32,
    num_layers=2,
    max_positions=16,
    window=3,
    dropout_rate=0.1,
)

# Two stacks of different sizes, with Gemma 2's parts.
TINY_T5GEMMA = T5GemmaConfig(
    vocab_size=64,
    emb_dim=16,
    num_heads=2,
    num_kv_heads=1,
    head_dim=8,
    mlp_dim=32,
    num_layers=2,
    num_encoder_layers=2,
    encoder_fields={"emb_dim": 24, "num_kv_heads": 2, "window": 3, "embed_scale": 24**0.5},
    mlp_activations=("gelu", "linear"),
    query_scale=24**-0.5,
    embed_scale=4.0,
    max_positions=16,
    dropout_rate=0.1,
    norm_plus_one=True,
    norm_place="both",
    layer_types=("sliding", "full"),
    window=4,
    ropes=dict.fromkeys(("full", "sliding"), {"rope_theta": 1e4}),
    attention_softcap=20.0,
    logits_softcap=20.0,
    logits_via_embedding=True,
)

TINY_BY_ARCH = {
    "v1.0": TINY,
    "v1.1": TINY_V1_1,
    "t5gemma": TINY_T5GEMMA,
    "gpt2": TINY_GPT2,
    "decoder": TINY_DECODER,
    "bert": TINY_BERT,
    "modernbert": TINY_MODERNBERT,
    "xl": TINY_XL,
}

_SMALL = dict(emb_dim=8, num_heads=2, head_dim=4, mlp_dim=16, num_layers=2)


def _method(name, *args, **arguments):
    """What the function of that name in `ckl_jax/methods/<name>.py` returns."""
    return getattr(importlib.import_module(f"ckl_jax.methods.{name}"), name)(*args, **arguments)


def _methods(**trunk):
    """Every method enters every table-driven test by one line here."""
    methods = {
        "vanilla": vanilla(),
        "recadam": _method("recadam", t0=2.0),  # annealed at once, or two steps would not move it
        "mix_review": _method("mix_review"),
        "lora": _method("lora", **trunk),
        "lora_phase2": _method("lora", phase=1, **trunk),
        "dora": _method("lora", dora=True, **trunk),
        "k_adapter_k2": _method("k_adapter", taps=(0, 1), **trunk),
        "k_adapter_k3": _method("k_adapter", taps=(0, 1, 2), **trunk),
        "k_adapter_phase2": _method("k_adapter", taps=(0, 1), phase=1, **trunk),
        "modular": _method("modular", **_SMALL),
        "modular_phase2": _method("modular", phase=1, **_SMALL),
        "replay": _method("replay"),
        "ewc": _method("ewc", examples=8),
        "lwf": _method("lwf"),
        "ema": _method("ema", 0.5),
        "sparse": _method("sparse", 0.2),
    }
    pairs = (("ewc", "replay"), ("lora", "mix_review"), ("lora", "ema"))
    return methods | {f"{a}+{b}": combine(methods[a], methods[b]) for a, b in pairs}


METHODS = _methods()
# A decoder or an encoder alone has no decoder beside it that could train too.
GPT2_METHODS = _methods(trunk=())
GPT2_METHODS["lora_embedding"] = _method("lora", trunk=(), legacy_train_embedding=True)


def model_of(config, **fields):
    """The model of a configuration, by its architecture."""
    architecture = architectures.of_config(config)
    if architecture.model is MaskedModel:
        fields = {"vocabulary": MaskedTokens(), "mask_rate": 0.5} | fields
    return architecture.model(architecture.module(config), **fields)


def method_of(name, config):
    """The method of that name for an encoder-decoder, or for a decoder or an encoder alone."""
    return (METHODS if config.has_encoder else GPT2_METHODS)[name]


def random_batch(config, batch=4, inputs=7, targets=5, seed=0):
    """A padded batch in the form that models take."""
    rng = np.random.RandomState(seed)
    if architectures.of_config(config).model is MaskedModel:
        row = rng.randint(5, config.vocab_size, (batch, inputs)).astype(np.int32)
        real = np.ones((batch, inputs), np.int32)
        real[0, inputs - 2 :] = 0
        hidden = real * (np.arange(inputs) % 2)
        return {
            "encoder_input_tokens": np.where(hidden, MaskedTokens.mask_id, row * real),
            "encoder_segment_ids": real,
            "decoder_target_tokens": row * real,
            "decoder_loss_weights": hidden.astype(np.float32),
            "maskable": real.astype(np.float32),
        }
    if not config.has_encoder:
        row = rng.randint(1, config.vocab_size, (batch, inputs + 1)).astype(np.int32)
        weights = np.ones((batch, inputs), np.float32)
        weights[0, inputs - 2 :] = 0
        return {
            "decoder_input_tokens": row[:, :-1],
            "decoder_target_tokens": row[:, 1:],
            "decoder_loss_weights": weights,
        }
    source = rng.randint(1, config.vocab_size, (batch, inputs)).astype(np.int32)
    target = rng.randint(1, config.vocab_size, (batch, targets)).astype(np.int32)
    source[-1, inputs - 2 :] = 0
    target[0, targets - 2 :] = 0
    return {
        "encoder_input_tokens": source,
        "decoder_input_tokens": np.pad(target, ((0, 0), (1, 0)))[:, :-1],
        "decoder_target_tokens": target,
        "decoder_loss_weights": (target > 0).astype(np.float32),
    }


def tokens(batch):
    """The token arrays in the order of the model's call."""
    names = ("encoder_input_tokens", "decoder_input_tokens", "decoder_target_tokens")
    names = names[:1] if "maskable" in batch else names
    return tuple(batch[n] for n in names if n in batch)


@functools.cache
def init_shapes(config):
    """Shapes of all that a configuration's model initialises: parameters, and their axis names."""
    return jax.eval_shape(model_of(config).init, jax.random.key(0))


def param_shapes(config):
    """Shapes of the parameters of a configuration's model, in a tree of the caller's own."""
    return jax.tree.map(lambda x: x, init_shapes(config)["params"])


def random_params(config, seed: int = 0):
    """Random parameters, none of them zero (LoRA's B would hide a mistake); nothing compiles."""
    rng = np.random.RandomState(seed)

    def fill(path, shape):
        noise = rng.standard_normal(shape.shape).astype(np.float32)
        if len(shape.shape) > 1:
            return jnp.asarray(noise / np.sqrt(shape.shape[0]))
        return jnp.asarray(0.1 * noise + (path[-1].key != "bias"))  # around 0, or 1 for scales

    return jax.tree_util.tree_map_with_path(fill, param_shapes(config))


def init_params(config, seed: int = 0):
    """Parameters of a configuration's model by its own initialisers."""
    model = model_of(config)
    return jax.jit(lambda key: model.init(key)["params"])(jax.random.key(seed))


def assert_trees_close(actual, expected, rtol=1e-5, atol=1e-6):
    """Compares two trees leaf by leaf, naming the leaf that differs."""
    a, b = flatten(actual), flatten(expected)
    assert a.keys() == b.keys()
    for path in a:
        np.testing.assert_allclose(
            np.float64(a[path]), np.float64(b[path]), rtol, atol, err_msg=path
        )


def count(tree) -> int:
    """Number of scalars in a tree of arrays or shapes."""
    return sum(int(np.prod(x.shape)) for x in jax.tree.leaves(tree))


def forward(config):
    """A function of (params, *tokens): teacher-forced logits without dropout."""
    module = model_of(config).module
    return lambda params, *given: module.apply({"params": params}, *given, enable_dropout=False)


@functools.cache
def _compiled(config):
    return jax.jit(forward(config))


def logits_of(config, params, batch) -> jnp.ndarray:
    """Teacher-forced logits without dropout; compiled, as op by op each shape takes seconds."""
    return _compiled(config)(params, *tokens(batch))
