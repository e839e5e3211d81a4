"""The extra evaluations of a study, beyond the probes: Tables 5 and 6, and Figure 2.

Light-tuned models (appendices E and F) and proper nouns in new and old text, where
`ckl temporalwiki` was told to ask for them.
"""

import functools
from collections.abc import Iterator
from typing import Any

from ckl_jax.analysis.perplexity import estimate, rounded
from ckl_jax.analysis.render_table import TableCell
from ckl_jax.analysis.rows import EVAL, Run
from ckl_jax.papers.temporalwiki.analysis import text_losses
from ckl_jax.papers.temporalwiki.analysis.results import (
    KINDS_OF_TEXT,
    LIGHT_TUNED,
    Model,
    Study,
    method_label,
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
    rows = [
        {
            "method": study.initial.method,
            "cells": {
                i: {kind: number(study.initial, i, kind) for kind in kinds} for i in study.intervals
            },
        }
    ]
    for method, after in study.models.items():
        cells = {
            i: {k: number(after[i], i, k) if i in after else None for k in kinds}
            for i in study.intervals
        }
        rows.append({"method": method, "cells": cells})
    return [row for row in rows if any(_numbers(row))]


def _numbers(row: dict[str, Any]) -> Iterator[dict[str, Any] | None]:
    for kinds in row["cells"].values():
        yield from kinds.values()


def cells_of_tuned(study: Study, rows: Rows) -> tuple[list[str], list[list[TableCell]]]:
    """A row for each method: perplexity and F1 by interval and class."""
    headers, shown = ["Method"], [[TableCell(method_label(row["method"]))] for row in rows]
    for interval in study.intervals:
        for kind in ("unchanged", "changed"):
            headers += [f"{study.label(interval)} {kind}", "F1"]
            for row, cells in zip(rows, shown, strict=True):
                x = row["cells"][interval][kind]
                cells += [_perplexity(x), TableCell(f"{x['f1']:.2f}" if x else "–")]
    return headers, shown


def _perplexity(x: dict[str, Any] | None) -> TableCell:
    if x is None:
        return TableCell("–")
    return TableCell(f"{rounded(x['value'])}", f"{rounded(x['low'])}–{rounded(x['high'])}")


def cells_of_nouns(study: Study, rows: Rows) -> tuple[list[str], list[list[TableCell]]]:
    """A row for each method: ratios by interval, in new text and in the rest."""
    names = KINDS_OF_TEXT.values()
    headers = [f"{study.label(i)} {name}" for i in study.intervals for name in names]
    shown = [
        [TableCell(method_label(row["method"]))]
        + [_ratio(row["cells"][i][kind]) for i in study.intervals for kind in KINDS_OF_TEXT]
        for row in rows
    ]
    return ["Method", *headers], shown


def _ratio(x: dict[str, Any] | None) -> TableCell:
    if x is None:
        return TableCell("–")
    return TableCell(f"{x['value']:.3f}", f"{x['low']:.3f}–{x['high']:.3f}")
