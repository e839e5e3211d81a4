"""Office-holders over time, and a question for each month of a term (Mind the Gap).

"Who is the prime minister of Norway in March 2019 ?" The answer is who holds the office on the
15th. Months in which it changes hands are left out.
"""

import calendar
import collections
import dataclasses
import datetime
import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.data.compressed import csv_table
from ckl_jax.data.facts.questions import Question
from ckl_jax.data.json_rows import numbered_rows, text_field
from ckl_jax.errors import UserError

_DATE = re.compile(r"(\d{4})(?:-(\d{2})(?:-(\d{2}))?)?")
_ROLE = re.compile(r"(.+?) of (.+)")


@dataclasses.dataclass(frozen=True)
class Term:
    """A person's term in an office."""

    role: str  # "prime minister"
    place: str  # "Norway"
    holder: str  # the name
    start: str = ""  # ISO date; with 00 for a month or day that is not known; "" if nothing is
    # the day that it ends (the holder does not hold it then), written alike; "" if it goes on
    end: str = ""
    aliases: tuple[str, ...] = ()  # other names that are right

    def holds(self, date: str) -> bool:
        return within(self.start)[0] <= date and (not self.end or date < within(self.end)[0])


@functools.lru_cache(maxsize=1 << 16)
def within(date: str) -> tuple[str, str]:
    """The earliest and the latest day of a date; "" means unbounded."""
    match = _DATE.fullmatch(date)
    if not match:
        return "", ""
    year, month, day = (int(part or 0) for part in match.groups())
    if not month:
        return f"{year:04d}-01-01", f"{year:04d}-12-31"
    last = calendar.monthrange(year, month)[1]
    return f"{year:04d}-{month:02d}-{day or 1:02d}", f"{year:04d}-{month:02d}-{day or last:02d}"


def check_date(date: Any, where: str) -> str:
    """Returns a term's date, YYYY-MM-DD (or with 00, or cut); raises `UserError` for others."""
    try:
        is_date = isinstance(date, str) and bool(datetime.date.fromisoformat(within(date)[0]))
    except ValueError:
        is_date = False
    if date and not is_date:
        raise UserError(f"{where}: {str(date)[:40]!r} is not of the form YYYY-MM-DD.")
    return date


def office_questions(
    terms: Iterable[Term],
    first: str,
    last: str,
    keep_ambiguous: bool = False,
    tokenize: Callable[[str], str] = str,
) -> Iterator[Question]:
    """Yields the questions of months, by office and month.

    Args:
      terms: in any order.
      first, last: the months, "2019-01" to "2019-12".
      keep_ambiguous: also months in which the office changes hands, or has two holders on the
        15th (all of whom are right).

    Raises:
      UserError: `first` or `last` is not a month, or there are none between.
    """
    months = list(_months(first, last))
    offices: dict[tuple[str, str], list[Term]] = collections.defaultdict(list)
    for term in terms:
        offices[term.role, term.place].append(term)
    for (role, place), held in sorted(offices.items()):
        for month in months:
            holders = [t for t in held if t.holds(f"{month}-15")]
            names = [n for t in holders for n in (t.holder, *t.aliases)]
            clear = len({t.holder for t in holders}) == 1 and not _changes(held, month)
            if names and (clear or keep_ambiguous):
                when = f"{calendar.month_name[int(month[5:])]} {month[:4]}"
                yield Question(
                    f"{role}/{place}/{month}",
                    tokenize(f"Who is the {role} of {place} in {when}?"),
                    tuple(dict.fromkeys(map(tokenize, names))),
                    month,
                    role=role,
                    place=place,
                )


def _changes(terms: Sequence[Term], month: str) -> bool:
    """Whether a term may begin or end within a month (after its first day)."""
    first, last = f"{month}-02", f"{month}-31"
    return any(
        low <= last and high >= first
        for term in terms
        for low, high in map(within, filter(None, (term.start, term.end)))
    )


def _months(first: str, last: str) -> Iterator[str]:
    numbers = []
    for text in (first, last):
        match = re.fullmatch(r"(\d{4})-(0[1-9]|1[0-2])", text)
        if not match:
            raise UserError(f"{text!r} is not a month; give such as 2019-03.")
        numbers.append(int(match[1]) * 12 + int(match[2]) - 1)
    if numbers[0] > numbers[1]:
        raise UserError(f"There is no month from {first} to {last}.")
    return (f"{n // 12:04d}-{n % 12 + 1:02d}" for n in range(numbers[0], numbers[1] + 1))


# --- tables


def read_terms(path: str | os.PathLike) -> list[Term]:
    """Reads a table of terms.

    Args:
      path: CSV with the columns role, place, holder, start, end, and perhaps aliases (";" between
        them); or DyKnow's JSON lines of dated answers.

    Raises:
      UserError: the file cannot be read, is of neither kind, or has a wrong date.
    """
    reader = _dyknow if ".jsonl" in Path(path).name else _csv
    if not (terms := list(reader(path))):
        raise UserError(f"{os.fspath(path)} has no terms of office.")
    return terms


def _csv(path: str | os.PathLike) -> Iterator[Term]:
    for line, row in csv_table(path, ("role", "place", "holder", "start", "end")):
        where = f"{os.fspath(path)}, line {line}"
        aliases = tuple(a.strip() for a in row.get("aliases", "").split(";") if a.strip())
        start, end = (check_date(row[k].strip(), where) for k in ("start", "end"))
        role, place, holder = (text_field(row, k, where) for k in ("role", "place", "holder"))
        yield Term(role, place, holder, start, end, aliases)


def _dyknow(path: str | os.PathLike) -> Iterator[Term]:
    for where, row in numbered_rows(path):
        if not isinstance(row.get("answers"), list):
            raise UserError(f"{where}: it has no list of 'answers'.")
        given = row.get("attribute")
        attribute = f"chief executive of {row.get('subject')}" if given in (None, "") else given
        office = _ROLE.fullmatch(text_field({"attribute": attribute}, "attribute", where))
        for number, answer in enumerate(row["answers"] if office else (), 1):
            inside = f"{where}, answer {number}"
            if not isinstance(answer, dict):
                raise UserError(f"{inside}: it is not an object with 'name', 'start' and 'end'.")
            start, end = (check_date(answer.get(k) or "", inside) for k in ("start", "end"))
            if start or end:
                name = text_field(answer, "name", inside)
                yield Term(office[1].lower(), office[2], name, start, end)
