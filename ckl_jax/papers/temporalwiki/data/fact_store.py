"""One Wikidata dump, partitioned by item number, with an index of labels.

A dump is read once, as a stream; workers parse its lines. A bucket holds one line an entity:
[number, label, title of its page, revision, [statement, ...], line of the dump], with [alias, ...]
before the line if there are any; a statement is [property, item], or, if it has dates or not the
best rank, [property, item, best, start, end].
"""

import collections
import functools
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax import files
from ckl_jax.data.buckets import bucket_files, bucket_path
from ckl_jax.data.facts import wikidata_json
from ckl_jax.data.facts.wikidata_json import Entity, FactRules, Line, Statement, parse_entity
from ckl_jax.data.process_pool import Progress, batches, ordered_map
from ckl_jax.errors import UserError
from ckl_jax.files import parse_json

_BATCH_BYTES = 4 << 20


def entity_of(line: str | bytes) -> Entity:
    """The item of one line of a bucket."""
    number, label, title, revision, rows, *aliases, at = parse_json(line)
    statements = tuple(Statement(f"P{p}", f"Q{q}", *dated) for p, q, *dated in rows)
    return Entity(f"Q{number}", label, title, revision, statements, at, *map(tuple, aliases))


def extract(
    path: str | os.PathLike,
    folder: Path,
    buckets: int,
    rules: FactRules,
    pool=None,
    workers: int = 1,
    progress: Progress = lambda *unused: None,
) -> dict[str, Any]:
    """Reads a dump into `folder` unless that is already done.

    Returns:
      Counts: items, properties, facts, pages, labels.

    Raises:
      UserError: the dump is damaged, or has no entity.
    """
    marker = folder / "counts.json"
    if marker.is_file():
        return files.read_json_object(marker)
    # A store without its marker is unfinished: begin it anew.
    shutil.rmtree(folder, ignore_errors=True)
    counts: collections.Counter[str] = collections.Counter()
    properties: dict[str, str] = {}
    lines = wikidata_json.entity_lines(path, workers)
    parts = batches(lines, lambda line: len(line[2]), _BATCH_BYTES)
    work = ((os.fspath(path), part, rules, buckets) for part in parts)
    with bucket_files(folder, buckets) as outputs:
        for texts, labels, counted in ordered_map(_parse_batch, work, pool, 2 * workers):
            # Workers parse; this process alone writes, so that lines never mix.
            for number, text in texts.items():
                outputs[number].write(text)
            properties |= labels
            counts.update(counted)
            progress(counts["items"], 0, f"items of {Path(path).name}")
    check_counts(path, counts)
    files.write_json(folder / "properties.json", properties)
    # Last: the marker says that the store is whole.
    files.write_json(marker, counts)
    return dict(counts)


def check_counts(path: str | os.PathLike, counts: Mapping[str, int]) -> None:
    """Raises `UserError` if a dump had no entity."""
    if not any(counts.values()):
        raise UserError(f"{path} has no entity; give a Wikidata JSON dump, one entity a line.")


def _parse_batch(
    work: tuple[str, list[Line], FactRules, int],
) -> tuple[dict[int, str], dict[str, str], collections.Counter[str]]:
    path, lines, rules, buckets = work
    texts: dict[int, list[str]] = collections.defaultdict(list)
    properties: dict[str, str] = {}
    counts: collections.Counter[str] = collections.Counter()
    for entity in entities(path, lines, rules, counts):
        if entity.id[0] == "P":
            properties[entity.id] = entity.label
        else:
            # By the number of the item, so that both dumps put an item into the same bucket.
            texts[int(entity.id[1:]) % buckets].append(row_of(entity) + "\n")
    return {b: "".join(rows) for b, rows in texts.items()}, properties, counts


def entities(
    path: str | os.PathLike,
    lines: Iterable[Line],
    rules: FactRules,
    counts: collections.Counter[str],
) -> Iterator[Entity]:
    """Yields the items and properties of lines, and counts them."""
    counts.update(properties=0)
    for line in lines:
        entity = parse_entity(path, line, rules)
        if entity is None:
            counts["other entities"] += 1
            continue
        if entity.id[0] == "P":
            counts["properties"] += 1
        else:
            known = {"pages": bool(entity.title), "labels": bool(entity.label)}
            counts.update(items=1, facts=len(entity.facts), **known)
        yield entity


