"""`ckl temporalwiki`: from dumps of several months to updated models, and what each of them knows.

Snapshots -> diffsets, probes, rows -> Initial model on the first snapshot -> every method, interval
by interval, each from its own last model -> probes of all intervals -> report (TemporalWiki,
sections 3 to 5). Each training is a `t5x train` of its gin file in a process of its own. A method
is a gin file: `temporalwiki_<method>.gin`, which says on which task it trains (d1 or whole).
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from ckl_jax import files
from ckl_jax.analysis import labels
from ckl_jax.analysis.gate import Gate
from ckl_jax.data.beam import new_pipeline
from ckl_jax.data.process_pool import Progress, no_progress
from ckl_jax.data.text.sentences import sentence_splitter
from ckl_jax.errors import UserError, nearest
from ckl_jax.papers.temporalwiki import extra_evaluations
from ckl_jax.papers.temporalwiki.analysis import promotion
from ckl_jax.papers.temporalwiki.analysis.promotion import Verdict
from ckl_jax.papers.temporalwiki.analysis.results import INITIAL, RECORD
from ckl_jax.papers.temporalwiki.data import snapshots as dumps
from ckl_jax.papers.temporalwiki.data.inline_templates import read_table
from ckl_jax.papers.temporalwiki.data.page_map import check_page_map
from ckl_jax.papers.temporalwiki.data.snapshots import Snapshot
from ckl_jax.papers.temporalwiki.data.wikitext import Extractor
from ckl_jax.papers.temporalwiki.settings import METHODS, Model, Updates
from ckl_jax.papers.temporalwiki.study_data import FIRST, TOO_SHORT, Data, Drawn
from ckl_jax.train import studies
from ckl_jax.train.subprocess_runs import Training
from ckl_jax.world.dump_files import write_dumps
from ckl_jax.world.months import month_starts

# Parts of a study, each with those before it; `TEXT` are the data, which may be without a fact.
TEXT, DATA, MODELS, ALL = "text", "data", "models", "all"
_TRAINING = "jobs/temporalwiki_train.gin"  # what the file of a method includes
_SENTINELS = 100
_CONFIG = "model_config"  # in settings: the name of the model's configuration in the gin files
_REVIEWS = "mix_review.mix_review.ratio"


def run_study(
    updates: Updates,
    progress: Progress = no_progress,
    condition: Gate | None = None,
    until: str = ALL,
) -> Sequence[Verdict]:
    """Runs the study, or resumes it.

    Args:
      condition: for shipping, of `promotion.parse`; where the newest interval has too few facts
        for it, nothing is trained.
      until: the last part: `TEXT`, `DATA`, `MODELS` (with proper nouns, but not light-tuned), or
        `ALL`.

    Returns:
      The verdict on each method; () without a condition.

    Raises:
      UserError: bad snapshots, settings or gin files, before anything is written; or a training
        failed: its log's last lines are in the message.
    """
    from ckl_jax.papers.temporalwiki.analysis.report import write_report  # slow

    # Nothing is written before all settings, gin files and dumps have been looked at.
    snapshots, settings = check(updates)
    with studies.open_study(updates, RECORD, "study", **_recorded(updates, snapshots)) as study:
        data = Data(updates, _with_dumps(updates, snapshots, progress), progress)
        _refuse_changed(data, settings["drawn"])
        study.step(f"Data: {labels.count(len(snapshots), 'snapshot')}")
        build(data, settings, needs_facts=until != TEXT and not condition)
        if until in (TEXT, DATA):
            return ()
        if condition and (few := promotion.too_few(condition, data.newest_facts())):
            verdicts = [Verdict("", "", data.intervals[-1].name, few)]
            promotion.write_verdicts(verdicts, updates.root)
            print("   Nothing is trained: --promote-if lacks evidence.", flush=True)
            if (updates.root / "report.html").exists():  # of earlier intervals, with their verdict
                write_report(updates.root)
            return verdicts
        data.check_batches(settings["drawn"], begun=training(data, Model(INITIAL)).is_done)
        _train(study, data, settings["drawn"], until == ALL)
        study.step("Report")
        verdicts = []
        if condition:
            newest, short = data.intervals[-1].name, data.too_short(settings["drawn"])
            untrained = {m: TOO_SHORT for m in updates.methods if (m, newest) in short}
            verdicts = promotion.compare_study(updates.root, condition, updates.methods, untrained)
            promotion.write_verdicts(verdicts, updates.root)
        else:  # one of an earlier run is not of these models
            (updates.root / promotion.VERDICT).unlink(missing_ok=True)
        study.done(write_report(updates.root))
        return verdicts


def _recorded(updates: Updates, snapshots: list[Snapshot]) -> dict[str, Any]:
    """The settings as the folder records them, for `studies.open_study`."""
    # The record compares names and sizes of dumps, not the paths that they were given by.
    replaced = {
        "snapshots": [snapshot.describe() for snapshot in snapshots],
        "unchanged_fraction": updates.share,
        "source": "snapshots" if updates.snapshots else "simulated",
        "options": updates.options,  # for `ckl claims`
    }
    free = ("methods", "months", "unsorted", "beam")  # how dumps are read changes no text
    may_become = functools.partial(_may_become, updates.root)
    return {"free": free, "replaced": replaced, "may_become": may_become}


def _may_become(root: Path, name: str, before: Any, now: Any) -> bool:
    """Whether a study may continue although a setting changed in this way."""
    if name == "options":  # which the other settings say again
        return True
    if name == "proper_nouns":  # may be evaluated later
        return not before or not now
    defaults = {field.name: field.default for field in dataclasses.fields(Updates)}
    if before is None and name in defaults:  # of a folder from before there was any
        return now == ("paper" if name == "facts" else defaults[name])
    # Months may be added behind the others. One whose dumps could not be read to their end may be
    # fetched again, or left out.
    return name == "snapshots" and (built := _built(root, before)) == now[: len(built)]


def _built(root: Path, snapshots: list[str]) -> list[str]:
    """The snapshots of a record up to the last of which the data are finished."""
    # Of an interval's data the probes come last.
    names = ("-".join(text.partition(":")[0] for text in pair) for pair in pairwise(snapshots))
    made = [(root / "data" / name / "probes" / "manifest.json").is_file() for name in names]
    return snapshots[: [*made, False].index(False) + 1]


def _train(study: studies.Study, data: Data, drawn: Mapping[str, Drawn], tuned: bool) -> None:
    """Trains all models, then runs the evaluations of finished models."""
    initial, *updated = every = models(data, drawn)
    study.step("Initial model on the first snapshot")
    study.run([training(data, initial)])
    methods = labels.count(len(data.updates.methods), "method")
    study.step(f"{methods}, interval by interval")
    study.run([training(data, model) for model in updated])
    if later := extra_evaluations.later_probes(data, every):
        study.step("Probes of later intervals")
        study.run(later)
    if extra := extra_evaluations.wanted(data, every, tuned):
        study.step("Light-tuning and proper nouns")
        study.run(extra)


def check(updates: Updates) -> tuple[list[Snapshot], dict[str, Any]]:
    """Refuses settings that would fail later, before anything is written.

    Returns:
      The snapshots (of the simulated world by their dates alone), and the value of each gin macro
      and parameter by name, of the methods that have it, with "drawn" and "model_config".
    """
    snapshots = _snapshots(updates)
    if updates.snapshots:
        dumps.check_series(snapshots)
    settings = check_options(updates)
    whole = any(of.task == "whole" for of in settings["drawn"].values())
    Data(updates, snapshots).check_dumps(whole)
    return snapshots, settings


def check_options(updates: Updates) -> dict[str, Any]:
    """Refuses what no snapshots would make right; returns the values as `check` does."""
    # Without snapshots: only the names of macros are needed.
    unbuilt = Data(updates, ())
    own = (*_macros(unbuilt, Model(updates.methods[0])), *extra_evaluations.OWN)
    studies.refuse_own(updates.bindings, own)
    for needed in (Extractor, sentence_splitter):  # of the extra `data`
        needed()
    if updates.beam is not None:
        new_pipeline(updates.beam)
    if updates.templates:
        read_table(updates.templates)
    if updates.page_map:
        check_page_map(updates.page_map)
    if path := updates.properties:
        files.require_file(path, f"There is no Wikidata dump {path}; check --properties.")
    if updates.model and not (Path(updates.model) / "model.gin").is_file():
        raise UserError(f"{updates.model} has no model.gin; make it with `ckl import-hf`.")
    from ckl_jax.config import gin_scan  # slow, and needed from here on only

    settings: dict[str, Any] = {}
    drawn = {}
    for method in (INITIAL, *updates.methods):
        macros = _macros(unbuilt, Model(method))
        names = _known(updates, method)
        bindings = updates.bindings_of(method, macros)
        mine = studies.gin_values(names, macros, bindings)
        if bindings:
            macros = {"MODEL_DIR": updates.root / method, **macros}
            statements = studies.gin_statements(macros, bindings)
            studies.check_settings(names, statements)
        reviewed = mine["MIX_RATIO"] if _REVIEWS in mine else 0.0
        drawn[method] = Drawn(mine["MIXTURE_OR_TASK_NAME"], mine["BATCH_SIZE"], reviewed)
        # The first method that has a setting decides; rows are the same for all.
        settings = {**mine, **settings}
    if updates.changed_span_weight != 1 and (settings["PACK_ROWS"] or settings["LEGACY_ROWS"]):
        raise UserError(
            "--changed-span-weight needs whole rows: leave PACK_ROWS and LEGACY_ROWS out."
        )
    extra_evaluations.check(updates)
    settings |= {"drawn": drawn, _CONFIG: gin_scan.model_config(settings)}
    _check_length(updates, settings)
    if updates.model:
        _vocabulary(updates, settings)  # refuses a model without one
    return settings


def _check_length(updates: Updates, settings: Mapping[str, Any]) -> None:
    """Refuses rows that are longer than the model has positions."""
    length = settings["ROW_LENGTH"]
    max_positions = settings.get(f"{settings[_CONFIG]}.max_positions", length)
    if length > max_positions:
        raise UserError(
            f"Rows are of {length} tokens and {updates.model or 'the model'} has {max_positions} "
            f"positions; give --gin.ROW_LENGTH={max_positions}, or less."
        )


def _known(updates: Updates, method: str) -> list[str]:
    """The gin files of a method, of which the first must exist."""
    from ckl_jax.config import gin_files, gin_scan

    names = updates.gin_files(method)
    folders = gin_files.search_folders(())
    choose = f"choose from {', '.join(METHODS)}, or write one.{nearest(method, METHODS)}"
    try:
        path = gin_files.find(names[0], folders)
    except UserError as e:
        raise UserError(
            f"Unknown method {method!r}: there is no gin file {names[0]}; {choose}"
        ) from e
    if method in METHODS:
        return names
    read = gin_scan.scan([path], (), folders).files
    if str(gin_files.find_include(_TRAINING, folders)) not in read:
        raise UserError(f"{path} is not a method: it does not include {_TRAINING}; {choose}")
    return names


def _refuse_changed(data: Data, drawn: Mapping[str, Drawn]) -> None:
    """Raises `UserError` for a gin file of the user's that has changed since it was trained by."""
    for model in models(data, drawn):
        if model.method in (INITIAL, *METHODS):
            continue
        planned = training(data, model)
        if changed := studies.changed_settings(planned):
            raise UserError(
                f"{planned.folder} was trained with another {changed[0]} than temporalwiki_"
                f"{model.method}.gin sets now; give the file another name, or remove the folders "
                f"of {model.method} to train anew."
            )


