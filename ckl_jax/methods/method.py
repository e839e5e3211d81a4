"""A method is a record of seams, each the identity by default.

| seam                 | fields              | what it sets                | used by            |
| -------------------- | ------------------- | --------------------------- | ------------------ |
| projection factory   | `dense`             | the model's projections     | LoRA               |
| side network         | `side`              | networks over hidden states | K-Adapter, Modular |
| trainable leaves     | `trainable`         | patterns over paths         | all that freeze    |
| optax transformation | `tx`, `wrap`        | how gradients move leaves   | RecAdam, EWC, EMA  |
| data mixture         | `mixture`           | earlier data, by epoch      | Mix-Review, replay |
| loss                 | `loss`              | what is minimised           | LwF                |
| initial state        | `init_params`,      | new leaves, and the         | DoRA, EWC          |
|                      | `init_opt_state`    | optimizer's state           |                    |

Vanilla training is the empty record. The runner knows this record and no method by name; two
methods that fill different seams combine (`combine`). An optax state may also hold parameters to
evaluate and save in place of those that train, as EMA's does: see `optim.averaging.swap`.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import jax
import optax

from ckl_jax import checks
from ckl_jax.data.tasks.epochs import Mixture
from ckl_jax.errors import UserError
from ckl_jax.models.base import BaseTransformerModel
from ckl_jax.models.layers import DenseFactory
from ckl_jax.models.side import Side

# The empty pattern is found in every path.
EVERYTHING = ("",)
# The fields that two methods must not both set; `name`, `trains` and the legacy flag are none.
SEAMS = (
    "dense",
    "side",
    "trainable",
    "tx",
    "wrap",
    "mixture",
    "loss",
    "init_params",
    "init_opt_state",
    "reads_earlier_data",
)

# (parameters, the base model's before the first step, batch, dropout key) -> (summed loss, sums)
LossFn = Callable[
    [Any, Any, Mapping[str, jax.Array], jax.Array | None], tuple[jax.Array, dict[str, jax.Array]]
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """The state of a run before its first step, for `Method.init_opt_state`.

    Attributes:
      model: with the method in it.
      trainable, frozen: the two parts of its parameters, on the devices.
      examples: `n -> batches` of n examples of the earlier corpus, on the devices.
    """

    model: BaseTransformerModel
    trainable: Any
    frozen: Any
    examples: Callable[[int], Iterator[Mapping[str, jax.Array]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method:
    """How a model is updated.

    Attributes:
      name: for folders, rows and tables.
      dense: projection factory, or None to keep the model's own.
      side: side networks to add, in order.
      trainable: patterns over parameter paths: regular expressions, searched in the whole path. The
        last one that matches decides, and one that begins with "!" freezes:
        `("^decoder/", "!norm/")` trains the decoder but its norms, `("", "!^encoder/")`
        everything but the encoder. Each must match some path (see `trees.partition.select`).
      tx: `learning rate schedule -> optax transformation`, or None for the run's own optimizer.
      wrap: `optax transformation -> optax transformation`, around `tx` or the run's own optimizer
        with its clip; or None.
      mixture: review of earlier data by epoch, or None.
      loss: `(model with the method, base model) -> LossFn`, or None for the model's own. The sums
        are those of `BaseTransformerModel.loss_fn`. The loss is a sum over the tokens of a
        micro-batch, which is divided by the `denominator` of all of them: multiply a penalty on
        parameters by `sums["denominator"]`, or it counts once per micro-batch. The second argument
        of a `LossFn` is the parameters of the base model as they were before the first step,
        without gradient.
      init_params: `({path: array}, paths) -> {path: array}`: values for those of `paths` that
        depend on restored parameters. `paths` are the leaves that no checkpoint has; the others of
        them keep their initialisers. Traced under `jax.jit`.
      init_opt_state: `(optimizer state, Start) -> optimizer state` before the first step. What it
        returns is in every checkpoint, so a resumed run does not call it.
      reads_earlier_data: whether `init_opt_state` reads examples of the earlier corpus.
      legacy_bypass_side: decode without the side networks, as CKL's released evaluation did.
      trains: False for Initial, the model left as it is.

    Raises:
      UserError: a field is of another kind.
    """

    name: str
    dense: DenseFactory | None = None
    side: tuple[Side, ...] = ()
    trainable: tuple[str, ...] = EVERYTHING
    tx: Callable[[optax.Schedule], optax.GradientTransformation] | None = None
    wrap: Callable[[optax.GradientTransformation], optax.GradientTransformation] | None = None
    mixture: Mixture | None = None
    loss: Callable[[BaseTransformerModel, BaseTransformerModel], LossFn] | None = None
    init_params: (
        Callable[[Mapping[str, jax.Array], Collection[str]], dict[str, jax.Array]] | None
    ) = None
    init_opt_state: Callable[[Any, Start], Any] | None = None
    reads_earlier_data: bool = False
    legacy_bypass_side: bool = False
    trains: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip() or "/" in self.name:
            raise UserError(f"Method.name is {self.name!r}; give a name without /, such as 'lora'.")
        of = f"of method {self.name!r}"
        checks.require_names(empty=True, **{f"trainable {of}": self.trainable})
        if not isinstance(self.side, Sequence) or not all(isinstance(s, Side) for s in self.side):
            raise UserError(f"side {of} is {self.side!r}; give side networks, such as (my_side,).")
        for seam, kind in (("dense", DenseFactory), ("mixture", Mixture)):
            if not isinstance(value := getattr(self, seam), (kind, type(None))):
                raise UserError(f"{seam} {of} is {value!r}; give a {kind.__name__} or None.")
        for seam in ("tx", "wrap", "loss", "init_params", "init_opt_state"):
            value = getattr(self, seam)
            if value is not None and not callable(value):
                raise UserError(f"{seam} {of} is {value!r}; give a function or None.")
        for flag in ("reads_earlier_data", "legacy_bypass_side", "trains"):
            checks.require_bool(**{f"{flag} {of}": getattr(self, flag)})

    def extend(self, config: Any) -> Any:
        """Returns the model configuration with this method's `dense` and `side` put in.

        Raises:
          UserError: the architecture lacks a seam that the method needs, or a side
            network does not fit it, such as one with a tap outside its stack.
        """
        # Only what the method sets, so that an architecture need not have the other seams.
        changes = {}
        if self.dense is not None:
            self.dense.check_names(getattr(config, "projections", ()))
            changes["dense"] = self.dense
        if self.side:
            changes["side"] = self.side
            changes["legacy_bypass_side"] = self.legacy_bypass_side
        # A configuration class without the field lacks the seam, for example `side`.
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
    """The same model, with all parameters trained by the run's own optimizer and data.

    TemporalWiki light-tunes every model so before evaluation (appendix E).
    """
    # The parameters that the method added must stay, or its checkpoint would not fit the model.
    added = {"dense", "side"}
    others = {seam: getattr(Method, seam) for seam in SEAMS if seam not in added}
    return dataclasses.replace(method, **others, trains=True)


def embedding(trains: bool) -> tuple[str, ...]:
    """The pattern of token embeddings where it trains beside what a method adds, else none."""
    return (r"^(decoder_)?token_embedder/",) if trains else ()


def combine(first: Method, second: Method, name: str | None = None) -> Method:
    """One method that fills the seams of both, e.g. LoRA with Mix-Review.

    Args:
      name: for folders, rows and tables; None joins theirs by "+".

    Raises:
      UserError: both fill the same seam.
    """
    changes = {}
    for field in SEAMS:
        ours, theirs = getattr(first, field), getattr(second, field)
        # Equal to the default means "does not fill this seam".
        default = getattr(Method, field)
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
