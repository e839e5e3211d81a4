"""TWiki-Probes: from two Wikidata dumps and a diffset to facts in words: unchanged, changed,
deleted and ended.

Facts are compared in buckets by item, joined with texts in buckets by page; neither dump is ever in
memory. Labels come from the snapshot itself.
"""

import csv
import dataclasses
import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.data.facts.fact_files import COLUMNS, SETS
from ckl_jax.data.process_pool import Progress, no_progress, open_folder, processes
from ckl_jax.errors import UserError
from ckl_jax.files import atomic_write, locked, read_json_object, write_json, write_jsonl
from ckl_jax.papers.temporalwiki.data import probe_notes, probe_rows, probe_stages
from ckl_jax.papers.temporalwiki.data.dumps import date_of
from ckl_jax.papers.temporalwiki.data.light_tuning import draw
from ckl_jax.papers.temporalwiki.data.probe_filters import (
    MAX_RELATION_FRACTION,
    Probe,
    apply,
    table_7,
)
from ckl_jax.papers.temporalwiki.data.probe_rows import Job
from ckl_jax.papers.temporalwiki.data.probe_stages import Stages

FORMAT = 1


def check(job: Job) -> None:
    """Checks the inputs before anything is written, and warns of dates that do not match.

    Raises:
      UserError: one is missing, they are not of one wiki, or the dumps are not in order.
    """
    probe_rows.check_inputs(job)
    probe_notes.check_wikipedia(job)
    old, new = date_of(job.old), date_of(job.new)
    if old and new and old >= new:
        raise UserError(
            f"The old dump {job.old} ({old}) is not older than the new one, {job.new} ({new}); "
            "give the older one as --old."
        )
    if note := probe_notes.misdated(job):
        warnings.warn(note, stacklevel=2)


def build(
    job: Job,
    workers: int = 1,
    progress: Progress = no_progress,
    fix_point: bool = False,
    keep: bool = False,
    light_tuning: int = 0,
    steps: Callable[[Stages], tuple[dict[str, Any], dict[str, int]]] = probe_stages.all_steps,
) -> dict[str, Any]:
    """Builds the probes, or continues an unfinished build.

    Args:
      fix_point: repeat the third filter until it holds of what is left.
      light_tuning: draw so many further facts of each class, to tune a model on; see
        `light_tuning.draw`. They need not be named in a text.
      steps: what makes the rows and the aligned ones of a run.

    Returns:
      The manifest: counts after every step, the statistics of Tables 2 and 7, and notes, which are
      warned of too.

    Raises:
      UserError: bad input; finished steps are kept.
    """
    check(job)
    # The number of buckets is a setting of the folder: a continued build must have the same.
    job = job.sized()
    settings = settings_of(job, fix_point, light_tuning)
    open_folder(job.out, settings)
    path = job.out / "manifest.json"
    with locked(job.out):
        # Finished: only the notes are given again.
        if path.is_file():
            manifest = read_json_object(path)
        else:
            with processes(workers) as pool:
                read, counts = steps(Stages(job, pool, workers, progress))
            manifest = {**settings, "read": read, "steps": counts}
            manifest |= _write(job, counts, fix_point, light_tuning)
            if not keep:
                for name in probe_stages.FOLDERS:
                    shutil.rmtree(job.out / name, ignore_errors=True)
            write_json(path, manifest)
    for note in manifest.get("notes", ()):
        warnings.warn(f"{job.out}: {note}", stacklevel=2)
    return manifest


def settings_of(job: Job, fix_point: bool = False, light_tuning: int = 0) -> dict[str, Any]:
    """The settings that the folder of a `sized` job records."""
    settings = dataclasses.asdict(job)
    del settings["out"]
    # Folders from before there was a choice go on.
    if not job.rules.aliases:
        del settings["rules"]["aliases"]
    if job.relation_cap == MAX_RELATION_FRACTION:
        del settings["relation_cap"]
    for name in ("old", "new", "wikipedia", "page_map", "properties", "diffset"):
        if settings[name]:
            path = Path(settings[name])
            size = os.path.getsize(path) if path.is_file() else None
            # By name and size: a moved folder of dumps is still the same input.
            settings[name] = {"name": path.name, "date": date_of(path), "bytes": size}
    tuned = {"light_tuning": light_tuning} if light_tuning else {}
    return {"format": FORMAT, **settings, "fix_point": fix_point, **tuned}


def _write(job: Job, steps: dict[str, int], fix_point: bool, light_tuning: int) -> dict[str, Any]:
    """Filters each set, writes its files and returns its statistics."""
    probes = list(probe_stages.aligned(job))
    name = f"{(date_of(job.old) or 'old')[4:] or 'old'}-{(date_of(job.new) or 'new')[4:] or 'new'}"
    table_2, sevens, filters, files, tuning, notes = {}, {}, {}, [], {}, []
    for title, kinds in job.sets.items():
        chosen = [p for p in probes if p.kind in kinds]
        final, filters[title] = apply(
            chosen, job.seed, fix_point, job.subject_cap, job.relation_cap
        )
        table_2[title] = {
            "initial": sum(steps.get(f"{kind} initial", 0) for kind in kinds),
            "aligned": len(chosen),
            "final": len(final),
        }
        sevens[title] = table_7(final)
        files += _write_set(job.out / f"{name}_{title}", title, final)
        notes.append(probe_notes.capped(job, title, filters[title]))
        if not final:
            notes.append(probe_notes.emptied(job, title, kinds, steps, filters[title]))
        if light_tuning and title in ("unchanged", "changed"):
            # Facts to tune on need no text that names them.
            pool = (p for p in probe_stages.in_words(job) if p.kind in kinds)
            drawn = draw(pool, final, light_tuning, job.seed)
            notes.append(probe_notes.too_few(title, len(drawn), light_tuning))
            if not final:
                continue
            files.append(f"lighttuning_{title}_{light_tuning}.csv")
            _write_csv(job.out / files[-1], drawn, old=False)
            tuning[title] = table_7(drawn)
    manifest = {"files": files, "table_2": table_2, "filters": filters, "table_7": sevens}
    manifest["notes"] = list(filter(None, notes))
    return manifest | ({"light_tuning": light_tuning, "table_7_tuning": tuning} if tuning else {})


def _write_set(stem: Path, title: str, probes: Sequence[Probe]) -> list[str]:
    """Writes the published CSV, the same with ids as JSONL, and updated and new facts apart."""
    tables: dict[Path, Iterable[Probe]] = {Path(f"{stem}.csv"): probes}
    if title == "changed":
        for kind in SETS["changed"]:
            path = stem.with_name(stem.name.replace("_changed", f"_{kind}") + ".csv")
            tables[path] = [p for p in probes if p.kind == kind]
    for path, rows in tables.items():
        _write_csv(path, rows, old="_updated" in path.name)
    jsonl = Path(f"{stem}.jsonl")
    write_jsonl(jsonl, (probe.row for probe in probes))
    return [path.name for path in (*tables, jsonl)]


def _write_csv(path: Path, probes: Iterable[Probe], old: bool) -> None:
    with atomic_write(path) as f:
        writer = csv.writer(f, lineterminator="\n")
        writer.writerow((*COLUMNS, "old_object") if old else COLUMNS)
        for p in probes:
            row = (p.subject, p.relation, p.object)
            writer.writerow((*row, "|".join(p.old_objects)) if old else row)
