"""Tests the claims of CKL's paper on your own runs, each as an effect with an interval.

A claim is an effect that is above 0 in the paper: a difference of mean scores or of FUAR. Ours is
the mean over seeds; its 95 % interval comes from a hierarchical bootstrap, which draws seeds and,
within each, the items of a probe, the same for all models. The verdict is "yes" if the interval is
above 0 and "no" if it is below 0; otherwise, or with fewer than five seeds, "undecided".
"""

import dataclasses
import functools
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.analysis import labels
from ckl_jax.analysis.main_table import fuar_tasks
from ckl_jax.analysis.sections import Cell, Section, write_page
from ckl_jax.analysis.seeds import check_seeds
from ckl_jax.analysis.statistics import (
    SAMPLES,
    bootstrap_means,
    bootstrap_seeds,
    fuar_samples,
    seed_interval,
    seeds_needed,
)
from ckl_jax.analysis.study import Study, load_study
from ckl_jax.errors import UserError
from ckl_jax.files import read_json_object, write_file, write_json
from ckl_jax.papers.ckl.analysis.experiment_tables import (
    FUAR,
    QUESTIONS,
    RECORD,
    averaged_study,
    only_probes,
)
from ckl_jax.papers.ckl.analysis.published_ckl import TABLE_2, TABLE_3, TABLE_7, TABLE_10, TABLE_11

# {scenario: {row: {column: value}}}; of ours [1 + B], the value of all items and of B resamples.
Numbers = Mapping[str, Mapping[str, Mapping[str, Any]]]
Get = Callable[[str, str, str], Any]  # of (scenario, row, column)
Effect = Callable[[Get], Any]

FEWEST_SEEDS = 5  # for a verdict
_DEMO = "demo.json"
_TABLES = {2: TABLE_2, 3: TABLE_3, 7: TABLE_7, 10: TABLE_10, 11: TABLE_11}
PUBLISHED = {scenario: rows for table in _TABLES.values() for scenario, rows in table.items()}
_TABLE_OF = {scenario: n for n, table in _TABLES.items() for scenario in table}
# Probes of GPT-2, each with the name of the light-tunings that are before it.
_TUNED = {"invariant_lama": "invariant", QUESTIONS.name: "questions"}

_EXPANSION = ("lora", "k_adapter_k2", "k_adapter_k3", "modular")
_OTHERS = ("vanilla", "recadam", "mix_review")
_EVERY = (*_OTHERS, *_EXPANSION)
_KEPT, _NEW, _P1 = "invariant_lama", "new_lama_easy_small", "new_lama_easy_p1"


@dataclasses.dataclass(frozen=True)
class Claim:
    """An effect that is above 0 in the paper.

    Attributes:
      text: what is claimed.
      effect: of numbers, by the function that gets them; elementwise on arrays.
    """

    text: str
    effect: Effect

    @functools.cached_property
    def paper(self) -> float:
        """The effect in the paper's printed numbers."""
        return float(self.effect(_getter(PUBLISHED)))

    @functools.cached_property
    def needs(self) -> tuple[tuple[str, str, str], ...]:
        """The (scenario, row, column) that the effect takes."""
        taken = {}
        get = _getter(PUBLISHED)

        def recording(*cell: str) -> Any:
            taken[cell] = True
            return get(*cell)

        self.effect(recording)
        return tuple(taken)

    @property
    def unit(self) -> str:
        return "FUAR" if all(column == FUAR for *_, column in self.needs) else "points"

    @property
    def tables(self) -> tuple[int, ...]:
        """The paper's tables that hold the numbers."""
        return tuple(dict.fromkeys(_TABLE_OF[scenario] for scenario, *_ in self.needs))

    @property
    def where(self) -> str:
        return f"Table{'s' * (len(self.tables) > 1)} {', '.join(map(str, self.tables))}"


def _getter(numbers: Numbers) -> Get:
    def get(scenario: str, row: str, column: str) -> Any:
        value = numbers[scenario][row][column]
        return np.inf if value is None else value  # "no gain" is the worst of all

    return get


