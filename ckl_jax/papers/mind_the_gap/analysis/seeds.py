"""Staleness under several seeds: mean and range of the numbers of `ckl mind-the-gap`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.analysis import statistics
from ckl_jax.analysis.forgetting import ALL as POOLED
from ckl_jax.analysis.render_table import TableCell
from ckl_jax.analysis.seeds import Summary, check_seeds
from ckl_jax.errors import UserError
from ckl_jax.files import read_json
from ckl_jax.papers.mind_the_gap.analysis.staleness import ALL
from ckl_jax.papers.mind_the_gap.analysis.staleness_study import CONTROL

COLUMNS = {
    "perplexity": "Perplexity",
    "over_control": "Over control (%)",
    "under_stale": "Under stale (%)",
    "slope": "Slope (points a bin)",
    "past": "Past text (%)",
}


RECORD = "mind_the_gap.json"
_FREE = ("rates",)  # settings that may differ, as the seed may


def is_study(folder: str | Path) -> bool:
    """Whether `folder` is of `ckl mind-the-gap`."""
    return (Path(folder) / RECORD).is_file()


def summarize(folders: Sequence[str | Path]) -> Summary:
    """The main numbers of `ckl mind-the-gap` over seeds.

    Raises:
      UserError: a folder has no results yet, or those of other models; or two have one seed, or
        differ by more.
    """
    check_seeds(folders, RECORD, _FREE)
    numbers_of_seeds = [_numbers(Path(folder)) for folder in folders]
    for folder, numbers in zip(folders, numbers_of_seeds, strict=True):
        if list(numbers) != list(numbers_of_seeds[0]):
            raise UserError(
                f"{folder} compares {', '.join(numbers)}, but {folders[0]} "
                f"{', '.join(numbers_of_seeds[0])}; give folders that differ by their seed alone."
            )
    rows = [
        {
            "key": model,
            "columns": {
                n: statistics.spread([f[model][n] for f in numbers_of_seeds]) for n in COLUMNS
            },
        }
        for model in numbers_of_seeds[0]
    ]
    cells = [
        [TableCell(row["key"]), *(_cell(row["columns"][name]) for name in COLUMNS)] for row in rows
    ]
    note = f"Mean over {len(numbers_of_seeds)} seeds; below it, the smallest and the largest."
    return Summary(["Model", *COLUMNS.values()], cells, rows, note)


def _numbers(folder: Path) -> dict[str, dict[str, float | None]]:
    """{model: {column: number}}, the control first."""
    path = folder / "results.json"
    if not path.is_file():
        raise UserError(f"{folder} has no results yet; run `ckl mind-the-gap --out {folder}`.")
    results = read_json(path)
    none = dict.fromkeys(COLUMNS)
    numbers = {CONTROL: {**none, "perplexity": results["perplexity"][CONTROL][ALL]}}
    for model, curve in results["months"].items():
        numbers[model] = {
            "perplexity": results["perplexity"][model][ALL],
            "over_control": curve["overall"]["value"],
            "under_stale": _value(results["reduction"].get(model, {}).get(ALL)),
            "slope": curve["line"]["slope"],
            "past": _last(results["forgetting"].get(model, {}).get(POOLED)),
        }
    return numbers


def _value(estimate: Mapping[str, float] | None) -> float | None:
    return None if estimate is None else estimate["value"]


def _last(changes: Mapping[str, float] | None) -> float | None:
    """The change of past text after the last update."""
    return list(changes.values())[-1] if changes else None


def _cell(column: Mapping[str, Any]) -> TableCell:
    if column["mean"] is None:
        return TableCell("–")
    return TableCell(f"{column['mean']:.2f}", f"{column['low']:.2f} to {column['high']:.2f}")
