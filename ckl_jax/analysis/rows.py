"""Probe rows of a run: MODEL_DIR/probes/rows_<step>.jsonl, one row per item and evaluation."""

import collections
import contextlib
import dataclasses
import functools
import gc
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax import checks, files
from ckl_jax.analysis.perplexity import Losses
from ckl_jax.data.facts.ckl_files import known_probe
from ckl_jax.data.facts.probe import Probe
from ckl_jax.errors import CONTROL, UserError
from ckl_jax.files import ANY_NUMBER, BadJson

_NUMBER = (float, int)
FIELDS = {
    "probe": str,
    "item": str,
    "step": int,
    "epoch": int,
    "em": int,
    "f1": _NUMBER,
    "predictions": [str],
    "answers": [str],
}
# Fields that a row may lack, or have null; "*" is any name.
_OPTIONAL = {
    **dict.fromkeys(("relation", "date", "input", "kind", "class", "interval", "metric"), str),
    **dict.fromkeys(("em_old", "hit_rank", "beams", "score"), _NUMBER),
    "old_answers": [str],
    "groups": {"*": str},
    "overlap": {"*": {"items": int, "exact": int, "near": [int]}},
}
# Of a row that says what a fact cost (`probes.facts`); it may have no answer.
LOSS_FIELDS = {"nll": _NUMBER, "tokens": int, "object_nll": _NUMBER, "object_tokens": int}
_OF_ANSWERS = ("em", "f1", "predictions")
EVAL = "eval"  # where `t5x eval` puts the rows of a run, in its folder
METRICS_FILE = "metrics.jsonl"
# Numbers and texts of `summary.json`, where they are there and not null.
_COUNTS = frozenset(
    "steps trainable_parameters total_parameters added_parameters matmul_flops_per_step".split()
)
_TEXTS = ("ckl_jax", "run", "method", "base_checkpoint", "base_digest")
_FILE = re.compile(r"rows_(\d+)\.jsonl$")
# What tables and the ledger show of an item; numbers become columns of `Scored`.
_KEPT = frozenset(
    "item relation date groups overlap input answers old_answers predictions epoch em em_old "
    "interval class kind metric cut".split()
)


class NotProbed(UserError):
    """A folder has no probe rows (yet)."""


@dataclasses.dataclass(frozen=True)
class Scored:
    """One probe at one evaluation, as columns; N items in file order.

    Attributes:
      items: [N] ids.
      em, f1, em_old: [N] in 0..1; NaN where the row has no answer.
      hit_rank: [N] rank of the first right answer among `beams`, 0 if none.
      beams: [N] width of the search behind hit_rank.
      relations: [N] names; "" if unknown.
      rows: [N] the rows themselves, without what is the same for all of them.
      probe: what the rows say of the probe, or what is published of it.
      columns: {name: [N] in 0..1} of the probe's columns that the rows have.
      losses: of facts, see `perplexity.Losses`; None of other probes.
      score: [N] in 0..1, of KILT: each data set's own metric; None of other probes.
    """

    items: tuple[str, ...]
    em: np.ndarray
    f1: np.ndarray
    em_old: np.ndarray
    hit_rank: np.ndarray
    beams: np.ndarray
    relations: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    probe: Probe
    columns: Mapping[str, np.ndarray]
    losses: Losses | None = None
    score: np.ndarray | None = None

    def __repr__(self) -> str:
        return f"Scored({self.probe.name!r}, {len(self.items):,} items)"

    @property
    def answered(self) -> bool:
        """Whether the items have decoded answers, not only losses."""
        return not np.isnan(self.em).any()

    @property
    def dates(self) -> tuple[str, ...]:
        """[N] date from which each item's answers are valid, or ""."""
        return tuple(row.get("date", "") for row in self.rows)

    @property
    def overlap(self) -> Mapping[str, Mapping[str, Any]]:
        """{corpus: overlap of the probe with it}, see `data.facts.overlap`; {} if not measured."""
        return next((row["overlap"] for row in self.rows if "overlap" in row), {})

    @property
    def group_names(self) -> tuple[str, ...]:
        """Kinds of groups, such as "frequency", to which items belong."""
        return tuple(dict.fromkeys(n for row in self.rows for n in row.get("groups", ())))

    def group(self, name: str) -> tuple[str, ...]:
        """[N] the group of each item, or ""."""
        return tuple(row.get("groups", {}).get(name, "") for row in self.rows)


