"""`ckl temporalwiki`: dumps of several months to updated models, and what each of them knows.

Snapshots -> diffsets, probes, rows -> Initial model on the first snapshot -> every method, interval
by interval, each from its own last model -> probes of all intervals -> report (TemporalWiki,
sections 3 to 5). Each training is a `t5x train` of its gin file in a process of its own. A method
is a gin file: `temporalwiki_<method>.gin`, which says on which task it trains (d1 or whole).
"""

import dataclasses
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.analysis import labels
from ckl_jax.data.process_pool import Progress, no_progress
from ckl_jax.errors import UserError, nearest
from ckl_jax.papers.temporalwiki import extra_evaluations
from ckl_jax.papers.temporalwiki.analysis.results import LATER, RECORD, probes_of
from ckl_jax.papers.temporalwiki.data import snapshots as dumps
from ckl_jax.papers.temporalwiki.data.snapshots import Snapshot
from ckl_jax.papers.temporalwiki.settings import INITIAL, METHODS, Updates
from ckl_jax.papers.temporalwiki.study_data import FIRST, Data, Drawn, Interval, intervals
from ckl_jax.train import subprocess_runs
from ckl_jax.world.dump_files import write_dumps
from ckl_jax.world.months import month_starts

_TRAINING = "jobs/temporalwiki_train.gin"  # what the file of a method includes
_INCLUDES_TRAINING = re.compile(rf"^include '{_TRAINING}'", re.MULTILINE)
_SENTINELS = 100
_CONFIG = "model_config"  # in settings: the name of the model's configuration in the gin files
_REVIEWS = "mix_review.mix_review.ratio"


def run(updates: Updates, progress: Progress = no_progress) -> Path:
    """Does all of it, or goes on with it; returns the path of the report.

    Raises:
      UserError: bad snapshots, settings or gin files, before anything is written; or a training
        failed: its log's last lines are in the message.
    """
    _, settings = check(updates)
    with subprocess_runs.only_one(updates.root):
        return _run(updates, settings, progress)


def check(updates: Updates) -> tuple[list[Snapshot], dict[str, Any]]:
    """Refuses what would fail later, before anything is written.

    Returns:
      The snapshots (of the simulated world by their dates alone), and the value of each gin macro
      and parameter by name, of the methods that have it, with "drawn" and "model_config".
    """
    snapshots = _snapshots(updates)
    subprocess_runs.refuse_own(
        updates.bindings, _macros(updates, updates.methods[0], None, None, ())
    )
    if updates.snapshots:
        dumps.check_series(snapshots)
    if updates.model and not (Path(updates.model) / "model.gin").is_file():
        raise UserError(f"{updates.model} has no model.gin; make it with `ckl import-hf`.")
    from ckl_jax.config import gin_config, gin_scan  # slow, and needed from here on only

    settings: dict[str, Any] = {}
    drawn = {}
    for method in (INITIAL, *updates.methods):
        macros = _macros(updates, method, None, None, ())
        bindings = [*(f"{k} = {v!r}" for k, v in macros.items()), *updates.training_bindings]
        read = gin_config.read(_known(updates, method), bindings).scan.bindings
        mine = {b.name: b.value for b in read}
        reviewed = mine["MIX_RATIO"] if _REVIEWS in mine else 0.0
        drawn[method] = Drawn(mine["MIXTURE_OR_TASK_NAME"], mine["BATCH_SIZE"], reviewed)
        settings = {**mine, **settings}
    if updates.training_bindings:
        gin_config.load(updates.gin_files(updates.methods[0]), bindings)
    extra_evaluations.check(updates)
    settings |= {"drawn": drawn, _CONFIG: gin_scan.model_config(settings)}
    if updates.model:
        _check_model(updates, settings)
    return snapshots, settings


def _check_model(updates: Updates, settings: Mapping[str, Any]) -> None:
    """Refuses a --model without vocabulary, or with fewer positions than a row has tokens."""
    _vocabulary(updates, Data(updates.root, ()), settings)
    length, most = settings["ROW_LENGTH"], settings[f"{settings[_CONFIG]}.max_positions"]
    if length > most:
        raise UserError(
            f"Rows are of {length} tokens and {updates.model} has {most} positions; give "
            f"--gin.ROW_LENGTH={most}, or less."
        )


def _known(updates: Updates, method: str) -> list[str]:
    """The gin files of a method, of which the first is there."""
    from ckl_jax.config import gin_files

    names = updates.gin_files(method)
    choose = f"choose from {', '.join(METHODS)}, or write one.{nearest(method, METHODS)}"
    try:
        path = gin_files.find(names[0], gin_files.search_folders(()))
    except UserError as e:
        raise UserError(
            f"Unknown method {method!r}: there is no gin file {names[0]}; {choose}"
        ) from e
    if method not in METHODS and not _INCLUDES_TRAINING.search(path.read_text(encoding="utf-8")):
        raise UserError(f"{path} is no method: it does not include {_TRAINING}; {choose}")
    return names


