"""A model from `ckl import-hf` used instead of a size's own: `model.gin` and checkpoint."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckl_jax.errors import UserError

T5, GPT2 = "T5", "GPT-2"  # architectures
# Of the simulated world's rows and probes: a foreign vocabulary cuts its names into more tokens.
LENGTHS = (
    "TASK_FEATURE_LENGTHS = {'inputs': 64, 'targets': 32}",
    "closed_book.ClosedBook.input_lengths = {'*': 64}",
    "closed_book.ClosedBook.target_lengths = {'*': 32}",
)
_SIZES = ("num_encoder_layers", "emb_dim", "num_heads", "head_dim", "mlp_dim")


@dataclasses.dataclass(frozen=True)
class Imported:
    """An imported model."""

    folder: Path  # has its checkpoint
    architecture: str  # its name, `T5` or `GPT2`
    config: Mapping[str, Any]  # {field: value} of its configuration

    @classmethod
    def open(cls, folder: str | Path) -> "Imported":
        """Reads the `model.gin` of a folder.

        Raises:
          UserError: the folder has none, or no checkpoint, or its model is neither T5 nor GPT-2.
        """
        # Slow, and needed for imported models alone.
        from ckl_jax.checkpoints import architectures
        from ckl_jax.checkpoints.restore import find_checkpoint
        from ckl_jax.config import gin_config

        path = Path(folder) / "model.gin"
        find_checkpoint(folder)
        if not path.is_file():
            raise UserError(f"{folder} has no model.gin; make the folder by `ckl import-hf`.")
        values = {b.name: b.value for b in gin_config.read([str(path)]).scan.bindings}
        architecture = architectures.of_gin_names({n.rpartition(".")[0] for n in values}, str(path))
        if architecture.name not in (T5, GPT2):
            raise UserError(
                f"{path} is of the architecture {architecture.name}; give a T5 or a GPT-2."
            )
        prefix = f"{architecture.gin_name}."
        config = {n.removeprefix(prefix): x for n, x in values.items() if n.startswith(prefix)}
        return cls(Path(folder), architecture.name, config)

    def require(self, architecture: str, what: str) -> None:
        """Refuses a model that a command cannot train, before anything is written.

        Raises:
          UserError: it is of another architecture, or a T5 without a vocabulary.
        """
        if self.architecture != architecture:
            raise UserError(
                f"{what} trains a {architecture}, and --model {self.folder} is a "
                f"{self.architecture}."
            )
        if architecture == T5:
            _ = self.vocabulary  # the data are prepared in it

    @property
    def gin_file(self) -> str:
        return str(self.folder / "model.gin")

    @property
    def vocabulary(self) -> Path:
        """The file of a T5's vocabulary, which `ckl import-hf` copied into the folder.

        Raises:
          UserError: there was none to copy.
        """
        path = self.folder / "spiece.model"
        if not path.is_file():
            raise UserError(f"There is no {path}; import the model with its vocabulary beside it.")
        return path

    @property
    def macros(self) -> dict[str, Any]:
        """The macros of methods that depend on a T5's size; for T5-large they are the paper's."""
        if self.architecture != T5:
            return {}
        layers, width, heads, head_dim, mlp_dim = (self.config[name] for name in _SIZES)
        if layers >= 6:
            taps = (1, layers // 2 - 1, layers - 1)
        else:  # the last hidden states of a model with few
            taps = tuple(range(max(layers - 2, 0), layers + 1))
        return {
            "K2_TAPS": taps[:2] if layers >= 6 else taps[-2:],
            "K3_TAPS": taps,
            "MODULAR_EMB_DIM": max(width // 2, 1),
            "MODULAR_NUM_HEADS": max(heads * 6 // 16, 1),
            "MODULAR_HEAD_DIM": head_dim,
            "MODULAR_MLP_DIM": max(mlp_dim // 4, 1),
            "MODULAR_NUM_LAYERS": max(layers // 3, 1),
        }
