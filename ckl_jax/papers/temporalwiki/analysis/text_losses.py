"""Perplexities of words in running text, out of `proper_nouns/rows_<step>.jsonl` (Figure 2).

PPL = exp(sum of losses over the marked tokens / their number), over the whole sample. The released
code took the mean over batches of four rows of their means, which a batch without a marked token
made NaN: here such a batch is left out (`batch_mean_legacy`). The figure shows ratios to Initial.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.analysis.perplexity import Losses, bootstrap, perplexity
from ckl_jax.analysis.rows import row_files
from ckl_jax.analysis.statistics import SAMPLES, estimate
from ckl_jax.errors import UserError
from ckl_jax.files import read_jsonl

LEGACY_BATCH = 4
FORMULAS = ("token_micro", "batch_mean_legacy")

Texts = dict[str, dict[str, Losses]]  # task -> group -> columns, a text each


def as_columns(rows: Iterable[Mapping[str, Any]]) -> Texts:
    """The losses of rows by task and group; raises `UserError` if a loss is not finite."""
    columns: dict[tuple[str, str], list] = {}
    for row in rows:
        for group, values in row["losses"].items():
            if not np.isfinite(values[0]):
                raise UserError(
                    f"The loss of row {row['row']} of {row['task']} is {values[0]}; the model's "
                    "parameters are not sound, evaluate another checkpoint."
                )
            columns.setdefault((row["task"], group), []).append(values)
    texts: Texts = {}
    for (task, group), values in columns.items():
        # [texts, 2] -> two columns.
        nll, tokens = np.array(values, np.float64).T
        # `Losses` has columns of objects of facts, which running text does not have.
        none = np.zeros_like(nll)
        texts.setdefault(task, {})[group] = Losses(nll, tokens, none, none, ("",) * len(nll))
    return texts


def summarize(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """{task: scalars}: of each group its perplexity by both formulas, and its tokens.

    A group without a token in the sample has its count alone.
    """
    by_task: dict[str, dict[str, float]] = {}
    for task, groups in as_columns(rows).items():
        scores = by_task[task] = {}
        for group, losses in groups.items():
            scores[f"tokens/{group}"] = float(losses.tokens.sum())
            if losses.tokens.any():
                scores[f"perplexity/{group}"] = perplexity(losses)
                legacy = perplexity(losses, "batch_mean_legacy", LEGACY_BATCH)
                scores[f"perplexity_batch_mean_legacy/{group}"] = legacy
    return by_task


def read_losses(folder: str | os.PathLike, step: int | None = None) -> Texts:
    """The losses of a MODEL_DIR or EVAL_OUTPUT_DIR at a step.

    Args:
      step: None is the last one that was evaluated.

    Raises:
      UserError: there are none, or the file is malformed.
    """
    files = row_files(Path(folder) / "proper_nouns")
    step = max(files, default=None) if step is None else step
    if step not in files:
        at = f" at step {step}" if files else ""
        raise UserError(
            f"{folder} has no losses of running text{at}; evaluate it with PROPER_NOUN_TASKS."
        )
    try:
        return as_columns(read_jsonl(files[step]))
    except (AttributeError, LookupError, TypeError, ValueError) as e:
        raise UserError(
            f"{files[step]}: a row has no losses ({e!r}); evaluate the run again."
        ) from e


def losses_if_any(folder: Path) -> Texts:
    """`read_losses` of a folder; {} if nothing was evaluated there."""
    return read_losses(folder) if any(folder.glob("proper_nouns/rows_*")) else {}


def ratios(
    model: Texts, initial: Texts, formula: str = "token_micro", samples: int = SAMPLES
) -> dict[str, dict[str, dict[str, float]]]:
    """{task: {group: {"value", "low", "high", "model", "initial", "rows", "tokens"}}}: Figure 2.

    Args:
      model: what `read_losses` gives.
      initial: the same of the model to compare with, put to the same rows.
      formula: one of `FORMULAS`.
      samples: of the bootstrap over texts.

    Raises:
      UserError: the two were evaluated on different rows.
    """
    by_task: dict[str, dict[str, dict[str, float]]] = {}
    for task in (task for task in model if task in initial):
        by_task[task] = {}
        for group, ours in model[task].items():
            theirs = initial[task].get(group)
            if theirs is None or not ours.tokens.any():
                continue
            # Equal counts of tokens for each text: the same rows, tagged alike.
            if not np.array_equal(ours.tokens, theirs.tokens):
                raise UserError(
                    f"The two models have different rows ({group} of {task}); evaluate both with "
                    "the same tasks, tagger and PROPER_NOUN_ROWS."
                )
            a, b = (perplexity(x, formula, LEGACY_BATCH) for x in (ours, theirs))
            drawn = bootstrap([ours, theirs], formula, samples, batch_size=LEGACY_BATCH)
            # Ratios within each resample, not a ratio of intervals: the texts are the same.
            ratio = estimate(a / b, drawn[0] / drawn[1])
            counts = {"rows": int((ours.tokens > 0).sum()), "tokens": int(ours.tokens.sum())}
            by_task[task][group] = {**ratio, "model": a, "initial": b, **counts}
    return by_task