def _snapshots(updates: Updates) -> list[Snapshot]:
    if updates.snapshots:
        return [dumps.find(place) for place in updates.snapshots]
    dates = month_starts(updates.world(), updates.months)
    return [Snapshot(date.replace("-", ""), "", "") for date in dates]


def _run(updates: Updates, settings: dict[str, Any], progress: Progress) -> Path:
    began = time.monotonic()
    _record(updates)
    snapshots = _with_dumps(updates, progress)
    data = Data(
        updates.root,
        snapshots,
        updates.seed,
        updates.share,
        updates.jobs or len(os.sched_getaffinity(0)),
        progress,
        updates.light_tuning,
    )
    print(f"1. Data: {labels.count(len(snapshots), 'snapshot')}", flush=True)
    build(updates, data, settings)
    if not data.fact_files():
        raise UserError(
            f"No fact passed the alignment and the filters (see {updates.root}/data/*/probes/"
            "manifest.json); give a larger --unchanged-share, or snapshots with more in them."
        )
    print("2. Initial model on the first snapshot", flush=True)
    with subprocess_runs.compiling_once() as environment:
        _train(updates, data, environment)
    print("Report", flush=True)
    from ckl_jax.papers.temporalwiki.analysis.report import write_report

    report = write_report(updates.root)
    print(f"Done in {time.monotonic() - began:.0f} s: {report}", flush=True)
    return report


def _train(updates: Updates, data: Data, environment: Mapping[str, str]) -> None:
    """Trains all models, then puts the probes to those that were trained before there were some."""
    jobs = trainings(updates, data)
    settings = {
        "jobs": updates.jobs,
        "width": max(len(job.name) for job in jobs),
        "environment": environment,
    }
    subprocess_runs.run_all(jobs[:1], **settings)
    print(f"3. {labels.count(len(updates.methods), 'method')}, interval by interval", flush=True)
    subprocess_runs.run_all(jobs[1:], **settings)
    if later := evaluations(updates, data):
        print("4. Probes of later intervals", flush=True)
        subprocess_runs.run_all(later, **settings)
    if extra := extra_evaluations.runs(updates, data, jobs):
        print("5. Light-tuning and proper nouns", flush=True)
        width = max(len(training.name) for training in extra)
        subprocess_runs.run_all(extra, **{**settings, "width": width})


def _with_dumps(updates: Updates, progress: Progress) -> list[Snapshot]:
    """The snapshots; those of the simulated world are written where they are missing."""
    snapshots = _snapshots(updates)
    if updates.snapshots:
        return snapshots
    folder = updates.root / "dumps"
    record = folder / "dumps.json"
    if not record.exists() or not all(any(folder.glob(f"*{s.date}*")) for s in snapshots):
        write_dumps(updates.world(), folder, updates.months, progress)
    return [dumps.find(folder / snapshot.date) for snapshot in snapshots]


def _record(updates: Updates) -> None:
    settings = dataclasses.asdict(updates)
    for free in ("out", "jobs", "methods", "months"):
        settings.pop(free)
    settings |= {
        "snapshots": [s.describe() for s in _snapshots(updates)],
        "unchanged_share": updates.share,
        "source": "snapshots" if updates.snapshots else "simulated",
    }

    def grows(name: str, before: Any, now: Any) -> bool:
        if name == "proper_nouns":  # may be asked later
            return not before
        if name == "light_tuning" and before is None:  # of a folder from before there was any
            return not now
        return name == "snapshots" and before == now[: len(before)]

    subprocess_runs.record(updates.root / RECORD, settings, "study", grows)


def build(updates: Updates, data: Data, settings: dict[str, Any]) -> None:
    """Makes diffsets, probes, vocabulary and rows.

    Args:
      updates: what is made.
      data: where.
      settings: values of gin names, of `check`.
    """
    for interval in intervals(data.snapshots):
        data.build_interval(interval)
    first = data.whole_text(data.snapshots[0])
    if not updates.model:
        data.train_vocabulary(first, settings[f"{settings[_CONFIG]}.vocab_size"] - _SENTINELS)
    drawn: Mapping[str, Drawn] = settings["drawn"]
    is_whole = any(d.task == "whole" for d in drawn.values())
    whole = {i.new.date for i in intervals(data.snapshots)} if is_whole else set()
    vocabulary = _vocabulary(updates, data, settings)
    data.make_rows(
        first,
        whole,
        vocabulary,
        length=settings["ROW_LENGTH"],
        packed=settings["PACK_ROWS"],
        legacy=settings["LEGACY_ROWS"],
    )
    extra_evaluations.build(updates, data, vocabulary, settings["ROW_LENGTH"])
    data.check_batches(drawn)


