"""Types of right answers (CKL, Figure 8), and how often corpora mention answers."""

import collections
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ckl_jax.analysis import figures
from ckl_jax.analysis.rows import Scored
from ckl_jax.analysis.sections import Section
from ckl_jax.analysis.study import Entry, Study
from ckl_jax.data.facts.ckl_files import known_probe
from ckl_jax.data.text.answer_types import PERSON, TYPES, AnswerTypes
from ckl_jax.probes.mentions import count_mentions
from ckl_jax.probes.metrics import normalize_answer

# The two probes of CKL's Figure 8.
PAIR = ("updated_lama", "new_lama")
_BINS = {"0": (0, 0), "1 to 9": (1, 9), "10 to 99": (10, 99), "100 or more": (100, np.inf)}


def figure_8(
    study: Study, types: AnswerTypes, published: Mapping[str, Mapping[str, float]], persons: int
) -> tuple[list, dict]:
    """Sections and numbers of Figure 8.

    Args:
      study: with Vanilla, put to UpdatedLAMA and NewLAMA.
      published: {probe: {type: percent of the answers}}, the paper's.
      persons: that the paper found in both probes.
    """
    initial = study.initial.scores
    probes = [p for p in study.probes if p in initial]
    types_of_answers = {p: types_of(initial[p], types) for p in probes}
    # The paper draws Vanilla's answers.
    leader = study.baseline
    parts = {
        p: contributions(leader.scores[p], types_of_answers[p]) for p in PAIR if p in leader.scores
    }
    # Types without a right answer in either probe would be empty bars.
    shown = [t for t in TYPES if any(part.get(t) for part in parts.values())]
    shared = {e.key: shared_persons(e, types_of_answers) for e in study.entries}
    no_figure = "No answer of either probe is right: no figure."
    sections = [
        Section(
            "Types of the answers",
            ["Type", *(f"{known_probe(p).short} % (the paper's)" for p in probes)],
            _fraction_rows(types_of_answers, published),
            [
                "In percent of a probe's answers, and in brackets the paper's (Table 5). "
                f"Types are classified by {types.how}."
            ],
        ),
        Section(
            f"(a) The types that make up the EM of {leader.label}",
            ["Type", *(f"{known_probe(p).short} EM" for p in parts)],
            [[t, *(parts[p].get(t, 0.0) for p in parts)] for t in shown],
            ["Points of EM; a column adds up to the probe's score." if shown else no_figure],
            _plot_parts(parts, shown),
        ),
        Section(
            "(b) Persons that answer both UpdatedLAMA and NewLAMA",
            ["Model", "Items of each", "UL EM", "NL EM"],
            [[e.label, *shared[e.key]] for e in study.entries if shared[e.key]],
            [
                "Each person's items are paired, as many of either probe, in the order of the "
                f"files. The paper found {persons} pairs, and the EM on UL still much higher."
            ],
        ),
    ]
    counted = {p: dict(collections.Counter(of)) for p, of in types_of_answers.items()}
    return sections, {"types": counted, "contributions": parts, "shared_persons": shared}


def types_of(scored: Scored, types: AnswerTypes) -> list[str]:
    """[N] the type of each item's first answer."""
    return [
        types(relation, row["answers"][0], row.get("input", ""))
        for relation, row in zip(scored.relations, scored.rows, strict=True)
    ]


def _fraction_rows(
    types_of_answers: Mapping[str, Sequence[str]], published: Mapping[str, Mapping[str, float]]
) -> list[list[str]]:
    rows = []
    for kind in TYPES:
        ours = [100.0 * of.count(kind) / len(of) for of in types_of_answers.values()]
        printed = [published.get(p, {}).get(kind) for p in types_of_answers]
        if any(ours) or any(printed):
            pairs = zip(ours, printed, strict=True)
            rows.append([kind, *(f"{a:.1f}" + (f" ({b:g})" if b else "") for a, b in pairs)])
    return rows


def contributions(scored: Scored, kinds: Sequence[str]) -> dict[str, float]:
    """{type: points of EM from right answers of the type}, which sum to the probe's EM."""
    sums: dict[str, float] = collections.defaultdict(float)
    for kind, right in zip(kinds, scored.em, strict=True):
        sums[kind] += 100.0 * float(right) / len(kinds)
    return dict(sums)


