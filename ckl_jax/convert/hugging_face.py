"""`ckl import-hf` and `ckl export-hf`: Hugging Face folders in, and out again."""

import contextlib
import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ckl_jax import __version__, files
from ckl_jax.checkpoints.from_hf import load_hf, read_config
from ckl_jax.checkpoints.hf_names import Config
from ckl_jax.checkpoints.peft import is_adapter
from ckl_jax.checkpoints.restore import find_checkpoint, read_json_item
from ckl_jax.checkpoints.scan_layout import is_stacked
from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.checkpoints.to_hf import save_hf
from ckl_jax.data.byte_level import (
    TEMPORALWIKI_TOKENS,
    ByteLevelVocabulary,
    is_byte_level,
)
from ckl_jax.data.masked_vocabulary import MaskedVocabulary, is_masked_vocabulary
from ckl_jax.data.vocabularies import Vocabulary
from ckl_jax.errors import UserError
from ckl_jax.methods.lora import merge_lora
from ckl_jax.models.bert import BertConfig
from ckl_jax.models.gpt2 import GPT2Config
from ckl_jax.train.setup import load_params
from ckl_jax.trees.paths import flatten

VOCABULARY = "spiece.model"
# What transformers loads a tokenizer from.
_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
_GPT2_FILES = ("tokenizer.json", "vocab.json", "merges.txt")
TOKENIZER = (VOCABULARY, *_GPT2_FILES, "vocab.txt", *_SETTINGS, "generation_config.json")


@dataclasses.dataclass(frozen=True)
class _Kind:
    """How a model is written as gin, and what its vocabulary is made from.

    Attributes:
      name: at Hugging Face.
      module: of its configuration, in `models`.
      fields: of the configuration that gin says.
      tokenizer: files that are imported with it.
      vocabulary: module in `data` and class of its vocabulary.
      use: how data are prepared, or what else the model is for; `{}` is its vocabulary.
      over: which gin files its own is laid over.
    """

    name: str
    module: str
    fields: tuple[str, ...]
    tokenizer: tuple[str, ...]
    vocabulary: tuple[str, str]
    use: str
    over: str


_T5 = _Kind(
    "T5",
    "t5",
    (
        "vocab_size",
        "emb_dim",
        "num_heads",
        "head_dim",
        "mlp_dim",
        "num_encoder_layers",
        "num_decoder_layers",
        "mlp_activations",
        "logits_via_embedding",
        "relpos_buckets",
        "relpos_max_distance",
    ),
    (VOCABULARY,),
    ("vocabularies", "Vocabulary"),
    "Prepare data with its vocabulary: `ckl data prepare --vocabulary {}`.",
    "a ckl_<method>.gin",
)
_GPT2 = _Kind(
    "GPT-2",
    "gpt2",
    (
        "vocab_size",
        "emb_dim",
        "num_heads",
        "head_dim",
        "mlp_dim",
        "num_layers",
        "max_positions",
        "layer_norm_epsilon",
    ),
    (*_GPT2_FILES, "encoder.json", "vocab.bpe", *_SETTINGS),
    ("byte_level", "ByteLevelVocabulary"),
    "Prepare data with its vocabulary: `ckl data rows --vocabulary {}`.",
    "a temporalwiki_<method>.gin",
)
_BERT = _Kind(
    "BERT",
    "bert",
    (
        "vocab_size",
        "emb_dim",
        "num_heads",
        "head_dim",
        "mlp_dim",
        "num_layers",
        "max_positions",
        "position_offset",
        "token_types",
        "layer_norm_epsilon",
    ),
    (*_GPT2_FILES, "vocab.txt", *_SETTINGS),
    ("masked_vocabulary", "MaskedVocabulary"),
    "Rank by it: `ckl probe bear --model {}`.",
    "models/bert.gin",
)


def _kind(config: Config) -> _Kind:
    if isinstance(config, BertConfig):
        return _BERT
    return _GPT2 if isinstance(config, GPT2Config) else _T5


