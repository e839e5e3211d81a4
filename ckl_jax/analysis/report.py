"""The report of a study: report.html, table.md, table.json and figures/*.png."""

import importlib.metadata
import json
import platform
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import ckl_jax
from ckl_jax.analysis import changes, figures, labels, page
from ckl_jax.analysis.render_table import as_markdown, print_table
from ckl_jax.analysis.study import Study, load_study, seed_of
from ckl_jax.analysis.tables import compute_table
from ckl_jax.errors import UserError
from ckl_jax.files import write_file, write_json

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
    """Whether a folder is a MODEL_DIR, be it of a run that has only begun."""
    return (folder / "probes").is_dir() or any(
        (folder / name).is_file() for name in ("config.gin", "log.txt")
    )


def _inside(folder: Path) -> list[Path]:
    known = list(labels.METHODS)
    found = [path for path in folder.iterdir() if is_run(path)]

    def order(path: Path) -> tuple[int, str]:
        key = labels.method_key(path.name)
        return (known.index(key) if key in known else len(known), path.name)

    return sorted(found, key=order)


def write_report(
    run_dirs: Sequence[str | Path], out_dir: str | Path, *, acquired: Sequence[str] = ()
) -> Path:
    """Writes the report of some runs and prints its table.

    Args:
      run_dirs: MODEL_DIRs, the Initial model first; those without rows are noted and left out.
      out_dir: gets report.html, table.md, table.json and figures/.
      acquired: probes that FUAR takes for new knowledge; default, see `tables.fuar_tasks`.

    Returns:
      The path of report.html.

    Raises:
      UserError: none of the runs was probed, they do not fit together, or `out_dir` cannot be
        written.
    """
    out = Path(out_dir)
    study = load_study(run_dirs)
    table, f1_table = (compute_table(study, metric, acquired=acquired) for metric in ("em", "f1"))
    drawn = figures.draw(study, table)
    figures.save(drawn, out / "figures")
    evaluations = {e.key: e.run.evaluations for e in study.entries if e.run}
    tables = {"em": table, "f1": f1_table, "evaluations": evaluations, "notes": study.notes}
    write_json(out / "table.json", tables)
    write_file(out / "table.md", as_markdown(table) + "\n" + as_markdown(f1_table))
    write_file(out / "report.html", _html(study, table, f1_table, drawn))
    print_table(table)
    for sentence in study.notes:
        print(sentence)
    return out / "report.html"


def _html(study: Study, table: dict, f1_table: dict, drawn: dict) -> str:
    names = [entry.label for entry in study.entries]
    sections = [("scores", "Scores", page.main_table(table))]
    sections += [
        (name, title, page.figure(title, caption, png))
        for name, (title, caption, png) in drawn.items()
    ]
    sections += [
        ("f1", "Scores in F1", page.main_table(f1_table)),
        ("examples", "Changed predictions", _examples(study, names)),
        ("dates", "Scores by date", _groups(study, names, "Date", changes.date_table)),
        (
            "relations",
            "Scores by relation",
            _groups(study, names, "Relation", changes.relation_table),
        ),
        ("evaluations", "Other evaluations", _evaluations(study)),
        ("settings", "Settings", _settings(study)),
    ]
    lead = "".join(map(page.note, [_lead(study, table), *study.notes]))
    return page.page("What was kept, updated, learned and forgotten", lead, sections)


def _lead(study: Study, table: dict[str, Any]) -> str:
    items = {p: len(s.items) for e in study.entries for p, s in e.scores.items()}
    sizes = [f"{r.long} ({items[p]:,})" for p, r in study.records.items()]
    ranked = [row for row in table["rows"] if row["fuar"] and row["fuar"]["value"] is not None]
    sentence = f"{labels.count(len(study.methods), 'updated model')} on {', '.join(sizes)}."
    if ranked:
        winner = min(ranked, key=lambda row: row["fuar"]["value"])
        value = winner["fuar"]["value"]
        sentence += f" Lowest forgetting ratio: {winner['label']}, {value:.2f}."
    return sentence


def _examples(study: Study, names: list[str]) -> str:
    chosen = changes.pick_examples(study)
    if not chosen:
        return ""
    intro = page.note(
        "First answers, with the state of the fact relative to the Initial model; facts on which "
        "the methods differ most."
    )
    return intro + page.examples(names, chosen)


def _groups(study: Study, names: list[str], kind: str, make: Callable[[Study, str], list]) -> str:
    """A table of each probe that `make` has rows of."""
    parts = []
    for probe, record in study.records.items():
        if rows := make(study, probe):
            parts.append(f"<h3>{page.text(record.long)}, EM</h3>")
            parts.append(page.groups(kind, names, rows))
    return "".join(parts)


def _evaluations(study: Study) -> str:
    """The last scores of evaluations that are no probes, such as perplexity of held-out text."""
    entries = [(e.label, e.run.evaluations) for e in study.entries if e.run]
    columns = sorted({column for _, scores in entries for column in scores})
    if not columns:
        return ""
    cells = [
        [page.text(label), *(f"{scores[c]:.4g}" if c in scores else "–" for c in columns)]
        for label, scores in entries
    ]
    return page.grid(["Run", *map(page.text, columns)], cells)


def _settings(study: Study) -> str:
    rows = []
    for entry in (e for e in study.entries if e.run):
        s = entry.summary
        rows.append(
            [
                page.text(entry.label),
                page.text(entry.run.path),
                *(page.text(s.get(k, "–")) for k in ("device", "epochs", "steps")),
                page.text(seed_of(entry.run) or "–"),
            ]
        )
    headers = ["Run", "Folder", "Device", "Epochs", "Steps", "Seed"]
    return page.grid(headers, rows, "plain") + page.note(versions()) + _configs(study)


def versions() -> str:
    found = [f"ckl_jax {ckl_jax.__version__}", f"Python {platform.python_version()}"]
    for name in _PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return f"Report written with {', '.join(found)}."


def _configs(study: Study) -> str:
    parts = []
    for entry in (e for e in study.entries if e.run):
        demo = entry.run.path.parent / "demo.json"
        if demo.exists() and not parts:
            settings = json.dumps(json.loads(demo.read_text(encoding="utf-8")))
            parts.append(page.note(f"Demo: {settings}"))
        config = entry.run.path / "config.gin"
        if config.exists():
            content = page.text(config.read_text(encoding="utf-8"))
            parts.append(
                f"<details><summary>{page.text(entry.label)}: config.gin</summary>"
                f"<pre>{content}</pre></details>\n"
            )
    return "".join(parts)
