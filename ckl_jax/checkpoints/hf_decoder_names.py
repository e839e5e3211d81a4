"""The names of decoders' parameters at Hugging Face, in the styles of Llama, GPT-2, Pythia, OPT.

Where a file keeps several projections in one matrix, the table names its parts `<name>.weight[0]`
and so on: `view` cuts them out, `join` puts them together.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ckl_jax.checkpoints.hf_entry import Entry, Renamed
from ckl_jax.models.decoder import DecoderConfig

_PART = re.compile(r"(.*)\[(\d+)\]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Names:
    """What a style calls its parameters; `{}` is the number of the layer.

    Attributes:
      embedding, output, final_norm, layer: the names of these, and the prefix of a layer.
      inside: {name in a layer: path here}; those of projections and norms without ".weight".
      others: the same outside of the layers.
      fused: {name in a layer: the parts that it holds, in order}.
      by_head: whether a fused projection holds the parts of each head side by side.
      axis: of a projection's outputs; GPT-2's matrices are [in, out] as ours are.
      prefix: what files of the bare model lack.
      dropped: a pattern of names that older files hold, which are not parameters.
      embedding_path, output_path: what they are here.
    """

    embedding: str
    output: str
    final_norm: str
    layer: str
    inside: Mapping[str, str]
    others: Mapping[str, str] = dataclasses.field(default_factory=dict)
    fused: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    by_head: bool = False
    axis: int = 0
    prefix: str
    dropped: str = r"[^\w\W]"
    embedding_path: str = "token_embedder/embedding"
    output_path: str = "logits_dense/kernel"


_ATTENTION = {
    f"self_attn.{there}_proj": f"self_attention/{here}"
    for there, here in (("q", "query"), ("k", "key"), ("v", "value"), ("o", "out"))
}
LLAMA = Names(
    prefix="model.",
    embedding="model.embed_tokens.weight",
    output="lm_head.weight",
    final_norm="model.norm",
    layer="model.layers.{}.",
    inside={
        **_ATTENTION,
        "self_attn.q_norm": "self_attention/query_norm",
        "self_attn.k_norm": "self_attention/key_norm",
        "mlp.gate_proj": "mlp/wi_0",
        "mlp.up_proj": "mlp/wi_1",
        "mlp.down_proj": "mlp/wo",
        "input_layernorm": "pre_self_attention_layer_norm",
        "post_attention_layernorm": "pre_mlp_layer_norm",
    },
    dropped=r".*\.rotary_emb\.inv_freq",
)


def _llama_with(changed: Mapping[str, str | None], **fields: Any) -> Names:
    inside = {k: v for k, v in {**LLAMA.inside, **changed}.items() if v is not None}
    return dataclasses.replace(LLAMA, inside=inside, **fields)


# Norms on what a branch returns, and for Gemma on what it reads too.
OLMO2 = _llama_with(
    {
        "input_layernorm": None,
        "post_attention_layernorm": "post_self_attention_layer_norm",
        "post_feedforward_layernorm": "post_mlp_layer_norm",
    }
)
GEMMA2 = _llama_with(
    {
        "post_attention_layernorm": "post_self_attention_layer_norm",
        "pre_feedforward_layernorm": "pre_mlp_layer_norm",
        "post_feedforward_layernorm": "post_mlp_layer_norm",
    }
)


def _t5gemmas(stack: str, **fields: str) -> Names:
    """Gemma 2's parts by other names; the encoder lacks those of cross-attention."""
    changed = dict.fromkeys(("input_layernorm", "post_attention_layernorm"))
    for there, here in (("self", "self"), ("cross", "encoder_decoder")):
        for letter, word in zip("qkvo", ("query", "key", "value", "out"), strict=True):
            changed[f"{there}_attn.{letter}_proj"] = f"{here}_attention/{word}"
    for where in ("pre", "post"):
        changed[f"{where}_feedforward_layernorm"] = f"{where}_mlp_layer_norm"
        for kind in ("self", "cross"):
            changed[f"{where}_{kind}_attn_layernorm"] = f"{where}_{kind}_attention_layer_norm"
    return _llama_with(
        changed,
        embedding=f"model.{stack}.embed_tokens.weight",
        final_norm=f"model.{stack}.norm",
        layer=f"model.{stack}.layers.{{}}.",
        **fields,
    )