def _score(scenario: str, row: str, column: str) -> Effect:
    return lambda get: get(scenario, row, column)


def _mean(methods: Sequence[str], scenario: str, column: str) -> Effect:
    """The mean over methods."""
    return lambda get: sum(get(scenario, m, column) for m in methods) / len(methods)


def _difference(a: Effect, b: Effect) -> Effect:
    return lambda get: a(get) - b(get)


def _extreme(scenario: str, methods: Sequence[str], pick: np.ufunc) -> Effect:
    """The lowest (`np.minimum`) or highest (`np.maximum`) FUAR of some methods."""
    return lambda get: functools.reduce(pick, [get(scenario, m, FUAR) for m in methods])


def _are_best(
    scenario: str, methods: Sequence[str] = _EXPANSION, others: Sequence[str] = _OTHERS
) -> Effect:
    """How far the lowest FUAR of some methods is below the lowest of the others."""
    return _difference(*(_extreme(scenario, names, np.minimum) for names in (others, methods)))


def _beats_vanilla(scenario: str, method: str, rate: str = "") -> Effect:
    """How far the FUAR of a method is below Vanilla's."""
    return _difference(*(_score(scenario, f"{m}{rate}", FUAR) for m in ("vanilla", method)))


_LOW, _HIGH = "vanilla-1e-05", "vanilla-0.001"
# One row a claim, in the order of the paper's tables.
CLAIMS = (
    Claim("methods that add parameters have the lowest FUAR", _are_best("main")),
    *(
        Claim(f"{labels.method_label(m)} has a lower FUAR than Vanilla", _beats_vanilla("main", m))
        for m in ("recadam", *_EXPANSION)
    ),
    Claim(
        "Mix-Review has the highest FUAR",
        _difference(
            _score("main", "mix_review", FUAR),
            _extreme("main", ("vanilla", "recadam", *_EXPANSION), np.maximum),
        ),
    ),
    Claim(
        "methods that add parameters forget less than Vanilla",
        _difference(_mean(_EXPANSION, "main", _KEPT), _score("main", "vanilla", _KEPT)),
    ),
    Claim("of SMALL too, methods that add parameters have the lowest FUAR", _are_best("small")),
    Claim(
        "many passes over few articles forget more than few over all",
        _difference(_mean(_EVERY, "main", _KEPT), _mean(_EVERY, "small", _KEPT)),
    ),
    Claim(
        "two phases forget more than one of the same articles",
        _difference(_mean(_EVERY, "small", _KEPT), _mean(_EVERY, "p1_p2", _KEPT)),
    ),
    Claim(
        "after P2, methods that add parameters know more of P1 than Vanilla",
        _difference(_mean(_EXPANSION, "p1_p2", _P1), _score("p1_p2", "vanilla", _P1)),
    ),
    Claim(
        "a lower learning rate forgets less",
        _difference(_score("rates", _LOW, _KEPT), _score("rates", _HIGH, _KEPT)),
    ),
    Claim(
        "a lower learning rate learns less",
        _difference(_score("rates", _HIGH, _NEW), _score("rates", _LOW, _NEW)),
    ),
    *(
        Claim(
            f"at a rate of {rate}, K-Adapter (k=2) has a lower FUAR than Vanilla",
            _beats_vanilla("rates", "k_adapter_k2", f"-{rate}"),
        )
        for rate in ("0.0001", "0.001")
    ),
    Claim(
        "of GPT-2's, Mix-Review has the lowest FUAR",
        # Modular needs an encoder.
        _are_best("gpt2_1e-4", ("mix_review",), ("vanilla", "recadam", *_EXPANSION[:-1])),
    ),
    Claim(
        "at a larger learning rate GPT-2 (Vanilla) knows less new than before",
        _difference(*(_score("gpt2_1e-3", m, QUESTIONS.name) for m in ("initial", "vanilla"))),
    ),
)


