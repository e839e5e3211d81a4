"""Scores during training: CKL's Figures 2, 3 and 9, and forgetting by repetition.

The paper has these figures as pictures without numbers; what its tables say of their last points is
given beside ours.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ckl_jax.analysis import figures, labels
from ckl_jax.analysis.rows import Scored
from ckl_jax.analysis.sections import Section
from ckl_jax.analysis.statistics import precision_curve
from ckl_jax.analysis.study import Entry, Study

KEPT = "invariant_lama"
DRAWN = ("main", "small", "p1 → p2")  # the scenarios of Figure 3
METHODS = ("vanilla", "k_adapter_k2")  # and its methods


@dataclasses.dataclass(frozen=True)
class Line:
    """InvariantLAMA during one training, or during consecutive phases."""

    scenario: str  # such as "small", or "p1 → p2"
    key: str  # of the method
    # [(epochs of all phases so far, steps so far, EM in percent)], the first before the first step
    points: Sequence[tuple[float, int, float]]
    rows: Sequence[int] = ()  # of each phase's corpus, where they are known

    @property
    def forgotten(self) -> float:
        """Points of exact match lost from the first to the last point."""
        return self.points[0][2] - self.points[-1][2]


def line_of(scenario: str, phases: Sequence[Entry], start: float, rows: Sequence[int] = ()) -> Line:
    """The line of a model through its phases.

    Args:
      phases: the runs, the first phase's first.
      start: EM in percent of the model before.
      rows: see `Line`.
    """
    # The first point is the model before, at epoch 0.
    points, passes, steps = [(0.0, 0, start)], 0.0, 0
    for entry in phases:
        run = entry.run
        for step in run.steps:
            scores = run.means_at(step)
            # Step 0 is that first point already.
            if step and KEPT in scores:
                points.append((passes + run.epoch_at(step), steps + step, 100.0 * scores[KEPT]))
        # The next phase goes on where this one ended.
        passes, steps = points[-1][0], points[-1][1]
    return Line(scenario, phases[0].key, points, rows)


def figure_2(study: Study, published: Mapping[str, Mapping[str, Any]]) -> tuple[list, dict]:
    """Sections and numbers of Figure 2: the score of each probe after every epoch."""
    curves = figures.read_curves(study)
    initial = {p: 100.0 * float(s.em.mean()) for p, s in study.initial.scores.items()}
    rows = [["Initial", 0, *map(initial.get, study.probes)]]
    for entry in study.methods:
        for _, epoch, scores in curves[entry.key]:
            if epoch:
                rows.append([entry.label, f"{epoch:g}", *map(scores.get, study.probes)])
        last = published.get(entry.key, {})
        # 4 epochs: CKL, section 4.1.
        rows.append([f"{entry.label}, the paper's last", 4, *map(last.get, study.probes)])
    headers = ["Method", "Epoch", *(f"{r.short} EM" for r in study.records.values())]
    note = (
        "The dashed line is the Initial model. The paper prints no numbers of Figure 2; its last "
        "points are those of Table 2."
    )
    image = figures.plot_curves(study, curves)
    section = Section("Scores at each epoch", headers, rows, [note], png=image)
    return [section], {"initial": initial, "curves": curves}


def figure_3(lines: Sequence[Line]) -> tuple[list, dict]:
    """Sections and numbers of Figure 3, InvariantLAMA by epoch, and forgetting by repeats."""
    rows = [
        [
            line.scenario,
            labels.method_label(line.key),
            ", ".join(f"{n:,}" for n in line.rows) or None,
            f"{line.points[-1][0]:g}",
            line.points[-1][1],
            *(line.points[i][2] for i in (0, -1)),
            line.forgotten,
        ]
        for line in lines
    ]
    headers = ["Scenario", "Method", "Rows of an epoch", "Epochs", "Steps"]
    headers += ["IL before", "IL after", "Forgotten"]
    note = (
        "EM in percent, of every cell that this folder holds, its last evaluation. In the paper's: "
        "MAIN 4 epochs and 25k steps, SMALL 8 and 5k, each phase 8 and 2.5k. An epoch of P1, then "
        "P2 passes over one of the two."
    )
    title, image = "Forgetting by epochs, rows and steps", _plot_repeats(lines)
    sections = [
        Section("InvariantLAMA at each epoch", png=_plot_lines(lines)),
        Section(title, headers, rows, [note], png=image),
    ]
    return sections, {"lines": [dataclasses.asdict(line) for line in lines]}


_STYLES = {"main": ("-", "o"), "small": ("--", "s"), "p1": (":", "v"), "p1 → p2": ("-.", "^")}


@figures.png
def _plot_lines(lines: Sequence[Line]):
    """A panel for each method that the paper draws, a line for each of its scenarios."""
    shown = [line for line in lines if line.scenario in DRAWN and line.key in METHODS]
    methods = list(dict.fromkeys(line.key for line in shown))
    figure, axes = figures.panels(len(methods))
    for ax, method in zip(axes, methods, strict=True):
        for line in (line for line in shown if line.key == method):
            dashes, marker = _STYLES[line.scenario]
            epochs, _, scores = zip(*line.points, strict=True)
            look = {"color": labels.color(method), "label": line.scenario}
            ax.plot(epochs, scores, ls=dashes, marker=marker, **look)
        ax.set(title=labels.method_label(method), xlabel="epoch", ylabel="IL EM (%)")
        ax.set_ylim(bottom=0)
    figures.legend(figure, axes)
    return figure


@figures.png
def _plot_repeats(lines: Sequence[Line]):
    """Forgetting at the end of training; colours are methods, markers are scenarios."""
    figure, axes = figures.panels(2)
    for which, (ax, title) in enumerate(zip(axes, ("epochs", "steps"), strict=True)):
        for line in lines:
            look = {"color": labels.color(line.key), "marker": _STYLES[line.scenario][1]}
            at = line.points[-1][which], line.forgotten
            ax.plot(*at, ls="", ms=8, alpha=0.8, **look)
        # Empty lines that only make entries of the legend: methods by colour, scenarios by marker.
        for key in dict.fromkeys(line.key for line in lines):
            ax.plot([], [], lw=5, color=labels.color(key), label=labels.method_label(key))
        for scenario in dict.fromkeys(line.scenario for line in lines):
            sign = _STYLES[scenario][1]
            ax.plot([], [], ls="", marker=sign, color="#707070", label=scenario)
        ax.set(xlabel=title, ylabel="IL forgotten (points)")
        ax.set_xlim(left=0)
    figures.legend(figure, axes)
    return figure


def figure_9(study: Study) -> tuple[list, dict]:
    """Sections and numbers of Figure 9: P@k of each probe, from a search of as many beams."""
    note = (
        "Share of items with a right answer among the first k of a beam search as wide as the "
        "largest k (how the paper got its candidates is not said). It prints no numbers of Figure "
        "9."
    )
    sections = [Section("P@k", png=figures.plot_precision(study), notes=[note])]
    note = "In percent, over items; then as LAMA has it, the mean over relations of their means."
    numbers: dict[str, Any] = {}
    for probe in study.probes:
        curves = {
            e.key: (e.label, _curves(e.scores[probe]))
            for e in study.entries
            if probe in e.scores and e.scores[probe].beams.max() > 2
        }
        if not curves:
            continue
        ks = sorted({k for _, (all_items, _) in curves.values() for k in all_items})
        headers = ["Method", *(f"P@{k}" for k in ks), *(f"P@{k}, of relations" for k in ks)]
        rows = [
            [label, *map(items.get, ks), *map(relations.get, ks)]
            for label, (items, relations) in curves.values()
        ]
        sections.append(Section(study.records[probe].long, headers, rows, [note]))
        numbers[probe] = {
            key: {"items": items, "relations": relations}
            for key, (_, (items, relations)) in curves.items()
        }
    return sections, numbers


def _curves(scored: Scored) -> tuple[dict[int, float], dict[int, float]]:
    """({k: percent of items}, {k: mean over relations of percent}), of the widest search."""
    wide = scored.beams == scored.beams.max()
    relations = np.array(scored.relations)[wide]
    ranks, beams = scored.hit_rank[wide], scored.beams[wide]
    of_items = precision_curve(ranks, beams)
    # Each relation counts once, however many items it has, as in LAMA.
    each = [precision_curve(ranks[relations == r], beams[relations == r]) for r in set(relations)]
    return (
        {k: 100.0 * v for k, v in of_items.items()},
        {k: 100.0 * float(np.mean([curve[k] for curve in each])) for k in of_items},
    )
