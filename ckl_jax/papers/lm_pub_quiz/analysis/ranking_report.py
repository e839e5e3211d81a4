"""Results of ranking in words and figures: accuracies, biases, and what differs between models."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.analysis import figures, labels, sections, statistics
from ckl_jax.analysis.sections import Cell, Section
from ckl_jax.errors import UserError
from ckl_jax.files import read_json, write_file
from ckl_jax.papers.lm_pub_quiz import ranking_metrics
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults, RelationResult

_MOST_ROWS = 4000  # of a page


def summary(results: DatasetResults) -> str:
    """The accuracy with its bootstrap interval over instances, by cardinality, and by domain."""
    lines = [_overall(results)["sentence"]]
    for key in ("cardinality", "domains"):
        # Domains are not in BEAR's own metadata but in a separate `relation_info` file, so results
        # may lack them.
        if key == "domains" and not all(key in r.relation_info for r in results):
            continue
        for group, values in results.get_metrics("accuracy", key).items():
            rows = f"{values['support']:,.1f}".removesuffix(".0")  # domains share rows
            lines.append(f"  {group:28s} {100 * values['accuracy']:6.2f} %  of {rows}")
    return "\n".join(lines)


def _overall(results: DatasetResults) -> dict[str, Any]:
    """{"value", "low", "high": percent, "rows", "sentence"}."""
    # The bootstrap draws instances, not rows: the templates of an instance state the same fact,
    # so their results are not independent.
    right = np.concatenate([_by_instance(result) for result in results])
    low, high = 100 * np.array(statistics.interval(statistics.bootstrap_means(right[None])[0]))
    (overall,) = results.get_metrics("accuracy").values()
    value, rows = 100 * overall["accuracy"], int(overall["support"])
    told = f"accuracy {value:.2f} % of {rows} rows (95 % interval {low:.2f} to {high:.2f})"
    return {"value": value, "low": low, "high": high, "rows": rows, "sentence": told}


def biases(results: DatasetResults) -> str:
    """The options of each relation by how likely they are found, as a mean over templates."""
    lines = []
    for result in results:
        mean = np.mean(list(result.answer_bias().values()), axis=0)
        # Stable: among equally likely options the order of the answer space decides.
        order = np.argsort(-mean, kind="stable")[:5]
        options = ", ".join(f"{result.answer_space[i]} {mean[i]:.3f}" for i in order)
        lines.append(f"{result.code}: {options}{', ...' if len(mean) > 5 else ''}")
    return "\n".join(lines)


def changes(folders: Mapping[str, str]) -> list[str]:
    """Numbers of rows whose best option differs from the first model's, a line for each model.

    Raises:
      UserError: a model has no row in common with the first: other subjects or templates.
    """
    best = {name: _best_options(DatasetResults.from_path(path)) for name, path in folders.items()}
    (first, base), *others = best.items()
    lines = []
    for name, found in others:
        shared = base.keys() & found.keys()
        if not shared:
            raise UserError(
                f"{name} and {first} have no statement in common; compare results of the same "
                "dataset and --templates."
            )
        changed = sum(base[row] != found[row] for row in shared)
        lines.append(
            f"{name}: another best option than {first} in {changed:,} of {len(shared):,} rows"
        )
    return lines


def _best_options(results: DatasetResults) -> dict[tuple, str]:
    """The likeliest option of each row, by relation, subject, right option and template."""
    found = {}
    for result in results:
        options = result.answer_space
        for row, best in zip(result.table, result.reduced().scores.argmax(axis=1), strict=True):
            template, right = row.get("template_index", 0), options[row["answer_idx"]]
            found[result.code, row["sub_id"], row["sub_label"], right, template] = options[best]
    return found


def _by_instance(result: RelationResult) -> np.ndarray:
    """The fraction of an instance's templates that are answered right, [instances]."""
    right = ranking_metrics.correct(result.reduced().scores, result.answers)
    numbers = [row["instance_index"] for row in result.table]
    # Sum of the right rows of each instance over its number of rows: the mean by instance.
    return np.bincount(numbers, right) / np.bincount(numbers)