def judge(seeds: Sequence[Numbers]) -> list[dict[str, Any]]:
    """The verdict of each claim over seeds.

    Args:
      seeds: the numbers of each.

    Returns:
      [{"claim", "where", "unit", "paper", "verdict", "seeds", "seeds_needed", "mean", "low",
      "high", "values", "missing"}]: "verdict" is "yes", "no", "undecided" or "not run"; "seeds" is
      how many have what the claim takes; "seeds_needed" estimates how many would decide it (None:
      more than 100, or unknown); "values" are the effects, None where there is none; "missing" are
      the "scenario/row" that each seed lacks, or "scenario" where it has none of it.
    """
    return [_judged(claim, seeds) for claim in CLAIMS]


def _judged(claim: Claim, seeds: Sequence[Numbers]) -> dict[str, Any]:
    missing = [_missing(claim, numbers) for numbers in seeds]
    known = [numbers for numbers, lacks in zip(seeds, missing, strict=True) if not lacks]
    row = {"claim": claim.text, "where": claim.where, "unit": claim.unit, "paper": claim.paper}
    row |= {"verdict": "not run", "seeds": len(known), "seeds_needed": None}
    row |= dict.fromkeys(("mean", "low", "high")) | {"values": [None] * len(seeds)}
    row["missing"] = missing
    if not known:
        return row
    # "No gain" on both sides is inf - inf, of which nothing is known.
    with np.errstate(invalid="ignore"):
        # Rounded, or a difference of equal numbers would be above or below 0 by chance.
        effects = np.round([claim.effect(_getter(numbers)) for numbers in known], 9)  # [S, 1 + B]
        samples = bootstrap_seeds(effects[:, 1:])
        mean, over_seeds = effects[:, 0].mean(), effects[:, 0].std(ddof=min(1, len(known) - 1))
        # Seeds differ at least as far as their items make them; of one seed nothing else is known.
        stddev = np.maximum(over_seeds, np.sqrt(effects[:, 1:].var(axis=1).mean()))
    low, high = seed_interval(samples, len(known))
    effect = iter(effects[:, 0].tolist())
    finite = [None if lacks else _finite(next(effect)) for lacks in missing]
    ends = {"low": _finite(low), "high": _finite(high)}
    row |= {"mean": _finite(mean), **ends, "values": finite}
    if len(known) >= FEWEST_SEEDS and (low > 0 or high < 0):
        return row | {"verdict": "yes" if low > 0 else "no"}
    row["verdict"] = "undecided"
    if math.isfinite(mean) and math.isfinite(stddev):
        # What was not enough is not enough.
        row["seeds_needed"] = seeds_needed(mean, stddev, max(FEWEST_SEEDS, len(known) + 1))
    return row


def _missing(claim: Claim, numbers: Numbers) -> list[str]:
    lacks = {}
    for scenario, row, column in claim.needs:
        rows = numbers.get(scenario, {})
        if not rows:
            lacks[scenario] = True
        elif column not in rows.get(row, {}):
            # FUAR is relative to the Initial model.
            lacks[f"{scenario}/{'initial' if row in rows and column == FUAR else row}"] = True
    return list(lacks)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None  # JSON has no infinity


# --- numbers of folders


def record_of(folder: str | Path) -> str:
    """The name of the file with a folder's settings.

    Raises:
      UserError: the folder is neither of `ckl experiment` nor of `ckl demo`.
    """
    for name in (RECORD, _DEMO):
        if (Path(folder) / name).is_file():
            return name
    raise UserError(
        f"{folder} is a folder neither of `ckl experiment` nor of `ckl demo`; make one by `ckl "
        f"experiment ckl/table2 --out {folder}`."
    )


def read_numbers(folder: str | Path, samples: int = SAMPLES, seed: int = 0) -> Numbers:
    """The numbers of the finished runs in a folder of `ckl experiment` or `ckl demo`.

    Args:
      folder: of one seed.
      samples: B, of the bootstrap over items.
      seed: of the bootstrap.

    Raises:
      UserError: the folder is of neither, has no finished run, or its runs do not fit together.
    """
    root, is_demo = Path(folder), record_of(folder) == _DEMO
    studies = {}
    for scenario, rows in PUBLISHED.items():
        if QUESTIONS.name in rows["initial"]:
            study = None if is_demo else _tuned_study(root, scenario)
        elif is_demo and scenario != "main":
            study = None
        else:
            study = _study(root, root if is_demo else root / scenario, rows)
        if study is not None:
            studies[scenario] = study
    if not studies:
        raise UserError(f"{folder} has no finished training of an update; start its command again.")
    return _drawn(studies, samples, seed)


