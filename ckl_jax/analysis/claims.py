"""Tests claims of papers on your own runs, each as an effect with an interval.

A claim is an effect that is above 0 in the paper, made of numbers of models. Ours is the mean over
seeds; its 95 % interval comes from a hierarchical bootstrap, which draws seeds and, within each,
the items of a probe (or documents), the same for all models. The verdict is "yes" if the interval
is above 0 and "no" if it is below 0; otherwise, or with fewer than five seeds, "undecided".

Each paper gives a `Kind` for each of its commands: how to read a folder, and what to claim of it.
"""

import collections
import dataclasses
import functools
import math
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.analysis import labels
from ckl_jax.analysis.sections import Cell, Section, write_page
from ckl_jax.analysis.seeds import check_seeds
from ckl_jax.analysis.statistics import SAMPLES, bootstrap_seeds, seed_interval, seeds_needed
from ckl_jax.errors import UserError
from ckl_jax.files import read_json_object, write_file, write_json

FEWEST_SEEDS = 5  # for a verdict
Key = tuple[str, ...]  # of a number, from the general to the particular: ("main", "lora", "fuar")
# Of a paper a float each; of ours [1 + B], the value of all items and of B resamples of them. None
# is infinity: FUAR's "no gain".
Numbers = Mapping[Key, Any]


@dataclasses.dataclass(frozen=True)
class Effect:
    """A number computed elementwise from other numbers."""

    keys: tuple[Key, ...]  # of the numbers that it takes
    of: Callable[[Numbers], Any]  # computes it

    def __sub__(self, other: "Effect") -> "Effect":
        return combine(np.subtract, (self, other))


def number(*key: str) -> Effect:
    """The number itself."""
    return Effect((key,), lambda numbers: np.inf if numbers[key] is None else numbers[key])


def combine(function: Callable[..., Any], effects: Iterable[Effect]) -> Effect:
    """Combines effects by a function."""
    parts = tuple(effects)
    keys = tuple(dict.fromkeys(key for part in parts for key in part.keys))
    return Effect(keys, lambda numbers: function(*(part.of(numbers) for part in parts)))


def mean(effects: Iterable[Effect]) -> Effect:
    return combine(lambda *values: sum(values) / len(values), effects)


def lowest(effects: Iterable[Effect]) -> Effect:
    return combine(lambda *values: functools.reduce(np.minimum, values), effects)


def highest(effects: Iterable[Effect]) -> Effect:
    return combine(lambda *values: functools.reduce(np.maximum, values), effects)


def excess(a: Effect, b: Effect) -> Effect:
    """By how many percent `a` exceeds `b`, given their logarithms."""
    return combine(lambda x, y: 100.0 * np.expm1(np.minimum(x - y, 700.0)), (a, b))


@dataclasses.dataclass(frozen=True)
class Claim:
    """An effect that is positive according to the paper.

    Attributes:
      where: the table, figure or section that says so.
      unit: of the effect.
      published: the paper's numbers, of which the effect may take some that are not printed.
    """

    text: str
    effect: Effect
    where: str
    unit: str = "%"
    published: Numbers = dataclasses.field(default_factory=dict)

    @property
    def paper(self) -> float | None:
        """The effect according to the paper's printed numbers, or None."""
        printed = all(key in self.published for key in self.effect.keys)
        return float(self.effect.of(self.published)) if printed else None


def make_again(kind: "Kind", out: str | Path, settings: Mapping[str, Any], command: str) -> str:
    """Half a sentence that says how to make what a folder lacks."""
    words = shlex.split(command)
    given = settings.get("options") or {flag: settings.get(flag) for flag in kind.flags}
    for name, value in given.items():
        flag = f"--{name.replace('_', '-')}"
        if value is not None and flag not in words:
            values = value if isinstance(value, list) else [] if value is True else [value]
            words += [flag, *map(str, values)]
    words += [f"--gin.{binding}" for binding in settings.get("bindings") or ()]
    return f"make it by `{shlex.join([*words, '--out', str(out)])}`"