def as_json(results: DatasetResults) -> dict[str, Any]:
    """The same scores by relation, cardinality and domain, for `summary.json`."""
    found = {"overall": results.get_metrics("accuracy")["overall"]}
    keys: tuple[Any, ...] = (None, "cardinality")
    if all("domains" in result.relation_info for result in results):
        keys += ("domains",)
    for key in keys:
        found[key or "relations"] = results.get_metrics("accuracy", key)
    return found


def items(results: DatasetResults) -> Iterator[dict[str, Any]]:
    """A row for each instance and template: the right option, its rank from 1, and the best one."""
    for result in results:
        scores, options = result.reduced().scores, result.answer_space
        # Ranks count from 0 in `ranking_metrics` and from 1 in this file, as tables in papers do.
        ranks = ranking_metrics.ranks(scores, result.answers)
        best = scores.argmax(axis=1)
        for row, rank, found in zip(result.table, ranks, best, strict=True):
            yield {
                "relation": result.code,
                "sub_id": row["sub_id"],
                "sub_label": row["sub_label"],
                "template": row.get("template_index", 0),
                "answer": options[row["answer_idx"]],
                "rank": int(rank) + 1,
                "best": options[found],
                "correct": bool(rank == 0),
            }


def draw(
    folders: Mapping[str, str], out: str, bias: Sequence[str] = (), relation_info: str | None = None
) -> list[str]:
    """Draws the results of several models beside each other.

    Args:
      folders: {name: folder of results}.
      out: the folder of the figures.
      bias: relations whose answer biases to draw.
      relation_info: JSON of domains by relation, where the results do not say them.

    Returns:
      The files that were written: report.html, with every row; domains.png, where all results have
      domains; and bias_<relation>.png.

    Raises:
      UserError: a folder holds no results, or lacks a relation.
    """
    info = read_json(relation_info) if relation_info else None
    models = {name: DatasetResults.from_path(path, info) for name, path in folders.items()}
    # All checks come before the first figure, so that a wrong relation leaves no half of the
    # figures.
    for code in bias:
        for name, results in models.items():
            if code not in results.relations:
                raise UserError(f"{folders[name]} has no relation {code!r}.")
    wanted = {}
    if all("domains" in result.relation_info for results in models.values() for result in results):
        wanted["domains"] = _plot_domains(models)
    wanted |= {f"bias_{code}": _plot_bias(models, code) for code in bias}
    for name, image in wanted.items():
        write_file(Path(out) / f"{name}.png", image)
    _write_page(Path(out) / "report.html", models, wanted)
    return [f"{out}/report.html", *(f"{out}/{name}.png" for name in wanted)]


def _write_page(path: Path, models: Mapping[str, DatasetResults], drawn: Mapping[str, Any]) -> None:
    scores = {name: _overall(results) for name, results in models.items()}
    rows = [[name, sections.estimate(x), x["rows"]] for name, x in scores.items()]
    note = (
        "Percent of rows (subjects and templates) whose right answer has the best score of all "
        "answers of its relation; below, 95 % intervals of a bootstrap over subjects."
    )
    parts = [Section("Scores", ["Model", "Accuracy", "Rows"], rows, [note], anchor="scores")]
    titles = {name: name.capitalize().replace("_", " of ") for name in drawn}
    parts += [Section(titles[name], png=image, anchor=name) for name, image in drawn.items()]
    lead = [f"{name}: {x['sentence']}." for name, x in scores.items()]
    sections.write_page(path, "What models know, by ranking", [*parts, _all_rows(models)], lead)


