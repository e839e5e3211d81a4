"""Rows of the tables that map Hugging Face's parameter names to ours, and renamed state dicts."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ckl_jax import checks
from ckl_jax.errors import UserError

_MAX_IDS = 1_000_000  # no vocabulary has more


@dataclasses.dataclass(frozen=True)
class Entry:
    """One parameter: its name there, its path here, and whether the matrix is transposed."""

    name: str
    path: str
    transposed: bool
    shape: tuple[int, ...]  # here


def linear(there: str, here: str, inputs: int, outputs: int) -> Iterator[Entry]:
    """A projection with a bias."""
    yield Entry(f"{there}.weight", f"{here}/kernel", True, (inputs, outputs))
    yield Entry(f"{there}.bias", f"{here}/bias", False, (outputs,))


def norm(there: str, here: str, width: int) -> Iterator[Entry]:
    """A layer norm with a bias."""
    yield Entry(f"{there}.weight", f"{here}/scale", False, (width,))
    yield Entry(f"{there}.bias", f"{here}/bias", False, (width,))


def check_numbers(settings: Mapping[str, Any]) -> None:
    """Raises `UserError` for a field of `config.json` that is not of the kind its name says."""
    rows = settings.get("vocab_size")
    # Files of small models keep token ids of the large ones, beyond their own vocabulary.
    ids = max(rows, _MAX_IDS) if isinstance(rows, int) else _MAX_IDS
    for name, value in settings.items():
        field = {f"{name} of config.json": value}
        if name.endswith("_token_id"):
            for one in value if isinstance(value, list) else [value]:  # -1 is none
                checks.require_int(-1, ids - 1, **dict.fromkeys(field, one))
        elif name.endswith(("_eps", "_epsilon")):
            if value is None:
                raise UserError(f"{name} of config.json is null; give a finite number above 0.")
            checks.require_positive(**field)
        elif name.endswith(("_pdrop", "_dropout", "_dropout_prob", "dropout_rate")):
            checks.require_number("a number in [0, 1)", 0.0, 1.0, **field)
        elif name in ("initializer_range", "initializer_factor"):
            checks.require_number("a finite number, 0 or more", 0.0, **field)
        elif name in ("tie_word_embeddings", "scale_decoder_outputs") and value is not None:
            checks.require_bool(**field)


def check_settings(
    settings: Mapping[str, Any], fixed: Mapping[str, Any], sizes: Sequence[str], name: str
) -> None:
    """Raises `UserError` for a `config.json` with settings that this model does not implement.

    Args:
      fixed: fields that change the computation, and the one value that is implemented.
      sizes: required fields, whole numbers of at least 1.
    """
    for field, value in fixed.items():
        # A field that is absent has transformers' default, which is the supported value.
        if settings.get(field, value) != value:
            raise UserError(
                f"config.json says {field} {settings[field]!r}: only {value!r} can be imported."
            )
    if missing := [field for field in sizes if settings.get(field) is None]:
        raise UserError(
            f"config.json lacks {', '.join(missing)}: it is not a {name}'s; give the folder that "
            "save_pretrained wrote."
        )
    # Before anything is divided by them, or allocated.
    checks.require_int(
        1, 2**31 - 1, **{f"{field} of config.json": settings[field] for field in sizes}
    )


class Renamed(Mapping):
    """A state dict under other names: {name: the one in `state`}. Arrays are read on access."""

    def __init__(self, state: Mapping[str, np.ndarray], source: Mapping[str, str]) -> None:
        self._state, self._source = state, source

    def __getitem__(self, name: str) -> np.ndarray:
        return np.asarray(self._state[self._source[name]])

    def __iter__(self) -> Iterator[str]:
        return iter(self._source)

    def __len__(self) -> int:
        return len(self._source)
