"""BERT, RoBERTa, DistilBERT and ELECTRA's generator under Hugging Face's names.

XLM-R and CamemBERT are RoBERTa with other vocabularies, under its names. Of ELECTRA only the
generator is a language model.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ckl_jax.checkpoints.architecture import (
    Architecture,
    HuggingFace,
    Peft,
    VocabularyFiles,
)
from ckl_jax.checkpoints.hf_entry import Entry, Renamed, check_settings, linear, norm
from ckl_jax.data.text.masked_vocabulary import MaskedVocabulary, is_masked_vocabulary
from ckl_jax.errors import UserError
from ckl_jax.models.bert import BertConfig, Transformer
from ckl_jax.models.masked import MaskedModel

_ROBERTA = 2  # the row of its first position
_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_attention_heads",
    "num_hidden_layers",
    "intermediate_size",
    "max_position_embeddings",
)
# Fields of config.json that change the computation, and the one value that is implemented.
_FIXED = {
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}
# DistilBERT's words for the same.
_DISTIL = {
    "hidden_size": "dim",
    "num_attention_heads": "n_heads",
    "num_hidden_layers": "n_layers",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
    "hidden_dropout_prob": "dropout",
}
# What files hold beside the masked language model: heads of other tasks, and position ids.
_OTHER = re.compile(
    r"cls\.seq_relationship\..*|(bert|roberta|distilbert|electra)\.(pooler\..*|embeddings\.position_ids)"
)
# {prefix of the weights' names, and `model_type` of an exported model: class}.
_CLASSES = {
    "bert": "BertForMaskedLM",
    "roberta": "RobertaForMaskedLM",
    "distilbert": "DistilBertForMaskedLM",
    "electra": "ElectraForMaskedLM",
}
_HEADS = {"bert": "cls.predictions", "roberta": "lm_head", "electra": "generator_lm_head"}
_OLD = {".gamma": ".weight", ".beta": ".bias"}  # of norms, in files from TensorFlow


def config_from_hf(settings: Mapping[str, Any], **overrides: Any) -> BertConfig:
    """`BertConfig` of a Hugging Face `config.json`.

    Args:
      **overrides: fields of `BertConfig` that the file does not decide, such as `scan_layers`.

    Raises:
      UserError: a model with a part this one does not have.
    """
    model_type = settings.get("model_type")
    distilled = model_type == "distilbert"
    if distilled:
        # In its own words, so that a sentence has them too.
        fixed = {_DISTIL.get(name, name): value for name, value in _FIXED.items()}
        fixed["sinusoidal_pos_embds"] = False
        check_settings(settings, fixed, [_DISTIL.get(name, name) for name in _SIZES], "DistilBERT")
        words = {ours: settings[theirs] for ours, theirs in _DISTIL.items() if theirs in settings}
        # transformers does not ask the file for this epsilon.
        settings = {**settings, **words, "type_vocab_size": 0, "layer_norm_eps": 1e-12}
    check_settings(settings, _FIXED, _SIZES, "BERT")
    # fairseq counts positions from pad_token_id + 1.
    counts_from_0 = model_type in ("bert", "distilbert", "electra")
    offset = 0 if counts_from_0 else settings.get("pad_token_id", 1) + 1
    if offset not in (0, _ROBERTA):
        raise UserError(
            f"config.json says pad_token_id {settings['pad_token_id']}: only RoBERTa's 1 can be "
            "imported."
        )
    width, heads = settings["hidden_size"], settings["num_attention_heads"]
    fields = dict(
        vocab_size=settings["vocab_size"],
        emb_dim=width,
        num_heads=heads,
        head_dim=width // heads,
        mlp_dim=settings["intermediate_size"],
        num_layers=settings["num_hidden_layers"],
        # The table has rows for the reserved positions too.
        max_positions=settings["max_position_embeddings"] - offset,
        position_offset=offset,
        token_types=settings.get("type_vocab_size", 2),
        dropout_rate=settings.get("hidden_dropout_prob", 0.1),
        layer_norm_epsilon=settings.get("layer_norm_eps", 1e-12),
    )
    if model_type == "electra":
        fields["table_dim"] = settings.get("embedding_size", 128)
    return BertConfig(**{**fields, **overrides})


def config_to_hf(config: BertConfig) -> dict[str, Any]:
    """The `config.json` of a `BertConfig`; the inverse of `config_from_hf`.

    Raises:
      UserError: heads that do not make up the width, for which it has no word.
    """
    if config.num_heads * config.head_dim != config.emb_dim:
        raise UserError(
            f"Hugging Face's BERT needs num_heads * head_dim = emb_dim, but they are "
            f"{config.num_heads}, {config.head_dim} and {config.emb_dim}."
        )
    kind = _kind(config)
    if kind == "distilbert":
        given = config_to_hf(dataclasses.replace(config, token_types=2))
        given["pad_token_id"], given["sinusoidal_pos_embds"] = 0, False
        given["attention_dropout"] = given.pop("attention_probs_dropout_prob")
        for name in ("type_vocab_size", "layer_norm_eps", "position_embedding_type", "is_decoder"):
            del given[name]
        return {_DISTIL.get(k, k): v for k, v in given.items()} | {
            "architectures": [_CLASSES[kind]],
            "model_type": kind,
        }
    return {
        "architectures": [_CLASSES[kind]],
        "model_type": kind,
        "vocab_size": config.vocab_size,
        "hidden_size": config.emb_dim,
        "num_attention_heads": config.num_heads,
        "num_hidden_layers": config.num_layers,
        "intermediate_size": config.mlp_dim,
        "max_position_embeddings": config.max_positions + config.position_offset,
        "type_vocab_size": config.token_types,
        "hidden_dropout_prob": config.dropout_rate,
        "attention_probs_dropout_prob": config.dropout_rate,
        "layer_norm_eps": config.layer_norm_epsilon,
        "pad_token_id": 1 if kind == "roberta" else 0,
        **({"embedding_size": config.table_dim} if kind == "electra" else {}),
        **_FIXED,
    }


def _kind(config: BertConfig) -> str:
    if config.table_dim is not None:
        return "electra"
    if config.token_types == 0:
        return "distilbert"
    return "roberta" if config.position_offset == _ROBERTA else "bert"


def embedding_names(config: BertConfig) -> tuple[str, ...]:
    """The names of the token embedding in files; see `HuggingFace`."""
    kind = _kind(config)
    outputs = {"distilbert": "vocab_projector.weight", "electra": "generator_lm_head.weight"}
    output = outputs.get(kind) or f"{_HEADS[kind]}.decoder.weight"
    return f"{kind}.embeddings.word_embeddings.weight", output


def entries(config: BertConfig) -> list[Entry]:
    """Every parameter of the model (layers not stacked), in both namings."""
    d, kind = config.emb_dim, _kind(config)
    e = config.table_dim or d
    there, rows = f"{kind}.embeddings", config.max_positions + config.position_offset
    table = [
        Entry(
            embedding_names(config)[0], "token_embedder/embedding", False, (config.vocab_size, e)
        ),
        Entry(
            f"{there}.position_embeddings.weight",
            "encoder/position_embedder/pos_embedding",
            False,
            (rows, e),
        ),
        *norm(f"{there}.LayerNorm", "encoder/embedding_layer_norm", e),
    ]
    if kind == "distilbert":
        for i in range(config.num_layers):
            table += _distilled_layer(
                config, f"{kind}.transformer.layer.{i}", f"encoder/layers_{i}"
            )
        return [
            *table,
            *linear("vocab_transform", "head/dense", d, d),
            *norm("vocab_layer_norm", "head/layer_norm", d),
            Entry("vocab_projector.bias", "output_bias/bias", False, (config.vocab_size,)),
        ]
    table.append(
        Entry(
            f"{there}.token_type_embeddings.weight",
            "encoder/token_type_embedder/pos_embedding",
            False,
            (config.token_types, e),
        )
    )
    if e != d:
        table += linear(f"{kind}.embeddings_project", "encoder/embed_dense", e, d)
    for i in range(config.num_layers):
        table += _layer(config, f"{kind}.encoder.layer.{i}", f"encoder/layers_{i}")
    transforms = {"bert": "cls.predictions.transform", "electra": "generator_predictions"}
    transform = transforms.get(kind, _HEADS[kind])
    last = "layer_norm" if kind == "roberta" else "LayerNorm"
    return [
        *table,
        *linear(f"{transform}.dense", "head/dense", d, e),
        *norm(f"{transform}.{last}", "head/layer_norm", e),
        Entry(f"{_HEADS[kind]}.bias", "output_bias/bias", False, (config.vocab_size,)),
    ]


def _layer(config: BertConfig, there: str, here: str) -> Iterator[Entry]:
    d, inner = config.emb_dim, config.num_heads * config.head_dim
    for word in ("query", "key", "value"):
        yield from linear(f"{there}.attention.self.{word}", f"{here}/attention/{word}", d, inner)
    yield from linear(f"{there}.attention.output.dense", f"{here}/attention/out", inner, d)
    yield from norm(f"{there}.attention.output.LayerNorm", f"{here}/post_attention_layer_norm", d)
    yield from linear(f"{there}.intermediate.dense", f"{here}/mlp/wi", d, config.mlp_dim)
    yield from linear(f"{there}.output.dense", f"{here}/mlp/wo", config.mlp_dim, d)
    yield from norm(f"{there}.output.LayerNorm", f"{here}/post_mlp_layer_norm", d)


def _distilled_layer(config: BertConfig, there: str, here: str) -> Iterator[Entry]:
    d, inner = config.emb_dim, config.num_heads * config.head_dim
    for word, short in (("query", "q"), ("key", "k"), ("value", "v")):
        yield from linear(f"{there}.attention.{short}_lin", f"{here}/attention/{word}", d, inner)
    yield from linear(f"{there}.attention.out_lin", f"{here}/attention/out", inner, d)
    yield from norm(f"{there}.sa_layer_norm", f"{here}/post_attention_layer_norm", d)
    yield from linear(f"{there}.ffn.lin1", f"{here}/mlp/wi", d, config.mlp_dim)
    yield from linear(f"{there}.ffn.lin2", f"{here}/mlp/wo", config.mlp_dim, d)
    yield from norm(f"{there}.output_layer_norm", f"{here}/post_mlp_layer_norm", d)


def view(state: Mapping[str, np.ndarray], config: Any = None) -> Mapping[str, np.ndarray]:
    """A state dict under the current names, without what is not part of the masked language model.

    Norms from TensorFlow have `gamma` and `beta`; the head's bias may be there twice.

    Raises:
      UserError: ELECTRA's discriminator.
    """
    if any(name.startswith("discriminator_predictions.") for name in state):
        raise UserError(
            "This is ELECTRA's discriminator, which has no output for tokens and cannot fill "
            "masks; give the generator, whose config.json says ElectraForMaskedLM."
        )
    # `decoder.bias` is the same array as `predictions.bias`; both may be in a file.
    kept = (n for n in state if not _OTHER.fullmatch(n) and not n.endswith(".decoder.bias"))
    return Renamed(state, {_new(name): name for name in kept})


def _new(name: str) -> str:
    for old, new in _OLD.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


ARCHITECTURE = Architecture(
    name="BERT",
    config=BertConfig,
    module=Transformer,
    model=MaskedModel,
    vocabulary=VocabularyFiles(
        reader=MaskedVocabulary,
        described="tokenizer.json, nor vocab.txt (BERT) or vocab.json and merges.txt (RoBERTa),",
        is_in=is_masked_vocabulary,
    ),
    gin_file="models/bert.gin",
    run_gin="models/bert.gin",
    usage="Rank by it: `ckl probe bear --model {}`.",
    hugging_face=HuggingFace(
        model_types=("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra"),
        config_from_hf=config_from_hf,
        config_to_hf=config_to_hf,
        entries=entries,
        embedding_names=embedding_names,
        view=view,
    ),
    # BERT calls three layers `dense`.
    peft=Peft(task_type=None, module_parts=0, gin_file="lm_pub_quiz_bert.gin"),
)
