"""GPT-2 under Hugging Face's names: configuration, and the table of its parameters.

Hugging Face keeps query, key and value as one matrix `c_attn` [D, 3D]. Here they are three; the
table names their parts `c_attn.weight[0]` to `[2]`: `view` distinguishes them, `join` puts them
together.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ckl_jax.checkpoints.architecture import (
    BPE_FILES,
    TOKENIZER_SETTINGS,
    Architecture,
    HuggingFace,
    Peft,
    VocabularyFiles,
)
from ckl_jax.checkpoints.hf_entry import Entry, Renamed, check_settings, linear, norm
from ckl_jax.data.text.byte_level import TEMPORALWIKI_TOKENS, ByteLevelVocabulary, is_byte_level
from ckl_jax.errors import UserError
from ckl_jax.models.decoder_only import DecoderOnlyModel
from ckl_jax.models.gpt2 import GPT2Config, Transformer

EMBEDDING = "transformer.wte.weight"
OUTPUT = "lm_head.weight"
_SIZES = ("vocab_size", "n_embd", "n_head", "n_layer", "n_positions")
_PREFIX = "transformer."
_FUSED = ".attn.c_attn."
_PART = re.compile(r"(.*)\[([012])\]")
# Masks that older files hold as if they were weights.
_MASKS = re.compile(r"transformer\.h\.\d+\.attn\.(masked_)?bias")
# Fields of config.json that change the computation, and the one value that is implemented.
_FIXED = {
    "activation_function": "gelu_new",
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}


def config_from_hf(settings: Mapping[str, Any], **overrides: Any) -> GPT2Config:
    """`GPT2Config` of a Hugging Face `config.json`.

    Args:
      **overrides: fields of `GPT2Config` that the file does not decide, such as `scan_layers`.

    Raises:
      UserError: a GPT-2 with a part this model does not have.
    """
    check_settings(settings, _FIXED, _SIZES, "GPT-2")
    width, heads = settings["n_embd"], settings["n_head"]
    fields = dict(
        vocab_size=settings["vocab_size"],
        emb_dim=width,
        num_heads=heads,
        head_dim=width // heads,
        # `n_inner: null` means 4 D.
        mlp_dim=settings.get("n_inner") or 4 * width,
        num_layers=settings["n_layer"],
        max_positions=settings["n_positions"],
        dropout_rate=settings.get("resid_pdrop", 0.1),
        layer_norm_epsilon=settings.get("layer_norm_epsilon", 1e-5),
    )
    return GPT2Config(**{**fields, **overrides})


def config_to_hf(config: GPT2Config) -> dict[str, Any]:
    """The `config.json` of a `GPT2Config`; the inverse of `config_from_hf`.

    Raises:
      UserError: heads that do not make up the width, for which it has no word.
    """
    if config.num_heads * config.head_dim != config.emb_dim:
        raise UserError(
            f"Hugging Face's GPT-2 needs num_heads * head_dim = emb_dim, but they are "
            f"{config.num_heads}, {config.head_dim} and {config.emb_dim}."
        )
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.vocab_size,
        "n_embd": config.emb_dim,
        "n_head": config.num_heads,
        "n_layer": config.num_layers,
        "n_positions": config.max_positions,
        "n_inner": config.mlp_dim,
        # One dropout rate here, three there.
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), config.dropout_rate),
        "layer_norm_epsilon": config.layer_norm_epsilon,
        **_FIXED,
        "bos_token_id": 50256 if config.vocab_size > 50256 else None,
        "eos_token_id": 50256 if config.vocab_size > 50256 else None,
    }


def embedding_names(config: GPT2Config) -> tuple[str, ...]:
    """The names of the token embedding in files; see `HuggingFace`."""
    del config
    return EMBEDDING, OUTPUT


def vocabulary_settings(vocabulary: ByteLevelVocabulary) -> dict[str, Any]:
    """The BOS and EOS entries of `config.json`."""
    return {"bos_token_id": vocabulary.bos_id, "eos_token_id": vocabulary.eos_id}


def entries(config: GPT2Config) -> list[Entry]:
    """Every parameter of the model (layers not stacked), in both namings."""
    d = config.emb_dim
    table = [
        Entry(EMBEDDING, "token_embedder/embedding", False, (config.vocab_size, d)),
        Entry(
            "transformer.wpe.weight",
            "decoder/position_embedder/pos_embedding",
            False,
            (config.max_positions, d),
        ),
    ]
    for i in range(config.num_layers):
        table += _layer(config, f"transformer.h.{i}", f"decoder/layers_{i}")
    return [*table, *norm("transformer.ln_f", "decoder/decoder_norm", d)]


def _layer(config: GPT2Config, there: str, here: str) -> Iterator[Entry]:
    d, inner = config.emb_dim, config.num_heads * config.head_dim
    attention = f"{here}/self_attention"
    yield from norm(f"{there}.ln_1", f"{here}/pre_self_attention_layer_norm", d)
    # The order of the thirds of c_attn.
    for i, word in enumerate(("query", "key", "value")):
        fused = f"{there}{_FUSED}"
        yield Entry(f"{fused}weight[{i}]", f"{attention}/{word}/kernel", False, (d, inner))
        yield Entry(f"{fused}bias[{i}]", f"{attention}/{word}/bias", False, (inner,))
    # transposed=False: Hugging Face's Conv1D stores [in, out], as we do.
    yield from linear(f"{there}.attn.c_proj", f"{attention}/out", inner, d, False)
    yield from norm(f"{there}.ln_2", f"{here}/pre_mlp_layer_norm", d)
    yield from linear(f"{there}.mlp.c_fc", f"{here}/mlp/wi", d, config.mlp_dim, False)
    yield from linear(f"{there}.mlp.c_proj", f"{here}/mlp/wo", config.mlp_dim, d, False)


def view(state: Mapping[str, np.ndarray], config: Any = None) -> Mapping[str, np.ndarray]:
    """A state dict with the parts of fused projections under names of their own.

    Names get the prefix `transformer.` where a file of the bare model lacks it; masks are left out.
    """
    source = {}
    for name in state:
        # GPT2Model's files lack the prefix, GPT2LMHeadModel's have it.
        full = name if name.startswith((_PREFIX, OUTPUT)) else _PREFIX + name
        if _MASKS.fullmatch(full):
            continue
        # Three names for one array; `Split` cuts it on access.
        parts = [f"{full}[{i}]" for i in range(3)] if _FUSED in full else [full]
        source.update(dict.fromkeys(parts, name))
    return Split(state, source)


class Split(Renamed):
    """See `view`."""

    def __getitem__(self, name: str) -> np.ndarray:
        value = super().__getitem__(name)
        match = _PART.fullmatch(name)
        # A width that is not a multiple of 3 is left whole, so that the check of shapes names it.
        if match is None or value.shape[-1] % 3:
            return value
        return np.split(value, 3, axis=-1)[int(match[2])]


def join(state: Mapping[str, np.ndarray], config: Any = None) -> dict[str, np.ndarray]:
    """The inverse of `view`: parts of a projection become one array."""
    joined: dict[str, Any] = {}
    for name, value in state.items():
        if match := _PART.fullmatch(name):
            # Relies on the order of the table: parts 0, 1, 2.
            joined.setdefault(match[1], []).append(value)
        else:
            joined[name] = value
    return {n: np.concatenate(v, -1) if isinstance(v, list) else v for n, v in joined.items()}


ARCHITECTURE = Architecture(
    name="GPT-2",
    config=GPT2Config,
    module=Transformer,
    model=DecoderOnlyModel,
    vocabulary=VocabularyFiles(
        reader=ByteLevelVocabulary,
        files=(*BPE_FILES, "encoder.json", "vocab.bpe", *TOKENIZER_SETTINGS),
        described="tokenizer.json, nor vocab.json and merges.txt,",
        is_in=is_byte_level,
        legacy_tokens=TEMPORALWIKI_TOKENS,
    ),
    gin_file="models/gpt2.gin",
    run_gin="a temporalwiki_<method>.gin",
    usage="Prepare data with its vocabulary: `ckl data rows --vocabulary {}`.",
    hugging_face=HuggingFace(
        model_types=("gpt2",),
        config_from_hf=config_from_hf,
        config_to_hf=config_to_hf,
        entries=entries,
        embedding_names=embedding_names,
        view=view,
        join=join,
        vocabulary_settings=vocabulary_settings,
    ),
    peft=Peft(
        task_type="CAUSAL_LM",
        fan_in_fan_out=True,
        module_parts=2,  # `c_proj` alone may be attention's or the MLP's
        gin_file="temporalwiki_lora.gin",
    ),
)
