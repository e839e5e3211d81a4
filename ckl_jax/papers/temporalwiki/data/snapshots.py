"""Snapshots: a Wikipedia and a Wikidata dump of one date, found by their paths."""

import dataclasses
import datetime
import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path

from ckl_jax.errors import UserError
from ckl_jax.papers.temporalwiki.data.checksums import files_of
from ckl_jax.papers.temporalwiki.data.dumps import check_wikis, date_of, open_dump

_SIZE = re.compile(r"(\S+) \((\d+) bytes\)")  # of a dump in a description
_GIVE = (
    "give a folder with one Wikipedia and one Wikidata dump, or FOLDER/YYYYMMDD for a date in it"
)
_DATE = re.compile(r"(\d{4})-?(\d\d)(?:-?(\d\d))?")
_NEAR = 16  # days
_PART = re.compile(r"p\d+p\d+")
_WIKIDATA = re.compile(r".*(wikidata|-all).*\.json(\.gz|\.bz2)?")


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """Two dumps."""

    date: str  # of the Wikipedia dump, YYYYMMDD
    wikipedia: str  # file, or folder of the parts of one dump; "" if it is not there
    wikidata: str  # file; "" if it is not there
    was: str = ""  # what `describe` said of dumps that have been deleted since; "" of others

    def describe(self) -> str:
        """Date, and names and sizes of its files, which identify it."""
        if not self.wikipedia:
            return self.was or self.date
        parts = (
            f"{Path(path).name} ({sum(map(os.path.getsize, files_of(path)))} bytes)"
            for path in (self.wikipedia, self.wikidata)
        )
        return f"{self.date}: {', '.join(parts)}"


@dataclasses.dataclass(frozen=True)
class Interval:
    """Two consecutive snapshots."""

    old: Snapshot
    new: Snapshot

    @property
    def name(self) -> str:
        return f"{self.old.date}-{self.new.date}"


def find(path: str | os.PathLike) -> Snapshot:
    """Finds the dumps of one snapshot.

    Args:
      path: a folder that holds them, or FOLDER/DATE (YYYYMM or YYYYMMDD) where FOLDER holds those
        of several dates.

    Raises:
      UserError: there is no such folder, or not one dump of each kind in it.
    """
    path = Path(path)
    if path.is_dir():
        files = [p for p in path.iterdir() if p.is_file()]
    # FOLDER/20210801 where FOLDER holds the files of several dates.
    elif path.parent.is_dir() and (match := _DATE.fullmatch(path.name)):
        date = "".join(filter(None, match.groups()))
        by_date = _by_date(path.parent)
        files = [p for day, there in by_date.items() if day.startswith(date) for p in there]
    else:
        raise UserError(f"There is no snapshot {path}; {_GIVE}.")
    wikipedia = _wikipedia(path, [p for p in files if _is_xml(p)])
    wikidata = _one(path, "Wikidata", [p for p in files if _WIKIDATA.fullmatch(p.name)])
    date = date_of(wikipedia) or next(filter(None, map(date_of, (path, *files))), "")
    if not date:
        raise UserError(
            f"The dump {wikipedia} has no date in its name; rename it as Wikimedia does."
        )
    return Snapshot(date, str(wikipedia), str(wikidata))


def find_all(paths: Sequence[str], known: Sequence[str] = ()) -> list[Snapshot]:
    """Finds snapshots, or recalls those whose dumps have been deleted since.

    Args:
      paths: as for `find`; or one folder, for all dates of which it holds both dumps, or a folder
        with both.
      known: descriptions of snapshots, of `Snapshot.describe`, which need not be named any more;
        a folder's dates between them are passed over.

    Raises:
      UserError: as `find`, of a snapshot that is not known; or a date of the folder lacks a dump
        and a later one does not.
    """
    if len(paths) != 1 or not os.path.isdir(paths[0]):
        return _with_deleted([_find_or_recall(place, known) for place in paths], known)
    finished = [text.partition(":")[0] for text in known]
    names = dict.fromkeys(finished)  # {date: the name of its folder, if it has one}
    names |= dict.fromkeys(_by_date(Path(paths[0])))
    for path in Path(paths[0]).iterdir():
        if path.is_dir() and (match := _DATE.fullmatch(path.name)):
            names["".join(filter(None, match.groups()))] = path.name
    snapshots: list[Snapshot] = []
    unfinished: list[str] = []
    for date in sorted(filter(None, names)):
        if finished and date < finished[-1] and date not in finished:
            print(f"Passing over the snapshot {date}, which came after that of {finished[-1]}.")
            continue
        try:
            snapshots.append(_find_or_recall(Path(paths[0]) / (names[date] or date), known))
        except UserError as e:
            unfinished.append(str(e).removesuffix(f"; {_GIVE}."))
            continue
        if unfinished:  # an interval that is trained over a month could not be divided later
            raise UserError(
                f"{unfinished[0]}, and that of {snapshots[-1].date} is there; fetch what is "
                "missing, or remove what there is of that date to go on without it."
            )
    for sentence in unfinished:  # it may be on its way
        print(f"{sentence}: it is left out until it is whole.")
    return snapshots


