"""Summary of what `ckl mind-the-gap` made: documents, arms, learning rates."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ckl_jax.analysis import page
from ckl_jax.files import read_json, read_jsonl

ARMS = ("time_stratified", "control")


def section(root: str | Path) -> tuple[str, str, str]:
    """The section of the report on a folder of `ckl mind-the-gap`: (anchor, title, HTML)."""
    root = Path(root)
    return ("made", "Data, models, learning rates", "".join(_parts(root)))


def _parts(root: Path) -> Iterator[str]:
    cleaned = root / "data" / "corpus.clean.json"
    if cleaned.is_file():
        counts = read_json(cleaned)["documents"]
        yield page.note(
            "Cleaning: " + ", ".join(f"{count:,} {what}" for what, count in counts.items()) + "."
        )
    made = read_json(root / "data" / "splits" / "split.json")
    yield _splits(made)
    yield _models(root)
    rates = read_json(root / "rates.json")
    if rates:
        yield _rates(rates)


def _splits(made: Mapping[str, Any]) -> str:
    rows = [
        [
            page.text(name.replace("_", " ")),
            f"{c['documents']:,}",
            f"{c['words']:,}",
            page.text(" to ".join(c["dates"])),
        ]
        for name, c in made["counts"].items()
    ]
    share = page.note(
        f"{100 * made['share_from_test_period']:.1f} % of CONTROL's training documents are of the "
        "test period."
    )
    return page.grid(["Split", "Documents", "Words", "Dates"], rows) + share


def _models(root: Path) -> str:
    rows = []
    for arm in ARMS:
        summary = read_json(root / arm / "summary.json")
        held = word_perplexity(root / arm)
        rows.append(
            [
                page.text(arm.replace("_", " ")),
                f"{summary['total_parameters']:,}",
                f"{summary['steps']:,}",
                f"{summary['train_seconds']:,.0f}",
                "–" if held is None else f"{held:.2f}",
            ]
        )
    headers = ["Model", "Parameters", "Steps", "Seconds", "Word perplexity, its validation"]
    return page.grid(headers, rows)


def word_perplexity(model_dir: Path) -> float | None:
    """Perplexity of held text after training; None if there was none."""
    rows = read_jsonl(model_dir / "metrics.jsonl")
    perplexities = [row["word_perplexity"] for row in rows if "word_perplexity" in row]
    return perplexities[-1] if perplexities else None


def _rates(rates: Mapping[str, Mapping[str, float]]) -> str:
    """Perplexity of validation text by mask and rate; the lowest is taken."""
    tried = sorted({rate for perplexities in rates.values() for rate in perplexities}, key=float)
    rows, ends = [], []
    for mask, perplexities in rates.items():
        best = min(perplexities, key=perplexities.__getitem__)
        cells = [f"{perplexities[r]:.2f}" if r in perplexities else "diverged" for r in tried]
        cells[tried.index(best)] = f"<b>{cells[tried.index(best)]}</b>"
        rows.append([page.text(mask), *cells])
        if len(tried) > 1 and best in (tried[0], tried[-1]):
            ends.append(f"{mask} ({best})")
    note = (
        "Learning rates of dynamic evaluation, by the perplexity of documents of TIME-STRATIFIED's "
        "validation months; the best is taken."
    )
    if ends:
        note += f" At an end of those tried, a better one may lie beyond: {', '.join(ends)}."
    return page.grid(["What learns", *tried], rows) + page.note(note)
