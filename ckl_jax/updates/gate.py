"""The verdict on an update: whether a condition holds for the scores of the two models.

A condition such as "new_gain > 0 and kept_loss <= 0.05 at n >= 50" must hold of the whole 95 %
interval of each score, and each score it names must be of so many items; with fewer there is not
enough evidence, whatever they say.
"""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ckl_jax.analysis import conditions, statistics

SCORES = {
    "new": "new facts answered right after the update",
    "new_gain": "the same, less those answered right before it",
    "changed": "changed facts answered right after the update",
    "changed_gain": "the same, less those answered right before it",
    "stale": "changed facts answered as before the change, after the update",
    "kept": "facts of older text answered right after the update",
    "kept_loss": "those answered right before it, less those after it",
    "fuar": "kept_loss over new_gain and changed_gain together (CKL's FUAR); 0 is best",
    "new_text": "perplexity of held-out new text, after over before",
    "old_text": "perplexity of held-out old text, after over before",
}
DEFAULT = "new_gain > 0 and kept_loss <= 0.05 at n >= 50"
SHIP, HOLD, TOO_FEW = "ship", "do not ship", "not enough evidence"
EXIT_CODES = {SHIP: 0, HOLD: 1, TOO_FEW: 3}
_HINT = f"compare {', '.join(SCORES)} with numbers, as in {DEFAULT!r}"
_AT = re.compile(r"^(.*?)\s+at\s+n\s*>=\s*(\d+)\s*$", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Score:
    """A number with its 95 % interval over items.

    Attributes:
      value, low, high: a fraction, a difference of fractions, or a ratio; a ratio is infinite where
        nothing was gained.
      n: items, or pieces of text.
    """

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        value, low, high = map(told, (self.value, self.low, self.high))
        return f"{value} [{low}, {high}], n = {self.n:,}"

    def json(self) -> dict[str, float | int | None]:
        """Its attributes as JSON values; infinity becomes None."""
        fields = dataclasses.asdict(self)
        return {name: None if math.isinf(x) else x for name, x in fields.items()}


def told(value: float | None) -> str:
    """Three decimals; "no gain" for infinity and for None, as which JSON has it."""
    return "no gain" if value is None or math.isinf(value) else f"{value:.3f}"


@dataclasses.dataclass(frozen=True)
class Gate:
    """A condition, and the number of items that each of its scores needs."""

    text: str
    condition: Any
    min_items: int

    @classmethod
    def parse(cls, text: str) -> "Gate":
        """Parses "CONDITION at n >= N"; N defaults to 1.

        Raises:
          UserError: it is no such condition.
        """
        match = _AT.match(text)
        condition, least = (match[1], int(match[2])) if match else (text, 1)
        return cls(text, conditions.parse(condition, tuple(SCORES), _HINT), max(1, least))

    def judge(self, scores: Mapping[str, Score]) -> dict[str, Any]:
        """The verdict: {verdict, condition, reasons, scores}."""
        names = dict.fromkeys(self.condition.names())
        have = {name: scores[name].n if name in scores else 0 for name in names}
        few = [f"{name} is of {n} items" for name, n in have.items() if n < self.min_items]
        if few:
            reasons = [f"{', '.join(few)}; the condition asks for {self.min_items}"]
            if not have.get("kept_loss", 1):
                reasons.append("what is to be kept is in older text: --since, or earlier updates")
            verdict = TOO_FEW
        else:
            failures = self.condition.failures({n: (scores[n].low, scores[n].high) for n in names})
            verdict = HOLD if failures else SHIP
            shown = {name: f"{name} {scores[name]}" for name in names}
            reasons = [
                f"{failure} does not hold of {' and '.join(shown[n] for n in failure.names())}"
                for failure in failures
            ] or list(shown.values())
        found = {name: score.json() for name, score in scores.items()}
        return {"verdict": verdict, "condition": self.text, "reasons": reasons, "scores": found}


def scores(
    tags: Sequence[str], right: np.ndarray, old: np.ndarray, texts: Mapping[str, np.ndarray]
) -> dict[str, Score]:
    """All scores for which there are items.

    Args:
      tags: of N items.
      right: [2, N] whether each was answered right before and after.
      old: [2, N] whether with the old answer.
      texts: {"new" or "old": [2, pieces, 2] nats and tokens before and after}.
    """
    found: dict[str, Score] = {}
    gains, drawn = {}, {}
    for i, tag in enumerate(dict.fromkeys(tags)):
        mine = np.array([t == tag for t in tags])
        was, now = (row[mine].astype(float) for row in right)
        found[tag] = _mean(now)
        gains[tag] = now - was
        drawn[tag] = statistics.bootstrap_means(gains[tag][None], seed=i)[0]
        if tag == "kept":
            found["kept_loss"] = _mean(was - now)
        else:
            found[f"{tag}_gain"] = _mean(gains[tag])
        if tag == "changed":
            found["stale"] = _mean(old[1][mine].astype(float))
    if "kept" in gains and len(gains) > 1:
        found["fuar"] = _fuar(gains, drawn)
    for name, losses in texts.items():
        if losses.shape[1]:
            found[f"{name}_text"] = _ratio(losses)
    return {name: found[name] for name in SCORES if name in found}


def _mean(values: np.ndarray) -> Score:
    drawn = statistics.bootstrap_means(values[None])[0]
    return Score(float(values.mean()), *statistics.interval(drawn), len(values))


def _fuar(gains: Mapping[str, np.ndarray], drawn: Mapping[str, np.ndarray]) -> Score:
    """FUAR with its interval."""
    updated, acquired = (tag if tag in gains else None for tag in ("changed", "new"))
    tasks = ["kept"], updated, acquired
    means = {tag: values.mean(keepdims=True) for tag, values in gains.items()}
    zeros = dict.fromkeys(gains, np.zeros(1))
    (value,) = statistics.fuar_samples([zeros, means], *tasks)
    low, high = statistics.interval(statistics.fuar_samples([zeros, drawn], *tasks))
    learned = sum(len(values) for tag, values in gains.items() if tag != "kept")
    return Score(float(value), low, high, min(learned, len(gains["kept"])))


def _ratio(losses: np.ndarray) -> Score:
    """Ratio of perplexities with its interval; text chunks are resampled, paired over models."""
    (was, tokens), (now, _) = losses[0].T, losses[1].T
    generator = np.random.default_rng(0)
    pieces = len(tokens)
    drawn = generator.integers(0, pieces, (statistics.SAMPLES, pieces))
    ratios = np.exp((now - was)[drawn].sum(1) / tokens[drawn].sum(1))
    value = float(np.exp((now - was).sum() / tokens.sum()))
    return Score(value, *statistics.interval(ratios), pieces)