T5GEMMA_ENCODER = _t5gemmas("encoder")
T5GEMMA_DECODER = _t5gemmas(
    "decoder",
    output="lm_head.out_proj.weight",
    output_path="decoder/logits_dense/kernel",
    embedding_path="decoder_token_embedder/embedding",
)
_QKV = ("self_attention/query", "self_attention/key", "self_attention/value")
PHI3 = _llama_with(
    {
        **{name: None for name in _ATTENTION if "o_proj" not in name},
        "mlp.gate_proj": None,
        "mlp.up_proj": None,
    },
    fused={"self_attn.qkv_proj": _QKV, "mlp.gate_up_proj": ("mlp/wi_0", "mlp/wi_1")},
)
GPT2 = Names(
    prefix="transformer.",
    embedding="transformer.wte.weight",
    output="lm_head.weight",
    final_norm="transformer.ln_f",
    layer="transformer.h.{}.",
    inside={
        "ln_1": "pre_self_attention_layer_norm",
        "attn.c_proj": "self_attention/out",
        "ln_2": "pre_mlp_layer_norm",
        "mlp.c_fc": "mlp/wi",
        "mlp.c_proj": "mlp/wo",
    },
    others={"transformer.wpe": "decoder/position_embedder"},
    fused={"attn.c_attn": _QKV},
    axis=-1,
    # Masks that older files hold as if they were weights.
    dropped=r"transformer\.h\.\d+\.attn\.(masked_)?bias",
)
NEOX = Names(
    prefix="gpt_neox.",
    embedding="gpt_neox.embed_in.weight",
    output="embed_out.weight",
    final_norm="gpt_neox.final_layer_norm",
    layer="gpt_neox.layers.{}.",
    inside={
        "attention.dense": "self_attention/out",
        "mlp.dense_h_to_4h": "mlp/wi",
        "mlp.dense_4h_to_h": "mlp/wo",
        "input_layernorm": "pre_self_attention_layer_norm",
        "post_attention_layernorm": "pre_mlp_layer_norm",
    },
    fused={"attention.query_key_value": _QKV},
    by_head=True,
    dropped=r".*\.attention\.(masked_bias|bias|rotary_emb\.inv_freq)",
)
BLOOM = Names(
    prefix="transformer.",
    embedding="transformer.word_embeddings.weight",
    output="lm_head.weight",
    final_norm="transformer.ln_f",
    layer="transformer.h.{}.",
    inside={
        **{k: v for k, v in NEOX.inside.items() if k != "attention.dense"},
        "self_attention.dense": "self_attention/out",
    },
    others={"transformer.word_embeddings_layernorm": "decoder/embed_norm"},
    fused={"self_attention.query_key_value": _QKV},
    by_head=True,
)
_OPT_STACK = "model.decoder."
MODERNBERT = Names(
    prefix="model.",
    embedding="model.embeddings.tok_embeddings.weight",
    output="decoder.weight",
    final_norm="model.final_norm",
    layer="model.layers.{}.",
    inside={
        "attn_norm": "pre_self_attention_layer_norm",
        "attn.Wo": "self_attention/out",
        "mlp_norm": "pre_mlp_layer_norm",
        "mlp.Wo": "mlp/wo",
    },
    others={
        "model.embeddings.norm": "encoder/embed_norm",
        "head.dense": "head/dense",
        "head.norm": "head/layer_norm",
        "decoder": "output_bias",
    },
    fused={"attn.Wqkv": _QKV, "mlp.Wi": ("mlp/wi_0", "mlp/wi_1")},
    dropped=r"(model\.)?(classifier|drop)\..*",
)
OPT = Names(
    prefix="model.",
    embedding=f"{_OPT_STACK}embed_tokens.weight",
    output="lm_head.weight",
    final_norm=f"{_OPT_STACK}final_layer_norm",
    layer=_OPT_STACK + "layers.{}.",
    inside={
        **{k.replace("o_proj", "out_proj"): v for k, v in _ATTENTION.items()},
        "fc1": "mlp/wi",
        "fc2": "mlp/wo",
        "self_attn_layer_norm": "pre_self_attention_layer_norm",
        "final_layer_norm": "pre_mlp_layer_norm",
    },
    others={
        f"{_OPT_STACK}embed_positions": "decoder/position_embedder",
        f"{_OPT_STACK}project_in": "decoder/embed_dense",
        f"{_OPT_STACK}project_out": "output_dense",
    },
)


def entries(names: Names, config: DecoderConfig) -> list[Entry]:
    """A row for each parameter, in T5X's order; see `hf_names`."""
    width, (stack, _) = config.table_dim or config.emb_dim, config.stack
    table = [Entry(names.embedding, names.embedding_path, False, (config.vocab_size, width))]
    for there, here in names.others.items():
        table += _leaves(config, there, here)
    for i in range(config.num_layers):
        there, here = names.layer.format(i), f"{stack}/layers_{i}/"
        own = (config.first if i == 0 else None) or config
        for name, path in names.inside.items():
            table += _leaves(own, there + name, here + _placed(config, path))
        for name, parts in names.fused.items():
            for part, path in enumerate(parts):
                table += _leaves(config, there + name, here + path, f"[{part}]")
    if config.final_norm:
        table += _leaves(config, names.final_norm, f"{stack}/{stack}_norm")
    if not config.logits_via_embedding:
        table.append(Entry(names.output, names.output_path, True, (width, config.vocab_size)))
    if names.axis == -1:
        table = [dataclasses.replace(entry, transposed=False) for entry in table]
    return table


def of_embedding(names: Names, config: DecoderConfig) -> tuple[str, ...]:
    """The names of the token embedding in files; see `HuggingFace`."""
    return (names.embedding, *((names.output,) if config.logits_via_embedding else ()))


