"""Documents of the past that no model trains on: what an update may forget is measured on them."""

import os
from pathlib import Path

import numpy as np

from ckl_jax import checks
from ckl_jax.data.compressed import read_lines
from ckl_jax.errors import UserError
from ckl_jax.papers.mind_the_gap.data import time_index, time_splits
from ckl_jax.papers.mind_the_gap.data.split_files import gzip_lines
from ckl_jax.papers.mind_the_gap.data.time_splits import Options

_LARGEST_SHARE = 0.2  # of a year's documents


def hold_out_past(
    corpus: str | os.PathLike,
    rest: str | os.PathLike,
    past: str | os.PathLike,
    options: Options,
    per_year: int,
) -> int:
    """Takes documents of each year before the validation months out of a corpus.

    What is left is to be split afterwards.

    Args:
      corpus: JSONL(.gz) file of documents.
      rest: what is left, and `past`: what is taken out, `.jsonl.gz` files to write.
      options: of the split to come: its test period says what is past.
      per_year: how many, or a fifth of what a year has if that is less; drawn by hashes of ids.

    Returns:
      How many are taken out.

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
        count = min(per_year, int(_LARGEST_SHARE * len(rows)))
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