def _study(root: Path, parent: Path, rows: Mapping[str, Mapping[str, Any]]) -> Study | None:
    cells = [parent / row for row in rows if row != "initial"]
    cells = [cell for cell in cells if _is_finished(cell)]
    initial = [root / "initial"] if _is_finished(root / "initial") else []
    return only_probes(load_study([*initial, *cells]), list(rows["initial"])) if cells else None


def _tuned_study(root: Path, scenario: str) -> Study | None:
    """GPT-2's, whose scores are means over its light-tunings."""
    folders = {}
    for row in PUBLISHED[scenario]:
        model = root / "gpt2_initial" if row == "initial" else root / scenario / row
        runs = {
            probe: sorted(filter(_is_finished, model.glob(f"light_tuned/{name}_*")))
            for probe, name in _TUNED.items()
        }
        if all(runs.values()):
            folders[row] = runs
    return averaged_study(folders) if folders.keys() - {"initial"} else None


def _is_finished(run: Path) -> bool:
    return (run / "summary.json").is_file()


def _drawn(studies: Mapping[str, Study], samples: int, seed: int) -> Numbers:
    """Scores in points and FUARs, [1 + B] each.

    Models that answered the same items share the resamples, also across scenarios.
    """
    asked: dict[Any, list] = {}
    for scenario, study in studies.items():
        for entry in study.entries:
            row = entry.run.path.name if entry.run and entry is not study.initial else entry.key
            for probe, scored in entry.scores.items():
                asked.setdefault((probe, scored.items), []).append((scenario, row, scored.em))
    numbers: dict[str, dict[str, dict[str, np.ndarray]]] = {scenario: {} for scenario in studies}
    for i, ((probe, _), members) in enumerate(asked.items()):
        values = 100.0 * np.stack([em for *_, em in members])  # [M, N]
        draws = bootstrap_means(values, samples, (seed, i))
        drawn = np.column_stack([values.mean(axis=1), draws])
        for (scenario, row, _), mine in zip(members, drawn, strict=True):
            numbers[scenario].setdefault(row, {})[probe] = mine
    for scenario, rows in numbers.items():
        probes = studies[scenario].records
        # Which probe of GPT-2's is new has to be said.
        acquired = [QUESTIONS.name] if QUESTIONS.name in probes else []
        tasks = fuar_tasks(probes.values(), acquired)
        before = rows.get("initial")
        for row, scores in rows.items() if tasks and before else ():
            if row != "initial":
                scores[FUAR] = fuar_samples([before, scores], *tasks.cells)
    return numbers


# --- the report


def write(folders: Sequence[str | Path], out: str | Path, samples: int = SAMPLES) -> Path:
    """Writes claims.html, .md and .json over folders that differ by seed, and prints the table.

    Args:
      folders: of `ckl experiment` or of `ckl demo`, one for each seed.
      out: folder to write.
      samples: of the bootstrap.

    Returns:
      The path of claims.html.

    Raises:
      UserError: see `read_numbers`; or the folders are not of different seeds and one experiment.
    """
    if len({Path(folder).resolve() for folder in folders}) < len(folders):
        raise UserError("A folder is named twice; give one of each seed.")
    records = {folder: record_of(folder) for folder in folders}
    if other := [f for f in folders if records[f] != records[folders[0]]]:
        raise UserError(
            f"{folders[0]} and {other[0]} are of different commands; give folders of `ckl "
            "experiment`, or of `ckl demo`, that differ by their seed alone."
        )
    # Means over folders of different settings would be of nothing.
    check_seeds(folders, records[folders[0]])
    rows = judge([read_numbers(f, samples, seed) for seed, f in enumerate(folders)])
    given = list(map(str, folders))
    table = _table(folders, rows, samples)
    out = Path(out)
    write_json(out / "claims.json", {"folders": given, "samples": samples, "claims": rows})
    write_file(out / "claims.md", table.markdown())
    table.show()
    page = dataclasses.replace(table, title="Claims", anchor="claims", kind="plain")
    lead = [f"Folders: {', '.join(given)}."]
    return write_page(out / "claims.html", "Which of the paper's claims hold", [page], lead)


