"""T5Gemma under Hugging Face's names: configuration, and the parameters of its two stacks."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ckl_jax.checkpoints import hf_decoder, hf_t5
from ckl_jax.checkpoints import hf_decoder_names as names
from ckl_jax.checkpoints.architecture import RUN_FIELDS, HuggingFace
from ckl_jax.checkpoints.hf_entry import check_numbers
from ckl_jax.data.text.byte_level import SpanVocabulary
from ckl_jax.errors import UserError
from ckl_jax.models.decoder import DecoderConfig
from ckl_jax.models.t5gemma import EncoderConfig, T5GemmaConfig, Transformer

Settings = Mapping[str, Any]
_MODEL_TYPE = "t5gemma"
_STACKS = ("encoder", "decoder")
# Where a stack's settings lack them.
_DEFAULTS = {"num_key_value_heads": 4, "head_dim": 256}
_FAMILY = dataclasses.replace(
    hf_decoder.FAMILIES["gemma2"],
    architecture="T5GemmaForConditionalGeneration",
    fixed={"pad_token_id": 0, "hidden_activation": "gelu_pytorch_tanh"},
)


def config_from_hf(settings: Settings, **overrides: Any) -> T5GemmaConfig:
    """`T5GemmaConfig` of a `config.json`; raises `UserError` for a setting that is not offered."""
    tied = {"tie_word_embeddings": settings.get("tie_word_embeddings", True)}
    encoder, decoder = (_stack(settings, name, tied) for name in _STACKS)
    if encoder.vocab_size != decoder.vocab_size:
        raise UserError(
            f"config.json has a vocab_size of {encoder.vocab_size} in encoder and of "
            f"{decoder.vocab_size} in decoder: only equal ones can be imported."
        )
    names_of = [f.name for f in dataclasses.fields(encoder) if f.name not in RUN_FIELDS]
    theirs, fields = ({n: getattr(x, n) for n in names_of} for x in (encoder, decoder))
    fields |= {
        "num_encoder_layers": theirs.pop("num_layers"),
        "encoder_fields": theirs,
        "start_id": settings["decoder"].get("bos_token_id", 2),
        "dropout_rate": settings.get("dropout_rate", 0.0),
    }
    return T5GemmaConfig(**{**fields, **overrides})


def _stack(settings: Settings, name: str, more: Settings) -> DecoderConfig:
    own = settings.get(name)
    if not isinstance(own, Mapping):
        raise UserError(f"config.json lacks {name}: a T5Gemma has the settings of a stack there.")
    own = {**_DEFAULTS, **own, **more, "model_type": _MODEL_TYPE}
    cls = EncoderConfig if name == "encoder" else DecoderConfig
    try:
        check_numbers(own)
        config = hf_decoder.read(cls, _FAMILY, own, {})
    except UserError as e:
        raise UserError(f"In {name}: {e}") from e
    if name == "encoder" and config.window is not None:  # as far to either side, and itself
        config = dataclasses.replace(config, window=config.window + 1)
    return config


def config_to_hf(config: T5GemmaConfig) -> dict[str, Any]:
    """The `config.json` of a `T5GemmaConfig`; the inverse of `config_from_hf`."""
    encoder = config.encoder_config
    if encoder.window is not None:
        encoder = dataclasses.replace(encoder, window=encoder.window - 1)
    written = {
        name: hf_decoder.written(stack, _FAMILY) | {"bos_token_id": config.start_id}
        for name, stack in zip(_STACKS, (encoder, config), strict=True)
    }
    whole = {k: written["decoder"][k] for k in ("architectures", "model_type", "vocab_size")}
    for own in written.values():
        del own["architectures"]
        own["model_type"] = "t5_gemma_module"
    return {
        **whole,
        **written,
        "is_encoder_decoder": True,
        "tie_word_embeddings": config.logits_via_embedding,
        "dropout_rate": config.dropout_rate,
        "pad_token_id": 0,
        "bos_token_id": config.start_id,
    }


ARCHITECTURE = dataclasses.replace(
    hf_t5.ARCHITECTURE,
    name="T5Gemma",
    config=T5GemmaConfig,
    module=Transformer,
    vocabulary=dataclasses.replace(hf_decoder.ARCHITECTURE.vocabulary, reader=SpanVocabulary),
    gin_file="models/t5gemma.gin",
    includes_gin=True,
    hugging_face=HuggingFace(
        model_types=(_MODEL_TYPE,),
        config_from_hf=config_from_hf,
        config_to_hf=config_to_hf,
        entries=lambda config: (
            names.entries(names.T5GEMMA_DECODER, config)
            + names.entries(names.T5GEMMA_ENCODER, config.encoder_config)
        ),
        # The decoder's, which the output may be.
        embedding_names=lambda config: names.of_embedding(names.T5GEMMA_DECODER, config),
        view=lambda state, config: names.view(names.T5GEMMA_DECODER, config, state),
        vocabulary_settings=lambda vocabulary: {"eos_token_id": vocabulary.eos_id},
    ),
)