def in_order(scores: Mapping[str, Scored]) -> list[str]:
    """The names of probes in table order."""
    return sorted(scores, key=lambda name: scores[name].probe.order)


def as_columns(rows: list[dict[str, Any]], path: str | os.PathLike = "rows") -> Scored:
    """The rows of one probe from the file `path`, as columns.

    Raises:
      UserError: the record of the probe is malformed, or names columns that rows lack.
    """

    probe = _probe_of(rows, path)

    def column(name: str, default: float = 0) -> np.ndarray:
        try:
            cells = (row.get(name) for row in rows)
            return np.array([default if x is None else x for x in cells], dtype=np.float64)
        except (TypeError, ValueError, OverflowError) as e:
            said = f"{path}: {name!r} of a row of {probe.name} is not a number ({e})"
            raise UserError(f"{said}; run the probes again.") from e

    # Only UpdatedLAMA has old answers; elsewhere the column would be all 0.
    has_old = any(row.get("old_answers") for row in rows)
    shown = {n: column(n, np.nan) for n in probe.columns if n != "em_old" or has_old}
    if any(np.isnan(values).any() for values in shown.values()) and "predictions" in rows[0]:
        lacking = next(n for n, values in shown.items() if np.isnan(values).any())
        raise UserError(
            f"{path}: rows of {probe.name} lack {lacking!r}, a column of its probe_record; run the "
            "probes again."
        )
    return Scored(
        items=tuple(row["item"] for row in rows),
        em=column("em", np.nan),
        f1=column("f1", np.nan),
        em_old=column("em_old"),
        hit_rank=column("hit_rank").astype(int),
        # 1: rows of versions before the wide search.
        beams=column("beams", 1).astype(int),
        relations=tuple(row.get("relation") or "" for row in rows),
        rows=tuple(map(_slim, rows)),
        probe=probe,
        columns=shown,
        losses=Losses.of(rows) if "nll" in rows[0] else None,
        score=column("score", np.nan) if "score" in rows[0] else None,
    )


def _probe_of(rows: list[dict[str, Any]], path: str | os.PathLike) -> Probe:
    """The record of a probe in its rows; rows without one are of published probes."""
    name = rows[0]["probe"]
    for row in rows:
        # The first row of a probe has it, but files may have been merged or sorted.
        if "probe_record" in row:
            where = f"{path}, item {row['item']!r}"
            return Probe.from_json(name, row["probe_record"], where)
    return known_probe(name)


def check_row(row: dict[str, Any], where: str, remedy: str = "run the probes again") -> None:
    """Raises `UserError` if a row lacks a field or has one of the wrong type."""
    present = {n: x for n, x in _OPTIONAL.items() if row.get(n) is not None}
    checks.require_fields(where, row, _fields(row) | present, remedy)
    for name in ("predictions", "answers"):
        if not row.get(name, True):
            raise UserError(f"{where}: no {name}; {remedy}.")
    for name in ("em", "f1", "em_old"):
        if not 0 <= (row.get(name) or 0) <= 1:
            raise UserError(f"{where}: {name} is {row[name]}, not in 0..1; {remedy}.")


def read_rows(path: str | os.PathLike) -> Iterator[dict[str, Any]]:
    """Yields the rows of a file, one at a time.

    Raises:
      UserError: the file cannot be read, or a row lacks a field or has one of the wrong type.
    """
    # Checked row by row: a damaged file is named with the line and the field.
    for number, row in enumerate(files.read_jsonl(path), 1):
        where = f"{path}, row {number}"
        if not isinstance(row, dict):
            raise UserError(f"{where}: not a JSON object; is it a file of probe rows?")
        check_row(row, where)
        yield row


