"""LoRA adapters in the format of Hugging Face's PEFT: `adapter_config.json` and safetensors.

PEFT computes `x W + (lora_alpha / r) x A B` with A stored as [r, in] and B as [out, r], under the
name of the layer that they adapt, and DoRA's magnitudes as [out]. The entries of several phases
become one adapter, of the sum of their ranks. Query, key and value may be one layer there:
`peft_fused`.
"""

import math
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax import checks
from ckl_jax.checkpoints import architectures, peft_fused
from ckl_jax.checkpoints.architecture import Config, Peft
from ckl_jax.checkpoints.hf_entry import Entry
from ckl_jax.checkpoints.peft_fused import Pair
from ckl_jax.checkpoints.safetensors_files import write_safetensors
from ckl_jax.errors import UserError, nearest
from ckl_jax.files import os_errors, read_json_object, write_json
from ckl_jax.models.stack import stacked
from ckl_jax.trees import paths

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
_MAGNITUDE, _MAGNITUDES = "/lora_magnitude", ".lora_magnitude_vector"  # here, and there
# Settings that change what an adapter computes, and the only value that is understood.
_PLAIN = {
    "bias": "none",
    "modules_to_save": None,
    "rank_pattern": {},
    "alpha_pattern": {},
    "layers_to_transform": None,
    "lora_bias": False,
}
# Ways to start that change the base too, also where PEFT loads the adapter.
_CHANGES_BASE = re.compile(r"(?i:pissa.*|corda.*|olora|loftq)")
# Settings of other kinds of LoRA; what they add is not a product of two factors.
_OTHER_KINDS = (
    "alora_invocation_tokens",
    "arrow_config",
    "kasa_config",
    "monteclora_config",
    "use_bdlora",
    "use_qalora",
)
_FLAGS = ("use_rslora", "use_dora", "fan_in_fan_out")
_KINDS = {"r": int, "lora_alpha": (int, float), **dict.fromkeys(_FLAGS, bool | None)}


def is_adapter(path: str) -> bool:
    """Whether a parameter is a factor of a low-rank entry."""
    return "/lora_" in path


def require_peft(config: Config, source: str) -> Peft:
    """PEFT's format of a model's adapters.

    Args:
      source: what to call the model in an error.

    Raises:
      UserError: its architecture's record does not say.
    """
    form = architectures.of_config(config).peft
    if form is None:
        others = architectures.names("peft").replace(", ", " or ")
        raise UserError(
            f"{source} is of another model than {others}, whose adapters alone go to PEFT and "
            "come from it; `ckl export-hf` merges them."
        )
    return form


def _entries(config: Config) -> tuple[list[Entry], set[str]]:
    """The rows of what adapters may be of, the layers, and the other weights' names."""
    form = architectures.of_config(config).require_hugging_face()
    rows = form.entries(config)
    others = {entry.name for entry in rows if "/layers_" not in entry.path}
    inside = [entry for entry in rows if entry.name not in others]
    return inside, others.union(form.embedding_names(config))


def _columns(config: Config, entries: list[Entry]) -> peft_fused.Columns:
    return peft_fused.columns(
        architectures.of_config(config).require_hugging_face(), config, entries
    )


