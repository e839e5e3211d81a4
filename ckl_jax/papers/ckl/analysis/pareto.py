"""Forgetting against learning over learning rates: fronts, and methods at matched learning.

A point is a run: `forgotten` is what it lost of InvariantLAMA against the Initial model, `learned`
the mean of its UpdatedLAMA and NewLAMA, in points of exact match. A method's front holds its points
that none of its others beats, which learned as much or more and forgot as much or less. It begins
at the Initial model, which is every method at a rate of 0, and is linear between its points.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.analysis import figures, labels
from ckl_jax.analysis.sections import Cell, Section, estimate, two
from ckl_jax.analysis.statistics import SAMPLES, bootstrap_means, bootstrap_seeds, seed_interval
from ckl_jax.analysis.study import Entry, Study, load_study
from ckl_jax.errors import UserError
from ckl_jax.papers.ckl.analysis.experiment_tables import only_probes

INITIAL = "initial"
_KEPT, _UPDATED, _NEW = _PROBES = ("invariant_lama", "updated_lama", "new_lama")
_AXES = ("learned", "forgotten")
_LEVELS = (0.25, 0.5, 0.75)  # of the most that the reference learned
_NAME = re.compile(r"(?P<method>.+?)-(?P<rate>[\d.]+(?:e[-+]?\d+)?)(?:-(?P<strength>\w+=.+))?")


@dataclasses.dataclass(frozen=True)
class Point:
    """A run of one seed; each number is [1 + B]: over all items, then over B resamples."""

    scores: Mapping[str, np.ndarray]  # {probe: EM in percent}
    learned: np.ndarray  # mean of the new facts' EM
    forgotten: np.ndarray  # points of InvariantLAMA lost since the Initial model


Seed = Mapping[str, Point]  # by the name of the run's folder, "initial" among them


def compare(
    folders: Sequence[Sequence[str | Path]], samples: int = SAMPLES
) -> tuple[list[Section], dict[str, Any]]:
    """Sections and numbers of `ckl/pareto`.

    Args:
      folders: of each seed the MODEL_DIRs, named such as "lora-0.002" or "lora-0.002-rank=16".
      samples: B of the bootstrap, over items and, of several seeds, over seeds.

    Raises:
      UserError: no run is there in all seeds, or one lacks a probe.
    """
    seeds = [_read(runs, samples) for runs in folders]
    every = {name for seed in seeds for name in seed if name != INITIAL}
    names = _in_all(seeds, every)
    methods = list(dict.fromkeys(_parts(name)["method"] for name in names))
    # Without Vanilla the method that learned most.
    reference = "vanilla" if "vanilla" in methods else _best(seeds, names)
    of = {m: [n for n in names if _parts(n)["method"] == m] for m in methods}
    at = {m: np.stack([_at_levels(s, of[m], of[reference]) for s in seeds]) for m in methods}
    points = {name: _point([seed[name] for seed in seeds]) for name in names}
    start = _point([seed[INITIAL] for seed in seeds])
    for own in of.values():
        _mark_front([start, *(points[name] for name in own)])
    numbers = {
        "seeds": len(seeds),
        "reference": reference,
        "initial": start,
        "points": points,
        "matched": {m: _by_level(at[m]) for m in methods},
        # Pairs: both methods of a difference have the same resample.
        "more": {m: _by_level(_minus(at[m], at[reference])) for m in methods if m != reference},
        "left_out": sorted(every - set(names)),
    }
    return _sections(numbers), numbers


def _in_all(seeds: Sequence[Seed], every: Iterable[str]) -> list[str]:
    names = [name for name in every if all(name in seed for seed in seeds)]
    if not names:
        raise UserError("No run of ckl/pareto is there in all seeds; train the same in each.")
    return sorted(names, key=_order)


def _mark_front(line: Sequence[dict[str, Any]]) -> None:
    """Sets "front" of a method's points, behind the Initial model's."""
    front = _front(*([p[axis]["value"] for p in line] for axis in _AXES))
    for i, point in enumerate(line[1:], 1):
        point["front"] = i in front


def runs_of(root: str | Path) -> list[Path]:
    """The finished runs in a folder of experiments, Initial's first."""
    runs = [Path(root) / INITIAL, *sorted((Path(root) / "pareto").glob("*"))]
    return [run for run in runs if (run / "summary.json").is_file()]


def most_learned(study: Study) -> Study:
    """The study with one run of each method, the one that learned most."""
    best: dict[str, Entry] = {}
    for entry in study.methods:
        method = _parts(entry.key)["method"]
        if method not in best or _learned(entry) > _learned(best[method]):
            best[method] = entry
    return dataclasses.replace(study, methods=tuple(best.values()))


def _learned(entry: Entry) -> float:
    return sum(float(entry.scores[probe].em.mean()) for probe in (_UPDATED, _NEW))


