"""Reads dated facts (subject, relation, object, first and last day) from files of several formats.

A file is JSON lines or CSV in one of five forms, recognised by their fields: dated facts
(docs/benchmark_builder.md; the simulated world's facts.jsonl), T-REx as LAMA and ParaRel have it,
Wikidata at some dates (docs/real_facts.md), DyKnow's answers with their dates, and terms of office
as `ckl data offices` writes them, a CSV.
"""

import contextlib
import dataclasses
import datetime
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ckl_jax.data.compressed import csv_table
from ckl_jax.data.facts.offices import Term, check_date, read_terms, within
from ckl_jax.data.facts.relational import ANSWER, SUBJECT
from ckl_jax.data.facts.templates import KINDS, PREVIOUS
from ckl_jax.data.json_rows import numbered_rows, text_field
from ckl_jax.errors import UserError, not_empty

# Words of other names for a dated fact's dates.
_BEGIN, _END = {"start", "started", "begin", "from", "since"}, {"end", "ended", "to", "until"}
UNKNOWN = "?"  # a date that is not known, where "" is one that there is not
_SNAPSHOT = re.compile(r"\d{4}-\d{2}(?:-\d{2})?")


@dataclasses.dataclass(frozen=True)
class DatedFact:
    """A fact.

    Attributes:
      subject, object: names.
      relation: such as "P6".
      subject_id, object_id: what distinguishes things of one name; the names where there are none.
      valid_from, valid_to: dates, YYYY-MM-DD, cut or with 00 where no more is known; from the
        first day until before the last; "": for ever; "?": not known.
      seen: in place of these, dates at which it was looked up and found ("2024-03" is any day).
      subject_aliases, object_aliases: other names.
      kind: invariant, changing, event; "": the relation's wording says it.
      cloze, question: wording of its own, "" if it is the relation's.
      where: file and line.
    """

    subject: str
    relation: str
    object: str
    subject_id: str = ""
    object_id: str = ""
    valid_from: str = ""
    valid_to: str = ""
    seen: tuple[str, ...] = ()
    subject_aliases: tuple[str, ...] = ()
    object_aliases: tuple[str, ...] = ()
    kind: str = ""
    cloze: str = ""
    question: str = ""
    where: str = ""

    def holds(self, date: str) -> bool | None:
        """Whether the fact holds on a day, YYYY-MM-DD; None if its dates do not say."""
        if self.seen:
            return any(date.startswith(day) for day in self.seen)
        begin, end = _range(self.valid_from, ""), _range(self.valid_to, "9999-99-99")
        if date < begin[0] or date >= end[1]:
            return False
        return True if date >= begin[1] and date < end[0] else None

    def spans(self) -> list[tuple[str, str]]:
        """[(first day, day after the last)] of the times at which the fact holds for certain."""
        if self.seen:
            return [(day, f"{day}~") for day in self.seen]  # "~" sorts behind longer dates
        begin, end = _range(self.valid_from, "")[1], _range(self.valid_to, "9999-99-99")[0]
        return [(begin, end)] if begin < end else []

    @property
    def answers(self) -> tuple[str, ...]:
        return (self.object, *self.object_aliases)

    @property
    def subjects(self) -> tuple[str, ...]:
        return (self.subject, *self.subject_aliases)


def _range(date: str, never: str) -> tuple[str, str]:
    """The earliest and the latest day of a date of any precision."""
    if date == UNKNOWN:
        return "", "9999-99-99"
    return within(date) if date else (never, never)


def read_dated_facts(paths: Iterable[str | os.PathLike]) -> Iterator[DatedFact]:
    """Yields the facts of files and of all `*.jsonl` and `*.jsonl.gz` in folders, by name.

    A file that has .csv in its name is a table, in which aliases are joined by ";".

    Raises:
      UserError: there is no such file, a folder has none, or a line is of no form, lacks a field
        or has a wrong one; it names file, line and field.
    """
    for path in _files(paths):
        table = ".csv" in map(str.lower, path.suffixes)
        first = next(csv_table(path), (0, {}))[1] if table else {}
        if len(first.keys() & {"role", "place", "holder"}) > 1:
            yield from map(_of_term, read_terms(path))
            continue
        rows = _cells(path) if table else numbered_rows(path)
        for where, row in not_empty(rows, f"{path} has no facts; leave it out."):
            yield from _form(row, where)(row, where, path)


