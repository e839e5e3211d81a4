"""The settings of `ckl update`."""

import dataclasses
import itertools
import math
import shlex
from typing import Any

from ckl_jax import checks
from ckl_jax.data.facts.dated_facts import check_day
from ckl_jax.data.text.document_files import Fields
from ckl_jax.errors import UserError
from ckl_jax.options import Bindings, Facts, SomeNames
from ckl_jax.updates import scores

_SHORTEST = 8  # tokens of a row: in fewer no sentence has a context


@dataclasses.dataclass(frozen=True, kw_only=True)
class Update:
    """Settings of an update: model, text, training and gate.

    Attributes:
      out: Folder of all updates of this model.
      documents: Text: a .jsonl, .csv or .parquet file, or a folder of these, .txt and .md.
      model: Hugging Face folder or name to begin with; later updates begin with the current one.
      since: Day (YYYY-MM-DD) from which text is new; earlier text says what is to be kept, and only
        methods that review train on it.
      facts: Your own questions: a .jsonl, .csv or .parquet file with the fields question, answer
        and date, the folder of a relational dataset, such as BEAR, or a Wikidata dump.
      decisions: File that the page of --review exported; items that it drops are not used.
      text_field: Name of the field with the text.
      date_field: Name of the field with the day; without one the file's day counts.
      title_field: Name of the field with the title.
      method: How to train: a bundled file methods/METHOD.gin, such as lora, vanilla, mix_review.
      epochs: Passes over the new text; by default 4, of much text 1.
      batch_size: Rows of a step; by default chosen by the length of the text.
      length: Tokens of a row; by default 512 or the model's positions.
      learning_rate: Peak; by default by the model's size and the method.
      max_items: Maximum number of questions of each kind (new, changed, kept).
      adapter: Of a LoRA method, write its adapters as a PEFT folder too, beside the model.
      harness: Tasks of lm-evaluation-harness to run before and after, such as lambada_openai.
      harness_tasks: Folder with task files of your own for it.
      harness_limit: Items of each of its tasks, at most.
      ship_if: Condition of the verdict.
      on_ship: Command to run with the model's folder when it ships.
      keep: Last updates whose models stay on disk, beside the current one and, from 2 on, the one
        that a rollback goes back to.
      seed: Random seed of the choice of facts and of training.
      bindings: Gin bindings for the training, such as "WEIGHT_DECAY = 0.1".
    """

    out: str
    documents: str | None = None
    model: str | None = None
    since: str = ""
    facts: Facts = None
    decisions: str | None = None
    text_field: str = "text"
    date_field: str = "date"
    title_field: str = "title"
    method: str = "lora"
    epochs: int | None = None
    batch_size: int | None = None
    length: int | None = None
    learning_rate: float | None = None
    max_items: int = 500
    adapter: bool = False
    harness: SomeNames = ()
    harness_tasks: str | None = None
    harness_limit: int | None = None
    ship_if: str = scores.DEFAULT
    on_ship: str | None = None
    keep: int = 2
    seed: int = 0
    bindings: Bindings = ()

    def __post_init__(self) -> None:
        checks.require_int(1, **{"--max-items": self.max_items, "--keep": self.keep})
        checks.require_int(0, **{"--seed": self.seed})
        checks.require_int(_SHORTEST, **{"--length": self.length})
        for name in ("epochs", "batch_size", "harness_limit"):
            checks.require_int(1, **{f"--{name.replace('_', '-')}": getattr(self, name)})
        if not self.harness and (self.harness_tasks is not None or self.harness_limit is not None):
            raise UserError("--harness-tasks and --harness-limit need --harness with tasks to run.")
        if self.learning_rate is not None and not 0 < self.learning_rate < math.inf:
            raise UserError(f"--learning-rate is {self.learning_rate}; give a number above 0.")
        # By the default one a trial of few items has too few.
        if (why := self.unreachable) and self.ship_if != scores.DEFAULT:
            raise UserError(why)
        try:
            empty = self.on_ship is not None and not shlex.split(self.on_ship)
        except ValueError as e:
            raise UserError(f"--on-ship {self.on_ship!r} is no command: {e}.") from e
        if empty:
            raise UserError("--on-ship is empty; give a command, or leave it out.")
        if self.since:
            check_day(self.since, "--since")

    @property
    def unreachable(self) -> str:
        """Why the condition can never hold, or ""."""
        return scores.unreachable(scores.parse(self.ship_if), self.max_items)

    @property
    def command(self) -> str:
        """The `ckl update` that has these settings."""
        given = (
            (field.name, value)
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) != field.default
        )
        return " ".join(["ckl update", *itertools.starmap(as_option, given)])

    @property
    def fields(self) -> Fields:
        return Fields(text=self.text_field, date=self.date_field, title=self.title_field)


def flag(name: str) -> str:
    """The option of the command for a setting."""
    return "--gin.NAME" if name == "bindings" else f"--{name.replace('_', '-')}"


def as_option(name: str, value: Any) -> str:
    """How the command is given the value of a setting; "" for one that is left out."""
    if value is False or not (value or value == 0):
        return ""
    if name == "bindings":
        return shlex.join(f"--gin.{binding}" for binding in value)
    words = value if isinstance(value, tuple | list) else [str(value)]
    return flag(name) if value is True else f"{flag(name)} {shlex.quote(','.join(words))}"
