"""Tests the claims of CKL's paper on your own experiments: one row a claim, over seeds.

A claim is an inequality between numbers of tables; its margin is by how much it holds, in points of
exact match or of FUAR, below 0 by how much it does not. Over several seeds it is "yes" where every
margin is above 0, "no" where every one is below, else "unclear".
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.analysis import statistics
from ckl_jax.analysis.sections import Cell, Section
from ckl_jax.analysis.seeds import check_seeds
from ckl_jax.errors import UserError
from ckl_jax.files import write_file, write_json
from ckl_jax.papers.ckl.analysis.experiment_tables import RECORD, read_tables

Numbers = Mapping[str, Mapping[str, Mapping[str, float | None]]]  # scenario, row, column

_EXPANSION = ("lora", "k_adapter_k2", "k_adapter_k3", "modular")
_OTHERS = ("vanilla", "recadam", "mix_review")
_KEPT, _NEW, _QUESTIONS = "invariant_lama", "new_lama_easy_small", "new_questions_easy"


@dataclasses.dataclass(frozen=True)
class Claim:
    """An inequality of the paper.

    Attributes:
      text: what is claimed.
      where: of the paper.
      unit: of the margin.
      margin: of some numbers; None where they lack what it needs, NaN where no method gained
        anything, so that none is the best.
    """

    text: str
    where: str
    unit: str
    margin: Callable[[Numbers], float | None]


def _are_best(
    scenario: str,
    methods: Sequence[str] = _EXPANSION,
    every: Sequence[str] = (*_OTHERS, *_EXPANSION),
) -> Callable[[Numbers], float | None]:
    """By how much the lowest ratio of some methods is below the lowest of the others."""

    def margin(numbers: Numbers) -> float | None:
        rows = numbers.get(scenario, {})
        if not all("fuar" in rows.get(m, ()) for m in every):
            return None  # the best of some is not the best
        # "No gain" is the worst of all.
        ratios = {m: math.inf if rows[m]["fuar"] is None else rows[m]["fuar"] for m in every}
        # `pop` leaves the other methods in `ratios`.
        ours = min(ratios.pop(m) for m in methods)
        return min(ratios.values()) - ours  # inf - inf is NaN

    return margin


def _kept_more(first: str, second: str) -> Callable[[Numbers], float | None]:
    """By how much more is kept in one scenario than in another, on average over methods."""

    def margin(numbers: Numbers) -> float | None:
        a, b = numbers.get(first, {}), numbers.get(second, {})
        # Only methods that both scenarios ran, or the means would be over different ones.
        methods = [m for m in (*_OTHERS, *_EXPANSION) if m in a and m in b]
        gaps = [a[m][_KEPT] - b[m][_KEPT] for m in methods]
        return sum(gaps) / len(gaps) if gaps else None

    return margin


def _learned_less_than_nothing(numbers: Numbers) -> float | None:
    """By how much Vanilla answers new questions worse than the model before it did."""
    rows = numbers.get("gpt2_1e-3", {})
    if not {"initial", "vanilla"} <= set(rows):
        return None
    return rows["initial"][_QUESTIONS] - rows["vanilla"][_QUESTIONS]


def _with_rate(column: str, sign: int) -> Callable[[Numbers], float | None]:
    """The score of Vanilla at its lowest learning rate over that at its highest, times `sign`."""

    def margin(numbers: Numbers) -> float | None:
        rows = numbers.get("rates", {})
        # Rows are named "vanilla-0.0001".
        rates = {float(n.partition("-")[2]): n for n in rows if n.startswith("vanilla")}
        if len(rates) < 2:
            return None
        return sign * (rows[rates[min(rates)]][column] - rows[rates[max(rates)]][column])

    return margin


# One row a claim, in the order of the paper's tables.
CLAIMS = (
    Claim("methods that add parameters have the lowest FUAR", "Table 2", "FUAR", _are_best("main")),
    Claim(
        "the same of SMALL, many passes over few articles", "Table 3", "FUAR", _are_best("small")
    ),
    Claim(
        "many passes over few articles forget more than few over all",
        "Tables 2, 3",
        "points",
        _kept_more("main", "small"),
    ),
    Claim(
        "two phases forget more than one of the same articles",
        "Table 3",
        "points",
        _kept_more("small", "p1_p2"),
    ),
    Claim("a lower learning rate forgets less", "Table 7", "points", _with_rate(_KEPT, 1)),
    Claim("a lower learning rate learns less", "Table 7", "points", _with_rate(_NEW, -1)),
    Claim(
        "of GPT-2's, Mix-Review has the lowest FUAR",
        "Table 10",
        "FUAR",
        _are_best("gpt2_1e-4", ("mix_review",), (*_OTHERS, *_EXPANSION[:-1])),
    ),
    Claim(
        "at a larger learning rate GPT-2 (Vanilla) knows less new than before",
        "Table 11",
        "points",
        _learned_less_than_nothing,
    ),
)


def judge(numbers: Sequence[Numbers]) -> list[dict[str, Any]]:
    """[{"claim", "where", "unit", "verdict", "seeds", "mean", "low", "high", "values"}] over seeds.

    A margin that is 0, or that no method gained anything for, decides nothing.

    "verdict" is "yes", "no", "unclear" or "not run"; "seeds" is how many have the numbers that it
    takes, of which it is; "values" are the margins, None where there is none.
    """
    return [_judged(claim, [claim.margin(n) for n in numbers]) for claim in CLAIMS]


def _judged(claim: Claim, margins: Sequence[float | None]) -> dict[str, Any]:
    known = [m for m in margins if m is not None]
    holds, fails = all(m > 0 for m in known), all(m < 0 for m in known)
    verdict = "yes" if holds else "no" if fails else "unclear"
    about = {"claim": claim.text, "where": claim.where, "unit": claim.unit}
    about |= {"verdict": verdict if known else "not run", "seeds": len(known)}
    # JSON has no infinity; "no gain" on one side makes a margin infinite.
    values = [m if m is not None and math.isfinite(m) else None for m in margins]
    return {**about, **statistics.spread(values)}


def read_numbers(folder: str | Path) -> Numbers:
    """The numbers of all tables in a folder of `ckl experiment`.

    Raises:
      UserError: there are none.
    """
    numbers: dict[str, dict[str, dict[str, float | None]]] = {}
    for path in sorted(Path(folder).glob("ckl-table*.json")):
        for scenario, part in read_tables(path).items():
            numbers[scenario] = {
                row: {name: c["ours"] for name, c in columns.items() if c["defined"]}
                for row, columns in part["rows"].items()
            }
    if not numbers:
        raise UserError(
            f"{folder} has no table of an experiment; make one by `ckl experiment ckl/table2 --out "
            f"{folder}`."
        )
    return numbers


def write(folders: Sequence[str | Path], out: str | Path) -> Path:
    """Writes claims.json and claims.md over folders that differ by seed, and prints the table.

    Returns:
      The path of claims.md.

    Raises:
      UserError: see `read_numbers`; or the folders are not of different seeds and one experiment.
    """
    if len({Path(folder).resolve() for folder in folders}) < len(folders):
        raise UserError("A folder is named twice; give one of each seed.")
    numbers = [read_numbers(folder) for folder in folders]
    if len(folders) > 1:
        # Means over folders of different settings would be of nothing.
        check_seeds(folders, RECORD)
    rows = judge(numbers)
    write_json(Path(out) / "claims.json", {"folders": list(map(str, folders)), "claims": rows})
    headers = ["Claim", "In the paper", "Holds", "Margin"]
    seeds = "one seed" if len(folders) == 1 else f"{len(folders)} seeds"
    note = (
        f"Over {seeds}; the margin is the mean, below it the smallest and the largest. Yes: above "
        "0 for every seed that has the tables; no: below 0 for every one."
    )
    cells = [[r["claim"], r["where"], _verdict(r), _margin(r)] for r in rows]
    table = Section(headers=headers, rows=cells, notes=[note])
    write_file(Path(out) / "claims.md", table.markdown())
    table.show()
    return Path(out) / "claims.md"


def _verdict(row: Mapping[str, Any]) -> Cell:
    seeds, all_seeds = row["seeds"], len(row["values"])
    partly = f"{seeds} of {all_seeds} seeds" if 0 < seeds < all_seeds else ""
    return Cell(row["verdict"], partly)


def _margin(row: Mapping[str, Any]) -> Cell:
    if row["mean"] is None:
        return Cell("–")
    span = f"{row['low']:+.2f} to {row['high']:+.2f}" if len(row["values"]) > 1 else ""
    return Cell(f"{row['mean']:+.2f} {row['unit']}", span)