def _parts(name: str) -> dict[str, str | None]:
    return _NAME.fullmatch(name).groupdict()


def _order(name: str) -> tuple[int, str, float, str]:
    """Sort key of a run in tables: method, then rate."""
    parts = _parts(name)
    method = parts["method"]
    return labels.order(method), method, float(parts["rate"]), parts["strength"] or ""


def _read(runs: Sequence[str | Path], samples: int) -> Seed:
    """The points of a seed; its runs share the resamples of items."""
    study = only_probes(load_study(runs), _PROBES)
    scores: dict[str, dict[str, np.ndarray]] = {entry.key: {} for entry in study.entries}
    for number, probe in enumerate(_PROBES):
        if lacking := [e.key for e in study.entries if probe not in e.scores]:
            raise UserError(
                f"{lacking[0]} of ckl/pareto was not evaluated on {probe}; train it again."
            )
        keys, values = study.values(probe, "em")
        means = np.column_stack([values.mean(axis=1), bootstrap_means(values, samples, number)])
        for key, of_probe in zip(keys, 100.0 * means, strict=True):
            scores[key][probe] = of_probe
    if INITIAL not in scores:
        raise UserError("The scores of the Initial model are not known, which ckl/pareto needs.")
    before = scores[INITIAL][_KEPT]
    return {
        name: Point(x, (x[_UPDATED] + x[_NEW]) / 2, before - x[_KEPT]) for name, x in scores.items()
    }


def _best(seeds: Sequence[Seed], names: Sequence[str]) -> str:
    """The method with the run that learned most, on average over seeds."""
    best = max(names, key=lambda name: sum(seed[name].learned[0] for seed in seeds))
    return _parts(best)["method"]


def _front(learned: Sequence[float], forgotten: Sequence[float]) -> list[int]:
    """Indices of the Pareto-optimal points, by learning, ascending."""
    front: list[int] = []
    # From the one that learned most: each next must forget less than all before.
    for i in sorted(range(len(learned)), key=lambda i: (-learned[i], forgotten[i])):
        if not front or forgotten[i] < forgotten[front[-1]]:
            front.append(i)
    return front[::-1]


def _at_levels(seed: Seed, names: Sequence[str], reference: Sequence[str]) -> np.ndarray:
    """Forgetting of a method at fractions of what the reference's best run learned.

    Args:
      seed: its points.
      names: runs of the method.
      reference: runs of the reference.

    Returns:
      [levels, 1 + B] points, for each level of what the reference's best learned above Initial;
      infinity where the method never learned as much, or the reference learned nothing.
    """
    learned, forgotten = (
        np.stack([getattr(seed[name], of) for name in (INITIAL, *names)]) for of in _AXES
    )
    before = seed[INITIAL].learned
    most = np.max([seed[name].learned for name in reference], axis=0)
    targets = before + np.multiply.outer(_LEVELS, most - before)
    forgetting = np.empty(targets.shape)
    for b in range(forgetting.shape[1]):
        front = _front(learned[:, b], forgotten[:, b])
        line = learned[front, b], forgotten[front, b]
        forgetting[:, b] = np.interp(targets[:, b], *line, right=np.inf)
    # Where the reference learned nothing, nothing can be matched.
    return np.where(most > before, forgetting, np.inf)


def _by_level(values: np.ndarray) -> dict[str, dict[str, Any]]:
    """The estimates of [S, levels, 1 + B] by level."""
    return {str(level): _estimate(values[:, i]) for i, level in enumerate(_LEVELS)}