def _cells(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields a table's rows as `numbered_rows` those of JSON lines."""
    for line, row in csv_table(path):
        names = {"subject_aliases", "object_aliases"}
        cells = {n: cell.split(";") if n in names else cell.strip() for n, cell in row.items()}
        yield f"{path}, line {line}", cells


def _files(paths: Iterable[str | os.PathLike]) -> list[Path]:
    files: list[Path] = []
    for path in map(Path, paths):
        inside = sorted([*path.glob("*.jsonl"), *path.glob("*.jsonl.gz")]) if path.is_dir() else []
        if path.is_dir() and not inside:
            raise UserError(f"The folder {path} has no facts: no *.jsonl and no *.jsonl.gz.")
        if not path.exists():
            raise UserError(f"There is no file of facts {path}; check the path.")
        files += inside or [path]
    if twice := [p for i, p in enumerate(files) if p in files[:i]]:
        raise UserError(f"The facts {twice[0]} are given twice; leave one out.")
    return files


Form = Callable[[dict[str, Any], str, Path], Iterator[DatedFact]]


def _form(row: dict[str, Any], where: str) -> Form:
    forms: dict[str, Form] = {
        "subject_name": _dated,
        "sub_label": _trex,
        "objects": _snapshots,
        "answers": _dyknow,
        "object": _dated,
    }
    for field, form in forms.items():
        if field in row:
            return form
    raise UserError(
        f"{where}: this is not a fact: none of the fields {', '.join(map(repr, forms))} is there, "
        "of which each form of facts has one."
    )


# --- the forms


def _dated(row: dict[str, Any], where: str, _: Path) -> Iterator[DatedFact]:
    """Reads a fact; `subject` and `object` are ids if names are given beside them."""
    kind_of_name = "_name" if "subject_name" in row else ""
    subject, relation, answer = (
        text_field(row, name, where)
        for name in (f"subject{kind_of_name}", "relation", f"object{kind_of_name}")
    )
    lacking = {n: w for n, w in (("valid_from", _BEGIN), ("valid_to", _END)) if n not in row}
    words = set().union(*lacking.values(), {"date"} if len(lacking) > 1 else ())
    if other := next((n for n in row if words.intersection(re.split(r"[\W_]+", n.lower()))), ""):
        raise UserError(
            f"{where}: name the dates of the fact 'valid_from' and 'valid_to', not {other!r}."
        )
    days = {name: _date(row, name, where) for name in ("valid_from", "valid_to")}
    _in_order(*days.values(), where)
    kind = row.get("kind") or ""
    if kind and kind not in KINDS:
        raise UserError(f"{where}: 'kind' is {kind!r}; it is one of {', '.join(KINDS)}.")
    yield DatedFact(
        subject=subject,
        relation=relation,
        object=answer,
        subject_id=_id(row, "subject", where),
        object_id=_id(row, "object", where),
        subject_aliases=_names(row, "subject_aliases", where),
        object_aliases=_names(row, "object_aliases", where),
        kind=kind,
        where=where,
        **days,
    )


def _trex(row: dict[str, Any], where: str, path: Path) -> Iterator[DatedFact]:
    """Reads a T-REx fact; its relation is `predicate_id`, or else the file's name."""
    names = [text_field(row, name, where) for name in ("sub_label", "obj_label")]
    relation = str(row.get("predicate_id") or path.name.split(".")[0])
    ids = [_id(row, name, where) for name in ("sub_uri", "obj_uri")]
    yield DatedFact(names[0], relation, names[1], *ids, where=where)


def _snapshots(row: dict[str, Any], where: str, _: Path) -> Iterator[DatedFact]:
    subject, relation = (text_field(row, name, where) for name in ("subject", "relation"))
    relation += PREVIOUS if row.get("slot") == "previous" else ""
    seen: dict[tuple[str, str], list[str]] = {}
    if not isinstance(row["objects"], dict) or not row["objects"]:
        raise UserError(
            f"{where}: 'objects' maps dates to [[id, name], ...], and is not such a map."
        )
    for day, objects in row["objects"].items():
        if not _SNAPSHOT.fullmatch(day):
            raise UserError(f"{where}: {day!r} in 'objects' is not of the form YYYY-MM-DD.")
        check_date(day, where)
        for pair in objects if isinstance(objects, list) else [None]:
            match pair:
                case [str(object_id), str(name)] if object_id.strip() and name.strip():
                    seen.setdefault((object_id, _clean(name)), []).append(day)
                case _:
                    raise UserError(f"{where}: 'objects' at {day} is not [[id, name], ...].")
    key = _id(row, "subject_id", where)
    for (object_id, name), days in seen.items():
        yield DatedFact(subject, relation, name, key, object_id, seen=tuple(days), where=where)


def _of_term(term: Term) -> DatedFact:
    """Reads a term of office; without a beginning its first day is unknown."""
    return DatedFact(
        term.place,
        term.role,
        term.holder,
        valid_from=term.start or UNKNOWN,
        valid_to=term.end,
        object_aliases=term.aliases,
        cloze=f"The {term.role} of {SUBJECT} is {ANSWER}.",
        question=f"Who is the {term.role} of {SUBJECT}?",
    )


def _dyknow(row: dict[str, Any], where: str, _: Path) -> Iterator[DatedFact]:
    """Reads a DyKnow answer; one without dates is skipped, `point` alone is a day when it held."""
    subject = text_field(row, "subject", where)
    named = row.get("attribute") is not None
    attribute = text_field(row, "attribute", where) if named else f"chief executive of {subject}"
    prompts = row.get("prompts")
    if not isinstance(prompts, dict) or not all(isinstance(p, str) for p in prompts.values()):
        raise UserError(f"{where}: 'prompts' is not a map of names to beginnings of sentences.")
    prompt = prompts.get("contextualized") or next(iter(prompts.values()), "")
    if not isinstance(row["answers"], list):
        raise UserError(f"{where}: 'answers' is not a list.")
    for number, answer in enumerate(row["answers"], 1):
        inside = f"{where}, answer {number}"
        if not isinstance(answer, dict):
            raise UserError(f"{inside}: it is not an object with 'name', 'start' and 'end'.")
        days = [_date(answer, name, inside) for name in ("start", "end")]
        if not any(days):
            continue
        yield DatedFact(
            subject,
            attribute,
            text_field(answer, "name", inside),
            valid_from=days[0] or UNKNOWN,
            valid_to=days[1],
            cloze=f"{prompt.strip()} {ANSWER}." if prompt.strip() else "",
            question=f"Who is the {attribute}?",
            where=where,
        )


# --- fields


def _clean(text: str) -> str:
    return " ".join(text.split())


def _id(row: dict[str, Any], field: str, where: str) -> str:
    value = row.get(field)
    if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
        raise UserError(f"{where}: the field {field!r} is {str(value)[:40]!r}; give a text.")
    return "" if value is None else _clean(str(value))


def _names(row: dict[str, Any], field: str, where: str) -> tuple[str, ...]:
    value = row.get(field) or []
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise UserError(f"{where}: the field {field!r} is {str(value)[:40]!r}; give a list.")
    return tuple(name for v in value if (name := _clean(v)))


def _date(row: dict[str, Any], field: str, where: str) -> str:
    value = row.get(field) or ""
    if value == UNKNOWN:
        return value
    if not isinstance(value, str):
        raise UserError(f"{where}: the field {field!r} is {str(value)[:40]!r}; give YYYY-MM-DD.")
    return check_date(value.strip(), f"{where}, field {field!r}")


def _in_order(begin: str, end: str, where: str) -> None:
    if UNKNOWN not in (begin, end) and begin and end and within(begin)[0] > within(end)[1]:
        raise UserError(f"{where}: 'valid_to' {end} is before 'valid_from' {begin}.")


def check_day(text: str, flag: str) -> str:
    """Returns a date of the form YYYY-MM-DD; raises `UserError` if it is none."""
    with contextlib.suppress(ValueError):
        # Python reads 20260101 too, which is compared as text with days.
        if datetime.date.fromisoformat(text).isoformat() == text:
            return text
    raise UserError(f"{flag} is {text!r}; give a day as YYYY-MM-DD.")
