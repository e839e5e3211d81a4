"""Scores of an update, and the gate that decides by them whether it ships."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ckl_jax.analysis import statistics
from ckl_jax.analysis.gate import Gate, Score

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
TEXTS = ("new_text", "old_text")
_FRACTION, _DIFFERENCE, _RATIO = (0.0, 1.0), (-1.0, 1.0), (0.0, math.inf)
_BOUNDS = {
    **dict.fromkeys(("new", "changed", "stale", "kept"), _FRACTION),
    **dict.fromkeys(("new_gain", "changed_gain", "kept_loss"), _DIFFERENCE),
    **dict.fromkeys(("fuar", *TEXTS), _RATIO),
}
PIECES = 300  # of held-out text, at most
DEFAULT = "new_gain > 0 and kept_loss <= 0.05 at n >= 50"
_HINT = f"compare {', '.join(SCORES)} with numbers, as in {DEFAULT!r}"
_ADVICE = {
    "kept_loss": "what is to be kept is stated twice in older text (--since, or earlier updates), "
    "or in --facts"
}


def parse(text: str) -> Gate:
    """Reads a condition on scores; see `Gate.parse`."""
    return Gate.parse(text, SCORES, _HINT, advice=_ADVICE, bounds=_BOUNDS)


def unreachable(gate: Gate, max_items: int) -> str:
    """Says that a score of a condition can never be of as many items as it asks for, or ""."""
    for name in gate.condition.names():
        most, why = (PIECES, "pieces of text") if name in TEXTS else (max_items, "(--max-items)")
        if gate.min_items > most:
            return (
                f"The condition {gate.text!r} can never hold: it asks for {gate.min_items:,} "
                f"items, and {name} is of at most {most:,} {why}; give a smaller number."
            )
    return ""


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
    estimates: dict[str, Score] = {}
    gains, drawn = {}, {}
    for i, tag in enumerate(dict.fromkeys(tags)):
        mine = np.array([t == tag for t in tags])
        was, now = (row[mine].astype(float) for row in right)
        estimates[tag] = _mean(now)
        gains[tag] = now - was
        drawn[tag] = statistics.bootstrap_means(gains[tag][None], seed=i)[0]
        if tag == "kept":
            estimates["kept_loss"] = _mean(was - now)
        else:
            estimates[f"{tag}_gain"] = _mean(gains[tag])
        if tag == "changed":
            estimates["stale"] = _mean(old[1][mine].astype(float))
    if "kept" in gains and len(gains) > 1:
        estimates["fuar"] = _fuar(gains, drawn)
    for name, losses in texts.items():
        if losses.shape[1]:
            estimates[f"{name}_text"] = _ratio(losses)
    return {name: estimates[name] for name in SCORES if name in estimates}


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