@dataclasses.dataclass(frozen=True, eq=False)
class Kind:
    """The folders of one command, and the claims of its paper.

    Attributes:
      command: that fills such folders.
      record: the file with a folder's settings, by which it is known.
      claims: in the order of the paper.
      read: (folder, B, seed of the bootstrap): the numbers of its finished runs.
      flags: settings that the command takes by their names, if the record has no "options".
      commands: {first part of a key: command}, where it is not `command` that makes the numbers.
      world: settings that say which world or corpus the runs are of.
      free: settings that may differ between seeds.
      make: (kind, folder, settings, command), see `make_again`.
    """

    paper: str
    command: str
    record: str
    claims: Sequence[Claim]
    read: Callable[[Path, int, int], Numbers]
    flags: Sequence[str] = ("seed", "size")
    commands: Mapping[str, str] = dataclasses.field(default_factory=dict)
    world: Sequence[str] = ("source",)
    free: Collection[str] = ()
    make: Callable[["Kind", Path, Mapping[str, Any], str], str] = make_again

    def settings(self, folder: str | Path) -> dict[str, Any]:
        return read_json_object(Path(folder) / self.record)

    def world_of(self, folder: str | Path) -> str:
        """The world or corpus of a folder's runs, in a few words."""
        settings = self.settings(folder)
        return ", ".join(str(v) for v in map(settings.get, self.world) if v) or "simulated"

    def command_of(self, key: Key) -> str:
        return self.commands.get(key[0], self.command)


# --- verdicts


def judge(claims: Iterable[Claim], seeds: Sequence[Numbers]) -> list[dict[str, Any]]:
    """The verdict of each claim over seeds.

    Returns:
      [{"claim", "where", "unit", "paper", "verdict", "seeds", "seeds_needed", "mean", "low",
      "high", "values", "missing"}]: "paper" is None where it prints no number; "verdict" is "yes",
      "no", "undecided" or "not run"; "seeds" is how many have what the claim takes; "seeds_needed"
      estimates how many would decide it (None: more than 100, or unknown); "values" are the
      effects, None where there is none; "missing" are the numbers that each seed lacks, such as
      "main/lora", or "main" where it has none that begins so.
    """
    return [_judged(claim, seeds) for claim in claims]


def _judged(claim: Claim, seeds: Sequence[Numbers]) -> dict[str, Any]:
    missing = [_missing(claim, numbers) for numbers in seeds]
    known = [numbers for numbers, lacks in zip(seeds, missing, strict=True) if not lacks]
    row = {"claim": claim.text, "where": claim.where, "unit": claim.unit, "paper": claim.paper}
    row |= {"verdict": "not run", "seeds": len(known), "seeds_needed": None}
    row |= dict.fromkeys(("mean", "low", "high")) | {"values": [None] * len(seeds)}
    row["missing"] = [list(map("/".join, lacks)) for lacks in missing]
    if not known:
        return row
    # "No gain" on both sides is inf - inf, of which nothing is known.
    with np.errstate(invalid="ignore"):
        # Rounded, or a difference of equal numbers would be above or below 0 by chance.
        effects = np.round([claim.effect.of(numbers) for numbers in known], 9)  # [S, 1 + B]
        samples = bootstrap_seeds(effects[:, 1:])
        mean, over_seeds = effects[:, 0].mean(), effects[:, 0].std(ddof=min(1, len(known) - 1))
        # Seeds differ at least as far as their items make them; of one seed nothing else is known.
        stddev = np.maximum(over_seeds, np.sqrt(effects[:, 1:].var(axis=1).mean()))
    low, high = seed_interval(samples, len(known))
    if len(known) == 1 and np.all(effects == mean):  # one number without items, such as a cost
        low, high, stddev = -math.inf, math.inf, math.nan
    effect = iter(effects[:, 0].tolist())
    finite = [None if lacks else _finite(next(effect)) for lacks in missing]
    row |= {"mean": _finite(mean), "low": _finite(low), "high": _finite(high), "values": finite}
    if len(known) >= FEWEST_SEEDS and (low > 0 or high < 0):
        return row | {"verdict": "yes" if low > 0 else "no"}
    row["verdict"] = "undecided"
    if math.isfinite(mean) and math.isfinite(stddev):
        # What was not enough is not enough.
        row["seeds_needed"] = seeds_needed(mean, stddev, max(FEWEST_SEEDS, len(known) + 1))
    return row


