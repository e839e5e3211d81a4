"""The claims of Mind the Gap, and the numbers of `ckl mind-the-gap` that test them.

Log perplexities by group of words and model, slopes in percentage points a bin, and what was
forgotten of past text in percent. The bootstrap draws documents within each bin of time, the same
for all models and groups.
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.analysis.claims import Claim, Effect, Key, Kind, Numbers, combine, excess, number
from ckl_jax.analysis.statistics import resampled_sums
from ckl_jax.data.text.documents import read_documents
from ckl_jax.data.text.word_classes import NUMBERS, PROPER_NOUNS, make_tagger
from ckl_jax.errors import UserError
from ckl_jax.files import read_json_object
from ckl_jax.papers.mind_the_gap.analysis import staleness
from ckl_jax.papers.mind_the_gap.analysis.emerging import EMERGING, EmergingMentions
from ckl_jax.papers.mind_the_gap.analysis.past_text import ALL as POOLED
from ckl_jax.papers.mind_the_gap.analysis.published import (
    BIASES,
    EMBEDDINGS,
    STALE,
    TABLE_2,
    TABLE_3,
    TABLE_4,
    UPDATED,
)
from ckl_jax.papers.mind_the_gap.analysis.seeds import FREE, RECORD
from ckl_jax.papers.mind_the_gap.analysis.staleness import ALL
from ckl_jax.papers.mind_the_gap.analysis.staleness_study import CONTROL
from ckl_jax.papers.mind_the_gap.analysis.word_groups import OTHER, PartsOfSpeech

_MASKS = {UPDATED: "all parameters", BIASES: "biases alone", EMBEDDINGS: "embeddings alone"}
_SLOPE, _PAST = "slope", "past text"
# Of WMT.
_PERPLEXITIES = {(ALL, model): values[0] for model, values in (TABLE_2 | TABLE_4).items()}
_PERPLEXITIES |= {
    (EMERGING, STALE): TABLE_3[EMERGING][0],
    (EMERGING, UPDATED): TABLE_3[EMERGING][1],
}
PUBLISHED = {key: float(np.log(value)) for key, value in _PERPLEXITIES.items()}
_claim = functools.partial(Claim, published=PUBLISHED)


def _gap(group: str) -> Effect:
    """By how many percent the stale model exceeds the control, on a group of words."""
    return excess(number(group, STALE), number(group, CONTROL))


def _reduction(model: str, group: str = ALL) -> Effect:
    """By how many percent an update lowers the stale model's perplexity."""
    both = (number(group, model), number(group, STALE))
    return combine(lambda a, b: -100.0 * np.expm1(np.minimum(a - b, 700.0)), both)


CLAIMS = (
    _claim("a model that is out of date is worse", _gap(ALL), "Table 2, WMT"),
    _claim(
        "the gap grows with the distance in time", number(_SLOPE, STALE), "Figure 1", "points a bin"
    ),
    *(
        _claim(
            f"{name} suffer more than words that are neither", _gap(group) - _gap(OTHER), "Figure 2"
        )
        for group, name in ((PROPER_NOUNS.replace("_", " "), "proper nouns"), (NUMBERS, "numbers"))
    ),
    _claim(
        "emerging new words are harder than words on the whole",
        excess(number(EMERGING, STALE), number(ALL, STALE)),
        "Table 3",
    ),
    *(
        _claim(f"updating {what} wins back a part", _reduction(model), "Table 4, WMT")
        for model, what in _MASKS.items()
    ),
    _claim(
        "biases win back more than embeddings",
        _reduction(BIASES) - _reduction(EMBEDDINGS),
        "Table 4, WMT",
    ),
    _claim(
        "emerging new words gain most from updates",
        _reduction(UPDATED, EMERGING) - _reduction(UPDATED),
        "Table 3",
    ),
    _claim(
        "updates slow down how the gap grows",
        number(_SLOPE, STALE) - number(_SLOPE, UPDATED),
        "Figure 5",
        "points a bin",
    ),
    _claim("updates forget the past", number(_PAST, UPDATED), "Figure 9"),
)


# --- numbers of folders


