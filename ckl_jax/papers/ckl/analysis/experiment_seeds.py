"""Tables of `ckl experiment` over several seeds: mean and range of every number.

Of `ckl/pareto`, mean and interval over seeds and items.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.analysis import statistics
from ckl_jax.analysis.sections import write_markdown
from ckl_jax.analysis.seeds import check_seeds
from ckl_jax.errors import UserError
from ckl_jax.files import read_json_object
from ckl_jax.papers.ckl.analysis import experiment_tables, pareto

_TABLES = "ckl-table*.json"
_PARETO = "ckl-pareto"


def write_seeds(folders: Sequence[str | Path], out: Path) -> list[Path]:
    """Writes seeds-NAME.md and .json for the tables that all folders have, and prints them.

    Tables that only some have are named, and left out.

    Raises:
      UserError: folders of the same seed or of other settings, or no table is in all of them.
    """
    check_seeds(folders, experiment_tables.RECORD)
    in_all = [{path.name for path in Path(folder).glob(_TABLES)} for folder in folders]
    # By length first: table2 comes before table10.
    names = sorted(set.intersection(*in_all), key=lambda name: (len(name), name))
    # Table 12 has examples of answers, of which there is no mean.
    names = [n for n in names if "examples" not in read_json_object(Path(folders[0]) / n)]
    swept = [(Path(folder) / f"{_PARETO}.json").is_file() for folder in folders]
    if not (names or all(swept)):
        raise UserError("No table is in all of these folders; make it by `ckl experiment` in each.")
    lead = (
        f"Ours, the mean over {len(folders)} seeds, and in brackets the paper's; below, the "
        "smallest and the largest. FUAR has a mean where something was gained with all of them."
    )
    tables = {
        name: [experiment_tables.read_tables(Path(folder) / name) for folder in folders]
        for name in names
    }
    written = [
        experiment_tables.write_tables(
            f"seeds/{Path(name).stem}", "over seeds", _over(by_seed), out, about=lead
        )
        for name, by_seed in tables.items()
    ]
    partly = sorted(set.union(*in_all) - set(names)) + [_PARETO] * (any(swept) > all(swept))
    for name, by_seed in tables.items():
        partly += [f"{what} of {name}" for what in _only_in_some(by_seed)]
    if partly:
        print(f"Not in all of the folders, and left out: {', '.join(partly)}")
    if all(swept):
        made = pareto.compare(list(map(pareto.runs_of, folders)))
        written.append(write_markdown(f"seeds/{_PARETO}", "over seeds", *made, out))
    return written


def _over(tables: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The parts that all tables have, with the mean of each number."""
    common = [name for name in tables[0] if all(name in t for t in tables)]
    return {name: _part([table[name] for table in tables]) for name in common}


def _only_in_some(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """The rows that not all tables have."""
    held = [{f"{s}, {row}" for s, part in t.items() for row in part["rows"]} for t in tables]
    return sorted(set.union(*held) - set.intersection(*held))


def _part(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    # What describes the part (probes, metrics, FUAR's notation) is the same for all seeds.
    kept = {key: value for key, value in parts[0].items() if key not in ("rows", "notes", "seeds")}
    rows = {}
    for row, columns in parts[0]["rows"].items():
        if all(row in part["rows"] for part in parts):
            rows[row] = {
                name: _cell([part["rows"][row][name] for part in parts]) for name in columns
            }
    return {**kept, "rows": rows}


def _cell(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    numbers = statistics.spread([cell["ours"] for cell in cells])
    defined = any(cell["defined"] for cell in cells)
    if any(cell["defined"] and cell["ours"] is None for cell in cells):
        numbers["mean"] = None  # no gain with one of them
    # The paper's number is the same in all; ours becomes the mean.
    return {**cells[0], "ours": numbers.pop("mean"), **numbers, "defined": defined}
