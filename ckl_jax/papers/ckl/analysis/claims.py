"""The claims of CKL's paper, and the numbers of `ckl experiment` and `ckl demo` that test them."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.analysis import labels
from ckl_jax.analysis.claims import (
    Claim,
    Effect,
    Key,
    Kind,
    Numbers,
    highest,
    lowest,
    make_again,
    mean,
    number,
)
from ckl_jax.analysis.main_table import fuar_tasks
from ckl_jax.analysis.statistics import bootstrap_means, fuar_samples
from ckl_jax.analysis.study import Study, load_study, tuned_study
from ckl_jax.data.text.answer_types import PERSON
from ckl_jax.errors import UserError
from ckl_jax.files import read_json_object
from ckl_jax.papers.ckl.analysis import experiment_tables
from ckl_jax.papers.ckl.analysis.experiment_tables import FUAR, QUESTIONS
from ckl_jax.papers.ckl.analysis.published_ckl import TABLES

_TABLES = {number: TABLES[number] for number in ("2", "3", "7", "8", "10", "11")}
_ROWS = {scenario: rows for table in _TABLES.values() for scenario, rows in table.items()}
PUBLISHED = {
    (s, r, c): x for s, rows in _ROWS.items() for r, row in rows.items() for c, x in row.items()
}
_TABLE_OF = {scenario: n for n, table in _TABLES.items() for scenario in table}
_COMMANDS = {scenario: f"ckl experiment ckl/table{n}" for scenario, n in _TABLE_OF.items()}
# Probes of GPT-2, each with the name of the light-tunings that are before it.
_TUNED = {"invariant_lama": "invariant", QUESTIONS.name: "questions"}
# Figure 8 is read from its JSON.
_FIGURE_8, _FIGURE_8_FILE = "figure8", "ckl-figure8.json"

_EXPANSION = ("lora", "k_adapter_k2", "k_adapter_k3", "modular")
_OTHERS = ("vanilla", "recadam", "mix_review")
_EVERY = (*_OTHERS, *_EXPANSION)
_KEPT, _NEW, _P1 = "invariant_lama", "new_lama_easy_small", "new_lama_easy_p1"
_ZERO_SHOT = "structured_zeroshot"
_NEWLY_RIGHT = "newly_right"  # a mean over the probes of Table 12
_PROBES_12 = (_KEPT, "updated_lama", "new_lama")


def _each(scenario: str, methods: Sequence[str], column: str = FUAR) -> list[Effect]:
    return [number(scenario, method, column) for method in methods]


def _are_best(
    scenario: str, methods: Sequence[str] = _EXPANSION, others: Sequence[str] = _OTHERS
) -> Effect:
    """By how much the lowest FUAR of some methods is below the lowest of the others."""
    return lowest(_each(scenario, others)) - lowest(_each(scenario, methods))


def _beats_vanilla(scenario: str, method: str, rate: str = "") -> Effect:
    """By how much a method's FUAR is below Vanilla's."""
    return number(scenario, f"vanilla{rate}", FUAR) - number(scenario, f"{method}{rate}", FUAR)


def _claim(text: str, effect: Effect, where: str = "") -> Claim:
    tables = dict.fromkeys(_TABLE_OF[scenario] for scenario, *_ in effect.keys if not where)
    where = where or f"Table{'s' * (len(tables) > 1)} {', '.join(tables)}"
    unit = "FUAR" if all(column == FUAR for *_, column in effect.keys) else "points"
    return Claim(text, effect, where, unit, PUBLISHED)


_LOW, _HIGH = "vanilla-1e-05", "vanilla-0.001"
# One row a claim, in the order of the paper's tables.
CLAIMS = (
    _claim("methods that add parameters have the lowest FUAR", _are_best("main")),
    *(
        _claim(f"{labels.method_label(m)} has a lower FUAR than Vanilla", _beats_vanilla("main", m))
        for m in ("recadam", *_EXPANSION)
    ),
    _claim(
        "Mix-Review has the highest FUAR",
        number("main", "mix_review", FUAR)
        - highest(_each("main", ("vanilla", "recadam", *_EXPANSION))),
    ),
    _claim(
        "methods that add parameters forget less than Vanilla",
        mean(_each("main", _EXPANSION, _KEPT)) - number("main", "vanilla", _KEPT),
    ),
    _claim("of SMALL too, methods that add parameters have the lowest FUAR", _are_best("small")),
    _claim(
        "many passes over few articles forget more than few over all",
        mean(_each("main", _EVERY, _KEPT)) - mean(_each("small", _EVERY, _KEPT)),
    ),
    _claim(
        "two phases forget more than one of the same articles",
        mean(_each("small", _EVERY, _KEPT)) - mean(_each("p1_p2", _EVERY, _KEPT)),
    ),
    _claim(
        "after P2, methods that add parameters know more of P1 than Vanilla",
        mean(_each("p1_p2", _EXPANSION, _P1)) - number("p1_p2", "vanilla", _P1),
    ),
    _claim(
        "a lower learning rate forgets less",
        number("rates", _LOW, _KEPT) - number("rates", _HIGH, _KEPT),
    ),
    _claim(
        "a lower learning rate learns less",
        number("rates", _HIGH, _NEW) - number("rates", _LOW, _NEW),
    ),
    *(
        _claim(
            f"at a rate of {rate}, K-Adapter (k=2) has a lower FUAR than Vanilla",
            _beats_vanilla("rates", "k_adapter_k2", f"-{rate}"),
        )
        for rate in ("0.0001", "0.001")
    ),
    _claim(
        "on zero-shot relation extraction, Vanilla is worse than Initial",
        number("kilt", "initial", _ZERO_SHOT) - number("kilt", "vanilla", _ZERO_SHOT),
    ),
    _claim(
        "on zero-shot relation extraction, methods that add parameters beat Vanilla",
        mean(_each("kilt", _EXPANSION, _ZERO_SHOT)) - number("kilt", "vanilla", _ZERO_SHOT),
    ),
    _claim(
        "on zero-shot relation extraction, Modular is the best method",
        number("kilt", "modular", _ZERO_SHOT) - highest(_each("kilt", _EVERY[:-1], _ZERO_SHOT)),
    ),
    _claim(
        "of GPT-2's, Mix-Review has the lowest FUAR",
        # Modular needs an encoder.
        _are_best("gpt2_1e-4", ("mix_review",), ("vanilla", "recadam", *_EXPANSION[:-1])),
    ),
    _claim(
        "Modular gets more right that Initial got wrong than Vanilla does",
        number("main", "modular", _NEWLY_RIGHT) - number("main", "vanilla", _NEWLY_RIGHT),
        "Table 12",
    ),
    _claim(
        "Vanilla knows more of UpdatedLAMA than of NewLAMA",
        number("main", "vanilla", "updated_lama") - number("main", "vanilla", "new_lama"),
        "Appendix I",
    ),
    _claim(
        "persons make most of what Vanilla gets right of UpdatedLAMA and NewLAMA",
        number(_FIGURE_8, "vanilla", "persons") - number(_FIGURE_8, "vanilla", "other types"),
        "Figure 8a",
    ),
    _claim(
        "of persons in both, Vanilla knows more of UpdatedLAMA than of NewLAMA",
        number(_FIGURE_8, "vanilla", "updated_lama") - number(_FIGURE_8, "vanilla", "new_lama"),
        "Figure 8b",
    ),
    _claim(
        "at a larger learning rate GPT-2 (Vanilla) knows less new than before",
        number("gpt2_1e-3", "initial", QUESTIONS.name)
        - number("gpt2_1e-3", "vanilla", QUESTIONS.name),
    ),
)


# --- numbers of folders


def read_numbers(folder: Path, samples: int, seed: int, is_demo: bool = False) -> Numbers:
    """The numbers of the finished runs in a folder of `ckl experiment` or `ckl demo`.

    Args:
      samples: B, of the bootstrap over items.
      is_demo: of which of the two it is.

    Raises:
      UserError: the folder has no finished run, or its runs do not fit together.
    """
    studies = {}
    for scenario, rows in _ROWS.items():
        if is_demo:
            study = _study(folder, folder, rows) if scenario == "main" else None
        elif QUESTIONS.name in rows["initial"]:
            study = _tuned_study(folder, scenario)
        elif scenario == "kilt":
            runs = _finished(folder / f"kilt_{_ZERO_SHOT}", rows)
            study = tuned_study(runs) if runs else None
        else:
            study = _study(folder, folder / scenario, rows)
        if study is not None:
            studies[scenario] = study
    if not studies:
        raise UserError(f"{folder} has no finished training of an update; start its command again.")
    return _drawn(studies, samples, seed) | _figure_8(folder, samples)


def _study(root: Path, parent: Path, rows: Mapping[str, Mapping[str, Any]]) -> Study | None:
    runs = _finished(parent, [row for row in rows if row != "initial"])
    initial = _finished(root, ["initial"])
    if not runs:
        return None
    return experiment_tables.only_probes(load_study([*initial, *runs]), list(rows["initial"]))


def _tuned_study(root: Path, scenario: str) -> Study | None:
    """GPT-2's, whose scores are means over its light-tunings."""
    folders = {}
    for row in _ROWS[scenario]:
        model = root / "gpt2_initial" if row == "initial" else root / scenario / row
        runs = {
            probe: _finished(
                model / "light_tuned",
                sorted(path.name for path in model.glob(f"light_tuned/{name}_*")),
            )
            for probe, name in _TUNED.items()
        }
        if all(runs.values()):
            folders[row] = runs
    return experiment_tables.averaged_study(folders) if folders.keys() - {"initial"} else None


