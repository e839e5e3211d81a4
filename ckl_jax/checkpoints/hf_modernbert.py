"""ModernBERT under Hugging Face's names: configuration, and parameters."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ckl_jax.checkpoints import hf_bert, hf_decoder, hf_rope
from ckl_jax.checkpoints import hf_decoder_names as names
from ckl_jax.checkpoints.architecture import HuggingFace
from ckl_jax.models.modernbert import ModernBertConfig, Transformer

_FIXED = {
    "hidden_activation": "gelu",
    "classifier_activation": "gelu",
    "classifier_bias": False,
    "decoder_bias": True,
    "tie_word_embeddings": True,
}


def _fields(settings: Mapping[str, Any]) -> dict[str, Any]:
    period = settings.get("global_attn_every_n_layers", 3)
    types = hf_rope.layer_types(settings, ("full",) + ("sliding",) * (period - 1))
    ropes = {
        "full": settings.get("global_rope_theta") or 160000.0,
        "sliding": settings.get("local_rope_theta") or 10000.0,
    }
    given = settings.get("rope_parameters") or {}
    return dict(
        layer_norm_epsilon=settings.get("norm_eps", 1e-5),
        norm_bias=settings.get("norm_bias", False),
        attention_bias=hf_decoder.BIASED if settings.get("attention_bias") else (),
        mlp_bias=settings.get("mlp_bias", False),
        max_positions=settings.get("max_position_embeddings", 8192),
        layer_types=types,
        # As far to either side as half of the window, and the position itself.
        window=settings.get("local_attention", 128) // 2 + 1,
        ropes={
            kind: {"rope_theta": theta, **(given.get(f"{kind}_attention") or {})}
            for kind, theta in ropes.items()
        },
    )


def _settings(config: ModernBertConfig) -> dict[str, Any]:
    ropes = hf_rope.two_ropes(config)
    return {
        "norm_eps": config.layer_norm_epsilon,
        "norm_bias": config.norm_bias,
        "attention_bias": bool(config.attention_bias),
        "mlp_bias": config.mlp_bias,
        "local_attention": 2 * (config.window - 1),
        "layer_types": hf_rope.layer_type_names(config.types),
        "rope_parameters": ropes["rope_parameters"],
        "global_rope_theta": ropes["rope_theta"],
        "local_rope_theta": ropes["rope_local_base_freq"],
        # Where absent transformers takes this one, and needs a row for it.
        "pad_token_id": 50283 if config.vocab_size > 50283 else None,
    }


FAMILY = hf_decoder.Family(
    architecture="ModernBertForMaskedLM",
    names=names.MODERNBERT,
    fields=_fields,
    settings=_settings,
    fixed=_FIXED,
    ignored=(),
)

ARCHITECTURE = dataclasses.replace(
    hf_bert.ARCHITECTURE,
    name="ModernBERT",
    config=ModernBertConfig,
    module=Transformer,
    gin_file="models/modernbert.gin",
    includes_gin=True,
    run_gin="lm_pub_quiz_bert.gin",
    hugging_face=HuggingFace(
        model_types=("modernbert",),
        config_from_hf=lambda settings, **overrides: hf_decoder.read(
            ModernBertConfig, FAMILY, settings, overrides
        ),
        config_to_hf=lambda config: hf_decoder.written(config, FAMILY),
        entries=lambda config: names.entries(names.MODERNBERT, config),
        embedding_names=lambda config: names.of_embedding(names.MODERNBERT, config),
        view=lambda state, config: names.view(names.MODERNBERT, config, state),
        join=lambda state, config: names.join(names.MODERNBERT, config, state),
        # Where absent, those of ModernBERT-base, which a smaller vocabulary does not have.
        vocabulary_settings=lambda vocabulary: {
            "pad_token_id": vocabulary.pad_id,
            "bos_token_id": vocabulary.bos_id,
            "cls_token_id": vocabulary.bos_id,
            "eos_token_id": vocabulary.eos_id,
            "sep_token_id": vocabulary.eos_id,
        },
    ),
)
