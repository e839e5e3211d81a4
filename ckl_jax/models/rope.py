"""Angles of rotary positions (Su et al. 2021), with the scalings of Hugging Face's models.

Settings are those of `rope_parameters` in a `config.json`.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ckl_jax.errors import UserError

SCALINGS = ("default", "linear", "llama3", "yarn", "longrope")


def frequencies(
    settings: Mapping[str, Any], size: int, max_positions: int
) -> tuple[np.ndarray, float]:
    """The angle that each pair of dimensions turns by per position.

    Args:
      settings: `rope_type` (one of SCALINGS), `rope_theta`, and what the scaling needs.
      size: R, the dimensions of a head that are turned.
      max_positions: the longest row; longrope has other factors beyond the length that a model was
        first trained with, and a run takes one of the two for all its rows.

    Returns:
      float32 [R/2], and the factor of cosines and sines.

    Raises:
      UserError: a scaling that is not offered, one that lacks a setting, or numbers that give no
        angles.
    """
    kind = settings.get("rope_type", settings.get("type", "default"))
    if kind not in SCALINGS:
        why = ""
        if kind == "dynamic":
            why = (
                " A model whose angles depend on the longest row of a batch gives no row the same "
                "scores twice."
            )
        raise UserError(f"rope_type is {kind!r}; only {', '.join(SCALINGS)} are offered.{why}")
    try:
        with np.errstate(all="ignore"):
            plain = settings["rope_theta"] ** (-np.arange(0, size, 2, dtype=np.float64) / size)
            angles, factor = _SCALE[kind](plain, settings, size, max_positions)
    except KeyError as e:
        raise UserError(f"rope_parameters lack {e.args[0]}, which {kind} needs.") from e
    except (ArithmeticError, ValueError):  # such as a logarithm of 0
        angles = factor = math.nan
    if not (np.isfinite(angles).all() and math.isfinite(factor)):
        raise UserError(f"rope_parameters {dict(settings)} give no angles; correct its numbers.")
    return np.asarray(angles, np.float32), float(factor)


def _default(plain, settings, size, max_positions):
    return plain, 1.0


def _linear(plain, settings, size, max_positions):
    return plain / settings["factor"], 1.0


def _llama3(plain, settings, size, max_positions):
    """Long waves are stretched, short ones kept, and those between are blended."""
    original = settings["original_max_position_embeddings"]
    low, high = settings["low_freq_factor"], settings["high_freq_factor"]
    waves = original * plain / (2 * math.pi)  # of each pair in the original length
    blend = np.clip((waves - low) / (high - low), 0.0, 1.0)
    return (1 - blend) * plain / settings["factor"] + blend * plain, 1.0


def _yarn(plain, settings, size, max_positions):
    """Peng et al. 2023: blended by how often a pair turns in the original length."""
    stretch, theta = settings["factor"], settings["rope_theta"]
    original = settings.get("original_max_position_embeddings") or max_positions

    def dimension(turns: float) -> float:
        return size * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = dimension(settings.get("beta_fast") or 32)
    high = dimension(settings.get("beta_slow") or 1)
    if settings.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    steps = np.arange(size // 2, dtype=np.float64)
    ramp = np.clip((steps - low) / (max(high - low, 1e-3)), 0.0, 1.0)
    angles = ramp * plain / stretch + (1 - ramp) * plain
    factor = settings.get("attention_factor")
    if factor is None:
        one, all_dims = settings.get("mscale"), settings.get("mscale_all_dim")
        if one and all_dims:
            factor = _mscale(stretch, one) / _mscale(stretch, all_dims)
        else:
            factor = _mscale(stretch, 1)
    return angles, factor


def _mscale(stretch: float, scale: float) -> float:
    return 1.0 if stretch <= 1 else 0.1 * scale * math.log(stretch) + 1.0


def _longrope(plain, settings, size, max_positions):
    """Ding et al. 2024: a factor for each pair of dimensions."""
    original = settings["original_max_position_embeddings"]
    name = "long_factor" if max_positions > original else "short_factor"
    factor = settings.get("attention_factor")
    if factor is None:
        longest = settings.get("max_position_embeddings", original)
        stretch = settings.get("factor") or longest / original
        factor = 1.0 if stretch <= 1 else math.sqrt(1 + math.log(stretch) / math.log(original))
    return plain / np.asarray(settings[name], np.float64), factor


_SCALE = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
