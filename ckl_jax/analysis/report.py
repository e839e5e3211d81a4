"""The report of a study: report.html, table.md, table.json and figures/*.png."""

import contextlib
import dataclasses
import importlib.metadata
import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ckl_jax
from ckl_jax.analysis import changes, figures, labels
from ckl_jax.analysis.main_table import compute_table, gains, section
from ckl_jax.analysis.sections import Section, write_page
from ckl_jax.analysis.study import Study, load_study, seed_of
from ckl_jax.data.facts.ckl_files import BLANK
from ckl_jax.data.facts.probe import ROLES, Probe
from ckl_jax.errors import UserError
from ckl_jax.files import read_json, read_text, write_file, write_json

_PACKAGES = ("jax", "flax", "optax", "numpy")


def find_runs(paths: Iterable[str | Path]) -> list[Path]:
    """Folders of runs, the Initial model first.

    Args:
      paths: MODEL_DIRs, or folders that hold some (a demo), which stand for all of them.

    Raises:
      UserError: no such folder, or no run in it.
    """
    runs: dict[Path, Path] = {}  # by the folder itself, which may be given in two spellings
    for path in map(Path, paths):
        if not path.is_dir():
            raise UserError(f"No folder {path}; give MODEL_DIRs or the folder of a demo.")
        inside = [path] if is_run(path) else _inside(path)
        if not inside:
            raise UserError(
                f"{path} holds no run (config.gin, probes/rows_<step>.jsonl), and neither do the "
                "folders in it; give MODEL_DIRs or the folder of a demo."
            )
        for run in inside:
            runs.setdefault(run.resolve(), run)
    return list(runs.values())


def is_run(folder: Path) -> bool:
    """Whether a folder is a MODEL_DIR, even of a run that has only begun."""
    # TemporalWiki's studies have a folder `probes` too, with the facts.
    return any((folder / "probes").glob("rows_*.jsonl")) or any(
        (folder / name).is_file() for name in ("config.gin", "log.txt")
    )


def _inside(folder: Path) -> list[Path]:
    runs = [path for path in folder.iterdir() if is_run(path)]
    return sorted(runs, key=lambda path: (labels.order(labels.method_key(path.name)), path.name))


def write_report(
    run_dirs: Sequence[str | Path], out_dir: str | Path, *, acquired: Sequence[str] = ()
) -> Path:
    """Writes the report of some runs and prints its table; returns the path of report.html.

    Args:
      run_dirs: MODEL_DIRs, the Initial model first; those without rows are noted and left out.
      out_dir: gets report.html, table.md, table.json and figures/.
      acquired: probes that FUAR takes for new knowledge; default, see `main_table.fuar_tasks`.

    Raises:
      UserError: none of the runs was probed, they do not fit together, or `out_dir` cannot be
        written.
    """
    out = Path(out_dir)
    study = load_study(run_dirs)
    table, f1_table = (compute_table(study, metric, acquired=acquired) for metric in ("em", "f1"))
    drawn = figures.draw(study, table)
    evaluations = {e.key: e.run.evaluations for e in study.entries if e.run}
    tables = {"em": table, "f1": f1_table, "evaluations": evaluations, "notes": study.notes}
    main = section(table, title="Scores", anchor="scores")
    in_f1 = section(f1_table, title="Scores in F1", anchor="f1")
    noted = dataclasses.replace(main, notes=[*main.notes, *study.notes])
    md = (dataclasses.replace(part, title="").markdown() for part in (noted, in_f1))
    sections = [
        main,
        *drawn.values(),
        in_f1,
        changes.examples(study),
        changes.overlap_section(_overlaps(study)),
        changes.grouped(study, "groups"),
        changes.grouped(study, "dates"),
        changes.grouped(study, "relations"),
        _evaluations(study),
        changes.all_facts(study),
        _settings(study),
    ]
    title = "What was kept, updated, learned and forgotten"
    # The page comes first: by it a report that was interrupted is known as this package's.
    page = write_page(out / "report.html", title, sections, [*_lead(study, table), *study.notes])
    figures.save(drawn, out / "figures")
    write_json(out / "table.json", tables)
    write_file(out / "table.md", "\n".join(md))
    dataclasses.replace(main, title="", notes=study.notes).show()
    return page


def overview(study: Study, acquired: Sequence[str] = ()) -> list[str]:
    """Sentences: what was compared on which probes, each kind of knowledge before and after, and
    what two probes ask.

    Args:
      acquired: the probes of new knowledge; by default all of that role.
    """
    old, changed, new = ([r for r in study.records.values() if r.role == role] for role in ROLES)
    new = [r for r in new if not acquired or r.name in acquired]
    sentences = (_of_probe(study, record) for record in (*old[:1], *changed[:1], *new))
    return [
        f"{labels.count(len(study.methods), 'updated model')} on {sizes(study)}.",
        " ".join(filter(None, sentences)),
        examples(study),
    ]


def sizes(study: Study) -> str:
    """Each probe with its abbreviation and its number of items, such as "FEVER (FEV, 65)"."""
    items = {p: len(s.items) for e in study.entries for p, s in e.scores.items()}
    short = {p: "" if r.short == r.long else f"{r.short}, " for p, r in study.records.items()}
    return ", ".join(f"{r.long} ({short[p]}{items[p]:,})" for p, r in study.records.items())


