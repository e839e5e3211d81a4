"""Writes parameters as a folder that Hugging Face's `T5ForConditionalGeneration` loads."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.checkpoints.from_hf import SINGLE
from ckl_jax.checkpoints.hf_names import config_to_hf, params_to_hf
from ckl_jax.files import os_errors, write_json
from ckl_jax.models.t5 import T5Config


def save_hf(
    folder: str | Path, params: Mapping[str, Any], config: T5Config, dtype: Any = np.float32
) -> None:
    """Writes `config.json` and `model.safetensors`, each whole or not at all.

    Args:
      folder: made if absent. A tokenizer is not written: copy it from the start model.
      params: a tree as `Transformer(config)` has it; merge LoRA and drop side networks first.
      config: the model.
      dtype: of the stored weights, e.g. np.float16 to halve the file.

    Raises:
      UserError: the tree does not fit the model, or the disk is full.
    """
    from safetensors.numpy import save_file

    folder = Path(folder)
    state = {name: leaf.astype(dtype) for name, leaf in params_to_hf(params, config).items()}
    with os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            part = Path(temporary) / SINGLE
            # Hugging Face's loader refuses files without this entry.
            save_file(state, part, metadata={"format": "pt"})
            os.replace(part, folder / SINGLE)
    write_json(folder / "config.json", config_to_hf(config))
