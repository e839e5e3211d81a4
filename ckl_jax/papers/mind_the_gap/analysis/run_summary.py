"""Summary of a `ckl mind-the-gap` run: documents, arms, learning rates."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckl_jax.analysis.rows import training_flops
from ckl_jax.analysis.sections import COSTS, Cell, Section, costs, two
from ckl_jax.files import ANY_NUMBER, read_json_object, read_jsonl

ARMS = ("time_stratified", "control")


def section(root: str | Path) -> Section:
    """The section of the report on a folder of `ckl mind-the-gap`."""
    root = Path(root)
    notes = []
    cleaned = root / "data" / "corpus.clean.json"
    if cleaned.is_file():
        counts = read_json_object(cleaned)["documents"]
        notes.append(f"Cleaning: {', '.join(f'{n:,} {what}' for what, n in counts.items())}.")
    parts = [
        Section(notes=notes),
        _splits(read_json_object(root / "data" / "splits" / "split.json")),
        _models(root),
        _rates(read_json_object(root / "rates.json", ANY_NUMBER)),
    ]
    return Section("Data, models, learning rates", sections=parts, anchor="made")


def _splits(made: Mapping[str, Any]) -> Section:
    rows = [
        [name.replace("_", " "), c["documents"], c["words"], " to ".join(c["dates"])]
        for name, c in made["counts"].items()
    ]
    note = (
        f"{100 * made['fraction_from_test_period']:.1f} % of CONTROL's training "
        f"{made['settings']['measure']} are from the test period."
    )
    return Section("", ["Split", "Documents", "Words", "Dates"], rows, [note])


def _models(root: Path) -> Section:
    rows = []
    others = {path.parent.name for path in root.glob("*/summary.json")} - {*ARMS}
    for arm in (*ARMS, *sorted(others)):
        summary = read_json_object(root / arm / "summary.json", ANY_NUMBER)
        counts = (summary[name] for name in ("total_parameters", "steps"))
        cost = costs(training_flops(summary), summary.get("train_cpu_seconds"))
        rows.append([arm.replace("_", " "), *counts, *cost, word_perplexity(root / arm)])
    headers = ["Model", "Parameters", "Steps", *COSTS, "Word perplexity, its validation"]
    return Section("", headers, rows)


def word_perplexity(model_dir: Path) -> float | None:
    """Perplexity of held-out text after training, or None."""
    rows = read_jsonl(model_dir / "metrics.jsonl")
    perplexities = [row["word_perplexity"] for row in rows if "word_perplexity" in row]
    return perplexities[-1] if perplexities else None


def _rates(rates: Mapping[str, Mapping[str, float]]) -> Section:
    """Validation perplexity by mask and rate; the lowest is used."""
    tried = sorted({rate for perplexities in rates.values() for rate in perplexities}, key=float)
    rows, ends = [], []
    for mask, perplexities in rates.items():
        best = min(perplexities, key=perplexities.__getitem__)
        cells = {r: two(perplexities[r]) if r in perplexities else "diverged" for r in tried}
        rows.append([mask, *(Cell(text, rank=int(r == best)) for r, text in cells.items())])
        # The optimum may lie beyond an endpoint of the grid.
        if len(tried) > 1 and best in (tried[0], tried[-1]):
            ends.append(f"{mask} ({best})")
    note = (
        "Learning rates of dynamic evaluation, by the perplexity of documents of TIME-STRATIFIED's "
        "validation months; the best is taken."
    )
    if ends:
        note += f" At an end of those tried, a better one may lie beyond: {', '.join(ends)}."
    return Section("", ["What learns", *tried], rows, [note] if rows else ())
