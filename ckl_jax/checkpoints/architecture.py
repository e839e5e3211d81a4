"""The record of an architecture: what the rest of the package has to know about a model.

`architectures.py` holds the records by configuration class. A new architecture is a module with a
configuration, a linen module and such a record, and a call of `architectures.register`.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import flax.linen as nn
import numpy as np

from ckl_jax.checkpoints.hf_entry import Entry
from ckl_jax.errors import UserError
from ckl_jax.models.base import BaseTransformerModel

Config = Any  # of a registered architecture: a frozen dataclass
State = Mapping[str, np.ndarray]  # {name at Hugging Face: array}

# Fields of a configuration that a run chooses. `model.gin` of an imported model leaves them out.
RUN_FIELDS = (
    "dtype",
    "dropout_rate",
    "float32_attention_logits",
    "attention_impl",
    "scan_layers",
    "remat_policy",
    "dense",
    "side",
    "legacy_bypass_side",
)

# What `transformers` loads a tokenizer from, where a folder has it, and the ids of its tokens.
TOKENIZER_FILES = (
    "spiece.model",
    "tokenizer.model",
    "tokenizer.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "generation_config.json",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyFiles:
    """Which class reads a model's vocabulary, and from which files of its folder.

    Attributes:
      reader: a class of `data`, called with a path, and with a tuple of added tokens if there are
        any.
      file: the file to read; "" if `reader` takes the folder.
      instead: a file that `reader` also takes, where there is no `file`.
      more: the names of files beyond `TOKENIZER_FILES` that it is read from.
      described: these files as an error names them, after "There is no".
      is_in: whether a folder holds the vocabulary; None tests whether `file` exists.
      arguments: further arguments of `reader`, here and in `model.gin`.
      legacy_tokens: the tokens that `ckl import-hf --legacy-tokens` adds; () if it does not apply.
      otherwise: another kind of vocabulary that such models have, in folders that hold it.
    """

    reader: Callable[..., Any]
    file: str = ""
    instead: str = ""
    more: tuple[str, ...] = ()
    described: str
    is_in: Callable[[Path], bool] | None = None
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    legacy_tokens: tuple[str, ...] = ()
    otherwise: "VocabularyFiles | None" = None

    def of(self, folder: Path) -> "VocabularyFiles":
        """The kind of vocabulary that a folder holds."""
        return self.otherwise if self.otherwise and self.otherwise.holds(folder) else self

    def holds(self, folder: Path) -> bool:
        """Whether a folder holds such a vocabulary."""
        return self.is_in(folder) if self.is_in else os.path.lexists(self.path(folder))

    def path(self, folder: Path) -> Path:
        """The argument of `reader`: a file of `folder`, or `folder` itself."""
        if self.instead and not os.path.lexists(folder / self.file):
            return folder / self.instead
        return folder / self.file if self.file else folder

    def open(self, folder: Path, added_tokens: Sequence[str] = ()) -> Any:
        """The vocabulary in a folder, or None if there is none.

        Raises:
          UserError: the files are damaged, or lack special tokens.
        """
        if self.of(folder) is not self:
            return self.otherwise.open(folder, added_tokens)
        if not self.holds(folder):
            return None
        return self.read(folder, *([tuple(added_tokens)] if added_tokens else []))

    def read(self, folder: Path, *added: tuple[str, ...]) -> Any:
        """The vocabulary of a folder that holds these files."""
        return self.reader(self.path(folder), *added, **self.arguments)


def _same(state: State, config: Config) -> State:
    del config
    return state


@dataclasses.dataclass(frozen=True, kw_only=True)
class HuggingFace:
    """Hugging Face's format of a model: `config.json`, and the names of its parameters.

    Attributes:
      model_types: the values of `model_type` that `config_from_hf` reads.
      config_from_hf: (settings of `config.json`, **overrides) -> configuration; raises `UserError`
        for a model with a part that this one does not have.
      config_to_hf: the inverse; raises `UserError` for what `config.json` cannot say.
      entries: configuration -> a row for each parameter (layers not stacked).
      embedding_names: configuration -> the names of the token embedding. `entries` has the first;
        files may hold it under any of them.
      view: (a file's state dict, configuration) -> one with the names of `entries`.
      join: the inverse of `view`.
      complete: (state dict, settings) -> the state dict with what the file left out as a copy.
      vocabulary_settings: vocabulary -> settings of `config.json` that depend on it.
    """

    model_types: tuple[str, ...]
    config_from_hf: Callable[..., Config]
    config_to_hf: Callable[[Config], dict[str, Any]]
    entries: Callable[[Config], Sequence[Entry]]
    embedding_names: Callable[[Config], tuple[str, ...]]
    view: Callable[[State, Config], State] = _same
    join: Callable[[State, Config], State] = _same
    complete: Callable[[State, Mapping[str, Any]], State] = lambda state, settings: state
    vocabulary_settings: Callable[[Any], dict[str, Any]] = lambda vocabulary: {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Peft:
    """The format of Hugging Face's PEFT for a model's LoRA adapters."""

    task_type: str | None  # PEFT's name of the task, if it has one
    fan_in_fan_out: bool = False  # whether kernels are stored as [in, out]
    # how many of the last parts of a layer's name identify it in `target_modules`; 0: all of them
    module_parts: int = 1
    gin_file: str  # the run that `model.gin` of an imported adapter is laid over


@dataclasses.dataclass(frozen=True, kw_only=True)
class Architecture:
    """One architecture.

    Attributes:
      name: as errors and help name it.
      config: the class of its configuration.
      module: the linen module, called with a configuration.
      model: the wrapper around `module` (encoder-decoder, decoder-only, masked or recurrent). It
        decides about batches, the loss, decoding, and which scorer ranks with the model.
      gin_file: the gin file of the model without sizes; `model.gin` is laid over it.
      includes_gin: whether `model.gin` includes `gin_file`, as no run's gin file does.
      run_gin: the gin files of runs that `model.gin` is laid over, as its first line names them.
      usage: what to do with an imported model; `{}` is the path of its vocabulary.
      run_fields: fields of the configuration that `model.gin` leaves to the run.
      hugging_face: names there; None if Hugging Face's format cannot be read or written.
      peft: LoRA adapters there; None if they cannot be read or written.
    """

    name: str
    config: type
    module: Callable[[Config], nn.Module]
    model: type[BaseTransformerModel]
    vocabulary: VocabularyFiles
    gin_file: str
    run_gin: str
    usage: str
    run_fields: tuple[str, ...] = RUN_FIELDS
    includes_gin: bool = False
    hugging_face: HuggingFace | None = None
    peft: Peft | None = None

    @property
    def gin_name(self) -> str:
        """The name of the configuration in gin files, such as "t5.T5Config"."""
        return gin_name(self.config)

    def build(self, config: Config, vocabulary: Any) -> BaseTransformerModel:
        """The model of a configuration, with a vocabulary for its input and output."""
        return self.model.with_vocabulary(self.module(config), vocabulary)

    def require_hugging_face(self) -> HuggingFace:
        """`hugging_face`, or `UserError` if there is none."""
        if self.hugging_face is None:
            raise UserError(
                f"A {self.name} cannot be read from Hugging Face's format or written to it: its "
                "record has no table of names."
            )
        return self.hugging_face


def gin_name(cls: type) -> str:
    """The name of a class in gin files that import its module by its last part."""
    # gin's selector is as short as is unique: "t5.T5Config", not the whole module path.
    return f"{cls.__module__.rpartition('.')[2]}.{cls.__qualname__}"
