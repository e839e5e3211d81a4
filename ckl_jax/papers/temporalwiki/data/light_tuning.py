"""Facts for light-tuning before a model is probed; none is a probe (TemporalWiki, appendix E)."""

import collections
import heapq
from collections.abc import Iterable, Sequence

from ckl_jax.data.buckets import hash64
from ckl_jax.papers.temporalwiki.data import probe_filters
from ckl_jax.papers.temporalwiki.data.probe_filters import Probe

Keys = tuple[str, str]


def draw(pool: Iterable[Probe], probes: Sequence[Probe], count: int, seed: int = 0) -> list[Probe]:
    """Samples facts with the probes' relations in the probes' proportions, ordered by ids.

    No subject occurs twice, and none has a relation that is probed of it. Filters 1 and 2 of
    the probes hold. Where a relation has too few facts, others take their place by lot.

    Args:
      pool: candidates, read once; the memory for them is `count` facts for each relation.
      probes: after all filters.
      count: how many to draw; fewer if there are no more.
    """
    if not probes:
        return []
    # A probed subject and relation must not be trained on, whatever its object.
    probed = {(p.subject, p.relation) for p in probes}
    wanted = quotas(collections.Counter(p.relation for p in probes), count)
    lots = _lots(pool, probed, wanted, count, seed)
    chosen: list[Probe] = []
    subjects: set[str] = set()
    # Subjects are used once; a scarce relation must not lose its own to a common one.
    for relation in sorted(wanted, key=lambda r: (len(lots[r]), r)):  # the scarcest first
        chosen += _distinct((p for _, p in lots[relation]), subjects, wanted[relation])
    # Quotas that could not be filled go to the next lots of any relation.
    rest = heapq.merge(*lots.values(), key=lambda pair: pair[0])
    chosen += _distinct((p for _, p in rest), subjects, count - len(chosen))
    return sorted(chosen, key=lambda p: p.ids)


def quotas(sizes: collections.Counter[str], count: int) -> dict[str, int]:
    """Divides `count` in proportion to `sizes`, by largest remainders."""
    total = sum(sizes.values())
    exact = {name: count * size / total for name, size in sizes.items()}
    numbers = {name: int(fraction) for name, fraction in exact.items()}
    by_remainder = sorted(exact, key=lambda name: (numbers[name] - exact[name], name))
    for name in by_remainder[: count - sum(numbers.values())]:
        numbers[name] += 1
    return numbers


def _lots(
    pool: Iterable[Probe], probed: set[Keys], wanted: dict[str, int], count: int, seed: int
) -> dict[str, list[tuple[int, Probe]]]:
    """The first facts of each relation with their random keys, functions of fact and seed."""
    heaps: dict[str, list] = {relation: [] for relation in wanted}
    for probe in map(probe_filters.without_commas, pool):
        heap = heaps.get(probe.relation)
        free = heap is not None and (probe.subject, probe.relation) not in probed
        if not free or probe_filters.gives_itself_away(probe) or probe_filters.is_long(probe):
            continue
        # The `count` smallest lots of a relation, in one pass.
        item = (-hash64(seed, *probe.ids), probe.ids, probe)
        (heapq.heappush if len(heap) < count else heapq.heappushpop)(heap, item)
    return {
        relation: sorted(((-lot, probe) for lot, _, probe in heap), key=lambda pair: pair[0])
        for relation, heap in heaps.items()
    }


def _distinct(probes: Iterable[Probe], subjects: set[str], most: int) -> list[Probe]:
    """The first `most` facts with subjects that are new; adds their subjects."""
    facts: list[Probe] = []
    for probe in probes:
        if len(facts) >= most:
            break
        if probe.subject not in subjects:
            subjects.add(probe.subject)
            facts.append(probe)
    return facts
