"""How likely words of running text are to models, relative to Initial: Figure 2, as a table too."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.analysis import labels
from ckl_jax.analysis.figures import as_png, bars, legend, panels, style
from ckl_jax.errors import UserError, nearest
from ckl_jax.files import write_file, write_json
from ckl_jax.papers.temporalwiki.analysis.text_losses import FORMULAS, ratios, read_losses

Table = dict[str, dict[str, dict[str, dict[str, float]]]]  # run -> task -> group -> numbers


def compare(
    runs: Sequence[str | os.PathLike], initial: str | os.PathLike, formula: str = "token_micro"
) -> Table:
    """{run: {task: {group: {"value", "low", "high", "model", "initial"}}}}: ratios to Initial.

    Args:
      runs: MODEL_DIRs or folders of `t5x eval`; their last evaluation counts.
      initial: the same of the Initial model.
      formula: one of `text_losses.FORMULAS`.

    Raises:
      UserError: a folder has no losses of running text, or not of the rows of the others.
    """
    if formula not in FORMULAS:
        raise UserError(
            f"No formula {formula!r}; choose from {', '.join(FORMULAS)}."
            f"{nearest(formula, FORMULAS)}"
        )
    before = read_losses(initial)
    table = {_name(run): ratios(read_losses(run), before, formula) for run in runs}
    if not any(groups for tasks in table.values() for groups in tasks.values()):
        raise UserError(f"{initial} has none of the tasks of the runs; evaluate it too.")
    return table


def _name(run: str | os.PathLike) -> str:
    path = Path(run).resolve()
    return labels.method_key(path.parent.name if path.name == "eval" else path.name)


def as_text(table: Table) -> str:
    """The ratios with their intervals, a line for each run, task and group."""
    rows = [
        (f"{labels.method_label(run)}, {task}, {group.replace('_', ' ')}", x)
        for run, tasks in table.items()
        for task, groups in tasks.items()
        for group, x in groups.items()
    ]
    width = max(len(name) for name, _ in rows)
    heads = ("perplexity of", "ratio", "95 % interval", "model", "Initial")
    lines = ["{:{w}}{:>8}{:>18}{:>10}{:>10}".format(*heads, w=width)]
    for name, x in rows:
        between = f"{x['low']:.3f} to {x['high']:.3f}"
        numbers = f"{x['value']:8.3f}{between:>18}{x['model']:10.2f}{x['initial']:10.2f}"
        lines.append(f"{name:{width}}{numbers}")
    return "\n".join(lines)


def draw(table: Table, group: str = "proper_nouns") -> Any:
    """A panel for each task, a bar for each run; the line is Initial."""
    tasks = list(
        dict.fromkeys(t for groups in table.values() for t in groups if group in groups[t])
    )
    with style():
        figure, axes = panels(max(1, len(tasks)))
        for ax, task in zip(axes, tasks, strict=False):
            _bars(ax, {run: groups[task][group] for run, groups in table.items() if task in groups})
            ax.set_title(task)
            ax.axhline(1.0, color=labels.COLORS["initial"], linewidth=1.0)
            ax.set_ylabel(f"perplexity of {group.replace('_', ' ')} / Initial")
        legend(figure, axes[:1])
    return figure


def _bars(ax: Any, found: Mapping[str, Mapping[str, float]]) -> None:
    for i, (run, x) in enumerate(found.items()):
        bars(ax, [i], [x], width=0.8, label=labels.method_label(run), color=labels.color(run, i))
    ax.set_xticks([])


def write(table: Table, out: str | os.PathLike) -> None:
    """Writes proper_nouns.json and proper_nouns.png to a folder."""
    write_json(Path(out) / "proper_nouns.json", table)
    write_file(Path(out) / "proper_nouns.png", as_png(draw(table)))