def _lead(study: Study, table: dict[str, Any]) -> list[str]:
    """The summary: `overview`, and the best FUAR."""
    sentences = overview(study)
    measured = [row for row in table["rows"] if row["fuar"]]
    ranked = [row for row in measured if gains(row)]
    if measured and not ranked:
        sentences.append(
            'No method surely gained: the intervals of all ratios (FUAR) reach "no gain".'
        )
    if ranked:
        best = min(ranked, key=lambda row: row["fuar"]["value"])
        most = max(ranked, key=lambda row: row["fuar"]["gained"])
        ratio = best["fuar"]
        sentence = (
            f"{best['label']} forgot least for what it gained: a ratio (FUAR) of "
            f"{ratio['value']:.2f} ({ratio['lost']:.1f} points lost, {ratio['gained']:.1f} gained; "
            f"95 % interval {ratio['low']:.2f} to {ratio['high']:.2f}){_against(table, best)}"
        )
        if most is not best:
            sentence += (
                f"; {most['label']} gained most, {most['fuar']['gained']:.1f} points, and lost "
                f"{most['fuar']['lost']:.1f}"
            )
        sentences.append(f"{sentence}.")
    return sentences


def _against(table: dict[str, Any], best: Mapping[str, Any]) -> str:
    """Whether the best FUAR differs from the baseline's, by the test of the table's "*".

    That of the baseline itself is compared with the second best.
    """
    rows = [row for row in table["rows"] if row is not best and row["fuar"]]
    second = min(filter(gains, rows), key=lambda row: row["fuar"]["value"], default=None)
    base = next((row for row in rows if row["key"] == table["baseline"]), second)
    if not (test := base and (best["tests"].get("fuar") or base["tests"].get("fuar"))):
        return ""
    differs = "differs" if test["p_holm"] <= table["alpha"] else "does not differ"
    return f", which {differs} from {base['label']}'s at {table['alpha']:.2f} (paired test)"


def examples(study: Study) -> str:
    """A sentence on what the first two probes ask."""
    examples = []
    for probe in study.probes[:2]:
        row = next(e.scores[probe].rows[0] for e in study.entries if probe in e.scores)
        before = f", before {row['old_answers'][0]}" if row.get("old_answers") else ""
        question = changes.cut(row.get("input", row["item"]).replace(BLANK, "____"))
        examples.append(f"{study.records[probe].long}, “{question}” ({row['answers'][0]}{before})")
    return f"What probes ask, for example: {'; '.join(examples)}."


def _of_probe(study: Study, record: Probe) -> str:
    """A probe's score before the updates, and after the best and the worst one."""
    probed = [e for e in study.entries if record.name in e.scores]
    scores = {e.label: 100.0 * float(e.scores[record.name].em.mean()) for e in probed}
    before = scores.pop(study.initial.label, None) if study.initial else None
    if not scores:
        return ""
    right = extremes(scores, "{:.1f} % right", "{:.1f} %")
    return f"{record.long}: {right}{'' if before is None else f', {before:.1f} % before'}."


def extremes(scores: Mapping[str, float], first: str, second: str) -> str:
    """The best and the worst update, such as "41.2 % right after LoRA, 30.0 % after Vanilla".

    Args:
      scores: {label of an update: score}, at least one.
      first, second: formats of the best and the worst score.
    """
    (most, high), (least, low) = (f(scores.items(), key=lambda x: x[1]) for f in (max, min))
    same = high == low and len(scores) > 1
    text = f"{first.format(high)} after {'each' if same else most}"
    return text if high == low else f"{text}, {second.format(low)} after {least}"


def _overlaps(study: Study) -> dict[str, Mapping[str, Mapping[str, Any]]]:
    """{label: overlap of the probe with the training text, as its rows record it}."""
    overlaps = {}
    for probe, record in study.records.items():
        known = [e.scores[probe].overlap for e in study.entries if probe in e.scores]
        overlaps[record.long] = next((mine for mine in known if mine), {})
    return overlaps


def _evaluations(study: Study) -> Section:
    """The last scores of evaluations that are not probes, such as held-out perplexity."""
    entries = [(e.label, e.run.evaluations) for e in study.entries if e.run]
    columns = sorted({column for _, scores in entries for column in scores})
    rows = [
        [label, *(f"{scores[c]:.4g}" if c in scores else None for c in columns)]
        for label, scores in entries
        if columns
    ]
    return Section("Other evaluations", ["Run", *columns], rows, anchor="evaluations")


def _settings(study: Study) -> Section:
    runs = [(e.label, e.run) for e in study.entries if e.run]
    names = ("device", "epochs", "steps")
    rows = [
        [label, run.path, *(str(run.summary.get(k, "–")) for k in names), seed_of(run) or None]
        for label, run in runs
    ]
    demos = [demo for _, run in runs if (demo := run.path.parent / "demo.json").exists()]
    notes = [versions(), *(f"Demo: {json.dumps(read_json(demo))}" for demo in demos[:1])]
    headers = ["Run", "Folder", "Device", "Epochs", "Steps", "Seed"]
    below = configs((label, run.path) for label, run in runs)
    about = {"sections": below, "kind": "plain", "anchor": "settings"}
    return Section("Settings", headers, rows, notes, **about)


def versions() -> str:
    """A sentence with the versions of the packages that made a report."""
    packages = [f"ckl_jax {ckl_jax.__version__}", f"Python {platform.python_version()}"]
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            packages.append(f"{name} {importlib.metadata.version(name)}")
    return f"Report written with {', '.join(packages)}."


def configs(folders: Iterable[tuple[str, Path]]) -> list[Section]:
    """(name, MODEL_DIR) of each run, for links to its config.gin."""
    return [
        Section(f"{name}: config.gin", code=read_text(path))
        for name, folder in folders
        if (path := folder / "config.gin").exists()
    ]
