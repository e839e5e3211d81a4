"""Evaluates a model by probes and other evaluations, and writes the files of an evaluation.

An evaluation is made once, of `(model, partitioner)`, and gives `(parameters, step, whether it is
the last) -> {split: {name: number}}`. Probes yield rows of items instead, one for each, from which
scores and reports are made.
"""

import contextlib
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from ckl_jax import checks, files
from ckl_jax.analysis import perplexity
from ckl_jax.analysis.rows import check_row
from ckl_jax.checkpoints.store import KeepBest
from ckl_jax.errors import UserError, nearest
from ckl_jax.models.base import BaseTransformerModel
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.probes import closed_book
from ckl_jax.train.step_metrics import StepMetrics

Row = Mapping[str, Any]
Scores = dict[str, dict[str, float]]
Evaluation = Callable[[Any, int, bool], Scores | Iterator[dict[str, Any]]]
MakeEvaluation = Callable[[BaseTransformerModel, Partitioner], Evaluation]


def chosen(
    probes: MakeEvaluation | None,
    evaluations: Sequence[MakeEvaluation],
    held_out: MakeEvaluation | None = None,
) -> tuple[MakeEvaluation, ...]:
    """The evaluations that have something to evaluate, `probes` and `held_out` first.

    Raises:
      UserError: one is none, PROBES is not in a folder, or two have one name.
    """
    if not isinstance(evaluations, list | tuple):
        raise UserError(
            f"evaluations is {evaluations!r}; give a list, such as (@held_out.Perplexity(),)."
        )
    for setting, given in (("PROBES", probes), *(("One of evaluations", e) for e in evaluations)):
        if given is not None:
            _check(setting, given)
    if hasattr(probes, "data_dir"):
        checks.require_text(PROBE_DIR=probes.data_dir)
    # An evaluation may have nothing to do in this configuration, e.g. HELD_OUT_TASKS = ().
    every = [
        e for e in (probes, held_out, *evaluations) if e is not None and getattr(e, "names", True)
    ]
    splits = [split for e in every for split in dict.fromkeys(_splits(e) or ())]
    if twice := [split for split in splits if splits.count(split) > 1]:
        raise UserError(f"Two evaluations are of {twice[0]!r}; leave one out of evaluations.")
    return tuple(every)


def _check(setting: str, given: Any) -> None:
    """Raises `UserError` for what is no evaluation."""
    # Without its parentheses in gin, a record is a class.
    if isinstance(given, type) or not callable(given):
        raise UserError(
            f"{setting} is {given!r}; give a record such as @closed_book.ClosedBook(), or None."
        )
    if not _takes(given, "model", "partitioner"):
        raise UserError(f"{setting} is {given!r}, which does not take (model, partitioner).")
    names = getattr(given, "names", None if _has_rows(given) else ())
    if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
        raise UserError(f"names of {given!r} is {names!r}; give a list, such as ('my_loss',).")


