"""The promotion gate: decides whether an updated model may replace the last one.

A condition such as "unchanged <= 1.05 and changed < 1.0" compares ratios: the new model's
perplexity over the last model's on the same facts. It is parsed into comparisons, and never run.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ckl_jax.analysis import conditions, statistics
from ckl_jax.analysis.conditions import Comparison, Condition
from ckl_jax.analysis.perplexity import Losses, bootstrap, perplexity
from ckl_jax.errors import UserError, nearest
from ckl_jax.papers.temporalwiki.analysis import results
from ckl_jax.papers.temporalwiki.analysis.results import Key, losses_of

NAMES = ("unchanged", "changed", "avg", "updated", "new", "deleted", "ended")
_AVERAGED = ("unchanged", "changed")
_HINT = (
    "compare unchanged, changed, avg, updated, new, deleted or ended with numbers by <, <=, > or "
    ">=, and join by and, or: 'unchanged <= 1.05 and changed < 1.0'"
)


def parse(text: str) -> Comparison | Condition:
    """Reads a condition on ratios; see `conditions.parse`."""
    return conditions.parse(text, NAMES, _HINT)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The decision whether one model may replace another.

    Attributes:
      model, last: what they are called.
      interval: whose facts were probed.
      ratios: by name, those that are known.
      spans: their 95 % intervals over facts, which decide nothing.
      failures: the comparisons that do not hold.
    """

    model: str
    last: str
    interval: str
    ratios: Mapping[str, float]
    spans: Mapping[str, tuple[float, float]]
    failures: tuple[Comparison, ...]

    @property
    def passes(self) -> bool:
        return not self.failures

    def sentence(self) -> str:
        """A sentence with the decision and its numbers."""

        def ratio(name: str) -> str:
            low, high = self.spans[name]
            return f"{self.ratios[name]:.4f} [{low:.3f}, {high:.3f}]"

        facts = f"on the facts of {self.interval}, relative to {self.last}"
        if self.passes:
            known = ", ".join(f"{name} {ratio(name)}" for name in self.ratios)
            return f"{self.model} may ship: {known} ({facts})."
        failed = "; ".join(
            f"{failure} does not hold, as "
            + " and ".join(f"{n} is {ratio(n)}" for n in dict.fromkeys(failure.names()))
            for failure in self.failures
        )
        return f"{self.model} should not ship: {failed} ({facts})."


def ratios(
    new: Mapping[Key, Losses], last: Mapping[Key, Losses], interval: str
) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    """The new model's perplexity over the last one's, for each class of an interval's facts.

    Returns:
      The ratios by name, and their 95 % intervals of the paired bootstrap over facts.

    Raises:
      UserError: the two were evaluated on different facts.
    """
    pairs: dict[str, np.ndarray] = {}  # [2, 1 + B]: both models', then of resampled facts
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
    if all(name in pairs for name in _AVERAGED):
        # Avg is the mean of perplexities, as in Table 3; its ratio is taken after the mean.
        pairs["avg"] = sum(pairs[name] for name in _AVERAGED) / 2
    found = {name: pairs[name][0] / pairs[name][1] for name in NAMES if name in pairs}
    # Column 0 is the estimate, the others are resamples.
    spans = {name: statistics.interval(drawn[1:]) for name, drawn in found.items()}
    return {name: float(drawn[0]) for name, drawn in found.items()}, spans


def judge(
    condition: Comparison | Condition,
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
      UserError: the condition names a class of which there are no facts, or the two models were
        put to different ones.
    """
    known, spans = ratios(new, last, interval)
    if missing := [name for name in condition.names() if name not in known]:
        raise UserError(
            f"The condition is on {missing[0]} facts, but {names[0]} and {names[1]} were not both "
            f"put to any of {interval}; they were to {', '.join(known) or 'none'}."
        )
    return Verdict(*names, interval, known, spans, tuple(condition.failures(known)))


def compare_runs(
    model: str | Path, last: str | Path, condition: Comparison | Condition, interval: str = ""
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
    if interval and interval not in common:
        raise UserError(
            f"{model} and {last} were not both put to facts of {interval!r}; they were to "
            f"{', '.join(common)}.{nearest(interval, common)}"
        )
    return judge(condition, new, old, interval or common[-1], (str(model), str(last)))


def compare_study(
    root: str | Path, condition: Comparison | Condition, methods: tuple[str, ...] = ()
) -> list[Verdict]:
    """The verdict on each method's newest model against its previous one, on the newest interval.

    Args:
      root: folder of `ckl temporalwiki`.
      condition: of `parse`.
      methods: which; () is all.

    Raises:
      UserError: a method has no model of the newest interval.
    """
    study = results.load(root)
    newest = study.intervals[-1]
    verdicts = []
    for method in methods or study.methods:
        model = study.models.get(method, {}).get(newest)
        last = study.before(model) if model else None
        if last is None:
            raise UserError(
                f"{root} has not both the model of {method!r} after {newest} and the one before "
                "it; start `ckl temporalwiki` again."
            )
        label = results.method_label(method)
        before = f"{label} after {last.interval}" if last.interval else "Initial"
        names = (f"{label} after {newest}", before)
        verdicts.append(judge(condition, model.losses, last.losses, newest, names))
    return verdicts
