"""A paper's table with our numbers beside the printed ones."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.analysis import labels
from ckl_jax.analysis.main_table import compute_table
from ckl_jax.analysis.report import examples, sizes
from ckl_jax.analysis.rows import ProbedRun, Scored
from ckl_jax.analysis.sections import Cell, Section, compact, ratio, two, write_markdown
from ckl_jax.analysis.study import Entry, Study, load_study, tuned_study
from ckl_jax.data.facts.ckl_files import known_probe
from ckl_jax.data.facts.probe import Probe
from ckl_jax.errors import UserError
from ckl_jax.files import read_json_object
from ckl_jax.papers.ckl.data.kilt import KILT_SETS

FUAR = "fuar"
RECORD = "experiments.json"
# Keys of a cell in JSON files, which are read again for seeds and claims.
_CELL = {"ours", "low", "high", "defined", "paper", "printed"}
_AGAIN = "make it again by `ckl experiment`."
# NewLAMA-Easy put as questions (appendix G), which a column of its own shows.
QUESTIONS = Probe(name="new_questions_easy", short="NQE", long="NewQuestions-Easy", order=9)


def compare(
    runs: Sequence[Path],
    probes: Sequence[str],
    acquired: Sequence[str],
    published: Mapping[str, Mapping[str, float | None]],
    metric: str = "em",
    parameters: Mapping[str, str] | None = None,
    earlier: int = 0,
) -> dict[str, Any]:
    """The numbers of one scenario.

    Args:
      runs: MODEL_DIRs, the Initial model's first.
      acquired: see `main_table.fuar_tasks`.
      published: {row: {probe: score in percent, "fuar": ...}}, as the paper printed them.
      metric: "em" or "f1".
      parameters: {row: trainable and all parameters, as printed}; None shows none.
      earlier: see `main_table.fuar_tasks`.

    Returns:
      {"probes", "fuar", "metrics": {probe: metric}, "items": {probe: their number}, "rows": {row:
      {column: {"ours", "low", "high", "paper"}}}, "parameters": {row: {"ours", "paper"}}}; a FUAR
      of None is "no gain".
    """
    # FUAR's tasks are chosen among the probes of the study.
    study = only_probes(load_study(runs), probes)
    table = compute_table(study, metric, acquired=acquired, earlier=earlier)
    part = {
        "probes": list(probes),
        "fuar": table["fuar"],
        "metrics": dict.fromkeys(probes, metric),
        "items": _items(study),
        "rows": _rows(table, probes, published),
    }
    if parameters is not None:
        part["parameters"] = {
            row["key"]: {
                "ours": f"{compact(row['trainable'])} / {compact(row['total'])}",
                "paper": parameters.get(row["key"]),
            }
            for row in table["rows"]
        }
    return part


def compare_tuned(
    runs: Sequence[Sequence[Path]], published: Mapping[str, Mapping[str, float | None]]
) -> dict[str, Any]:
    """The numbers of models that were fine-tuned on one data set after another (KILT).

    Args:
      runs: of each data set the MODEL_DIRs, the same models in the same order.
      published: {row: {data set: score in percent}}, as the paper printed them.

    Returns:
      As `compare`, all data sets beside each other; also {"metrics": {data set: its metric's name}}
      and "notes", sentences about answers that were too long.
    """
    part: dict[str, Any] = {"probes": [], "fuar": None, "rows": {}, "notes": []}
    part |= {"metrics": {}, "items": {}}
    for folders in runs:
        study = tuned_study(folders)
        probes = study.probes
        for key, columns in _rows(compute_table(study, "score"), probes, published).items():
            # KILT models do not start from each other, so that nothing was forgotten or gained.
            columns.pop(FUAR)
            part["rows"].setdefault(key, {}).update(columns)
        for probe in probes:
            # How many records do not fit is the same for all models of one vocabulary.
            rows = study.entries[0].scores[probe].rows
            part["metrics"][probe] = rows[0]["metric"]
            part["items"][probe] = len(rows)
            if cut := sum(row["cut"] for row in rows):
                part["notes"].append(
                    f"{probe}: {cut:,} of {len(rows):,} evaluated records have no answer that fits."
                )
        part["probes"] += probes
    return part


def joined_study(runs: Sequence[Sequence[Path]]) -> Study:
    """The study of all data sets; see `compare_tuned`."""
    scores: dict[str, dict[str, Scored]] = {}
    for folders in runs:
        for entry in tuned_study(folders).entries:
            scores.setdefault(entry.key, {}).update(entry.scores)
    return Study(None, tuple(Entry(key, None, of_sets) for key, of_sets in scores.items()))


def overview_of_tuned(study: Study) -> list[str]:
    """Sentences on what came out of a `joined_study`, and what two data sets ask."""
    scores = {p: dict(zip(*study.values(p, "score"), strict=True)) for p in study.probes}
    sentences = [f"{labels.count(len(study.entries), 'model')}, fine-tuned, on {sizes(study)}."]
    higher = []
    for entry in (e for e in study.entries if e.key != "initial"):
        mine = [s for s in scores.values() if {entry.key, "initial"} <= s.keys()]
        wins = sum(s[entry.key].mean() > s["initial"].mean() for s in mine)
        higher += [f"{entry.label} on {wins} of {labels.count(len(mine), 'data set')}"] * bool(mine)
    if higher:
        sentences.append(f"Higher than without an update: {', '.join(higher)}.")
    return [*sentences, examples(study)]


def compare_averaged(
    folders: Mapping[str, Mapping[str, Sequence[Path]]],
    acquired: Sequence[str],
    published: Mapping[str, Mapping[str, float | None]],
) -> dict[str, Any]:
    """The numbers of models that were light-tuned several times (GPT-2), means over the seeds.

    Args:
      folders: see `averaged_study`.
      acquired: see `main_table.fuar_tasks`.
      published: {row: {probe: EM in percent, "fuar": ...}}, as the paper printed them.

    Returns:
      As `compare`; also {"seeds": {row: {probe: [EM of each seed]}}} and "notes".
    """
    study = averaged_study(folders)
    # `score` of an item is its mean EM over the seeds, in [0, 1], so that the bootstrap is over
    # items.
    table = compute_table(study, "score", acquired=acquired)
    seeds = {
        row: {
            p: [100.0 * float(_only_probe(run).em.mean()) for run in runs] for p, runs in x.items()
        }
        for row, x in folders.items()
    }
    widest = max(max(v) - min(v) for x in seeds.values() for v in x.values())
    count = len(next(iter(next(iter(seeds.values())).values())))
    note = (
        f"Means over {count} seeds of light-tuning, which differ by {widest:.2f} points at most; "
        "intervals are over items, of these means."
    )
    if count == 1:
        note = "One seed of light-tuning."
    return {
        "probes": study.probes,
        "fuar": table["fuar"],
        "items": _items(study),
        "seeds": seeds,
        "notes": [note],
        "rows": _rows(table, study.probes, published),
    }


def averaged_study(folders: Mapping[str, Mapping[str, Sequence[Path]]]) -> Study:
    """The study of light-tuned models, the Initial one's among them.

    Args:
      folders: {row: {probe: the runs evaluated on it, one of each seed}}; a run is evaluated on one
        probe, whatever its own name is.

    Returns:
      Entries whose `score` of an item is its mean EM over the seeds.

    Raises:
      UserError: a run was evaluated on no probe, on several, or on others than its siblings.
    """
    entries = {}
    for row, by_probe in folders.items():
        scores = {}
        for name, runs in by_probe.items():  # a column has its own name, whatever the probe's is
            probe = QUESTIONS if name == QUESTIONS.name else known_probe(name)
            scores[name] = dataclasses.replace(average_runs(runs), probe=probe, columns={})
        entries[row] = Entry(row, None, scores)
    return Study(entries.pop("initial", None), tuple(entries.values()))


def average_runs(runs: Sequence[Path]) -> Scored:
    """The last answers of runs to one probe, `em`, `f1` and `score` averaged over them."""
    asked = list(map(_only_probe, runs))
    for folder, other in zip(runs, asked, strict=True):
        if other.items != asked[0].items:
            raise UserError(
                f"{runs[0]} and {folder} were evaluated on different items; probe again."
            )
    em, f1 = (np.mean([getattr(s, name) for s in asked], axis=0) for name in ("em", "f1"))
    return dataclasses.replace(asked[0], em=em, f1=f1, score=em)


def _only_probe(folder: Path) -> Scored:
    scores = ProbedRun.open(folder).last
    if len(scores) != 1:
        raise UserError(f"{folder} was evaluated on {len(scores)} probes; give runs of one.")
    return next(iter(scores.values()))


def _items(study: Study) -> dict[str, int]:
    return {probe: len(x.items) for entry in study.entries for probe, x in entry.scores.items()}


def _rows(
    table: Mapping[str, Any],
    probes: Sequence[str],
    published: Mapping[str, Mapping[str, float | None]],
) -> dict[str, Any]:
    """The cells of a table beside the printed ones, by row and column."""
    return {
        row["key"]: {
            column: beside(
                row["fuar"] if column == FUAR else row["scores"].get(column),
                published.get(row["key"], {}),
                column,
            )
            for column in (*probes, FUAR)
        }
        for row in table["rows"]
    }


def beside(
    x: Mapping[str, Any] | None, printed: Mapping[str, float | None], column: str
) -> dict[str, Any]:
    """The cell of a number, {"value", "low", "high"} or None, and the printed number."""
    value, low, high = (x[k] if x else None for k in ("value", "low", "high"))
    # `printed` distinguishes a "no gain" in the paper (None) from a number that it did not print.
    paper = {"paper": printed.get(column), "printed": column in printed}
    return {"ours": value, "low": low, "high": high, "defined": x is not None, **paper}


def only_probes(study: Study, probes: Sequence[str]) -> Study:
    """The study restricted to these probes, as Initial has rows of other scenarios' probes too."""

    def chosen(entry: Entry) -> Entry:
        scores = {probe: x for probe, x in entry.scores.items() if probe in probes}
        return dataclasses.replace(entry, scores=scores)

    initial = study.initial and chosen(study.initial)
    return Study(initial, tuple(map(chosen, study.methods)), study.notes)


def section(scenario: str, part: Mapping[str, Any]) -> Section:
    """A scenario's table: ours with its interval, and the paper's in brackets."""
    metrics, named = part.get("metrics", {}), part.get("headers", {})
    sizes = part.get("parameters")
    items = part.get("items", {})
    headers = [
        named.get(p)
        or f"{_short(p)} {labels.METRICS[metrics.get(p, 'em')]}"
        + (f", n = {items[p]:,}" if p in items else "")
        for p in part["probes"]
    ]
    if part["fuar"]:
        headers.append(f"FUAR {part['fuar']}")
    rows = []
    for name, row in part["rows"].items():
        # Of a method that the paper has not there is a dash in place of its number.
        lacking = "–" if not any(c["printed"] for c in row.values()) else None
        size = [_beside(sizes[name]["ours"], sizes[name]["paper"] or lacking)] if sizes else []
        shown = [k for k in row if k != FUAR or part["fuar"]]
        rows.append(
            [labels.method_label(name), *size, *(_cell(row[k], k == FUAR, lacking) for k in shown)]
        )
    headers = ["Method", *(["Trainable / all"] if sizes else []), *headers]
    title = f"{scenario}: {part['about']}" if "about" in part else scenario
    return Section(title, headers, rows, part.get("notes", ()))


def _short(probe: str) -> str:
    """The label of a probe of CKL's tables, those of appendices F and G among them."""
    if probe == QUESTIONS.name:
        return QUESTIONS.short
    return (KILT_SETS.get(probe) or known_probe(probe)).short


def _beside(ours: str, paper: str | None) -> str:
    return f"{ours} ({paper})" if paper else ours


def _cell(x: Mapping[str, Any], is_ratio: bool, lacking: str | None) -> Cell:
    form = ratio if is_ratio else two
    paper = form(x["paper"]) if x["printed"] else lacking
    if not x["defined"]:
        return Cell(_beside("–", paper))
    below = "" if x["ours"] is None else f"{form(x['low'])}–{form(x['high'])}"
    return Cell(_beside(form(x["ours"]), paper), below)


def is_experiment(folder: str | Path) -> bool:
    """Whether `folder` is of `ckl experiment`."""
    return (Path(folder) / RECORD).is_file()


def read_tables(path: Path) -> dict[str, Any]:
    """{scenario: its part} of a NAME.json that `write` wrote; parts without rows are left out.

    Raises:
      UserError: the file cannot be read, or holds something else.
    """
    # Files are checked: a table of an older version must not fail in the middle of a mean.
    parts = {k: p for k, p in read_json_object(path).items() if isinstance(p, dict) and "rows" in p}
    for scenario, part in parts.items():
        probes, rows = part.get("probes"), part["rows"]
        if not isinstance(probes, list) or not isinstance(rows, dict):
            raise UserError(f"{path}: {scenario} is not a table; {_AGAIN}")
        for row, columns in rows.items():
            cells = columns if isinstance(columns, dict) else {}
            for column in dict.fromkeys((*probes, *cells)):
                cell = cells.get(column)
                if not isinstance(cell, dict) or not cell.keys() >= _CELL:
                    raise UserError(
                        f"{path}: {scenario} has no numbers of {column} in the row {row}; {_AGAIN}"
                    )
    if not parts:
        raise UserError(f"{path} holds no table; {_AGAIN}")
    return parts


_MEANINGS = {
    "accuracy": "acc.: accuracy, in percent.",
    "em": "EM: exact match, in percent.",
    "f1": "F1: of the words of the answer, in percent.",
    "rouge_l": "R-L: ROUGE-L, in percent.",
    FUAR: "FUAR: points lost for each point updated or acquired; lower is better.",
    "n.d.": "n.d.: not defined, for no probe asks for changed knowledge.",
}


def _about(parts: Collection[Mapping[str, Any]]) -> str:
    """What the numbers of tables are."""
    used = {m for part in parts for m in part.get("metrics", {}).values()} or {"em"}
    used |= {FUAR for part in parts if part["fuar"]}
    used |= {"n.d." for part in parts if "n.d." in (part["fuar"] or "")}
    intro = "Ours, and in brackets the paper's; below, 95 % intervals of a bootstrap over items."
    return " ".join([intro, *(text for name, text in _MEANINGS.items() if name in used)])


def write_tables(
    name: str,
    title: str,
    parts: Mapping[str, Mapping[str, Any]],
    out: Path,
    lead: Sequence[str] = (),
    below: Sequence[Section] = (),
    about: str | None = None,
) -> Path:
    """Writes NAME.json and NAME.md (with "/" as "-"), and prints the tables.

    Args:
      lead, below: see `write_markdown`.
      about: what the numbers are, in sentences behind `lead`; None explains them.

    Returns:
      The path of NAME.md.
    """
    sections = [section(scenario, part) for scenario, part in parts.items()]
    if about is None:
        about = _about(parts.values())
    return write_markdown(name, title, sections, parts, out, [*lead, about], below)
