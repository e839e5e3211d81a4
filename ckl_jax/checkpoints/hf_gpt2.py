"""GPT-2 under Hugging Face's names: configuration; its parameters are in `hf_decoder_names`."""

from collections.abc import Mapping
from typing import Any

from ckl_jax.checkpoints import hf_decoder_names as names
from ckl_jax.checkpoints.architecture import (
    Architecture,
    HuggingFace,
    Peft,
    VocabularyFiles,
)
from ckl_jax.checkpoints.hf_entry import check_settings
from ckl_jax.data.text.byte_level import TEMPORALWIKI_TOKENS, ByteLevelVocabulary, is_byte_level
from ckl_jax.errors import UserError
from ckl_jax.models.decoder_only import DecoderOnlyModel
from ckl_jax.models.gpt2 import GPT2Config, Transformer

_SIZES = ("vocab_size", "n_embd", "n_head", "n_layer", "n_positions")
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


def vocabulary_settings(vocabulary: ByteLevelVocabulary) -> dict[str, Any]:
    """The BOS and EOS entries of `config.json`."""
    return {"bos_token_id": vocabulary.bos_id, "eos_token_id": vocabulary.eos_id}


ARCHITECTURE = Architecture(
    name="GPT-2",
    config=GPT2Config,
    module=Transformer,
    model=DecoderOnlyModel,
    vocabulary=VocabularyFiles(
        reader=ByteLevelVocabulary,
        more=("encoder.json", "vocab.bpe"),
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
        entries=lambda config: names.entries(names.GPT2, config),
        embedding_names=lambda config: names.of_embedding(names.GPT2, config),
        view=lambda state, config: names.view(names.GPT2, config, state),
        join=lambda state, config: names.join(names.GPT2, config, state),
        vocabulary_settings=vocabulary_settings,
    ),
    peft=Peft(
        task_type="CAUSAL_LM",
        fan_in_fan_out=True,
        module_parts=2,  # `c_proj` alone may be attention's or the MLP's
        gin_file="temporalwiki_lora.gin",
    ),
)
