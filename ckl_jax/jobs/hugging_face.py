"""`ckl import-hf` and `ckl export-hf`: Hugging Face folders in, and out again."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np

from ckl_jax import __version__, files
from ckl_jax.checkpoints.from_hf import load_hf
from ckl_jax.checkpoints.hf_names import config_from_hf
from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.checkpoints.to_hf import save_hf
from ckl_jax.errors import UserError
from ckl_jax.jobs.setup import load_params
from ckl_jax.models.t5 import T5Config

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
    with CheckpointStore(out) as store:
        if store.all_steps():
            raise UserError(f"{out} already holds a checkpoint; choose another --out.")
        state = {"params": params, "step": np.zeros((), np.int32)}
        store.save(0, state, {"ckl_jax": __version__, "imported_from": Path(folder).name})
    with files.atomic_write(Path(out) / "model.gin") as f:
        f.write(_model_gin(config))
    vocabulary = Path(folder) / "spiece.model"
    if vocabulary.exists():
        shutil.copyfile(vocabulary, Path(out) / "spiece.model")
    count = sum(x.size for x in jax.tree.leaves(params))
    return (
        f"{count:,} parameters in {out}/checkpoint_0. Use them with\n"
        f"  --gin_file={out}/model.gin --gin.INITIAL_CHECKPOINT_PATH=\"'{out}'\""
    )


def _model_gin(config: T5Config) -> str:
    lines = [f"    {name} = {getattr(config, name)!r}" for name in _GIN_FIELDS]
    return "\n".join(
        [
            "# The configuration of the imported model; lay it over a ckl_<method>.gin.",
            "from __gin__ import dynamic_registration",
            "from ckl_jax.models import t5",
            "t5.T5Config:",
            *lines,
            "",
        ]
    )


def export_checkpoint(checkpoint: str, like: str, out: str) -> str:
    """Writes a checkpoint as a Hugging Face folder: config.json and model.safetensors.

    Args:
      checkpoint: a MODEL_DIR or a `checkpoint_<step>`.
      like: a config.json of the same architecture.
      out: the folder to write.

    Returns:
      What was done.

    Raises:
      UserError: the parameters do not fit the configuration, such as those of side networks.
    """
    with files.os_errors(like, "read"):
        settings = json.loads(Path(like).read_text(encoding="utf-8"))
    save_hf(out, load_params(checkpoint), config_from_hf(settings))
    return f"Wrote {out}/config.json and model.safetensors."
