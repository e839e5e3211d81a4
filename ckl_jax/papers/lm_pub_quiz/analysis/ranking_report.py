"""Results of ranking in words and figures: accuracies, biases, and what differs between models."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.analysis import figures, sections, statistics
from ckl_jax.analysis.sections import Cell, Section
from ckl_jax.data.facts.relational import ANSWER, SUBJECT
from ckl_jax.errors import UserError
from ckl_jax.files import write_file, write_json
from ckl_jax.papers.lm_pub_quiz import ranking_metrics
from ckl_jax.papers.lm_pub_quiz.analysis import by_date, comparison
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults, RelationResult

_MAX_ROWS = 4000  # of a page


def summary(results: DatasetResults) -> str:
    """The accuracy with its bootstrap interval over instances, by cardinality, and by domain."""
    lines, scores = [overall(results)["sentence"]], as_json(results)
    if (sem := scores["overall"]["sem"]) is not None:
        values = ", ".join(f"{100 * x:.2f}" for x in scores["overall"]["templates"].values())
        lines.append(f"  {'templates':28s} {values} (standard error {100 * sem:.2f})")
    for key in ("cardinality", "domains"):
        for group, values in scores.get(key, {}).items():
            rows = f"{values['support']:,.1f}".removesuffix(".0")  # domains share rows
            lines.append(f"  {group:28s} {100 * values['accuracy']:6.2f} %  of {rows}")
    return "\n".join([*lines, *([by_date.sentence(scores["dated"])] if "dated" in scores else [])])


def overall(results: DatasetResults) -> dict[str, Any]:
    """{"value", "low", "high": percent, "rows", "sentence"}."""
    # The bootstrap draws instances, not rows: the templates of an instance state the same fact,
    # so their results are not independent.
    right = np.concatenate([comparison.by_instance(result)[0] for result in results])
    (whole,) = results.get_metrics("accuracy").values()
    drawn = 100 * statistics.bootstrap_means(right[None])[0]
    accuracy = statistics.estimate(100 * whole["accuracy"], drawn) | {"rows": int(whole["support"])}
    sentence = "accuracy {value:.2f} % of {rows:,} rows (95 % interval {low:.2f} to {high:.2f})"
    return {**accuracy, "sentence": sentence.format(**accuracy)}


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


def changes(models: Mapping[str, DatasetResults]) -> list[str]:
    """Numbers of rows whose best option differs from the first model's, a line for each model.

    Args:
      models: {name: results}, with the same rows (`comparison.align`).
    """
    (first, base), *others = _best_options(models).items()
    return [
        f"{name}: another best option than {first} in "
        f"{sum(a != b for a, b in zip(base, best, strict=True)):,} of {len(base):,} rows"
        for name, best in others
    ]


def _best_options(models: Mapping[str, DatasetResults]) -> dict[str, list[str]]:
    return {
        name: [best for result in results for best in comparison.best_options(result)]
        for name, results in models.items()
    }


def as_json(results: DatasetResults) -> dict[str, Any]:
    """The same scores by relation, cardinality and domain, for `summary.json`."""
    scores = {"overall": results.get_metrics("accuracy")["overall"]}
    scores["overall"] |= comparison.by_template(results)
    keys: tuple[Any, ...] = (None, "cardinality")
    # Domains are not in BEAR's own metadata but in a separate `relation_info` file.
    if all("domains" in result.relation_info for result in results):
        keys += ("domains",)
    for key in keys:
        scores[key or "relations"] = results.get_metrics("accuracy", key)
    if dated := by_date.measure(results):
        scores["dated"] = dated
    return scores


def items(results: DatasetResults) -> Iterator[dict[str, Any]]:
    """A row for each instance and template: the right option, its rank from 1, and the best one."""
    for result in results:
        scores, options = result.reduced().scores, result.answer_space
        # Ranks count from 0 in `ranking_metrics` and from 1 in this file, as tables in papers do.
        ranks = ranking_metrics.ranks(scores, result.answers)
        best = scores.argmax(axis=1)
        for row, rank, option in zip(result.table, ranks, best, strict=True):
            yield {
                "relation": result.code,
                "sub_id": row["sub_id"],
                "sub_label": row["sub_label"],
                "template": row.get("template_index", 0),
                "answer": options[row["answer_idx"]],
                "rank": int(rank) + 1,
                "best": options[option],
                "correct": bool(rank == 0),
            }


def draw(
    models: Mapping[str, DatasetResults],
    out: str,
    bias: Sequence[str] = (),
    coverage: str = "",
    popularity: Mapping[str, float] | None = None,
) -> tuple[list[str], dict[str, Any]]:
    """Compares the results of several models in a page, its numbers and figures.

    Args:
      models: {name: results}, with the same rows (`comparison.align`).
      bias: relations whose answer biases to draw.
      coverage: a sentence for the page, where the models were scored on different rows.
      popularity: of subjects, see `comparison.by_popularity`.

    Returns:
      The files that were written, and the numbers of comparison.json: {"models": {name: accuracy,
      `comparison.quality`}, "tests": `comparison.compare`, "coverage", "popularity", "dated":
      {name: `by_date.measure`} of a dated dataset}.

    Raises:
      UserError: a model lacks a relation of `bias`.
    """
    # All checks come before the first figure, so that a wrong relation leaves no half of them.
    for (name, results), code in itertools.product(models.items(), bias):
        if code not in results.relations:
            raise UserError(f"{name} has no relation {code!r}.")
    scores = {
        name: {**overall(r), **comparison.by_template(r), **comparison.quality(r)}
        for name, r in models.items()
    }
    wanted = {"calibration": _plot_calibration(scores)}
    if all("domains" in result.relation_info for results in models.values() for result in results):
        wanted["domains"] = plot_domains(models)
    wanted |= {f"bias_{code}": plot_bias(models, code) for code in bias}
    numbers = {"models": scores, "tests": comparison.compare(models), "coverage": coverage}
    if popularity is not None:
        numbers["popularity"] = comparison.by_popularity(models, popularity)
        wanted["popularity"] = _plot_popularity(numbers["popularity"])
    dated = {name: by_date.measure(results) for name, results in models.items()}
    if all(dated.values()):
        numbers["dated"] = dated
        if all(x["by_date"] for x in dated.values()):
            wanted["by_date"] = by_date.plot(dated)
    # The page comes first: by it a report that was interrupted is known as this package's.
    _write_page(Path(out) / "report.html", models, numbers, wanted)
    for name, image in wanted.items():
        write_file(Path(out) / f"{name}.png", image)
    write_json(Path(out) / "comparison.json", numbers)
    names = ["report.html", "comparison.json", *(f"{name}.png" for name in wanted)]
    return [f"{out}/{name}" for name in names], numbers


def _write_page(
    path: Path, models: Mapping[str, DatasetResults], numbers: dict[str, Any], drawn: dict[str, Any]
) -> None:
    scores, tests, first = numbers["models"], numbers["tests"], next(iter(models))
    columns = ("rows", "consistency", "every_template", "confidence", "calibration_error")
    rows = [
        [name, sections.compact(models[name].get_metadata().get("num_params"))]
        + [sections.estimate(x), x["sem"] and 100 * x["sem"], *(x[c] for c in columns)]
        for name, x in scores.items()
    ]
    headers = ["Model", "Parameters", "Accuracy", "± over templates", "Rows", "Consistency"]
    headers += ["Right in every template", "Confidence", "Calibration error"]
    parts = [Section("Scores", headers, rows, _NOTES, anchor="scores")]
    names = {result.code: Cell(result.code, _statement(result)) for result in models[first]}
    titles = {"overall": "Differences", "domains": "By domain", "relations": "By relation"}
    parts += [
        _tests_section(titles[kind], tests[kind], first, kind, names)
        for kind in tests
        if tests[kind]
    ]
    tables = (
        {"popularity": _popularity_table(numbers["popularity"])} if "popularity" in drawn else {}
    )
    for name, image in drawn.items():
        title = name.replace("bias_", "bias of ").replace("_", " ")
        look = {"png": image, "anchor": name, **tables.get(name, {})}
        parts.append(Section(title[0].upper() + title[1:], **look))
    lead = [_asked(models[first])]
    lead += [f"{name}: {x['sentence']}." for name, x in scores.items()]
    lead += [f"{sentence}." for sentence in comparison.sentences(tests["overall"], first)]
    lead += [f"{name}: {by_date.sentence(x)}." for name, x in numbers.get("dated", {}).items()]
    lead += (
        [f"Compared on common rows alone: {numbers['coverage']}."] if numbers["coverage"] else []
    )
    sections.write_page(path, "What models know, by ranking", [*parts, _all_rows(models)], lead)


def _asked(results: DatasetResults) -> str:
    """What the first rows of two relations ask."""
    shown = []
    for result in itertools.islice(results, 2):
        row, text = result.table[0], _statement(result)
        of, answer = len(result.answer_space), result.answer_space[row["answer_idx"]]
        shown.append(f"“{text.replace('[X]', row['sub_label'])}” ({answer}, of {of:,} answers)")
    return f"What is asked, for example: {'; '.join(shown)}."


def _statement(result: RelationResult) -> str:
    """The first template of a relation, with ____ for the answer; its code where none is known."""
    return (result.metadata.get("templates") or [result.code])[0].replace("[Y]", "____")


_NOTES = (
    "Accuracy: percent of rows (instances and templates) whose right answer has the best score of "
    "all answers of its relation; below, 95 % intervals of a bootstrap over instances; ± the "
    "standard error over templates, as on LM-PUB-QUIZ's leaderboard.",
    "Consistency: percent of pairs of templates with the same best option, as a mean over "
    "instances. Confidence: mean probability of the best option, by a softmax over the options of "
    "a row. Calibration error: mean distance of confidence and accuracy in ten bins (ECE).",
)


def _tests_section(
    title: str,
    tests: list[dict[str, Any]],
    first: str,
    anchor: str,
    names: Mapping[str, Cell],
) -> Section:
    form, group = "{:+.2f}".format, title.removeprefix("By ").capitalize()
    rows = [
        [names.get(t["group"], t["group"].replace("_", " ")), t["model"], t["first"], t["accuracy"]]
        + [sections.estimate(t, form, " to ", "difference", mark="*" * (t["p_holm"] < 0.05))]
        + [t["better"], t["worse"], t["instances"], f"{t['p']:.2g}", f"{t['p_holm']:.2g}"]
        for t in tests
    ]
    headers = [group, "Model", f"Accuracy of {first}", "Accuracy", "Difference"]
    headers += ["Better", "Worse", "Instances", "p", "p (Holm)"]
    note = (
        f"Points against {first}, with 95 % intervals of a paired bootstrap over instances. Better "
        "and worse: instances that are right in more or fewer templates; p is of the exact McNemar "
        f"test on them. * p below 0.05 after Holm's correction for the tests of this table "
        f"({len(tests)})."
    )
    return Section(title, headers, rows, [note], anchor=f"tests-{anchor}")


def _all_rows(models: Mapping[str, DatasetResults]) -> Section:
    """The best option of every model, rows first in which models differ."""
    best = list(zip(*_best_options(models).values(), strict=True))
    named = [
        (_question(result, row), result.answer_space[row["answer_idx"]], result.code)
        for result in next(iter(models.values()))
        for row in result.table
    ]
    order = sorted(range(len(best)), key=lambda i: len(set(best[i])) == 1)
    rows = [
        [Cell(question, right), code]
        + [Cell(option, "right" if option == right else "wrong") for option in best[i]]
        for i in order[:_MAX_ROWS]
        for question, right, code in [named[i]]
    ]
    more = len(best) - len(rows)
    notes = [f"{more:,} rows more are in the folders of results."] if more else []
    headers = ["Question and right answer", "Relation", *models]
    return Section("All rows", headers, rows, notes, anchor="rows", kind="examples")


def _question(result: RelationResult, row: Mapping[str, Any]) -> str:
    """The template of a row with its subject and a blank; the subject where none is recorded."""
    templates, number = result.metadata.get("templates") or [], row.get("template_index", 0)
    template = templates[number] if number < len(templates) else SUBJECT
    return template.replace(SUBJECT, row["sub_label"]).replace(ANSWER, "____")


@figures.png
def _plot_calibration(scores: Mapping[str, Mapping[str, Any]]):
    """Accuracy by confidence, a line for each model; the dashed line is perfect calibration."""
    figure, (ax,) = figures.panels(1, size=(7.2, 3.6))
    ax.plot([0, 100], [0, 100], color="black", linestyle="--", linewidth=1.0)
    colors = figures.LINES
    for i, (name, x) in enumerate(scores.items()):
        line = [[100 * b[key] for b in x["bins"]] for key in ("confidence", "accuracy")]
        label = f"{name[-24:]} (error {x['calibration_error']:.1f})"
        ax.plot(*line, color=colors[i % len(colors)], marker="o", label=label)
    ax.set(xlabel="confidence, %", ylabel="accuracy, %")
    figures.legend(figure, [ax], beside=True)
    return figure


def _span(one: Mapping[str, Any]) -> str:
    """How popular the subjects of a bin are."""
    return f"{one['from']:,.6g}" + (f" to {one['to']:,.6g}" if one["to"] > one["from"] else "")


def _popularity_table(bins: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = list(bins[0]["models"])
    rows = [
        [_span(b), b["instances"], *(sections.estimate(b["models"][n]) for n in names)]
        for b in bins
    ]
    note = (
        "Accuracy by how popular the subject is, in percent, with 95 % intervals of a bootstrap "
        "over instances. Subjects of unknown popularity are left out."
    )
    return {"headers": ["Popularity", "Instances", *names], "rows": rows, "notes": [note]}


@figures.png
def _plot_popularity(bins: Sequence[Mapping[str, Any]]):
    """Accuracy by bin of popularity, a line and its band for each model."""
    figure, (ax,) = figures.panels(1, size=(7.2, 3.6))
    at, names = range(len(bins)), bins[0]["models"]
    figures.bands(ax, at, {name: [b["models"][name] for b in bins] for name in names})
    ax.set_xticks(at, [_span(b) for b in bins], rotation=15)
    ax.set(ylabel="accuracy, %", xlabel="popularity of the subject")
    figures.legend(figure, [ax], beside=True)
    return figure


def _bars(names: Sequence[str], heights: Mapping[str, np.ndarray], ranges: Any = None) -> Any:
    """A panel of horizontal bars: a group for each of `names`, with a bar for each model."""
    # The height grows with the number of bars, so that labels stay readable for relations with 75
    # options.
    size = (6.4, 1.2 + 0.25 * len(names) * (1 + len(heights)))
    figure, (ax,) = figures.panels(1, size=size)
    width, colors = 0.8 / len(heights), figures.LINES
    lines, ranges = {"elinewidth": 1.0, "ecolor": "black"}, ranges or {}
    for i, (model, values) in enumerate(heights.items()):
        # The bars of a group are centred on its tick: 0.8 of the distance between ticks, divided
        # among the models.
        at = np.arange(len(names)) + (i - (len(heights) - 1) / 2) * width
        look = {"label": model, "color": colors[i % len(colors)], "error_kw": lines}
        ax.barh(at, values, 0.9 * width, xerr=ranges.get(model), **look)
    figures.rows_of_bars(ax, names)
    figures.legend(figure, [ax])
    return ax


@figures.png
def plot_domains(models: Mapping[str, DatasetResults]):
    """Accuracy by domain, a bar for each model (Figure 3).

    Raises:
      UserError: the results do not say their relations' domains.
    """
    scores = {name: r.get_metrics("accuracy", "domains") for name, r in models.items()}
    names = sorted({domain for domains in scores.values() for domain in domains})
    heights = {
        # NaN draws no bar: models that were evaluated on other relations may lack a domain.
        model: np.array([100 * domains[n]["accuracy"] if n in domains else np.nan for n in names])
        for model, domains in scores.items()
    }
    ax = _bars(names, heights)
    ax.set_xlabel("accuracy, %")
    return ax.figure


@figures.png
def plot_bias(models: Mapping[str, DatasetResults], code: str):
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
    ax = _bars(options, heights, ranges)
    ax.axvline(1 / len(options), color="black", linestyle="--", linewidth=1.0)
    ax.set(xlabel="mean probability among the options", title=code)
    return ax.figure
