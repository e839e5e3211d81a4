"""LoRA adapters in the format of Hugging Face's PEFT: `adapter_config.json` and safetensors.

PEFT computes `x W + (lora_alpha / r) x A B` with A stored as [r, in] and B as [out, r], under the
name of the layer that they adapt. The entries of several phases become one adapter, of the sum of
their ranks.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.checkpoints.hf_t5 import entries
from ckl_jax.checkpoints.to_hf import write_safetensors
from ckl_jax.errors import UserError, nearest
from ckl_jax.files import os_errors, write_json
from ckl_jax.models.t5 import T5Config
from ckl_jax.trees import paths

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
# Settings that change what an adapter computes, and the only value that is understood.
_PLAIN = {
    "use_dora": False,
    "bias": "none",
    "fan_in_fan_out": False,
    "modules_to_save": None,
    "rank_pattern": {},
    "alpha_pattern": {},
    "layers_to_transform": None,
    "lora_bias": False,
}


def is_adapter(path: str) -> bool:
    """Whether a parameter is a factor of a low-rank entry."""
    return "/lora_" in path


def _layers(config: T5Config) -> dict[str, tuple[str, tuple[int, ...]]]:
    """{path of the projection here: (its name there, the kernel's shape [in, out])}."""
    return {
        e.path.removesuffix("/kernel"): (e.name.removesuffix(".weight"), e.shape)
        for e in entries(config)
        if e.transposed and e.path.endswith("/kernel")
    }


def adapter_to_peft(
    params: Mapping[str, Any], config: T5Config, scale: float
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """PEFT's settings and arrays of the low-rank entries in a tree.

    Args:
      params: with leaves `.../lora_<n>/{a,b}`; the others are ignored.
      config: the base model.
      scale: factor of the low-rank path.

    Raises:
      UserError: there are no entries, or not all of one rank.
    """
    adapters = {p: x for p, x in paths.flatten(params).items() if is_adapter(p)}
    if config.scan_layers:
        adapters = paths.flatten(paths.scan_to_loop(paths.unflatten(adapters)))
    layers, arrays, ranks = _layers(config), {}, set()
    for path in sorted({p[: p.index("/lora_")] for p in adapters}):
        if path not in layers:
            raise UserError(f"The adapter of {path} has no place in the model of this config.json.")
        mine = sorted((p for p in adapters if p.startswith(f"{path}/lora_")), key=_entry)
        a = np.concatenate([np.asarray(adapters[p]) for p in mine if p.endswith("/a")], axis=1)
        b = np.concatenate([np.asarray(adapters[p]) for p in mine if p.endswith("/b")], axis=0)
        ranks.add(a.shape[1])
        name = _PREFIX + layers[path][0]
        arrays[f"{name}.lora_A.weight"] = np.ascontiguousarray(a.T, np.float32)
        arrays[f"{name}.lora_B.weight"] = np.ascontiguousarray(b.T, np.float32)
    if len(ranks) != 1:
        raise UserError(
            f"The adapters have the ranks {sorted(ranks)}; PEFT's format has one for all."
            if ranks
            else "There are no LoRA adapters in this checkpoint; export a run of the method lora."
        )
    rank = ranks.pop()
    modules = sorted({name.rsplit(".", 3)[1] for name in arrays})
    settings = {
        "peft_type": "LORA",
        "task_type": "SEQ_2_SEQ_LM",
        "r": rank,
        "lora_alpha": scale * rank,
        "lora_dropout": 0.0,
        "target_modules": modules,
        "base_model_name_or_path": None,
        "inference_mode": True,
        **_PLAIN,
    }
    return settings, arrays


def _entry(path: str) -> int:
    return int(path[path.index("/lora_") + len("/lora_") :].split("/")[0])


def adapter_from_peft(
    settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray], config: T5Config, source: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The low-rank leaves of an adapter, and the arguments of `methods.lora.lora` that fit it.

    Args:
      settings: of `adapter_config.json`.
      arrays: of the safetensors file.
      config: the base model.
      source: what to call the adapter in an error.

    Returns:
      A tree with `.../lora_0/{a,b}`, and {"rank", "scale", "targets"}.

    Raises:
      UserError: not a plain LoRA, or it adapts layers that the model has not.
    """
    if settings.get("peft_type") != "LORA":
        raise UserError(f"{source} is a {settings.get('peft_type')!r}; only LORA can be imported.")
    for name, plain in _PLAIN.items():
        if (settings.get(name) or plain) != plain:
            raise UserError(
                f"{source}: {CONFIG} says {name} = {settings[name]!r}; only {plain!r} fits."
            )
    rank, alpha = settings["r"], settings["lora_alpha"]
    scale = alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)
    by_name = {name: (path, shape) for path, (name, shape) in _layers(config).items()}
    flat: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        layer, _, factor = name.removeprefix(_PREFIX).removesuffix(".weight").rpartition(".lora_")
        if factor not in ("A", "B") or layer not in by_name:
            raise UserError(
                f"{source}: {name} adapts nothing of the model.{nearest(layer, list(by_name))}"
            )
        path, (inputs, outputs) = by_name[layer]
        wanted = (rank, inputs) if factor == "A" else (outputs, rank)
        if array.shape != wanted:
            raise UserError(f"{source}: {name} is {array.shape}, the model needs {wanted}.")
        flat[f"{path}/lora_0/{factor.lower()}"] = np.ascontiguousarray(array.T, np.float32)
    found = {p[: p.index("/lora_")] for p in flat}
    targets = tuple(sorted({path.rsplit("/", 1)[1] for path in found}))
    expected = [path for path, _ in by_name.values() if path.rsplit("/", 1)[1] in targets]
    lacking = [p for p in expected if f"{p}/lora_0/a" not in flat or f"{p}/lora_0/b" not in flat]
    if lacking or not flat:
        raise UserError(
            f"{source} adapts some of the layers {', '.join(targets) or '(none)'} but not "
            f"{lacking[0] if lacking else 'any'}; only adapters of all layers of a name fit."
        )
    tree = paths.unflatten(flat)
    if config.scan_layers:
        tree = paths.loop_to_scan(tree)
    return tree, {"rank": rank, "scale": scale, "targets": targets}


def save_peft(folder: str | Path, params: Mapping[str, Any], config: T5Config, scale: float) -> int:
    """Writes an adapter that `peft.PeftModel.from_pretrained` loads.

    Returns:
      The number of its parameters.

    Raises:
      UserError: see `adapter_to_peft`; the disk is full.
    """
    settings, arrays = adapter_to_peft(params, config, scale)
    write_safetensors(Path(folder) / WEIGHTS, arrays)
    write_json(Path(folder) / CONFIG, settings)
    return sum(array.size for array in arrays.values())


def load_peft(folder: str | Path, config: T5Config) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reads an adapter; see `adapter_from_peft`.

    Raises:
      UserError: files are missing, or hold a pickle.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    folder = Path(folder)
    if (folder / "adapter_model.bin").exists() and not (folder / WEIGHTS).exists():
        raise UserError(
            f"{folder}/adapter_model.bin is a pickle, which can run any code; save the adapter "
            "again with save_pretrained(..., safe_serialization=True)."
        )
    with os_errors(folder / CONFIG, "read"):
        text = (folder / CONFIG).read_text(encoding="utf-8")
    try:
        settings = json.loads(text)
        with os_errors(folder / WEIGHTS, "read"):
            arrays = load_file(folder / WEIGHTS)
    except (ValueError, SafetensorError) as e:
        raise UserError(f"The adapter in {folder} is damaged: {e}.") from e
    return adapter_from_peft(settings, arrays, config, str(folder))