def import_checkpoint(
    folder: str, out: str, vocab_size: int | None = None, legacy_tokens: bool = False
) -> str:
    """Writes a Hugging Face model as `checkpoint_0` of `out`, with `model.gin` for it.

    Args:
      folder: has config.json and safetensors (or flax_model.msgpack); the vocabulary is copied.
      out: the new MODEL_DIR.
      vocab_size: rows of the embedding, where more are wanted than the file has: for a mesh that
        must divide them, or for tokens to come. New ones are random, as transformers makes them.
      legacy_tokens: add the five tokens that TemporalWiki's code added to GPT-2, and their rows.

    Returns:
      What was done, and how to use it.

    Raises:
      UserError: the folder lacks something, `out` already holds a checkpoint, or fewer rows are
        asked for than there are.
    """
    config, params = load_hf(folder)
    if legacy_tokens:
        if not isinstance(config, GPT2Config):
            raise UserError("--legacy-tokens are those of TemporalWiki's GPT-2; leave them out.")
        vocab_size = vocab_size or config.vocab_size + len(TEMPORALWIKI_TOKENS)
    if vocab_size is not None:
        config, params = _grown(config, params, vocab_size)
    added = TEMPORALWIKI_TOKENS if legacy_tokens else ()
    vocabulary = _vocabulary(Path(folder), config, added)
    metadata = {"ckl_jax": __version__, "imported_from": Path(folder).name}
    with CheckpointStore(out) as store:
        store.require_empty()
        if vocabulary:
            metadata["vocabulary_digest"] = vocabulary.digest
            copy([Path(folder) / name for name in _kind(config).tokenizer], Path(out))
        with files.atomic_write(Path(out) / "model.gin") as f:
            f.write(model_gin(config, _kept(out, config) if vocabulary else None, added))
        store.save(0, {"params": params, "step": np.zeros((), np.int32)}, metadata)
    count = sum(x.size for x in jax.tree.leaves(params))
    return (
        f"{count:,} parameters in {out}/checkpoint_0. Use them with\n"
        f"  --gin_file={out}/model.gin --gin.INITIAL_CHECKPOINT_PATH=\"'{out}'\"\n"
        f"{_data(out, config, vocabulary)}"
    )


def _grown(config: Config, params: dict[str, Any], rows: int) -> tuple[Config, dict[str, Any]]:
    """The model with `rows` rows in its embedding, the new ones normal with deviation 0.02."""
    table = params["token_embedder"]["embedding"]
    if rows < len(table):
        raise UserError(f"--vocab-size is {rows}, but the model has {len(table)} rows already.")
    if isinstance(config, BertConfig) or not getattr(config, "logits_via_embedding", True):
        raise UserError("--vocab-size is for models whose output is the embedding and no more.")
    more = np.random.default_rng(0).normal(0.0, 0.02, (rows - len(table), table.shape[1]))
    grown = np.concatenate([table, more.astype(table.dtype)])
    params = {**params, "token_embedder": {"embedding": grown}}
    return dataclasses.replace(config, vocab_size=rows), params


def _vocabulary(folder: Path, config: Config, added: Sequence[str] = ()) -> Any:
    """The vocabulary in a folder; None if there is none."""
    if isinstance(config, BertConfig):
        vocabulary = MaskedVocabulary(folder) if is_masked_vocabulary(folder) else None
    elif isinstance(config, GPT2Config):
        vocabulary = ByteLevelVocabulary(folder, added) if is_byte_level(folder) else None
    else:
        path = folder / VOCABULARY
        vocabulary = Vocabulary(path) if path.exists() else None
    if vocabulary is not None and vocabulary.vocab_size > config.vocab_size:
        raise UserError(
            f"{vocabulary.path} has {vocabulary.vocab_size} ids, sentinels included, but "
            f"config.json has a vocab_size of {config.vocab_size}; give the vocabulary of this "
            "model."
        )
    return vocabulary


def copy(there: Iterable[Path], folder: Path) -> list[str]:
    """Copies the files that there are; returns their names."""
    found = [file for file in there if file.is_file()]
    for file in found:
        with files.atomic_write(folder / file.name, "wb") as f:
            f.write(file.read_bytes())
    return [file.name for file in found]


def _kept(out: str, config: Config) -> Path:
    """Where an imported vocabulary is: a file, or the folder of one that has several."""
    return Path(out) / VOCABULARY if _kind(config) is _T5 else Path(out)


def _data(out: str, config: Config, vocabulary: Any) -> str:
    kind = _kind(config)
    if vocabulary is None:
        wanted = {
            _T5: VOCABULARY,
            _GPT2: "tokenizer.json, nor vocab.json and merges.txt,",
            _BERT: "tokenizer.json, nor vocab.txt (BERT) or vocab.json and merges.txt (RoBERTa),",
        }
        return (
            f"There is no {wanted[kind]} beside the weights: bind VOCABULARY to the one of this "
            "model, and prepare data with it."
        )
    return kind.use.format(_kept(out, config))


def model_gin(config: Config, vocabulary: Path | None, added: Sequence[str] = ()) -> str:
    """The gin file of a model and its vocabulary, to be laid over one that says how it trains."""
    kind = _kind(config)
    room, name = kind.vocabulary
    lines = [
        f"# The configuration of the imported model; lay it over {kind.over}.",
        "from __gin__ import dynamic_registration",
        f"from ckl_jax.models import {kind.module}",
        *([f"from ckl_jax.data import {room}"] if vocabulary else []),
        f"{kind.module}.{type(config).__name__}:",
        *(f"    {name} = {getattr(config, name)!r}" for name in kind.fields),
    ]
    if vocabulary:
        lines += [
            f"VOCABULARY = @{room}.{name}()",
            f"{room}.{name}:",
            f"    path = {str(vocabulary.absolute())!r}",
            *(["    extra_ids = 100"] if kind is _T5 else []),
            *([f"    added_tokens = {tuple(added)!r}"] if added else []),
        ]
    return "\n".join([*lines, ""])