def shared_persons(
    entry: Entry, kinds: Mapping[str, Sequence[str]]
) -> tuple[int, float, float] | None:
    """Pairs of items whose answers are the same person, and EM on those of each probe, in percent.

    None where a model was not put to both probes, or nobody answers both.
    """
    if any(p not in entry.scores or p not in kinds for p in PAIR):
        return None
    first, second = (_by_person(entry.scores[p], kinds[p]) for p in PAIR)
    # A person with 3 items in one probe and 2 in the other makes 2 pairs, so that both sides have
    # the same people equally often.
    pairs = [pair for person in first for pair in zip(first[person], second[person], strict=False)]
    if not pairs:
        return None
    return len(pairs), *(100.0 * float(np.mean(side)) for side in zip(*pairs, strict=True))


def _by_person(scored: Scored, kinds: Sequence[str]) -> dict[str, list[float]]:
    scores: dict[str, list[float]] = collections.defaultdict(list)
    for row, kind, right in zip(scored.rows, kinds, scored.em, strict=True):
        if kind == PERSON:
            # Normalised as for EM: "Joe Biden" and "joe biden." are one person.
            scores[normalize_answer(row["answers"][0])].append(float(right))
    return scores


@figures.png
def _plot_parts(parts: Mapping[str, Mapping[str, float]], shown: Sequence[str]):
    if not shown:
        return None
    figure, (ax,) = figures.panels(1, size=(6.4, 3.9))
    points = {t: [part.get(t, 0.0) for part in parts.values()] for t in shown}
    figures.stack(ax, points, [f"C{i}" for i in range(len(shown))])
    figures.rows_of_bars(ax, [known_probe(p).short for p in parts])
    ax.set(xlabel="EM (%)")
    figures.legend(figure, [ax])
    return figure


# --- overlap of entities


def overlap(study: Study, corpora: Mapping[str, Callable[[], Iterable[str]]]) -> tuple[list, dict]:
    """Sections and numbers of how often corpora mention the probes' answers.

    Args:
      corpora: {name: makes its texts}; the last one is that of the update, by which Vanilla's EM
        is shown.
    """
    scores = study.initial.scores
    answers = {p: [row["answers"] for row in scores[p].rows] for p in study.probes if p in scores}
    mentions = mentions_of(answers, corpora)
    numbers = {
        p: {
            c: {"items": len(n), "named": int((n > 0).sum()), "median": float(np.median(n))}
            for c, n in x.items()
        }
        for p, x in mentions.items()
    }
    sections = [named(mentions), *_by_mentions(study, mentions, list(corpora)[-1])]
    return sections, {"mentions": numbers}


def mentions_of(
    answers: Mapping[str, Sequence[Sequence[str]]],
    corpora: Mapping[str, Callable[[], Iterable[str]]],
) -> dict[str, dict[str, np.ndarray]]:
    """{probe: {corpus: [N] mentions of the accepted answers of each item}}."""
    # All names of all probes in one reading of each corpus.
    names = {a for items in answers.values() for accepted in items for a in accepted}
    counts = count_mentions(names, {name: make() for name, make in corpora.items()})
    return {
        p: {
            c: np.array([sum(counts[c][a] for a in accepted) for accepted in items]) for c in counts
        }
        for p, items in answers.items()
    }


def named(mentions: Mapping[str, Mapping[str, np.ndarray]]) -> Section:
    """The fraction of each probe's items whose answer each corpus mentions."""
    corpora = list(next(iter(mentions.values())))
    headers = ["Probe", *(f"in {c} %" for c in corpora), "in all %", "in none %"]
    headers += [f"median in {c}" for c in corpora]
    rows = []
    for probe, of in mentions.items():
        # [corpora, N]
        there = np.stack([of[c] > 0 for c in corpora])
        shares = [100.0 * float(n.mean()) for n in (*there, there.all(0), ~there.any(0))]
        medians = [float(np.median(of[c])) for c in corpora]
        rows.append((known_probe(probe).long, *shares, *medians))
    note = (
        "Any accepted answer of an item, as whole words, in any case; medians are mentions an item."
    )
    return Section("Answers that corpora name", headers, rows, [note])


def _by_mentions(
    study: Study, mentions: Mapping[str, Mapping[str, np.ndarray]], corpus: str
) -> list[Section]:
    if (entry := study.baseline) is None:
        return []
    rows = []
    for probe, of in ((p, of) for p, of in mentions.items() if p in entry.scores):
        em = entry.scores[probe].em
        bins = [em[(of[corpus] >= low) & (of[corpus] <= high)] for low, high in _BINS.values()]
        cells = [f"{len(x):,}, {100.0 * x.mean():.2f}" if len(x) else None for x in bins]
        rows.append([known_probe(probe).long, *cells])
    title = f"EM of {entry.label} by how often {corpus} names the answer"
    return [Section(title, ["Probe", *(f"{name}: items, EM" for name in _BINS)], rows)]
