"""`ckl import-hf` and `ckl export-hf`: Hugging Face folders in, and out again."""

import dataclasses
from pathlib import Path

import jax
import numpy as np

from ckl_jax import __version__, files
from ckl_jax.checkpoints.from_hf import load_hf
from ckl_jax.checkpoints.restore import find_checkpoint, read_json_item
from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.checkpoints.to_hf import save_hf
from ckl_jax.data.vocabularies import Vocabulary
from ckl_jax.errors import UserError
from ckl_jax.jobs.peft import merged, read_config, refuse_models
from ckl_jax.jobs.setup import load_params
from ckl_jax.models.t5 import T5Config

VOCABULARY = "spiece.model"
# What transformers loads a tokenizer from; the first is the vocabulary itself.
TOKENIZER = (
    VOCABULARY, "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "generation_config.json",
)  # fmt: skip
_GIN_FIELDS = (
    "vocab_size", "emb_dim", "num_heads", "head_dim", "mlp_dim", "num_encoder_layers",
    "num_decoder_layers", "mlp_activations", "logits_via_embedding", "relpos_buckets",
    "relpos_max_distance",
)  # fmt: skip


def import_checkpoint(folder: str, out: str) -> str:
    """Writes a Hugging Face T5 as `checkpoint_0` of `out`, with `model.gin` for its configuration.

    Args:
      folder: has config.json and safetensors (or flax_model.msgpack); `spiece.model` is copied.
      out: the new MODEL_DIR.

    Returns:
      What was done, and how to use it.

    Raises:
      UserError: the folder lacks something, or `out` already holds a checkpoint.
    """
    config, params = load_hf(folder)
    vocabulary = _vocabulary(Path(folder) / VOCABULARY, config)
    metadata = {"ckl_jax": __version__, "imported_from": Path(folder).name}
    with CheckpointStore(out) as store:
        if store.all_steps():
            raise UserError(f"{out} already holds a checkpoint; choose another --out.")
        if vocabulary:
            metadata["vocabulary_digest"] = vocabulary.digest
            with files.atomic_write(Path(out) / VOCABULARY, "wb") as f:
                f.write(Path(vocabulary.path).read_bytes())
        with files.atomic_write(Path(out) / "model.gin") as f:
            f.write(_model_gin(config, Path(out) / VOCABULARY if vocabulary else None))
        store.save(0, {"params": params, "step": np.zeros((), np.int32)}, metadata)
    count = sum(x.size for x in jax.tree.leaves(params))
    return (
        f"{count:,} parameters in {out}/checkpoint_0. Use them with\n"
        f"  --gin_file={out}/model.gin --gin.INITIAL_CHECKPOINT_PATH=\"'{out}'\"\n"
        f"{_data(out, vocabulary)}"
    )


def _vocabulary(path: Path, config: T5Config) -> Vocabulary | None:
    if not path.exists():
        return None
    vocabulary = Vocabulary(path)
    if vocabulary.vocab_size > config.vocab_size:
        raise UserError(
            f"{path} has {vocabulary.vocab_size} ids, sentinels included, but config.json has a "
            f"vocab_size of {config.vocab_size}; give the {VOCABULARY} of this model."
        )
    return vocabulary


def _data(out: str, vocabulary: Vocabulary | None) -> str:
    if vocabulary is None:
        return (
            f"There is no {VOCABULARY} beside the weights: bind VOCABULARY to the one of this "
            "model, and prepare data with it."
        )
    return f"Prepare data with its vocabulary: `ckl data prepare --vocabulary {out}/{VOCABULARY}`."


def _model_gin(config: T5Config, vocabulary: Path | None) -> str:
    lines = [
        "# The configuration of the imported model; lay it over a ckl_<method>.gin.",
        "from __gin__ import dynamic_registration",
        "from ckl_jax.models import t5",
        *(["from ckl_jax.data import vocabularies"] if vocabulary else []),
        "t5.T5Config:",
        *(f"    {name} = {getattr(config, name)!r}" for name in _GIN_FIELDS),
    ]
    if vocabulary:
        lines += [
            "VOCABULARY = @vocabularies.Vocabulary()",
            "vocabularies.Vocabulary:",
            f"    path = {str(vocabulary.absolute())!r}",
            "    extra_ids = 100",
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
            f"{checkpoint} holds the side network {sides[0]!r}, for which Hugging Face's T5 has no "
            "place; only runs without one (vanilla, recadam, mix_review, lora) can be exported."
        )
    config = dataclasses.replace(config, scan_layers="encoder" in params["encoder"])
    tokenizer = _tokenizer(checkpoint, Path(like).parent)
    save_hf(out, merged(params, checkpoint), config)
    for file in tokenizer:
        with files.atomic_write(Path(out) / file.name, "wb") as f:
            f.write(file.read_bytes())
    taken = f" and {', '.join(f.name for f in tokenizer)}" if tokenizer else ""
    return f"Wrote {out}/config.json, the weights{taken}."


def _tokenizer(checkpoint: str, beside: Path) -> list[Path]:
    """The files of a tokenizer: those beside `config.json`, else the checkpoint's vocabulary."""
    found = find_checkpoint(checkpoint)
    trained = read_json_item(found, "metadata").get("vocabulary_digest")
    if (vocabulary := beside / VOCABULARY).exists() and trained:
        mine = Vocabulary(vocabulary).digest
        if mine != trained:
            raise UserError(
                f"{vocabulary} ({mine[:12]}) is not the vocabulary that {checkpoint} was trained "
                f"with ({trained[:12]}); give --like a folder without it, or with the right one."
            )
    there = [beside / name for name in TOKENIZER if (beside / name).is_file()]
    own = Path(str(found.parent)) / VOCABULARY
    return there or ([own] if own.is_file() else [])
