"""The claims of TemporalWiki's paper, and the numbers of `ckl temporalwiki` that test them.

All numbers are logarithms, so that a difference of two is a ratio: of perplexities, means over the
intervals, each of the model after it; and of the cost of an update.
"""

import functools
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.analysis.claims import (
    Claim,
    Effect,
    Key,
    Kind,
    Numbers,
    excess,
    highest,
    make_again,
    number,
)
from ckl_jax.analysis.perplexity import bootstrap, perplexity
from ckl_jax.analysis.rows import training_flops
from ckl_jax.errors import UserError
from ckl_jax.papers.temporalwiki.analysis import results
from ckl_jax.papers.temporalwiki.analysis.published import HOURS, MONTHS, TABLE_3
from ckl_jax.papers.temporalwiki.analysis.results import INITIAL, NEW_TEXT, OLD_TEXT, method_label
from ckl_jax.papers.temporalwiki.analysis.tables import Perplexities

FULL, DIFF = "full", "vanilla"
_ADAPTER = "k_adapter_k2"
_CONTINUAL = ("mix_review", "lora", _ADAPTER)  # RecAdam is excepted by the paper
_UPDATED = (DIFF, "recadam", *_CONTINUAL)
_UN, _CHANGED, _AVERAGE, _MISALIGNED = "unchanged", "changed", "average", "misaligned"
_COST, _NOUNS = "cost", "proper_nouns"


def _published() -> Numbers:
    numbers: dict[Key, float] = {}
    for method in (INITIAL, FULL, *_UPDATED):
        label = method_label(method)
        columns = np.log([[float(x) for x in TABLE_3[label][month]] for month in MONTHS])
        for name, value in zip((_UN, _CHANGED, _AVERAGE), columns.mean(axis=0), strict=True):
            numbers[name, method] = float(value)
        if label in HOURS:
            numbers[_COST, method] = float(np.log(HOURS[label]))
    return numbers


_claim = functools.partial(Claim, published=_published())


def _above(name: str, a: str, b: str) -> Effect:
    """By how many percent a number of method `a` exceeds that of method `b`."""
    return excess(number(name, a), number(name, b))


def _misalignment(method: str) -> Effect:
    return number(_MISALIGNED, method) - number(_CHANGED, method)


CLAIMS = (
    _claim("Diff is better on CHANGED facts than Full", _above(_CHANGED, FULL, DIFF), "Table 3"),
    _claim("Diff is worse on UNCHANGED facts than Full", _above(_UN, DIFF, FULL), "Table 3"),
    _claim("Diff is better on their average than Full", _above(_AVERAGE, FULL, DIFF), "Table 3"),
    _claim(
        "Diff and the continual methods are better on CHANGED facts than Initial",
        excess(number(_CHANGED, INITIAL), highest(number(_CHANGED, m) for m in _UPDATED)),
        "Table 3",
    ),
    *(
        _claim(
            f"{method_label(m)} keeps UNCHANGED facts better than Diff",
            _above(_UN, DIFF, m),
            "Table 3",
        )
        for m in _CONTINUAL
    ),
    _claim(
        "K-Adapter keeps UNCHANGED facts better than Full", _above(_UN, FULL, _ADAPTER), "Table 3"
    ),
    *(
        _claim(
            f"K-Adapter has a lower average than {method_label(m)}",
            _above(_AVERAGE, m, _ADAPTER),
            "Table 3",
        )
        for m in _UPDATED[:-1]
    ),
    *(
        _claim(
            f"an update costs less with {method_label(m)} than with Full",
            _above(_COST, FULL, m),
            "Table 3, hours",
        )
        for m in (DIFF, _ADAPTER)
    ),
    _claim(
        "in new text, Diff predicts proper nouns better than Full",
        excess(number(_NOUNS, NEW_TEXT, FULL), number(_NOUNS, NEW_TEXT, DIFF)),
        "Figure 2",
    ),
    _claim(
        "in text that has not changed, Diff predicts proper nouns worse than Full",
        excess(number(_NOUNS, OLD_TEXT, DIFF), number(_NOUNS, OLD_TEXT, FULL)),
        "Figure 2",
    ),
    *(
        _claim(
            f"in text that has not changed, {method_label(m)} predicts them better than Diff",
            excess(number(_NOUNS, OLD_TEXT, DIFF), number(_NOUNS, OLD_TEXT, m)),
            "Figure 2",
        )
        for m in _CONTINUAL
    ),
    _claim(
        "Diff is better on the CHANGED facts of its own interval than of others",
        excess(number(_MISALIGNED, DIFF), number(_CHANGED, DIFF)),
        "Figure 4",
    ),
    _claim(
        "K-Adapter suffers less from misalignment than Diff",
        excess(_misalignment(DIFF), _misalignment(_ADAPTER)),
        "Figure 4",
    ),
)