def adapter_to_peft(
    params: Mapping[str, Any], config: Config, scale: float
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """PEFT's settings and arrays of the low-rank entries in a tree.

    Args:
      params: with leaves `.../lora_<n>/{a,b}`; of the others DoRA needs the kernels of layers that
        are one there and not all adapted here.
      scale: factor of the low-rank path.

    Raises:
      UserError: there are no entries, or not all of one rank.
    """
    flat = paths.flatten(paths.scan_to_loop(params) if config.scan_layers else params)
    dora = any(path.endswith(_MAGNITUDE) for path in flat)
    adapters = {p: x for p, x in flat.items() if is_adapter(p) and not p.endswith(_MAGNITUDE)}
    form, (entries, _) = require_peft(config, "The model"), _entries(config)
    layer_of = peft_fused.layers(entries)
    columns, arrays = _columns(config, entries), {}
    layers = peft_fused.fuse(_pairs(adapters, layer_of), layer_of, columns)
    if dora:
        norms = {p: x for p in layer_of if (x := _magnitude(flat, p)) is not None}
        for name, norm in peft_fused.join_vectors(norms, layer_of, columns).items():
            if name in layers:
                arrays[f"{_PREFIX}{name}{_MAGNITUDES}"] = norm
    ranks = {a.shape[1] for a, _ in layers.values()}
    for name, (a, b) in layers.items():
        # PEFT stores the weights of nn.Linear: [out, in].
        arrays[f"{_PREFIX}{name}.lora_A.weight"] = np.ascontiguousarray(a.T, np.float32)
        arrays[f"{_PREFIX}{name}.lora_B.weight"] = np.ascontiguousarray(b.T, np.float32)
    if len(ranks) != 1:
        raise UserError(
            f"The adapters have the ranks {sorted(ranks)}; PEFT's format has one for all."
            if ranks
            else "There are no LoRA adapters in this checkpoint; export a run of the method lora."
        )
    rank = ranks.pop()
    modules = sorted({".".join(name.split(".")[-form.module_parts :]) for name in layers})
    settings = {
        "peft_type": "LORA",
        "task_type": form.task_type,
        "r": rank,
        # PEFT computes alpha / r; our scale is that quotient.
        "lora_alpha": scale * rank,
        "lora_dropout": 0.0,
        "target_modules": modules,
        "base_model_name_or_path": None,
        "inference_mode": True,
        "fan_in_fan_out": form.fan_in_fan_out,
        "use_dora": dora,
        **_PLAIN,
    }
    return settings, arrays


def _pairs(adapters: Mapping[str, Any], layer_of: Collection[str]) -> dict[str, Pair]:
    """{path of a projection: (A [in, r], B [r, out])}; r is the sum of the ranks of all phases."""
    pairs = {}
    for path in sorted({p[: p.index("/lora_")] for p in adapters}):
        if path not in layer_of:
            raise UserError(f"The adapter of {path} has no place in the model of this config.json.")
        # In the order of the phases, numerically: lora_10 comes after lora_9.
        mine = sorted((p for p in adapters if p.startswith(f"{path}/lora_")), key=_entry)
        # x A_0 B_0 + x A_1 B_1 is one product of the concatenated factors.
        a = np.concatenate([np.asarray(adapters[p]) for p in mine if p.endswith("/a")], axis=1)
        b = np.concatenate([np.asarray(adapters[p]) for p in mine if p.endswith("/b")], axis=0)
        pairs[path] = a, b
    return pairs


def _magnitude(flat: Mapping[str, Any], path: str) -> np.ndarray | None:
    """A projection's magnitudes: DoRA's, or the norms of a kernel that is not adapted."""
    if (own := flat.get(path + _MAGNITUDE)) is not None:
        return np.asarray(own, np.float32)
    kernel = flat.get(f"{path}/kernel")
    return None if kernel is None else np.linalg.norm(np.asarray(kernel, np.float32), axis=0)


def _entry(path: str) -> int:
    return int(path[path.index("/lora_") + len("/lora_") :].split("/")[0])


def adapter_from_peft(
    settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray], config: Config, source: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The low-rank leaves of an adapter, and the arguments of `methods.lora.lora` that fit it.

    Args:
      settings: of `adapter_config.json`.
      arrays: of the safetensors file.
      source: what to call the adapter in an error.

    Returns:
      A tree with `.../lora_0/{a,b}` and DoRA's magnitudes, and {"rank", "scale", "targets"}, of
      DoRA "dora" too.

    Raises:
      UserError: not a plain LoRA, or it adapts layers that the model has not.
    """
    _check_settings(settings, config, source)
    rank, alpha = settings["r"], settings["lora_alpha"]
    # rsLoRA divides alpha by the root of the rank.
    scale = alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)
    entries, outside = _entries(config)
    layer_of = peft_fused.layers(entries)
    dora, columns = bool(settings.get("use_dora")), _columns(config, entries)
    norms = {n: x for n, x in arrays.items() if dora and n.endswith(_MAGNITUDES)}
    others = {n: x for n, x in arrays.items() if n not in norms}
    shapes = peft_fused.shapes(entries)
    theirs = _layers(others, rank, shapes, outside, source)
    # A part of a fused layer that is not adapted has magnitudes of its own all the same.
    pairs = peft_fused.split(theirs, layer_of, columns, whole=dora)
    # Splitting a fused layer may change the rank, not the factor.
    rank = next(iter(pairs.values()))[0].shape[1]
    targets = tuple(sorted({path.rpartition("/")[2] for path in pairs}))
    # `methods.lora` chooses by the name of a projection, in all layers.
    lacking = [p for p in layer_of if p.rpartition("/")[2] in targets and p not in pairs]
    if lacking:
        raise UserError(
            f"{source} adapts some of the layers {', '.join(targets)} but not {lacking[0]}; only "
            "adapters of all layers of a name fit."
        )
    flat = {f"{path}/lora_0/a": a for path, (a, _) in pairs.items()}
    flat |= {f"{path}/lora_0/b": b for path, (_, b) in pairs.items()}
    if dora:
        given = _magnitudes(norms, {name: shapes[name][1] for name in theirs}, source)
        cut = peft_fused.split_vectors(given, layer_of, columns)
        flat |= {path + _MAGNITUDE: x for path, x in cut.items()}
    tree = paths.unflatten(flat)
    if config.scan_layers:
        tree = stacked(tree, config)
    return tree, {"rank": rank, "scale": scale, "targets": targets} | (
        {"dora": True} if dora else {}
    )


def _check_settings(settings: Mapping[str, Any], config: Config, source: str) -> None:
    """Refuses an adapter that is no plain LoRA or DoRA."""
    if settings.get("peft_type") != "LORA":
        kind = settings.get("peft_type")
        raise UserError(f"{source}: {CONFIG} says peft_type {kind!r}; only LORA can be imported.")
    for name, plain in _PLAIN.items():
        # None and an empty value mean the default in PEFT's files.
        if (settings.get(name) or plain) != plain:
            raise UserError(
                f"{source}: {CONFIG} says {name} = {settings[name]!r}; only {plain!r} fits."
            )
    for name in _OTHER_KINDS:
        if settings.get(name):
            raise UserError(
                f"{source}: {CONFIG} says {name} = {settings[name]!r}; only plain LoRA, rsLoRA and "
                "DoRA can be imported."
            )
    if _CHANGES_BASE.fullmatch(start := str(settings.get("init_lora_weights"))):
        raise UserError(
            f"{source}: {CONFIG} says init_lora_weights = {start!r}, so the adapter is of a base "
            "whose weights changed when it was made; save it for the original base, by "
            "save_pretrained(..., path_initial_model_for_weight_conversion=...)."
        )
    where = f"{source}/{CONFIG}"
    checks.require_fields(where, settings, _KINDS, "let PEFT save the adapter again")
    checks.require_size(**{f"{where}: 'r'": settings["r"]})
    finite = float(np.finfo(np.float32).max)
    alpha = {f"{where}: 'lora_alpha'": settings["lora_alpha"]}
    checks.require_number("a finite number", -finite, finite, **alpha)
    if settings.get("fan_in_fan_out") and not require_peft(config, "The model").fan_in_fan_out:
        fitting = [a.name for a in architectures.known() if a.peft and a.peft.fan_in_fan_out]
        raise UserError(
            f"{source}: {CONFIG} says fan_in_fan_out, which is for {' and '.join(fitting)} alone."
        )


def _magnitudes(
    norms: Mapping[str, np.ndarray], sizes: Mapping[str, int], source: str
) -> dict[str, np.ndarray]:
    """{layer: DoRA's magnitudes} of the arrays of a file, one of its size for each layer."""
    given = {n.removeprefix(_PREFIX).removesuffix(_MAGNITUDES): x for n, x in norms.items()}
    wrong = [n for n in sizes if n not in given or given[n].size != sizes[n]]
    if wrong or len(given) != len(sizes):
        raise UserError(
            f"{source}: {CONFIG} says use_dora, but lora_magnitude_vector of "
            f"{(wrong or sorted(set(given) - set(sizes)))[0]} does not fit."
        )
    return given


def _layers(
    arrays: Mapping[str, np.ndarray],
    rank: int,
    shapes: Mapping[str, tuple[int, int]],
    outside: Collection[str],
    source: str,
) -> dict[str, Pair]:
    """{name of a layer there: (A [in, r], B [r, out])} of the arrays of a file."""
    factors: dict[str, dict[str, np.ndarray]] = {}
    for name, array in arrays.items():
        layer, _, factor = name.removeprefix(_PREFIX).removesuffix(".weight").rpartition(".lora_")
        if factor not in ("A", "B") or layer not in shapes:
            whole = name.removeprefix(_PREFIX).partition(".lora_")[0].partition(".base_layer")[0]
            if f"{whole}.weight" in outside:
                raise UserError(
                    f"{source}: {name} is of the embedding or the output, whose adapters cannot be "
                    "imported: let PEFT merge it (merge_and_unload) and import the model, or train "
                    f"without {whole.rpartition('.')[2]} in target_modules."
                )
            raise UserError(
                f"{source}: {name} adapts nothing of the model.{nearest(layer, list(shapes))}"
            )
        inputs, outputs = shapes[layer]
        wanted = (rank, inputs) if factor == "A" else (outputs, rank)
        if array.shape != wanted:
            raise UserError(f"{source}: {name} is {array.shape}, the model needs {wanted}.")
        factors.setdefault(layer, {})[factor] = np.ascontiguousarray(array.T, np.float32)
    for layer, pair in factors.items():
        if len(pair) < 2:
            raise UserError(f"{source}: {layer} has only one of lora_A and lora_B.")
    if not factors:
        raise UserError(f"{source} adapts no layer.")
    return {layer: (pair["A"], pair["B"]) for layer, pair in factors.items()}


def save_peft(
    folder: str | Path,
    params: Mapping[str, Any],
    config: Config,
    scale: float,
    base: str | Path | None = None,
) -> int:
    """Writes an adapter that `peft.PeftModel.from_pretrained` loads.

    Args:
      params, config, scale: see `adapter_to_peft`.
      base: folder of the model under it, for PEFT's classes that look for it.

    Returns:
      The number of its parameters.

    Raises:
      UserError: see `adapter_to_peft`; the disk is full.
    """
    settings, arrays = adapter_to_peft(params, config, scale)
    write_safetensors(Path(folder) / WEIGHTS, arrays)
    if base is not None:
        settings["base_model_name_or_path"] = str(base)
    write_json(Path(folder) / CONFIG, settings)
    return sum(array.size for array in arrays.values())


def load_peft(folder: str | Path, config: Config) -> tuple[dict[str, Any], dict[str, Any]]:
    """`adapter_from_peft` of a folder; raises `UserError` if files are missing or a pickle."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    folder = Path(folder)
    if (folder / "adapter_model.bin").exists() and not (folder / WEIGHTS).exists():
        raise UserError(
            f"{folder}/adapter_model.bin is a pickle, which can run any code; save the adapter "
            "again with save_pretrained(..., safe_serialization=True)."
        )
    settings = read_json_object(folder / CONFIG)
    try:
        with os_errors(folder / WEIGHTS, "read"):
            arrays = load_file(folder / WEIGHTS)
    except (ValueError, SafetensorError) as e:
        raise UserError(f"The adapter in {folder} is damaged: {e}.") from e
    return adapter_from_peft(settings, arrays, config, str(folder))
