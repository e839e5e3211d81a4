"""Rows of the tables that map Hugging Face's parameter names to ours, and renamed state dicts."""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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


def _check_kind(kind: type, what: str, **values: Any) -> None:
    """Raises `UserError` unless each of `values` is of a kind, or None."""
    for name, value in values.items():
        if value is not None and not isinstance(value, kind):
            raise UserError(f"{name} is {value!r}; give {what}.")


def _check_epsilon(**values: Any) -> None:
    for name, value in values.items():
        if value is None:
            raise UserError(f"{name} is null; give a finite number above 0.")
    checks.require_positive(**values)


def _check_factors(**values: Any) -> None:
    """Raises `UserError` unless each of `values` is a list of numbers above 0, or None."""
    _check_kind(list, "a list of numbers", **values)
    for name, value in values.items():
        for one in value or ():
            checks.require_positive(**{f"a number of {name}": one})


# {a pattern of fields of `config.json`: what is raised for other values}. Null passes, and is what
# an absent field is; a family's own limits are checked where it is read.
_CHECKS: Mapping[str, Callable[..., None]] = {
    r".*_(eps|epsilon)": _check_epsilon,
    r".*(_pdrop|_dropout|_dropout_prob|dropout_rate)": functools.partial(
        checks.require_number, "a number in [0, 1)", 0.0, 1.0
    ),
    r"initializer_(range|factor)|mscale|mscale_all_dim": functools.partial(
        checks.require_number, "a finite number, 0 or more", 0.0
    ),
    r"(attn|final)_logit_softcapping|query_pre_attn_scalar|((global|local)_)?rope_theta"
    r"|rope_local_base_freq|rotary_emb_base|factor|attention_factor|(low|high)_freq_factor"
    r"|beta_(fast|slow)": checks.require_positive,
    r"partial_rotary_factor|rotary_pct": checks.require_fraction,
    r"(short|long)_factor": _check_factors,
    r"num_key_value_heads|head_dim|(original_)?max_position_embeddings|seq_length|n_inner"
    r"|_?sliding_window(_pattern)?|local_attention|global_attn_every_n_layers|num_decoder_layers"
    r"|word_embed_proj_dim|embedding_size|relative_attention_max_distance"
    r"|pretraining_tp": functools.partial(checks.require_int, 1, 2**31 - 1),
    # Half of an encoder's are for each side, and half of those for distances one by one.
    r"relative_attention_num_buckets": functools.partial(checks.require_int, 4, 2**31 - 1),
    r"max_window_layers|type_vocab_size": functools.partial(checks.require_int, 0, 2**31 - 1),
    r"tie_word_embeddings|scale_decoder_outputs|(attention|mlp|norm)_bias|use_sliding_window"
    r"|use_parallel_residual|do_layer_norm_before|_remove_final_layer_norm|slow_but_exact"
    r"|truncate": functools.partial(_check_kind, bool, "True or False"),
    r"hidden_act|hidden_activation|activation|activation_function|feed_forward_proj|rope_type"
    r"|type": functools.partial(_check_kind, str, "a name"),
    r"layer_types": functools.partial(_check_kind, list, "a list of names"),
    r"rope_(parameters|scaling)": functools.partial(_check_kind, dict, "an object, or null"),
}


def check_numbers(settings: Mapping[str, Any], where: str = "config.json") -> None:
    """Raises `UserError` for a field of `config.json` that is not of the kind its name says."""
    rows = settings.get("vocab_size")
    # Files of small models keep token ids of the large ones, beyond their own vocabulary.
    ids = max(rows, _MAX_IDS) if isinstance(rows, int) else _MAX_IDS
    for name, value in settings.items():
        field = f"{name} of {where}"
        if name.endswith("_token_id"):
            for one in value if isinstance(value, list) else [value]:  # -1 is none
                checks.require_int(-1, ids - 1, **{field: one})
        if name == "sliding_window" and settings.get("use_sliding_window") is False:
            continue  # no layer has it
        for pattern, check in _CHECKS.items():
            if re.fullmatch(pattern, name):
                check(**{field: value})
        if re.fullmatch("rope_(parameters|scaling)|.*_attention", name) and isinstance(value, dict):
            check_numbers(value, field)  # of all layers, or of those of a type


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
        there = settings.get(field, value)
        if there != value and not (there is None and value is False):
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
