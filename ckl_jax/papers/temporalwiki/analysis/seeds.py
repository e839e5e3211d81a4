"""Updates from dump to dump under several seeds: mean and range of Table 3 and of Figure 2."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ckl_jax.analysis.sections import Section, estimate
from ckl_jax.analysis.seeds import check_seeds, over_seeds
from ckl_jax.errors import UserError
from ckl_jax.papers.temporalwiki.analysis import results, tables
from ckl_jax.papers.temporalwiki.analysis.results import method_label

# Perplexities of facts, and of words relative to Initial.
COLUMNS = {
    "unchanged": "Un",
    "changed": "C",
    **results.TEXT_MEASURES,
}
_FREE = ("options",)  # what the command was given, the seed among it; other settings say it again


def is_study(folder: str | Path) -> bool:
    """Whether `folder` is of `ckl temporalwiki`."""
    return (Path(folder) / results.RECORD).is_file()


def summarize(folders: Sequence[str | Path]) -> tuple[Section, list[dict[str, Any]]]:
    """The main numbers of `ckl temporalwiki` over seeds: as a table, and for JSON.

    Raises:
      UserError: a folder is no study, or one of other models; or two have one seed, or differ by
        more.
    """
    check_seeds(folders, results.RECORD, _FREE)
    numbers_of_seeds = [_numbers(Path(folder)) for folder in folders]
    for folder, numbers in zip(folders, numbers_of_seeds, strict=True):
        if list(numbers) != list(numbers_of_seeds[0]):
            only = set(numbers) ^ set(numbers_of_seeds[0])
            raise UserError(
                f"{folder} and {folders[0]} do not have the same models, such as {min(only)}; give "
                "folders that differ by their seed alone."
            )
    by_model = over_seeds(numbers_of_seeds)
    rows = [{"key": model, "columns": columns} for model, columns in by_model.items()]
    names = [n for n in COLUMNS if any(x["columns"][n]["mean"] is not None for x in rows)]
    cells = [
        [x["key"], *(estimate(x["columns"][n], dash=" to ", value="mean") for n in names)]
        for x in rows
    ]
    notes = [
        f"Mean over {len(folders)} seeds; below it, the smallest and the largest. Each model on "
        "the facts and the text of the interval it was updated by last; proper nouns and changed "
        "spans relative to Initial, which has 1."
    ]
    return Section(headers=["Model", *map(COLUMNS.get, names)], rows=cells, notes=notes), rows


def _numbers(folder: Path) -> dict[str, dict[str, float | None]]:
    """{"0801-0901 Full": {column: number}}, by interval."""
    study = results.load(folder)
    facts = {
        row["method"]: row["intervals"]
        for row in tables.table_3(study, tables.Perplexities(study, samples=1))
    }
    nouns = {row["method"]: row["cells"] for row in tables.proper_nouns(study)}
    numbers = {}
    for interval in study.intervals:
        for method, of in facts.items():
            cells = {**of[interval], **nouns.get(method, {}).get(interval, {})}
            values = {name: cells.get(name) for name in COLUMNS}
            label = f"{study.label(interval)} {method_label(method)}"
            numbers[label] = {name: cell and cell["value"] for name, cell in values.items()}
    return numbers
