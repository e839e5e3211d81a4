"""The printed numbers of Mind the Gap (Lazaridou et al. 2021), beside those of a study."""

from collections.abc import Mapping, Sequence
from typing import Any

from ckl_jax.analysis.sections import Section, two
from ckl_jax.papers.mind_the_gap.analysis.emerging import (
    EMERGING,
    FIRST,
    SECOND_SEEN,
    SECOND_UNSEEN,
)
from ckl_jax.papers.mind_the_gap.analysis.report import perplexity, rounded
from ckl_jax.papers.mind_the_gap.analysis.staleness import ALL
from ckl_jax.papers.mind_the_gap.analysis.staleness_study import CONTROL

STALE = "time_stratified"
LARGER = f"{STALE}, larger"
UPDATED, BIASES, EMBEDDINGS = (f"{STALE} + {mask}" for mask in ("all", "bias", "embedding"))
CORPORA = ("WMT", "CUSTOMNEWS", "ARXIV")
# Words of a document, and percent of CONTROL's training data that are of the test period.
TABLE_1 = {"Words of a document": (551, 491, 172), "From test period (%)": (6.3, 34.8, 14.5)}
# Perplexity of words, 2018 and 2019.
TABLE_2 = {CONTROL: (21.11, 18.38, 21.38), STALE: (22.45, 21.33, 23.07)}
TABLE_4 = {
    UPDATED: (22.17, 20.72, 20.98),
    BIASES: (22.16, 20.96, 21.24),
    EMBEDDINGS: (22.32, 21.21, 22.27),
    STALE: TABLE_2[STALE],
}
# Of WMT: TIME-STRATIFIED, updated on all parameters, and how much lower that is in percent.
TABLE_3 = {
    ALL: (22.45, 22.17, 1.25),
    EMERGING: (109.73, 66.26, 39.62),
    FIRST: (694.95, 357.40, 48.57),
    SECOND_SEEN: (75.95, 44.21, 41.79),
    SECOND_UNSEEN: (2719.25, 1430.34, 47.40),
}
# Questions on NewsQA's stories of 2009, and F1 of the models of 2008 and 2009 (section 5).
NEWSQA_QUESTIONS = 10_000
NEWSQA = [[f"the paper's {year}", NEWSQA_QUESTIONS, None, "47"] for year in (2008, 2009)]
LARGER_BELOW = 5.5  # percent that the 448M model's perplexity is below the 287M model's (section 4)
Results = Mapping[str, Any]


def corpus(made: Mapping[str, Any]) -> Section:
    """Table 1, of a `split.json`."""
    every = made["counts"].values()
    mean = sum(c["words"] for c in every) / sum(c["documents"] for c in every)
    ours = mean, 100.0 * made["fraction_from_test_period"]
    rows = [[what, two(x), *TABLE_1[what]] for what, x in zip(TABLE_1, ours, strict=True)]
    return Section("Corpus", ["", "Here", *CORPORA], rows)


def perplexities(results: Results, published: Mapping[str, Sequence[float]] = TABLE_2) -> Section:
    """Tables 2 and 4: perplexity, and how far it is above the control's in percent."""
    rows = []
    for model, theirs in published.items():
        if model not in results["perplexity"]:
            continue
        over = results["months"].get(model, {}).get("overall")
        rows.append([model, perplexity(results["perplexity"][model][ALL]), rounded(over)])
        for value, control in zip(theirs, TABLE_2[CONTROL], strict=True):
            over = 100.0 * (value / control - 1.0)
            rows[-1] += [two(value), None if model == CONTROL else two(over)]
    headers = [h for name in ("Here", *CORPORA) for h in (name, "over control (%)")]
    return Section("Perplexity beside the paper's", ["Model", *headers], rows)


def updates(results: Results) -> Section:
    """Table 4."""
    return perplexities(results, TABLE_4)


def emerging(results: Results) -> Section:
    """Table 3: emerging new words before and after updates of all parameters."""
    rows = []
    for group, theirs in TABLE_3.items():
        values = [results["perplexity"][model].get(group) for model in (STALE, UPDATED)]
        lower = results["reduction"][UPDATED].get(group)
        rows.append([group, *map(perplexity, values), rounded(lower), *map(two, theirs)])
    parts = ("stale", "updated", "reduction (%)")
    headers = [f"{where}: {part}" for where in ("Here", "WMT") for part in parts]
    return Section("Emerging new words beside the paper's", ["Words", *headers], rows)


def larger(results: Results) -> Section:
    """Figure 3: what a larger model lowers, and whether its gap grows more slowly."""
    lower, slopes = results["reduction"][LARGER][ALL], results["slopes"][LARGER] or {}
    slope = slopes.get("paired")
    slope = slope and {"value": slope["difference"], **slope}
    rows = [
        ["Perplexity below the smaller model's (%)", rounded(lower), two(LARGER_BELOW)],
        ["Slope less the larger model's (points a bin)", rounded(slope), "not significant"],
    ]
    return Section("A larger model beside the paper's", ["", "Here", "The paper"], rows)