def _minus(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The difference; infinite where either did not reach the level."""
    return np.subtract(values, others, out=np.full_like(values, np.inf), where=np.isfinite(others))


def _estimate(values: np.ndarray) -> dict[str, Any]:
    """The mean over seeds of [S, 1 + B] and its interval; None is infinity.

    "reached" is the number of seeds in which it is finite.
    """
    drawn = values[:, 1:] if len(values) == 1 else bootstrap_seeds(values[:, 1:])
    low, high = seed_interval(drawn.ravel() if len(values) == 1 else drawn, len(values))
    number = {"value": values[:, 0].mean(), "low": low, "high": high}
    number = {k: float(x) if np.isfinite(x) else None for k, x in number.items()}
    return number | {"reached": int(np.isfinite(values[:, 0]).sum())}


def _point(points: Sequence[Point]) -> dict[str, Any]:
    """The numbers of a run, over seeds."""
    each = {probe: [p.scores[probe] for p in points] for probe in _PROBES}
    each |= {of: [getattr(p, of) for p in points] for of in _AXES}
    return {name: _estimate(np.stack(values)) for name, values in each.items()}


def _setting(name: str) -> str:
    """The rate, and the strength if it is not the usual one: "2e-3, rank=16"."""
    parts = _parts(name)
    digits, exponent = f"{float(parts['rate']):e}".split("e")
    return ", ".join(filter(None, (f"{float(digits):g}e{int(exponent)}", parts["strength"])))


def _sections(numbers: Mapping[str, Any]) -> list[Section]:
    points, seeds = numbers["points"], numbers["seeds"]
    over = f"items and {seeds} seeds" if seeds > 1 else "items, of one seed"
    columns = (*_PROBES, *_AXES)
    rows = [["Initial", None, *(estimate(numbers["initial"][c]) for c in columns), None]]
    rows += [
        [
            labels.method_label(_parts(name)["method"]),
            _setting(name),
            *(estimate(point[c]) for c in columns),
            "yes" if point["front"] else None,
        ]
        for name, point in points.items()
    ]
    best = labels.method_label(numbers["reference"])
    headers = ["Method"] + [f"at {100 * level:g} % of {best}'s best" for level in _LEVELS]
    notes = [
        "Learned: the mean of UL and NL; forgotten: IL lost since Initial; points of EM, with 95 % "
        f"intervals over {over}. On a method's front are its points that none of its others beats "
        "in both."
    ]
    if numbers["left_out"]:
        notes.append(f"Not in all seeds, and left out: {', '.join(numbers['left_out'])}.")
    of_matched = (
        "Points of IL, linear between the points of a method's front, which begins at Initial; "
        "learning is what was gained above Initial. Below, 95 % intervals over "
        f"{over}, in which ∞ is a resample that never learned as much. A dash: the method did not "
        "learn as much at any rate."
    )
    of_more = "Differences of the same resamples; below 0 the method forgot less."
    matched, more = (
        [
            [labels.method_label(m), *(_matched(x, seeds) for x in of_levels.values())]
            for m, of_levels in numbers[which].items()
        ]
        for which in ("matched", "more")
    )
    title = f"Forgotten more than by {best} at matched learning"
    columns = ["Method", "Rate", "IL EM", "UL EM", "NL EM", "Learned", "Forgotten", "Front"]
    return [
        Section("Forgetting against learning", png=_plot(numbers)),
        Section("Forgotten at matched learning", headers, matched, [of_matched]),
        Section(title, headers, more, [of_more] * bool(more)),
        Section("All runs", columns, rows, notes),
    ]


def _matched(x: Mapping[str, Any], seeds: int) -> Cell:
    if x["value"] is None:
        return Cell("–", f"reached in {x['reached']} of {seeds} seeds" if seeds > 1 else "")
    low, high = ("∞" if x[end] is None else two(x[end]) for end in ("low", "high"))
    return Cell(two(x["value"]), f"{low} to {high}")


@figures.png
def _plot(numbers: Mapping[str, Any]):
    """A line for each front, and all points with their intervals; dominated points are lighter."""
    from matplotlib.patheffects import withStroke

    figure, (ax,) = figures.panels(1, size=(8.6, 5.4))
    start = [numbers["initial"][of]["value"] for of in _AXES]
    for position, method in enumerate(numbers["matched"]):
        own = {n: p for n, p in numbers["points"].items() if _parts(n)["method"] == method}
        on_front = [p for p in own.values() if p["front"]]
        front = sorted([start, *([p[of]["value"] for of in _AXES] for p in on_front)])
        look = figures.look(method, position)
        ax.plot(*zip(*front, strict=True), color=look["color"], lw=1.4, zorder=2)
        ax.plot([], [], **look, lw=1.4, label=labels.method_label(method))
        for name, point in own.items():
            x, y = point["learned"], point["forgotten"]
            faint = {} if point["front"] else {"alpha": 0.4}
            errors = [
                [[max(0.0, v["value"] - v["low"])], [max(0.0, v["high"] - v["value"])]]
                for v in (x, y)
            ]
            bars = {"elinewidth": 0.7, "ecolor": look["color"], "zorder": 3, **faint}
            container = ax.errorbar(x["value"], y["value"], errors[1], errors[0], **look, **bars)
            container[0].hover = f"{labels.method_label(method)} {_setting(name)}"
            for line in container[2]:
                line.set_alpha(0.35)
            ax.annotate(
                _setting(name),
                (x["value"], y["value"]),
                # Methods next to each other have their labels on different sides.
                xytext=((5, 4), (-5, -10), (5, -10), (-5, 4))[position % 4],
                ha="right" if position % 4 in (1, 3) else "left",
                textcoords="offset points",
                fontsize=7.5,
                color=look["color"],
                path_effects=[withStroke(linewidth=2.0, foreground="white")],
                **faint,
            )
    ax.plot(*start, ls="", ms=11, **figures.look(INITIAL), label="Initial")
    ax.set(
        xlabel="learned: mean of UL and NL (EM, %)",
        ylabel="forgotten of IL (points)",
    )
    figures.legend(figure, [ax], beside=True)
    return figure
