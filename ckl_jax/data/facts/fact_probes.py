"""Candidates for InvariantLAMA, UpdatedLAMA and NewLAMA from dated facts.

Facts of one subject and relation are brought together in buckets on disk, so that memory holds one
bucket and what is kept. What is left out is counted by reason.
"""

import collections
import dataclasses
import itertools
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.data.buckets import bucket_path, hash64, write_rows
from ckl_jax.data.facts.ckl_files import BLANK
from ckl_jax.data.facts.dated_facts import UNKNOWN, DatedFact
from ckl_jax.data.facts.relational import SUBJECT
from ckl_jax.data.facts.statements import fill
from ckl_jax.data.facts.templates import CHANGING, EVENT, INVARIANT, Template
from ckl_jax.data.text.sentences import normalise
from ckl_jax.errors import UserError
from ckl_jax.files import read_jsonl

INVARIANT_LAMA, UPDATED_LAMA, NEW_LAMA = "invariant_lama", "updated_lama", "new_lama"
_BUCKETS = 64
Counts = collections.Counter[str]


@dataclasses.dataclass(frozen=True)
class Candidate:
    """An item of a probe, before the filters."""

    probe: str  # its name in `ckl_files.PROBES`
    relation: str  # such as "P19"
    subjects: tuple[str, ...]  # names of the subject
    # accepted ones, the first is the target; `old_answers` were right before
    answers: tuple[str, ...]
    old_answers: tuple[str, ...]
    statement: str  # with the blank
    question: str  # "" if there is none
    date: str = ""  # since when it is so; "" if not known
    note: str = ""  # what a reader should know
    order: int = 0  # of the facts' files

    @property
    def filled(self) -> str:
        return self.statement.replace(BLANK, self.answers[0])


@dataclasses.dataclass(frozen=True)
class Period:
    """D0 extends up to the day `before`, D1 from then up to `after`."""

    before: str
    after: str

    def __post_init__(self) -> None:
        if self.before >= self.after:
            raise UserError(
                f"--dates are {self.before} and {self.after}; give the earlier one first."
            )

    def side(self, date: str) -> str:
        """ "D0", "D1", or "" for what was written later."""
        return "D0" if date <= self.before else "D1" if date <= self.after else ""


def candidates(
    facts: Iterable[DatedFact], period: Period, templates: Mapping[str, Template], counts: Counts
) -> list[Candidate]:
    """Candidates for items, in the order of the facts.

    Args:
      facts: are read once.
      wordings: by relation.
      counts: gets the facts by what becomes of them.

    Raises:
      UserError: facts are of certain dates, and not of those of `period`.
    """
    with tempfile.TemporaryDirectory(prefix="ckl-facts-") as folder:
        write_rows(_keyed(facts, period, counts), Path(folder), _BUCKETS)
        unordered = [
            candidate
            for i in range(_BUCKETS)
            for group in _groups(bucket_path(Path(folder), i))
            for candidate in _of_group(group, period, templates, counts)
        ]
    return sorted(unordered, key=lambda c: c.order)


def _keyed(
    facts: Iterable[DatedFact], period: Period, counts: Counts
) -> Iterator[tuple[int, list[Any]]]:
    snapshots: dict[str, None] = {}
    for order, fact in enumerate(facts):
        counts["facts read"] += 1
        snapshots.update(dict.fromkeys(fact.seen))
        yield hash64(*_key(fact)), [order, *dataclasses.astuple(fact)]
    for day in (period.before, period.after):
        if snapshots and not any(day.startswith(s) for s in snapshots):
            raise UserError(
                f"--dates has {day}, but the facts were looked up on {', '.join(sorted(snapshots))}"
                " only; give two of these."
            )


def _key(fact: DatedFact) -> tuple[str, str]:
    return fact.subject_id or fact.subject, fact.relation


Group = list[tuple[int, DatedFact]]


