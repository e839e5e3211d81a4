"""The methods that `ckl demo` and `ckl experiment` compare, and how `--methods` names them."""

import dataclasses
from collections.abc import Sequence

from ckl_jax import checks

PAPER = ("vanilla", "recadam", "mix_review", "lora", "k_adapter_k2", "k_adapter_k3", "modular")
NEWER = ("replay", "lora_mix_review", "ewc", "lwf", "ema")  # only run if --methods names them
METHODS = PAPER + NEWER
_WORDS = {"all": PAPER, "newer": NEWER}


@dataclasses.dataclass(frozen=True)
class Strength:
    """The hyperparameter that controls how strongly a method preserves old knowledge."""

    name: str  # in tables
    binding: str  # of gin
    # that `ckl/pareto --strengths` tries beside the one in the method's gin file
    values: tuple[float, ...]


STRENGTHS = {
    "recadam": Strength("gamma", "recadam.recadam.gamma", (500.0, 50000.0)),  # 5,000
    "mix_review": Strength("ratio", "mix_review.mix_review.ratio", (1.0, 2.0)),  # 4
    "lora": Strength("rank", "lora.lora.rank", (1, 16)),  # 4
    "replay": Strength("fraction", "replay.replay.fraction", (0.2, 0.5)),  # 0.05
    "lora_mix_review": Strength("ratio", "mix_review.mix_review.ratio", (1.0, 2.0)),  # 4
    "ewc": Strength("strength", "EWC_STRENGTH", (1.0, 100.0)),  # 10
    "lwf": Strength("weight", "LWF_WEIGHT", (0.25, 4.0)),  # 1
    "ema": Strength("decay", "EMA_DECAY", (0.9, 0.995)),  # 0.98 of the simulated world
}


def expand(names: Sequence[str]) -> tuple[str, ...]:
    """The methods that `--methods` names: "all" stands for the paper's, "newer" for the others.

    Raises:
      UserError: a name is no method's.
    """
    named = [name for word in names for name in _WORDS.get(word, (word,))]
    checks.require_names(METHODS, **{"--methods": tuple(dict.fromkeys(named))})
    return tuple(dict.fromkeys(named))
