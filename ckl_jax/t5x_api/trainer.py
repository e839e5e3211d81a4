"""`t5x.trainer`: the names that gin files bind; the loop is `train.train`."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ckl_jax.t5x_api import names


@dataclasses.dataclass(frozen=True)
class Trainer:
    """The settings of T5X's trainer.

    Attributes:
      learning_rate_fn: step -> rate.
      num_microbatches: parts of a batch whose gradients are added up; None is 1. Gradients and
        denominators are summed apart, so the result does not depend on it.
      legacy_microbatch_means: as T5X does it: where `loss_normalizing_factor` is a mean, the means
        of the parts are added up, so the gradient grows with `num_microbatches`.
      weight_metrics_computer: must be None.
    """

    learning_rate_fn: Callable[[Any], Any] | None = None
    num_microbatches: int | None = None
    weight_metrics_computer: Any = None
    legacy_microbatch_means: bool = False

    def __post_init__(self) -> None:
        names.not_offered("trainer.Trainer", weight_metrics_computer=self.weight_metrics_computer)


@dataclasses.dataclass(frozen=True)
class TerminateOnNanAction:
    """T5X's only built-in action: stops at a loss that is NaN or infinite.

    Training stops so at any step, whether this is bound or not.
    """

    task: str
    metric: str = "loss"


def unknown_actions(actions: Mapping[str, Sequence[Any]] | None) -> dict[str, Sequence[Any]] | None:
    """The actions that are not offered, by mode; None if there are none."""
    left = {
        mode: [action for action in some if not isinstance(action, TerminateOnNanAction)]
        for mode, some in (actions or {}).items()
    }
    return {mode: some for mode, some in left.items() if some} or None
