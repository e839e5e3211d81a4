"""Rotary positions and the types of layers in a `config.json`, read and written."""

from collections.abc import Mapping, Sequence
from typing import Any

from ckl_jax.errors import UserError
from ckl_jax.models.decoder import DecoderConfig

Settings = Mapping[str, Any]
LAYER_TYPES = {"full_attention": "full", "sliding_attention": "sliding"}
_THERE = {ours: name for name, ours in LAYER_TYPES.items()}


def layer_types(settings: Settings, default: tuple[str, ...]) -> tuple[str, ...]:
    """The types of layers that `config.json` lists, or `default`."""
    given, depth = settings.get("layer_types"), settings["num_hidden_layers"]
    if given is None:
        return default
    if unknown := [t for t in given if t not in tuple(LAYER_TYPES)]:
        raise UserError(
            f"config.json has layer_types {unknown[0]!r}: only {', '.join(LAYER_TYPES)} can be "
            "imported."
        )
    if len(given) != depth:
        raise UserError(
            f"config.json has {len(given)} layer_types and num_hidden_layers {depth}; give a type "
            "for each layer."
        )
    return tuple(LAYER_TYPES[t] for t in given)


def rope(settings: Settings, theta: float = 10000.0) -> dict[str, Any]:
    """`rope_parameters` of transformers 5, or `rope_theta` and `rope_scaling` of earlier ones.

    Args:
      theta: where `rope_theta` is absent.

    Raises:
      UserError: both are there and differ.
    """
    new, old = (_named(settings.get(name)) for name in ("rope_parameters", "rope_scaling"))
    if new:
        theirs = {"rope_scaling": old, "rope_theta": _given(settings, "rope_theta")}
        for name, values in theirs.items():
            # Which of them counts differs between versions of transformers.
            if other := [k for k, v in values.items() if v != new.get(k, v if k == name else None)]:
                raise UserError(
                    f"config.json says {name} {settings[name]!r} and rope_parameters "
                    f"{settings['rope_parameters']!r}, which differ in {other[0]}; leave out the "
                    "wrong one."
                )
    found = dict(new or old)
    given = settings.get("rope_theta")
    found.setdefault("rope_theta", theta if given is None else given)
    # Of a whole model this field comes before that of the scaling.
    first = settings.get("original_max_position_embeddings")
    if first is not None and found.get("rope_type") in ("llama3", "yarn", "longrope"):
        found["original_max_position_embeddings"] = first
    return {k: v for k, v in found.items() if v is not None}


def _given(settings: Settings, name: str) -> dict[str, Any]:
    return {name: settings[name]} if settings.get(name) is not None else {}


def _named(given: Settings | None) -> dict[str, Any]:
    """Settings of angles, with the type under its present name; {} if there are none."""
    found = {k: v for k, v in (given or {}).items() if v is not None}
    if "type" in found:
        found.setdefault("rope_type", found.pop("type"))
    return {"rope_type": "default", **found} if found else {}


def limited(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of `DecoderConfig`; with longrope, rows up to the length first trained with.

    transformers turns short rows by the short factors and longer ones by the long factors. Here all
    rows have the same, and a run of longer ones sets `max_positions`.
    """
    longest = fields["max_positions"]
    ropes = {kind: dict(settings) for kind, settings in fields.get("ropes", {}).items()}
    for settings in ropes.values():
        if settings.get("rope_type") == "longrope":
            first = settings.setdefault("original_max_position_embeddings", longest)
            settings["max_position_embeddings"] = longest
            fields = {**fields, "max_positions": min(first, fields["max_positions"])}
    return {**fields, "ropes": ropes} if ropes else fields


def longest(config: DecoderConfig) -> int:
    """The inverse of `limited`: how many positions `config.json` says that a model has."""
    ropes = [dict(settings) for _, settings in config.ropes]
    found = [s["max_position_embeddings"] for s in ropes if "max_position_embeddings" in s]
    return max(found, default=config.max_positions)


def _plain(value: Any) -> Any:
    """JSON of a value that `DecoderConfig` made hashable."""
    if isinstance(value, tuple) and value and all(isinstance(v, tuple) for v in value):
        return {k: _plain(v) for k, v in value if k != "max_position_embeddings"}
    return list(map(_plain, value)) if isinstance(value, tuple) else value


def rope_settings(config: DecoderConfig) -> dict[str, Any]:
    """`rope_parameters`, and the same as earlier versions of transformers say it."""
    ropes = _plain(config.ropes)
    found = {"rope_type": "default", **(ropes.get("full") or next(iter(ropes.values())))}
    return {
        "rope_parameters": found,
        "rope_theta": found["rope_theta"],
        "rope_scaling": _scaling(found),
    }


def two_ropes(config: DecoderConfig) -> dict[str, Any]:
    """Settings of a model whose layers with windows turn by other angles."""
    ropes = {k: {"rope_type": "default", **v} for k, v in _plain(config.ropes).items()}
    return {
        "rope_parameters": {_THERE[kind]: found for kind, found in ropes.items()},
        "rope_theta": ropes["full"]["rope_theta"],
        "rope_scaling": _scaling(ropes["full"]),
        "rope_local_base_freq": ropes["sliding"]["rope_theta"],
    }


def _scaling(found: Settings) -> dict[str, Any] | None:
    if found["rope_type"] == "default":
        return None
    return {k: v for k, v in found.items() if k != "rope_theta"}


def window_settings(config: DecoderConfig) -> dict[str, Any]:
    """`sliding_window` and `layer_types`."""
    return {"sliding_window": config.window, "layer_types": layer_type_names(config.types)}


def layer_type_names(types: Sequence[str]) -> list[str]:
    """Types of layers as `config.json` has them."""
    return [_THERE[kind] for kind in types]