def _table(folders: Sequence[str | Path], rows: Sequence[dict[str, Any]], samples: int) -> Section:
    headers = ["Claim", "In the paper", "Ours", "95 % interval", "Holds", "Would decide"]
    headers.append("ckl experiment")
    cells = [
        [
            row["claim"],
            f"{row['where']}: {row['paper']:+.2f}",
            *_effect(row),
            *_verdict(row),
            ", ".join(f"ckl/table{n}" for n in claim.tables),
        ]
        for row, claim in zip(rows, CLAIMS, strict=True)
    ]
    note = (
        f"Effects over {labels.count(len(folders), 'seed')}, above 0 where the claim is true; "
        f"intervals of a bootstrap over seeds and items ({samples:,} samples). Yes: the interval "
        f"is above 0; no: below 0; undecided: neither, or fewer than {FEWEST_SEEDS} seeds. How "
        "many would decide is an estimate, of one seed a lower bound."
    )
    notes = [note, *_how_to_make(folders, rows)]
    return Section(headers=headers, rows=cells, notes=notes, wide=headers[6:])


def _effect(row: Mapping[str, Any]) -> list[str]:
    """The cells of the mean and of its interval."""
    if not row["seeds"]:
        return ["–", "–"]
    low = "-∞" if row["low"] is None else f"{row['low']:+.2f}"
    high = "+∞" if row["high"] is None else f"{row['high']:+.2f}"
    if row["mean"] is None:
        return ["no gain", "–" if row["low"] is row["high"] is None else f"{low} to {high}"]
    return [f"{row['mean']:+.2f} {row['unit']}", f"{low} to {high}"]


def _verdict(row: Mapping[str, Any]) -> list[Cell | str]:
    """The cells of the verdict, and of how many seeds would decide."""
    seeds, every = row["seeds"], len(row["values"])
    partly = f"{seeds} of {every} seeds" if 0 < seeds < every else ""
    if row["verdict"] != "undecided":
        return [Cell(row["verdict"], partly), ""]
    number = row["seeds_needed"] or "more than 100"
    needed = "–" if row["mean"] is None else f"{number} seeds"
    return [Cell(f"undecided ({labels.count(seeds, 'seed')})", partly), needed]


def _how_to_make(folders: Sequence[str | Path], rows: Sequence[dict[str, Any]]) -> list[str]:
    """Sentences about what is missing in each folder, with the commands that make it."""
    notes = []
    for i, folder in enumerate(folders):
        lacking: dict[int, dict[str, bool]] = {}
        for cell in dict.fromkeys(cell for row in rows for cell in row["missing"][i]):
            lacking.setdefault(_TABLE_OF[cell.partition("/")[0]], {})[cell] = True
        for table, cells in lacking.items():
            notes.append(f"Missing in {folder}: {', '.join(cells)}; {_command(folder, table)}.")
    return notes


def _command(folder: str | Path, table: int) -> str:
    """How to make a table; all but Table 2 of a demo's world are made in a folder beside it."""
    name = record_of(folder)
    settings = read_json_object(Path(folder) / name)
    if name == _DEMO and table == 2:
        words, out = ["ckl", "demo"], str(folder)
    else:
        words, out = (
            ["ckl", "experiment", f"ckl/table{table}"],
            str(folder) + "-tables" * (name == _DEMO),
        )
    flags = {n: settings.get(n) for n in ("seed", "size", "source", "world", "data", "model")}
    words += [w for n, v in flags.items() if v is not None for w in (f"--{n}", str(v))]
    words += [f"--gin.{binding}" for binding in settings.get("bindings") or ()]
    return f"make it by `{shlex.join([*words, '--out', out])}`"
