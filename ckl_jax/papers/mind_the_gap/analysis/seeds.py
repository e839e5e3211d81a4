"""Staleness under several seeds: mean and range of the numbers of `ckl mind-the-gap`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ckl_jax.analysis.sections import Section, estimate
from ckl_jax.analysis.seeds import check_seeds, over_seeds
from ckl_jax.errors import UserError
from ckl_jax.files import ANY_NUMBER, read_json_object
from ckl_jax.papers.mind_the_gap.analysis.past_text import ALL as POOLED
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
FREE = ("rates",)  # settings that may differ, as the seed may


def is_study(folder: str | Path) -> bool:
    """Whether `folder` is of `ckl mind-the-gap`."""
    return (Path(folder) / RECORD).is_file()


def summarize(folders: Sequence[str | Path]) -> tuple[Section, list[dict[str, Any]]]:
    """The main numbers of `ckl mind-the-gap` over seeds: as a table, and for JSON.

    Raises:
      UserError: a folder has no results yet, or those of other models; or two have one seed, or
        differ by more.
    """
    check_seeds(folders, RECORD, FREE)
    numbers_of_seeds = [_numbers(Path(folder)) for folder in folders]
    for folder, numbers in zip(folders, numbers_of_seeds, strict=True):
        # Models are the rows of the table: each folder must have the same.
        if list(numbers) != list(numbers_of_seeds[0]):
            raise UserError(
                f"{folder} compares {', '.join(numbers)}, but {folders[0]} "
                f"{', '.join(numbers_of_seeds[0])}; give folders that differ by their seed alone."
            )
    by_model = over_seeds(numbers_of_seeds)
    rows = [{"key": model, "columns": columns} for model, columns in by_model.items()]
    cells = [
        [model, *(estimate(columns[n], dash=" to ", value="mean") for n in COLUMNS)]
        for model, columns in by_model.items()
    ]
    note = f"Mean over {len(folders)} seeds; below it, the smallest and the largest."
    return Section(headers=["Model", *COLUMNS.values()], rows=cells, notes=[note]), rows


def _numbers(folder: Path) -> dict[str, dict[str, float | None]]:
    """{model: {column: number}}, the control first."""
    path = folder / "results.json"
    if not path.is_file():
        raise UserError(f"{folder} has no results yet; run `ckl mind-the-gap --out {folder}`.")
    results = read_json_object(path, ANY_NUMBER)
    control = {"perplexity": results["perplexity"][CONTROL][ALL]}
    numbers = {CONTROL: dict.fromkeys(COLUMNS) | control}
    for model, curve in results["months"].items():
        reduction = results["reduction"].get(model, {}).get(ALL)
        past = results["forgetting"].get(model, {}).get(POOLED)
        numbers[model] = {
            "perplexity": results["perplexity"][model][ALL],
            "over_control": curve["overall"]["value"],
            "under_stale": reduction and reduction["value"],
            "slope": curve["line"]["slope"],
            "past": list(past.values())[-1] if past else None,  # after the last update
        }
    return numbers