def _snapshots(updates: Updates) -> list[Snapshot]:
    if updates.snapshots:
        record = updates.root / RECORD
        known = files.read_json_object(record).get("snapshots", []) if record.is_file() else []
        built = _built(updates.root, known)
        found = dumps.find_all(updates.snapshots, built)
        dumps.check_sizes(found, built)
        return found
    # The simulated world's dumps are written later; their dates are known.
    dates = month_starts(updates.world(), updates.months)
    return [Snapshot(date.replace("-", ""), "", "") for date in dates]


def _with_dumps(updates: Updates, snapshots: list[Snapshot], progress: Progress) -> list[Snapshot]:
    """The snapshots; those of the simulated world are written where they are missing."""
    if updates.snapshots:
        return snapshots
    folder = updates.root / "dumps"
    record = folder / "dumps.json"
    if not record.exists() or not all(any(folder.glob(f"*{s.date}*")) for s in snapshots):
        write_dumps(updates.world(), folder, updates.months, progress)
    return [dumps.find(folder / snapshot.date) for snapshot in snapshots]


def build(data: Data, settings: dict[str, Any], needs_facts: bool = True) -> None:
    """Makes diffsets, probes, vocabulary and rows.

    Args:
      settings: values of gin names, of `check`.

    Raises:
      UserError: nothing is left to measure.
    """
    updates = data.updates
    for interval in data.intervals:
        data.build_interval(interval)
    first = data.whole_text(data.snapshots[0])
    if not updates.model:
        # The vocabulary's sentinels come on top of the trained tokens.
        data.train_vocabulary(first, settings[f"{settings[_CONFIG]}.vocab_size"] - _SENTINELS)
    drawn: Mapping[str, Drawn] = settings["drawn"]
    vocabulary = _vocabulary(updates, settings)
    data.make_rows(
        first,
        any(d.task == "whole" for d in drawn.values()),
        vocabulary,
        length=settings["ROW_LENGTH"],
        packed=settings["PACK_ROWS"],
        legacy=settings["LEGACY_ROWS"],
        marks=updates.changed_span_weight != 1,
    )
    if updates.proper_nouns:
        data.make_word_rows(vocabulary, settings["ROW_LENGTH"])
    if needs_facts and not data.fact_files() and not updates.proper_nouns:
        raise UserError(
            "There are no facts to probe: none passed the alignment and the filters (see "
            f"{updates.root}/data/*/probes/manifest.json); give a larger "
            "--unchanged-fraction, snapshots with more in them, or --proper-nouns to measure "
            "running text alone."
        )
    if not updates.snapshots:  # real dumps would take hours
        data.measure_overlap(first)