def _is_xml(path: Path) -> bool:
    return ".xml" in path.name and path.suffix != ".part"


def _by_date(folder: Path) -> dict[str, list[Path]]:
    """The dumps of a folder by the dates of their snapshots, which are those of Wikipedia's.

    Wikidata's dumps are of days of their own: that of a date that has none is the nearest one.
    """
    found: dict[str, list[Path]] = {}
    for path in sorted(p for p in folder.iterdir() if p.is_file()):
        if _is_xml(path) or _WIKIDATA.fullmatch(path.name):
            found.setdefault(date_of(path), []).append(path)
    pages = [day for day, there in found.items() if any(map(_is_xml, there))]
    alone = [day for day in found if day not in pages]
    for day in pages:
        near = [other for other in alone if other in found and _days_between(day, other) < _NEAR]
        if near and all(map(_is_xml, found[day])):
            found[day] += found.pop(min(near, key=lambda other: _days_between(day, other)))
    return found


def _days_between(a: str, b: str) -> int:
    first, second = (
        datetime.date(int(d[:4]), int(d[4:6]), min(max(int(d[6:]), 1), 28))
        if d
        else datetime.date.max
        for d in (a, b)
    )
    return abs((first - second).days)


def _with_deleted(named: list[Snapshot], known: Sequence[str]) -> list[Snapshot]:
    """Adds the known ones that `named` lacks: a pattern like dumps/2021* misses deleted folders."""
    snapshots, dates = list(named), {snapshot.date for snapshot in named}
    for text in known:
        date = text.partition(":")[0]
        if date not in dates:
            later = (i for i, snapshot in enumerate(snapshots) if snapshot.date > date)
            snapshots.insert(next(later, len(snapshots)), Snapshot(date, "", "", text))
    return snapshots


def _find_or_recall(path: str | os.PathLike, known: Sequence[str]) -> Snapshot:
    try:
        return find(path)
    except UserError:
        date = "".join(filter(None, m.groups())) if (m := _DATE.fullmatch(Path(path).name)) else ""
        was = [text for text in known if date and text.startswith(date) and ": " in text]
        if len(was) != 1:
            raise
        return Snapshot(was[0].partition(":")[0], "", "", was[0])


def _wikipedia(path: str | os.PathLike, files: list[Path]) -> Path:
    files = [p for p in files if "-index" not in p.name]
    # A dump in parts is given by its folder.
    if len(files) > 1 and Path(path).is_dir() and all(_PART.search(p.name) for p in files):
        return Path(path)
    articles = [p for p in files if "pages-articles" in p.name]
    return _one(path, "Wikipedia", articles or files)


def _one(path: str | os.PathLike, kind: str, files: list[Path]) -> Path:
    if len(files) == 1:
        return files[0]
    names = f"{len(files)} ({', '.join(sorted(p.name for p in files)[:3])})" if files else "no"
    raise UserError(
        f"The snapshot {path} has {names} {kind} dump{'s' * (len(files) > 1)}; {_GIVE}."
    )


def check_sizes(snapshots: Sequence[Snapshot], known: Sequence[str]) -> None:
    """Raises `UserError` if a dump has another size than a known one of its name and date."""
    sizes_of = {text.partition(":")[0]: dict(_SIZE.findall(text)) for text in known}
    for snapshot in snapshots:
        for name, size in _SIZE.findall(snapshot.describe()):
            was = sizes_of.get(snapshot.date, {}).get(name, size)
            if size != was:
                raise UserError(
                    f"The dump {name} has {int(size):,} bytes, and had {int(was):,} when it was "
                    "read; fetch it again, remove it, or choose another --out."
                )


def check_series(snapshots: Sequence[Snapshot]) -> None:
    """Raises `UserError` unless snapshots are in order and of one wiki."""
    if len(snapshots) < 2:
        there = "is one snapshot only" if snapshots else "are no snapshots"
        raise UserError(f"There {there}; give two or more, in the order of their dates.")
    for old, new in itertools.pairwise(snapshots):
        _check_order(*(x for s in (old, new) for x in (s.wikipedia or s.was, s.date)))
        if old.was or new.was:
            continue
        _check_order(old.wikidata, date_of(old.wikidata), new.wikidata, date_of(new.wikidata))
        check_wikis(*(open_dump(s.wikipedia, spans=False) for s in (old, new)))


def _check_order(old: str, old_date: str, new: str, new_date: str) -> None:
    if old_date and new_date and old_date >= new_date:
        raise UserError(
            f"{new} ({new_date}) is not later than {old} ({old_date}), which is given before it; "
            "give snapshots in the order of their dates."
        )
