"""Writes splits as files in two passes over a corpus; the first reads dates and ids only."""

import contextlib
import dataclasses
import gzip
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from ckl_jax import checks
from ckl_jax.data.compressed import ANY_LENGTH, RECORD_BYTES, read_lines
from ckl_jax.data.process_pool import Progress, file_identity, no_progress, open_folder
from ckl_jax.errors import UserError
from ckl_jax.files import atomic_write, write_json
from ckl_jax.papers.mind_the_gap.data import time_index, time_splits
from ckl_jax.papers.mind_the_gap.data.time_index import Index
from ckl_jax.papers.mind_the_gap.data.time_splits import NAMES, Options, Period

VARIANTS = ("main", "increasing-distance", "shifted-years")
_MAX_HELD_OUT_FRACTION = 0.2  # of a year's documents that are held out
_LEVEL = 3  # of gzip: a third of the time of the usual 9, and a tenth larger


def split(
    corpus: str | os.PathLike,
    out: str | os.PathLike,
    options: Options,
    variant: str = "main",
    steps: int | None = None,
    progress: Progress = no_progress,
    record_limit: int = RECORD_BYTES,
) -> list[dict[str, Any]]:
    """Writes the splits of a corpus that are not finished yet; returns what each `split.json` says.

    Args:
      corpus: JSONL(.gz) file of documents. The splits have its lines in its order.
      out: the folder: `NAME.jsonl.gz` of each of the five splits, and `split.json`.
      variant: "main"; "increasing-distance", also training sets that end `steps` (11) times half a
        year earlier, in `increasing_distance/split_DATE/train.jsonl.gz`; "shifted-years", also the
        whole for test periods that end 1 to `steps` (5) years earlier, in `split_DATE/`.
      record_limit: bytes of a line of `corpus` at most.

    Raises:
      UserError: see `time_splits`; or the folder holds splits of other settings.
    """
    _check(variant, steps)
    out = Path(out)
    index = time_index.read_index(corpus, options.seed, progress, record_limit)
    plans = plan(index, options, variant, steps)
    # Raises if the folder holds splits of another corpus or other options.
    settings = {"variant": variant, "steps": steps} | dataclasses.asdict(options)
    open_folder(out, {"corpus": file_identity(corpus)} | settings)
    _write(corpus, {out / p.folder: p for p in plans}, len(index), progress)
    return write_reports(out, plans)


def split_by_cutoff(
    corpus: str | os.PathLike,
    out: Path,
    options: Options,
    years: Sequence[int],
    progress: Progress = no_progress,
) -> None:
    """Writes training sets that end with different years, `YEAR.jsonl.gz`.

    Raises:
      UserError: see `time_splits.cutoffs`; or the folder holds those of other years or settings.
    """
    index = time_index.read_index(corpus, options.seed, progress)
    rows = time_splits.cutoffs(index, options, time_splits.period_of(index, options), years)
    settings = {"cutoffs": sorted(years), **dataclasses.asdict(options)}
    open_folder(out, {"corpus": file_identity(corpus)} | settings)
    masks = [np.isin(np.arange(len(index)), mine) for mine in rows.values()]
    bits = sum(mask.astype(np.uint64) << np.uint64(i) for i, mask in enumerate(masks))
    _write(corpus, {out: Plan("", tuple(map(str, rows)), bits)}, len(index), progress)


@dataclasses.dataclass(frozen=True)
class Plan:
    """One folder of splits."""

    folder: str  # within that of all; "" is that itself
    names: tuple[str, ...]  # of the files, without their ends
    bits: np.ndarray  # uint8 [N]; bit i of a document says whether it is in the file `names[i]`
    report: dict[str, Any] | None = None  # what the folder's `split.json` says, if it has one


def _check(variant: str, steps: int | None) -> None:
    checks.require_choice(VARIANTS, variant=variant)
    checks.require_int(1, 9999, steps=steps)


