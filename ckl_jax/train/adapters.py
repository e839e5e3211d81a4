"""What methods add to a model: what checkpoints record of it, and whether a run goes on with it."""

import dataclasses
import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ckl_jax.checkpoints.restore import find_checkpoint, read_json_item
from ckl_jax.errors import UserError

_NAMES = re.compile(r"(?:^|/)(lora|k_adapter|modular)_(\d+)(?:/|$)")
_SHAPES = ("rank", "entries", "targets")  # of LoRA: what differs shows in the parameters


def is_added(path: str) -> bool:
    """Whether a parameter was added by a method, so that a base checkpoint need not have it."""
    return _NAMES.search(path) is not None


def record(config: Any) -> dict[str, Any]:
    """What a checkpoint's metadata say of the method's parts in a model's configuration."""
    dense = getattr(config, "dense", None)
    return {
        "dense": dataclasses.asdict(dense) if dataclasses.is_dataclass(dense) else {},
        "side": [dataclasses.asdict(side) for side in getattr(config, "side", ())],
    }


def check_settings(path: str, config: Any) -> None:
    """Raises `UserError` if what an earlier update added would do something else in this model.

    A scale or taps are in no parameter's shape. Checkpoints of before they were recorded pass.

    Args:
      path: the checkpoint.
      config: of the model, with its method in it.
    """
    metadata = read_json_item(find_checkpoint(path), "metadata")
    wanted = json.loads(json.dumps(record(config)))
    if name := first_difference(metadata, wanted):
        held, mine = _settings(metadata)[name], _settings(wanted)[name]
        raise UserError(
            f"{path} was trained with {name} = {held!r}, and this run has {mine!r}, by which its "
            "earlier updates would do something else; give the old value "
            "(configs.RestoreCheckpointConfig.strict = False takes the new one)."
        )


def first_difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """The first setting that two records of what methods added both hold, and not alike."""
    a, b = _settings(one), _settings(other)
    return next((name for name in sorted(a.keys() & b.keys()) if a[name] != b[name]), None)


def _settings(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """{"lora.scale": 0.25, "k_adapter_0.taps": [1, 11], ...}."""
    dense = {f"lora.{k}": v for k, v in (metadata.get("dense") or {}).items() if k not in _SHAPES}
    sides = metadata.get("side") or []
    return dense | {f"{s['name']}.{k}": v for s in sides for k, v in s.items() if k != "name"}


def check_phase(path: str, wanted: Iterable[str], stored: Iterable[str]) -> None:
    """Raises `UserError` if a checkpoint has had more updates by the method than the run's phase.

    Args:
      path: the checkpoint.
      wanted, stored: names of the model's parameters, and of the checkpoint's.
    """
    mine, held = _last_phases(wanted), _last_phases(stored)
    for kind in sorted(mine.keys() & held.keys()):
        if held[kind] > mine[kind]:
            raise UserError(
                f"{path} holds {kind}_{held[kind]} and this run's phase is {mine[kind]}; give "
                f"{kind}.{kind}.phase = {held[kind]} as it was trained with, or "
                f"{held[kind] + 1} for another update."
            )


def goes_on_with(
    trainable: Collection[str], frozen: Collection[str], fresh: Collection[str]
) -> tuple[str, int] | None:
    """The method and phase whose parameters a run trains further, where it adds none of its own.

    Args:
      trainable, frozen: names of the model's parameters; a run that freezes none (a fine-tuning)
        is not meant.
      fresh: those that the checkpoint did not have.
    """
    if not frozen or any(map(is_added, fresh)):
        return None
    return next(iter(_last_phases(trainable).items()), None)


def _last_phases(names: Iterable[str]) -> dict[str, int]:
    """{method: the highest phase of its parameters}."""
    last: dict[str, int] = {}
    for found in filter(None, map(_NAMES.search, names)):
        last[found[1]] = max(int(found[2]), last.get(found[1], 0))
    return last
