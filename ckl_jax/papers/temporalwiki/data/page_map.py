"""Maps pages to items: files of (page id, Q-id), as two sorted columns of numbers."""

import csv
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ckl_jax.data.compressed import read_blocks, read_lines
from ckl_jax.errors import UserError
from ckl_jax.files import NAMES_ONCE, atomic_write, os_errors, parse_json, require_file

_PROPS = re.compile(rb"\((\d+),'wikibase_item','[Qq](\d+)'")
_LONGEST_TUPLE = 64  # bytes of what _PROPS matches


def read_page_map(path: str | os.PathLike) -> Iterator[tuple[int, int]]:
    """Yields (page id, number of the item).

    Args:
      path: a TSV with columns `page_id` and `wikidata_id`, the page_props SQL dump, or JSON
        {"Q1": page id}; plain or compressed.

    Raises:
      UserError: there is no such file, or a line of it is not of its form.
    """
    check_page_map(path)
    name = Path(path).name.removesuffix(".gz").removesuffix(".bz2")
    readers = {".sql": _read_sql, ".json": _read_json}
    yield from readers.get(Path(name).suffix, _read_tsv)(path)


def check_page_map(path: str | os.PathLike) -> None:
    """Raises `UserError` unless there is such a file."""
    require_file(
        path,
        f"There is no page-to-item map {path}; give a TSV with the columns page_id and "
        "wikidata_id, a page_props.sql dump, or leave --page-map out to go by sitelinks.",
    )


def _read_tsv(path) -> Iterator[tuple[int, int]]:
    columns = None
    for number, _, line in read_lines(path):
        try:
            row = next(csv.reader([line.decode("utf-8", "replace")], delimiter="\t"), [])
            if columns is None:
                columns = row.index("page_id"), row.index("wikidata_id")
            elif row:
                page, item = (row[i] for i in columns)
                if item:
                    yield int(page), int(item.lstrip("Qq"))
        except (ValueError, IndexError, csv.Error) as e:
            raise UserError(
                f"{path}, line {number}: {'no number' if columns else 'no header'} ({e}); the "
                "columns are page_id and wikidata_id, with tabs between them."
            ) from e


def _read_sql(path) -> Iterator[tuple[int, int]]:
    rest = b""
    for block in read_blocks(path):
        text, end = rest + block, 0
        for match in _PROPS.finditer(text):
            yield int(match[1]), int(match[2])
            end = match.end()
        # What may be the beginning of a tuple that the next block ends.
        rest = text[max(end, len(text) - _LONGEST_TUPLE) :]


def _read_json(path) -> Iterator[tuple[int, int]]:
    try:
        for item, page in parse_json(b"".join(read_blocks(path)), NAMES_ONCE).items():
            yield int(page), int(item.lstrip("Qq"))
    except (ValueError, TypeError, AttributeError) as e:
        raise UserError(f'{path} is not JSON of the form {{"Q1": page id}} ({e}).') from e


class PageMap:
    """Item -> page id, from a file that `PageMap.write` made; sixteen bytes a page."""

    def __init__(self, path: str | os.PathLike):
        with os_errors(path, "read"):
            self._rows = np.load(path, mmap_mode="r", allow_pickle=False)

    @staticmethod
    def write(path: Path, source: str | os.PathLike) -> int:
        """Reads the map `source` and returns how many pages it has."""
        rows = np.array([(q, page) for page, q in read_page_map(source)], np.int64).reshape(-1, 2)
        if not len(rows):
            raise UserError(f"{source} maps no page to an item; give another --page-map.")
        with atomic_write(path, "wb") as f:
            # Sorted by item for the binary search; stable, so that the first page of an item wins.
            np.save(f, rows[np.argsort(rows[:, 0], kind="stable")])
        return len(rows)

    def page(self, item: str) -> str:
        """Page id as text; "" if the item has no page."""
        number = int(item[1:])
        i = int(np.searchsorted(self._rows[:, 0], number))
        return str(self._rows[i, 1]) if i < len(self._rows) and self._rows[i, 0] == number else ""