def row_of(entity: Entity) -> str:
    """The line of an item that `entity_of` reads."""
    rows = [_statement_row(s) for s in entity.statements]
    row = [int(entity.id[1:]), entity.label, entity.title, entity.revision, rows]
    aliases = [entity.aliases] if entity.aliases else []
    return json.dumps([*row, *aliases, entity.line], ensure_ascii=False)


def _statement_row(statement: Statement) -> list[Any]:
    prop, item, *dated = statement
    plain = dated == [True, "", ""]
    return [int(prop[1:]), int(item[1:]), *([] if plain else dated)]


def index(folder: Path, bucket: int, dump: str) -> dict[int, bytes]:
    """Reads a bucket as item number -> line, and writes its label index.

    Raises:
      UserError: an item is there twice.
    """
    lines: dict[int, bytes] = {}
    offsets: list[tuple[int, int]] = []
    with files.os_errors(folder, "read"), open(bucket_path(folder, bucket), "rb") as f:
        offset = 0
        for line in f:
            # The number is read without parsing the line: most items are compared as bytes only.
            number = int(line[1 : line.index(b",")])
            if number in lines:
                raise twice(dump, (lines[number], line))
            lines[number] = line
            offsets.append((number, offset))
            offset += len(line)
    with files.atomic_write(_index_path(folder, bucket), "wb") as f:
        # [items, 2]: number and byte offset, sorted for a binary search.
        np.save(f, np.array(sorted(offsets), dtype=np.int64).reshape(-1, 2))
    return lines


def twice(dump: str, rows: Iterable[str | bytes]) -> UserError:
    """The error for an item that occurs twice in a dump, from its rows."""
    (first, number), (second, _), *_ = sorted((row[-1], row[0]) for row in map(parse_json, rows))
    return UserError(
        f"{dump}, line {second}: item Q{number} was there before, in line {first}; a dump has "
        "every item once."
    )


def _index_path(folder: Path, bucket: int) -> Path:
    return folder / f"{bucket:05d}.npy"


class Labels:
    """Labels of the items and properties of an indexed store, read on demand."""

    def __init__(self, folder: Path, buckets: int):
        self.folder, self.buckets = folder, buckets
        self.properties: dict[str, str] = files.read_json(folder / "properties.json")
        self._item = functools.lru_cache(maxsize=100_000)(self._read)

    def item(self, item: str) -> str:
        """Label of an item; "" if it has none or is not in the dump."""
        return self._item(int(item[1:]))[0]

    def type_of(self, item: str) -> str:
        """Label of what an item is an instance of (the first); "" if that is not known."""
        kind = self._item(int(item[1:]))[1]
        return self.item(kind) if kind else ""

    @functools.lru_cache(maxsize=128)  # noqa: B019 (bounds the open files of a process)
    def _open(self, bucket: int):
        # Memory-mapped: worker processes share the index's pages.
        offsets = np.load(_index_path(self.folder, bucket), mmap_mode="r", allow_pickle=False)
        return offsets, open(bucket_path(self.folder, bucket), "rb")

    def aliases(self, item: str) -> tuple[str, ...]:
        """The other names of an item, where they were read."""
        return self._item(int(item[1:]))[2]

    def _read(self, number: int) -> tuple[str, str, tuple[str, ...]]:
        """Label, type and aliases of an item."""
        with files.os_errors(self.folder, "read"):
            offsets, file = self._open(number % self.buckets)
            i = int(np.searchsorted(offsets[:, 0], number))
            if i == len(offsets) or offsets[i, 0] != number:
                return "", "", ()
            file.seek(int(offsets[i, 1]))
            item = entity_of(file.readline())
            return item.label, item.kind, item.aliases


def merge(
    old: dict[int, bytes], new: dict[int, bytes]
) -> Iterator[tuple[Entity | None, Entity | None]]:
    """Pairs the two versions of each item in a bucket, by number; None where one is missing."""
    for number in sorted(itertools.chain(old, (n for n in new if n not in old))):
        yield tuple(entity_of(side[number]) if number in side else None for side in (old, new))
