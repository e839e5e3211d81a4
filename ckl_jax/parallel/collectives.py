"""Collectives of a compiled program: operation, mesh axis, bytes, number of executions.

Read from the text of the compiled module. Instructions inside a loop count as often as the loop
runs, where the compiler says how often that is; an asynchronous pair counts once.

Bytes are those that one device sends, for the ring algorithms that networks of accelerators use:
with a group of g devices, an all-gather of a result of n bytes and an all-to-all move n (g-1)/g, a
reduce-scatter of an operand of n bytes the same, an all-reduce twice that, a permutation n.
"""

import collections
import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

KINDS = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
)
# Element types whose name does not end in their number of bits, or has no number.
_BITS = {"pred": 8, "s4": 4, "u4": 4, "bf16": 16, "c64": 64, "c128": 128}
_INSTRUCTION = re.compile(
    rf"^\s*(?:ROOT )?%?[\w.-]+ = (.*?) ({'|'.join(KINDS)}|ragged-all-to-all)(-start)?\("
)
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.-]+) \(.*\) -> .*\{\s*$")
_SHAPE = re.compile(r"\b([a-z]+\d+[a-z0-9]*|pred)\[([\d,]*)\]")
_CALLED = re.compile(r"(?:calls|to_apply|body|condition)=%?([\w.-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_LOOP = re.compile(r" while\(.*condition=%?([\w.-]+), body=%?([\w.-]+)")
_LESS = re.compile(r" compare\(%([\w.-]+), %([\w.-]+)\), direction=LT")
_PLACE = re.compile(r" get-tuple-element\(.*\), index=(\d+)")
_CONSTANT = re.compile(r" [su]32\[\]\S* constant\((\d+)\)")
_ADDED = re.compile(r" add\(%([\w.-]+), %([\w.-]+)\)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')


@dataclasses.dataclass(frozen=True)
class Collective:
    """All instructions of one kind over one mesh axis."""

    kind: str  # "all-gather", ...
    # mesh axes that the exchanging devices differ in, "data+fsdp"; "?" if it is none of them
    axis: str
    group: int  # how many devices exchange
    count: int  # how often in a step
    bytes: int  # that one device sends in a step


def collectives(hlo: str, mesh: Any = None) -> list[Collective]:
    """Returns the collectives of a compiled module, the largest first.

    Args:
      hlo: `compiled.as_text()`.
      mesh: the mesh that it was compiled for, to name its axes.
    """
    # {set of device groups: name of the mesh axis}; groups are compared as sets.
    axes = _axes_of(mesh)
    times, lines = _executions(hlo)
    totals: dict[tuple, list[int]] = collections.defaultdict(lambda: [0, 0])
    for name, line in lines:
        kind, size, groups = _read(line, mesh.size if mesh is not None else 1)
        group = len(groups[0]) if groups else 1
        # The partitioner leaves exchanges of a device with itself, which move nothing.
        if group < 2:
            continue
        total = totals[kind, axes.get(_key(groups), "?"), group]
        total[0] += times[name]
        total[1] += times[name] * _moved(kind, size, group)
    ops = [Collective(*key, *total) for key, total in totals.items()]
    return sorted(ops, key=lambda c: -c.bytes)


def _moved(kind: str, size: int, group: int) -> int:
    if kind == "collective-permute":
        return size
    factor = {"all-reduce": 2, "reduce-scatter": group}.get(kind, 1)  # its result is a g-th
    return size * factor * (group - 1) // group


def _read(line: str, devices: int) -> tuple[str, int, list[tuple[int, ...]]]:
    """(kind, bytes of the result, groups of devices) of an instruction."""
    result, kind, start = _INSTRUCTION.match(line).groups()
    kind = "all-to-all" if kind == "ragged-all-to-all" else kind
    sizes = [_bytes(*shape) for shape in _SHAPE.findall(result)]
    if kind == "collective-permute":
        pairs = re.search(r"source_target_pairs=(\{\{.*?\}\})", line)
        groups = _pairs(pairs.group(1)) if pairs else []
        return kind, sizes[0], groups
    groups = _groups(line, devices)
    size = sum(sizes)
    if start and kind == "all-gather":  # its result holds the operand too
        size = size * len(groups[0]) // (len(groups[0]) + 1)
    elif start and kind in ("all-to-all", "collective-broadcast", "reduce-scatter"):
        # Their asynchronous results are a tuple of operand and result.
        size //= 2
    return kind, size, groups


def _bytes(dtype: str, dims: str) -> int:
    bits = _BITS.get(dtype) or int(re.search(r"\d+", dtype).group())
    return math.prod(int(d) for d in dims.split(",") if d) * bits // 8


def _pairs(text: str) -> list[tuple[int, ...]]:
    """Chains of a permutation as groups: what can reach each other."""
    pairs = [tuple(map(int, p.split(","))) for p in re.findall(r"\{(\d+,\d+)\}", text)]
    # Union of the pairs: a ring a -> b -> c -> a is one group.
    group_of: dict[int, set[int]] = {}
    for a, b in pairs:
        joined = group_of.get(a, {a}) | group_of.get(b, {b})
        for device in joined:
            group_of[device] = joined
    return [g for g in {tuple(sorted(g)) for g in group_of.values()} if len(g) > 1]


def _groups(line: str, devices: int) -> list[tuple[int, ...]]:
    """The groups of devices in any of the forms that they are written in."""
    # HLO writes groups as lists, {{0,1},{2,3}}, as a reshaped iota, [2,2]<=[4], or by axes of a
    # mesh.
    if listed := re.search(r"replica_groups=\{(\{.*?\})\}", line):
        return [tuple(map(int, g.split(","))) for g in re.findall(r"\{([\d,]+)\}", listed.group(1))]
    if tiled := re.search(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", line):
        shape, source, order = tiled.groups()
        rows = _iota(source, order).reshape(_ints(shape))
        return [tuple(row) for row in rows.tolist()]
    named = re.search(
        r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\))?"
        r" \{([^}]*)\}",
        line,
    )
    if named:
        return _named_groups(*named.groups())
    return [tuple(range(devices))] if "replica_groups={}" in line else []


def _named_groups(sizes: str, source: str | None, order: str | None, along: str):
    """Groups along axes of a mesh that the compiler made: mesh['a'=4,'b'=2] {'a'}."""
    shape = {name: int(n) for name, n in re.findall(r"'([^']+)'=(\d+)", sizes)}
    ids = _iota(source or str(math.prod(shape.values())), order)
    split, wanted = [], []
    parts = {
        name: (pre, size) for name, pre, size in re.findall(r"'([^']+)'(?::\((\d+)\)(\d+))?", along)
    }
    for name, size in shape.items():
        pre, part = parts.get(name, ("", ""))
        if part:  # a part of an axis
            split += [int(pre), int(part), size // int(pre) // int(part)]
            wanted.append(len(split) - 2)
        else:
            split.append(size)
            if name in parts:
                wanted.append(len(split) - 1)
    rest = [i for i in range(len(split)) if i not in wanted]
    group = math.prod(split[i] for i in wanted)
    rows = ids.reshape(split).transpose(rest + wanted).reshape(-1, group)
    return [tuple(row) for row in rows.tolist()]


def _iota(source: str, order: str | None) -> np.ndarray:
    shape = _ints(source)
    ids = np.arange(math.prod(shape)).reshape(shape)
    return (ids.transpose(_ints(order)) if order else ids).reshape(-1)


def _ints(text: str) -> list[int]:
    return [int(n) for n in text.split(",")]


def _key(groups: Sequence[Sequence[int]]) -> frozenset:
    return frozenset(frozenset(group) for group in groups)


def _axes_of(mesh: Any) -> dict[frozenset, str]:
    """{groups of devices: "data+fsdp"} for each set of mesh axes, devices by place in the mesh."""
    if mesh is None:
        return {}
    sizes = dict(mesh.shape)
    positions = np.arange(mesh.size).reshape(tuple(sizes.values()))
    names = [name for name, size in sizes.items() if size > 1]
    axes: dict[frozenset, str] = {}
    for count in range(1, len(names) + 1):
        for chosen in itertools.combinations(names, count):
            along = [list(sizes).index(name) for name in chosen]
            rest = [i for i in range(len(sizes)) if i not in along]
            group = math.prod(sizes[name] for name in chosen)
            rows = positions.transpose(rest + along).reshape(-1, group)
            axes.setdefault(_key(rows.tolist()), "+".join(chosen))
    return axes


def _executions(hlo: str) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Number of executions of each computation, and (computation, line) of each collective."""
    calls: dict[str, list[tuple[str, int]]] = collections.defaultdict(list)
    computations: dict[str, list[str]] = collections.defaultdict(list)
    for name, line in _lines(hlo):
        computations[name].append(line)
    lines, entry = [], None
    for name, line in _lines(hlo):
        if line.startswith("ENTRY"):
            entry = name
        if _INSTRUCTION.match(line):
            lines.append((name, line))
            continue  # what it reduces by sends nothing
        known, loop = _TRIPS.search(line), _LOOP.search(line)
        trips = int(known.group(1)) if known else 1
        if loop and not known:
            trips = _trips_of(computations[loop[1]], computations[loop[2]])
        calls[name] += [(callee, trips) for callee in _CALLED.findall(line)]
        if branches := _BRANCHES.search(line):
            calls[name] += [(b.strip().lstrip("%"), 1) for b in branches.group(1).split(",")]
    times: dict[str, int] = collections.defaultdict(int)
    times[entry] = 1
    for name in reversed(computations):  # a module lists a computation before those that call it
        for callee, trips in calls[name]:
            times[callee] += times[name] * trips
    return times, lines


def _trips_of(condition: Sequence[str], body: Sequence[str]) -> int:
    """Trip count of a loop that counts from 0 up to a constant.

    The compiler for TPUs writes no number of trips; some of its loops do two steps at once.
    """
    compared = next((m for line in condition if (m := _LESS.search(line))), None)
    # Not a counted loop: counted once, which understates it.
    if compared is None:
        return 1
    counter, bound = _definition(condition, compared[1]), _definition(condition, compared[2])
    place, limit = _PLACE.search(counter), _CONSTANT.search(bound)
    root = next((line for line in body if re.match(r"\s*ROOT .* tuple\(", line)), "")
    if not (place and limit and root):
        return 1
    # The counter is one element of the loop's state; its increment is the step.
    results = re.findall(r"%([\w.-]+)", root.split(" tuple(")[1])
    added = _ADDED.search(_definition(body, results[int(place[1])]))
    sides = [_definition(body, name) for name in added.groups()] if added else []
    steps = [int(m[1]) for side in sides if (m := _CONSTANT.search(side))]
    return -(-int(limit[1]) // steps[0]) if steps and steps[0] else 1


def _definition(lines: Sequence[str], name: str) -> str:
    """The line that defines %name."""
    start = re.compile(rf"^\s*(?:ROOT )?%{re.escape(name)} = ")
    return next((line for line in lines if start.match(line)), "")


def _lines(hlo: str) -> Iterator[tuple[str, str]]:
    """(computation, line) for each line within a computation, its heading among them."""
    name = None
    for line in hlo.splitlines():
        if heading := _COMPUTATION.match(line):
            name = heading.group(1)
        if name is not None:
            yield name, line


def table(ops: Sequence[Collective]) -> str:
    """The collectives as aligned lines, with their sum."""
    rows = [("collective", "over", "devices", "times", "sent per step and device")]
    rows += [
        (c.kind, c.axis, f"{c.group:,}", f"{c.count:,}", f"{c.bytes / 2**20:,.2f} MiB") for c in ops
    ]
    rows.append(
        (
            "sum",
            "",
            "",
            f"{sum(c.count for c in ops):,}",
            f"{sum(c.bytes for c in ops) / 2**20:,.2f} MiB",
        )
    )
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    return "\n".join(
        f"{a:{widths[0]}}  {b:{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}  {e:>{widths[4]}}"
        for a, b, c, d, e in rows
    )