def _groups(path: Path) -> Iterator[Group]:
    """(order, fact) of each subject and relation in a bucket."""
    groups: dict[tuple[str, str], Group] = {}
    for order, *fields in read_jsonl(path):
        fact = DatedFact(*(tuple(v) if isinstance(v, list) else v for v in fields))
        groups.setdefault(_key(fact), []).append((order, fact))
    yield from groups.values()


def _of_group(
    group: Group, period: Period, templates: Mapping[str, Template], counts: Counts
) -> Iterator[Candidate]:
    first = group[0][1]
    template = _template(first, templates)
    if template is None:
        counts["facts whose relation has no template"] += len(group)
        counts[f"no template: {first.relation}"] += len(group)
        return
    kind = first.kind or template.kind
    if kind == EVENT:
        counts["facts that are events, no states"] += len(group)
    elif any(fact.holds(day) is None for _, fact in group for day in (period.before, period.after)):
        counts["facts whose dates are not exact enough"] += len(group)
    elif kind == INVARIANT:
        yield from _invariant(group, template, period, counts)
    else:
        yield from _changing(group, template, period, counts)


def _template(fact: DatedFact, templates: Mapping[str, Template]) -> Template | None:
    if fact.cloze:
        return Template(fact.cloze, fact.question, fact.kind or CHANGING)
    return templates.get(fact.relation)


def _invariant(
    group: Group, template: Template, period: Period, counts: Counts
) -> Iterator[Candidate]:
    """One item for each object that holds at both dates, as in LAMA.

    What such a relation says of a subject of which it said nothing before is new.
    """
    if not any(fact.holds(period.before) for _, fact in group):
        yield from _changing(group, template, period, counts)
        return
    for order, fact in group:
        if fact.holds(period.before) and fact.holds(period.after):
            counts["facts of candidates"] += 1
            yield _candidate(INVARIANT_LAMA, [fact], [], template, order)
        else:
            counts["facts of invariant relations that do not hold at both dates"] += 1


def _changing(
    group: Group, template: Template, period: Period, counts: Counts
) -> Iterator[Candidate]:
    """One item for all objects of the relation; unchanged objects are no accepted answers."""
    old, new = (
        [fact for _, fact in group if fact.holds(day)] for day in (period.before, period.after)
    )
    order = group[0][0]
    if not new:
        counts["facts that ended, or begin later"] += len(group)
        return
    if old and same_name(_answers(old), _answers(new)):
        counts["facts that did not change"] += len(group)
        return
    counts["facts of candidates"] += len(group)
    if old:
        yield _candidate(UPDATED_LAMA, new, old, template, order)
    else:
        begun = any(fact.valid_from not in ("", UNKNOWN) for fact in new)
        note = "" if begun else f"Nothing is recorded for {period.before}."
        yield _candidate(NEW_LAMA, new, [], template, order, note)


def _answers(facts: Sequence[DatedFact]) -> tuple[str, ...]:
    """All names of the objects, their main names first."""
    return tuple(dict.fromkeys(itertools.chain.from_iterable(f.answers for f in facts)))


def _candidate(
    probe: str,
    new: list[DatedFact],
    old: list[DatedFact],
    template: Template,
    order: int,
    note: str = "",
) -> Candidate:
    fact = new[0]
    date = "" if fact.valid_from == UNKNOWN else fact.valid_from
    return Candidate(
        probe=probe,
        relation=fact.relation,
        subjects=fact.subjects,
        answers=_answers(new),
        old_answers=_answers(old),
        statement=fill(template.cloze, fact.subject, BLANK, capitalize=False).text,
        question=template.question.replace(SUBJECT, fact.subject),
        date=date or min(fact.seen, default=""),
        note=note,
        order=order,
    )


def same_name(some: Iterable[str], others: Iterable[str]) -> bool:
    """Whether an answer of one side would count as right on the other."""
    compared = ({normalise(a) or a for a in names} for names in (some, others))
    return not set.isdisjoint(*compared)
