"""A method is a record of seams, each the identity by default.

| seam         | what it changes                                   | who fills it         |
| ------------ | ------------------------------------------------- | -------------------- |
| `dense`      | the projection factory of the model               | LoRA                 |
| `side`       | side networks over a stack's hidden states        | K-Adapter, Modular   |
| `trainable`  | which leaves train: patterns over parameter paths | all that freeze      |
| `tx`, `wrap` | the optax transformation that moves them          | RecAdam; EWC, EMA    |
| `mixture`    | what is mixed into the data, epoch by epoch       | Mix-Review           |
| `teacher`    | the loss: the model before the update teaches     | LwF                  |

Vanilla training is the empty record. The runner knows this record and no method by name; two
methods that fill different seams combine (`combine`).
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import optax

from ckl_jax.data.epochs import Mixture
from ckl_jax.errors import UserError
from ckl_jax.models.distillation import Distillation
from ckl_jax.models.layers import DenseFactory
from ckl_jax.models.side import Side

EVERYTHING = ("",)
SEAMS = (
    "dense",
    "side",
    "trainable",
    "tx",
    "wrap",
    "statistics_examples",
    "mixture",
    "teacher",
)


@dataclasses.dataclass(frozen=True)
class Method:
    """How a model is updated.

    Attributes:
      name: for folders, rows and tables.
      dense: projection factory, or None to keep the model's own.
      side: side networks to add, in order.
      trainable: patterns over parameter paths (see `trees.partition.select`).
      tx: `learning rate schedule -> optax transformation`, or None for the run's own optimizer.
      wrap: `optax transformation -> optax transformation`, around `tx` or the run's own optimizer
        with its clip; or None.
      mixture: review of earlier data by epoch, or None.
      statistics_examples: of the earlier corpus, whose gradients `wrap` wants to know the size of
        (`optim.gradient_squares`); 0 is none.
      teacher: how the model as it was before the first step teaches, or None.
      legacy_bypass_side: decode without the side networks, as CKL's released evaluation did.
      trains: False for Initial, the model left as it is.
    """

    name: str
    dense: DenseFactory | None = None
    side: tuple[Side, ...] = ()
    trainable: tuple[str, ...] = EVERYTHING
    tx: Callable[[optax.Schedule], optax.GradientTransformation] | None = None
    wrap: Callable[[optax.GradientTransformation], optax.GradientTransformation] | None = None
    statistics_examples: int = 0
    mixture: Mixture | None = None
    teacher: Distillation | None = None
    legacy_bypass_side: bool = False
    trains: bool = True

    def extend(self, config: Any) -> Any:
        """Returns the model configuration with this method's `dense` and `side` put in.

        Raises:
          UserError: the architecture lacks a seam that the method needs, or a side
            network does not fit it, such as one with a tap outside its stack.
        """
        changes = {}
        if self.dense is not None:
            self.dense.check_names(getattr(config, "projections", ()))
            changes["dense"] = self.dense
        if self.side:
            changes["side"] = self.side
            changes["legacy_bypass_side"] = self.legacy_bypass_side
        fields = {f.name for f in dataclasses.fields(config)}
        missing = sorted(set(changes) - fields)
        if missing:
            raise UserError(
                f"Method {self.name!r} needs the seams {missing}, which {type(config).__name__} "
                "does not have; choose another method or model."
            )
        for side in self.side:
            try:
                side.check(config)
            except UserError as e:
                raise UserError(f"Method {self.name!r}: {e}") from e
        return dataclasses.replace(config, **changes)


def unfrozen(method: Method) -> Method:
    """What a method makes of a model, all of it training by the run's own optimizer and data.

    So TemporalWiki tunes every model alike before it is asked (appendix E).
    """
    added = {"dense", "side"}
    empty = Method(name="")
    others = {seam: getattr(empty, seam) for seam in SEAMS if seam not in added}
    return dataclasses.replace(method, **others, trains=True)


def embedding(trains: bool) -> tuple[str, ...]:
    """The pattern of the token embedding where it trains beside what a method adds, else none."""
    return ("^token_embedder/",) if trains else ()


def combine(first: Method, second: Method, name: str | None = None) -> Method:
    """One method that fills the seams of both, e.g. LoRA with Mix-Review.

    Args:
      first, second: the methods.
      name: for folders, rows and tables; None joins theirs by "+".

    Raises:
      UserError: both fill the same seam.
    """
    empty = Method(name="")
    changes = {}
    for field in SEAMS:
        ours, theirs = getattr(first, field), getattr(second, field)
        default = getattr(empty, field)
        if ours != default and theirs != default:
            raise UserError(f"Methods {first.name!r} and {second.name!r} both fill {field!r}.")
        changes[field] = theirs if ours == default else ours
    bypass = first.legacy_bypass_side or second.legacy_bypass_side
    name = name or f"{first.name}+{second.name}"
    return Method(name=name, legacy_bypass_side=bypass, **changes)


def initial() -> Method:
    """The model before any update: the first row of every table."""
    return Method(name="initial", trains=False)


def vanilla() -> Method:
    """Plain continued training of every parameter (CKL §4.1)."""
    return Method(name="vanilla")
