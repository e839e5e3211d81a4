"""T5 under Hugging Face's names: configuration, and the table of its parameters.

T5 v1.0 (ReLU, output tied to the embedding), v1.1 (gated GELU, own output; mT5, Flan-T5, UL2) and
umT5 (relative positions of each layer's own) are covered.
"""

import collections
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ckl_jax import checks
from ckl_jax.checkpoints.architecture import Architecture, HuggingFace, Peft, VocabularyFiles
from ckl_jax.checkpoints.hf_entry import Entry, Renamed, check_settings
from ckl_jax.data.text import byte_vocabulary
from ckl_jax.data.text.vocabularies import EOS_ID, EXTRA_IDS, PAD_ID, Vocabulary
from ckl_jax.errors import UserError
from ckl_jax.models.encoder_decoder import EncoderDecoderModel
from ckl_jax.models.t5 import T5Config, Transformer

EMBEDDING = "shared.weight"
# Other names of the same table; which of them a file holds depends on who saved it.
_COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
OUTPUT = "lm_head.weight"
# Left over in the first public T5 checkpoints; no computation uses it.
_UNUSED = ("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",)

# A gated GELU is the approximation by tanh, a plain one is exact.
_FEED_FORWARDS = {
    "relu": ("relu",),
    "gelu": ("gelu_exact",),
    "silu": ("silu",),
    "gated-gelu": ("gelu", "linear"),
    "gated-relu": ("relu", "linear"),
    "gated-silu": ("silu", "linear"),
}
_EPSILON = 1e-6
_SIZES = ("vocab_size", "d_model", "num_heads", "d_kv", "d_ff", "num_layers")


# Of padding and ends, and of what decoding starts with.
_IDS = {"pad_token_id": PAD_ID, "eos_token_id": EOS_ID, "decoder_start_token_id": PAD_ID}


