"""Scores printed in CKL's paper, shown beside ours: exact match in percent, and FUAR.

The tables are in `published_ckl.txt`: "[2 main]" begins the scenario "main" of Table 2; "-" was not
printed, "no_gain" is None. Of KILT each data set has a metric of its own. Source: Jang et al. 2022,
Tables 2, 3, 5, 7, 8, 10, 11 and 13 (whose columns are F1, and whose FUAR no formula gives:
docs/fidelity.md).
"""

from collections.abc import Mapping
from pathlib import Path

Row = Mapping[str, float | None]


def _read() -> dict[str, dict[str, dict[str, Row]]]:
    """{table: {scenario: {row: {column: number}}}}."""
    tables: dict[str, dict[str, dict[str, Row]]] = {}
    # Blocks are separated by blank lines; the first line names table, scenario and columns.
    for block in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").split("\n\n"):
        (table, scenario, *columns), *rows = map(str.split, block.strip().splitlines())
        tables.setdefault(table[1:], {})[scenario[:-1]] = {
            name: {
                column: None if number == "no_gain" else float(number)
                for column, number in zip(columns, numbers, strict=True)
                if number != "-"
            }
            for name, *numbers in rows
        }
    return tables


TABLES = _read()
TABLE_2, TABLE_3, TABLE_7, TABLE_8, TABLE_10, TABLE_11, TABLE_13 = (
    TABLES[number] for number in ("2", "3", "7", "8", "10", "11", "13")
)
# Trainable and all parameters, by scenario and row (Tables 2 and 3).
_WHOLE = dict.fromkeys(("vanilla", "recadam", "mix_review"), "737M / 737M")
_WHOLE |= {"initial": "0M / 737M"}
_METHODS = ("lora", "k_adapter_k2", "k_adapter_k3", "modular")
_FIRST = ("403M / 738M", "427M / 762M", "440M / 775M", "438M / 773M")
_SECOND = ("404M / 740M", "427M / 788M", "440M / 813M", "438M / 809M")
PARAMETERS = dict.fromkeys(
    ("main", "small", "p1"), _WHOLE | dict(zip(_METHODS, _FIRST, strict=True))
) | {"p1_p2": _WHOLE | dict(zip(_METHODS, _SECOND, strict=True))}
# Answers of each type in percent (Table 5), and the probes of Figure 8b on either side.
ANSWER_TYPES = TABLES["5"]["answers"]
SHARED_PERSONS = 67