# --- numbers of folders


def read_numbers(folder: Path, samples: int, seed: int) -> Numbers:
    """The numbers of a `ckl temporalwiki` folder, for the methods that have finished all intervals.

    Args:
      samples: B, of the bootstrap over facts, or rows of text; costs have no other than the value.
      seed: of the bootstrap of text.

    Raises:
      UserError: the folder has no Initial model, or none that was updated.
    """
    study = results.load(folder)
    if not study.models:
        raise UserError(f"{folder} has no finished training of an update; start its command again.")
    facts = Perplexities(study, samples)
    models = {INITIAL: dict.fromkeys(study.intervals, study.initial), **study.models}
    done = {m: after for m, after in models.items() if len(after) == len(study.intervals)}
    numbers: dict[Key, Any] = {}
    for method, after in done.items():
        own = {
            name: [facts.draws(after[i], (i, name)) for i in study.intervals]
            for name in (_UN, _CHANGED)
        }
        pairs = itertools.permutations(study.intervals, 2)
        own[_MISALIGNED] = [facts.draws(after[i], (of, _CHANGED)) for i, of in pairs]
        both = list(zip(own[_UN], own[_CHANGED], strict=True))
        if all(x is not None for pair in both for x in pair):
            own[_AVERAGE] = [(un + changed) / 2 for un, changed in both]
        for name, values in own.items():
            if values and all(x is not None for x in values):
                numbers[name, method] = np.log(values).mean(axis=0)
        flops = [training_flops(model.summary) for model in after.values()]
        if method != INITIAL and all(flops):
            numbers[_COST, method] = np.full(1 + samples, np.log(np.mean(flops)))
    return numbers | _proper_nouns(done, study.intervals, samples, seed)


def _proper_nouns(
    models: dict[str, dict[str, results.Model]], intervals: Sequence[str], samples: int, seed: int
) -> dict[Key, Any]:
    """Log perplexities of proper nouns, in the new text of an interval and in the rest."""
    losses = functools.cache(results.texts_of)
    log_perplexities: dict[Key, Any] = {}
    for kind in (NEW_TEXT, OLD_TEXT):
        drawn: dict[str, list[np.ndarray]] = {}
        for n, interval in enumerate(intervals):
            of = {m: losses(after[interval].path) for m, after in models.items()}
            groups = {m: texts.get(f"{interval}_{kind}", {}) for m, texts in of.items()}
            mine = {
                m: g[_NOUNS] for m, g in groups.items() if _NOUNS in g and g[_NOUNS].tokens.any()
            }
            # Texts are resampled alike for all models.
            draws = bootstrap(list(mine.values()), samples=samples, seed=seed + n) if mine else ()
            for (method, values), more in zip(mine.items(), draws, strict=True):
                drawn.setdefault(method, []).append(np.array([perplexity(values), *more]))
        for method, values in drawn.items():
            if len(values) == len(intervals):
                log_perplexities[_NOUNS, kind, method] = np.log(values).mean(axis=0)
    return log_perplexities


def _make(kind: Kind, out: Path, settings: Mapping[str, Any], command: str) -> str:
    if command == kind.command and not results.load(out).has_facts:
        return "its snapshots have no facts to measure"
    if "proper_nouns" in (settings.get("options") or {}):  # a study goes on with its own number
        command = kind.command
    return make_again(kind, out, settings, command)


KIND = Kind(
    paper="TemporalWiki (Jang et al. 2022)",
    command="ckl temporalwiki",
    record=results.RECORD,
    claims=CLAIMS,
    read=read_numbers,
    flags=("seed", "size", "months", "model"),
    commands={_NOUNS: "ckl temporalwiki --proper-nouns 10000"},
    free=("methods", "options"),
    make=_make,
)
