"""Perplexities of rows, by every formula that TemporalWiki's paper and code have (section 4.2).

A row says the summed loss of a fact's tokens and how many they were. Perplexity is a function of
the rows of one probe:

    token_micro         exp(sum of losses / sum of tokens)
    batch_mean_legacy   exp(mean over batches of that quotient), 32 rows each in the order of the
                        file: the released code, whose number depends on order and batch size
    per_fact_mean       mean over facts of exp(loss / tokens): the paper's footnote 6
    object_only         token_micro of the object's tokens

FUAR and transfer are defined on scores that are better the higher they are. `score` is minus the
logarithm of the perplexity, nats a token: a gap of scores is the logarithm of a ratio of
perplexities, and so FUAR does not depend on how high the perplexities of a probe are.
"""

import dataclasses
import decimal
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ckl_jax.analysis import statistics
from ckl_jax.analysis.statistics import SAMPLES, bootstrap_means
from ckl_jax.errors import UserError, refuse_unknown

FORMULAS = ("token_micro", "batch_mean_legacy", "per_fact_mean", "object_only")
LEGACY_BATCH = 32
_COLUMNS = ("nll", "tokens", "object_nll", "object_tokens")
_LARGEST = 700.0  # exp of more is not a float


@dataclasses.dataclass(frozen=True)
class Losses:
    """The losses of one probe as columns; N facts in file order."""

    nll: np.ndarray  # [N] nats, summed over the counted tokens
    tokens: np.ndarray  # [N] how many they are
    # object_nll, object_tokens: [N] the same of the object
    object_nll: np.ndarray
    object_tokens: np.ndarray
    kinds: tuple[str, ...] = ()  # [N] unchanged, updated, new or deleted; "" if unknown

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> "Losses":
        """The columns of rows.

        Raises:
          UserError: a row has no loss, or one that is not a number or not finite.
        """
        rows = list(rows)
        for row in rows:
            if bad := [n for n in _COLUMNS if not _is_number(row.get(n))]:
                raise UserError(
                    f"The fact {row.get('item')!r} of {row.get('probe')} has {bad[0]} = "
                    f"{row.get(bad[0])!r}; probe the model again."
                )
        # float64: sums over 10,000 facts of float32 would lose digits that tables print.
        columns = (np.array([row[name] for row in rows], np.float64) for name in _COLUMNS)
        return cls(*columns, tuple(row.get("kind", "") for row in rows))

    def __len__(self) -> int:
        return len(self.nll)

    def only(self, kind: str) -> "Losses":
        """The facts of one kind."""
        chosen = np.array([k == kind for k in self.kinds], bool)
        columns = (getattr(self, name)[chosen] for name in _COLUMNS)
        return Losses(*columns, (kind,) * int(chosen.sum()))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def perplexity(
    losses: Losses, formula: str = "token_micro", batch_size: int = LEGACY_BATCH
) -> float:
    """The perplexity of a probe.

    Args:
      formula: one of `FORMULAS`.
      batch_size: of `batch_mean_legacy`.

    Raises:
      UserError: no such formula, or nothing that counts in it.
    """
    units, scale = _units(losses, formula, batch_size)
    # One column, so that the same `_value` serves the estimate and the bootstrap.
    return float(_value(units.mean(axis=1)[:, None], scale)[0])


def score(losses: Losses, formula: str = "token_micro", batch_size: int = LEGACY_BATCH) -> float:
    """Minus the log perplexity in nats per token, which FUAR and transfer compare."""
    return -math.log(perplexity(losses, formula, batch_size))


def bootstrap(
    models: Sequence[Losses],
    formula: str = "token_micro",
    samples: int = SAMPLES,
    seed: int = 0,
    batch_size: int = LEGACY_BATCH,
) -> np.ndarray:
    """Perplexities [M, B] of resampled facts; all M models share the resamples.

    What is resampled is what the formula averages over: facts, or the batches of
    `batch_mean_legacy`, that have a token that counts. One alone does not vary: NaN.

    Raises:
      UserError: as `perplexity`, or the models were not put to the same facts.
    """
    pairs = [_units(losses, formula, batch_size) for losses in models]
    if len({units.shape for units, _ in pairs}) > 1:
        raise UserError(
            "The models were put to different numbers of facts; probe all with the same files."
        )
    if pairs[0][0].shape[1] < 2:
        return np.full((len(models), samples), np.nan)
    # [M * K, N] together: one draw of facts for all models and all parts of the formula.
    means = bootstrap_means(np.concatenate([units for units, _ in pairs]), samples, seed)
    means = means.reshape(len(models), -1, samples)
    return np.stack([_value(m, scale) for m, (_, scale) in zip(means, pairs, strict=True)])