class Evaluations:
    """The chosen evaluations on one model; their functions are compiled once for all steps.

    Attributes:
      probes: the names of those that yield rows.

    Raises:
      UserError: files or the model do not fit, or the mesh does not divide the batches.
    """

    def __init__(
        self,
        makers: Sequence[MakeEvaluation],
        model: BaseTransformerModel,
        partitioner: Partitioner,
    ):
        self._evaluations = [(_made(make, model, partitioner), _has_rows(make)) for make in makers]
        self.probes = tuple(name for make in makers if _has_rows(make) for name in make.names)

    def __bool__(self) -> bool:
        return bool(self._evaluations)

    def __call__(
        self, params: Any, context: Mapping[str, Any], *, last: bool
    ) -> tuple[list[Row], Scores]:
        """Evaluates parameters; returns the rows of the probes and the scores of the others.

        Args:
          params: all of them.
          context: put into every row: run, method, phase, epoch, step.
          last: whether this is the last evaluation of a run, whose searches may be wider.

        Raises:
          UserError: an evaluation, such as a user's, does not return {split: {name: number}}, two
            give one number, or a row of a probe lacks what reports need.
        """
        rows, scores = [], {}
        for evaluation, has_rows in self._evaluations:
            returned = evaluation(params, context["step"], last)
            if has_rows:
                rows += self._rows(returned, context)
            else:
                _check_scores(evaluation, returned)
                for split, values in returned.items():
                    self._add(scores.setdefault(split, {}), split, values)
        return rows, scores

    def _rows(self, rows: Any, context: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The rows of a probe, which may be a user's, with their context."""
        remedy = "let the evaluation with `has_rows` yield whole rows"
        if not isinstance(rows, Iterable) or isinstance(rows, Mapping | str):
            raise UserError(f"An evaluation returned {str(rows)[:80]}; {remedy}.")
        for number, row in enumerate(rows, 1):
            if not isinstance(row, Mapping):
                raise UserError(f"Row {number} of an evaluation is {str(row)[:80]}; {remedy}.")
            where = f"Row {number} of {row.get('probe', 'a probe')}"
            try:
                whole = files.as_json({**context, **row, **context})  # a row says no other step
            except TypeError as e:  # a set, or a number of NumPy's
                raise UserError(f"{where}: {e}; {remedy}, of what JSON has.") from e
            check_row(whole, where, remedy)
            if whole["probe"] not in self.probes:
                raise UserError(f"Row {number} is of {whole['probe']!r}, none of its `names`.")
            yield whole

    def _add(self, scores: dict[str, float], split: str, values: Mapping[str, float]) -> None:
        both = sorted(scores.keys() & values.keys())
        if both or split in ["train", *(f"inference_eval/{probe}" for probe in self.probes)]:
            what = "/".join([split, *both[:1]])
            raise UserError(f"An evaluation returns {what}, a name that is taken; rename it.")
        scores |= values


def _made(make: MakeEvaluation, model: BaseTransformerModel, partitioner: Partitioner) -> Any:
    evaluation = make(model, partitioner)
    if not callable(evaluation) or not _takes(evaluation, "params", 0, True):
        raise UserError(
            f"{make!r} of evaluations returned {evaluation!r} for a model; let it return a "
            "function of (parameters, step, whether it is the last)."
        )
    return evaluation


def _takes(function: Callable, *arguments: Any) -> bool:
    """Whether a function can be called with so many arguments, where it says what it takes."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # a builtin that does not say
        pass
    return True


def _splits(make: MakeEvaluation) -> Sequence[str] | None:
    """The splits that an evaluation has scores of; None if it does not say."""
    if _has_rows(make):
        return [f"inference_eval/{probe}" for probe in make.names]
    return getattr(make, "splits", getattr(make, "names", None))


def _has_rows(make: MakeEvaluation) -> bool:
    return getattr(make, "has_rows", False)


def check_best(
    best: KeepBest | None, evaluations: Sequence[MakeEvaluation], metrics: StepMetrics
) -> None:
    """Raises `UserError` if the best checkpoint is looked for by a metric that a run will not have.

    Args:
      best: how checkpoints are chosen, or None.
      evaluations: see `chosen`; what one without `names` evaluates is not known.
      metrics: what makes the rows of training.
    """
    if best is None:
        return

    def is_of(names: Sequence[str]) -> bool:
        starts = tuple(name for name in names if name.endswith("/"))
        return best.metric in names or best.metric.startswith(starts)

    trained = [f"train/{name}" for name in metrics.names]
    if is_of(trained) and best.patience is not None:
        raise UserError(
            f"KeepBest.metric is {best.metric!r}, a number of training, but a training is ended by "
            "those of evaluations alone: set PATIENCE to None, or give one of those."
        )
    own = [_splits(e) for e in evaluations]
    if None in own and not best.metric.startswith("train/"):
        return
    splits = [split for each in own for split in each or ()]
    trained = trained if best.patience is None else []
    if not is_of([*(f"{split}/" for split in splits), *trained]):
        score = best.metric.rpartition("/")[2]
        there = ", ".join([*splits, *["train"] * bool(trained)])
        there = f"those of {there}" if there else "none, for nothing is evaluated"
        raise UserError(
            f"KeepBest.metric is {best.metric!r}, which no evaluation has; there are {there}."
            f"{nearest(best.metric, [*(f'{split}/{score}' for split in splits), *trained])}"
        )


def check_metric(best: KeepBest | None, scores: Mapping[str, Mapping[str, float]]) -> None:
    """Raises `UserError` if `scores`, {split: {name: number}}, lack the number of the metric."""
    split, _, name = best.metric.rpartition("/") if best else ("", "", "")
    if name not in scores.get(split, {name: 0.0}):
        raise UserError(
            f"KeepBest.metric is {best.metric!r}, which no evaluation has; {split} has "
            f"{', '.join(scores[split])}.{nearest(name, list(scores[split]))}"
        )


def _check_scores(evaluation: Evaluation, scores: Any) -> None:
    is_nested = isinstance(scores, Mapping) and all(
        isinstance(split, str) and isinstance(values, Mapping) for split, values in scores.items()
    )
    numbers = [pair for values in scores.values() for pair in values.items()] if is_nested else []
    if not is_nested or not all(isinstance(name, str) and _is_number(x) for name, x in numbers):
        name = getattr(evaluation, "__qualname__", type(evaluation).__qualname__)
        raise UserError(
            f"The evaluation {name} of {evaluation.__module__} returned {str(scores)[:80]}; let it "
            "return {split: {name: number}}."
        )
    for split in scores:
        path = PurePosixPath(split)
        is_below = path.name and ".." not in path.parts and not path.is_absolute()
        if not is_below or str(path) != split or not split.isprintable():
            raise UserError(f"An evaluation has the split {split!r}; give a name such as 'mine/a'.")
        if own := {"step", "split"} & scores[split].keys():  # of every line of metrics
            raise UserError(f"An evaluation gives {split}/{min(own)}; let it use another name.")


def _is_number(value: Any) -> bool:
    return np.ndim(value) == 0 and np.asarray(value).dtype.kind in "biufV"  # V: bfloat16


def rows_file(folder: Path, step: int) -> Path:
    """The file that has the rows of an evaluation."""
    return folder / "probes" / f"rows_{step:06}.jsonl"


def write_evaluation(folder: str | Path, step: int, rows: Sequence[Row]) -> dict[str, dict]:
    """Writes the rows of one step in two formats; idempotent.

    `probes/rows_<step>.jsonl` is what reports read. `inference_eval/<probe>-<step>.jsonl` and
    `inference_eval/<probe>-metrics.jsonl` are T5X's.

    Args:
      folder: MODEL_DIR or EVAL_OUTPUT_DIR.
      step: of the checkpoint.
      rows: of all probes.

    Returns:
      Scores by probe, see `summarize`.

    Raises:
      UserError: the folder cannot be written.
    """
    folder = Path(folder)
    files.write_jsonl(rows_file(folder, step), rows)
    scores = summarize(rows)
    for probe, values in scores.items():
        mine = [row for row in rows if row["probe"] == probe]
        # Fact probes have losses and no predictions, and T5X has no file for them.
        if "predictions" in mine[0]:
            path = folder / "inference_eval" / f"{probe}-{step:06}.jsonl"
            files.write_jsonl(path, map(_inference, mine))
        _add_metrics(folder / "inference_eval" / f"{probe}-metrics.jsonl", step, values)
    return scores


def refuse_others(folder: str | Path, step: int, probes: Sequence[str]) -> None:
    """Refuses files under the names of an evaluation's rows that no evaluation has written.

    Args:
      folder: EVAL_OUTPUT_DIR.
      step: of the checkpoint.
      probes: their names.

    Raises:
      UserError: naming the file.
    """
    places = {Path(folder) / "inference_eval" / f"{p}-{step:06}.jsonl": "target" for p in probes}
    for path, key in (places | {rows_file(Path(folder), step): "probe"}).items():
        if os.path.lexists(path):
            first = None
            with contextlib.suppress(UserError):
                first = next(iter(files.read_jsonl(path)), None)
            if not isinstance(first, dict) or key not in first:
                raise UserError(
                    f"{path} is of no evaluation; move it, or choose another EVAL_OUTPUT_DIR."
                )


def summarize(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Scores by probe: `closed_book.summarize` of answers, `perplexity.summarize` of losses."""
    # Probes in the order of their rows; a probe may have both answers and losses.
    scores: dict[str, dict[str, float]] = {row["probe"]: {} for row in rows}
    for summary in (perplexity.summarize(rows), closed_book.summarize(rows)):
        for probe, values in summary.items():
            scores[probe] |= values
    return scores


def write_metrics(folder: str | Path, step: int, splits: Mapping[str, Mapping[str, float]]) -> None:
    """Adds the scores of one step to `<split>-metrics.jsonl` below a folder.

    Raises:
      UserError: the folder cannot be written.
    """
    for split, values in splits.items():
        _add_metrics(Path(folder) / f"{split}-metrics.jsonl", step, values)


def _inference(row: Row) -> dict[str, Any]:
    pretokenized = {"inputs_pretokenized": row["input"], "targets_pretokenized": row["answers"][0]}
    return {"input": pretokenized, "target": row["answers"], "prediction": row["predictions"][0]}


def _add_metrics(path: Path, step: int, values: Mapping[str, float]) -> None:
    known = {}
    if path.exists():
        # By step, so that a repeated evaluation replaces its row.
        known = {row["step"]: row for row in files.read_jsonl(path)}
    known[step] = {"step": step, **values}
    files.write_jsonl(path, [known[s] for s in sorted(known)])


def forget_later_steps(folder: str | Path, step: int) -> None:
    """Removes the evaluations of steps after `step`: a run that resumes there repeats them."""
    folder = Path(folder)
    patterns = ("probes/rows_*.jsonl", "proper_nouns/rows_*.jsonl", "inference_eval/*-*.jsonl")
    for path in (path for pattern in patterns for path in folder.glob(pattern)):
        # "rows_000120" and "invariant_lama-000120" end in the step; "...-metrics" in no number.
        number = path.stem.replace("_", "-").rsplit("-", 1)[1]
        if number.isdigit() and int(number) > step:
            with files.os_errors(path, "remove"), contextlib.suppress(FileNotFoundError):
                path.unlink()
    for path in folder.glob("inference_eval/*-metrics.jsonl"):
        rows = list(files.read_jsonl(path))
        if any(row["step"] > step for row in rows):
            files.write_jsonl(path, [row for row in rows if row["step"] <= step])