def _missing(claim: Claim, numbers: Numbers) -> list[Key]:
    """For each missing number, the shortest prefix of its key that identifies it."""
    begun = {key[:n] for key in numbers for n in range(1, len(key) + 1)}
    lacking = [key for key in claim.effect.keys if key not in numbers]
    starts = ([key[:n] for n in range(1, len(key) + 1)] for key in lacking)
    return list(dict.fromkeys(next(k for k in keys if k not in begun) for keys in starts))


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None  # JSON has no infinity


# --- the page


_NOTE = (
    "Effects are above 0 where the claim is true; intervals are of a bootstrap over seeds and "
    "items ({samples:,} samples). Yes: the interval is above 0; no: below 0; undecided: neither, "
    f"or fewer than {FEWEST_SEEDS} seeds. How many would decide is an estimate, of one seed a "
    "lower bound."
)
_HEADERS = ("Claim", "In the paper", "Ours", "95 % interval", "Holds", "Would decide", "Command")


def write_claims(
    kinds: Sequence[Kind], folders: Sequence[str | Path], out: str | Path, samples: int = SAMPLES
) -> Path:
    """Writes claims.html, .md and .json over folders of several seeds, and prints the tables.

    Args:
      kinds: what folders may be, in the order of the page.
      folders: of any kinds and worlds; those of one kind and world differ by their seed alone.

    Returns:
      The path of claims.html.

    Raises:
      UserError: a folder is of no kind or named twice, or two of one kind and world are not of
        different seeds and otherwise the same settings; see also `Kind.read`.
    """
    if len({Path(folder).resolve() for folder in folders}) < len(folders):
        raise UserError("A folder is named twice; give one of each seed.")
    groups = _grouped(kinds, folders)
    for (kind, _), members in groups.items():
        # Means over folders of different settings would be of nothing.
        check_seeds(members, kind.record, kind.free)
    papers: dict[str, list[Section]] = {}
    claims: list[dict[str, Any]] = []
    for (kind, world), members in groups.items():
        rows = judge(
            kind.claims, [kind.read(Path(f), samples, seed) for seed, f in enumerate(members)]
        )
        papers.setdefault(kind.paper, []).append(_table(kind, world, members, rows))
        about = {"paper_title": kind.paper, "world": world, "folders": list(map(str, members))}
        claims += [about | row for row in rows]
    sections = [Section(paper, sections=tables) for paper, tables in papers.items()]
    out, note, given = Path(out), _NOTE.format(samples=samples), list(map(str, folders))
    write_json(out / "claims.json", {"folders": given, "samples": samples, "claims": claims})
    write_file(out / "claims.md", "\n".join([*(s.markdown(2) for s in sections), f"{note}\n"]))
    parts = [
        Section(paper, anchor=f"paper-{i}", sections=list(map(_folded, tables)))
        for i, (paper, tables) in enumerate(papers.items())
    ]
    said = collections.Counter(row["verdict"] for row in claims)
    verdicts = ", ".join(f"{verdict} {count}" for verdict, count in sorted(said.items()))
    lead = [f"{len(claims)} claims: {verdicts}.", note, f"Folders: {', '.join(given)}."]
    page = write_page(out / "claims.html", "Which of the papers' claims hold", parts, lead)
    for paper, tables in papers.items():
        for table in tables:
            table.show(name=paper)
    print(note, flush=True)
    return page


