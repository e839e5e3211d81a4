"""Facts of T-REx for light-tuning a decoder-only model before InvariantLAMA (CKL, appendix G).

The paper draws 5,000 at random out of other T-REx facts than the probe's (Shin et al. 2020), of the
probe's relations.
"""

import collections
import heapq
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ckl_jax import checks
from ckl_jax.data.buckets import hash64
from ckl_jax.data.facts.ckl_files import BLANK, PROBES, ProbeItem, read_probe
from ckl_jax.data.facts.ckl_writer import write_csv
from ckl_jax.data.facts.dated_facts import DatedFact, read_dated_facts
from ckl_jax.data.facts.statements import fill
from ckl_jax.data.facts.templates import INVARIANT, built_in, property_of
from ckl_jax.data.text.sentences import normalise
from ckl_jax.errors import UserError

_FORM = PROBES["trex_5000"].read
Counts = collections.Counter[str]


def draw(
    facts: Iterable[str | os.PathLike],
    invariant: str | os.PathLike,
    out: str | os.PathLike,
    count: int = 5000,
    seed: int = 0,
) -> Counts:
    """Samples facts into a file in the format of CKL's `trex_5000.csv`, in constant memory.

    Args:
      facts: files of T-REx as LAMA and ParaRel have it, or folders; see
        `dated_facts.read_dated_facts`.
      invariant: the probe, `invariantLAMA.csv`: what it asks is left out, and so are relations that
        it does not have (of a file without relations, those that the paper does not).
      count: how many to draw; fewer if there are no more.

    Returns:
      How many were written ("written"), and left out by reason.

    Raises:
      UserError: a file is missing or malformed, or nothing is left.
    """
    checks.require_int(**{"--count": count})
    checks.require_int(0, **{"--seed": seed})
    probed = _Probed(read_probe("invariant_lama", path=invariant))
    counts: Counts = collections.Counter()
    # A draw of `count` without replacement from a stream: the rows of the smallest hashes.
    lots: dict[int, dict[str, str]] = {}
    heap: list[int] = []  # of the lots, the largest first
    for row in _rows(facts, probed, counts):
        lot = hash64("trex", seed, row["input"], row["output"])
        if lot in lots:
            counts["twice in the facts"] += 1
            continue
        # Negative, because heapq keeps the smallest first.
        heapq.heappush(heap, -lot)
        lots[lot] = row
        if len(heap) > count:
            del lots[-heapq.heappop(heap)]
    if not lots:
        lost = ", ".join(f"{n:,} {why}" for why, n in counts.items())
        raise UserError(
            f"None of the facts is left to tune on ({lost}); give facts of {invariant}'s relations."
        )
    # In the order of the hashes, which is random but reproducible.
    rows = [{"id": str(i), **lots[lot]} for i, lot in enumerate(sorted(lots))]
    counts["written"] = write_csv(
        Path(out), (_FORM.id, _FORM.input, _FORM.answer, "relation"), rows
    )
    return counts


class _Probed:
    """The question of a probe, regardless of its template."""

    def __init__(self, items: Sequence[ProbeItem]):
        self.relations = {property_of(item.relation) for item in items} - {""}
        self._statements: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
        for item in items:
            for answer in item.answers:
                key = (property_of(item.relation), normalise(answer))
                self._statements[key].append(item.input)

    def __contains__(self, fact: DatedFact) -> bool:
        """Whether an item of this answer, of this relation if it is known, names the subject."""
        answer = normalise(fact.object)
        # "" holds items of files without relations.
        statements = (self._statements.get((r, answer), ()) for r in (fact.relation, ""))
        return any(fact.subject in text for some in statements for text in some)


def _rows(
    facts: Iterable[str | os.PathLike], probed: _Probed, counts: Counts
) -> Iterator[dict[str, Any]]:
    templates = {name: w for name, w in built_in().items() if w.kind == INVARIANT}
    for fact in read_dated_facts(facts):
        template = templates.get(fact.relation)
        if template is None or (probed.relations and fact.relation not in probed.relations):
            counts["of other relations"] += 1
            continue
        text = fill(template.cloze, fact.subject, BLANK).text
        if fact in probed:
            counts["asked by the probe"] += 1
        elif text.count(BLANK) != 1:
            counts["with a blank in the subject"] += 1
        else:
            yield {_FORM.input: text, _FORM.answer: fact.object, "relation": fact.relation}
