"""Added (adapter) parameters: what a method adds to a model, and checks against a checkpoint.

A leaf is added if the model with the method has it and the model without does not: shapes alone
tell, no names. Where a method numbers what it adds (`lora_0`, `lora_1`: one for each update), the
component at which such a leaf departs from the base model is its part and phase.
"""

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ckl_jax.checkpoints.restore import find_checkpoint, read_json_item
from ckl_jax.errors import UserError
from ckl_jax.files import as_json

# "lora_0" is ("lora", 0), "k_adapter_1" is ("k_adapter", 1).
_NUMBERED = re.compile(r"(.+)_(\d+)")


def record(config: Any) -> dict[str, Any]:
    """The record of a method's parts in a model's configuration, for a checkpoint's metadata."""
    dense = getattr(config, "dense", None)
    return {
        "dense": dense.settings() if dense is not None else {},
        "side": [dataclasses.asdict(side) for side in getattr(config, "side", ())],
    }


def check_settings(path: str, config: Any) -> None:
    """Checks that adapters of an earlier update have the same settings in this model.

    A scale or taps show in no parameter's shape. Checkpoints from before they were recorded pass.

    Args:
      path: the checkpoint.
      config: of the model, with its method in it.

    Raises:
      UserError: a setting differs.
    """
    metadata = read_json_item(find_checkpoint(path), "metadata")
    # Through JSON, as the metadata went: tuples become lists, and compare equal.
    wanted = as_json(record(config))
    method = type(getattr(config, "dense", None)).__module__.rpartition(".")[2]
    if name := first_difference(metadata, wanted, method):
        held, mine = (_settings(x, method)[name] for x in (metadata, wanted))
        raise UserError(
            f"{path} was trained with {name} = {held!r}, and this run has {mine!r}, which would "
            "change its earlier updates; give the old value "
            "(configs.RestoreCheckpointConfig.strict = False takes the new one)."
        )


def first_difference(
    one: Mapping[str, Any], other: Mapping[str, Any], dense: str = "dense"
) -> str | None:
    """The first setting of added parts that differs between two checkpoints that both record it.

    Args:
      one, other: metadata of the checkpoints.
      dense: what to call the part of the dense layers.
    """
    # Only settings that both have: an update that one of them lacks is a matter of phases, see
    # `check_phase`.
    a, b = _settings(one, dense), _settings(other, dense)
    return next((name for name in sorted(a.keys() & b.keys()) if a[name] != b[name]), None)


def _settings(metadata: Mapping[str, Any], dense: str) -> dict[str, Any]:
    """{"lora.scale": 0.25, "k_adapter_0.taps": [1, 11], ...}."""
    # All dense layers share one record; side networks have one each, with a name of its own.
    parts = [{"name": dense, **(metadata.get("dense") or {})}, *(metadata.get("side") or [])]
    return {f"{part['name']}.{k}": v for part in parts for k, v in part.items() if k != "name"}


def check_phase(
    path: str, wanted: Collection[str], stored: Iterable[str], added: Collection[str]
) -> None:
    """Checks that a checkpoint has not had more updates by the method than the run's phase.

    Args:
      path: the checkpoint.
      wanted, stored: names of the model's parameters, and of the checkpoint's.
      added: those of `wanted` that the method adds.

    Raises:
      UserError: it has had more.
    """
    # Stored leaves beyond the base model are added ones too, whatever this run's method would add.
    base = set(wanted) - set(added)
    mine, held = last_phases(added, base), last_phases(set(stored) - base, base)
    for part in sorted(mine.keys() & held.keys()):
        if held[part] > mine[part]:
            raise UserError(
                f"{path} holds {part}_{held[part]} and this run's phase is {mine[part]}; give "
                f"{part}.{part}.phase = {held[part]} as it was trained with, or "
                f"{held[part] + 1} for another update."
            )


def continued_phase(
    trainable: Collection[str], frozen: Collection[str], fresh: Collection[str], added: set[str]
) -> tuple[str, int] | None:
    """The added part and phase that a run trains further, where it adds none of its own.

    Args:
      trainable, frozen: names of the model's parameters; a run that freezes none (a fine-tuning)
        is not meant.
      fresh: those that the checkpoint did not have.
      added: those that the method adds.
    """
    # With a fresh added leaf the run has parameters of its own, which is what an update is for.
    if not frozen or added & set(fresh):
        return None
    base = {*trainable, *frozen} - added
    return next(iter(last_phases(sorted(added & set(trainable)), base).items()), None)


def last_phases(added: Iterable[str], base: Iterable[str]) -> dict[str, int]:
    """{part: the highest phase of its leaves}; parts without a number are left out.

    Args:
      added: paths of added leaves.
      base: those of the base model.
    """
    last: dict[str, int] = {}
    for part, phase in _phases(added, base).values():
        last[part] = max(phase, last.get(part, 0))
    return last


def earlier_phases(
    frozen: Iterable[str], trainable: Iterable[str], base: Iterable[str]
) -> frozenset[str]:
    """Those `frozen` added leaves that belong to an earlier phase than `trainable` ones; all are
    paths, and `base` those of the base model.
    """
    base = list(base)
    last = last_phases(trainable, base)
    phases = _phases(frozen, base).items()
    return frozenset(p for p, (part, phase) in phases if phase < last.get(part, 0))


def _phases(added: Iterable[str], base: Iterable[str]) -> dict[str, tuple[str, int]]:
    """{path: (its part, its phase)}, without the paths that have no number."""
    # Every inner node of the base model's tree; the first component of an added path that is not in
    # it is where the method attached its part.
    folders = {p[:i] for p in base for i, c in enumerate(p) if c == "/"}
    phases = {}
    for path in added:
        parts = path.split("/")
        root = next((c for n, c in enumerate(parts) if "/".join(parts[: n + 1]) not in folders), "")
        if match := _NUMBERED.fullmatch(root):
            phases[path] = match[1], int(match[2])
    return phases
