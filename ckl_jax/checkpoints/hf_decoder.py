"""Decoder families under Hugging Face's names: a record each over `models.decoder`.

A family says which settings of its `config.json` are which fields of `DecoderConfig`, and back;
what its parameters are called is in `hf_decoder_names`.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from ckl_jax.checkpoints import hf_decoder_names as names
from ckl_jax.checkpoints.architecture import (
    Architecture,
    HuggingFace,
    Peft,
    VocabularyFiles,
)
from ckl_jax.checkpoints.hf_decoder_names import Names
from ckl_jax.checkpoints.hf_entry import check_settings
from ckl_jax.checkpoints.hf_rope import (
    layer_types,
    limited,
    longest,
    rope,
    rope_settings,
    two_ropes,
    window_settings,
)
from ckl_jax.data.text.byte_level import TokenizerVocabulary, is_byte_level
from ckl_jax.errors import UserError
from ckl_jax.models.decoder import DecoderConfig, Transformer
from ckl_jax.models.decoder_only import DecoderOnlyModel

Settings = Mapping[str, Any]
_ACTIVATIONS = {
    "silu": "silu",
    "gelu": "gelu_exact",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_fast": "gelu",
    "relu": "relu",
}
_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
)
_BIASES = "attention_bias", "mlp_bias"
BIASED = ("query", "key", "value", "out")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """One `model_type`.

    Attributes:
      architecture: the class that `config.json` names.
      fields: settings -> fields of `DecoderConfig` beside sizes.
      settings: {field of `config.json`: value for a configuration}, beside sizes; of an export.
      fixed: settings that change the computation, and the one value that is offered.
      ignored: settings of other families that transformers does not read in this one.
      renamed: sizes under other names in `config.json`.
    """

    architecture: str
    names: Names
    fields: Callable[[Settings], dict[str, Any]]
    settings: Callable[[DecoderConfig], dict[str, Any]]
    fixed: Settings = dataclasses.field(default_factory=dict)
    ignored: tuple[str, ...] = ("mlp_bias",)
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)


def _short(types: tuple[str, ...]) -> tuple[str, ...]:
    """One type where all layers have it."""
    return types[:1] if len(set(types)) == 1 else types


def _activation(settings: Settings, name: str = "hidden_act", default: str = "silu") -> str:
    there = settings.get(name) or default
    if there not in _ACTIVATIONS:
        raise UserError(
            f"config.json says {name} {there!r}: only {', '.join(_ACTIVATIONS)} can be imported."
        )
    return _ACTIVATIONS[there]


def _llama_fields(settings: Settings) -> dict[str, Any]:
    return dict(
        layer_norm_epsilon=settings.get("rms_norm_eps", 1e-6),
        num_kv_heads=settings.get("num_key_value_heads") or settings["num_attention_heads"],
        ropes={"full": rope(settings)},
        attention_bias=BIASED if settings.get("attention_bias") else (),
        mlp_bias=bool(settings.get("mlp_bias")),
        mlp_activations=(_activation(settings), "linear"),
        logits_via_embedding=bool(settings.get("tie_word_embeddings", False)),
    )


def _windowed(settings: Settings, fields: dict[str, Any], types: tuple[str, ...]) -> dict[str, Any]:
    """Fields of a family with windows, whose layers all turn alike."""
    types = _short(types if settings.get("sliding_window") else ("full",))
    return fields | dict(
        layer_types=types,
        window=settings.get("sliding_window") if "sliding" in types else None,
        ropes=dict.fromkeys(sorted(set(types)), rope(settings)),
    )


def _mistral_fields(settings: Settings) -> dict[str, Any]:
    fields = _llama_fields({"num_key_value_heads": 8, "sliding_window": 4096, **settings})
    settings = {"sliding_window": 4096, **settings}
    return _windowed(settings, fields, layer_types(settings, ("sliding",)))


def _qwen_fields(settings: Settings) -> dict[str, Any]:
    depth = settings["num_hidden_layers"]
    full = min(settings.get("max_window_layers", 28), depth)
    default = ("full",) * full + ("sliding",) * (depth - full)
    fields = _llama_fields(settings)
    if not settings.get("use_sliding_window"):
        settings = {**settings, "sliding_window": None}
    return _windowed(settings, fields, layer_types(settings, default))


def _qwen2_fields(settings: Settings) -> dict[str, Any]:
    return _qwen_fields(settings) | {"attention_bias": ("query", "key", "value")}


def _qwen3_fields(settings: Settings) -> dict[str, Any]:
    return _qwen_fields(settings) | {"qk_norm": "head"}


def _gemma_fields(settings: Settings) -> dict[str, Any]:
    name = settings.get("hidden_act")
    # "gelu" in the first files means its tanh form.
    name = "gelu_pytorch_tanh" if name in (None, "gelu") else name
    return _llama_fields({"tie_word_embeddings": True, **settings, "hidden_act": name}) | dict(
        norm_plus_one=True, embed_scale=math.sqrt(settings["hidden_size"])
    )


def _later_gemma_fields(settings: Settings) -> dict[str, Any]:
    activation = _activation(settings, "hidden_activation", "gelu_pytorch_tanh")
    fields = _gemma_fields({**settings, "hidden_act": None})
    return fields | {"mlp_activations": (activation, "linear")}


def _gemma2_fields(settings: Settings) -> dict[str, Any]:
    settings = {"sliding_window": 4096, **settings}
    fields = _later_gemma_fields(settings) | dict(
        norm_place="both",
        query_scale=settings.get("query_pre_attn_scalar", 256) ** -0.5,
        attention_softcap=settings.get("attn_logit_softcapping", 50.0),
        logits_softcap=settings.get("final_logit_softcapping", 30.0),
    )
    return _windowed(settings, fields, layer_types(settings, ("sliding", "full")))


def _gemma3_fields(settings: Settings) -> dict[str, Any]:
    if settings.get("attn_logit_softcapping"):
        raise UserError(
            "config.json says attn_logit_softcapping "
            f"{settings['attn_logit_softcapping']!r}: only null can be imported."
        )
    period = settings.get("sliding_window_pattern") or settings.get("_sliding_window_pattern") or 6
    types = layer_types(settings, ("sliding",) * (period - 1) + ("full",))
    ropes = settings.get("rope_parameters")
    local = settings.get("rope_local_base_freq", 10000.0)
    if ropes and "full_attention" in ropes:
        whole = {**settings, "rope_parameters": ropes["full_attention"]}
        windowed = {"rope_parameters": ropes.get("sliding_attention")}
        ropes = {"full": rope(whole, 1e6), "sliding": rope(windowed, local)}
    else:  # earlier files: the scaling is of full layers only
        ropes = {"full": rope(settings, 1e6), "sliding": {"rope_theta": local}}
    return _later_gemma_fields({**settings, "rope_parameters": None}) | dict(
        norm_place="both",
        qk_norm="head",
        query_scale=settings.get("query_pre_attn_scalar", 256) ** -0.5,
        logits_softcap=settings.get("final_logit_softcapping"),
        layer_types=_short(types),
        window=settings.get("sliding_window", 4096),
        ropes=ropes,
    )


def _olmo2_fields(settings: Settings) -> dict[str, Any]:
    return _llama_fields({"rms_norm_eps": 1e-5, **settings}) | dict(
        norm_place="output", qk_norm="flat"
    )


def _phi3_fields(settings: Settings) -> dict[str, Any]:
    fields = _llama_fields({"rms_norm_eps": 1e-5, **settings})
    fields = _windowed(settings, fields, ("sliding",))
    found = dict(next(iter(fields["ropes"].values())))
    if found.get("rope_type") in ("su", "yarn", "longrope"):  # the first two are earlier names
        first = settings.get("original_max_position_embeddings") or 4096
        found |= {"rope_type": "longrope", "original_max_position_embeddings": first}
    share = found.get("partial_rotary_factor", settings.get("partial_rotary_factor", 1.0))
    fields["rotary_dim"] = int(share * _head_dim(settings)) if share != 1.0 else None
    return fields | {"ropes": dict.fromkeys(fields["ropes"], found)}


def _head_dim(settings: Settings) -> int:
    return settings.get("head_dim") or settings["hidden_size"] // settings["num_attention_heads"]


def _biased_layer_norms(settings: Settings) -> dict[str, Any]:
    return dict(norm_kind="layer", attention_bias=BIASED, mlp_bias=True)


def _neox_fields(settings: Settings) -> dict[str, Any]:
    found = rope({**settings, "rope_theta": None}, settings.get("rotary_emb_base", 10000.0))
    share = found.get("partial_rotary_factor", settings.get("rotary_pct", 0.25))
    return _biased_layer_norms(settings) | dict(
        layer_norm_epsilon=settings.get("layer_norm_eps", 1e-5),
        parallel=settings.get("use_parallel_residual", True),
        attention_bias=BIASED if settings.get("attention_bias", True) else (),
        ropes={"full": {k: v for k, v in found.items() if k != "partial_rotary_factor"}},
        rotary_dim=int(share * _head_dim(settings)),
        mlp_activations=(_activation(settings, default="gelu"),),
        logits_via_embedding=bool(settings.get("tie_word_embeddings", False)),
    )


def _bloom_fields(settings: Settings) -> dict[str, Any]:
    if settings.get("slow_but_exact") and settings.get("pretraining_tp", 1) > 1:
        raise UserError(
            f"config.json says slow_but_exact True and pretraining_tp {settings['pretraining_tp']}:"
            " that sum leaves out biases; only slow_but_exact False can be imported."
        )
    return _biased_layer_norms(settings) | dict(
        layer_norm_epsilon=settings.get("layer_norm_epsilon", 1e-5),
        positions="alibi",
        embed_norm=True,
        mlp_dim=4 * settings["hidden_size"],
        # ALiBi has no last position.
        max_positions=settings.get("seq_length", 2048),
        mlp_activations=("gelu",),
        logits_via_embedding=settings.get("tie_word_embeddings") is not False,
    )


def _opt_fields(settings: Settings) -> dict[str, Any]:
    before = settings.get("do_layer_norm_before", True)
    width = settings.get("word_embed_proj_dim") or settings["hidden_size"]
    return _biased_layer_norms(settings) | dict(
        layer_norm_epsilon=1e-5,
        norm_place="before" if before else "after",
        final_norm=before and not settings.get("_remove_final_layer_norm", False),
        positions="learned",
        position_offset=2,
        table_dim=width if width != settings["hidden_size"] else None,
        mlp_activations=(_activation(settings, "activation_function", "relu"),),
        logits_via_embedding=settings.get("tie_word_embeddings") is not False,
    )


def _llama_settings(config: DecoderConfig) -> dict[str, Any]:
    return rope_settings(config) | {
        "num_key_value_heads": config.groups,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.layer_norm_epsilon,
        "hidden_act": _name_of(config),
        "attention_bias": "out" in config.attention_bias,
        "mlp_bias": config.mlp_bias,
        "tie_word_embeddings": config.logits_via_embedding,
    }


def _name_of(config: DecoderConfig) -> str:
    ours = config.mlp_activations[0]
    return "gelu_pytorch_tanh" if ours == "gelu" else {v: k for k, v in _ACTIVATIONS.items()}[ours]


def _mistral_settings(config: DecoderConfig) -> dict[str, Any]:
    # transformers takes what has layer_types for a Ministral, which is the same but for these.
    windows = window_settings(config) if len(set(config.types)) > 1 else {}
    return _llama_settings(config) | {"sliding_window": config.window} | windows


def _qwen_settings(config: DecoderConfig) -> dict[str, Any]:
    full = config.types.count("full")
    ordered = config.types == ("full",) * full + ("sliding",) * (config.num_layers - full)
    return (
        _llama_settings(config)
        | window_settings(config)
        | {
            "use_sliding_window": config.window is not None,
            "max_window_layers": full if ordered else 0,
        }
    )


def _gemma_settings(config: DecoderConfig) -> dict[str, Any]:
    return _llama_settings(config) | {"hidden_activation": _name_of(config)}


def _gemma2_settings(config: DecoderConfig) -> dict[str, Any]:
    return (
        _gemma_settings(config)
        | window_settings(config)
        | {
            # transformers makes the mask of windows even where no layer has one.
            "sliding_window": config.window or 4096,
            "query_pre_attn_scalar": _scalar(config),
            "attn_logit_softcapping": config.attention_softcap,
            "final_logit_softcapping": config.logits_softcap,
        }
    )


def _scalar(config: DecoderConfig) -> float:
    scalar = round(config.query_scale**-2, 6)
    return int(scalar) if scalar == int(scalar) else scalar


def _gemma3_settings(config: DecoderConfig) -> dict[str, Any]:
    return _gemma2_settings(config) | two_ropes(config)


def _phi3_settings(config: DecoderConfig) -> dict[str, Any]:
    settings = _llama_settings(config) | {"sliding_window": config.window}
    first = settings["rope_parameters"].get("original_max_position_embeddings")
    return settings | {
        "original_max_position_embeddings": first or longest(config),
        "partial_rotary_factor": (config.rotary_dim or config.head_dim) / config.head_dim,
        # Where absent transformers takes this one, and needs a row for it.
        "pad_token_id": 32000 if config.vocab_size > 32000 else None,
    }


def _neox_settings(config: DecoderConfig) -> dict[str, Any]:
    settings, share = rope_settings(config), config.rotary_dim / config.head_dim
    settings["rope_parameters"]["partial_rotary_factor"] = share
    return {
        "rope_parameters": settings["rope_parameters"],
        "rotary_emb_base": settings["rope_theta"],
        "rotary_pct": share,
        "use_parallel_residual": config.parallel,
        "attention_bias": bool(config.attention_bias),
        "layer_norm_eps": config.layer_norm_epsilon,
        "hidden_act": _name_of(config),
        "tie_word_embeddings": config.logits_via_embedding,
    }


def _bloom_settings(config: DecoderConfig) -> dict[str, Any]:
    return {
        "layer_norm_epsilon": config.layer_norm_epsilon,
        "seq_length": config.max_positions,
        "tie_word_embeddings": config.logits_via_embedding,
    }


def _opt_settings(config: DecoderConfig) -> dict[str, Any]:
    return {
        "do_layer_norm_before": config.norm_place == "before",
        "_remove_final_layer_norm": config.norm_place == "before" and not config.final_norm,
        "word_embed_proj_dim": config.table_dim or config.emb_dim,
        "activation_function": _name_of(config),
        "tie_word_embeddings": config.logits_via_embedding,
    }


FAMILIES = {
    "llama": Family(
        architecture="LlamaForCausalLM",
        names=names.LLAMA,
        fields=_llama_fields,
        settings=_llama_settings,
        ignored=(),
    ),
    "mistral": Family(
        architecture="MistralForCausalLM",
        names=names.LLAMA,
        fields=_mistral_fields,
        settings=_mistral_settings,
        ignored=_BIASES,
    ),
    "ministral": Family(
        architecture="MinistralForCausalLM",
        names=names.LLAMA,
        fields=_mistral_fields,
        settings=lambda config: _llama_settings(config) | window_settings(config),
        ignored=_BIASES,
    ),
    "qwen2": Family(
        architecture="Qwen2ForCausalLM",
        names=names.LLAMA,
        fields=_qwen2_fields,
        settings=_qwen_settings,
    ),
    "qwen3": Family(
        architecture="Qwen3ForCausalLM",
        names=names.LLAMA,
        fields=_qwen3_fields,
        settings=_qwen_settings,
    ),
    "gemma": Family(
        architecture="GemmaForCausalLM",
        names=names.LLAMA,
        fields=_gemma_fields,
        settings=_gemma_settings,
    ),
    "gemma2": Family(
        architecture="Gemma2ForCausalLM",
        names=names.GEMMA2,
        fields=_gemma2_fields,
        settings=_gemma2_settings,
    ),
    "gemma3_text": Family(
        architecture="Gemma3ForCausalLM",
        names=names.GEMMA2,
        fields=_gemma3_fields,
        settings=_gemma3_settings,
        fixed={"use_bidirectional_attention": False},
    ),
    "olmo2": Family(
        architecture="Olmo2ForCausalLM",
        names=names.OLMO2,
        fields=_olmo2_fields,
        settings=_llama_settings,
    ),
    "phi3": Family(
        architecture="Phi3ForCausalLM",
        names=names.PHI3,
        fields=_phi3_fields,
        settings=_phi3_settings,
        ignored=_BIASES,
    ),
    "gpt_neox": Family(
        architecture="GPTNeoXForCausalLM",
        names=names.NEOX,
        fields=_neox_fields,
        settings=_neox_settings,
    ),
    "bloom": Family(
        architecture="BloomForCausalLM",
        names=names.BLOOM,
        fields=_bloom_fields,
        settings=_bloom_settings,
        fixed={"apply_residual_connection_post_layernorm": False},
        renamed={"num_hidden_layers": "n_layer", "num_attention_heads": "n_head"},
    ),
    "opt": Family(
        architecture="OPTForCausalLM",
        names=names.OPT,
        fields=_opt_fields,
        settings=_opt_settings,
        fixed={"enable_bias": True, "layer_norm_elementwise_affine": True},
        renamed={"intermediate_size": "ffn_dim"},
    ),
}


def config_from_hf(settings: Settings, **overrides: Any) -> DecoderConfig:
    """`DecoderConfig` of a `config.json`; raises `UserError` for a setting that is not offered."""
    return read(DecoderConfig, FAMILIES[settings["model_type"]], settings, overrides)


def read(
    cls: type[DecoderConfig], family: Family, settings: Settings, overrides: Settings
) -> DecoderConfig:
    """`config_from_hf`, of a subclass and its family."""
    model_type = settings["model_type"]
    settings = {k: v for k, v in settings.items() if k not in family.ignored}
    settings |= {k: settings[v] for k, v in family.renamed.items() if v in settings}
    if model_type == "bloom":
        settings["hidden_size"] = settings.get("n_embed") or settings.get("hidden_size")
        settings.setdefault("intermediate_size", 4 * (settings["hidden_size"] or 0))
    check_settings(settings, family.fixed, _SIZES, family.architecture)
    head_dim = _head_dim(settings)
    fields = dict(
        family=model_type,
        vocab_size=settings["vocab_size"],
        emb_dim=settings["hidden_size"],
        num_heads=settings["num_attention_heads"],
        head_dim=head_dim,
        mlp_dim=settings["intermediate_size"],
        num_layers=settings["num_hidden_layers"],
        max_positions=settings.get("max_position_embeddings") or 2048,
    )
    fields = limited({**fields, **family.fields(settings)})
    _check_fields(fields)
    return cls(**{**fields, **overrides})


def _check_fields(fields: Settings) -> None:
    """Refuses what `DecoderConfig` would, by the names in `config.json`."""
    heads, shared = fields["num_heads"], fields.get("num_kv_heads")
    if shared and heads % shared:
        raise UserError(
            f"config.json says num_key_value_heads {shared}, which does not divide "
            f"num_attention_heads, {heads}."
        )
    if "sliding" in fields.get("layer_types", ()) and fields.get("window") is None:
        raise UserError(
            "config.json says sliding_window None, and layers of the type 'sliding_attention' need "
            "a number."
        )


def config_to_hf(config: DecoderConfig) -> dict[str, Any]:
    """The `config.json` of a `DecoderConfig`; the inverse of `config_from_hf`."""
    return written(config, FAMILIES[config.family])


def written(config: DecoderConfig, family: Family) -> dict[str, Any]:
    """`config_to_hf` of a family."""
    sizes = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.emb_dim,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.mlp_dim,
        "num_hidden_layers": config.num_layers,
        "max_position_embeddings": longest(config),
    }
    if config.family == "bloom":
        del sizes["intermediate_size"], sizes["max_position_embeddings"]
    return {
        "architectures": [family.architecture],
        "model_type": config.family,
        **{family.renamed.get(k, k): v for k, v in sizes.items()},
        **family.settings(config),
        **family.fixed,
    }


def _names(config: DecoderConfig) -> Names:
    return FAMILIES[config.family].names


ARCHITECTURE = Architecture(
    name="decoder",
    config=DecoderConfig,
    module=Transformer,
    model=DecoderOnlyModel,
    vocabulary=VocabularyFiles(
        reader=TokenizerVocabulary,
        described="tokenizer.json, nor vocab.json and merges.txt,",
        is_in=is_byte_level,
    ),
    gin_file="models/decoder.gin",
    includes_gin=True,
    run_gin="a temporalwiki_<method>.gin",
    usage="Prepare data with its vocabulary: `ckl data rows --vocabulary {}`.",
    hugging_face=HuggingFace(
        model_types=tuple(FAMILIES),
        config_from_hf=config_from_hf,
        config_to_hf=config_to_hf,
        entries=lambda config: names.entries(_names(config), config),
        embedding_names=lambda config: names.of_embedding(_names(config), config),
        view=lambda state, config: names.view(_names(config), config, state),
        join=lambda state, config: names.join(_names(config), config, state),
        vocabulary_settings=lambda vocabulary: {
            "bos_token_id": vocabulary.bos_id,
            "eos_token_id": vocabulary.eos_id,
        },
    ),
    peft=Peft(task_type="CAUSAL_LM", gin_file="temporalwiki_lora.gin"),
)
