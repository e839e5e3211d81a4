"""Splits as files: two passes over a corpus, of which the first reads dates and ids only."""

import contextlib
import dataclasses
import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from ckl_jax import checks
from ckl_jax.data.builders import time_index, time_splits
from ckl_jax.data.builders.compressed import read_lines
from ckl_jax.data.builders.pool import Progress, no_progress, open_folder
from ckl_jax.data.builders.time_index import Index
from ckl_jax.data.builders.time_splits import NAMES, Options, Period
from ckl_jax.files import atomic_write, write_json

VARIANTS = ("main", "increasing-distance", "shifted-years")
_LEVEL = 3  # of gzip: a third of the time of the usual 9, and a tenth larger


def split(
    corpus: str | os.PathLike,
    out: str | os.PathLike,
    options: Options,
    variant: str = "main",
    steps: int | None = None,
    progress: Progress = no_progress,
) -> list[dict[str, Any]]:
    """Writes the splits of a corpus; what is finished is not done again.

    Args:
      corpus: JSONL(.gz) file of documents. The splits have its lines in its order.
      out: the folder: `NAME.jsonl.gz` of each of the five splits, and `split.json`.
      options: of the test period.
      variant: "main"; "increasing-distance", also training sets that end `steps` (11) times half a
        year earlier, in `increasing_distance/split_DATE/train.jsonl.gz`; "shifted-years", also the
        whole for test periods that end 1 to `steps` (5) years earlier, in `split_DATE/`.
      steps: see `variant`.
      progress: called with (done, of how many, of what) now and then.

    Returns:
      What each `split.json` says.

    Raises:
      UserError: see `time_splits`; or the folder holds splits of other settings.
    """
    checks.require_choice(VARIANTS, variant=variant)
    checks.require_int(1, steps=steps)
    out = Path(out)
    index = time_index.read_index(corpus, options.seed, progress)
    period = time_splits.period_of(index, options)
    jobs = [(out, options, period)]
    if variant == "shifted-years":
        for years in range(1, (steps or 5) + 1):
            end = time_index.month_name(period.last - 12 * years)
            shifted = dataclasses.replace(options, test_end=end)
            earlier = time_splits.period_of(index, shifted)
            jobs.append((out / f"split_{earlier.last_training_day()}", shifted, earlier))
    folders = {place: _plan(index, o, p) for place, o, p in jobs}
    if variant == "increasing-distance":
        _, wanted = folders[out]
        found = time_splits.windows(index, options, period, steps or 11)
        wanted["increasing_distance"] = {}
        for day, rows in found.items():
            mask = np.zeros(len(index), np.uint8)
            mask[rows] = 1
            wanted["increasing_distance"][day] = time_splits.counts(index, mask > 0)
            folders[out / "increasing_distance" / f"split_{day}"] = mask, None
    settings = {"corpus": _identity(corpus), "variant": variant, "steps": steps}
    open_folder(out, settings | dataclasses.asdict(options))
    _write(corpus, {f: bits for f, (bits, _) in folders.items()}, len(index), progress)
    reports = {folder: report for folder, (_, report) in folders.items() if report}
    for folder, report in reports.items():
        write_json(folder / "split.json", report)
    return list(reports.values())


def _plan(index: Index, options: Options, period: Period) -> tuple[np.ndarray, dict[str, Any]]:
    bits = time_splits.assign(index, options, period)
    return bits, time_splits.summary(index, bits, options, period)


def _identity(path: str | os.PathLike) -> dict[str, Any]:
    return {"name": Path(path).name, "bytes": os.path.getsize(path)}


def _write(
    corpus: str | os.PathLike, folders: dict[Path, np.ndarray], total: int, progress: Progress
) -> None:
    """Copies the lines of a corpus to where they belong."""
    with contextlib.ExitStack() as stack:
        targets = []  # of each folder, a file for each bit
        for folder, bits in folders.items():
            names = ("train",) if folder.parent.name == "increasing_distance" else NAMES
            paths = [folder / f"{name}.jsonl.gz" for name in names]
            if not all(path.is_file() for path in paths):
                targets.append((bits, [stack.enter_context(gzip_lines(path)) for path in paths]))
        if not targets:
            return
        documents = (line for _, _, line in read_lines(corpus) if line.strip())
        for i, line in enumerate(documents):
            for bits, files in targets:
                for k, f in enumerate(files):
                    if bits[i] >> k & 1:
                        f.write(line + b"\n")
            if i % 5000 == 0:
                progress(i, total, "documents written")


@contextlib.contextmanager
def gzip_lines(path: str | os.PathLike) -> Iterator[IO[bytes]]:
    """A gzip file to write to, which is there when the block ends; its bytes depend on what is
    written alone."""
    with atomic_write(path, "wb") as raw:
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0, compresslevel=_LEVEL) as f:
            yield f