def _placed(config: DecoderConfig, path: str) -> str:
    # OPT has one name for a norm before a branch and after the sum.
    if config.norm_place == "after" and path.startswith("pre_"):
        return path.replace("pre_", "post_", 1)
    return path


def _leaves(config: DecoderConfig, there: str, here: str, part: str = "") -> Iterator[Entry]:
    """The rows of a projection, a norm or a table; none if the model has it not."""
    last, d = here.rpartition("/")[2], config.emb_dim
    is_cross = re.search("/encoder_decoder_attention/|_cross_attention_", here)
    if is_cross and config.memory_dim is None:
        return
    read = config.memory_dim if is_cross else d
    kernels = {
        "query": (d, config.num_heads * config.head_dim),
        **dict.fromkeys(("key", "value"), (read, config.groups * config.head_dim)),
        "out": (config.num_heads * config.head_dim, d),
        **dict.fromkeys(("wi", "wi_0", "wi_1"), (d, config.mlp_dim)),
        "wo": (config.mlp_dim, d),
        "dense": (d, d),
        "embed_dense": (config.table_dim, d),
        "output_dense": (d, config.table_dim),
    }
    if last in kernels:
        if None in kernels[last]:
            return
        yield Entry(f"{there}.weight{part}", f"{here}/kernel", True, kernels[last])
        biased = config.mlp_bias if last.startswith("w") else last in config.attention_bias
        if biased:
            yield Entry(f"{there}.bias{part}", f"{here}/bias", False, kernels[last][1:])
        return
    if last == "position_embedder":
        rows = config.max_positions + config.position_offset
        yield Entry(f"{there}.weight", f"{here}/pos_embedding", False, (rows, d))
        return
    if last == "output_bias":
        yield Entry(f"{there}.bias", f"{here}/bias", False, (config.vocab_size,))
        return
    if config.norm_place == "mlp" and last == "pre_self_attention_layer_norm":
        return
    widths = {"query_norm": config.num_heads, "key_norm": config.groups}
    if last in widths:
        if config.qk_norm is None:
            return
        d = config.head_dim * (widths[last] if config.qk_norm == "flat" else 1)
    yield Entry(f"{there}.weight", f"{here}/scale", False, (d,))
    if config.norm_kind == "layer" and config.norm_bias:
        yield Entry(f"{there}.bias", f"{here}/bias", False, (d,))


def view(
    names: Names, config: DecoderConfig, state: Mapping[str, np.ndarray]
) -> Mapping[str, np.ndarray]:
    """A state dict with the parts of fused projections under names of their own."""
    source = {}
    for name in state:
        full = name
        if not name.startswith((names.prefix, names.output, "lm_head.", *names.others)):
            full = names.prefix + name  # a file of the bare model
        if re.fullmatch(names.dropped, full):
            continue
        if full == "lm_head.weight":  # Pythia's in memory
            full = names.output
        fused = next((parts for n, parts in names.fused.items() if f".{n}." in full), None)
        parts = [f"{full}[{i}]" for i in range(len(fused))] if fused else [full]
        source.update(dict.fromkeys(parts, name))
    return _Cut(names, config, state, source)


class _Cut(Renamed):
    """See `view`."""

    def __init__(self, names: Names, config: DecoderConfig, *args: Any) -> None:
        super().__init__(*args)
        self._names, self._config = names, config

    def __getitem__(self, name: str) -> np.ndarray:
        value = super().__getitem__(name)
        match = _PART.fullmatch(name)
        if match is None:
            return value
        sizes, part = _sizes(self._names, self._config, match[1]), int(match[2])
        if value.shape[self._names.axis] != sum(sizes):
            return value  # left whole, so that the check of shapes names it
        if self._names.by_head:
            heads = value.reshape(self._config.num_heads, len(sizes), -1, *value.shape[1:])
            return heads[:, part].reshape(-1, *value.shape[1:])
        return np.split(value, np.cumsum(sizes)[:-1], self._names.axis)[part]


def _sizes(names: Names, config: DecoderConfig, name: str) -> list[int]:
    """The rows of each part of a fused projection."""
    paths = next(parts for n, parts in names.fused.items() if f".{n}." in name)
    rows = {"query": config.num_heads * config.head_dim}
    rows |= dict.fromkeys(("key", "value"), config.groups * config.head_dim)
    return [rows.get(path.rpartition("/")[2], config.mlp_dim) for path in paths]


def join(
    names: Names, config: DecoderConfig, state: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The inverse of `view`."""
    joined: dict[str, Any] = {}
    for name, value in state.items():
        if match := _PART.fullmatch(name):
            joined.setdefault(match[1], []).append(value)  # in the order of the table
        else:
            joined[name] = value

    def whole(parts: list[np.ndarray]) -> np.ndarray:
        if not names.by_head:
            return np.concatenate(parts, names.axis)
        heads = [p.reshape(config.num_heads, 1, -1, *p.shape[1:]) for p in parts]
        return np.concatenate(heads, axis=1).reshape(-1, *parts[0].shape[1:])

    return {n: whole(v) if isinstance(v, list) else v for n, v in joined.items()}
