"""`ckl export-peft` and `ckl import-peft`: LoRA adapters in Hugging Face PEFT's format."""

from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax import files
from ckl_jax.checkpoints.from_hf import load_hf
from ckl_jax.checkpoints.hub import folder_of
from ckl_jax.checkpoints.peft import is_adapter, load_peft, require_peft, save_peft
from ckl_jax.checkpoints.restore import ORIGIN, find_checkpoint, read_json_item
from ckl_jax.convert import hugging_face
from ckl_jax.convert.hugging_face import adapter_scale
from ckl_jax.train.setup import load_params
from ckl_jax.trees import paths


def export_peft(
    checkpoint: str, like: str | None, out: str, scale: float | None = None, base: str | None = None
) -> str:
    """Writes a LoRA run as the adapter `out`, and the model under it as `out/base`.

    CKL's LoRA trains the decoder beside the adapters, so the base is not the model that training
    started from; it is written whole, unless it is equal to `base`.

    Args:
      checkpoint: a MODEL_DIR or a `checkpoint_<step>` of a run of the method lora.
      like: see `hugging_face.export_checkpoint`.
      scale: factor of the low-rank path, where the checkpoint does not say it.
      base: Hugging Face folder or name of the model that training started from.

    Returns:
      What was done, and how to load it.

    Raises:
      UserError: `out` holds something, there are no adapters, or the parameters do not fit the
        configuration.
    """
    files.refuse_existing(out, None)
    params = load_params(checkpoint)
    file = hugging_face.config_file(like, checkpoint)
    config = hugging_face.config_like(file, checkpoint, params)
    form = require_peft(config, str(file))
    flat = paths.flatten(params)
    scale = adapter_scale(checkpoint, scale) if any(map(is_adapter, flat)) else 1.0
    own = {path: x for path, x in flat.items() if not is_adapter(path)}
    if base is not None and _is_of(folder_of(base), own, config.scan_layers):
        base = str(Path(base).absolute()) if Path(base).exists() else base
    else:
        base = str((Path(out) / "base").absolute())
        hugging_face.write_run(base, paths.unflatten(own), config, file, checkpoint)
    count = save_peft(out, params, config, scale, base)
    loads = {
        "CAUSAL_LM": f"peft.AutoPeftModelForCausalLM.from_pretrained('{out}')",
        "SEQ_2_SEQ_LM": f"peft.AutoPeftModelForSeq2SeqLM.from_pretrained('{out}')",
        None: "peft.PeftModel.from_pretrained(transformers.AutoModelForMaskedLM.from_pretrained("
        f"'{base}'), '{out}')",
    }[form.task_type]
    return (
        f"An adapter of {count:,} parameters in {out}, its base in {base}. Load them with\n"
        f"  {loads}"
    )


def _is_of(folder: str, flat: dict[str, Any], scan_layers: bool) -> bool:
    """Whether a Hugging Face folder holds exactly these parameters."""
    _, params = load_hf(folder, scan_layers=scan_layers)
    there = paths.flatten(params)
    same = flat.keys() == there.keys()
    return same and all(np.array_equal(x, there[path]) for path, x in flat.items())


def import_peft(adapter: str, base: str, like: str | None, out: str) -> str:
    """Writes a PEFT adapter on a base checkpoint of ours as `checkpoint_0` of `out`.

    Args:
      adapter: the folder that PEFT's `save_pretrained` wrote.
      base: a MODEL_DIR or a `checkpoint_<step>` with the model under it.
      like: its config.json, see `hugging_face.export_checkpoint`.
      out: the new MODEL_DIR; its `model.gin` has the model with the method that fits.

    Returns:
      What was done, and how to use it.

    Raises:
      UserError: the adapter does not fit, or `out` already holds a checkpoint.
    """
    params = load_params(base)
    file = hugging_face.config_file(like, base)
    config = hugging_face.config_like(file, base, params)
    form = require_peft(config, str(file))
    tree, settings = load_peft(adapter, config)
    flat = paths.flatten(params) | paths.flatten(tree)
    source = find_checkpoint(base)
    digest = read_json_item(source, "metadata").get("vocabulary_digest")
    own = Path(str(source)).parent
    added = hugging_face.added_tokens(own, config, digest) if digest else None
    metadata = {
        "imported_from": Path(adapter).name,
        "dense": settings,
        "vocabulary_digest": digest,
    }
    lines = "\n".join(f"    {name} = {value!r}" for name, value in settings.items())
    with hugging_face.new_model_dir(out, paths.unflatten(flat), metadata):
        kept = None if added is None else hugging_face.keep_vocabulary(own, out, config, added)
        files.write_file(
            Path(out) / "model.gin",
            f"{hugging_face.model_gin(config, kept, added or ())}"
            "# The method of the imported adapter, which trains alone, as in PEFT.\n"
            f"from ckl_jax.methods import lora\nMETHOD = @lora.lora()\nlora.lora:\n{lines}\n"
            "    trunk = ()\n",
        )
        files.write_file(Path(out) / ORIGIN, file.read_bytes())
    return (
        f"{sum(x.size for x in paths.flatten(tree).values()):,} parameters of an adapter and its "
        f"base in {out}/checkpoint_0. Train on with\n  --gin_file={form.gin_file} "
        f"{hugging_face.restore_flags(out)}"
    )
