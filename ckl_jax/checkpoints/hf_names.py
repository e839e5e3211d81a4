"""Models under Hugging Face's names and under ours: configurations and parameters, both directions.

Works on dictionaries of numpy arrays and knows no files; `from_hf.py` reads and `to_hf.py` writes
them. The tables are those of the architectures' records (`architecture.HuggingFace`). The
conversion is strict: every name on either side must be accounted for.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ckl_jax.checkpoints import architectures
from ckl_jax.checkpoints.architecture import Config, HuggingFace
from ckl_jax.checkpoints.assignment import some
from ckl_jax.checkpoints.hf_entry import check_numbers
from ckl_jax.errors import UserError
from ckl_jax.models.stack import stacked
from ckl_jax.trees import paths

Place = Callable[[str, np.ndarray], Any]


def config_from_hf(settings: Mapping[str, Any], **overrides: Any) -> Config:
    """The configuration of a Hugging Face `config.json`.

    Args:
      **overrides: fields that the file does not decide, such as `scan_layers`.

    Raises:
      UserError: a model of no registered architecture, or with a part that ours does not have.
    """
    form = _of_settings(settings)
    for name in ("quantization_config", "compression_config"):
        if settings.get(name):
            raise UserError(
                f"config.json has a {name}: quantised weights cannot be imported; give the model "
                "in bfloat16 or float32."
            )
    check_numbers(settings)
    return form.config_from_hf(settings, **overrides)


def config_to_hf(config: Config) -> dict[str, Any]:
    """The `config.json` of a configuration; the inverse of `config_from_hf`.

    Raises:
      UserError: it has no words for this one.
    """
    return _of_config(config).config_to_hf(config)


def _of_config(config: Config) -> HuggingFace:
    return architectures.of_config(config).require_hugging_face()


def _of_settings(settings: Mapping[str, Any]) -> HuggingFace:
    if "model_type" not in settings and "d_kv" not in settings:  # T5's first public files lack it
        raise UserError("config.json has no model_type; give one, such as 'llama'.")
    return architectures.of_model_type(settings.get("model_type", "t5")).require_hugging_face()


def with_output(
    state: Mapping[str, np.ndarray], settings: Mapping[str, Any]
) -> Mapping[str, np.ndarray]:
    """Adds the arrays that a file left out as copies of others; see `HuggingFace.complete`."""
    return _of_settings(settings).complete(state, settings)


def params_from_hf(
    state: Mapping[str, np.ndarray],
    config: Config,
    source: str = "the state dict",
    place: Place = lambda path, value: value,
) -> dict[str, Any]:
    """Converts a state dict to parameters.

    Args:
      state: {name: array}; may be lazy, each array is read once or twice.
      config: the model; `scan_layers` stacks the layers.
      source: what to call the state dict in an error.
      place: (path of a leaf, array) -> what becomes of it, such as an array on the devices; the
        host need not hold more than one. With `scan_layers` layers are stacked on the host.

    Returns:
      A tree of float32 arrays, as `Transformer(config)` initialises it (without side networks).

    Raises:
      UserError: a name is missing or not accounted for, or a shape does not fit.
    """
    form = _of_config(config)
    _check_depth(state, config, source)
    table, (embedding, *copies) = form.entries(config), form.embedding_names(config)
    state = form.view(state, config)
    # The table names the embedding once; a file may hold it under any of its names, or several.
    names = {embedding: next((n for n in (embedding, *copies) if n in state), embedding)}
    missing = [e.name for e in table if names.get(e.name, e.name) not in state]
    unexpected = sorted(set(state) - {e.name for e in table} - {embedding, *copies})
    _refuse_mismatch(source, missing, unexpected, "check its config.json")
    # Copies must agree: an untied model would be imported as a tied one.
    _check_copies(state, names[embedding], {embedding, *copies}, source)
    flat, wrong, broken = {}, [], []
    place = (lambda path, value: value) if config.scan_layers else place
    for entry in table:
        # One array at a time: the state dict may be lazy.
        value = np.asarray(state[names.get(entry.name, entry.name)])
        if value.dtype.kind not in "fV":  # V: bfloat16 and float8, which NumPy does not know
            raise UserError(
                f"{source} holds {entry.name} as {value.dtype}: only floating-point weights can be "
                "imported; save the model in float32 or bfloat16."
            )
        value = value.T if entry.transposed else value
        if value.shape != entry.shape:
            wrong.append(f"{entry.name} is {value.shape}, the model has {entry.shape}")
            continue
        # Contiguous, because a transposed view would keep the file's array alive.
        value = np.ascontiguousarray(value, dtype=np.float32)
        # A NaN would show only as a NaN loss after the first step.
        if not np.isfinite(value).all():
            broken.append(entry.name)
        flat[entry.path] = place(entry.path, value)
    if wrong:
        raise UserError(
            f"Shapes in {source} do not fit the model of its config.json: {some(wrong, '; ', 4)}; "
            "check the sizes there."
        )
    if broken:
        raise UserError(
            f"{source} holds values that are not numbers (NaN or infinite): {some(broken)}; write "
            "it again from a sound model."
        )
    params = paths.unflatten(flat)
    return stacked(params, config) if config.scan_layers else params


def params_to_hf(params: Mapping[str, Any], config: Config) -> dict[str, np.ndarray]:
    """Converts parameters to a state dict; the inverse of `params_from_hf`.

    Args:
      params: a tree as `Transformer(config)` has it, without leaves of any method.

    Returns:
      {name: float array}. The embedding is there once, as T5's `shared.weight`, GPT-2's
      `transformer.wte.weight` or BERT's `bert.embeddings.word_embeddings.weight`.

    Raises:
      UserError: a leaf is missing, of another shape or has no name there (side networks, LoRA:
        merge or drop them).
    """
    # Tables name single layers.
    flat = paths.flatten(paths.scan_to_loop(params) if config.scan_layers else params)
    form = _of_config(config)
    table = form.entries(config)
    missing = [e.path for e in table if e.path not in flat]
    unexpected = sorted(set(flat) - {e.path for e in table})
    cure = "check its configuration"
    if unexpected:
        cure = "Hugging Face's format has no place for what a method adds"
    _refuse_mismatch("The parameter tree", missing, unexpected, cure)
    state = {}
    for entry in table:
        value = np.asarray(flat[entry.path])
        if value.shape != entry.shape:
            raise UserError(
                f"{entry.path} has the shape {list(value.shape)}, but that of config.json's model "
                f"is {list(entry.shape)}; give the config.json that the model came from."
            )
        state[entry.name] = np.ascontiguousarray(value.T if entry.transposed else value)
    return form.join(state, config)


def _check_depth(state: Mapping[str, np.ndarray], config: Config, source: str) -> None:
    """Refuses a model of more layers than there are arrays, whose table of names has no end."""
    for field in dataclasses.fields(config):
        if re.fullmatch(r"num_(\w+_)?layers", field.name):
            layers = getattr(config, field.name)
            if layers > len(state):
                raise UserError(
                    f"{source} has {len(state)} arrays, too few for the {layers:,} layers that its "
                    "config.json says; check it."
                )


def _check_copies(state, embedding, copies, source):
    for name in sorted(copies & set(state) - {embedding}):
        if not np.array_equal(np.asarray(state[name]), np.asarray(state[embedding])):
            raise UserError(
                f"{source} holds {name} with other values than {embedding}, but this model has one "
                "table for both. If it is an output of its own, tie_word_embeddings in config.json "
                "is false; models with several tables of input are not read."
            )


def _refuse_mismatch(source, missing, unexpected, cure):
    halves = ("missing", missing), ("not part of the model", unexpected)
    if problems := [f"{what} {some(names, limit=6)}" for what, names in halves if names]:
        raise UserError(f"{source} does not fit the model: {'; '.join(problems)}; {cure}.")
