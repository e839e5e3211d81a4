"""The same experiment with several seeds: mean and range of every number of the main table."""

import collections
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.analysis import labels, sections
from ckl_jax.analysis.main_table import cell_value, compute_table, titles
from ckl_jax.analysis.report import find_runs, is_run
from ckl_jax.analysis.sections import Cell, Section
from ckl_jax.analysis.statistics import spread
from ckl_jax.analysis.study import load_study
from ckl_jax.errors import UserError
from ckl_jax.files import read_json_object, write_file, write_json

# Bindings that decide when a model is evaluated, and not how it is trained.
_OF_WHEN = ("EVAL_PERIOD",)
_DEMO = "demo.json"  # settings of `ckl demo`
# Makes of folders the table over seeds, and its numbers for JSON.
Summarize = Callable[[Sequence[str | Path]], tuple[Section, list[dict[str, Any]]]]


def over_seeds(
    seeds: Sequence[Mapping[str, Mapping[str, float | None]]],
) -> dict[str, dict[str, dict[str, Any]]]:
    """{row: {column: `statistics.spread`}} of the {row: {column: number}} of each seed."""
    columns = {
        row: dict.fromkeys(c for s in seeds for c in s.get(row, ())) for s in seeds for row in s
    }
    return {
        row: {c: spread([s.get(row, {}).get(c) for s in seeds]) for c in names}
        for row, names in columns.items()
    }


def compare_seeds(folders: Sequence[str | Path], out: str | Path, summarize: Summarize) -> Path:
    """Writes seeds.html, seeds.md and seeds.json for experiments that differ in the seed only.

    Unlike the intervals of a single report, the range over seeds holds what the order of the data
    and the new parameters do to a result; in a simulated world, the choice of facts as well.

    Args:
      folders: of one kind of study, one for each seed.
      summarize: makes the table of such folders, such as `of_demos`.

    Returns:
      The path of seeds.html.

    Raises:
      UserError: fewer than two folders, one twice, or one without runs.
    """
    check_folders(folders)
    table, rows = summarize(folders)
    out, given = Path(out), list(map(str, folders))
    write_json(out / "seeds.json", {"folders": given, "rows": rows})
    write_file(out / "seeds.md", table.markdown())
    made = Section("Scores", sections=[table], anchor="scores")
    lead = [*_lead(table), f"Folders: {', '.join(given)}."]
    page = sections.write_page(out / "seeds.html", "Results over seeds", [made], lead)
    table.show()
    return page


def _lead(table: Section) -> list[str]:
    """The highest and the lowest mean of the first three columns that have a range."""
    sentences = []
    for i, header in enumerate(table.headers):
        means = [(row[i], row[0].text) for row in table.rows if row[i].below]
        if len(means) > 1:
            means.sort(key=lambda mean: float(mean[0].text.replace(",", "")))
            ends = (f"{cell.text} ({cell.below}) of {row}" for cell, row in (means[0], means[-1]))
            sentences.append(f"{header}: {' to '.join(ends)}.")
    return sentences[:3]


def check_folders(folders: Sequence[str | Path]) -> None:
    """Raises `UserError` for fewer than two folders, a repeated folder, or a single run."""
    if len(folders) < 2:
        raise UserError("Comparing seeds takes at least two demo folders; give more of them.")
    resolved = [Path(folder).resolve() for folder in folders]
    for i, folder in enumerate(resolved):
        if folder in resolved[:i]:
            raise UserError(f"{folders[i]} is given twice; give demos of different seeds.")
        if is_run(folder):
            raise UserError(
                f"{folders[i]} is the MODEL_DIR of one run; --seeds compares folders of demos."
            )