def _fields(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The required fields of a row: of an answer, of a loss, or of both."""
    if "nll" not in row:
        return FIELDS
    has_answers = any(name in row for name in _OF_ANSWERS)
    return LOSS_FIELDS | {n: x for n, x in FIELDS.items() if has_answers or n not in _OF_ANSWERS}


def by_probe(rows: Iterator[dict[str, Any]], path: str | os.PathLike) -> dict[str, Scored]:
    """Groups the rows of one evaluation by probe, each item once."""
    groups: dict[str, list] = {}
    # Rows appended by two runs into one file would count items twice.
    seen = set()
    for row in rows:
        key = (row["probe"], row["item"])
        if key in seen:
            raise UserError(f"{path}: item {key[1]!r} of {key[0]} occurs twice; probe again.")
        seen.add(key)
        groups.setdefault(row["probe"], []).append(row)
    if not groups:
        raise UserError(f"{path} holds no rows; run the probes again.")
    return {probe: as_columns(group, path) for probe, group in groups.items()}


def _slim(row: dict[str, Any]) -> dict[str, Any]:
    """The row without its numbers, which are stored as columns; runs share the text of items."""

    def shared(value: Any) -> Any:
        if isinstance(value, list):
            # Equal strings are one object: all runs of a study share the texts of their items.
            return tuple(sys.intern(str(part)) for part in value)
        return sys.intern(value) if isinstance(value, str) else value

    return {n: shared(value) for n, value in row.items() if n in _KEPT and value is not None}


def row_files(folder: Path) -> dict[int, Path]:
    """{step: the rows of its evaluation} of a folder's files, ascending."""
    paths = folder.glob("rows_*.jsonl")
    return dict(sorted((int(m[1]), path) for path in paths if (m := _FILE.search(path.name))))


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Disables garbage collection while reading rows, where it would take most of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclasses.dataclass(frozen=True)
class ProbedRun:
    """A MODEL_DIR with probe rows.

    Attributes:
      summary: what summary.json says; empty while the run is not finished.
      files: {step: file of rows}, ascending.
    """

    path: Path
    summary: Mapping[str, Any]
    files: Mapping[int, Path]

    @property
    def evaluations(self) -> dict[str, float]:
        """{"<split>/<name>": the last score} of evaluations that are not probes."""
        path = self.path / METRICS_FILE
        scores: dict[str, float] = {}
        for row in read_metrics(path, whole=bool(self.summary)) if path.exists() else ():
            split = str(row["split"])
            if split != "train" and not split.startswith("inference_eval/"):
                names = row.keys() - {"step", "split", "epoch"}
                scores |= {f"{split}/{n}": row[n] for n in sorted(names)}
        return {n: x for n, x in scores.items() if isinstance(x, (int, float))}

    @classmethod
    def open(cls, path: str | os.PathLike) -> "ProbedRun":
        """Finds the rows of a run without reading them.

        Raises:
          NotProbed: there is no such folder, or it has no rows.
          UserError: its summary is damaged, or names a last step whose rows are missing.
        """
        path = Path(path)
        if not path.is_dir():
            raise NotProbed(f"No folder {path}; give a MODEL_DIR of `t5x train`.")
        files = row_files(path / "probes")
        if not files:
            raise NotProbed(f"{path} {_why_no_rows(path)}")
        # Rows of `t5x eval` lie in a subfolder of the run that was trained.
        trained = path.parent if path.name == EVAL else path
        summary = _read_summary(trained / "summary.json")
        if not summary:  # it is still trained
            for of in trained.glob("checkpoint_*[0-9]/metadata/metadata"):
                checks.refuse_newer(str(trained), _version(of))
        last = max(files)
        # A report of an intermediate evaluation must not pass for the final one.
        if trained == path and last < (summary.get("steps") or 0):
            raise UserError(
                f"{path} was trained to step {summary['steps']}, and its last probe rows are of "
                f"step {last}: some were removed; remove {path / 'summary.json'} too and start "
                "the training again, which then probes the model again."
            )
        return cls(path, summary, files)

    @property
    def name(self) -> str:
        """The run's name from its summary, else from its folder."""
        return str(self.summary.get("run") or self.path.resolve().name)

    @property
    def base_checkpoint(self) -> str | None:
        """What it started from; while it is trained its config.gin alone says so."""
        if self.summary:
            return self.summary.get("base_checkpoint")
        base, place = (
            str(self.setting(name)).strip("'\"")
            for name in ("INITIAL_CHECKPOINT_PATH", "MODEL_DIR")
        )
        if base in ("None", ""):
            return None
        if os.path.isabs(base) or os.path.isabs(place):
            return base
        # Both are relative to where it was started.
        return os.path.normpath(self.path / os.path.relpath(base, place))

    def setting(self, macro: str) -> str | None:
        """A macro of its config.gin, as it stands there; None if there is none."""
        path = self.path / "config.gin"
        if not path.exists():
            return None
        # Read as text: this room imports no gin. A long value stands on a line of its own.
        value = rf"^{macro}\s*=\s*(?:\\\n\s*)?('[^'\0-\x1f]*'|[^\s\0-\x1f]+)"
        match = re.search(value, files.read_text(path), re.MULTILINE)
        return match[1] if match else None

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(self.files)

    @functools.cached_property
    def last(self) -> dict[str, Scored]:
        """{probe: scores} of the last evaluation."""
        return self.at(self.steps[-1])

    def at(self, step: int) -> dict[str, Scored]:
        """{probe: scores} of the evaluation after `step`; `UserError` if nothing was probed."""
        if step not in self.files:
            known = ", ".join(map(str, self.steps))
            raise UserError(f"{self.path} was not probed at step {step}; it was at {known}.")
        path = self.files[step]
        with _without_collector():
            return by_probe(read_rows(path), path)

    def means_at(self, step: int) -> dict[str, float]:
        """{probe: mean EM} after `step`, without keeping rows in memory."""
        if step == self.steps[-1]:
            return {p: float(s.em.mean()) for p, s in self.last.items() if s.answered}
        # Row by row: curves read every evaluation of every run.
        right: collections.Counter[str] = collections.Counter()
        items: collections.Counter[str] = collections.Counter()
        for row in read_rows(self.files[step]):
            if "em" in row:
                right[row["probe"]] += row["em"]
                items[row["probe"]] += 1
        return {probe: right[probe] / n for probe, n in items.items()}

    def epoch_at(self, step: int) -> float:
        """Passes over the corpus after `step`; fractional within an epoch."""
        done = 0
        # Epochs differ in length under Mix-Review, hence a list of steps.
        for epoch, steps in enumerate(self.summary.get("steps_per_epoch") or ()):
            if step < done + steps:
                return epoch + (step - done) / steps
            done += steps
        if "steps_per_epoch" in self.summary:
            return float(len(self.summary["steps_per_epoch"]))
        return float(next(iter(read_rows(self.files[step])))["epoch"])


def read_metrics(path: str | os.PathLike, whole: bool = False) -> Iterator[dict[str, Any]]:
    """Yields the rows of a `metrics.jsonl`, without a line that is still being written.

    Raises:
      UserError: `whole`, which a finished run's file is, and a line is no row.
    """
    with files.os_errors(path, "read"), open(path, encoding="utf-8", errors="replace") as f:
        for number, line in enumerate(f, 1):
            if (row := metrics_row(line)) is not None:
                yield row
            elif whole:
                raise UserError(f"{path}, line {number}: not a row of metrics; remove the line.")


def metrics_row(line: str) -> dict[str, Any] | None:
    """A line of a `metrics.jsonl`, or None if it is incomplete or something else."""
    try:
        # A line without its newline is still being written.
        row = files.parse_json(line, ANY_NUMBER) if line.endswith("\n") else None
    except BadJson:
        return None
    return row if isinstance(row, dict) and "step" in row and "split" in row else None


def _why_no_rows(path: Path) -> str:
    """Explains why a folder has no rows, and what to do."""
    probed = {p.parent.parent.name for p in path.glob("*/probes/rows_*.jsonl")}
    names = ", ".join(sorted(probed))
    if (path / "demo.json").is_file():
        return f"is a demo; give one of its runs: {names or 'none of them is probed yet'}."
    if EVAL in probed:
        return f"has no probes of its own, but those of `t5x eval`; give {path / EVAL}."
    if probed:
        return f"is not a run but holds some; give one of them: {names}."
    if not (path / "config.gin").is_file() and not any(path.glob("checkpoint_*")):
        return "is not a run: it has no config.gin and no checkpoint; give a run's MODEL_DIR."
    if (path / "summary.json").is_file():
        return (
            "was trained without probes; put them with `t5x eval` (the run's gin files with its "
            f"PROBES, then ckl_eval.gin), then give {path / EVAL}."
        )
    return (
        "has no probes/rows_<step>.jsonl; train with probes set, or wait for its first evaluation."
    )


def _version(metadata: Path) -> Any:
    """The version that wrote a checkpoint, if it says so."""
    with contextlib.suppress(UserError):  # damaged, or going
        return files.read_json_object(metadata).get("ckl_jax")


def _read_summary(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    summary = files.read_json_object(path)
    for name, value in summary.items():
        entries = {f"{name} of {path}": value}
        if name in _COUNTS:
            checks.require_int(0, **entries)
        elif name.endswith("_seconds"):
            checks.require_number("a finite number, 0 or more", 0.0, **entries)
        elif name == "steps_per_epoch" and value != []:
            checks.require_ints(0, **entries)
        elif name in _TEXTS and not isinstance(value, str | None):
            raise UserError(f"{name} of {path} is {value!r}, and no text.")
        elif name in _TEXTS and CONTROL.search(value or ""):
            raise UserError(f"{name} of {path} has a control character: {value!r}; change it.")
    checks.refuse_newer(str(path), summary.get("ckl_jax"))
    return summary


def base_of(run: ProbedRun) -> ProbedRun | None:
    """The run from which `run` started, if that is known and was probed."""
    base = run.base_checkpoint
    if not base:
        return None
    base = Path(base)
    recorded = base.parent if base.name.startswith("checkpoint_") else base
    # Runs are often copied together to another folder; a namesake beside this run is then the base.
    beside = run.path.parent / recorded.name
    moved = () if recorded.exists() or not _may_be_base(run, beside) else (beside,)
    for folder in (recorded, recorded / EVAL, *moved):
        if (folder / "probes").is_dir() and folder.resolve() != run.path.resolve():
            return ProbedRun.open(folder)
    return None


def _may_be_base(run: ProbedRun, folder: Path) -> bool:
    """Whether a folder has the checkpoint that the run started from, or nothing to know it by."""
    digest = run.summary.get("base_digest")
    held = {files.checkpoint_digest(path) for path in folder.glob("checkpoint_*")} - {None}
    return digest is None or not held or digest in held


def training_flops(summary: Mapping[str, Any]) -> int | None:
    """FLOPs of a training's matrix products from its `summary.json`; None if not recorded.

    Those of gradients, and of what is computed again for them, are among them.
    """
    per_step, steps = summary.get("matmul_flops_per_step"), summary.get("steps")
    return None if per_step is None or steps is None else per_step * steps


def initial_scores(run: ProbedRun) -> dict[str, Scored] | None:
    """Answers of the run's base model: the base's own rows, else the run's of step 0.

    The base's come first because parameters that a method adds may answer differently from the
    start: a side network that is random at step 0 is not part of the base. They are left where the
    base was put to other items, or not at the checkpoint that the run started from.
    """
    return _base_scores(run) or (run.at(0) if 0 in run.files else None)


def added_to_initial(run: ProbedRun) -> int | None:
    """How many parameters the method added to the model that `initial_scores` are of.

    None is unknown: it is recorded when the run has finished.
    """
    if _base_scores(run):
        return 0
    return run.summary.get("added_parameters", 0) if run.summary else None


def _base_scores(run: ProbedRun) -> dict[str, Scored] | None:
    if (base := base_of(run)) is None:
        return None
    name = Path(run.base_checkpoint).name
    step = int(name.removeprefix("checkpoint_")) if name.startswith("checkpoint_") else None
    if step is not None and step not in base.steps:
        return None
    scores = base.last if step is None else base.at(step)
    own = run.at(0) if 0 in run.files else {}
    alike = all(probe in scores and scores[probe].items == x.items for probe, x in own.items())
    return scores if alike else None