def _folded(table: Section) -> Section:
    """The table with its long notes folded."""
    notes = Section("What is missing, and how to make it", code="\n".join(table.notes))
    return dataclasses.replace(table, notes=(), sections=[notes])


def _grouped(
    kinds: Sequence[Kind], folders: Sequence[str | Path]
) -> dict[tuple[Kind, str], list[str | Path]]:
    """{(kind, world): folders}, in the order of the kinds."""
    groups: dict[tuple[int, str], list[str | Path]] = {}
    for folder in folders:
        fitting = [i for i, kind in enumerate(kinds) if (Path(folder) / kind.record).is_file()]
        if not fitting:
            commands = ", ".join(f"`{kind.command}`" for kind in kinds)
            raise UserError(
                f"{folder} is a folder of none of {commands}; make one by `ckl demo --out "
                f"{folder}`."
            )
        groups.setdefault((fitting[0], kinds[fitting[0]].world_of(folder)), []).append(folder)
    order = sorted(groups, key=lambda group: group[0])
    return {(kinds[i], world): groups[i, world] for i, world in order}


def _table(
    kind: Kind, world: str, folders: Sequence[str | Path], rows: Sequence[dict[str, Any]]
) -> Section:
    cells = [
        [
            row["claim"],
            f"{row['where']}: {'–' if row['paper'] is None else format(row['paper'], '+.2f')}",
            *_effect(row),
            *_verdict(row),
            ", ".join(dict.fromkeys(map(kind.command_of, claim.effect.keys))),
        ]
        for row, claim in zip(rows, kind.claims, strict=True)
    ]
    title = f"{kind.command}, {world}, {labels.count(len(folders), 'seed')}"
    about = {"notes": _how_to_make(kind, folders, rows), "kind": "plain", "wide": _HEADERS[6:]}
    return Section(title, _HEADERS, cells, **about)


def _effect(row: Mapping[str, Any]) -> list[str]:
    """The cells of the mean and its interval."""
    if not row["seeds"]:
        return ["–", "–"]
    low = "-∞" if row["low"] is None else f"{row['low']:+.2f}"
    high = "+∞" if row["high"] is None else f"{row['high']:+.2f}"
    ends = "–" if row["low"] is row["high"] is None else f"{low} to {high}"
    return ["no gain" if row["mean"] is None else f"{row['mean']:+.2f} {row['unit']}", ends]


def _verdict(row: Mapping[str, Any]) -> list[Cell | str]:
    """The cells of the verdict and of the number of seeds that would decide."""
    seeds, every = row["seeds"], len(row["values"])
    partly = f"{seeds} of {every} seeds" if 0 < seeds < every else ""
    if row["verdict"] != "undecided":
        return [Cell(row["verdict"], partly), ""]
    number = row["seeds_needed"] or "more than 100"
    unknown = row["mean"] is None or row["low"] is row["high"] is None
    needed = "–" if unknown else f"{number} seeds"
    return [Cell(f"undecided ({labels.count(seeds, 'seed')})", partly), needed]


def _how_to_make(
    kind: Kind, folders: Sequence[str | Path], rows: Sequence[dict[str, Any]]
) -> list[str]:
    """Sentences about the numbers missing from each folder, with the commands that make them."""
    notes = []
    for i, folder in enumerate(folders):
        lacking: dict[str, dict[str, bool]] = {}
        for name in dict.fromkeys(name for row in rows for name in row["missing"][i]):
            lacking.setdefault(kind.command_of((name.partition("/")[0],)), {})[name] = True
        for command, names in lacking.items():
            how = kind.make(kind, Path(folder), kind.settings(folder), command)
            notes.append(f"Missing in {folder}: {', '.join(names)}; {how}.")
    return notes