def estimate(
    losses: Losses, formula: str = "token_micro", samples: int = SAMPLES, seed: int = 0
) -> dict[str, float]:
    """{"value", "low", "high", "facts", "tokens"}: a perplexity and its 95 % interval.

    The interval is that of the bootstrap over facts; it says nothing on the choice of the seed.
    """
    drawn = bootstrap([losses], formula, samples, seed)[0]
    counted = losses.object_tokens if formula == "object_only" else losses.tokens
    return {
        **statistics.estimate(perplexity(losses, formula), drawn),
        "facts": int((counted > 0).sum()),
        "tokens": int(counted.sum()),
    }


def _units(losses: Losses, formula: str, batch_size: int) -> tuple[np.ndarray, str]:
    """The values that the formula averages, [K, N]; `_value` computes the perplexity from K means.

    Facts without a token that counts are left out.
    """
    refuse_unknown(formula, FORMULAS, f"No formula {formula!r}; choose from")
    nll, tokens = losses.nll, losses.tokens
    if formula == "object_only":
        nll, tokens = losses.object_nll, losses.object_tokens
    if formula == "batch_mean_legacy":
        starts = np.arange(0, len(nll), batch_size)
        # Sums over each batch; the last one may be shorter, as it was in the released evaluation.
        nll, tokens = (np.add.reduceat(x, starts) if len(x) else x for x in (nll, tokens))
    nll, tokens = nll[tokens > 0], tokens[tokens > 0]
    if not len(tokens):
        raise UserError(f"There is no fact with a token that counts in {formula}.")
    if formula == "per_fact_mean":
        return np.exp(np.minimum(nll / tokens, _LARGEST))[None], "mean"
    if formula == "batch_mean_legacy":
        return (nll / tokens)[None], "exp"
    # A quotient of sums: numerator and denominator are resampled together.
    return np.stack([nll, tokens]), "quotient"


def _value(means: np.ndarray, scale: str) -> np.ndarray:
    """Perplexities [B] from the means [K, B] of `_units`."""
    if scale == "mean":
        return means[0]
    log = means[0] / means[1] if scale == "quotient" else means[0]
    return np.exp(np.minimum(log, _LARGEST))


# --- scores by probe


def summarize(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """{probe: scalars} of an evaluation's rows with losses: every formula, and counts.

    The default formula is called "perplexity", the others "perplexity_<formula>".
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if "nll" in row:
            groups.setdefault(row["probe"], []).append(row)
    by_probe = {}
    for probe, mine in groups.items():
        losses = Losses.of(mine)
        by_probe[probe] = scalars = {"perplexity": perplexity(losses)}
        for formula in FORMULAS[1:]:
            if formula != "object_only" or losses.object_tokens.any():
                scalars[f"perplexity_{formula}"] = perplexity(losses, formula)
        scalars["tokens"] = float(losses.tokens.sum())
        scalars["truncated"] = float(sum(row.get("truncated", 0) for row in mine))
    return by_probe


def average(unchanged: float, changed: float, decimals: int = 2) -> decimal.Decimal:
    """The Avg column of Table 3: the mean of two perplexities, rounded half up."""
    # Table 3's 28 averages come out only with half-up rounding of the decimals as printed.
    total = decimal.Decimal(str(unchanged)) + decimal.Decimal(str(changed))
    return rounded(total / 2, decimals)


def rounded(value: float | decimal.Decimal, decimals: int = 2) -> decimal.Decimal:
    """A number as tables print it: rounded half up in decimal."""
    exact = value if isinstance(value, decimal.Decimal) else decimal.Decimal(str(value))
    return exact.quantize(decimal.Decimal(1).scaleb(-decimals), decimal.ROUND_HALF_UP)