def _all_rows(models: Mapping[str, DatasetResults]) -> Section:
    """The best option of every model, rows first in which models differ."""
    best = [_best_options(results) for results in models.values()]
    keys = list(dict.fromkeys(key for found in best for key in found))
    keys.sort(key=lambda key: len({found.get(key) for found in best}) == 1)
    rows = [
        [
            Cell(subject, right),
            code,
            *(
                Cell(found[key], "right" if found[key] == right else "wrong")
                if key in found
                else "–"
                for found in best
            ),
        ]
        for key in keys[:_MOST_ROWS]
        for code, _, subject, right, _ in [key]
    ]
    more = len(keys) - len(rows)
    notes = [f"{more:,} rows more are in the folders of results."] if more else []
    headers = ["Subject and right answer", "Relation", *models]
    return Section("All rows", headers, rows, notes, anchor="rows", kind="examples")


def _bars(
    ax: Any, names: Sequence[str], heights: Mapping[str, np.ndarray], ranges: Any = None
) -> None:
    """Groups of horizontal bars, a group for each of `names`, a bar for each model."""
    width, colors = 0.8 / len(heights), list(labels.COLORS.values())[2:]  # no grey, no black
    lines, ranges = {"elinewidth": 1.0, "ecolor": "#444444"}, ranges or {}
    for i, (model, values) in enumerate(heights.items()):
        # The bars of a group are centred on its tick: 0.8 of the distance between ticks, divided
        # among the models.
        at = np.arange(len(names)) + (i - (len(heights) - 1) / 2) * width
        look = {"label": model, "color": colors[i % len(colors)], "error_kw": lines}
        ax.barh(at, values, 0.9 * width, xerr=ranges.get(model), **look)
    figures.rows_of_bars(ax, names)
    figures.legend(ax.figure, [ax])


def _panel(names: Sequence[str], models: Mapping[str, Any]) -> tuple[Any, Any]:
    # The height grows with the number of bars, so that labels stay readable for relations with 75
    # options.
    size = (6.4, 1.2 + 0.25 * len(names) * (1 + len(models)))
    figure, (ax,) = figures.panels(1, size=size)
    return figure, ax


@figures.png
def _plot_domains(models: Mapping[str, DatasetResults]):
    """Accuracy by domain, a bar for each model (Figure 3).

    Raises:
      UserError: the results do not say their relations' domains.
    """
    scores = {name: r.get_metrics("accuracy", "domains") for name, r in models.items()}
    names = sorted({domain for found in scores.values() for domain in found})
    heights = {
        # NaN draws no bar: models that were evaluated on other relations may lack a domain.
        model: np.array([100 * found[n]["accuracy"] if n in found else np.nan for n in names])
        for model, found in scores.items()
    }
    figure, ax = _panel(names, models)
    _bars(ax, names, heights)
    ax.set_xlabel("accuracy, %")
    return figure


@figures.png
def _plot_bias(models: Mapping[str, DatasetResults], code: str):
    """Mean probability of each option of a relation over all subjects (section 3.2, Figure 4).

    Bars are means over templates, lines their range; the dashed line is a model without bias where
    every option is right as often.
    """
    options = next(iter(models.values()))[code].answer_space
    heights, ranges = {}, {}
    for name, results in models.items():
        bias = np.array(list(results[code].answer_bias().values()))
        # The accuracy stands in the legend: a bias of a model that is right most of the time says
        # less.
        label = f"{name} ({100 * results[code].get_metric('accuracy'):.0f} % right)"
        heights[label] = bias.mean(axis=0)
        # matplotlib's error bars are distances from the bar's end, [lower, upper], not positions.
        ranges[label] = np.stack([heights[label] - bias.min(0), bias.max(0) - heights[label]])
    figure, ax = _panel(options, models)
    _bars(ax, list(options), heights, ranges)
    ax.axvline(1 / len(options), color="#444444", linestyle="--", linewidth=1.0)
    ax.set(xlabel="mean probability among the options", title=code)
    return figure