def export_checkpoint(checkpoint: str, like: str, out: str) -> str:
    """Writes a checkpoint as a Hugging Face folder: config.json and model.safetensors.

    LoRA's adapters are folded into the kernels; `ckl export-peft` keeps them apart.

    Args:
      checkpoint: a MODEL_DIR or a `checkpoint_<step>`.
      like: a config.json of the same architecture; the tokenizer's files beside it are taken along,
        or the vocabulary beside the checkpoint.
      out: the folder to write.

    Returns:
      What was done.

    Raises:
      UserError: `out` holds a model; the tokenizer is of another vocabulary, or the parameters do
        not fit the configuration, such as those of side networks.
    """
    refuse_models(out)
    config, params = read_config(like), load_params(checkpoint)
    sides = sorted(name for name in params if name.startswith(("k_adapter_", "modular_")))
    if sides:
        raise UserError(
            f"{checkpoint} holds the side network {sides[0]!r}, for which Hugging Face's models "
            "have no place; only runs without one (vanilla, recadam, mix_review, lora) can be "
            "exported."
        )
    flat = flatten(params)
    config = dataclasses.replace(config, scan_layers=bool(is_stacked(flat)))
    if (table := flat.get("token_embedder/embedding")) is not None:  # it may have been grown
        config = dataclasses.replace(config, vocab_size=len(table))
    tokenizer = tokenizer_files(checkpoint, Path(like).parent, config)
    save_hf(out, merged(params, checkpoint), config, settings=_ends(tokenizer, config))
    names = copy(tokenizer, Path(out))
    taken = f" and {', '.join(names)}" if names else ""
    return f"Wrote {out}/config.json, the weights{taken}."


def _ends(tokenizer: Sequence[Path], config: Config) -> dict[str, int]:
    """What config.json says of the ends of a text by a GPT-2's tokenizer, if that has any."""
    if not (tokenizer and isinstance(config, GPT2Config) and is_byte_level(tokenizer[0].parent)):
        return {}
    try:
        vocabulary = _vocabulary(tokenizer[0].parent, config)
    except UserError:  # no token for an end, or more ids than the model has rows
        return {}
    return {"bos_token_id": vocabulary.bos_id, "eos_token_id": vocabulary.eos_id}


def tokenizer_files(checkpoint: str, beside: Path, config: Config) -> list[Path]:
    """The files of a tokenizer: those beside `config.json`, else the checkpoint's vocabulary."""
    found = find_checkpoint(checkpoint)
    trained = read_json_item(found, "metadata").get("vocabulary_digest")
    if trained and (vocabulary := _vocabulary(beside, config)):
        mine = vocabulary.digest
        known = {mine}
        if isinstance(config, GPT2Config):
            with contextlib.suppress(UserError):  # more ids than the model has rows
                known.add(_vocabulary(beside, config, TEMPORALWIKI_TOKENS).digest)
        if trained not in known:
            raise UserError(
                f"{vocabulary.path} ({mine[:12]}) is not the vocabulary that {checkpoint} was "
                f"trained with ({trained[:12]}); give --like a folder without it, or with the "
                "right one."
            )
    there = [beside / name for name in TOKENIZER if (beside / name).is_file()]
    own = Path(str(found.parent))
    return there or [own / name for name in _kind(config).tokenizer if (own / name).is_file()]


def refuse_models(folder: str) -> None:
    """Raises `UserError` if a folder to be written holds a model or an adapter already."""
    names = ("config.json", "adapter_config.json", "*.safetensors", "*.bin")
    held = sorted(path.name for name in names for path in Path(folder).glob(name))
    if held:
        raise UserError(f"{folder} already holds a model ({held[0]}); choose another --out.")


def adapter_scale(checkpoint: str, given: float | None) -> float:
    """The factor of the low-rank path that a checkpoint was trained with.

    Raises:
      UserError: the checkpoint does not say, and none is given.
    """
    if given is not None:
        return given
    dense = read_json_item(find_checkpoint(checkpoint), "metadata").get("dense") or {}
    if "scale" not in dense:
        raise UserError(f"{checkpoint} does not say the scale of its adapters; give --scale.")
    return dense["scale"]


def merged(params: Any, checkpoint: str, scale: float | None = None) -> Any:
    """The parameters with their adapters, if they have any, folded into the kernels."""
    if not any(map(is_adapter, flatten(params))):
        return params
    return merge_lora(params, adapter_scale(checkpoint, scale))