def _vocabulary(updates: Updates, settings: Mapping[str, Any]) -> Any:
    from ckl_jax.data.text.byte_level import ByteLevelVocabulary
    from ckl_jax.data.text.vocabulary_copy import open_vocabulary

    added = settings.get("byte_level.ByteLevelVocabulary.added_tokens")
    if updates.model and added:
        return ByteLevelVocabulary(updates.model, added)
    return open_vocabulary(updates.model or updates.vocabulary)


# --- trainings


def models(data: Data, drawn: Mapping[str, Drawn]) -> list[Model]:
    """All models, Initial first, each after the one from which it is updated.

    Args:
      drawn: of each method; there is no model where the text does not fill a batch.
    """
    made, short = [Model(INITIAL)], data.too_short(drawn)
    last = dict.fromkeys(data.updates.methods, made[0])
    for interval in data.intervals:
        # Every method goes on from its own last model (section 4.1).
        new = {
            method: Model(method, interval, base)
            for method, base in last.items()
            if (method, interval.name) not in short
        }
        last |= new
        made += new.values()
    return made


def training(data: Data, model: Model) -> Training:
    """The training of a model, which waits for that of its base model."""
    updates, waits = data.updates, model.base is not None and model.base.interval is not None
    macros = _macros(data, model)
    return Training.of(
        model.name,
        updates.model_dir(model),
        updates.gin_files(model.method),
        macros,
        updates.bindings_of(model.method, macros),
        after=(model.base.name,) if waits else (),
    )


