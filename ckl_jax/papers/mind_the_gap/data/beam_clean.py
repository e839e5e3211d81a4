"""`clean` as an Apache Beam pipeline, for corpora that are larger than a machine.

The same functions and the same result, as a file for each month, which one after another are in the
canonical order. Pairs of near-duplicates (not documents) come together on one worker; a month's
documents are sorted on one.
"""

import collections
import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.data import beam as beam_runs
from ckl_jax.data.beam import COUNTS, counted
from ckl_jax.data.compressed import RECORD_BYTES
from ckl_jax.data.text.documents import Document, canonical_key, write_documents
from ckl_jax.data.text.words import make_tokenizer
from ckl_jax.errors import UserError
from ckl_jax.files import read_json, write_json
from ckl_jax.papers.mind_the_gap.data import clean
from ckl_jax.papers.mind_the_gap.data.clean import Options, ReadTask
from ckl_jax.papers.mind_the_gap.data.near_duplicates import band_hashes, not_kept, pairs_of_bucket
from ckl_jax.papers.mind_the_gap.data.shingles import signatures

_COUNTS = "counts.json"
Read = tuple[str, Document, bytes]  # what it is sorted by, itself, its signature


def clean_with_beam(
    inputs: Sequence[str | os.PathLike],
    out: str | os.PathLike,
    options: Options,
    arguments: str = "",
    record_limit: int = RECORD_BYTES,
) -> dict[str, Any]:
    """Writes `OUT/YYYY-MM.jsonl.gz` for each month, and `OUT/clean.json`.

    Args:
      inputs: files of the source that every worker can read.
      out: a folder that every worker can write to.
      arguments: of the pipeline, such as `--runner=FlinkRunner`.
      record_limit: bytes of a record at most.

    Returns:
      What `clean.json` says; see `clean.clean`.

    Raises:
      UserError: as `clean.clean`; or Beam is not installed or refuses an option.
    """
    beam, pipeline = beam_runs.new_pipeline(arguments)
    # Fixed here: workers in other time zones, or after midnight, would have another today.
    options = dataclasses.replace(options, latest=clean.latest_of(options))
    backends = clean.backends_of(options)
    paths = [os.fspath(path) for path in inputs]
    _build(beam, pipeline, paths, Path(out), options, record_limit)
    beam_runs.run_pipeline(pipeline)
    counts = read_json(Path(out) / _COUNTS)
    (Path(out) / _COUNTS).unlink()
    if not counts.get("kept"):
        raise UserError(f"No document is left of {', '.join(map(os.fspath, inputs))}.")
    settings = {"inputs": [Path(path).name for path in inputs]} | dataclasses.asdict(options)
    report = {"settings": settings, "backends": backends, "documents": counts}
    write_json(Path(out) / "clean.json", report)
    return report


def _build(
    beam, pipeline, inputs: list[str], out: Path, options: Options, record_limit: int
) -> None:
    """Puts the steps together."""
    tasks = (
        pipeline
        | "Files" >> beam.Create(inputs)
        | "Cut" >> beam.FlatMap(clean.tasks_of, options, record_limit)
        | "Spread" >> beam.Reshuffle()
    )
    outputs = beam_runs.outputs(beam, tasks, "Read", read_task, to=("documents", COUNTS))
    read = outputs.documents
    documents = read | "Documents" >> beam.Map(lambda row: row[:2])  # without signatures
    if options.near_duplicates:
        gone = (
            read
            | "Bands" >> beam.FlatMap(bands_of, options.bands)
            | "Buckets" >> beam.GroupByKey()
            | "Pairs" >> beam.FlatMap(pairs_of, options.threshold)
            | "Together" >> beam.combiners.ToList()
            | "Which go" >> beam.Map(lambda pairs: not_kept(sorted(set(pairs))))
        )
        documents = documents | "Keep the first" >> beam.Filter(
            lambda row, gone: row[0] not in gone, beam.pvalue.AsSingleton(gone)
        )
    by_id = documents | "By id" >> beam.Map(lambda row: (row[1].id, row))
    of_one_id = by_id | "Of one id" >> beam.GroupByKey()
    kept = beam_runs.outputs(beam, of_one_id, "Tokenise", finish, options, to=("documents", COUNTS))
    _ = (
        kept.documents
        | "Of one month" >> beam.GroupByKey()
        | "Write" >> beam.Map(write_month, os.fspath(out))
    )
    beam_runs.write_counts(beam, [outputs[COUNTS], kept[COUNTS]], "Counts", out / _COUNTS)


def read_task(task: ReadTask) -> Iterator[tuple[str, Any]]:
    """Yields the documents kept of a part of a file, with signatures to remove near-duplicates."""
    counts: collections.Counter[str] = collections.Counter()
    documents = list(clean.documents_of(task, counts))
    yield from counted(counts)
    options, signatures_of = task.options, [b""] * len(documents)
    if options.near_duplicates:
        texts = [document.text for document in documents]
        signatures_of = [
            row.tobytes() for row in signatures(texts, options.width, options.permutations)
        ]
    for i, (document, signature) in enumerate(zip(documents, signatures_of, strict=True)):
        place = f"{task.path}\0{task.records[0][0]:012d}\0{i:06d}"  # makes it the only one
        yield "documents", (f"{canonical_key(document)}\0{place}", document, signature)


def bands_of(row: Read, bands: int) -> Iterator[tuple[str, tuple[str, bytes]]]:
    """Yields a document's bands as keys, and its own key and signature."""
    key, _, signature = row
    values = np.frombuffer(signature, np.uint32)[None]
    for band in range(bands):
        yield f"{band} {band_hashes(values, band, bands)[0]}", (key, signature)


def pairs_of(
    bucket: tuple[str, Iterable[tuple[str, bytes]]], threshold: float
) -> Iterator[tuple[str, str]]:
    """Yields the keys of near-duplicates (later, earlier) in one bucket."""
    rows = sorted(bucket[1])
    if len(rows) > 1:
        members = np.stack([np.frombuffer(signature, np.uint32) for _, signature in rows])
        for pairs in pairs_of_bucket(members, threshold):
            for later, earlier in pairs.tolist():
                yield rows[later][0], rows[earlier][0]


def finish(
    group: tuple[str, Iterable[tuple[str, Document]]], options: Options
) -> Iterator[tuple[str, Any]]:
    """Yields (month, document) of the kept documents that share an id, and their number."""
    tokenize = make_tokenizer(options.tokenizer, options.language)
    rows = sorted(group[1], key=lambda row: row[0])
    for repetition, (_, document) in enumerate(rows, 1):
        yield "documents", (document.date[:7], clean.finished(document, repetition, tokenize))
    yield from counted({"kept": len(rows)})


def write_month(group: tuple[str, Iterable[Document]], out: str) -> str:
    """Writes the documents of a month, in order; returns the file."""
    path = Path(out) / f"{group[0]}.jsonl.gz"
    write_documents(path, sorted(group[1], key=canonical_key), level=3)
    return str(path)
