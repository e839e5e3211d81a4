"""What the gin file in a model's folder says of its configuration, without building the model."""

from pathlib import Path
from typing import Any

from ckl_jax.checkpoints import architectures
from ckl_jax.checkpoints.architecture import Architecture
from ckl_jax.checkpoints.from_hf import read_config
from ckl_jax.config import gin_scan
from ckl_jax.errors import UserError


def configured(folder: str | Path) -> tuple[Architecture, dict[str, Any]] | None:
    """The architecture of a MODEL_DIR or an imported model, and what is bound of its configuration.

    Returns:
      None without a gin file, or where it configures no registered architecture.
    """
    paths = (Path(folder) / name for name in ("config.gin", "model.gin"))
    if (path := next(filter(Path.is_file, paths), None)) is None:
        return None
    scan = gin_scan.scan_alone(path)
    values = {b.name: b.value for b in scan.bindings}
    # The config.gin of a run may bind those of other models too.
    names = {gin_scan.model_config(values)} if "MODEL" in values else scan.selectors()
    for architecture in architectures.known():
        if (name := architecture.gin_name) in names:
            own = {k.removeprefix(f"{name}."): v for k, v in values.items()}
            return architecture, {k: own[k] for k in own.keys() - values.keys()}
    return None


def positions(folder: str | Path) -> int | None:
    """The positions of the model in a folder, also of Hugging Face; None where nothing says so."""
    try:
        if (file := Path(folder) / "config.json").is_file():
            return getattr(read_config(file), "max_positions", None)
        _, values = configured(folder) or (None, {})
    except UserError:  # of a model that is not offered; its tokenizer may be
        return None
    return values.get("max_positions")


def row_length(folder: str | Path) -> int:
    """Tokens of a row of text for the model in a folder: 512, or its positions if fewer."""
    return min(512, positions(folder) or 512)
