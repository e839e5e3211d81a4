"""Opens what an update begins with: its registry and its model."""

import collections
import os
from pathlib import Path
from typing import Any

from ckl_jax import checks
from ckl_jax.analysis.sections import refuse_foreign
from ckl_jax.checkpoints import architectures
from ckl_jax.checkpoints.from_hf import FLAX, INDEX, SINGLE, check_rows, read_config, read_state
from ckl_jax.checkpoints.hub import folder_of
from ckl_jax.errors import UserError
from ckl_jax.models.masked import MaskedModel
from ckl_jax.updates import records
from ckl_jax.updates.registry import Registry
from ckl_jax.updates.settings import Update


def open_registry(settings: Update) -> Registry:
    """The registry that settings name; nothing is written.

    Raises:
      UserError: there are no documents, the model cannot be updated, or the folder is another's
        or among the documents.
    """
    if settings.documents is None:
        raise UserError("--documents is missing: give the text to learn from.")
    if not Path(settings.documents).exists():
        raise UserError(f"There is no file or folder {settings.documents} with documents.")
    out, documents = (Path(os.path.realpath(p)) for p in (settings.out, settings.documents))
    if out.is_relative_to(documents) and not any(
        name.startswith(".") for name in out.relative_to(documents).parts
    ):
        raise UserError(
            f"--out {settings.out} is in {settings.documents}, where all files are read as "
            "documents; give a folder elsewhere."
        )
    model = Path(folder_of(settings.model)) if settings.model is not None else None
    if model is not None:
        require_model(model)
    checks.require_folder(**{"--out": settings.out})
    root = Path(settings.out)
    if root.is_dir() and not os.access(root, os.W_OK | os.X_OK):
        raise UserError(
            f"Nothing can be written in {root}: make it writable, or give another --out."
        )
    registry = Registry.open(settings.out, None if model is None else os.path.abspath(model))
    page = registry.root / "history.html"
    try:
        refuse_foreign(page, None)
    except UserError as e:
        raise UserError(f"{page} is not of an update of {registry.root}; move it elsewhere.") from e
    for update in registry.updates():  # history.html needs them when all else is done
        records.read(update, "verdict.json")
        collections.deque(records.read_rows(update, "ledger.jsonl"), maxlen=0)
    return registry


def require_model(folder: Path) -> tuple[Any, Any]:
    """Configuration and vocabulary of a Hugging Face folder; `UserError` if none can be updated."""
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder} with a model.")
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder} has no config.json; give a folder or name of Hugging Face's.")
    config = read_config(folder / "config.json")
    if any((folder / name).exists() for name in (SINGLE, INDEX)) or not (folder / FLAX).exists():
        read_state(folder)  # names alone: says what is missing or cut
    architecture = architectures.of_config(config)
    vocabulary = architecture.vocabulary.open(folder)
    if vocabulary is None:
        raise UserError(
            f"There is no {architecture.vocabulary.described} in {folder}: text cannot be cut into "
            "tokens without the model's tokenizer."
        )
    check_rows(vocabulary, config.vocab_size)
    if issubclass(architecture.model, MaskedModel):
        raise UserError(
            f"{folder} is a masked model, which `ckl update` does not train; give a T5 or a "
            "decoder."
        )
    return config, vocabulary
