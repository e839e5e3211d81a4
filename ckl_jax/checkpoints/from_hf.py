"""Reads the folder of a Hugging Face model, without torch or transformers.

    config, params = load_hf("t5-small", scan_layers=True)

Weights come from `model.safetensors`, from its shards by `model.safetensors.index.json`, or from
`flax_model.msgpack`, whichever is there first. Tensors of safetensors files are read one by one.
PyTorch's `.bin` files are pickles: loading one can run any code it contains, so they are refused.
"""

import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.checkpoints import architectures
from ckl_jax.checkpoints.architecture import Config
from ckl_jax.checkpoints.hf_names import Place, config_from_hf, params_from_hf, with_output
from ckl_jax.checkpoints.safetensors_files import SafetensorsState, safetensors_names
from ckl_jax.checks import LARGEST
from ckl_jax.data.text.byte_level import unused_ids
from ckl_jax.errors import UserError
from ckl_jax.files import os_errors, read_json_object

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
FLAX = "flax_model.msgpack"
_MOST_SPARE_ROWS = 512  # of a published model: BLOOM has 200 more rows than tokens


def open_model(
    folder: str | Path,
    placing: Callable[[Any], Place] = lambda model: _on_host,
    **overrides: Any,
) -> tuple[Any, dict[str, Any]]:
    """The model of a folder with its vocabulary, and its parameters; see `load_hf`.

    Args:
      placing: gives the `place` of `params_from_hf` for the model.

    Raises:
      UserError: see `load_hf`; or the vocabulary is missing, damaged or of another model.
    """
    config, state = _opened(Path(folder), overrides)
    architecture = architectures.of_config(config)
    vocabulary = architecture.vocabulary.of(Path(folder)).read(Path(folder))
    check_rows(vocabulary, config.vocab_size)
    check_spare_rows(vocabulary, config.vocab_size)
    model = architecture.build(config, vocabulary)
    return model, params_from_hf(state, config, str(folder), placing(model))


def _on_host(path: str, value: np.ndarray) -> np.ndarray:
    return value


def check_rows(vocabulary: Any, rows: int) -> None:
    """Raises `UserError` if a vocabulary has ids of tokens in texts that no row is of."""
    size = getattr(vocabulary, "vocab_size", 0)
    if size > rows and size - unused_ids(vocabulary) > rows:
        raise UserError(
            f"The vocabulary of {vocabulary.path} has {vocabulary.vocab_size} ids, sentinels "
            f"included, but config.json has a vocab_size of {rows}; give the vocabulary of this "
            "model."
        )


def check_spare_rows(vocabulary: Any, rows: int) -> None:
    """Raises `UserError` if so many rows are of no token that the vocabulary is another model's."""
    size = getattr(vocabulary, "vocab_size", 0)
    if size and rows - size > max(0.1 * rows, _MOST_SPARE_ROWS):
        raise UserError(
            f"The vocabulary of {vocabulary.path} has {size} ids, but config.json has a vocab_size "
            f"of {rows}; give the vocabulary of this model."
        )


def load_hf(folder: str | Path, **overrides: Any) -> tuple[Config, dict[str, Any]]:
    """Reads configuration and parameters.

    Args:
      folder: holds `config.json` and the weights.
      **overrides: fields of the configuration that the checkpoint does not decide, such as
        `scan_layers`.

    Returns:
      The configuration, and float32 parameters as the model of `config` initialises them.

    Raises:
      UserError: a file is missing or unreadable, or names or shapes do not fit the model.
    """
    config, state = _opened(Path(folder), overrides)
    return config, params_from_hf(state, config, str(folder))


def _opened(folder: Path, overrides: Mapping[str, Any]) -> tuple[Config, Mapping[str, np.ndarray]]:
    """The configuration, and the weights, each of which is read when it is asked for."""
    if not os.path.lexists(folder / "config.json"):
        raise UserError(
            f"{folder} has no config.json: give the folder of a Hugging Face model "
            f"({architectures.names('hugging_face')}), with config.json and model.safetensors in "
            "it."
        )
    config = read_config(folder / "config.json", **overrides)
    settings = read_json_object(folder / "config.json")
    if settings.get("auto_map"):  # such as Phi-3's, which transformers has had of its own since
        warnings.warn(
            f"{folder}/config.json names code of its own (auto_map), which is not run; the model "
            f"is read as transformers' own {settings['model_type']}.",
            stacklevel=3,
        )
    return config, with_output(read_state(folder), settings)