def plan(index: Index, options: Options, variant: str, steps: int | None) -> list[Plan]:
    """Decides the split of each document; see `split`."""
    _check(variant, steps)
    period = time_splits.period_of(index, options)
    plans = [_plan(index, options, period)]
    if variant == "shifted-years":
        # Appendix A.1: the whole construction again for earlier test periods.
        for years in range(1, (steps or 5) + 1):
            end = time_index.month_name(period.last - 12 * years)
            shifted = dataclasses.replace(options, test_end=end)
            try:
                earlier = time_splits.period_of(index, shifted)
                plan = _plan(index, shifted, earlier, f"split_{earlier.last_training_day()}")
            except UserError as e:
                raise UserError(f"The split whose test period ends in {end}: {e}") from e
            plans.append(plan)
    if variant == "increasing-distance":
        report = plans[0].report
        report["increasing_distance"] = {}
        # Appendix A.2: training sets of one size, ever further from the same test set.
        for day, rows in time_splits.windows(index, options, period, steps or 11).items():
            mask = np.zeros(len(index), np.uint8)
            mask[rows] = 1
            report["increasing_distance"][day] = time_splits.counts(index, mask > 0)
            plans.append(Plan(f"increasing_distance/split_{day}", ("train",), mask))
    return plans


def _plan(index: Index, options: Options, period: Period, folder: str = "") -> Plan:
    bits = time_splits.assign(index, options, period)
    return Plan(folder, NAMES, bits, time_splits.summary(index, bits, options, period))


def write_reports(out: Path, plans: Sequence[Plan]) -> list[dict[str, Any]]:
    """Writes the `split.json` files; returns their contents."""
    for p in plans:
        if p.report:
            write_json(out / p.folder / "split.json", p.report)
    return [p.report for p in plans if p.report]


def _write(
    corpus: str | os.PathLike, folders: dict[Path, Plan], total: int, progress: Progress
) -> None:
    """Copies the lines of a corpus to the files of their splits."""
    with contextlib.ExitStack() as stack:
        targets = []  # of each folder, a file for each bit
        for folder, p in folders.items():
            paths = [folder / f"{name}.jsonl.gz" for name in p.names]
            # Folders that are whole are not written again.
            if not all(path.is_file() for path in paths):
                targets.append((p.bits, [stack.enter_context(gzip_lines(path)) for path in paths]))
        if not targets:
            return
        documents = (line for _, _, line in read_lines(corpus, ANY_LENGTH) if line.strip())
        for i, line in enumerate(documents):
            for bits, files in targets:
                for k, f in enumerate(files):
                    if int(bits[i]) >> k & 1:
                        f.write(line + b"\n")
            if i % 5000 == 0:
                progress(i, total, "documents written")


@contextlib.contextmanager
def gzip_lines(path: str | os.PathLike) -> Iterator[IO[bytes]]:
    """Opens a gzip file that appears when the block ends; its bytes depend on its content only."""
    with atomic_write(path, "wb") as raw:
        # No name and no time in the header: equal content gives equal bytes.
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0, compresslevel=_LEVEL) as f:
            yield f


def hold_out_past(
    corpus: str | os.PathLike,
    rest: str | os.PathLike,
    past: str | os.PathLike,
    options: Options,
    per_year: int,
) -> int:
    """Takes documents of each year before the validation months out of a corpus; returns how many.

    What is left is to be split afterwards.

    Args:
      corpus: JSONL(.gz) file of documents.
      rest: what is left, and `past`: what is taken out, `.jsonl.gz` files to write.
      options: of the split to come: its test period says what is past.
      per_year: how many, or a fifth of what a year has if that is less; drawn by hashes of ids.

    Raises:
      UserError: as `time_splits.period_of`; or no year has documents enough.
    """
    checks.require_int(1, **{"--past-documents": per_year})
    index = time_index.read_index(corpus, options.seed)
    period = time_splits.period_of(index, options)
    taken = np.zeros(len(index), bool)
    before = np.flatnonzero(index.months < period.train_stop)
    for year in np.unique(index.months[before] // 12):
        rows = before[index.months[before] // 12 == year]
        count = min(per_year, int(_MAX_HELD_OUT_FRACTION * len(rows)))
        # By hash: the same documents whatever the order of the corpus.
        taken[rows[np.argsort(index.keys[rows], kind="stable")[:count]]] = True
    if not taken.any():
        raise UserError(
            f"No year before {period.last_training_day()} has five documents of which one could be "
            "held out; give --past-documents 0."
        )
    lines = (line for _, _, line in read_lines(Path(corpus)) if line.strip())
    with gzip_lines(rest) as others, gzip_lines(past) as ours:
        for line, mine in zip(lines, taken.tolist(), strict=True):
            (ours if mine else others).write(line + b"\n")
    return int(taken.sum())
