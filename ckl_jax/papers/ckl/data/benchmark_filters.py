"""Filters candidates for items: the paper's filters, and unusable questions.

InvariantLAMA loses what gives its answer away (the string filter of Poerner et al. 2019) and what
is answered by no entity. The paper does not say how it detected entities: here a finder of entities
must find one in the answer, within its statement.
"""

import collections
from collections.abc import Iterable, Sequence

from ckl_jax.data.buckets import hash64
from ckl_jax.data.facts.ckl_files import BLANK, has_blank, normalize_blank
from ckl_jax.data.facts.fact_probes import INVARIANT_LAMA, Candidate, Counts
from ckl_jax.data.text.taggers import EntityFinder
from ckl_jax.errors import UserError

_BEFORE = "It is true that "  # a name that begins a sentence may be any word


def kept(
    candidates: Iterable[Candidate],
    finder: EntityFinder,
    counts: Counts,
    per_relation: int = 0,
    seed: int = 0,
) -> list[Candidate]:
    """The candidates that pass, in order.

    Args:
      candidates: of all probes.
      counts: gets the others, by probe and reason.
      per_relation: items of a probe's relation at most, drawn by `seed`; 0 is all.
    """
    entities = _Entities(finder)
    left = []
    for candidate in candidates:
        if why := _why_not(candidate, entities):
            counts[f"{candidate.probe}: {why}"] += 1
        else:
            left.append(candidate)
    return _drawn(_without_repeats(left, counts), per_relation, seed, counts)


def _why_not(candidate: Candidate, entities: "_Entities") -> str:
    try:
        # Exactly one blank, which names such as "____" in a label would double.
        normalize_blank(candidate.statement, "")
    except UserError:
        return "a name looks like a blank"
    if any(map(has_blank, (*candidate.answers, *candidate.old_answers))):
        return "a name looks like a blank"
    if gives_itself_away(candidate):
        return "the answer is in the subject"
    if candidate.probe == INVARIANT_LAMA and candidate not in entities:
        return "the answer is not an entity"
    return ""


def gives_itself_away(candidate: Candidate) -> bool:
    """The string filter: an accepted answer occurs in the subject's name."""
    # The string filter of LAMA-UHN: "Is Apple Watch made by ____" gives the answer away.
    subject = candidate.subjects[0].casefold()
    return any(a.casefold() in subject for a in candidate.answers)


class _Entities:
    """Whether the answer of a candidate is an entity; computed once per answer and relation."""

    def __init__(self, finder: EntityFinder):
        self._finder = finder
        self._known: dict[tuple[str, str], bool] = {}

    def __contains__(self, candidate: Candidate) -> bool:
        key = (candidate.relation, candidate.answers[0])
        if key not in self._known:
            # The statement with its answer, so that the finder sees the name in context.
            text = _BEFORE + candidate.filled
            start = len(_BEFORE) + candidate.statement.index(BLANK)
            end = start + len(candidate.answers[0])
            # Any overlap with a found span counts.
            self._known[key] = any(a < end and start < b for a, b, _ in self._finder.find(text))
        return self._known[key]


def _without_repeats(candidates: Sequence[Candidate], counts: Counts) -> list[Candidate]:
    """Removes repeats, and statements with several answers, such as those of namesakes.

    InvariantLAMA keeps those: there a fact is an item, and a statement may have several.
    """
    answers: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
    for c in candidates:
        answers[c.probe, c.statement].add(c.answers[0])
    seen, left = set(), []
    for c in candidates:
        if c.probe != INVARIANT_LAMA and len(answers[c.probe, c.statement]) > 1:
            counts[f"{c.probe}: the statement has other answers too"] += 1
        elif (c.probe, c.statement, c.answers[0]) in seen:
            counts[f"{c.probe}: a repeat"] += 1
        else:
            seen.add((c.probe, c.statement, c.answers[0]))
            left.append(c)
    return left


def _drawn(
    candidates: Sequence[Candidate], most: int, seed: int, counts: Counts
) -> list[Candidate]:
    """At most `most` of each probe's relation."""
    if not most:
        return list(candidates)
    groups: dict[tuple[str, str], list[Candidate]] = collections.defaultdict(list)
    for c in candidates:
        groups[c.probe, c.relation].append(c)
    left = []
    for (probe, _), group in groups.items():
        # By hash of the content: a draw does not depend on the order of the facts.
        group.sort(key=lambda c: (hash64(seed, c.statement, c.answers[0]), c.order))
        left += group[:most]
        counts[f"{probe}: more than --per-relation"] += len(group[most:])
    return sorted(left, key=lambda c: c.order)