def read_config(path: str | Path, **overrides: Any) -> Config:
    """The model of a `config.json`; see `hf_names.config_from_hf`.

    Raises:
      UserError: the file is missing, damaged, or of another model; the message names it.
    """
    settings = read_json_object(path)
    try:
        config = config_from_hf(settings, **overrides)
        _check_numbers(settings)
        return config
    except UserError as e:
        # The errors call every such file config.json.
        said, folder = str(e).replace("config.json", Path(path).name), Path(path).parent
        if "config.json" not in str(e):
            said = f"{path}: {said}"
        elif folder != Path():
            said = f"{folder}: {said}"
        raise UserError(said) from e
    except (ValueError, TypeError, KeyError, ArithmeticError) as e:
        models = architectures.names("hugging_face")
        raise UserError(f"{path} is not the config.json of a model among {models} ({e}).") from e


def _check_numbers(settings: Any, name: str = "config.json") -> None:
    """Raises `UserError` for whole numbers that no array holds."""
    for key, value in settings.items() if isinstance(settings, dict) else enumerate(settings):
        if isinstance(value, (dict, list)):
            _check_numbers(value, f"{name}, {key}")
        elif isinstance(value, int) and abs(value) > LARGEST:
            raise UserError(f"{name} says {key} {value}; give a number below 2**63.")


def read_state(folder: str | Path) -> Mapping[str, np.ndarray]:
    """The weights of a checkpoint folder by Hugging Face's PyTorch names, read when asked for.

    Raises:
      UserError: no weights in a readable format.
    """
    folder = Path(folder)
    if os.path.lexists(folder / SINGLE):
        return SafetensorsState(dict.fromkeys(safetensors_names(folder / SINGLE), folder / SINGLE))
    if os.path.lexists(folder / INDEX):
        return _sharded(folder)
    if os.path.lexists(folder / FLAX):
        return _flax_state(folder / FLAX)
    pickles = sorted(p.name for p in folder.glob("*.bin"))
    if pickles:
        raise UserError(
            f"{folder} holds weights as {pickles[0]} only, a pickle that could run any code when "
            f"loaded: convert it to {SINGLE} with transformers (save_pretrained) and try again."
        )
    raise UserError(
        f"{folder} holds neither {SINGLE} nor {INDEX} nor {FLAX}; give the folder that "
        "transformers' save_pretrained wrote."
    )


def _sharded(folder):
    weight_map = read_json_object(folder / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(f, str) for f in weight_map.values()):
        raise UserError(f"{folder / INDEX} has no 'weight_map': not an index of safetensors files.")
    # A downloaded index could otherwise name any file of this machine.
    outside = sorted({f for f in weight_map.values() if Path(f).name != f})
    if outside:
        raise UserError(
            f"{folder / INDEX} names {outside[0]!r}; the files of a model lie in its own folder: "
            "put them there and name them without one."
        )
    absent = sorted({f for f in weight_map.values() if not (folder / f).exists()})
    if absent:
        raise UserError(f"{folder / INDEX} names files that are not there: {', '.join(absent)}.")
    # All names are checked before the first tensor is read: an import may take minutes.
    held = {file: set(safetensors_names(folder / file)) for file in set(weight_map.values())}
    lost = sorted(name for name, file in weight_map.items() if name not in held[file])
    if lost:
        raise UserError(f"{folder / INDEX} names tensors that its files lack: {', '.join(lost)}.")
    # Tensors that the index forgets are read too, as transformers does.
    rest = {name: folder / file for file in sorted(held) for name in held[file]}
    return SafetensorsState(rest | {name: folder / file for name, file in weight_map.items()})


def _flax_state(path):
    """Renames and transposes Flax's tree to the PyTorch names: kernels are `[in, out]` there."""
    from flax import serialization, traverse_util

    with os_errors(path, "read"):
        data = path.read_bytes()
    try:
        flat = traverse_util.flatten_dict(serialization.msgpack_restore(data), sep=".")
    except Exception as e:  # msgpack raises many kinds
        raise UserError(f"{path} cannot be read as Flax weights: {e}.") from e
    state = {}
    for name, value in flat.items():
        stem, _, last = name.rpartition(".")
        # Flax's `kernel`, `embedding` and `scale` are all `weight` in PyTorch.
        state[f"{stem}.weight"] = np.asarray(value).T if last == "kernel" else np.asarray(value)
    return state
