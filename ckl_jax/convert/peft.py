"""`ckl export-peft` and `ckl import-peft`: LoRA adapters in Hugging Face PEFT's format."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax import files
from ckl_jax.checkpoints.architecture import Config, Peft
from ckl_jax.checkpoints.from_hf import load_hf, read_config
from ckl_jax.checkpoints.hf_names import config_to_hf
from ckl_jax.checkpoints.peft import is_adapter, load_peft, require_peft, save_peft
from ckl_jax.checkpoints.restore import find_checkpoint, read_json_item
from ckl_jax.checkpoints.scan_layout import is_stacked
from ckl_jax.checkpoints.to_hf import save_hf
from ckl_jax.convert import hugging_face
from ckl_jax.convert.hugging_face import adapter_scale, new_model_dir
from ckl_jax.train.setup import load_params
from ckl_jax.trees import paths


def _read_config(like: str, params: Any) -> tuple[Config, Peft]:
    """The model of a config.json, with its layers as `params` have them, and its form in PEFT."""
    config = read_config(like)
    form = require_peft(config, like)
    return dataclasses.replace(config, scan_layers=bool(is_stacked(paths.flatten(params)))), form


def export_peft(
    checkpoint: str, like: str, out: str, scale: float | None = None, base: str | None = None
) -> str:
    """Writes a LoRA run as the adapter `out`, and the model under it as `out/base`.

    CKL's LoRA trains the decoder beside the adapters, so the base is not the model that training
    started from; it is written whole, unless it is equal to `base`.

    Args:
      checkpoint: a MODEL_DIR or a `checkpoint_<step>` of a run of the method lora.
      like: a config.json of the same architecture; its tokenizer is copied, as by
        `hugging_face.export_checkpoint`.
      scale: factor of the low-rank path, where the checkpoint does not say it.
      base: Hugging Face folder of the model that training started from.

    Returns:
      What was done, and how to load it.

    Raises:
      UserError: `out` holds something, there are no adapters, or the parameters do not fit the
        configuration.
    """
    files.refuse_existing(out, None)
    params = load_params(checkpoint)
    config, _ = _read_config(like, params)
    flat = paths.flatten(params)
    scale = adapter_scale(checkpoint, scale) if any(map(is_adapter, flat)) else 1.0
    own = {path: x for path, x in flat.items() if not is_adapter(path)}
    if base is None or not _is_of(base, own):
        base = str(Path(out) / "base")
        tokenizer = hugging_face.tokenizer_files(checkpoint, Path(like).parent, config)
        save_hf(base, paths.unflatten(own), config)
        hugging_face.copy(tokenizer, Path(base))
    count = save_peft(out, params, config, scale, base)
    return (
        f"An adapter of {count:,} parameters in {out}, its base in {base}. Load them with\n"
        f"  PeftModel.from_pretrained({config_to_hf(config)['architectures'][0]}.from_pretrained("
        f"'{base}'), '{out}')"
    )


def _is_of(folder: str, flat: dict[str, Any]) -> bool:
    """Whether a Hugging Face folder holds exactly these parameters."""
    _, params = load_hf(folder)
    there = paths.flatten(params)
    same = flat.keys() == there.keys()
    return same and all(np.array_equal(x, there[path]) for path, x in flat.items())


def import_peft(adapter: str, base: str, like: str, out: str) -> str:
    """Writes a PEFT adapter on a base checkpoint of ours as `checkpoint_0` of `out`.

    Args:
      adapter: the folder that PEFT's `save_pretrained` wrote.
      base: a MODEL_DIR or a `checkpoint_<step>` with the model under it.
      like: its config.json.
      out: the new MODEL_DIR; gets `lora.gin`, the method that fits.

    Returns:
      What was done, and how to use it.

    Raises:
      UserError: the adapter does not fit, or `out` already holds a checkpoint.
    """
    params = load_params(base)
    config, form = _read_config(like, params)
    tree, settings = load_peft(adapter, config)
    flat = paths.flatten(params) | paths.flatten(tree)
    held = read_json_item(find_checkpoint(base), "metadata")
    metadata = {
        "imported_from": Path(adapter).name,
        "dense": settings,
        "vocabulary_digest": held.get("vocabulary_digest"),
    }
    lines = "\n".join(f"    {name} = {value!r}" for name, value in settings.items())
    with new_model_dir(out, paths.unflatten(flat), metadata):
        files.write_file(
            Path(out) / "lora.gin",
            f"# The method of the imported adapter; lay it over {form.gin_file}.\n"
            "# `trunk = ()` trains the adapter alone, as PEFT does.\n"
            "from __gin__ import dynamic_registration\nfrom ckl_jax.methods import lora\n"
            f"lora.lora:\n{lines}\n    trunk = ()\n",
        )
    model = next((f for f in (Path(base), Path(base).parent) if (f / "model.gin").is_file()), None)
    of_base = f"--gin_file={model}/model.gin " if model else ""
    return (
        f"{sum(x.size for x in paths.flatten(tree).values()):,} parameters of an adapter and its "
        f"base in {out}/checkpoint_0. Use them with\n  --gin_file={form.gin_file} {of_base}"
        f"--gin_file={out}/lora.gin --gin.INITIAL_CHECKPOINT_PATH=\"'{out}'\""
    )
