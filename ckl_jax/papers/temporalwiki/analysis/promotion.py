"""The promotion gate: decides whether an updated model may replace the last one.

A condition such as "unchanged <= 1.05 and changed < 1.0 at n >= 50" compares ratios: the new
model's perplexity over the last model's on the same facts. It must hold of whole 95 % intervals,
and of at least so many facts.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax import files
from ckl_jax.analysis import gate, statistics
from ckl_jax.analysis.gate import Gate, Score
from ckl_jax.analysis.perplexity import Losses, bootstrap, perplexity
from ckl_jax.errors import UserError, refuse_unknown
from ckl_jax.papers.temporalwiki.analysis import results
from ckl_jax.papers.temporalwiki.analysis.results import Key, losses_of

NAMES = ("unchanged", "changed", "avg", "updated", "new", "deleted", "ended")
VERDICT = "verdict.json"
MIN_FACTS = 20  # of a class, where the condition gives no number
_AVERAGED = ("unchanged", "changed")
_HINT = (
    "compare unchanged, changed, avg, updated, new, deleted or ended with numbers by <, <=, > or "
    ">=, and join by and, or: 'unchanged <= 1.05 and changed < 1.0 at n >= 50'"
)
_SAYS = {
    gate.SHIP: "may ship",
    gate.HOLD: "should not ship",
    gate.TOO_FEW: "has not enough evidence to ship",
}


def parse(text: str) -> Gate:
    """Reads a condition on ratios; see `Gate.parse`."""
    ratios = dict.fromkeys(NAMES, (0.0, math.inf))
    return Gate.parse(text, NAMES, _HINT, MIN_FACTS, bounds=ratios)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The decision whether one model may replace another."""

    # model, last: what they are called; "" if no model is needed to decide
    model: str
    last: str
    interval: str  # whose facts were probed
    found: Mapping[str, Any]  # of `Gate.judge`

    @property
    def verdict(self) -> str:
        return self.found["verdict"]

    def sentence(self) -> str:
        """A sentence with the decision and its numbers."""
        versus = f", relative to {self.last}" if self.last else ""
        why = "; ".join(self.found["reasons"])
        says = f"{self.model or 'An update'} {_SAYS[self.verdict]}"
        return f"{says}: {why} (on the facts of {self.interval}{versus})."

    def json(self) -> dict[str, Any]:
        names = {"model": self.model, "relative_to": self.last, "interval": self.interval}
        return {**names, **self.found, "sentence": self.sentence()}


def ratios(
    new: Mapping[Key, Losses], last: Mapping[Key, Losses], interval: str
) -> dict[str, Score]:
    """The new model's perplexity over the last one's, for each class of an interval's facts.

    Returns:
      The ratios by name, with their 95 % intervals of the paired bootstrap over facts.

    Raises:
      UserError: the two were evaluated on different facts.
    """
    pairs: dict[str, np.ndarray] = {}  # [2, 1 + B]: both models', then of resampled facts
    count: dict[str, int] = {}
    for name in NAMES:
        key = (interval, name)
        if key in new and key in last:
            # Equal numbers of tokens for each fact, in order: the same facts and the same
            # vocabulary.
            if list(new[key].tokens) != list(last[key].tokens):
                raise UserError(
                    f"The two models were evaluated on different {name} facts of {interval}, or "
                    "have other vocabularies; probe both with the same files."
                )
            both = new[key], last[key]
            values = np.array([[perplexity(losses)] for losses in both])
            pairs[name] = np.concatenate([values, bootstrap(both)], axis=1)
            count[name] = len(new[key].tokens)
    if all(name in pairs for name in _AVERAGED):
        # Avg is the mean of perplexities, as in Table 3; its ratio is taken after the mean.
        pairs["avg"] = sum(pairs[name] for name in _AVERAGED) / 2
        count["avg"] = min(count[name] for name in _AVERAGED)
    scores = {}
    for name in pairs:
        value, *drawn = pairs[name][0] / pairs[name][1]  # the estimate, then resamples
        scores[name] = Score(float(value), *statistics.interval(np.array(drawn)), count[name])
    return scores


