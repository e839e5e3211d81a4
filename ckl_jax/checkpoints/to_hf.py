"""Writes parameters as a folder that Hugging Face's models load."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.checkpoints.architecture import Config
from ckl_jax.checkpoints.from_hf import INDEX, SINGLE
from ckl_jax.checkpoints.hf_names import config_to_hf, params_to_hf
from ckl_jax.checkpoints.safetensors_files import write_safetensors
from ckl_jax.files import os_errors, write_json

MAX_SHARD_BYTES = 5 * 10**9


def save_hf(
    folder: str | Path,
    params: Mapping[str, Any],
    config: Config,
    dtype: Any = np.float32,
    max_shard_bytes: int = MAX_SHARD_BYTES,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Writes `config.json` and the weights, each file whole or not at all.

    The weights are `model.safetensors`, or where that would be larger than `max_shard_bytes`
    several files and `model.safetensors.index.json`; weights that were there before are removed.

    Args:
      folder: made if absent. A tokenizer is not written: copy it from the start model.
      params: a tree as the model of `config` has it; merge LoRA and drop side networks first.
      dtype: of the stored weights, e.g. np.float16 to halve the file.
      max_shard_bytes: of one file; a tensor is never split.
      settings: further fields of `config.json`, or other values: ids that the tokenizer determines.

    Raises:
      UserError: the tree does not fit the model, or the disk is full.
    """
    state = {name: leaf.astype(dtype) for name, leaf in params_to_hf(params, config).items()}
    folder = Path(folder)
    # An old shard beside a new index would be loaded by transformers in place of the new file.
    for old in [*folder.glob("model*.safetensors"), folder / INDEX]:
        with os_errors(old, "remove"):
            old.unlink(missing_ok=True)
    shards = split_state(state, max_shard_bytes)
    if len(shards) == 1:
        write_safetensors(folder / SINGLE, state)
    else:
        names = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
        for name, shard in zip(names, shards, strict=True):
            write_safetensors(folder / name, shard)
        files = {tensor: n for n, shard in zip(names, shards, strict=True) for tensor in shard}
        total = sum(x.nbytes for x in state.values())
        write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": files})
    # Last: a folder with a config.json has whole weights.
    write_json(folder / "config.json", {**config_to_hf(config), **(settings or {})})


def split_state(state: Mapping[str, np.ndarray], max_bytes: int) -> list[dict[str, np.ndarray]]:
    """Parts of a state dict, in order, of at most `max_bytes` or one tensor each."""
    shards: list[dict[str, np.ndarray]] = [{}]
    size = 0
    for name, x in state.items():
        if shards[-1] and size + x.nbytes > max_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = x
        size += x.nbytes
    return shards
