"""What the gin file in a model's folder says of its configuration, without building the model."""

from pathlib import Path
from typing import Any

from ckl_jax.checkpoints import architectures
from ckl_jax.checkpoints.architecture import Architecture
from ckl_jax.config import gin_scan


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