def judge(
    condition: Gate,
    new: Mapping[Key, Losses],
    last: Mapping[Key, Losses],
    interval: str,
    names: tuple[str, str],
) -> Verdict:
    """Compares two models.

    Args:
      condition: of `parse`.
      new, last: their losses on facts, by (interval, class).
      interval: whose facts count.
      names: what the two are called.

    Raises:
      UserError: the two models were evaluated on different facts.
    """
    return Verdict(*names, interval, condition.judge(ratios(new, last, interval)))


def too_few(condition: Gate, facts: Mapping[str, int]) -> dict[str, Any]:
    """The verdict of `Gate.judge` on numbers of facts by class; {} if they are enough.

    Where it is known before any training that there is not enough evidence, none is needed.
    """
    facts = {**dict.fromkeys(_AVERAGED, 0), **facts}  # where nobody wrote facts there are none
    facts["avg"] = min(facts[name] for name in _AVERAGED)
    # Parts of a class ("updated") are counted once models have been evaluated on them.
    known = {name: facts.get(name, condition.min_items) for name in NAMES}
    reasons = condition.too_few(known)
    return _not_enough(condition, reasons) if reasons else {}


def _not_enough(condition: Gate, reasons: Sequence[str]) -> dict[str, Any]:
    """The verdict of `Gate.judge` where there are no scores."""
    return {"verdict": gate.TOO_FEW, "condition": condition.text, "reasons": reasons, "scores": {}}


def write_verdicts(verdicts: Sequence[Verdict], root: str | Path) -> Path:
    """Writes verdict.json; returns its path."""
    path = Path(root) / VERDICT
    # The interval of a single fact has no ends.
    files.write_json(path, files.finite({"verdicts": [verdict.json() for verdict in verdicts]}))
    return path


def compare_runs(
    model: str | Path, last: str | Path, condition: Gate, interval: str = ""
) -> Verdict:
    """The verdict on a finished run against another, on the facts of the last interval.

    Args:
      model, last: MODEL_DIRs with rows of facts.
      condition: of `parse`.
      interval: whose facts count; "" is the last on which both were evaluated.

    Raises:
      UserError: a run has no rows of facts, or there is no such interval.
    """
    new, old = losses_of(model), losses_of(last)
    common = list(dict.fromkeys(key[0] for key in new if key in old))
    if not common:
        raise UserError(f"{model} and {last} were not put to facts of the same interval.")
    if interval:
        said = f"{model} and {last} were not both put to facts of {interval!r}; they were to"
        refuse_unknown(interval, common, said)
    return judge(condition, new, old, interval or common[-1], (str(model), str(last)))


def compare_study(
    root: str | Path,
    condition: Gate,
    methods: tuple[str, ...] = (),
    untrained: Mapping[str, str] | None = None,
) -> list[Verdict]:
    """The verdict on each method's newest model against its previous one, on the newest interval.

    Args:
      condition: of `parse`.
      methods: which; () is all.
      untrained: {method: why it has no model of the newest interval}, which is not enough evidence.

    Raises:
      UserError: another method has no model of the newest interval.
    """
    study = results.load(root)
    newest = study.intervals[-1]
    verdicts = []
    for method in methods or study.methods:
        label = results.method_label(method)
        if why := (untrained or {}).get(method):
            verdicts.append(Verdict(label, "", newest, _not_enough(condition, [why])))
            continue
        model = study.models.get(method, {}).get(newest)
        if model is None:
            raise UserError(
                f"{root} has no model of {method!r} after {newest}; start `ckl temporalwiki` again."
            )
        last = study.before(model)
        before = f"{label} after {last.interval}" if last.interval else "Initial"
        names = (f"{label} after {newest}", before)
        verdicts.append(judge(condition, model.losses, last.losses, newest, names))
    return verdicts