def _finished(parent: Path, names: Iterable[str]) -> list[Path]:
    return [parent / name for name in names if (parent / name / "summary.json").is_file()]


def _drawn(studies: Mapping[str, Study], samples: int, seed: int) -> dict[Key, Any]:
    """Scores in points and FUARs, [1 + B] each.

    Models that answered the same items share the resamples, also across scenarios.
    """
    measured: dict[Any, list] = {}
    for scenario, study in studies.items():
        before = study.initial.scores if study.initial else {}
        for entry in study.entries:
            row = entry.run.path.name if entry.run and entry is not study.initial else entry.key
            for probe, scored in entry.scores.items():
                score = scored.score if scenario == "kilt" else scored.em
                members = measured.setdefault((probe, scored.items), [])
                members.append(((scenario, row, probe), score))
                if probe in before:
                    newly = scored.em * (1.0 - before[probe].em)
                    members.append(((scenario, row, probe, _NEWLY_RIGHT), newly))
    numbers: dict[Key, Any] = {}
    for i, members in enumerate(measured.values()):
        values = 100.0 * np.stack([score for _, score in members])  # [M, N]
        draws = bootstrap_means(values, samples, (seed, i))
        drawn = np.column_stack([values.mean(axis=1), draws])
        numbers |= zip((key for key, _ in members), drawn, strict=True)
    for scenario, row in dict.fromkeys(key[:2] for key in numbers):
        newly = [numbers.get((scenario, row, probe, _NEWLY_RIGHT)) for probe in _PROBES_12]
        if all(x is not None for x in newly):
            numbers[scenario, row, _NEWLY_RIGHT] = sum(newly) / len(newly)
        fuar = _fuar(studies[scenario], scenario, row, numbers) if row != "initial" else None
        if fuar is not None:
            numbers[scenario, row, FUAR] = fuar
    return numbers