def read_numbers(folder: Path, samples: int, seed: int) -> Numbers:
    """The numbers of a finished folder of `ckl mind-the-gap`; it may have been moved.

    Args:
      samples: B, of the bootstrap over documents; of past text there is no other than the value.

    Raises:
      UserError: the folder has no results yet, or lacks what they are of.
    """
    path = folder / "results.json"
    if not path.is_file():
        raise UserError(f"{folder} has no results yet; run `ckl mind-the-gap --out {folder}`.")
    results = read_json_object(path)
    settings = results["settings"]
    dumps = {CONTROL: settings["control"], **settings["models"]}
    dumps = {model: _found(folder, dump) for model, dump in dumps.items()}
    totals = staleness.read_totals(dumps, _groupings(folder, results))
    bins = staleness.bins_of(
        totals[CONTROL].dates, months=settings["bin_months"], first=settings["first_month"]
    )
    numbers = _drawn(totals, bins, samples, seed)
    for model, periods in results["forgetting"].items():
        if after := list(periods.get(POOLED, {}).values()):
            numbers[_PAST, model] = np.full(1 + samples, after[-1])  # after the last update
    return numbers


def _found(folder: Path, recorded: str) -> Path:
    """A file or folder in `folder`, given its path when the results were written."""
    parts = Path(recorded).parts
    inside = (folder.joinpath(*parts[i:]) for i in reversed(range(1, len(parts))))
    for path in (*inside, Path(recorded)):
        if path.exists():
            return path
    raise UserError(f"{folder} lacks {recorded}, which its results are of; make it again.")


def _groupings(folder: Path, results: Mapping[str, Any]) -> list[Any]:
    settings, stale = results["settings"], results["about"][results["stale"]]
    words = [row["word"] for row in results.get("emerging", {}).get("words", ())]
    groupings: list[Any] = [EmergingMentions(words, stale.get("memory_length") or 0)]
    if settings["tagger"]:
        texts = read_documents(_found(folder, settings["train"]))
        tagger = make_tagger(settings["tagger"], (d.text for d in texts))
        groupings.append(PartsOfSpeech(tagger))
    return groupings


def _drawn(
    totals: Mapping[str, staleness.Totals], bins: staleness.Bins, samples: int, seed: int
) -> dict[Key, np.ndarray]:
    """Log perplexities of all groups that have words, and slopes, [1 + B] each."""
    words = totals[CONTROL].words
    columns = np.concatenate([words, *(of.nll for of in totals.values())]).T  # [D, (1 + M) G]
    generator = np.random.default_rng(seed)
    sums = []
    for start, stop in bins.spans:
        part = columns[start:stop]
        drawn = resampled_sums(part, samples, generator)
        sums.append(np.concatenate([part.sum(0, keepdims=True), drawn]))
    by_bin = np.stack(sums).reshape(len(sums), 1 + samples, 1 + len(totals), len(words))
    with np.errstate(invalid="ignore", divide="ignore"):  # a resample may lack a group's words
        logs = by_bin[:, :, 1:] / by_bin[:, :, :1]  # [N, 1 + B, M, G]
        pooled = by_bin.sum(0)[:, 1:] / by_bin.sum(0)[:, :1]  # [1 + B, M, G]
    groups, models = totals[CONTROL].groups, list(totals)
    numbers: dict[Key, np.ndarray] = {
        (group, model): pooled[:, m, g]
        for g, group in enumerate(groups)
        for m, model in enumerate(models)
        if words[g].any()
    }
    if len(bins.positions) > 1:
        every = logs[..., groups.index(ALL)]  # [N, 1 + B, M]
        increase = 100.0 * np.expm1(every - every[..., [models.index(CONTROL)]])
        x = np.array(bins.positions) - np.mean(bins.positions)
        slopes = np.tensordot(x, increase, 1) / (x @ x)  # [1 + B, M], of least squares
        numbers |= {(_SLOPE, model): slopes[:, m] for m, model in enumerate(models)}
    return numbers


KIND = Kind(
    paper="Mind the Gap (Lazaridou et al. 2021)",
    command="ckl mind-the-gap",
    record=RECORD,
    claims=CLAIMS,
    read=read_numbers,
    world=("corpus",),
    free=(*FREE, "masks"),
)
