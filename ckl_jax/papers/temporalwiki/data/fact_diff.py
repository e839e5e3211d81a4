"""Classifies the facts of one item: TemporalWiki's Algorithm 2, and facts that hold at a date."""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ckl_jax.data.facts.fact_files import DELETED, ENDED, NEW, UNCHANGED, UPDATED
from ckl_jax.data.facts.offices import within
from ckl_jax.data.facts.wikidata_json import UNKNOWN, Fact, Statement, is_past

LATE = "recorded late"  # no class: a change outside the interval that the new dump records
_MAX_GAP = 372  # days between two holders that follow each other: a year of months of 31
# Relations of items to pages of Wikimedia's projects, and what editors alone need.
WIKIMEDIA_PROPERTIES = frozenset(
    "P301 P360 P910 P971 P1151 P1200 P1204 P1423 P1424 P1455 P1456 P1464 P1465 P1740 P1753 P1754 "
    "P1791 P1792 P1855 P1889 P1963 P2033 P2354 P2517 P2875 P2959 P3709 P3713 P3734 P3876 P4195 "
    "P4224 P5008 P5125 P5869 P5996 P6104 P6112 P6186 P6365 P7084 P7561 P7782 P7867 P8464 P8989 "
    "P9926 P10280".split()
)
# Disambiguation pages, categories, templates, lists, portals, modules, project pages, duplicates.
WIKIMEDIA_ITEMS = frozenset(
    "Q4167410 Q4167836 Q11266439 Q13406463 Q4663903 Q15184295 Q14204246 Q17362920".split()
)


@dataclasses.dataclass(frozen=True)
class FactChange:
    """A fact of one item and its class."""

    kind: str  # its class, or `LATE`; the paper's CHANGED is updated and new
    relation: str  # property
    object: str  # item
    # of an updated fact, the items that the relation named before and names no more
    old: tuple[str, ...] = ()


def classify(old: Sequence[Fact], new: Sequence[Fact]) -> Iterator[FactChange]:
    """Applies Algorithm 2 (p. 5), with CHANGED split into updated and new, and adds deleted facts.

    A new fact is NEW if the item had no fact before, or none of this relation; UNCHANGED if it had
    this one; else UPDATED. An old fact that is not there any more is named as an updated fact's
    `old` if its relation has a new object, and is DELETED if not.
    """
    before, after = _by_relation(old), _by_relation(new)
    for relation, objects in after.items():
        known = before.get(relation, {})
        gone = tuple(o for o in known if o not in objects)
        for item in objects:
            if not known:
                yield FactChange(NEW, relation, item)
            elif item in known:
                yield FactChange(UNCHANGED, relation, item)
            else:
                yield FactChange(UPDATED, relation, item, gone)
    for relation, objects in before.items():
        left = after.get(relation, {})
        # Where the relation has a new object, the old ones are the `old` of an UPDATED fact.
        if left.keys() <= objects.keys():  # deleted facts without a replacement
            for item in objects:
                if item not in left:
                    yield FactChange(DELETED, relation, item)


def _by_relation(facts: Iterable[Fact]) -> dict[str, dict[str, None]]:
    """Relation -> its objects, both in the order of the dump."""
    objects: dict[str, dict[str, None]] = {}
    for relation, item in facts:
        objects.setdefault(relation, {})[item] = None
    return objects


def is_about_wikimedia(fact: Fact) -> bool:
    """Whether a fact is about pages of Wikimedia's projects, not about what a page describes."""
    return fact[0] in WIKIMEDIA_PROPERTIES or fact[1] in WIKIMEDIA_ITEMS


