"""`t5x.checkpoints`: which checkpoints are kept, selected in T5X's gin files by class."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ckl_jax import checks
from ckl_jax.checkpoints.store import KeepBest
from ckl_jax.t5x_api import names


@dataclasses.dataclass(frozen=True)
class Checkpointer:
    """T5X's plain checkpointer: keeps the newest `keep`."""

    def keep_best(self, keep: int | None) -> KeepBest | None:
        """The checkpoints to keep along with the newest; None if only age counts."""
        del keep
        return None


@dataclasses.dataclass(frozen=True)
class SaveBestCheckpointer(Checkpointer):
    """Keeps the newest checkpoint and, of the others, the `keep` best.

    Attributes:
      metric_name_to_monitor: "<split>/<name>" of the run's scalars, "train/accuracy" or
        "inference_eval/<task>/<metric>"; of a step at which it was written, see docs/t5x.md.
      metric_mode: "max" or "min".
      keep_checkpoints_without_metrics: those without it all stay; else they go, oldest first,
        before those with it.
      force_keep_period: multiples of it stay in any case.
      keep_dataset_checkpoints: not needed, see `utils.SaveCheckpointConfig`.
    """

    metric_name_to_monitor: str | None = "train/accuracy"
    metric_mode: str = "max"
    keep_checkpoints_without_metrics: bool = True
    force_keep_period: int | None = None
    keep_dataset_checkpoints: int | None = None

    def __post_init__(self) -> None:
        checks.require_choice(
            ("max", "min"), **{"SaveBestCheckpointer.metric_mode": self.metric_mode}
        )
        checks.require_int(force_keep_period=self.force_keep_period)

    def keep_best(self, keep: int | None) -> KeepBest | None:
        # With keep = None all checkpoints stay, the best among them.
        if keep is None or self.metric_name_to_monitor is None:
            return None
        return _Best(
            self.metric_name_to_monitor,
            self.metric_mode,
            keep,
            keep_unscored=self.keep_checkpoints_without_metrics,
            period=self.force_keep_period or 0,
        )


@dataclasses.dataclass(frozen=True)
class OrbaxCheckpointManagerInterface(SaveBestCheckpointer):
    """T5X's default manager: as `SaveBestCheckpointer` once it has a metric to monitor."""

    metric_name_to_monitor: str | None = None


@dataclasses.dataclass(frozen=True)
class _Best(KeepBest):
    keep_unscored: bool = True
    period: int = 0

    def stay(self, values: Mapping[int, float | None]) -> list[int]:
        forced = [step for step in values if self.period and step % self.period == 0]
        others = {step: x for step, x in values.items() if step not in forced}
        others.pop(max(values), None)  # the newest stays and is none of the best
        # Those without the metric have None, and are not chosen.
        scored = self.choose(others)
        unscored = sorted(step for step, x in others.items() if x is None)
        if not self.keep_unscored:
            # Unscored ones fill what is left of `keep`, the newest of them; [-0:] would be all.
            room = self.count - len(scored)
            unscored = unscored[-room:] if room else []
        return [*forced, *scored, *unscored]


def best_of(record: str, keep: int | None = None, **classes: Any) -> KeepBest | None:
    """Which checkpoints to keep beside the newest, by the first class of a record that has one.

    Raises:
      UserError: a class of another kind.
    """
    best = None
    for field, cls in classes.items():
        if cls is None:
            continue
        # gin binds a class here ("@checkpoints.SaveBestCheckpointer"), whose own bindings the call
        # applies.
        made = cls() if isinstance(cls, type) and issubclass(cls, Checkpointer) else None
        if made is None:
            names.not_offered(record, **{field: cls})
        # Every class is checked, also after the first that says something.
        best = best or made.keep_best(keep)
    return best
