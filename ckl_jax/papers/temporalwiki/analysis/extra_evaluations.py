"""The extra evaluations of a study, beyond the probes: Tables 5 and 6, and Figure 2.

Light-tuned models (appendices E and F) and proper nouns in new and old text, where
`ckl temporalwiki` was told to ask for them.
"""

import functools
from typing import Any

from ckl_jax.analysis.perplexity import estimate
from ckl_jax.analysis.rows import EVAL, Run
from ckl_jax.papers.temporalwiki.analysis import text_losses
from ckl_jax.papers.temporalwiki.analysis.results import (
    KINDS_OF_TEXT,
    LIGHT_TUNED,
    Model,
    Study,
)

GROUP = "proper_nouns"
Rows = list[dict[str, Any]]  # {"method", "cells": {interval: {kind: numbers or None}}}


def light_tuned(study: Study) -> Rows:
    """Perplexity (Table 5) and F1 in percent (Table 6) of each model after light-tuning.

    Returns:
      Rows whose numbers are {"value", "low", "high", "facts", "tokens", "f1", "em"}; none if no
      model was tuned.
    """
    return _rows(study, ("unchanged", "changed"), _tuned)


def _tuned(model: Model, interval: str, kind: str) -> dict[str, Any] | None:
    name = f"{interval}_{kind}"
    folder = model.path / LIGHT_TUNED / name
    if not (folder / "summary.json").is_file():
        return None
    scored = Run.open(folder).last[name]
    answers = {"f1": 100 * float(scored.f1.mean()), "em": 100 * float(scored.em.mean())}
    return {**estimate(scored.losses), **answers}


def proper_nouns(study: Study) -> Rows:
    """Perplexity of proper nouns relative to Initial (Figure 2), in diffset and NON-diffset.

    Returns:
      Rows whose numbers are {"value", "low", "high", "model", "initial"}: ratios; those of Initial
      are 1. None if no model was evaluated.
    """

    @functools.cache
    def losses(folder: Any) -> text_losses.Texts:
        return text_losses.read_losses(folder) if any(folder.glob(f"{GROUP}/rows_*")) else {}

    def found(model: Model, interval: str, kind: str) -> dict[str, Any] | None:
        task, before = f"{interval}_{kind}", losses(study.initial.path / EVAL)
        ours = losses(model.path / EVAL)
        if task not in ours or task not in before:
            return None
        return text_losses.ratios({task: ours[task]}, before)[task].get(GROUP)

    return _rows(study, tuple(KINDS_OF_TEXT), found)


def _rows(study: Study, kinds: tuple[str, str], number: Any) -> Rows:
    """A row for each method with a number, Initial first; its models at their own intervals."""
    models = {study.initial.method: dict.fromkeys(study.intervals, study.initial), **study.models}
    rows = []
    for method, after in models.items():
        cells = {
            i: {kind: number(after[i], i, kind) if i in after else None for kind in kinds}
            for i in study.intervals
        }
        if any(any(of_kind.values()) for of_kind in cells.values()):
            rows.append({"method": method, "cells": cells})
    return rows