def classify_current(
    old: Sequence[Statement], new: Sequence[Statement], days: tuple[str, str]
) -> Iterator[FactChange]:
    """Classifies facts by whether they hold on the days of the two dumps (`Statement.holds`).

    A fact that holds on both days is UNCHANGED. One that holds on the new day alone is UPDATED if
    it follows one that holds on the old day alone, which is its `old`, else NEW. One that holds on
    the old day alone and has no successor is ENDED if the new dump still states it, else DELETED.
    A change whose dates are on or before the old day is `LATE`, and so is a fact that already the
    old dump stated, without the best rank.

    Args:
      days: of the dumps, YYYY-MM-DD, "" where unknown.
    """
    before, after = (
        _by_relation(s.fact for s in statements if s.holds(day))
        for statements, day in zip((old, new), days, strict=True)
    )
    stated = _by_fact(new)
    known = {s.fact for s in old}
    for relation in dict.fromkeys([*after, *before]):
        held, holds = before.get(relation, {}), after.get(relation, {})
        starts = {o: _start(stated[relation, o], days[1]) for o in holds if o not in held}
        ends = {o: _end(stated.get((relation, o), ())) for o in held if o not in holds}
        pairs = _successions(ends, starts, len(held) == len(holds) == 1)
        late = _late(starts, ends, pairs, days[0])
        late |= {o for o in starts if (relation, o) in known and not starts[o] and o not in pairs}
        for item in holds:
            yield _begun(relation, item, item in held, pairs.get(item, ""), late)
        # What holds on the old day alone, without a successor.
        for item in (o for o in ends if o in late or o not in pairs.values()):
            yield FactChange(_over(relation, item, late, stated), relation, item)


def _over(relation: str, item: str, late: set[str], stated: Collection[Fact]) -> str:
    """The class of a fact that holds on the old day alone."""
    if item in late:
        return LATE
    return ENDED if (relation, item) in stated else DELETED


def _by_fact(statements: Sequence[Statement]) -> dict[Fact, list[Statement]]:
    grouped: dict[Fact, list[Statement]] = {}
    for statement in statements:
        grouped.setdefault(statement.fact, []).append(statement)
    return grouped


def _begun(relation: str, item: str, held: bool, former: str, late: set[str]) -> FactChange:
    """The class of a fact that holds on the new day."""
    if held:
        return FactChange(UNCHANGED, relation, item)
    if item in late:
        return FactChange(LATE, relation, item)
    return FactChange(UPDATED if former else NEW, relation, item, (former,) if former else ())


def _late(
    starts: Mapping[str, str], ends: Mapping[str, str], pairs: Mapping[str, str], day: str
) -> set[str]:
    """The items whose change is dated on or before the old day.

    A succession is not, if the new holder began later: the old one may have ended the day before.
    """
    late = {
        o
        for dates in (starts, ends)
        for o, date in dates.items()
        if date and day and is_past(date, day, whole=True)  # with all of its month or year
    }
    for pair in pairs.items():
        start = starts[pair[0]]
        if start and not is_past(start, day):
            late -= set(pair)
        elif not late.isdisjoint(pair):
            late |= set(pair)
    return late


def _start(statements: Sequence[Statement], day: str) -> str:
    """The last start of the statements that hold; "" if one of them has none that is known."""
    starts = [s.start for s in statements if s.holds(day)]
    return "" if {"", UNKNOWN} & set(starts) else max(starts)


def _end(statements: Sequence[Statement]) -> str:
    """The last end that is stated; "" if none is known."""
    return max((s.end for s in statements if s.end != UNKNOWN), default="")


def _successions(
    ends: Mapping[str, str], starts: Mapping[str, str], single: bool
) -> dict[str, str]:
    """Pairs new holders with the old ones that they follow, one to one, the closest first.

    Args:
      ends: old holder -> the day on which it stopped; "" unknown.
      starts: new holder -> the day on which it began; "" unknown.
      single: whether there is one holder at each date, who then need no dates.

    Returns:
      New holder -> old holder.
    """
    gaps = sorted(
        (gap, i, j)
        for i, end in enumerate(ends.values())
        for j, start in enumerate(starts.values())
        if (gap := _gap(end, start) if end and start else 0 if single else None) is not None
        and gap <= _MAX_GAP
    )
    olds, news, pairs = list(ends), list(starts), {}
    for _, i, j in gaps:
        if news[j] not in pairs and olds[i] not in pairs.values():
            pairs[news[j]] = olds[i]
    return pairs


def _gap(end: str, start: str) -> int:
    """About the days between two dates; 0 if they may be the same day."""
    # Not by `datetime`: Wikidata has days of the Julian calendar, such as 1700-02-29.
    ends, starts = ([_days(day) for day in within(date)] for date in (end, start))
    return max(0, starts[0] - ends[1], ends[0] - starts[1])


def _days(date: str) -> int:
    year, month, day = map(int, date.split("-"))
    return (year * 12 + month) * 31 + day
