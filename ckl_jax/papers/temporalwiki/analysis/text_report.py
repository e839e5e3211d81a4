"""Perplexity of words in running text, relative to Initial: Figure 2, also as a table."""

import math
import os
from collections.abc import Sequence
from pathlib import Path

from ckl_jax.analysis import labels
from ckl_jax.analysis.figures import bars, legend, panels, png
from ckl_jax.analysis.rows import EVAL
from ckl_jax.analysis.sections import Section
from ckl_jax.errors import UserError, refuse_unknown
from ckl_jax.files import without_nan, write_file, write_json
from ckl_jax.papers.temporalwiki.analysis.text_losses import FORMULAS, ratios, read_losses

Table = dict[str, dict[str, dict[str, dict[str, float]]]]  # run -> task -> group -> numbers


def compare(
    runs: Sequence[str | os.PathLike], initial: str | os.PathLike, formula: str = "token_micro"
) -> Table:
    """{run: {task: {group: numbers of `text_losses.ratios`}}}: ratios to Initial.

    Args:
      runs: MODEL_DIRs or folders of `t5x eval`; their last evaluation counts.
      initial: the same of the Initial model.
      formula: one of `text_losses.FORMULAS`.

    Raises:
      UserError: a folder has no losses of running text, or not of the rows of the others.
    """
    refuse_unknown(formula, FORMULAS, f"No formula {formula!r}; choose from")
    before = read_losses(initial)
    table = {_name(run): ratios(read_losses(run), before, formula) for run in runs}
    if not any(groups for tasks in table.values() for groups in tasks.values()):
        raise UserError(f"{initial} has none of the tasks of the runs; evaluate it too.")
    return table


def _name(run: str | os.PathLike) -> str:
    path = Path(run).resolve()
    # Folders of `t5x eval` are called "eval"; the run's name is the folder above.
    return labels.method_key(path.parent.name if path.name == EVAL else path.name)


def section(table: Table) -> Section:
    """The ratios with their intervals, a row for each run, task and group."""
    rows = [
        [
            f"{labels.method_label(run)}, {task}, {group.replace('_', ' ')}",
            f"{x['value']:.3f}",
            "of one text" if math.isnan(x["low"]) else f"{x['low']:.3f} to {x['high']:.3f}",
            x["model"],
            x["initial"],
            x["rows"],
            x["tokens"],
        ]
        for run, tasks in table.items()
        for task, groups in tasks.items()
        for group, x in groups.items()
    ]
    headers = ["Perplexity of", "Ratio", "95 % interval", "Model", "Initial", "Rows", "Tokens"]
    return Section(headers=headers, rows=rows)


@png
def draw(table: Table, group: str = "proper_nouns"):
    """A panel for each task, a bar for each run; the line is Initial."""
    tasks = dict.fromkeys(t for groups in table.values() for t in groups if group in groups[t])
    figure, axes = panels(max(1, len(tasks)))
    for ax, task in zip(axes, tasks, strict=False):
        known = [(run, groups[task][group]) for run, groups in table.items() if task in groups]
        for i, (run, x) in enumerate(known):
            look = {"label": labels.method_label(run), "color": labels.color(run, i)}
            bars(ax, [i], [x], width=0.8, **look)
        ax.axhline(1.0, color=labels.COLORS["initial"], linewidth=1.0)
        ax.set(title=task, ylabel=f"perplexity of {group.replace('_', ' ')} / Initial", xticks=[])
    legend(figure, axes[:1])
    return figure


def write_table(table: Table, out: str | os.PathLike) -> None:
    """Writes proper_nouns.json and proper_nouns.png to a folder."""
    write_json(Path(out) / "proper_nouns.json", without_nan(table))
    write_file(Path(out) / "proper_nouns.png", draw(table))
