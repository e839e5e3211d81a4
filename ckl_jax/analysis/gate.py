"""The gate: whether a condition holds for the scores of an updated model.

A condition such as "new_gain > 0 and kept_loss <= 0.05 at n >= 50" must hold of the whole 95 %
interval of each score, and each score it names must be of so many items; with fewer there is not
enough evidence, whatever they say.
"""

import dataclasses
import math
import re
from collections.abc import Collection, Mapping
from typing import Any

from ckl_jax.analysis import conditions, labels
from ckl_jax.errors import UserError

SHIP, HOLD, TOO_FEW = "ship", "do not ship", "not enough evidence"
EXIT_CODES = {SHIP: 0, HOLD: 1, TOO_FEW: 3}
_LEAST = 2  # items of which there is an interval
_AT = re.compile(r"^(.*?)\s+at\s+n\s*>=\s*(\d+)\s*$", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Score:
    """A number with its 95 % interval over items.

    Attributes:
      value, low, high: a fraction, a difference of fractions, or a ratio; a ratio is infinite where
        nothing was gained.
      n: items, or chunks of text.
    """

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        value, low, high = map(decimals, (self.value, self.low, self.high))
        return f"{value} [{low}, {high}], n = {self.n:,}"

    def json(self) -> dict[str, float | int | None]:
        """Its attributes as JSON values; infinity becomes None."""
        fields = dataclasses.asdict(self)
        return {name: None if math.isinf(x) else x for name, x in fields.items()}


def decimals(value: float | None) -> str:
    """Three decimals; "no gain" for infinity and for None, as which JSON has it."""
    return "no gain" if value is None or math.isinf(value) else f"{value:.3f}"


@dataclasses.dataclass(frozen=True)
class Gate:
    """A condition, and the number of items that each of its scores needs."""

    text: str
    condition: conditions.Comparison | conditions.Condition
    min_items: int  # items of each score that the condition names
    advice: Mapping[str, str]  # for names of scores, what to do where there is no item

    @classmethod
    def parse(
        cls,
        text: str,
        names: Collection[str],
        hint: str,
        min_items: int = 1,
        advice: Mapping[str, str] | None = None,
        bounds: Mapping[str, tuple[float, float]] | None = None,
    ) -> "Gate":
        """Parses "CONDITION at n >= N".

        Args:
          hint: what to give, for the message.
          min_items: N where it is not given.
          advice: see the attributes.
          bounds: {name: (lowest, highest value)} of the scores that have some.

        Raises:
          UserError: it is no such condition, or can hold of no values within the bounds.
        """
        match = _AT.match(text)
        condition, least = (match[1], int(match[2])) if match else (text, min_items)
        parsed = conditions.parse(condition, tuple(names), hint)
        anything = dict.fromkeys(names, (-math.inf, math.inf)) | dict(bounds or {})
        for failure in parsed.impossible(anything):
            ranges = (f"{n} is {anything[n][0]:g} to {anything[n][1]:g}" for n in failure.names())
            alone = failure.impossible(anything)
            why = f", but {' and '.join(ranges)}" if alone else " contradicts its other parts"
            raise UserError(
                f"The condition {text!r} can never hold: {failure}{why}; give another number."
            )
        return cls(text, parsed, max(1, least), advice or {})

    def too_few(self, items: Mapping[str, int]) -> list[str]:
        """Why numbers of items by score are not enough; [] if they are."""
        have = {name: items.get(name, 0) for name in dict.fromkeys(self.condition.names())}
        least = max(self.min_items, _LEAST)
        few = [f"{name} is of {labels.count(n, 'item')}" for name, n in have.items() if n < least]
        if not few:
            return []
        more = [self.advice[name] for name, n in have.items() if not n and name in self.advice]
        asked = any(n < self.min_items for n in have.values())
        why = (
            f"the condition asks for {self.min_items:,}" if asked else f"an interval needs {_LEAST}"
        )
        return [f"{', '.join(few)}; {why}", *more]

    def judge(self, scores: Mapping[str, Score]) -> dict[str, Any]:
        """The verdict: {verdict, condition, reasons, scores}."""
        names = dict.fromkeys(self.condition.names())
        if reasons := self.too_few({name: score.n for name, score in scores.items()}):
            verdict = TOO_FEW
        else:
            failures = self.condition.failures({n: (scores[n].low, scores[n].high) for n in names})
            verdict = HOLD if failures else SHIP
            shown = {name: f"{name} {scores[name]}" for name in names}
            reasons = [
                f"{failure} does not hold of {' and '.join(shown[n] for n in failure.names())}"
                for failure in failures
            ] or list(shown.values())
        numbers = {name: score.json() for name, score in scores.items()}
        return {"verdict": verdict, "condition": self.text, "reasons": reasons, "scores": numbers}
