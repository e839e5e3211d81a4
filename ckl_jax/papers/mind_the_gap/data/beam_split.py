"""`split` as an Apache Beam pipeline, for corpora that are larger than a machine.

Two pipelines over the same files: the first makes the index (30 bytes of a document), from which
this process decides, as `split` does, what goes where; the second writes it, a file for each month,
which one after another are in the canonical order. A month of a split is sorted on one worker.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.data import beam as beam_runs
from ckl_jax.data.buckets import hash64
from ckl_jax.data.compressed import RECORD_BYTES, read_lines
from ckl_jax.data.process_pool import batches
from ckl_jax.data.text.documents import canonical_key, parse_document
from ckl_jax.errors import UserError
from ckl_jax.files import atomic_write, os_errors
from ckl_jax.papers.mind_the_gap.data import split_files, time_index
from ckl_jax.papers.mind_the_gap.data.split_files import gzip_lines
from ckl_jax.papers.mind_the_gap.data.time_index import Index
from ckl_jax.papers.mind_the_gap.data.time_splits import Options

_INDEX, _KEYS, _BITS = ".index.npy", ".keys.npy", ".bits.npy"  # in the output folder, while it runs
_PART_BYTES = 16 << 20
Part = tuple[str, list[tuple[int, bytes]]]  # a file, and some of its lines with their numbers


def split_with_beam(
    inputs: Sequence[str | os.PathLike],
    out: str | os.PathLike,
    options: Options,
    variant: str = "main",
    steps: int | None = None,
    arguments: str = "",
    part_bytes: int = _PART_BYTES,
    record_limit: int = RECORD_BYTES,
) -> list[dict[str, Any]]:
    """Writes `OUT/NAME/YYYY-MM.jsonl.gz` for each split and month, and `split.json`.

    Args:
      inputs: JSONL(.gz) files of documents that every worker can read.
      out: a folder that every worker can write to.
      options, variant, steps: see `split_files.split`.
      arguments: of the pipelines, such as `--runner=FlinkRunner`.
      part_bytes: of text that goes to a worker at once.
      record_limit: bytes of a line at most.

    Returns:
      What each `split.json` says.

    Raises:
      UserError: as `split_files.split`; or Beam is not installed or refuses an option.
    """
    out, paths = Path(out), [os.fspath(path) for path in inputs]
    cut = paths, part_bytes, record_limit
    with os_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    try:
        beam, pipeline = beam_runs.new_pipeline(arguments)
        _ = (
            _parts(beam, pipeline, *cut)
            | "Index" >> beam.Map(index_part, options.seed)
            | "Together" >> beam.combiners.ToList()
            | "Write" >> beam.Map(write_index, os.fspath(out / _INDEX))
        )
        beam_runs.run_pipeline(pipeline)
        # The decision needs all documents at once, but no text: it is made here.
        index = _index(out / _INDEX, paths)
        plans = split_files.plan(index, options, variant, steps)
        # Workers look splits up by the hash of an id.
        _save(out / _KEYS, index.keys)
        _save(out / _BITS, np.stack([p.bits for p in plans], 1))
        beam, pipeline = beam_runs.new_pipeline(arguments)
        folders = [[os.fspath(out / p.folder / name) for name in p.names] for p in plans]
        _ = (
            _parts(beam, pipeline, *cut)
            | "Where" >> beam.FlatMap(destinations, os.fspath(out), folders, options.seed)
            | "Of one month" >> beam.GroupByKey()
            | "Write" >> beam.Map(write_month)
        )
        beam_runs.run_pipeline(pipeline)
    finally:
        for name in (_INDEX, _KEYS, _BITS):
            (out / name).unlink(missing_ok=True)
    return split_files.write_reports(out, plans)


def _parts(beam, pipeline, paths: list[str], part_bytes: int, record_limit: int):
    return (
        pipeline
        | "Files" >> beam.Create(paths)
        | "Cut" >> beam.FlatMap(parts_of, part_bytes, record_limit)
        | "Spread" >> beam.Reshuffle()
    )


def parts_of(path: str, part_bytes: int, record_limit: int = RECORD_BYTES) -> Iterator[Part]:
    """Cuts a file."""
    lines = ((number, line) for number, _, line in read_lines(path, record_limit) if line.strip())
    for part in batches(lines, lambda line: len(line[1]), part_bytes):
        yield path, part


def index_part(part: Part, seed: int) -> np.ndarray:
    """The result of `rows_of` for a part's documents."""
    path, lines = part
    return time_index.rows_of((parse_document(line, path, number) for number, line in lines), seed)


def write_index(parts: list[np.ndarray], path: str) -> None:
    """Writes the rows of all documents by key, independent of their order of arrival."""
    rows = np.concatenate([*parts, np.empty(0, time_index.ROW)])
    # By key, so that the index does not depend on Beam's order.
    _save(path, rows[np.argsort(rows["key"])])


def _index(path: Path, inputs: list[str]) -> Index:
    rows = np.load(path)
    if not len(rows):
        raise UserError(f"There are no documents in {', '.join(inputs)}.")
    if time_index.same_id(rows) is not None:
        raise UserError(
            f"Two documents of {', '.join(inputs)} have one id; give each its own (`ckl data "
            "clean` adds #2 to a repeated one)."
        )
    return Index.of_rows(rows)


def _save(path: str | os.PathLike, array: np.ndarray) -> None:
    with atomic_write(path, "wb") as f:
        np.save(f, array)


def destinations(
    part: Part, out: str, folders: list[list[str]], seed: int
) -> Iterator[tuple[str, tuple[str, bytes]]]:
    """Yields (file, (sort key, line)) for each split that contains a document."""
    # Memory-mapped: 9 bytes a document, shared by the processes of a machine.
    keys = np.load(Path(out) / _KEYS, mmap_mode="r")
    bits = np.load(Path(out) / _BITS, mmap_mode="r")
    path, lines = part
    for number, line in lines:
        document = parse_document(line, path, number)
        row = bits[np.searchsorted(keys, hash64(seed, document.id))]
        for names, mine in zip(folders, row.tolist(), strict=True):
            for i, name in enumerate(names):
                if mine >> i & 1:
                    yield f"{name}/{document.date[:7]}.jsonl.gz", (canonical_key(document), line)


def write_month(group: tuple[str, Iterable[tuple[str, bytes]]]) -> str:
    """Writes the documents of a month of a split, in order; returns the file."""
    with gzip_lines(group[0]) as f:
        f.writelines(line + b"\n" for _, line in sorted(group[1]))
    return group[0]