def _macros(data: Data, model: Model) -> dict[str, Any]:
    """The gin macros of one training."""
    updates = data.updates
    base = updates.model_dir(model.base) if model.base else updates.model
    rows = (model.interval.name, FIRST) if model.interval else (FIRST,)
    macros = {
        "INITIAL_CHECKPOINT_PATH": base or None,
        "CACHE_DIRS": tuple(data.rows(name) for name in rows),
        "VOCABULARY_PATH": updates.vocabulary,
        "RANDOM_SEED": updates.seed,
        "FACT_PROBES": data.fact_files(),
        "EVAL_FIRST": updates.is_untrained(model.method),
    }
    if model.interval:
        # Methods that review draw their old rows from the first snapshot, which has no part of
        # its own for that, as the simulated world of a single update has.
        macros["REPLAY_TASK_NAME"] = "d0"
        if updates.changed_span_weight != 1:
            macros["CHANGED_SPAN_WEIGHT"] = updates.changed_span_weight
    if model.method == INITIAL and (updates.initial_epochs or updates.model):
        # 4 passes over the first snapshot, as in the paper.
        macros["EPOCHS"] = updates.initial_epochs or 4
    return macros


def describe(updates: Updates, until: str = ALL) -> list[str]:
    """The steps that `run` would take, one line each; writes nothing. Light-tunings have none.

    Raises:
      UserError: as `run`.
    """
    snapshots, settings = check(updates)
    studies.check_record(updates, RECORD, "study", **_recorded(updates, snapshots))
    data = Data(updates, snapshots)
    _refuse_changed(data, settings["drawn"])
    gone = "no longer there" if updates.snapshots else "simulated"
    lines = [f"{s.date}  {s.wikipedia or gone}  {s.wikidata}".rstrip() for s in snapshots]
    for interval in data.intervals:
        lines.append(f"{interval.name}  diffset, probes and rows into {updates.root / 'data'}")
    for model in models(data, settings["drawn"]) if until in (MODELS, ALL) else ():
        planned = training(data, model)
        state = "done" if planned.is_done else "to do"
        start = f", from {planned.after[0]}" if planned.after else ""
        lines.append(f"{model.name}  {state}{start}: {', '.join(updates.gin_files(model.method))}")
    return lines
