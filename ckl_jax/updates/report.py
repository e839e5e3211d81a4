"""report.html of an update and history.html of all updates of a registry."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.analysis import gate
from ckl_jax.analysis.figures import legend, panels, png
from ckl_jax.analysis.gate import decimals
from ckl_jax.analysis.labels import STATE_COLORS, count
from ckl_jax.analysis.ledger import BY_INTEREST, MEANING, STATES
from ckl_jax.analysis.sections import Cell, Section, write_page
from ckl_jax.updates import scores
from ckl_jax.updates.items import TAGS
from ckl_jax.updates.records import described, read, read_rows
from ckl_jax.updates.registry import Registry

_FACTS = ("question and answer", "before", "after", "state", "kind", "date", "stated in the text")
_HEADLINES = {
    gate.SHIP: "The updated model may ship.",
    gate.HOLD: "The updated model should not ship.",
    gate.TOO_FEW: "There is not enough evidence to ship the updated model.",
}


def write_report(
    folder: Path, verdict: Mapping[str, Any], rows: Sequence[Mapping], registry: Registry
) -> Path:
    """Writes report.html of an update.

    Args:
      verdict: of `gate.Gate.judge`.
      rows: of the ledger.
      registry: that the update is in.
    """
    counts = read(folder, "documents.json")
    recited = described(read(folder, "overlap.json"))
    record = read(folder, "update.json")
    estimates = verdict["scores"]
    lead = [
        f"{_HEADLINES[verdict['verdict']]} {'; '.join(verdict['reasons'])}.",
        _says(estimates),
        f"Update {folder.name} of {Path(registry.model).name}, by {record['method']}, on "
        f"{count(counts['kept'], 'document')} with {counts['words']:,} new words, "
        f"{counts['first_date']} to {counts['last_date']}"
        + (f"; {counts['empty']:,} had no words." if counts["empty"] else "."),
        _asked(rows),
    ]
    spans = {n: f"{decimals(s['low'])} to {decimals(s['high'])}" for n, s in estimates.items()}
    scored = [
        [name, decimals(estimates[name]["value"]), spans[name], estimates[name]["n"], text]
        for name, text in scores.SCORES.items()
        if name in estimates
    ]
    kinds = [
        [tag, *(sum(r["tag"] == tag and r["state"] == s for r in rows) for s in STATES)]
        for tag in TAGS
        if any(r["tag"] == tag for r in rows)
    ]
    tasks = [
        [task, metric, _error(before[metric]), _error(value), value[2]]
        for task, (before, after) in verdict.get("tasks", {}).items()
        for metric, value in after.items()
        if metric in before
    ]
    notes = [
        f"Condition: {verdict['condition']}. It must hold of the whole interval.",
        "A fact is answered right when the model ranks its answer first of up to ten.",
    ]
    errors = ["Of lm-evaluation-harness, with 1.96 standard errors."] * ("tasks" in verdict)
    of_tasks = ["task", "metric", "before", "after", "items"]
    of_scores = ["score", "value", "95 % interval", "n", "what it is"]
    sections = [
        Section("Scores", of_scores, scored, notes, anchor="scores", kind="plain"),
        Section("Facts by kind", ["kind", *STATES], kinds, [MEANING, recited], anchor="kinds"),
        Section("General tasks", of_tasks, tasks, errors, anchor="tasks"),
        _facts(rows),
    ]
    return write_page(folder / "report.html", f"Update {folder.name}", sections, lead)


def _asked(rows: Sequence[Mapping]) -> str:
    """What two facts ask, of two kinds if there are two."""
    first = {r["tag"]: r for r in reversed(rows)}
    two = [first[tag] for tag in TAGS if tag in first] + [
        r for r in rows if r is not first[r["tag"]]
    ]
    shown = (f"“{r['question']}” ({r['candidates'][0]}, {r['tag']})" for r in two[:2])
    return f"What is asked, for example: {'; '.join(shown)}." if rows else ""


def _facts(rows: Sequence[Mapping]) -> Section:
    """All facts, those that tell most first."""
    cells = []
    for r in sorted(rows, key=lambda r: (BY_INTEREST.index(r["state"]), r["tag"])):
        asked = Cell(r["question"], r["candidates"][0] + (r["old"] and f" (was {r['old']})"))
        state = Cell("", r["state"], color=STATE_COLORS[r["state"]])
        of_text = (r[name] for name in ("tag", "date", "evidence"))
        cells.append([asked, r["before"], r["after"], state, *of_text])
    notes = [f"States: {MEANING}", "ledger.jsonl has the facts with all candidates."]
    return Section("All facts", _FACTS, cells, notes, anchor="facts", kind="examples")


def _error(result: Sequence[float | None]) -> str:
    value, error, _ = result
    return decimals(value) + ("" if error is None else f" ± {1.96 * error:.3f}")


def _says(estimates: Mapping[str, Mapping[str, float]]) -> str:
    said = []
    for tag in TAGS:
        if after := estimates.get(tag):
            change = estimates.get("kept_loss" if tag == "kept" else f"{tag}_gain", {"value": 0.0})
            before = after["value"] + change["value"] * (1 if tag == "kept" else -1)
            said.append(
                f"of {after['n']} {tag} facts it answers {after['value']:.0%}, "
                f"and answered {before:.0%} before"
            )
    text = "; ".join(said)
    return f"{text[:1].upper()}{text[1:]}." if said else "No facts could be asked."


def write_history(registry: Registry) -> Path:
    """Writes history.html: one row per update, and the scores as curves."""
    history = registry.history()
    headers = ["update", "begun", "method", "from", "verdict", *scores.SCORES]
    rows = []
    for h in history:
        estimates, base = map(h["scores"].get, scores.SCORES), h["base"] or "the first model"
        values = [decimals(score["value"]) if score else "" for score in estimates]
        rows.append([h["name"], h["date"], h["method"], base, h["verdict"], *values])
    notes = [f"Current: {registry.current or 'the first model'}."]
    sections = [
        Section("Scores over updates", png=plot_history(history), anchor="curves"),
        Section("Updates", headers, rows, notes, anchor="updates", kind="plain"),
        _by_origin(registry, history),
    ]
    fit = sum(h["verdict"] == gate.SHIP for h in history)
    lead = [f"{count(len(history), 'update')}, of which {fit} may ship."]
    return write_page(registry.root / "history.html", "Updates", sections, lead)


def _by_origin(registry: Registry, history: Sequence[Mapping]) -> Section:
    """Facts answered right after each update, by the month of the fact."""
    by_month: dict[str, dict[str, list[bool]]] = {}
    for h in history:
        for row in read_rows(registry.root / "updates" / h["name"], "ledger.jsonl"):
            months = by_month.setdefault(row["date"][:7] or "no date", {})
            months.setdefault(h["name"], []).append(row["after"] == row["candidates"][0])
    names = [h["name"] for h in history]
    rows = [
        [month, *(_share(by_update.get(name)) for name in names)]
        for month, by_update in sorted(by_month.items())
    ]
    title = "Facts answered right, by their month"
    note = "A column is a model; its facts of earlier months are what it was to keep."
    return Section(title, ["month", *names], rows[-36:], [note], anchor="months")


def _share(right: Sequence[bool] | None) -> str:
    return f"{sum(right) / len(right):.0%} of {len(right)}" if right else ""


@png
def plot_history(history: Sequence[Mapping]):
    """Plots the scores that are fractions of facts over updates; None for a single update."""
    if len(history) < 2:
        return None
    figure, (ax,) = panels(1, size=(7, 3.2))
    for tag in TAGS:
        points = [(i, h["scores"][tag]) for i, h in enumerate(history) if tag in h["scores"]]
        if points:
            x, y = zip(*((i, s["value"]) for i, s in points), strict=True)
            (line,) = ax.plot(x, y, marker="o", label=f"{tag} facts")
            low, high = ([s[k] for _, s in points] for k in ("low", "high"))
            ax.fill_between(x, low, high, color=line.get_color(), alpha=0.15)
    ax.set_xticks(range(len(history)), [h["name"] for h in history])
    ax.set(xlabel="update", ylabel="answered right after it", ylim=(0, 1))
    legend(figure, [ax])
    return figure