def config_from_hf(settings: Mapping[str, Any], **overrides: Any) -> T5Config:
    """`T5Config` of a Hugging Face `config.json`.

    Args:
      **overrides: fields of `T5Config` that the file does not decide, such as `scan_layers`.

    Raises:
      UserError: a T5 with a part this model does not have.
    """
    fixed = {"layer_norm_epsilon": _EPSILON, "is_encoder_decoder": True}
    fixed |= {name: id for name, id in _IDS.items() if settings.get(name) is not None}
    check_settings(settings, fixed, _SIZES, "T5")
    default = "gated-gelu" if settings.get("model_type") in ("mt5", "umt5") else "relu"
    kind = settings.get("feed_forward_proj", default)
    if kind not in _FEED_FORWARDS:
        raise UserError(
            f"config.json says feed_forward_proj {kind!r}: only "
            f"{', '.join(_FEED_FORWARDS)} can be imported."
        )
    # transformers writes these too, derived, and computes by them alone when it reads them.
    is_gated = kind.startswith("gated-")
    act = "gelu_new" if kind == "gated-gelu" else kind.removeprefix("gated-")
    for name, derived in (("dense_act_fn", act), ("is_gated_act", is_gated)):
        if settings.get(name, derived) != derived:
            raise UserError(
                f"config.json says {name} {settings[name]!r} and feed_forward_proj {kind!r}, which "
                f"means {derived!r}; leave out the wrong one."
            )
    layers, buckets = settings["num_layers"], settings.get("relative_attention_num_buckets", 32)
    farthest = settings.get("relative_attention_max_distance", 128)
    named = {"relative_attention_max_distance of config.json": farthest}
    checks.require_int(buckets // 2 + 1, **named)
    fields = dict(
        vocab_size=settings["vocab_size"],
        emb_dim=settings["d_model"],
        num_heads=settings["num_heads"],
        head_dim=settings["d_kv"],
        mlp_dim=settings["d_ff"],
        num_encoder_layers=layers,
        num_decoder_layers=settings.get("num_decoder_layers") or layers,
        mlp_activations=_FEED_FORWARDS[kind],
        dropout_rate=settings.get("dropout_rate", 0.1),
        logits_via_embedding=_is_scaled(settings) and settings.get("tie_word_embeddings", True),
        relpos_buckets=buckets,
        relpos_max_distance=farthest,
        relpos_per_layer=settings.get("model_type") == "umt5",
    )
    return T5Config(**{**fields, **overrides})


def _is_scaled(settings):
    # T5 v1.0 ties its output to the embedding and scales it, v1.1 does neither. Up to transformers
    # 4 one field says so; 5 writes `scale_decoder_outputs` and calls every model tied. mT5s are
    # v1.1s, whatever their files say.
    kind, tied = settings.get("model_type"), settings.get("tie_word_embeddings", True)
    if kind == "umt5" and tied and "scale_decoder_outputs" not in settings:
        raise UserError(
            "config.json does not say whether the logits are scaled: transformers 4 does not scale "
            "those of a umT5, 5.0 to 5.23 do. Add scale_decoder_outputs, true or false."
        )
    return kind != "mt5" and settings.get("scale_decoder_outputs", tied)


def with_output(
    state: Mapping[str, np.ndarray], settings: Mapping[str, Any]
) -> Mapping[str, np.ndarray]:
    """Adds `lm_head.weight` where transformers 5 left it out as a copy of the embedding.

    It does so when the two are equal, which a v1.1 model made by it starts with: tied, yet not
    scaled. Here such a model gets an output of its own with the same values. The scale of one that
    has its own goes into it.
    """
    if OUTPUT in state and _is_scaled(settings) and not settings.get("tie_word_embeddings", True):
        scaled = np.asarray(state[OUTPUT], np.float32) * np.float32(settings["d_model"] ** -0.5)
        return collections.ChainMap({OUTPUT: scaled}, state)
    if _is_scaled(settings) or not settings.get("tie_word_embeddings", True) or OUTPUT in state:
        return state
    copies = [state[name] for name in (EMBEDDING, *_COPIES) if name in state]
    # Lazy arrays of the file stay lazy.
    return collections.ChainMap(state, {OUTPUT: copies[0]} if copies else {})


def config_to_hf(config: T5Config) -> dict[str, Any]:
    """The `config.json` of a `T5Config`; the inverse of `config_from_hf`.

    Raises:
      UserError: the feed-forward has no name there.
    """
    kinds = {activations: kind for kind, activations in _FEED_FORWARDS.items()}
    if config.mlp_activations not in kinds:
        raise UserError(f"Hugging Face's T5 has no feed-forward {config.mlp_activations}.")
    kind = "UMT5" if config.relpos_per_layer else "T5"
    return {
        "architectures": [f"{kind}ForConditionalGeneration"],
        "model_type": kind.lower(),
        "is_encoder_decoder": True,
        "vocab_size": config.vocab_size,
        "d_model": config.emb_dim,
        "num_heads": config.num_heads,
        "d_kv": config.head_dim,
        "d_ff": config.mlp_dim,
        "num_layers": config.num_encoder_layers,
        "num_decoder_layers": config.num_decoder_layers,
        "feed_forward_proj": kinds[config.mlp_activations],
        "dropout_rate": config.dropout_rate,
        "tie_word_embeddings": config.logits_via_embedding,
        "scale_decoder_outputs": config.logits_via_embedding,
        "relative_attention_num_buckets": config.relpos_buckets,
        "relative_attention_max_distance": config.relpos_max_distance,
        "layer_norm_epsilon": _EPSILON,
        # Fixed in T5's vocabularies, which the models rely on too.
        **_IDS,
    }


def embedding_names(config: T5Config) -> tuple[str, ...]:
    """The names of the token embedding in files; see `HuggingFace`."""
    return (EMBEDDING, *_COPIES, *((OUTPUT,) if config.logits_via_embedding else ()))


def view(state: Mapping[str, np.ndarray], config: Any = None) -> Mapping[str, np.ndarray]:
    """A state dict without the parameters that no computation uses."""
    return Renamed(state, {name: name for name in state if name not in _UNUSED})


def entries(config: T5Config) -> list[Entry]:
    """Every parameter of the model (layers not stacked), in both namings."""
    d, v = config.emb_dim, config.vocab_size
    table = [Entry(EMBEDDING, "token_embedder/embedding", False, (v, d))]
    table += _stack(config, "encoder", config.num_encoder_layers, ("",))
    table += _stack(config, "decoder", config.num_decoder_layers, ("self_", "cross_"))
    if not config.logits_via_embedding:
        table.append(Entry(OUTPUT, "decoder/logits_dense/kernel", True, (d, v)))
    return table


def _stack(config, stack, count, attentions) -> Iterator[Entry]:
    d, buckets = config.emb_dim, (config.num_heads, config.relpos_buckets)
    for i in range(count if config.relpos_per_layer else 1):
        yield Entry(
            f"{stack}.block.{i}.layer.0.SelfAttention.relative_attention_bias.weight",
            f"{stack}/{f'layers_{i}/' * config.relpos_per_layer}relpos_bias/rel_embedding",
            True,
            buckets,
        )
    for i in range(count):
        block, layer = f"{stack}.block.{i}.layer", f"{stack}/layers_{i}"
        # Sub-layers are numbered there: self-attention, (cross-attention), feed-forward.
        for j, kind in enumerate(attentions):
            yield from _attention(config, f"{block}.{j}", layer, kind)
        yield from _feed_forward(config, f"{block}.{len(attentions)}", layer)
    yield Entry(f"{stack}.final_layer_norm.weight", f"{stack}/{stack}_norm/scale", False, (d,))


def _attention(config, there, layer, kind) -> Iterator[Entry]:
    d, inner = config.emb_dim, config.num_heads * config.head_dim
    module = "EncDecAttention" if kind == "cross_" else "SelfAttention"
    ours = {"": "attention", "self_": "self_attention", "cross_": "encoder_decoder_attention"}[kind]
    for letter, word in zip("qkv", ("query", "key", "value"), strict=True):
        path = f"{layer}/{ours}/{word}/kernel"
        yield Entry(f"{there}.{module}.{letter}.weight", path, True, (d, inner))
    yield Entry(f"{there}.{module}.o.weight", f"{layer}/{ours}/out/kernel", True, (inner, d))
    norm = f"{layer}/pre_{kind}attention_layer_norm/scale"
    yield Entry(f"{there}.layer_norm.weight", norm, False, (d,))


def _feed_forward(config, there, layer) -> Iterator[Entry]:
    d, f = config.emb_dim, config.mlp_dim
    gated = len(config.mlp_activations) > 1
    for name in ("wi_0", "wi_1") if gated else ("wi",):
        path = f"{layer}/mlp/{name}/kernel"
        yield Entry(f"{there}.DenseReluDense.{name}.weight", path, True, (d, f))
    yield Entry(f"{there}.DenseReluDense.wo.weight", f"{layer}/mlp/wo/kernel", True, (f, d))
    yield Entry(f"{there}.layer_norm.weight", f"{layer}/pre_mlp_layer_norm/scale", False, (d,))


SENTENCE_PIECE = VocabularyFiles(
    reader=Vocabulary,
    file="spiece.model",
    instead="tokenizer.json",
    described="spiece.model or tokenizer.json",
    otherwise=VocabularyFiles(
        reader=byte_vocabulary.ByteVocabulary,
        file=byte_vocabulary.CONFIG,
        described=byte_vocabulary.CONFIG,
        is_in=byte_vocabulary.is_byte_vocabulary,
    ),
    arguments={"extra_ids": EXTRA_IDS},
)

ARCHITECTURE = Architecture(
    name="T5",
    config=T5Config,
    module=Transformer,
    model=EncoderDecoderModel,
    vocabulary=SENTENCE_PIECE,
    gin_file="models/t5.gin",
    run_gin="a ckl_<method>.gin",
    usage="Prepare data with its vocabulary: `ckl data prepare --vocabulary {}`.",
    hugging_face=HuggingFace(
        model_types=("t5", "mt5", "umt5"),
        config_from_hf=config_from_hf,
        config_to_hf=config_to_hf,
        entries=entries,
        embedding_names=embedding_names,
        view=view,
        complete=with_output,
    ),
    peft=Peft(task_type="SEQ_2_SEQ_LM", gin_file="ckl_lora.gin"),
)