def _fuar(study: Study, scenario: str, row: str, numbers: Numbers) -> np.ndarray | None:
    # Which probe of GPT-2's is new has to be said.
    acquired = [QUESTIONS.name] if QUESTIONS.name in study.records else []
    tasks = fuar_tasks(study.records.values(), acquired)
    both = [
        {p: numbers[scenario, name, p] for p in study.records if (scenario, name, p) in numbers}
        for name in ("initial", row)
    ]
    return fuar_samples(both, *tasks.cells) if tasks and both[0] else None


def _figure_8(folder: Path, samples: int) -> dict[Key, Any]:
    """Vanilla's numbers of Figure 8, without resampling items."""
    path = folder / _FIGURE_8_FILE
    made = read_json_object(path) if path.is_file() else {}
    values: dict[str, float] = {}
    if parts := [part for part in made.get("contributions", {}).values() if part]:
        persons = sum(part.get(PERSON, 0.0) for part in parts)
        values |= {
            "persons": persons,
            "other types": sum(map(sum, map(dict.values, parts))) - persons,
        }
    if shared := made.get("shared_persons", {}).get("vanilla"):
        values |= dict(zip(("updated_lama", "new_lama"), shared[1:], strict=True))
    return {(_FIGURE_8, "vanilla", n): np.full(1 + samples, x) for n, x in values.items()}


def _make_beside_a_demo(kind: Kind, folder: Path, settings: Mapping[str, Any], command: str) -> str:
    """All but Table 2 of a demo's world are made in a folder beside it."""
    if command == kind.command:
        # All: a tiny one has fewer by default.
        return make_again(kind, folder, settings, f"{command} --methods all")
    tables = Path(f"{folder}-tables")
    if (tables / f"{command.split()[-1].replace('/', '-')}.json").exists():
        return f"it is in {tables}, which is a folder of its own for `ckl claims`"
    return make_again(kind, tables, settings, command)


OF_EXPERIMENTS = Kind(
    paper="CKL (Jang et al. 2022)",
    command="ckl experiment",
    record=experiment_tables.RECORD,
    claims=CLAIMS,
    read=read_numbers,
    flags=("seed", "size", "source", "world", "data", "model"),
    commands=_COMMANDS | {_FIGURE_8: "ckl experiment ckl/figure8"},
    world=("source", "world"),
)
OF_DEMOS = dataclasses.replace(
    OF_EXPERIMENTS,
    command="ckl demo",
    record="demo.json",
    read=functools.partial(read_numbers, is_demo=True),
    commands=OF_EXPERIMENTS.commands | {"main": "ckl demo"},
    make=_make_beside_a_demo,
)
KINDS = (OF_EXPERIMENTS, OF_DEMOS)
