"""Facts of TWiki-Probes' files, whose names give the interval and the class.

`<interval>_<class>.csv`, such as `0801-0901_changed.csv`, has the columns subject, relation and
object. What a changed fact was before is in `<interval>_changed.jsonl`, where that lies beside it.
"""

import collections
import dataclasses
import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ckl_jax.data.compressed import csv_table
from ckl_jax.errors import UserError, nearest
from ckl_jax.files import read_jsonl

COLUMNS = ("subject", "relation", "object")
UNCHANGED, UPDATED, NEW, DELETED = "unchanged", "updated", "new", "deleted"
ENDED = "ended"
# file -> classes that are filtered together; the paper has the first two
SETS = {
    "unchanged": (UNCHANGED,),
    "changed": (UPDATED, NEW),
    "deleted": (DELETED,),
    "ended": (ENDED,),
}
CLASSES = tuple(SETS)
# What a name may end with, and the class that it stands for: "updated" is "changed".
_CLASS_OF = {kind: title for title, kinds in SETS.items() for kind in kinds} | {c: c for c in SETS}


@dataclasses.dataclass(frozen=True)
class Fact:
    """One line of a file.

    Attributes:
      id: "subject | relation | object", numbered where it is repeated.
      subject, relation, object: labels.
      kind: unchanged, updated, new, deleted or ended; "" of a changed fact that no file classifies.
      old_objects: what an updated one said before.
    """

    id: str
    subject: str
    relation: str
    object: str
    kind: str = ""
    old_objects: tuple[str, ...] = ()

    @property
    def prompt(self) -> str:
        """The prompt for an object."""
        return f"{self.subject} {self.relation}"

    @property
    def text(self) -> str:
        """The triple as TemporalWiki presents it to a model: no template, no full stop."""
        return f"{self.prompt} {self.object}"


@dataclasses.dataclass(frozen=True)
class FactFile:
    """The facts of one file, in file order."""

    name: str  # the file's name without its ending
    interval: str  # "0801-0901"; of a name without "_", the name
    title: str  # the class, one of `CLASSES`; "" of a name without "_", such as IL.csv
    facts: tuple[Fact, ...]  # at least one


def read_facts(path: str | os.PathLike) -> FactFile:
    """Reads a file of facts.

    Raises:
      UserError: it cannot be read, has no facts or not the columns, a cell is empty, or its name
        does not end with a class.
    """
    name = Path(path).stem
    interval, title, kind = _parts(path)
    before = _changes(path, interval) if title == "changed" else {}
    seen: collections.Counter[str] = collections.Counter()
    facts = []
    for row in read_probe_csv(path):
        triple = (row["subject"], row["relation"], row["object"])
        known, old = before.get(triple, (kind, ()))
        key = " | ".join(triple)
        seen[key] += 1
        number = f" ({seen[key]})" if seen[key] > 1 else ""
        facts.append(Fact(f"{key}{number}", *triple, kind or known, old))
    if not facts:
        raise UserError(f"{path} has no facts; leave it out.")
    return FactFile(name, interval, title, tuple(facts))


def read_all(paths: Sequence[str | os.PathLike]) -> list[FactFile]:
    """Reads several files.

    Raises:
      UserError: see `read_facts`; or two of one name, or the changed facts of an interval and
        besides them the updated or new ones, which are among those.
    """
    files = [read_facts(path) for path in paths]
    names = [file.name for file in files]
    for name in names:
        twice = names.count(name) > 1
        again = [n for n in names if _is_part(n, name)]
        if twice or again:
            raise UserError(
                f"The facts of {again[0] if again else name} are given twice: leave one file out."
            )
    return files


def _is_part(name: str, whole: str) -> bool:
    stem = whole.removesuffix("_changed")
    return stem != whole and name in (f"{stem}_{kind}" for kind in SETS["changed"])


def _parts(path: str | os.PathLike) -> tuple[str, str, str]:
    """(interval, class, kind of all its facts or "") from the name of a file."""
    interval, underscore, last = Path(path).stem.rpartition("_")
    if not underscore:
        return last, "", ""
    if last not in _CLASS_OF:
        raise UserError(
            f"{path}: the name of a file of facts ends with its class, as 0801-0901_changed.csv; "
            f"{last!r} is none of {', '.join(_CLASS_OF)}.{nearest(last, _CLASS_OF)}"
        )
    return interval, _CLASS_OF[last], "" if last == "changed" else last


@functools.lru_cache(maxsize=4)
def _read_changes(path: Path) -> dict[tuple[str, str, str], tuple[str, tuple[str, ...]]]:
    rows = read_jsonl(path)
    return {
        (row["subject"], row["relation"], row["object"]): (row["kind"], tuple(row["old_objects"]))
        for row in rows
    }


def _changes(path: str | os.PathLike, interval: str):
    """(subject, relation, object) -> (kind, old objects) of the file beside `path`, if any."""
    beside = Path(path).with_name(f"{interval}_changed.jsonl")
    if not os.path.lexists(beside):
        return {}
    try:
        return _read_changes(beside)
    except (KeyError, TypeError) as e:
        raise UserError(
            f"{beside}: a line lacks a field of the probes ({e}); remove the file, or make it with "
            "`ckl data probes`."
        ) from e


def read_probe_csv(path: str | os.PathLike) -> Iterator[dict[str, str]]:
    """Yields the rows of a published file as text: subject, relation, object.

    "NA", "None" and "1984" stay what they are; the column `objective` of older files is `object`.

    Raises:
      UserError: as `csv_table`, or a cell is empty.
    """
    for line, row in csv_table(path, COLUMNS, renamed=[("objective", "object")]):
        fields = {column: row[column] for column in COLUMNS}
        if empty := [c for c, label in fields.items() if not label.strip()]:
            raise UserError(f"{path}, line {line}: the {empty[0]} is empty; remove the line.")
        yield fields