def _vocabulary(updates: Updates, data: Data, settings: Mapping[str, Any]) -> Any:
    from ckl_jax.data.text.byte_level import ByteLevelVocabulary, open_vocabulary

    if not updates.model:
        return open_vocabulary(data.vocabulary)
    added = settings.get("byte_level.ByteLevelVocabulary.added_tokens", ())
    return ByteLevelVocabulary(updates.model, added)


# --- trainings


def trainings(updates: Updates, data: Data) -> list[subprocess_runs.Training]:
    """All trainings, the Initial model's first; each method's wait for each other."""
    facts = data.fact_files()
    planned = [_training(updates, data, INITIAL, None, updates.model, (), facts)]
    last = dict.fromkeys(updates.methods, planned[0])
    for interval in intervals(data.snapshots):
        for method, before in last.items():
            last[method] = _training(
                updates, data, method, interval, before.folder, (before.name,), facts
            )
            planned.append(last[method])
    return [dataclasses.replace(t, after=()) if t.after == (INITIAL,) else t for t in planned]


def _training(updates, data, method, interval, base, after, facts) -> subprocess_runs.Training:
    caches = (FIRST,) if interval is None else (interval.name, FIRST)
    macros = _macros(updates, method, interval, base, facts)
    macros["CACHE_DIRS"] = tuple(str(data.rows(name)) for name in caches)
    name = f"{interval.name} {method}" if interval else INITIAL
    command = subprocess_runs.t5x(
        "train", updates.gin_files(method), macros, updates.training_bindings
    )
    return subprocess_runs.Training(name, updates.model_dir(method, interval), command, after)


def _macros(
    updates: Updates, method: str, interval: Interval | None, base: Any, facts: Sequence[str]
) -> dict[str, Any]:
    """The gin macros of one training."""
    data = Data(updates.root, ())
    macros = {
        "MODEL_DIR": str(updates.model_dir(method, interval)),
        "INITIAL_CHECKPOINT_PATH": str(base) if base else None,
        "CACHE_DIRS": (),
        "VOCABULARY_PATH": str(data.vocabulary),
        "RANDOM_SEED": updates.seed,
        "FACT_PROBES": tuple(facts),
        "EVAL_FIRST": updates.is_untrained(method),
    }
    if method == INITIAL and (updates.initial_epochs or updates.model):
        macros["EPOCHS"] = updates.initial_epochs or 4
    return macros


def evaluations(updates: Updates, data: Data) -> list[subprocess_runs.Training]:
    """What finished models were not asked, because its interval came later."""
    planned = []
    for training in trainings(updates, data):
        asked = probes_of(training.folder)
        missing = [f for f in data.fact_files() if Path(f).stem not in asked]
        if training.is_done and missing:
            planned.append(_evaluation(updates, training, missing, data.snapshots[-1].date))
    return planned


def _evaluation(updates, training, facts, date) -> subprocess_runs.Training:
    out = training.folder / LATER / date
    method = training.name.rpartition(" ")[2]
    macros = {
        "MODEL_DIR": str(training.folder),
        "CHECKPOINT_PATH": str(training.folder),
        "EVAL_OUTPUT_DIR": str(out),
        "FACT_PROBES": tuple(facts),
        "VOCABULARY_PATH": str(Data(updates.root, ()).vocabulary),
        "CACHE_DIRS": (),
        "INITIAL_CHECKPOINT_PATH": None,
    }
    names = [*updates.gin_files(method), "temporalwiki_eval.gin"]
    command = subprocess_runs.t5x("eval", names, macros, updates.training_bindings)
    return subprocess_runs.Training(training.name, out, command, marker="probes/rows_*.jsonl")


def describe(updates: Updates) -> list[str]:
    """What `run` would do, a line each; writes nothing.

    Raises:
      UserError: as `run`.
    """
    snapshots, _ = check(updates)
    data = Data(updates.root, snapshots)
    lines = [f"{s.date}  {s.wikipedia or 'simulated'}  {s.wikidata}".rstrip() for s in snapshots]
    for interval in intervals(snapshots):
        lines.append(f"{interval.name}  diffset, probes and rows into {updates.root / 'data'}")
    for training in trainings(updates, data):
        state = "done" if training.is_done else "to do"
        start = f", from {training.after[0]}" if training.after else ""
        names = ", ".join(updates.gin_files(training.name.rpartition(" ")[2]))
        lines.append(f"{training.name}  {state}{start}: {names}")
    return lines