def of_demos(
    folders: Sequence[str | Path], acquired: Sequence[str] = ()
) -> tuple[Section, list[dict[str, Any]]]:
    """The main table of `ckl demo` over seeds.

    Args:
      acquired: probes that FUAR takes for new knowledge; default, see `main_table.fuar_tasks`.

    Raises:
      UserError: two demos of one seed, or of other settings.
    """
    if all((Path(folder) / _DEMO).is_file() for folder in folders):
        check_seeds(folders, _DEMO)
    # The intervals over items are not used here, hence the fewest samples.
    tables = [
        compute_table(load_study(find_runs([folder])), samples=2, acquired=acquired)
        for folder in folders
    ]
    shown = dict(item for table in tables for item in titles(table).items())
    names = dict.fromkeys([*shown, "fuar", "trainable", "flops", "cpu_seconds"])
    seeds = [{r["key"]: {n: cell_value(r, n) for n in names} for r in t["rows"]} for t in tables]
    no_gain = _no_gain(tables)
    rows = []
    for key, columns in over_seeds(seeds).items():
        columns = {n: x | {"no_gain": no_gain[key] * (n == "fuar")} for n, x in columns.items()}
        columns["fuar"] |= {"mean": None} if no_gain[key] else {}
        rows.append({"key": key, "label": labels.method_label(key), "columns": columns})
    note = (
        f"Mean over {len(tables)} demos; below it, the smallest and the largest. FUAR has a mean "
        "where something was gained in all of them."
    )
    if partly := [row["label"] for row in rows if any(row["key"] not in s for s in seeds)]:
        note += f" Not in all of them: {', '.join(partly)}."
    headers = ["Method", "Trainable", *shown.values(), *sections.COSTS]
    cells = [_cells(row["label"], row["columns"], list(shown)) for row in rows]
    return Section(headers=headers, rows=cells, notes=[note]), rows


def _no_gain(tables: Sequence[dict[str, Any]]) -> collections.Counter[str]:
    """In how many seeds each method has no gain, which is not a number: a seed with it leaves no
    mean of FUAR, or who gains least would look best.
    """
    every = [row for table in tables for row in table["rows"] if row["fuar"]]
    return collections.Counter(row["key"] for row in every if row["fuar"]["value"] is None)


def _cells(label: str, columns: Mapping[str, dict], shown: Sequence[str]) -> list[Any]:
    """A method's row of the table."""
    size, flops = columns["trainable"]["mean"], columns["flops"]["mean"]
    seconds = sections.estimate(columns["cpu_seconds"], sections.whole, value="mean")
    trainable = sections.compact(size and round(size))
    scores = (_cell(columns[name]) for name in shown)
    return [label, trainable, *scores, sections.costs(flops, None)[0], seconds]


def _cell(column: dict) -> Cell:
    if column["no_gain"]:
        return Cell(f"no gain in {column['no_gain']} of {len(column['values'])}")
    return sections.estimate(column, value="mean")


def check_seeds(folders: Sequence[str | Path], record: str, free: Collection[str] = ()) -> None:
    """Refuses folders that do not have different seeds and otherwise equal settings.

    Args:
      record: the file of them.
      free: settings that may differ besides the seed.

    Raises:
      UserError: a folder has no record, the seed of another, or other settings.
    """
    first, seeds = read_json_object(Path(folders[0]) / record), []
    for folder in folders:
        settings = read_json_object(Path(folder) / record)
        if settings.get("seed") in seeds:
            raise UserError(
                f"{folder} has the seed {settings.get('seed')} of another folder; give folders of "
                "different seeds."
            )
        seeds.append(settings.get("seed"))
        # Both folders' settings, so that one that is missing counts as different.
        names = [n for n in {**first, **settings} if n not in ("seed", *free)]
        if other := [n for n in names if _deciding(first.get(n)) != _deciding(settings.get(n))]:
            raise UserError(
                f"{folder} was made with other settings than {folders[0]} ({', '.join(other)}); "
                "give folders that differ by their seed alone."
            )


def _deciding(setting: Any) -> Any:
    """Settings that affect results: gin bindings without those of evaluation times."""
    if not isinstance(setting, list):
        return setting
    return [b for b in setting if str(b).partition("=")[0].strip() not in _OF_WHEN]
